"""Export to ONNX: a graph for onnxruntime and other runtimes.

It uses only operators that onnxruntime has in both precisions; where it lacks one in float64
(`Atan`), the graph combines simpler ones. The number of rows is free.

onnxruntime folds a Mul by a constant of one element into the MatMul beside it, as a factor in
float32 even in a float64 graph. So no constant factor stands beside a MatMul: factors are added to
`guard`, which is zero and depends on x. The numbers of the file stay as they were certified.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from greatcircle._runtime.extras import require
from greatcircle.export.parameters import Parameters
from greatcircle.export.rounded import RoundedModel

__all__ = ["SUFFIX", "files", "is_used", "model_proto"]

SUFFIX = ".onnx"

OPSET, IR_VERSION = 17, 8
"""Versions of 2022, which older runtimes read too."""


def is_used(name: str) -> bool:
    """Return whether the file uses this name: names of graphs are free."""
    return False


def files(model: RoundedModel, path: Path, *, jacobian: bool = False) -> dict[Path, bytes]:
    """Return one file, with names, units and bound as metadata."""
    return {path: model_proto(model, jacobian).SerializeToString()}


def model_proto(model: RoundedModel, jacobian: bool = False) -> Any:
    """Return the `onnx.ModelProto`, checked."""
    onnx = require("onnx", "onnx", "export to ONNX")
    helper, inputs, outputs = onnx.helper, model.sizes[0], model.sizes[-1]
    graph = _Graph(onnx, model.dtype)
    y, derivatives = _network(graph, model, jacobian)
    kind, rows = helper.np_dtype_to_tensor_dtype(model.dtype), "rows"
    results = {"y": (y, [rows, outputs])}
    if jacobian:
        results["jacobian"] = derivatives, [rows, outputs, inputs]
    for name, (result, _) in results.items():
        graph.node("Identity", result, out=name)
    proto = helper.make_model(
        helper.make_graph(
            graph.nodes,
            model.name,
            [helper.make_tensor_value_info("x", kind, [rows, inputs])],
            [helper.make_tensor_value_info(name, kind, s) for name, (_, s) in results.items()],
            graph.initializers,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="greatcircle",
        doc_string="A network with a certified Lipschitz bound; see the metadata.",
    )
    texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in model.metadata().items()}
    helper.set_model_props(proto, texts)
    onnx.checker.check_model(proto)
    return proto


@dataclass(frozen=True)
class _Graph:
    """Nodes and constants of a graph; values are referred to by name."""

    onnx: Any
    dtype: np.dtype
    nodes: list[Any] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)

    def node(self, op: str, *inputs: str, out: str | None = None, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        out = out or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(op, inputs, [out], **attributes))
        return out

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Add a constant and return its name."""
        name = f"constant_{len(self.initializers)}"
        array = np.asarray(value, self.dtype if dtype is None else dtype)
        self.initializers.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def cast(self, a: str) -> str:
        """Convert to the precision of this graph."""
        return self.node("Cast", a, to=self.onnx.helper.np_dtype_to_tensor_dtype(self.dtype))

    def in_precision(self, dtype: np.dtype) -> "_Graph":
        """Return the same graph, with new constants in another precision."""
        return replace(self, dtype=dtype)

    def unsqueezed(self, a: str, axis: int) -> str:
        return self.node("Unsqueeze", a, self.constant([axis], np.int64))

    def summed(self, a: str, axis: int) -> str:
        return self.node("ReduceSum", a, self.constant([axis], np.int64), keepdims=1)


def _network(g: _Graph, model: RoundedModel, jacobian: bool) -> tuple[str, str]:
    """Return outputs and, with `jacobian`, derivatives."""
    p = model.parameters
    # Zero for a row of finite numbers, otherwise NaN: runtimes may lose a NaN in an activation.
    guard = g.summed(g.node("Mul", "x", g.constant(0.0)), 1)
    x = _clipped(g, "x", p.saturation.lower, p.saturation.upper)
    h, chain = _normalised(g, guard) if p.normalise else _scaled(g, p, x, guard)
    slopes = []
    for i, w in enumerate(p.matrices):
        layer = g.in_precision(w.dtype)
        h = layer.node("MatMul", h, layer.constant(w))
        if p.biases is not None:
            h = layer.node("Add", h, layer.constant(p.biases[i]))
        if i < len(p.matrices) - 1:
            z, cast = h, g.cast if w.dtype != g.dtype else str
            factor = guard if w.dtype == g.dtype else layer.cast(guard)
            a = _evaluated(layer, factor, model.function, {"z": z})
            h = cast(a)
            if jacobian:
                slopes.append(cast(_evaluated(layer, factor, model.derivative, {"z": z, "a": a})))
    output_scale = g.node("Add", guard, g.constant(p.output_scale))
    y = g.node("Add", g.node("Mul", h, output_scale), g.constant(p.output_shift))
    limits = p.saturation
    clipped = _clipped(g, y, limits.output_lower, limits.output_upper)
    if limits.clips_outputs:  # a runtime may lose a NaN in a minimum
        clipped = g.node("Add", guard, clipped)
    if not jacobian:
        return clipped, ""
    # Backwards, (rows, outputs, units): there are usually fewer outputs than inputs.
    product = g.constant(p.matrices[-1].T[None])
    product = g.node("Mul", product, g.unsqueezed(output_scale, 1))
    for w, slope in zip(p.matrices[-2::-1], slopes[::-1], strict=True):
        product = g.node("Mul", product, g.unsqueezed(slope, 1))
        product = g.node("MatMul", product, g.constant(w.T))
    derivatives = chain(product)
    for axis, values, lower, upper in (
        (1, "x", limits.lower, limits.upper),
        (2, y, limits.output_lower, limits.output_upper),
    ):
        if lower is not None and upper is not None:
            moves, zero = _is_inside(g, values, lower, upper), g.unsqueezed(guard, 1)
            derivatives = g.node("Where", g.unsqueezed(moves, axis), derivatives, zero)
    return clipped, derivatives


Chain = Callable[[str], str]
"""Convert derivatives by the scaled inputs to derivatives by the inputs (chain rule)."""


def _clipped(g: _Graph, values: str, lower: np.ndarray | None, upper: np.ndarray | None) -> str:
    """Return clipped values, or the values as they are without intervals."""
    if lower is None or upper is None:
        return values
    return g.node("Min", g.node("Max", values, g.constant(lower)), g.constant(upper))


def _is_inside(g: _Graph, values: str, lower: np.ndarray, upper: np.ndarray) -> str:
    """Return which values move if they are clipped; an interval of one number has no inside."""
    above = g.node("GreaterOrEqual", values, g.constant(np.where(lower < upper, lower, np.inf)))
    return g.node("And", above, g.node("LessOrEqual", values, g.constant(upper)))


def _scaled(g: _Graph, p: Parameters, x: str, guard: str) -> tuple[str, Chain]:
    """Return shifted and scaled inputs, and the chain rule for them."""
    first = g.in_precision(p.first_dtype)
    if p.has_double_first_layer:
        x, guard = first.cast(x), first.cast(guard)
    h = g.node("Sub", x, first.constant(p.input_shift))
    if np.any(p.shift_remainder):
        h = g.node("Sub", h, first.constant(p.shift_remainder))
    scale = g.node("Add", guard, first.constant(p.input_scale))

    def chain(derivatives: str) -> str:
        factor = g.cast(scale) if p.has_double_first_layer else scale
        return g.node("Mul", derivatives, g.unsqueezed(factor, 1))

    return g.node("Mul", h, scale), chain


def _normalised(g: _Graph, guard: str) -> tuple[str, Chain]:
    """Return rows divided by their norms, and the chain rule for them.

    A norm is kept as two factors, whose product may overflow.
    """
    largest = g.node("ReduceMax", g.node("Abs", "x"), axes=[1], keepdims=1)
    is_positive = g.node("Greater", largest, g.constant(0.0))
    divisor = g.node("Where", is_positive, largest, g.constant(1.0))
    unit = g.node("Div", "x", divisor)
    square = g.summed(g.node("Mul", unit, unit), 1)
    norm = g.node("Sqrt", g.node("Max", square, g.constant(1.0)))  # less only for zeros
    unit = g.node("Div", unit, norm)

    def chain(derivatives: str) -> str:
        u = g.unsqueezed(unit, 1)
        along = g.summed(g.node("Mul", derivatives, u), 2)
        across = g.node("Sub", derivatives, g.node("Mul", along, u))
        across = g.node("Div", across, g.unsqueezed(norm, 1))
        across = g.node("Div", across, g.unsqueezed(divisor, 1))
        zero = g.unsqueezed(guard, 1)
        return g.node("Where", g.unsqueezed(is_positive, 1), across, zero)

    return unit, chain


def _evaluated(g: _Graph, guard: str, formula: Any, variables: dict[str, str]) -> str:
    """Add the nodes of a formula."""
    constants: set[str] = set()

    def constant(value: float) -> str:
        name = g.constant(value)
        constants.add(name)
        return name

    def factors(op: str) -> Callable[[str, str], str]:
        """Return the node of a product or quotient, without a constant factor."""
        return lambda *pair: g.node(
            op, *(g.node("Add", guard, a) if a in constants else a for a in pair)
        )

    operators = {
        "add": "Add", "sub": "Sub", "neg": "Neg", "where": "Where", "tanh": "Tanh", "sin": "Sin",
        "cos": "Cos", "exp": "Exp", "lt": "Less", "le": "LessOrEqual", "gt": "Greater",
        "ge": "GreaterOrEqual",
    }  # fmt: skip
    operations = {
        **{name: lambda *a, op=op: g.node(op, *a) for name, op in operators.items()},
        "mul": factors("Mul"),
        "truediv": factors("Div"),
        "expm1": lambda z: g.node("Sub", g.node("Exp", z), g.constant(1.0)),
        "arctan": lambda z: _arctan(g, z),
        "ones_like": lambda z: _ones_like(g, z),
    }
    return formula.evaluate(operations, variables, constant)


def _ones_like(g: _Graph, z: str) -> str:
    one = g.onnx.numpy_helper.from_array(np.ones(1, g.dtype))
    return g.node("ConstantOfShape", g.node("Shape", z), value=one)


def _arctan(g: _Graph, z: str) -> str:
    """Return arctan(z); in float64 t + (z cos t − sin t)/(cos t + z sin t), with t in float32."""
    if g.dtype == np.float32:
        return g.node("Atan", z)
    far = g.constant(1e300)  # beyond it the products below overflow, and arctan is π/2
    z = g.node("Max", g.node("Min", z, far), g.node("Neg", far))
    near = g.cast(g.node("Atan", g.in_precision(np.dtype(np.float32)).cast(z)))
    sin, cos = g.node("Sin", near), g.node("Cos", near)
    above = g.node("Sub", g.node("Mul", z, cos), sin)
    below = g.node("Add", cos, g.node("Mul", z, sin))
    return g.node("Add", near, g.node("Div", above, below))
