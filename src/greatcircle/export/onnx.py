"""ONNX: a graph for onnxruntime and every other runtime that reads the format.

Only operators that onnxruntime has in both precisions: where it lacks one in double precision
(`Softsign`, `Elu`, `Atan`), the graph is made of simpler ones. Rows of any number go in at once.
"""

import json
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from greatcircle.export.extra import needed
from greatcircle.export.numbers import Numbers

OPSET, IR_VERSION = 17, 8
"""Of 2022, so that older runtimes read the file too."""


def files(of: Numbers, path: Path, *, jacobian: bool = False) -> dict[Path, bytes]:
    """One file; its metadata are what it says of itself."""
    return {path: model(of, jacobian).SerializeToString()}


def model(of: Numbers, jacobian: bool = False) -> Any:
    """The `onnx.ModelProto`, checked."""
    onnx = needed("onnx", "onnx")
    graph = _Graph(onnx, of)
    y, derivatives = _layers(graph, of, jacobian)
    graph.node("Identity", y, out="y")
    rows, helper = "rows", onnx.helper
    outputs = [helper.make_tensor_value_info("y", graph.kind, [rows, of.sizes[-1]])]
    if jacobian:
        graph.node("Identity", derivatives, out="jacobian")
        shape = [rows, of.sizes[-1], of.sizes[0]]
        outputs.append(helper.make_tensor_value_info("jacobian", graph.kind, shape))
    inputs = [helper.make_tensor_value_info("x", graph.kind, [rows, of.sizes[0]])]
    made = helper.make_model(
        helper.make_graph(graph.nodes, of.name, inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="greatcircle",
        doc_string="A network with a certified Lipschitz bound; the metadata say which.",
    )
    facts = of.facts()
    texts = {key: v if isinstance(v, str) else json.dumps(v) for key, v in facts.items()}
    helper.set_model_props(made, texts)
    onnx.checker.check_model(made)
    return made


class _Graph:
    """Nodes and constants as they come."""

    def __init__(self, onnx: Any, of: Numbers) -> None:
        self._onnx, self.dtype = onnx, of.dtype
        self.kind = onnx.helper.np_dtype_to_tensor_dtype(of.dtype)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, op: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        out = out or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(op, inputs, [out], **attributes))
        return out

    def constant(self, value: Any, dtype: Any = None) -> str:
        name = f"constant_{len(self.constants)}"
        array = np.asarray(value, self.dtype if dtype is None else dtype)
        self.constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def cast(self, a: str) -> str:
        return self.node("Cast", a, to=self._onnx.helper.np_dtype_to_tensor_dtype(self.dtype))

    def in_precision(self, dtype: np.dtype) -> "_Graph":
        """The same graph, with constants of another precision."""
        other = copy(self)
        other.dtype = dtype
        return other

    def unsqueezed(self, a: str, axis: int) -> str:
        return self.node("Unsqueeze", a, self.constant([axis], np.int64))

    def summed(self, a: str, axis: int) -> str:
        return self.node("ReduceSum", a, self.constant([axis], np.int64), keepdims=1)


def _layers(g: _Graph, of: Numbers, jacobian: bool) -> tuple[str, str]:
    """Outputs and derivatives; the latter only where `jacobian`.

    onnxruntime folds a Mul by a constant of one element into the MatMul beside it, as a factor in
    float32 even where the graph is in float64. So no constant factor stands beside a MatMul: scale
    and gain are added to `guard`, which is zero and depends on x. The numbers stay as they are.
    """
    p = of.parameters
    # Zero for a row of finite numbers, otherwise NaN: runtimes may lose a NaN in an activation.
    guard = g.summed(g.node("Mul", "x", g.constant(0.0)), 1)
    gain = g.node("Add", guard, g.constant(p.gain))
    scale, norms = "", ()
    if p.normalise:
        h, *norms = _normalised(g)
    else:
        first = g.in_precision(p.shift.dtype)
        h, guard = ("x", guard) if not of.wide else (first.cast(a) for a in ("x", guard))
        h = g.node("Sub", h, first.constant(p.shift))
        if np.any(p.rest):
            h = g.node("Sub", h, first.constant(p.rest))
        scale = g.node("Add", guard, first.constant(p.scale))
        h = g.node("Mul", h, scale)
    inputs, slopes = h, []
    for i, w in enumerate(p.matrices):
        layer = g.in_precision(w.dtype)
        h = g.node("MatMul", h, layer.constant(w))
        if of.bias:
            h = g.node("Add", h, layer.constant(p.biases[i]))
        if i < len(p.matrices) - 1:
            z, h = h, _activation(layer, p.activation, h)
            slope = _slope(layer, p.activation, z, h) if jacobian else ""
            if w.dtype != g.dtype:
                h, slope = g.cast(h), g.cast(slope) if jacobian else ""
            slopes.append(slope)
    y = g.node("Add", g.node("Mul", h, gain), g.constant(p.target_shift))
    if not jacobian:
        return y, ""
    # Backwards, (rows, outputs, units): there are fewer outputs than inputs, as a rule.
    found = g.node("Mul", g.constant(p.matrices[-1].T[None]), g.unsqueezed(gain, 1))
    for w, slope in zip(p.matrices[-2::-1], slopes[::-1], strict=True):
        found = g.node("Mul", found, g.unsqueezed(slope, 1))
        found = g.node("MatMul", found, g.constant(w.T))
    if not p.normalise:
        scale = g.cast(scale) if of.wide else scale
        return y, g.node("Mul", found, g.unsqueezed(scale, 1))
    unit = g.unsqueezed(inputs, 1)
    along = g.summed(g.node("Mul", found, unit), 2)
    across = g.node("Sub", found, g.node("Mul", along, unit))
    largest, norm = (g.unsqueezed(size, 1) for size in norms)
    across = g.node("Div", g.node("Div", across, norm), _one_for_zero(g, largest))
    there = g.node("Greater", largest, g.constant(0.0))
    return y, g.node("Where", there, across, g.unsqueezed(guard, 1))


def _normalised(g: _Graph) -> tuple[str, str, str]:
    """Rows divided by their norms, and these as two factors: the product may overflow."""
    largest = g.node("ReduceMax", g.node("Abs", "x"), axes=[1], keepdims=1)
    unit = g.node("Div", "x", _one_for_zero(g, largest))
    square = g.summed(g.node("Mul", unit, unit), 1)
    norm = g.node("Sqrt", g.node("Max", square, g.constant(1.0)))  # less only for zeros
    return g.node("Div", unit, norm), largest, norm


def _one_for_zero(g: _Graph, size: str) -> str:
    return g.node("Where", g.node("Greater", size, g.constant(0.0)), size, g.constant(1.0))


def _activation(g: _Graph, name: str, z: str) -> str:
    negative = "" if name in SMOOTH else g.node("Less", z, g.constant(0.0))
    if name == "relu":
        return g.node("Where", negative, g.constant(0.0), z)
    if name == "leaky_relu":
        return g.node("Mul", z, g.node("Where", negative, g.constant(0.01), g.constant(1.0)))
    if name == "elu":
        below = g.node("Exp", g.node("Min", z, g.constant(0.0)))
        return g.node("Where", negative, g.node("Sub", below, g.constant(1.0)), z)
    if name == "softsign":
        return g.node("Div", z, g.node("Add", g.node("Abs", z), g.constant(1.0)))
    if name == "arctan":
        return _arctan(g, z)
    return g.node({"abs": "Abs", "tanh": "Tanh", "sin": "Sin", "identity": "Identity"}[name], z)


SMOOTH = ("abs", "tanh", "softsign", "sin", "arctan", "identity")
"""Those that are made without a comparison."""


def _arctan(g: _Graph, z: str) -> str:
    """In double precision with t from the single one: t + (z cos t − sin t)/(cos t + z sin t)."""
    if g.dtype == np.float32:
        return g.node("Atan", z)
    far = g.constant(1e300)  # beyond it the products below overflow, and arctan is π/2
    z = g.node("Max", g.node("Min", z, far), g.node("Neg", far))
    near = g.cast(g.node("Atan", g.in_precision(np.dtype(np.float32)).cast(z)))
    sin, cos = g.node("Sin", near), g.node("Cos", near)
    above = g.node("Sub", g.node("Mul", z, cos), sin)
    below = g.node("Add", cos, g.node("Mul", z, sin))
    return g.node("Add", near, g.node("Div", above, below))


BELOW = {"relu": 0.0, "leaky_relu": 0.01, "abs": -1.0, "identity": 1.0}
"""Slopes below zero, where above it they are one."""


def _slope(g: _Graph, name: str, z: str, a: str) -> str:
    """Where a is the activation of z."""
    if name == "elu":
        return g.node("Exp", g.node("Min", z, g.constant(0.0)))
    if name == "sin":
        return g.node("Cos", z)
    one = g.constant(1.0)
    if name in BELOW:
        below = g.constant(BELOW[name])
        return g.node("Where", g.node("Less", z, g.constant(0.0)), below, one)
    if name == "tanh":
        return g.node("Sub", one, g.node("Mul", a, a))
    if name == "softsign":
        below = g.node("Add", g.node("Abs", z), one)
        return g.node("Div", one, g.node("Mul", below, below))
    return g.node("Div", one, g.node("Add", g.node("Mul", z, z), one))  # arctan
