"""Folds as stages: terms, their reduction and its epilogue, for the fold template.

    y[i] = f(sum over k of body)   -->   terms[i, k] = body
                                         total[i]    = sum over k of terms[i, k]
                                         y[i]        = f(total[i])

Terms have one axis, and so have columns.  A row of an odd length begins at no multiple of a vector:
its terms are the vectors in it, and each element before and behind them is joined to the first term
of a vector.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f16
>>> x = buffer("x", (8192, 24), f16)
>>> most = stage("y", (24,), lambda j: reduce("max", (8192,), lambda k: x[k, j]))
>>> print(column_folds(stages((x,), (most,))))
terms[k_2 < 8192, c < 24] = x[k_2, c]
total[c < 24] = max(terms[k_2, c] for k_2 in range(8192))
y[i < 24] = total[i]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from attrs import evolve

from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import MEANING, Each, Names, Stages, scalar as sc
from plica.ir.loop.stages import stages
from plica.ir.type import DType, f64
from plica.schedule.default.gpu.fold_plan import count_of, pays_staged, row_plan, staged_plan
from plica.schedule.default.gpu.machine import VECTOR_BYTES, Gpu, vector_lanes
from plica.schedule.default.gpu.one_fold import OneFold, one_fold
from plica.schedule.default.gpu.row import SHORTEST
from plica.schedule.default.gpu.row_passes import is_along, lies_along, reads_inside
from plica.schedule.default.gpu.thread_code import digits, flattened

TERMS: Final = "terms"
TOTAL: Final = "total"


def row_folds(of: Stages, gpu: Gpu) -> Stages | None:
    """Stages with one reduction over contiguous terms, as terms, fold and epilogue; None for
    others, or if operands are shared by several results."""
    if (fold := _row_fold(of)) is None:
        return None
    most, lanes = _lanes(fold)
    shortest = max(gpu.warp, 2 * most) * most  # each element of the edges has a vector
    if not (lanes < most and _is_dense(fold) and _length(fold) > shortest):
        return _in_stages(of, fold, ())
    return _peeled(of, fold, most)


def staged_folds(of: Stages, gpu: Gpu) -> Stages | None:
    """The same for short consecutive rows that fill no vectors, with one element axis and one row
    axis; None for others, or if they are read as fast element by element."""
    if (fold := _row_fold(of)) is None:
        return None
    most, lanes = _lanes(fold)
    length, rows = _length(fold), prod([fold.sizes[var] for var in fold.wide])
    if lanes == most or not _is_dense(fold) or length > gpu.warp * most:
        return None
    size = VECTOR_BYTES // most
    along = count_of(row_plan(rows, length, lanes, size, gpu), "term", "block")
    if not pays_staged(along * lanes * size, length * size / along, rows * length, gpu):
        return None
    if staged_plan(rows, length, sum([load.buffer.dtype.bytes for load in fold.read]), gpu) is None:
        return None
    return _flat(of, fold)


def _row_fold(of: Stages) -> OneFold | None:
    """Stages as one reduction whose terms are neighbours, of rows that have several."""
    fold = _found(of)
    if fold is None or _length(fold) < SHORTEST:
        return None  # a thread's own
    every = {*fold.wide, *fold.row}
    plain = all(isinstance(i, sc.Lit) or i in every for e in fold.read for i in e.indices)
    if not plain or not all(reads_inside(load, fold.sizes) for load in fold.read):
        return None  # windows, or a border, which is not there
    if not all(is_along(e, fold.row[-1]) and free_vars(e) >= every for e in fold.read):
        return None
    return fold


def _lanes(of: OneFold) -> tuple[int, int]:
    """How many elements a vector has, and how many of them rows fill."""
    size = max(load.buffer.dtype.bytes for load in of.read)
    return VECTOR_BYTES // size, vector_lanes(of.sizes[of.row[-1]], size)


def _is_dense(of: OneFold) -> bool:
    """Whether rows follow one another in all that is read for terms."""
    return all(lies_along(load, (*of.wide, *of.row), of.sizes) for load in of.read)


def column_folds(of: Stages) -> Stages | None:
    """Likewise for one reduction with contiguous results and operands."""
    fold = _found(of)
    columns = () if fold is None else columns_of(fold)
    if fold is None or not columns:
        return None
    if not all(reads_inside(e, fold.sizes) for e in fold.read if columns[-1] in free_vars(e)):
        return None  # a border, which is not there
    return _in_stages(of, fold, columns)


def _found(of: Stages) -> OneFold | None:
    names = Names(of)
    names.used.add(of.result.name)
    fold = one_fold(of, names)
    return fold if fold is not None and fold.read else None


def _length(of: OneFold) -> int:
    return prod([of.sizes[var] for var in of.row])


def _names(of: Stages, found: OneFold) -> Names:
    names = Names(of, *found.sizes, found.body, found.value)
    names.used.add(of.result.name)
    return names


def _in_stages(of: Stages, found: OneFold, columns: tuple[sc.ScalarVar, ...]) -> Stages:
    """The terms, their fold and its epilogue, with one axis of terms and one of columns."""
    names = _names(of, found)
    k, c = names.var("k"), names.var("c")
    place = digits(found.row, found.sizes, k) | digits(columns, found.sizes, c)
    count = prod([found.sizes[column] for column in columns])
    sizes = {**found.sizes, k: _length(found), c: count}
    body = substitute(narrowed(found.body), place)
    return _staged(of.inputs, found, names, (body, k, (c,) if columns else ()), sizes, columns)


def _peeled(of: Stages, found: OneFold, lanes: int) -> Stages:
    """The same for unaligned rows: the aligned vectors in each are its terms, and the elements
    before and behind them are added to the first term of a vector."""
    names, length = _names(of, found), _length(found)
    whole = (length - lanes + 1) // lanes * lanes
    begin, k = joined(found.wide, found.sizes) * length, names.var("k")
    first = (begin + (lanes - 1)) // lanes * lanes

    def at(place: sc.Scalar) -> sc.Scalar:
        return substitute(_flat_body(found, place), digits(found.row, found.sizes, place - begin))

    vector = k // lanes
    place = sc.Select(sc.Lt(vector, first - begin), vector, vector + whole)
    is_edge = sc.And(sc.Eq(k % lanes, sc.index(0)), sc.Lt(vector, sc.index(length - whole)))
    sizes = {**found.sizes, k: whole}
    inputs = _flat_inputs(of, found)
    edge = (is_edge, at(begin + place))
    return _staged(inputs, found, names, (at(first + k), k, ()), sizes, (), edge)


def _flat(of: Stages, found: OneFold) -> Stages:
    """The same with one axis of all elements, and one of rows."""
    names, length = _names(of, found), _length(found)
    i, k = names.var("i"), names.var("k")
    rows = prod([found.sizes[var] for var in found.wide])
    out = flattened(found.last.out)
    place = digits(found.wide, found.sizes, i) | digits(found.row, found.sizes, k)

    body = substitute(_flat_body(found, i * length + k), place)
    value = substitute(found.value, place)
    one = evolve(found, value=value, last=Each(out, (i,), value), sizes={**found.sizes, i: rows})
    inputs = _flat_inputs(of, found)
    return _staged(inputs, one, names, (body, k, ()), {**found.sizes, i: rows, k: length}, ())


def _flat_body(found: OneFold, place: sc.Scalar) -> sc.Scalar:
    """A term of which all that is read is at a place of buffers with one axis."""

    def moved(node: Term) -> Term:
        if isinstance(node, sc.Load) and node in found.read:
            return sc.Load(flattened(node.buffer), (place,))
        return node

    return map_bottom_up(moved, narrowed(found.body))


def _flat_inputs(of: Stages, found: OneFold) -> list[sc.Buffer]:
    read = {load.buffer for load in found.read}
    return [flattened(buffer) if buffer in read else buffer for buffer in of.inputs]


def narrowed(body: sc.Scalar) -> sc.Scalar:
    """A term before it was widened for its sum."""
    return body.value if isinstance(body, sc.Cast) and body.dtype is f64 else body


def stored(term: sc.Scalar) -> sc.Scalar:
    """The stored form of a term that is only loaded and widened; else itself."""
    if isinstance(term, sc.Cast) and isinstance(term.value, sc.Load):
        return term.value
    return term


def joined(axes: Sequence[sc.ScalarVar], sizes: Mapping[sc.ScalarVar, int]) -> sc.Scalar:
    """The number of an element along several axes."""
    axes = [axis for axis in axes if sizes[axis] != 1]
    number: sc.Scalar = axes[0] if axes else sc.index(0)
    for axis in axes[1:]:
        number = number * sizes[axis] + axis
    return number


def _staged(  # noqa: PLR0917  # what stages are made of
    inputs: Sequence[sc.Buffer], found: OneFold, names: Names,
    of: tuple[sc.Scalar, sc.ScalarVar, tuple[sc.ScalarVar, ...]],
    sizes: Mapping[sc.ScalarVar, int], columns: tuple[sc.ScalarVar, ...],
    edge: tuple[sc.Scalar, sc.Scalar] | None = None,
) -> Stages:  # fmt: skip
    term, k, lane = of
    outer = tuple([var for var in found.wide if var not in columns])

    def buffer(name: str, axes: Sequence[sc.ScalarVar], dtype: DType) -> sc.Buffer:
        shape = tuple([sc.index(sizes[axis]) for axis in axes])
        return sc.Buffer(names.name(name), shape, dtype)

    axes, wide = (*outer, k, *lane), (*outer, *lane)
    kept = stored(term)
    terms = buffer(TERMS, axes, sc.dtype_of(kept))
    total = buffer(TOTAL, wide, found.total.out.dtype)
    fold = found.total.value
    assert isinstance(fold, sc.Reduce)
    read: sc.Scalar = sc.Load(terms, axes)
    read = read if kept is term else sc.Cast(read, sc.dtype_of(term))
    if edge is not None:
        condition, other = edge
        read = sc.Select(condition, MEANING[fold.combiner][1](read, other), read)
    read = read if narrowed(found.body) is found.body else sc.Cast(read, f64)
    number = (joined(columns, sizes),) if columns else ()

    def of_total(node: Term) -> Term:
        is_total = isinstance(node, sc.Load) and node.buffer is found.total.out
        return sc.Load(total, (*outer, *number)) if is_total else node

    value = map_bottom_up(of_total, found.value)
    made = (
        Each(terms, axes, kept),
        Each(total, wide, sc.Reduce(fold.combiner, (k,), (sc.index(sizes[k]),), read)),
        Each(found.last.out, found.last.axes, value),
    )
    return stages(inputs, made)


def columns_of(of: OneFold) -> tuple[sc.ScalarVar, ...]:
    """The last axes of results, contiguous in memory after all terms; empty if operands are shared
    by several results, which product tiles handle better."""
    axes = of.wide
    mine = [each for each in of.read if axes and axes[-1] in free_vars(each)]
    if not mine or not all(is_along(each, axes[-1]) for each in mine):
        return ()
    count = len(axes)
    for load in mine:
        if not free_vars(load).issuperset(axes):
            return ()
        deep = max(n for n, e in enumerate(load.indices) if not free_vars(e).isdisjoint(of.row))
        behind = load.indices[deep + 1 :]
        same = 0
        while same < min(len(behind), count) and behind[-1 - same] is axes[-1 - same]:
            same += 1
        count = min(count, same)
    return tuple(axes[len(axes) - count :])
