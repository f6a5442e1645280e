"""Split reductions: few results of many terms, made in parts by all processors, then joined.

    y[i] = min over k of x[i, k]   -->   part[i, p] = min over q of x[i, p * 128 + q]     launch 1
                                         y[i]       = min over p of part[i, p]            launch 2

One block reads only as fast as one processor can. If results give fewer blocks than processors, and
their operands are large, one reduction axis is split into parts that fill the machine; the last
part is padded with the combiner's identity. Parts of one result are adjacent if its terms are
contiguous, else those of adjacent results.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> x = buffer("x", (1 << 20,), f32)
>>> least = stage("y", (), lambda: reduce("min", (1 << 20,), lambda k: x[k]))
>>> split = split_reductions(stages((x,), (least,)), Gpu())
>>> [[known(size) for size in each.outs[0].shape] for each in split.stages]
[[1024], []]
"""

from __future__ import annotations

from math import prod
from typing import Final

from attrs import frozen

from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import MEANING, Each, Names, Stage, Stages, loads, reductions, scalar as sc
from plica.ir.loop.stages import stages
from plica.ir.type import known
from plica.schedule.default.gpu.cost import LATENCY, LAUNCH, STREAM
from plica.schedule.default.gpu.machine import BLOCKS_A_PROCESSOR, Gpu
from plica.schedule.default.gpu.row_passes import is_along

LEAST: Final = {True: 1024, False: 64}
"""Terms of a part, at least: where they are neighbours, and where those of other results are."""

RATE: Final = {True: STREAM, False: STREAM / 3}
"""Bytes that one block reads in a cycle: a row in vectors, or the terms of 32 results."""


@frozen(eq=False)
class ReductionParts:
    """How a reduction is cut: the axis, in how many parts of how many terms, and how they lie."""

    axis: sc.ScalarVar
    count: int
    length: int
    near: bool  # whether neighbouring terms are neighbours in memory


def split_reductions(of: Stages, gpu: Gpu) -> Stages | None:
    """Stages with large reductions in parts, or None."""
    names = Names(of)
    names.used.add(of.result.name)
    made: list[Stage] = []
    for stage in of.stages:
        made += _split(stage, names, gpu) if isinstance(stage, Each) else [stage]
    return stages(of.inputs, made, of.outputs) if len(made) > len(of.stages) else None


def _split(of: Each, names: Names, gpu: Gpu) -> list[Stage]:
    sizes = {axis: known(size) for axis, size in zip(of.axes, of.out.shape, strict=True)}
    before: list[Stage] = []
    joined: dict[Term, Term] = {}
    for node in reductions(of.value):
        own = tuple([axis for axis in of.axes if axis in free_vars(node)])
        many = [sizes[axis] for axis in own]
        if free_vars(node) - _buffers(node) - {*own} or None in many or reductions(node.body):
            continue  # inside of another one, or its size is open
        if (parts := parts_of(node, prod(size or 0 for size in many), gpu)) is None:
            continue
        p, s = names.var("p"), names.var("s")
        shape = [sc.index(size or 0) for size in many]
        extent = sc.index(parts.count)
        box = (*shape, extent) if parts.near else (extent, *shape)
        part = sc.Buffer(names.name("part"), box, sc.dtype_of(node.body))
        axes = (*own, p) if parts.near else (p, *own)
        before.append(Each(part, axes, _part(node, parts, p)))
        place = (*own, s) if parts.near else (s, *own)
        joined[node] = sc.Reduce(node.combiner, (s,), (extent,), sc.Load(part, place))
    if not joined:
        return [of]
    value = map_bottom_up(lambda node: joined.get(node, node), of.value)
    return [*before, Each(of.out, of.axes, value)]


def _buffers(of: Term) -> frozenset[Term]:
    return frozenset([var for var in free_vars(of) if isinstance(var, sc.Buffer)])


def _part(of: sc.Reduce, parts: ReductionParts, p: sc.ScalarVar) -> sc.Reduce:
    """One part of a reduction."""
    place = p * parts.length + parts.axis
    body = substitute(of.body, {parts.axis: place})
    whole = dict(zip(of.axes, of.extents, strict=True))
    size = whole[parts.axis]
    if known(size) != parts.count * parts.length:
        identity, _ = MEANING[of.combiner]
        body = sc.Select(sc.Lt(place, size), body, identity(sc.dtype_of(of.body)))
    extents = tuple([sc.index(parts.length) if axis is parts.axis else whole[axis]
                     for axis in of.axes])  # fmt: skip
    return sc.Reduce(of.combiner, of.axes, extents, body)


def parts_of(of: sc.Reduce, results: int, gpu: Gpu) -> ReductionParts | None:
    """The split of a reduction with a number of results, or None if that would be slower."""
    extents = {axis: known(size) or 0 for axis, size in zip(of.axes, of.extents, strict=True)}
    terms = prod(extents.values())
    read = [load for load in loads(of.body) if not free_vars(load).isdisjoint(of.axes)]
    if of.runs or not terms or not results or not read:
        return None
    near = all(is_along(load, of.axes[-1]) for load in read)
    size = results * terms * sum(load.buffer.dtype.bytes for load in read)
    blocks = results if near else -(-results // gpu.warp)
    most = min(-(-gpu.processors * BLOCKS_A_PROCESSOR // blocks), terms // LEAST[near])
    if near:  # what is read at once stays together
        whole = {**extents, of.axes[-1]: extents[of.axes[-1]] // gpu.threads}
    else:
        whole = extents
    axis = max(of.axes, key=lambda each: min(whole[each], most))  # the first of those
    count, length = even_cut(extents[axis], min(most, whole[axis]))
    if count < 2:
        return None
    now, then = (
        size / min(many * RATE[near], gpu.processors * STREAM) for many in (blocks, blocks * count)
    )
    return ReductionParts(axis, count, length, near) if then + LAUNCH + LATENCY < now else None


def even_cut(size: int, most: int) -> tuple[int, int]:
    """At most a given number of parts, and their length; equal ones if possible."""
    even = next((n for n in range(most, most // 2, -1) if n > 1 and size % n == 0), 0)
    length = size // even if even else -(-size // max(1, most))
    return -(-size // length), length
