"""Reasons: why a layer of a model is not in the integer form that accelerators compute.

>>> import numpy as np
>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Function, Var, const
>>> from plica.ir.graph.module import module
>>> from plica.ir.op.linear import dense
>>> from plica.ir.type.term import tensor
>>> x, main = Var(Name("x"), tensor((1, 4), "f32")), Var(Name("main"), None)
>>> y = dense(x, const(np.ones((4, 4), np.float32)))
>>> [str(each) for each in near(module({main: Function((), (), (x,), None, y)}, main))]
['nn.dense 4x4: it is computed in f32']
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
from attrs import frozen

from plica.core import post_order
from plica.ir.graph import Apply, Const, Expr, Module, attr
from plica.ir.type import TensorType, i8, i32, infer, static_shape, type_of
from plica.rewrite.closed import is_closed
from plica.rewrite.quantise.annotate import LAYERS

FORM: Final = "Make such layers: plica.quantise(model, samples, power_of_two=True)."
TIES: Final = (
    "A model that says itself what is quantised is made to round so by"
    " plica.quantise(model, power_of_two=True), without samples."
)
SIGNED: Final = "Quantise around zero: plica.quantise(model, samples, power_of_two=True)."
ONE_SCALE: Final = (
    "Quantise with one scale for a whole weight:"
    " plica.quantise(model, samples, power_of_two=True, per_channel=False)."
)
MATRIX: Final = "Reshape what it reads to a matrix, of which the last axis is multiplied."
SIZES: Final = "Compile it for known sizes."
LAST: Final = (
    "Only a layer whose result becomes bytes again is offloaded: one that is followed by"
    " another quantised layer."
)


@frozen
class Near:
    """A layer that is not in the integer form, why, and what would help."""

    op: str
    weight: str
    why: str
    hint: str

    def __str__(self) -> str:
        return f"{self.op} {self.weight}: {self.why}"


def near(module: Module, taken: Collection[Expr] = ()) -> tuple[Near, ...]:
    """The layers of a module that are not among those in the integer form."""
    known = infer(module)
    nodes = [
        node
        for node in post_order(*(function for _, function in known.functions()))
        if isinstance(node, Apply)
    ]
    users: dict[Expr, list[Apply]] = {}
    for node in nodes:
        for each in dict.fromkeys(node.args):
            users.setdefault(each, []).append(node)
    found = []
    for node in nodes:
        if node.op in LAYERS and node not in taken and not is_closed(node):
            shape = static_shape(_kind(node.args[1])) or ()
            why, hint = _reason(node, users)
            found.append(Near(node.op, "x".join(map(str, shape)) or "of open size", why, hint))
    return tuple(found)


def remedies(of: Sequence[Near]) -> str:
    """What would help, each thing once."""
    return " ".join(dict.fromkeys(each.hint for each in of)) or FORM


def _reason(layer: Apply, users: dict[Expr, list[Apply]]) -> tuple[str, str]:
    kind = _kind(layer)
    if kind.dtype is not i32:
        return f"it is computed in {kind.dtype}", FORM
    if layer.op == "matmul" and len(kind.shape) != 2:
        return f"it is a product of {len(kind.shape)} axes, and no matrix", MATRIX
    for data, what in ((layer.args[0], "what it reads"), (layer.args[1], "its weight")):
        if isinstance(data, Const):
            continue
        if isinstance(data, Apply) and data.op == "subtract":
            return f"{what} has a zero point", SIGNED
        if not isinstance(data, Apply) or data.op != "cast" or _kind(data.args[0]).dtype is not i8:
            return f"{what} is not of signed bytes", SIGNED
    if not is_closed(layer.args[1]):
        return "its weight is no constant", FORM
    if static_shape(kind) is None:
        return "its sizes are not known", SIZES
    return _after(layer, users)


def _after(layer: Apply, users: dict[Expr, list[Apply]]) -> tuple[str, str]:
    """What happens to the sums of a layer."""
    at: Apply = layer
    while True:
        above = users.get(at, [])
        if len(above) > 1:
            return "its sums of i32 are used more than once", LAST
        if not above or above[0].op == "dequantise":
            return "its sums stay in i32, since no quantised operator reads them", LAST
        at = above[0]
        if at.op == "fixed_multiply":
            return _multiplied(at)
        if at.op in ("right_shift", "clip"):
            return "what it gives is not of signed bytes, or differs along another axis", SIGNED
        if at.op != "add" or not any(map(is_closed, at.args)):
            return f"its sums of i32 go into {at.op}, and not into a shift and a clip", LAST


def _multiplied(of: Apply) -> tuple[str, str]:
    """Why a change of scale is a product, and no shift."""
    factor = of.args[1]
    values = factor.numpy().astype(np.int64) if isinstance(factor, Const) else np.zeros(1, np.int64)
    if np.any(values & (values - 1)) or np.any(values <= 0):
        return "its change of scale is a product, and no shift", FORM
    if attr(of, "rounding") == "even":
        return "its change of scale rounds ties to even, and a shift rounds them up", TIES
    return "its change of scale is a shift to the left, or of more than 31 bits", ONE_SCALE


def _kind(of: Expr) -> TensorType:
    found = type_of(of)
    assert isinstance(found, TensorType)  # layers and what they read are tensors
    return found
