"""Kinds of nodes whose sizes are known when a model runs: selections, branches and loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from plica.frontend.onnx.fuzz.kind import Drawn, KnownTensor, NodeKind, RowChoice, i64, node

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

BY_VALUE: Final = frozenset(
    {
        "Reshape", "Slice", "Expand", "Tile", "Pad", "TopK", "Range", "Compress", "If", "Loop",
        "Gather", "ConstantOfShape",
    }
)  # fmt: skip
"""Operators whose integers and conditions may be inputs of the model."""


def _selected(c: RowChoice, x: KnownTensor) -> Drawn:
    match c.number(0, 4):
        case 0:
            return Drawn("NonZero", (x,))
        case 1:
            axis = c.axis(x)
            flags = [c.maybe(0.6) for _ in range(x.array.shape[axis])]
            return Drawn("Compress", (x, np.asarray(flags)), {"axis": axis})
        case 2:
            said = {"sorted": c.number(0, 2)}
            along = {"axis": c.axis(x)} if c.maybe() else {}
            return Drawn("Unique", (x,), said | along, c.pick(1, 4))
        case _:
            return Drawn("Compress", (x, np.asarray([True, False, True][: x.array.size])))


def _counted(c: RowChoice, x: KnownTensor) -> Drawn:
    if c.maybe():
        start, step = c.number(-3, 4), c.pick(1, 2, 3)
        stop = start + step * c.number(1, 6)
        return Drawn("Range", tuple(np.asarray(each, np.int64) for each in (start, stop, step)))
    return Drawn("ConstantOfShape", (i64(*(c.number(1, 4) for _ in range(2))),))


def _branched(c: RowChoice, x: KnownTensor) -> Drawn:
    """A part of x if a condition holds, otherwise one of another size."""
    axis, size = c.number(0, x.array.ndim), max(x.array.shape)
    sides = []
    for name in ("yes", "no"):
        stop = c.number(1, size + 1)
        sides.append(_side(name, x, axis, stop, c.pick("Neg", "Abs", "Identity")))
    said = {"then_branch": sides[0], "else_branch": sides[1]}
    return Drawn("If", (np.asarray(c.maybe()),), said, reads=(x,))


def _side(name: str, x: KnownTensor, axis: int, stop: int, kind: str) -> GraphProto:
    from onnx import helper, numpy_helper

    ends = {"start": i64(0), "stop": i64(stop), "axis": i64(axis)}
    stored = [numpy_helper.from_array(array, f"{name}_{word}") for word, array in ends.items()]
    nodes = [
        helper.make_node("Slice", [x.name, *(proto.name for proto in stored)], [f"{name}_part"]),
        helper.make_node(kind, [f"{name}_part"], [f"{name}_out"]),
    ]
    return helper.make_graph(nodes, name, [], [_info(f"{name}_out", x)], stored)


def _loop(
    c: RowChoice, x: KnownTensor, inner: list[NodeProto], numbers: dict[str, Any], rows: int
) -> Drawn:
    """A loop that starts from x, with constants; it may collect `rows`."""
    from onnx import helper, numpy_helper

    stored = [numpy_helper.from_array(each, name) for name, each in numbers.items()]
    turn = helper.make_tensor_value_info("turn", 7, [])
    going, goes = (helper.make_tensor_value_info(name, 9, []) for name in ("going", "goes"))
    made = [goes, _info("next", x), *[_info("row", x)] * rows]
    body = helper.make_graph(inner, "body", [turn, going, _info("held", x)], made, stored)
    count = np.asarray(c.number(1, 5), np.int64)
    return node("Loop", count, np.asarray(True), x, outputs=1 + rows, body=body)


def _looped(c: RowChoice, x: KnownTensor) -> Drawn:
    """x halved and shifted a number of times, collecting intermediate values."""
    from onnx import helper

    by = np.asarray(c.pick(0.25, -1.0), x.array.dtype)
    inner: list[NodeProto] = [
        helper.make_node("Mul", ["held", "half"], ["scaled"]),
        helper.make_node("Add", ["scaled", "by"], ["next"]),
        helper.make_node("Identity", ["going"], ["goes"]),
        helper.make_node(c.pick("Identity", "Neg"), ["next"], ["row"]),
    ]
    return _loop(c, x, inner, {"half": np.asarray(0.5, x.array.dtype), "by": by}, 1)


def _grown(c: RowChoice, x: KnownTensor) -> Drawn:
    """x, to which each iteration appends some of its elements; it may end early."""
    from onnx import helper

    axis, order = c.axis(x), ["held", "more"]
    c.random.shuffle(order)
    ends = {"start": i64(0), "stop": i64(c.number(1, 3)), "axis": i64(axis)}
    half, last = np.asarray(0.5, x.array.dtype), np.asarray(c.number(1, 4))
    early = c.maybe()
    inner: list[NodeProto] = [
        helper.make_node("Slice", ["held", *ends], ["part"]),
        helper.make_node("Mul", ["part", "half"], ["more"]),
        helper.make_node("Concat", order, ["next"], axis=axis),
        helper.make_node("Less", ["turn", "last"], ["goes"])
        if early
        else helper.make_node("Identity", ["going"], ["goes"]),
    ]
    return _loop(c, x, inner, {**ends, "half": half, "last": last}, 0)


def _info(name: str, x: KnownTensor) -> Any:  # Any: onnx is imported late
    from onnx import helper

    number = helper.np_dtype_to_tensor_dtype(x.array.dtype)
    return helper.make_tensor_value_info(name, number, [None] * x.array.ndim)


# fmt: off
LATE: Final[dict[str, NodeKind]] = {
    "selected": NodeKind(9, "fi", range(1, 5), _selected, keeps=True, jumps=True),
    "counted":  NodeKind(3, "fi", range(1, 5), _counted, keeps=True),
    "branched": NodeKind(7, "f",  range(1, 5), _branched, keeps=True),
    "looped":   NodeKind(7, "f",  range(1, 4), _looped),
    "grown":    NodeKind(4, "f",  range(1, 4), _grown, keeps=True),
}
"""Additional kinds with run-time sizes."""
# fmt: on


def other_value(c: RowChoice, of: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An input that says sizes, as another call might give it: somewhere one more or less."""
    if of.dtype == bool:
        flips = [c.maybe(0.3) for _ in range(of.size)]
        return np.asarray(of ^ np.asarray(flips, bool).reshape(of.shape))
    array = of.copy()
    if of.size:
        array.reshape(-1)[c.number(0, of.size)] += c.pick(-1, 0, 1)
    return array
