"""From settings and data to a model: method presets, the start, and training.

| module | contents |
|---|---|
| `settings` | the parameters of an estimator, checked |
| `methods` | names of directions, steps and methods |
| `data` | rows by purpose, as problems and row schedules |
| `initialisation`, `target_gain` | initial weights and scaling |
| `fit` | the runs, and the model they lead to |
"""

__all__: list[str] = []
