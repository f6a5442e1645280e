"""Kinds of nodes whose sizes are known when a model runs: selections, branches and loops.

In a model of this kind integers that say shapes, places and counts, and conditions, are inputs of
the model and not stored: each set of inputs has others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from plica.frontend.onnx.fuzz.kind import Drawn, KnownTensor, NodeKind, RowChoice, i64

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
    match c.random.randrange(4):
        case 0:
            return Drawn("NonZero", (x,))
        case 1:
            axis = c.axis(x)
            flags = [c.random.random() < 0.6 for _ in range(x.array.shape[axis])]
            return Drawn("Compress", (x, np.asarray(flags)), {"axis": axis})
        case 2:
            said = {"sorted": c.random.randrange(2)}
            along = {"axis": c.axis(x)} if c.random.random() < 0.5 else {}
            return Drawn("Unique", (x,), said | along, c.random.choice((1, 4)))
        case _:
            return Drawn("Compress", (x, np.asarray([True, False, True][: x.array.size])))


def _counted(c: RowChoice, x: KnownTensor) -> Drawn:
    if c.random.random() < 0.5:
        start, step = c.random.randrange(-3, 4), c.random.choice((1, 2, 3))
        stop = start + step * c.random.randrange(1, 6)
        return Drawn("Range", tuple(np.asarray(each, np.int64) for each in (start, stop, step)))
    return Drawn("ConstantOfShape", (i64(*(c.random.randrange(1, 4) for _ in range(2))),))


def _branched(c: RowChoice, x: KnownTensor) -> Drawn:
    """A part of x where a condition holds, and another, of another size, where it does not."""
    axis, size = c.random.randrange(x.array.ndim), max(x.array.shape)
    sides = []
    for name in ("yes", "no"):
        stop = c.random.randrange(1, size + 1)
        sides.append(_side(name, x, axis, stop, c.random.choice(("Neg", "Abs", "Identity"))))
    said = {"then_branch": sides[0], "else_branch": sides[1]}
    return Drawn("If", (np.asarray(c.random.random() < 0.5),), said, reads=(x,))


def _side(name: str, x: KnownTensor, axis: int, stop: int, kind: str) -> GraphProto:
    from onnx import helper, numpy_helper

    ends = {"start": i64(0), "stop": i64(stop), "axis": i64(axis)}
    stored = [numpy_helper.from_array(each, f"{name}_{word}") for word, each in ends.items()]
    nodes = [
        helper.make_node("Slice", [x.name, *(each.name for each in stored)], [f"{name}_part"]),
        helper.make_node(kind, [f"{name}_part"], [f"{name}_out"]),
    ]
    return helper.make_graph(nodes, name, [], [_info(f"{name}_out", x)], stored)


def _looped(c: RowChoice, x: KnownTensor) -> Drawn:
    """x halved and moved so many times; what it was on the way is collected."""
    from onnx import helper, numpy_helper

    half = numpy_helper.from_array(np.asarray(0.5, x.array.dtype), "half")
    moved = numpy_helper.from_array(np.asarray(c.random.choice((0.25, -1.0)), x.array.dtype), "by")
    inner: list[NodeProto] = [
        helper.make_node("Mul", ["held", "half"], ["scaled"]),
        helper.make_node("Add", ["scaled", "by"], ["next"]),
        helper.make_node("Identity", ["going"], ["goes"]),
        helper.make_node(c.random.choice(("Identity", "Neg")), ["next"], ["row"]),
    ]
    given = [
        helper.make_tensor_value_info("turn", 7, []),
        helper.make_tensor_value_info("going", 9, []),
        _info("held", x),
    ]
    made = [helper.make_tensor_value_info("goes", 9, []), _info("next", x), _info("row", x)]
    body = helper.make_graph(inner, "body", given, made, [half, moved])
    count, going = np.asarray(c.random.randrange(1, 5), np.int64), np.asarray(True)
    return Drawn("Loop", (count, going, x), {"body": body}, 2)


def _grown(c: RowChoice, x: KnownTensor) -> Drawn:
    """x, to which each turn appends some of what it has; it may end before its count."""
    from onnx import helper, numpy_helper

    axis, order = c.axis(x), ["held", "more"]
    c.random.shuffle(order)
    ends = {"start": i64(0), "stop": i64(c.random.randrange(1, 3)), "axis": i64(axis)}
    numbers = {
        **ends,
        "half": np.asarray(0.5, x.array.dtype),
        "last": np.asarray(c.random.randrange(1, 4)),
    }
    stored = [numpy_helper.from_array(each, name) for name, each in numbers.items()]
    early = c.random.random() < 0.5
    inner: list[NodeProto] = [
        helper.make_node("Slice", ["held", *ends], ["part"]),
        helper.make_node("Mul", ["part", "half"], ["more"]),
        helper.make_node("Concat", order, ["next"], axis=axis),
        helper.make_node("Less", ["turn", "last"], ["goes"])
        if early
        else helper.make_node("Identity", ["going"], ["goes"]),
    ]
    given = [
        helper.make_tensor_value_info("turn", 7, []),
        helper.make_tensor_value_info("going", 9, []),
        _info("held", x),
    ]
    made = [helper.make_tensor_value_info("goes", 9, []), _info("next", x)]
    body = helper.make_graph(inner, "body", given, made, stored)
    count, going = np.asarray(c.random.randrange(1, 5), np.int64), np.asarray(True)
    return Drawn("Loop", (count, going, x), {"body": body})


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
"""What is drawn besides the other kinds where sizes are known late."""
# fmt: on


def other_value(c: RowChoice, of: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An input that says sizes, as another call might give it: somewhere one more or less."""
    if of.dtype == bool:
        flips = [c.random.random() < 0.3 for _ in range(of.size)]
        return np.asarray(of ^ np.asarray(flips, bool).reshape(of.shape))
    found = of.copy()
    if of.size:
        found.reshape(-1)[c.random.randrange(of.size)] += c.random.choice((-1, 0, 1))
    return found
