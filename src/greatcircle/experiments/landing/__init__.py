"""The landing: what a certified force is good for in the loop of a quadrotor near the ground.

| module | idea |
|---|---|
| `approach` | the plan: a glide slope to the pad |
| `vehicle` | the truth: a quadrotor in the vertical plane with ground effect, motor lag and wind |
| `weather` | wind, sensor noise and start errors of many landings, all bounded |
| `controller` | tracking, allocation, and the fixed-point iteration with the learned force |
| `compiled` | the learned force as exported C code, called from the loop |
| `flight` | many landings at once, and the size of all that the bound rests on |
| `bound` | the bound of the tracking error, its assumptions, and who kept them |
| `study` | train, certify, calibrate, land, compare |
| `curves`, `figures`, `page` | what came of it, on paper and as an interactive page |

`docs/landing.md` has the equations and the results.
"""
