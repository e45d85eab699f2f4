"""Export a fitted model to C, ONNX, CasADi, PyTorch or NumPy.

The scaling is part of the file, and its Lipschitz bound is proved for the rounded numbers.

| module | content |
|---|---|
| `write` | `export`: check the arguments, write the files |
| `formats` | the registry of formats, and what an exporter must provide |
| `rounded` | the model that all exporters write, with names and bound |
| `parameters`, `bound` | its numbers, and the proof of their bound |
| `trace`, `formula` | activations as formulas that every target can spell |
| `c`, `onnx`, `casadi`, `torch`, `numpy` | one exporter each |
| `render`, `text`, `names` | source code from `templates/`; numbers and names in it |

`docs/export.md` shows each format and how to add one.
"""

from greatcircle.export.formats import FORMATS
from greatcircle.export.rounded import RoundedModel, round_model
from greatcircle.export.write import export

__all__ = ["FORMATS", "RoundedModel", "export", "round_model"]
