"""The schedule of reductions along rows (`plica.schedule.default.reduction`): one loop over rows.

    for i:
        for o:                                   where a sum goes in runs
            run[u, v]  = …                       vectors, side by side
            wide[v]    = wide[v] + …
        part[u, v] = …                           vectors, side by side
        joined, few, total, then out             shorter and shorter vectors

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import kernel_of, stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> from plica.schedule.default.reduction import row_form
>>> x = buffer("x", (4, 100), f32)
>>> total = stage("y", (4,), lambda i: reduce("sum", (100,), lambda k: x[i, k]))
>>> machine = Machine(512, 32)
>>> row_schedule(kernel_of(row_form(stages((x,), (total,)), machine)), machine) is None
False
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from plica.analysis.site import map_of
from plica.core.name import Name
from plica.ir.loop.statement import Block, Kernel
from plica.ir.type.dim import known
from plica.schedule.default.machine import Machine
from plica.schedule.do import Body, do
from plica.schedule.do import DoBlock as Do
from plica.schedule.handle import Handle
from plica.schedule.primitive import (
    annotate,
    block,
    compute_at,
    decompose_reduction,
    fuse,
    loops,
    parallel,
    reorder,
    set_scope,
    unroll,
    vectorize,
)

SHARED = 1 << 15
"""Fewer terms than that are not worth waking other cores."""

LONG = 256
"""A row of so many elements is long enough for the next to come from memory meanwhile."""


def row_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of such a kernel, or of a chain of them (`plica.schedule.default.row`).

    Everything goes into the loop over the rows of the result.
    """
    blocks = map_of(kernel).blocks
    found = blocks.get(Name("total"))
    summed = Name("part") in blocks or Name("wide") in blocks
    if found is None or not summed or Name("out") not in blocks:
        return None
    around = found.node.kinds.count("spatial")
    work = sum(prod(known(size) or 0 for size in each.node.extents) for each in blocks.values())
    shares = machine.cores > 1 and work >= SHARED and around > 0
    before = [each for each in blocks if each != Name("out")]

    @do
    def schedule() -> Body:
        out = yield block("out")
        every: tuple[Handle, ...] = yield loops(out)
        rows = every[:around]
        handles: list[tuple[Name, Handle]] = []
        for each in reversed([each for each in before if each.hint != "run"]):
            one = yield block(str(each))
            if rows:
                yield compute_at(one, rows[-1])
            handles.append((each, one))
            if each.hint == "wide":  # what its runs read comes into the loop over rows after them
                yield from _run_within(one, blocks[each].node, str(Name("run", each.index)), around)
        for name, one in handles:
            yield from _within_row(one, blocks[name].node, around)
        if len(every) > around:
            yield vectorize(every[-1])
            yield from _fetched(every[-1], blocks[Name("out")].node)
        if shares:
            whole = rows[0]
            if around > 1:
                whole = yield fuse(*rows)
            yield parallel(whole)

    return schedule()


def _run_within(wide: Handle, was: Block, name: str, rows: int) -> Body:
    """A run where its total is added up: inside the loops over runs, around those over lanes."""
    every: tuple[Handle, ...] = yield loops(wide)
    both = zip(was.kinds, was.extents, strict=True)
    terms = sum(kind == "reduce" and (not rows or known(size) != 1) for kind, size in both)
    lane, over = every[-1 - terms], every[len(every) - terms :]
    yield reorder(*over, lane)
    one = yield block(name)
    yield compute_at(one, over[-1])
    yield set_scope(one, 0, "local")
    inside: tuple[Handle, ...] = yield loops(one)
    *_, many, lane, term = inside
    yield reorder(term, many, lane)
    begun = yield decompose_reduction(one, term)
    first: tuple[Handle, ...] = yield loops(begun)
    yield from _vectors(first[-2:])
    yield from _vectors((many, lane))


def _within_row(of: Handle, was: Block, outside: int) -> Body:
    """The loops of a block inside that over rows: those of one iteration are gone."""
    long = [kind for kind, size in zip(was.kinds, was.extents, strict=True) if known(size) != 1]
    there = long[sum(known(size) != 1 for size in was.extents[:outside]) :]
    if was.label.hint == "wide":  # its runs are there already
        there.sort(key="reduce".__ne__)
    if was.label.hint != "stage" or not there:
        yield set_scope(of, 0, "local")
    if not there:
        return
    every: tuple[Handle, ...] = yield loops(of)
    inside = every[len(every) - len(there) :]
    spatial = [each for each, kind in zip(inside, there, strict=True) if kind == "spatial"]
    terms = [each for each, kind in zip(inside, there, strict=True) if kind == "reduce"]
    if spatial and terms and was.label.hint != "wide":
        yield reorder(*terms, *spatial)
    if terms:
        begun = yield decompose_reduction(of, terms[0])
        if spatial:
            every = yield loops(begun)
            yield from _vectors(every[len(every) - len(spatial) :])
    if spatial:
        yield from _vectors(spatial)
        if was.label.hint == "stage":
            yield from _fetched(spatial[-1], was)


def _fetched(of: Handle, was: Block) -> Body:
    """While a long row is worked on, the next one comes nearer."""
    length = known(was.extents[-1]) or 0
    if length >= LONG:
        yield annotate(of, "fetch", length)


def _vectors(of: Sequence[Handle]) -> Body:
    *many, last = of
    for each in many:
        yield unroll(each)
    yield vectorize(last)
