"""A Python file that needs PyTorch alone, with one module. Writing it does not need PyTorch."""

from pathlib import Path

import numpy as np

from greatcircle.export.numbers import Numbers
from greatcircle.export.numpy import constants, docstring, numbers_of

RULES = {
    "relu": "torch.where(z < 0, torch.zeros_like(z), z)",
    "leaky_relu": "torch.where(z < 0, 0.01 * z, z)",
    "abs": "torch.where(z < 0, -z, z)",
    "tanh": "torch.tanh(z)",
    "softsign": "z / (1 + torch.where(z < 0, -z, z))",
    "sin": "torch.sin(z)",
    "arctan": "torch.arctan(z)",
    "elu": "torch.where(z < 0, torch.expm1(torch.where(z < 0, z, torch.zeros_like(z))), z)",
    "identity": "z",
}
"""At kinks the derivative is that of the branch z ≥ 0."""


def files(of: Numbers, path: Path, *, jacobian: bool = False) -> dict[Path, bytes]:
    """One file."""
    p, count = of.parameters, len(of.parameters.matrices)
    arrays = {} if p.normalise else {"shift": p.shift, "rest": p.rest, "scale": p.scale}
    for i, (w, b) in enumerate(zip(p.matrices, p.biases, strict=True), start=1):
        arrays |= {f"w{i}": w, f"b{i}": b} if of.bias else {f"w{i}": w}
    arrays |= {"gain": p.gain, "target_shift": p.target_shift}
    buffers = "\n".join(
        f"        self.register_buffer({name!r}, {tensor_of(a)})" for name, a in arrays.items()
    )
    layers = []
    for i in range(1, count + 1):
        product = f"h @ self.w{i}" + (f" + self.b{i}" if of.bias else "")
        value = f"_activation({product})" if i < count else product
        layers.append(f"        h = {value}{'.to(DTYPE)' if i == 1 and of.wide else ''}")
    body = "\n".join(layers)
    use = f"model = {of.name}(); model(x) takes rows x, model.jacobian(x) gives the derivatives."
    source = f'''{docstring(of, "PyTorch", use)}
import torch

{constants(of)}
DTYPE = torch.{of.dtype.name}


def _activation(z):
    return {RULES[p.activation]}


{_NORMALISED if p.normalise else ""}class {of.name}(torch.nn.Module):
    """The numbers are buffers, which training leaves alone: the bound is theirs."""

    def __init__(self):
        super().__init__()
{buffers}

    def forward(self, x):
        """Outputs (..., {of.sizes[-1]}) for x (..., {of.sizes[0]}). NaN and infinity give NaN."""
        finite = torch.isfinite(x).all(dim=-1, keepdim=True)
        h = {"_normalised(x)" if p.normalise else "((x - self.shift) - self.rest) * self.scale"}
{body}
        y = h * self.gain + self.target_shift
        return y * torch.where(finite, 1.0, float("nan")).to(y.dtype)

    def jacobian(self, x):
        """Derivatives (rows, {of.sizes[-1]}, {of.sizes[0]}) for rows x."""
        found = torch.func.vmap(torch.func.jacrev(self.forward))(x)
        return found + (0 * x).sum(dim=-1)[:, None, None]  # zero, or NaN
'''
    return {path: source.encode("utf-8")}


def tensor_of(array: np.ndarray) -> str:
    return f"torch.tensor({numbers_of(array)}, dtype=torch.{array.dtype.name})"


_NORMALISED = '''def _normalised(x):
    """x / |x|; zero stays zero, and no square overflows or vanishes."""
    largest = x.detach().abs().amax(dim=-1, keepdim=True)
    unit = x / torch.where(largest > 0, largest, torch.ones_like(largest))
    square = (unit * unit).sum(dim=-1, keepdim=True)
    norm = torch.sqrt(torch.where(square > 0, square, torch.ones_like(square)))
    return torch.where(square > 0, unit / norm, torch.zeros_like(unit))


'''
