"""Optimisation on products of spheres: directions, steps, stopping rules and the loop.

| module | contents |
|---|---|
| `loop` | `descend` and `iterate`: the loop |
| `iterations` | the compiled programs that the loop runs |
| `directions`, `steps` | where each layer turns, and how far |
| `arc` | the loss along a great circle |
| `schedules` | which rows each iteration sees |
| `stopping`, `early_stopping`, `outcome` | when and how a run ends |
| `record`, `history` | what is measured of each iteration |
| `checkpoint` | a run on disk |
| `callbacks`, `progress` | what shows a run |
"""

__all__: list[str] = []
