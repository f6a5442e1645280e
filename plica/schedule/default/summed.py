"""The sums of a contraction: all terms at once, or in runs with kept totals.

    sum[b, i, j]  = sum over h of data * weight at k = b * 256 + h      a tile in registers
    total[i, j]   = sum over b of f64(sum[b, i, j])                     once for each run
    tail[i, j]    = the sum of the last run, where that is shorter      a tile in registers
    what is read    f32(total[i, j] + f64(tail[i, j]))

The sum defines the length of a run (`plica.ir.loop.summation`). If terms may be reordered, runs
have about that length but equal, if possible: then there is no tail. Few totals then need no f64.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x, w = buffer("x", (4, 600), f32), buffer("w", (600, 6), f32)
>>> times = stage("y", (4, 6), lambda m, n: reduce(
...     "sum", (600,), lambda k: x[m, k] * w[k, n], runs="box"))
>>> of = contraction(stages((x, w), (times,)))
>>> in_runs(of, reassociates=False).run, in_runs(of, reassociates=True).run
((256,), (300,))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from attrs import evolve

from plica.core import Term, map_bottom_up, post_order, substitute
from plica.ir.loop import MEANING, Each, Names, Stage, Stages, scalar as sc
from plica.ir.loop.stages import stages
from plica.ir.loop.summation import TOTALS, run_shape
from plica.ir.type import DType, f64, known
from plica.schedule.default.contraction import Contraction, contraction

__all__ = ["contraction", "in_equal_runs", "in_free_order", "in_runs", "summed"]

LONGEST: Final[dict[sc.Runs, int]] = {"row": 32, "box": sc.RUN_LENGTH["box"] * 5 // 4}
"""Terms of a run where the order is free: 32 equal terms are off by six units of half the last
place, and 288 are half of the channels of many a window."""

FEW: Final = 32  # so few totals are added up in the dtype of the terms, where the order is free
FARTHEST: Final = 4  # how many times as long a run may be where sizes have no other parts


def in_runs(of: Contraction, *, reassociates: bool) -> Contraction | None:
    """The contraction with the length of its runs, or None if it needs more than one total."""
    if not of.runs:
        return of
    extents = [of.sizes[var] for var in of.k]
    if reassociates:
        free = _free(extents, LONGEST[of.runs])
        return None if free is None else evolve(of, run=free, free=True)
    run = tuple([part for part in run_shape(extents, of.runs) if isinstance(part, int)])
    cut = [(n, part) for n, part in zip(extents, run, strict=True) if part < n]
    if len(cut) > 1 or (of.reduced.dtype is f64 and cut[0][0] > cut[0][1] * TOTALS):
        return None
    return evolve(of, run=run)


def _free(extents: Sequence[int], most: int) -> tuple[int, ...] | None:
    """Equal runs with about a number of terms, or None if sizes do not allow them."""
    found: list[int] = []
    for at, extent in reversed(list(enumerate(extents))):
        found.append(extent)
        if extent <= most:
            most //= extent
            continue
        parts = [part for part in range(most, 1, -1) if extent % part == 0]
        near = [part for part in range(most, FARTHEST * most) if extent % part == 0]
        if prod(extents[:at]) == 1 and (parts or [1])[0] * 2 < most:
            found[-1] = -(-extent // -(-extent // most))
        elif parts or near:
            found[-1] = (parts or near)[0]
        elif len(found) == 1:
            return None
        else:
            found[-1] = 1
        return (*(1 for _ in extents[:at]), *reversed(found))
    return tuple(reversed(found))


def summed(  # noqa: PLR0917  # a contraction in the axes of a form
    of: Contraction,
    axes: Sequence[sc.ScalarVar],
    sizes: Mapping[sc.ScalarVar, int],
    data: sc.Scalar,
    weight: sc.Load | None,
    names: Names,
) -> tuple[list[Each], sc.Scalar]:
    """The stages that sum over the terms for each point of the axes, and the final sum."""
    axes = tuple(axes)
    shape = tuple([of.open.get(axis) or sc.index(sizes[axis]) for axis in axes])
    dtype = of.reduced.dtype
    body = data if weight is None else sc.Mul(data, weight)
    extents = {var: sizes[var] for var in of.k}
    parts = dict(zip(of.k, of.run, strict=True)) if of.run else extents
    if not (cut := [var for var in of.k if parts[var] < extents[var]]):
        out = sc.Buffer(names.name("sum"), shape, dtype)
        return [Each(out, axes, _reduce(of, extents, body, {}))], sc.Load(out, axes)
    blocks = tuple([names.var("b") for _ in cut])
    counts = tuple([sc.index(extents[var] // parts[var]) for var in cut])
    starts = {var: block * parts[var] for var, block in zip(cut, blocks, strict=True)}
    one = sc.Buffer(names.name("sum"), (*counts, *shape), dtype)
    found = [Each(one, (*blocks, *axes), _reduce(of, parts, body, starts))]
    few = prod(extents[var] // parts[var] for var in cut) <= FEW
    wide = dtype if of.free and few else f64
    total = sc.Buffer(names.name("total"), shape, wide)
    inner = sc.Reduce(of.combiner, blocks, counts, _as(sc.Load(one, (*blocks, *axes)), wide))
    found.append(Each(total, axes, inner))
    whole: sc.Scalar = sc.Load(total, axes)
    last = cut[-1]
    if rest := extents[last] % parts[last]:
        assert len(cut) == 1  # equal parts, or one that is cut
        tail = sc.Buffer(names.name("tail"), shape, dtype)
        value = _reduce(of, {**parts, last: rest}, body, {last: sc.index(extents[last] - rest)})
        found.append(Each(tail, axes, value))
        _, join = MEANING[of.combiner]
        whole = join(whole, _as(sc.Load(tail, axes), wide))
    return found, _as(whole, dtype)


def _as(of: sc.Scalar, dtype: DType) -> sc.Scalar:
    return of if sc.dtype_of(of) is dtype else sc.Cast(of, dtype)


def _reduce(
    of: Contraction,
    extents: Mapping[sc.ScalarVar, int],
    body: sc.Scalar,
    starts: Mapping[sc.ScalarVar, sc.Scalar],
) -> sc.Reduce:
    """The sum of a given number of terms of each axis, from some places on."""
    where: dict[Term, Term] = {var: var + start for var, start in starts.items()}
    value = substitute(body, where) if where else body
    sizes = tuple([sc.index(extents[var]) for var in of.k])
    return sc.Reduce(of.combiner, of.k, sizes, value)


def in_equal_runs(of: sc.Reduce, names: Names) -> sc.Reduce:
    """A sum in runs whose terms may be reordered: at once if there are few, or in equal runs with a
    few totals; else unchanged.

    sum over k < 600, in runs of 256  -->  sum over b < 2 of the sum over h < 300 at b * 300 + h
    """
    extents = [known(extent) or 0 for extent in of.extents]
    if of.runs == "box" and extents == [0]:
        return _in_open_runs(of, names)
    run = _free(extents, LONGEST[of.runs]) if of.runs and all(extents) else None
    if run is None or any(size % part for size, part in zip(extents, run, strict=True)):
        return of
    cut = {
        axis: (names.var("b"), size // part, part)
        for axis, size, part in zip(of.axes, extents, run, strict=True)
        if part < size
    }
    if prod([count for _, count, _ in cut.values()]) > FEW:
        return of
    there: dict[Term, Term] = {axis: b * part + axis for axis, (b, _, part) in cut.items()}
    body = substitute(of.body, there) if cut else of.body
    inner = sc.Reduce(of.combiner, of.axes, tuple([sc.index(each) for each in run]), body)
    if not cut:
        return inner
    blocks = tuple([b for b, _, _ in cut.values()])
    counts = tuple([sc.index(count) for _, count, _ in cut.values()])
    return sc.Reduce(of.combiner, blocks, counts, inner)


def _in_open_runs(of: sc.Reduce, names: Names) -> sc.Reduce:
    """A sum of an open number of products in runs, about as many as their maximum length: totals
    have at most the square root of all terms, or a run, so none needs f64.

    sum over k < n  -->  sum over b of the sum over h < min(run, n - b * run) at b * run + h
                         where run = max(256, n / 256)
    """
    most, (axis,), (size,) = sc.RUN_LENGTH["box"], of.axes, of.extents
    block = names.var("b")
    run = sc.Max(sc.index(most), (size + (most - 1)) // most)
    body = substitute(of.body, {axis: block * run + axis})
    inner = sc.Reduce(of.combiner, (axis,), (sc.Min(run, size - block * run),), body)
    return sc.Reduce(of.combiner, (block,), ((size + (run - 1)) // run,), inner)


def in_free_order(of: Stages) -> Stages:
    """Stages with sums in any order: those along rows in f64, products as they come.

    total[i] = sum over k of x[i, k], in runs  -->  wide[i] = sum over k of f64(x[i, k])
                                                    total[i] = f32(wide[i])
    """
    if not any(isinstance(node, sc.Reduce) and node.runs for node in post_order(of)):
        return of
    names = Names(of)
    read: dict[sc.Buffer, sc.Buffer] = {}

    def narrowed(node: Term) -> Term:
        if isinstance(node, sc.Load) and node.buffer in read:
            return sc.Cast(sc.Load(read[node.buffer], node.indices), node.buffer.dtype)
        if isinstance(node, sc.Reduce) and node.runs:
            return sc.Reduce(node.combiner, node.axes, node.extents, node.body)
        return node

    made: list[Stage] = []
    for stage in of.stages:
        if not isinstance(stage, Each):
            made.append(stage)
            continue
        value = map_bottom_up(narrowed, stage.value)
        fold = stage.value
        if not isinstance(fold, sc.Reduce) or fold.runs != "row" or sc.dtype_of(fold) is f64:
            made.append(Each(stage.out, stage.axes, value))
            continue
        assert isinstance(value, sc.Reduce)
        wide = sc.Buffer(names.name("wide"), stage.out.shape, f64)
        body = sc.Cast(value.body, f64)
        made.append(Each(wide, stage.axes, sc.Reduce(fold.combiner, fold.axes, fold.extents, body)))
        if stage.out in of.outputs:
            made.append(
                Each(stage.out, stage.axes, sc.Cast(sc.Load(wide, stage.axes), stage.out.dtype))
            )
        else:
            read[stage.out] = wide
    return stages(of.inputs, made, of.outputs)
