"""Piecewise tensors: separate loops for each piece.

    out[c, i, j] = x[c, i, j] if c < 8 else y[c - 8, i, j] if c < 24 else z[c - 24, i, j]
      -->  for c in range(8):  for i, j: out[c, i, j]      = x[c, i, j]
           for c in range(16): for i, j: out[c + 8, i, j]  = y[c, i, j]
           for c in range(8):  for i, j: out[c + 24, i, j] = z[c, i, j]

Concatenations, pads of any kind, and repeats select the source per element. Along an axis the
choice changes in a few places; between these there is no choice, and rows are vectors.

Elements put a number of places apart are stepped: places with one residue are made in one way, so
that such an axis is split by its step, and no element is tested.

    out[i, j] = x[i, j // 2] if j % 2 == 0 else 0
      -->  for i:  for b: out[i, 2 b] = x[i, b]; out[i, 2 b + 1] = 0

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer
>>> x, y = buffer("x", (8, 40, 40), f32), buffer("y", (16, 40, 40), f32)
>>> both = stage("z", (24, 40, 40), lambda c, i, j: Select(
...     Lt(c, index(8)), x[c, i, j], y[c - 8, i, j]))
>>> pieces_of(both)
{0: (8, 16)}
>>> edge = stage("z", (8, 40, 44), lambda c, i, j: x[c, i, Max(index(0), Min(j - 2, index(39)))])
>>> pieces_of(edge)
{2: (2, 39, 3)}
>>> spread = stage("z", (30, 88), lambda i, j: Select(
...     Eq(FloorMod(j - 1, index(3)), index(0)), x[i, 0, (j - 1) // 3], Lit(0, f32)))
>>> steps_of(spread.value, spread.axes)
{1: (3, 1)}

Long rows: the last axis of a piecewise tensor as a part of the one before it, which is cut.

    out[c, j < 7] = x[c, j] if c < 8 else y[c - 8, j]
      -->  out[p < …] = x[p] if p < 56 else y[p - 56]

A place is left of a cut if its row is.  The tensors are the same memory in another shape.

>>> x, y = buffer("x", (2, 7), f32), buffer("y", (3, 7), f32)
>>> both = stage("z", (5, 7), lambda c, j: Select(Lt(c, index(2)), x[c, j], y[c - 2, j]))
>>> with_long_rows((x, y), both)[1].out.shape[0].value
35
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Final

from plica.analysis.index.context import conjuncts
from plica.core import Term, free_vars, map_bottom_up, post_order
from plica.ir.loop.scalar import (
    Add,
    Buffer,
    Eq,
    FloorDiv,
    FloorMod,
    Le,
    Lit,
    Load,
    Lt,
    Max,
    Min,
    Scalar,
    ScalarVar,
    Select,
    Sub,
    dtype_of,
    index,
)
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, Stages, loads, reductions, stages
from plica.ir.loop.statement import Kernel, Store
from plica.ir.type import i64, known, polynomial
from plica.schedule import primitive as st
from plica.schedule.default.machine import MIN_ELEMENTS, Machine
from plica.schedule.default.nest import opened
from plica.schedule.default.role import only_map
from plica.schedule.default.share import pays
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

__all__ = ["index", "pieces_of", "piecewise_form", "piecewise_schedule"]


MAX_PIECES: Final = 256  # pieces with separate loops, at most
MAX_STEP: Final = 8  # longer steps would be more code than they are worth


def pieces_of(of: Each) -> Mapping[int, tuple[int, ...]]:
    """The axes along which a tensor is piecewise, and the lengths of the pieces."""
    return {} if reductions(of.value) else _pieces(of.value, of.axes, of.out.shape)


def _pieces(
    body: Scalar, axes: tuple[ScalarVar, ...], shape: Sequence[Scalar]
) -> Mapping[int, tuple[int, ...]]:
    sizes = {axis: known(size) or 0 for axis, size in zip(axes, shape, strict=True)}
    cuts: dict[int, set[int]] = {}
    for axis, place in _cuts(body, sizes):
        if 0 < place < sizes[axis]:
            cuts.setdefault(axes.index(axis), set()).add(place)
    found = {
        at: tuple([b - a for a, b in pairwise((0, *sorted(cuts[at]), sizes[axes[at]]))])
        for at in sorted(cuts)
    }
    return found if prod(len(each) for each in found.values()) <= MAX_PIECES else {}


def _cuts(body: Scalar, sizes: Mapping[ScalarVar, int]) -> Iterator[tuple[ScalarVar, int]]:
    """The axes and the places from which on a tensor is made in another way."""
    for node in post_order(body):
        match node:
            case Select():
                for conjunct in conjuncts(node.condition):
                    match conjunct:
                        case Lt(left, Lit(int() as stop)):
                            yield from _reached(left, stop, sizes)
                        case Le(Lit(int() as start), right):
                            yield from _reached(right, start, sizes)
                        case Eq(left, Lit(int() as place)):
                            yield from _reached(left, place, sizes)
                            yield from _reached(left, place + 1, sizes)
            case Min(left, Lit(int() as most)) | Min(Lit(int() as most), left):
                yield from _reached(left, most, sizes)
            case Max(left, Lit(int() as least)) | Max(Lit(int() as least), left):
                yield from _reached(left, least, sizes)
            case Min(
                FloorMod(left, Lit(int() as period)) as one, Sub(Lit(int() as most), other)
            ) if other is one and period > 0:  # there and back again
                for axis, place in _reached(left, 0, sizes):
                    for turn in range((place + most // 2 + 1) % period, sizes[axis], period):
                        yield axis, turn
            case FloorMod(left, Lit(int() as period)) if period > 0:
                for axis, place in _reached(left, 0, sizes):
                    for turn in range(place % period, sizes[axis], period):
                        yield axis, turn


def _reached(
    place: Scalar, number: int, sizes: Mapping[ScalarVar, int]
) -> Iterator[tuple[ScalarVar, int]]:
    """Where an axis, or an axis with an offset, reaches a number; clamps are irrelevant here."""
    if dtype_of(place) is not i64:
        return
    match place:
        case Min(inner, Lit()) | Min(Lit(), inner) | Max(inner, Lit()) | Max(Lit(), inner):
            yield from _reached(inner, number, sizes)
            return
    apart = 0
    axis: ScalarVar | None = None
    for atoms, factor in polynomial(place).values():
        match atoms:
            case ():
                apart = factor
            case (ScalarVar() as var,) if factor == 1 and var in sizes and axis is None:
                axis = var
            case _:
                return
    if axis is not None:
        yield axis, number - apart


def piecewise_form(of: Stages, machine: Machine) -> Stages | None:
    """The stage of a piecewise or a stepped tensor, or None.

    Rows are merged unless cores share the rows.
    """
    match of.stages:
        case (Each() as whole,):
            pass
        case _:
            return None
    cuts = None if reductions(whole.value) else _cuts_of(whole.out, whole.axes, whole.value)
    if cuts is None:
        return None
    pieces, steps = cuts
    if steps:
        return of
    inputs, sizes = of.inputs, [known(size) or 0 for size in whole.out.shape]
    shares = pays(machine, prod(sizes), (*inputs, whole.out))
    if len(sizes) - 1 not in pieces and (not shares or max(sizes[:-2], default=1) > 1):
        inputs, whole = with_long_rows(inputs, whole)
    out = Buffer(Names(of).name("pieces"), whole.out.shape, whole.out.dtype)
    return stages(inputs, (Each(out, whole.axes, whole.value),))


def steps_of(value: Scalar, axes: Sequence[ScalarVar]) -> Mapping[int, tuple[int, int]]:
    """The stepped axes of a tensor, with each step and the tested residue."""
    found: dict[int, tuple[int, int]] = {}
    for node in post_order(value):
        for scalar in conjuncts(node.condition) if isinstance(node, Select) else ():
            match scalar:
                case Eq(FloorMod(place, Lit(int() as step)), Lit(0)) if 1 < step <= MAX_STEP:
                    for axis in axes:
                        if (apart := reach(place, axis)) is None:
                            continue
                        own = step, -apart % step
                        if found.setdefault(axes.index(axis), own) != own:
                            return {}
    return found


# --- the schedule ---------------------------------------------------------------------------------


def _has_rows(
    out: Buffer,
    axes: Sequence[ScalarVar],
    value: Scalar,
    steps: Mapping[int, tuple[int, int]] | None = None,
) -> bool:
    """Whether there are enough elements, with rows in memory order; with `steps`, of places that
    are a step apart."""
    sizes = [known(size) or 0 for size in out.shape]
    if not axes or prod(sizes) < MIN_ELEMENTS:
        return False
    step = None if steps is None else steps.get(len(axes) - 1, (1, 0))[0]
    return all(_is_row(load, axes[-1], step) for load in loads(value))


def _is_row(of: Load, row: ScalarVar, step: int | None) -> bool:
    """Whether a piece of a row is contiguous in the source, or a single element."""
    if any(row in free_vars(place) for place in of.indices[:-1]):
        return False
    if not of.indices or row not in free_vars(of.indices[-1]):
        return True
    match of.indices[-1]:
        case FloorDiv(place, Lit(int() as by)) if step is not None:
            return by == step > 1 and reach(place, row) is not None
        case place if step is not None:
            return step == 1 and reach(place, row) is not None
        case place:
            return _goes_on(place, row)


def _goes_on(place: Scalar, row: ScalarVar) -> bool:
    """Whether an index changes by one along a row, or is constant, between cuts."""
    match place:
        case Min(inner, Lit()) | Min(Lit(), inner) | Max(inner, Lit()) | Max(Lit(), inner):
            return _goes_on(inner, row)
        case FloorMod(inner, Lit()):
            return _goes_on(inner, row)
        case Min(FloorMod(inner, Lit()) as one, Sub(Lit(), other)) if other is one:
            return _goes_on(inner, row)
        case Add(left, right) | Sub(left, right) if row not in free_vars(right):
            return _goes_on(left, row)
        case Add(left, right) if row not in free_vars(left):
            return _goes_on(right, row)
        case _:
            factors = [f for atoms, f in polynomial(place).values() if row in atoms]
            return factors == [1]


def _cuts_of(
    out: Buffer, axes: tuple[ScalarVar, ...], value: Scalar
) -> tuple[Mapping[int, tuple[int, ...]], Mapping[int, tuple[int, int]]] | None:
    """The pieces of a tensor, else its steps; None for one that is not worth it."""
    pieces = _pieces(value, axes, out.shape)
    if pieces and _has_rows(out, axes, value):
        return pieces, {}
    steps = steps_of(value, axes)
    if not steps or any((known(out.shape[at]) or 0) < step for at, (step, _) in steps.items()):
        return None
    return ({}, steps) if _has_rows(out, axes, value, steps) else None


def piecewise_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of a piecewise or a stepped tensor, None for other kernels: axes are cut from
    the last on, which is made of vectors."""
    if (of := only_map(kernel)) is None:
        return None
    assert isinstance(of.body, Store)
    if (cuts := _cuts_of(of.body.buffer, of.vars, of.body.value)) is None:
        return None
    (pieces, steps), sizes = cuts, [known(extent) or 0 for extent in of.extents]
    last = len(sizes) - 1
    outer = next((at for at in range(last) if sizes[at] > 1), None)

    @do
    def schedule() -> Body:
        _, every = yield from opened(of)
        for at in range(last, -1, -1):
            if at in steps:
                yield from _by_residue(every[at], sizes[at], *steps[at], written=at == last)
                continue
            lengths = pieces.get(at, (sizes[at],))
            parts = every[at : at + 1]
            if len(lengths) > 1:
                parts = yield st.loop_partition(every[at], lengths)
            for part, length in zip(parts, lengths, strict=True):
                inside = prod(sizes) // sizes[at] * length
                if at == last:
                    yield st.vectorize(part)
                elif at == outer and length > 1 and pays(machine, inside, kernel.params):
                    yield st.parallel(part)

    return schedule()


def _by_residue(loop: Handle, size: int, step: int, residue: int, *, written: bool) -> Body:
    """A stepped axis: places with the residue, and those before and behind it, for each step; what
    fills no step comes last. Those of a row are `written` out."""
    over = size % step
    parts: tuple[Handle, ...] = (loop,)
    if over:
        parts = yield st.loop_partition(loop, (size - over, over))
    ends: list[tuple[Handle, int]] = [(part, over) for part in parts[1:]]
    _, inner = yield st.split(parts[0], (None, step))
    for each, length in (*ends, (inner, step)):  # what comes behind goes first
        cuts = sorted({0, min(residue, length), min(residue + 1, length), length})
        lengths = tuple([stop - start for start, stop in pairwise(cuts)])
        pieces: tuple[Handle, ...] = (each,)
        if len(lengths) > 1:
            pieces = yield st.loop_partition(each, lengths)
        for piece in pieces if written else ():
            yield st.unroll(piece)


def with_long_rows(inputs: tuple[Buffer, ...], whole: Each) -> tuple[tuple[Buffer, ...], Each]:
    """The stage with its last axis as a part of the one before it; itself where these are read
    apart."""
    if len(whole.axes) < 2:
        return inputs, whole
    *outer, cut, row = whole.axes
    length, views = known(whole.out.shape[-1]) or 0, _views(whole, cut, row)
    if views is None or whole.out.strides:
        return inputs, whole

    def change(node: Term) -> Term:
        match node:
            case Load(buffer, indices) if buffer in views:
                return Load(views[buffer], (*indices[:-2], _scaled(indices[-2], cut, length)))
            case Lt(left, Lit(int() as stop)) if cut in free_vars(left):
                return Lt(_scaled(left, cut, length), index(stop * length))
            case Le(Lit(int() as start), right) if cut in free_vars(right):
                return Le(index(start * length), _scaled(right, cut, length))
            case _:
                return node

    value = map_bottom_up(change, whole.value)
    stage = Each(_view(whole.out), (*outer, cut), value)
    return tuple([views.get(each, each) for each in inputs]), stage


def _views(whole: Each, cut: ScalarVar, row: ScalarVar) -> Mapping[Buffer, Buffer] | None:
    """The loads along both axes with these merged, or None if either is used otherwise."""
    found: dict[Buffer, Buffer] = {}
    others: set[Buffer] = set()
    stack: list[Term] = [whole.value]
    while stack:
        node = stack.pop()
        match node:
            case Load(buffer, indices) if {cut, row} & free_vars(node):
                inside = [scalar for scalar in indices[:-2] if {cut, row} & free_vars(scalar)]
                near = len(indices) > 1 and reach(indices[-2], cut) is not None
                if inside or not near or indices[-1] is not row or buffer.strides:
                    return None
                if buffer.shape[-1] is not whole.out.shape[-1]:
                    return None
                found[buffer] = _view(buffer)
            case Load(buffer, _):
                others.add(buffer)
            case Lt(left, Lit(int())) | Le(Lit(int()), left) if reach(left, cut) is not None:
                pass
            case ScalarVar() if node in (cut, row):
                return None
            case _:
                stack.extend(node._children)
    return None if others & found.keys() else found


def _view(of: Buffer) -> Buffer:
    """A tensor with its last two axes as one."""
    *outer, rows, length = of.shape
    joined = index((known(rows) or 0) * (known(length) or 0))
    return Buffer(of.name, (*outer, joined), of.dtype, of.scope, of.strides, of.align)


def reach(place: Scalar, axis: ScalarVar) -> int | None:
    """The offset of an index from an axis, or None for other indices."""
    terms = dict(polynomial(place).values())
    apart = terms.pop((), 0)
    return apart if terms == {(axis,): 1} else None


def _scaled(place: Scalar, axis: ScalarVar, by: int) -> Scalar:
    """An index along an axis whose steps are now this many."""
    apart = reach(place, axis)
    assert apart is not None
    return axis + index(apart * by) if apart else axis
