"""Rows of reductions and windows.

A body with a Plica operator becomes that operator; any other combines neighbours in a logarithmic
number of rounds, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Final

import numpy as np

from plica.frontend.stablehlo.node import HloNode, sizes
from plica.frontend.stablehlo.row.elementwise import COMPARE
from plica.frontend.stablehlo.row.shape import cut, padded, spread
from plica.frontend.stablehlo.scalar_body import ScalarBody, scalar_body
from plica.frontend.word import dtype, like, rank, to
from plica.ir.graph.expression import Apply, Const, Expr, const
from plica.ir.op.namespace import op
from plica.ir.type.dtype import bool_

Rows = Callable[[HloNode], "Expr | list[Expr]"]

WHOLE: Final = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all",
    "logical_or": "any",
}  # fmt: skip
"""The reduction of a monoid."""

RUNNING: Final = {"add": "cumsum", "multiply": "cumprod", "maximum": "cummax", "minimum": "cummin"}

MAX_WINDOW: Final = 4096  # Windows of more elements are refused: each is a slice


def _split(node: HloNode) -> tuple[list[Expr], list[Expr]]:
    """The operands of a reduction, and the initial values."""
    half = len(node.operands) // 2
    if node.attribute("interleaved"):
        return list(node.operands[::2]), list(node.operands[1::2])
    return list(node.operands[:half]), list(node.operands[half:])


def _reduce(node: HloNode) -> list[Expr]:
    inputs, inits = _split(node)
    axes = node.numbers("dimensions")
    body = scalar_body(node)
    if not axes:
        return list(body.on(*[spread(i, sizes(x), []) for i, x in zip(inits, inputs, strict=True)],
                            *inputs))  # fmt: skip
    name = body.monoid
    if name is not None and 0 not in sizes(inputs[0]):
        found = getattr(op, WHOLE[name])(inputs[0], axis=tuple(axes))
        return [found if is_unit(inits[0], name) else getattr(op, name)(found, inits[0])]
    if (found_ := _extreme_place(node, body, inputs, inits, axes)) is not None:
        return found_
    kept = [axis for axis in range(rank(inputs[0])) if axis not in axes]
    rest = [sizes(inputs[0])[axis] for axis in kept]
    count = prod([sizes(inputs[0])[axis] for axis in axes])
    rows = [op.reshape(op.transpose(x, axes=(*kept, *axes)), (*rest, count)) for x in inputs]
    begin = [spread(init, rest, []) for init in inits]
    if not count:
        return begin
    while count > 1:
        half = count // 2
        pairs = body.on(*[_every_second(x, 0, half) for x in rows],
                        *[_every_second(x, 1, half) for x in rows])  # fmt: skip
        if count % 2:
            last = [cut(x, [0] * len(rest) + [count - 1], [*rest, count]) for x in rows]
            pairs = tuple(
                [op.concat((a, b), axis=len(rest)) for a, b in zip(pairs, last, strict=True)]
            )
        rows, count = list(pairs), half + count % 2
    return list(body.on(*begin, *[op.reshape(x, tuple(rest)) for x in rows]))


def _every_second(x: Expr, first: int, count: int) -> Expr:
    """Every second element of the last axis."""
    shape = sizes(x)
    low = [0] * (len(shape) - 1)
    return op.slice(x, (*low, first), (*shape[:-1], first + 2 * count - 1), (*[1] * len(low), 2))


def is_unit(init: Expr, name: str) -> bool:
    """Whether a first value changes nothing."""
    if not isinstance(init, Const):
        return False
    of, value = init.dtype, init.numpy()
    if of.is_storage:
        return False
    low, high = (-np.inf, np.inf) if of.is_float else (False, True) if of is bool_ else of.bounds
    unit = {"add": 0, "multiply": 1, "maximum": low, "minimum": high, "logical_and": True,
            "logical_or": False}  # fmt: skip
    return bool(value == unit[name])


def _extreme_place(
    node: HloNode, body: ScalarBody, inputs: list[Expr], inits: list[Expr], axes: list[int]
) -> list[Expr] | None:
    """The extreme elements and their first indices, if the body computes that with an iota: NaN
    first, then by value, ties to the first."""
    if len(axes) != 1 or len(inputs) != 2 or not dtype(inputs[1]).is_integer:
        return None
    x, places, y, others = body.arguments
    wanted = spread(op.iota(shape=(sizes(inputs[0])[axes[0]],), dtype=dtype(inputs[1])),
                    sizes(inputs[0]), axes)  # fmt: skip
    if not _same_places(inputs[1], wanted):
        return None
    for word, unit, direction in (("argmax", "maximum", "GT"), ("argmin", "minimum", "LT")):
        first = getattr(op, COMPARE[direction])(x, y)
        if dtype(x).is_float:
            first = op.logical_or(first, op.not_equal(x, x))
        tie = op.logical_and(op.equal(x, y), op.less(places, others))
        meant = op.where(first, x, y), op.where(op.logical_or(first, tie), places, others)
        if body.results == meant and is_unit(inits[0], unit):
            at = getattr(op, word)(inputs[0], axis=axes[0])
            best = getattr(op, WHOLE[unit])(inputs[0], axis=tuple(axes))
            return [best, to(at, dtype(places))]
    return None


def _same_places(of: Expr, wanted: Expr) -> bool:
    """Whether a term is an iota along the axis, however it is spelled."""

    def bare(x: Expr) -> Expr:
        while isinstance(x, Apply) and x.op in ("broadcast_to", "cast", "reshape"):
            x = x.args[0]
        return x

    def form(x: Expr) -> tuple[int, ...]:
        while isinstance(x, Apply) and x.op == "broadcast_to":
            x = x.args[0]
        return sizes(x)

    a, b = bare(of), bare(wanted)
    is_iota = isinstance(a, Apply) and isinstance(b, Apply) and a.op == b.op == "iota"
    return is_iota and form(of) == form(wanted)


def _window(node: HloNode) -> list[Expr]:
    inputs, inits = _split(node)
    shape = sizes(inputs[0])
    ones = [1] * len(shape)
    size = node.numbers("window_dimensions")
    steps = node.numbers("window_strides", default=ones)
    gaps = node.numbers("base_dilations", default=ones)
    apart = node.numbers("window_dilations", default=ones)
    pads = node.pairs(len(shape), "padding")
    body = scalar_body(node)
    name = body.monoid
    if (exprs := _running(name, inputs, inits, size, steps, gaps, apart, pads)) is not None:
        return exprs
    if (sum(size) if name else prod(size)) > MAX_WINDOW:
        node.unsupported("The window is too large.", f"{MAX_WINDOW} elements", str(prod(size)))
    low, high = [a for a, _ in pads], [b for _, b in pads]
    if name is not None and not is_unit(inits[0], name) and (any((*low, *high)) or {*gaps} != {1}):
        node.unsupported("Padding is a value that changes nothing.", f"the unit of {name}", None)
    rows = [padded(x, i, low, high, [gap - 1 for gap in gaps])
            for x, i in zip(inputs, inits, strict=True)]  # fmt: skip
    if name is not None:  # one axis after the other
        (x,) = rows
        for axis, count in enumerate(size):
            parts = [
                _strided(x, axis, at * apart[axis], (count - 1) * apart[axis], steps[axis])
                for at in range(count)
            ]
            x = _balanced(parts, getattr(op, name))
        return [x if is_unit(inits[0], name) else getattr(op, name)(x, inits[0])]
    exprs = None
    for place in product(*map(range, size)):
        views = list(rows)
        for axis, at in enumerate(place):
            views = [_strided(x, axis, at * apart[axis], (size[axis] - 1) * apart[axis],
                              steps[axis]) for x in views]  # fmt: skip
        if exprs is None:
            exprs = [spread(i, sizes(views[0]), []) for i in inits]
        exprs = list(body.on(*exprs, *views))
    assert exprs is not None
    return exprs


def _balanced(parts: Sequence[Expr], join: Callable[[Expr, Expr], Expr]) -> Expr:
    """Parts joined pairwise, in rounds."""
    while len(parts) > 1:
        pairs = [join(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = [*pairs, *parts[2 * len(pairs) :]]
    return parts[0]


def _strided(x: Expr, axis: int, start: int, reach: int, step: int) -> Expr:
    """Every step-th element of an axis from a start, as long as a reach after it is inside."""
    shape = sizes(x)
    count = (shape[axis] - reach - 1) // step + 1 if shape[axis] > reach else 0
    low, high, steps = [0] * len(shape), list(shape), [1] * len(shape)
    low[axis], high[axis], steps[axis] = start, start + max(0, (count - 1) * step + 1), step
    if not count:
        low[axis] = high[axis] = 0
    return cut(x, low, high, steps)


def _running(  # noqa: PLR0917  # a window is these things
    name: str | None, inputs: list[Expr], inits: list[Expr], size: list[int], steps: list[int],
    gaps: list[int], apart: list[int], pads: list[tuple[int, int]],
) -> list[Expr] | None:  # fmt: skip
    """A cumulative reduction, whose windows reach from an end of one axis to each place."""
    wide = [axis for axis, count in enumerate(size) if count > 1]
    plain = {*steps, *gaps, *apart} <= {1}
    if name not in RUNNING or len(wide) != 1 or not plain or not is_unit(inits[0], name):
        return None
    (axis,) = wide
    count = sizes(inputs[0])[axis]
    others = [pad for at, pad in enumerate(pads) if at != axis]
    if size[axis] != count or any(map(any, others)) or sorted(pads[axis]) != [0, count - 1]:
        return None
    running = getattr(op, RUNNING[name])
    return [running(inputs[0], axis=axis, reverse=pads[axis][0] == 0)]


def _select_and_scatter(node: HloNode) -> Expr:
    """The gradient of pooling: each source element is added at its window's selected element."""
    x, source, init = node.operands
    shape = sizes(x)
    ones = [1] * len(shape)
    size = node.numbers("window_dimensions", default=ones)
    steps = node.numbers("window_strides", default=ones)
    pads = node.pairs(len(shape), "padding")
    select, join = (scalar_body(node, region) for region in node.op.regions)
    if join.monoid != "add" or prod(size) > MAX_WINDOW:
        node.unsupported("Elements are added where they are scattered to, from small windows.",
                     "stablehlo.add", str(join.results[0]))  # fmt: skip
    zero = like(0, x)
    low, high = [a for a, _ in pads], [b for _, b in pads]
    around = padded(x, zero, low, high, [0] * len(shape))
    there = np.pad(np.ones(shape, bool), pads)
    best: Expr | None = None
    chosen: Expr | None = None
    has = np.zeros(sizes(source), bool)
    offsets = list(product(*map(range, size)))
    for number, place in enumerate(offsets):
        view = around
        box = tuple([slice(at, at + (n - 1) * s + 1, s)
                     for at, n, s in zip(place, has.shape, steps, strict=True)])  # fmt: skip
        for axis, at in enumerate(place):
            view = _strided(view, axis, at, size[axis] - 1, steps[axis])
        view = cut(view, [0] * len(shape), has.shape)
        mine = like(number, const(0, "i32"))
        if best is None or chosen is None:
            best, chosen = view, op.broadcast_to(mine, has.shape)
        else:
            (keeps,) = select.on(best, view)
            keeps = op.logical_and(keeps, const(has, bool_))
            keeps = op.logical_or(keeps, const(~there[box], bool_))
            best, chosen = op.where(keeps, best, view), op.where(keeps, chosen, mine)
        has |= there[box]
    assert chosen is not None
    whole = spread(init, shape, [])
    for number, place in enumerate(offsets):
        part = op.where(op.equal(chosen, like(number, chosen)), source, like(0, source))
        wide = [(n - 1) * s + 1 for n, s in zip(has.shape, steps, strict=True)]
        before = [at - a for at, a in zip(place, low, strict=True)]
        after = [n - b - w for n, b, w in zip(shape, before, wide, strict=True)]
        whole = whole + padded(part, like(0, source), before, after, [s - 1 for s in steps])
    return whole


TABLE: Final[dict[str, Rows]] = {
    "reduce": _reduce, "reduce_window": _window, "select_and_scatter": _select_and_scatter,
    "map": lambda node: list(scalar_body(node).on(*node.operands)),
}  # fmt: skip
