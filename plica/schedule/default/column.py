"""Reductions across rows: vectors along the axis that is kept, several of them under way at once.

    out[i, j] = sum over k of f(x[i, k, j])
      -->  acc[w]    = sum over h < 32 of f(x[i, …, h * W + w])      vectors side by side: a run
           sums[w]   = sum over runs of f64(acc[w])
           out[i, j] = sums[j] + sums[J + j] + …

An addition takes some cycles to come through, and a processor begins several in each of them.  A
kept axis of `J` elements that fills few vectors would leave most of them unused, so several rows
are one of `W` elements: as they lie one after another in memory, this is another view of the same
numbers.  The last rows, which fill no such one, are added where its parts are joined.

A wide axis goes block by block, each of a few vectors, through all rows.  Long sums go in runs like
those along rows (`plica.schedule.default.reduction`).  The loops are in
`plica.schedule.default.column_writer`.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x = buffer("x", (4, 1000, 8), f32)
>>> total = stage("y", (4, 8), lambda i, j: reduce("sum", (1000,), lambda k: x[i, k, j]))
>>> [type(each).__name__ for each in column_form(stages((x,), (total,)), Machine(512, 32)).stages]
['ExternStage']
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Final

from plica.core.binding import free_vars
from plica.core.fold import map_bottom_up
from plica.core.term import Term
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages, loads, pairs, reductions
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32, f64, i32, i64
from plica.runtime.late import late
from plica.schedule.default.column_writer import UNDER_WAY, ColumnReduction, ColumnWriter
from plica.schedule.default.elementwise import is_row
from plica.schedule.default.machine import Machine
from plica.schedule.default.reduction import is_across_rows

if TYPE_CHECKING:
    from plica.schedule.default.row_stream import RowStream
else:
    RowStream = late("plica.schedule.default.row_stream:RowStream")

ENOUGH: Final = 4
"""A row of so many vectors has enough of them by itself."""

LEAST: Final = 16
"""Fewer vectors than that are added up as they come."""


def column_form(of: Stages, machine: Machine) -> Stages | None:
    """The stage of a reduction across rows with the loops it should have, None where it is none.

    Rows that have factors, which are a product of one row with a matrix, go as they lie where no
    vector is read in part.
    """
    if not is_across_rows(of) or (found := _columns(of)) is None:
        return None
    lanes = machine.lanes(sc.dtype_of(found.body))
    if lanes < 2 or found.terms * found.width < LEAST * lanes:
        return None
    rows = _rows_together(found, of, lanes)
    # Short vectors are parts of a line: rows are read as they lie, whole lines.
    if rows == 1 and not machine.masks and found.width >= ENOUGH * lanes:
        return RowStream(of, found, machine, lanes, rows).formed(of)
    if found.weighted() or (not machine.masks and rows * found.width % lanes):
        return None
    return ColumnWriter(of, found, machine, lanes, rows).formed(of)


def _columns(of: Stages) -> ColumnReduction | None:
    every = pairs(of) if all(isinstance(each, Each) for each in of.stages) else []
    if len(every) != 1 or of.dims:
        return None
    ((fold, epilogue),) = every
    body = fold.value
    if not isinstance(body, sc.Reduce) or not fold.axes or reductions(body.body):
        return None
    if sc.dtype_of(body) not in (f32, f64, i32, i64):
        return None
    lane, width, depth = fold.axes[-1], known(fold.out.shape[-1]), known(body.extents[-1])
    if not width or not depth or width == 1 or not all(known(each) for each in body.extents):
        return None
    if not is_row(body.body, lane):
        return None
    if not _same_places(fold, epilogue):
        return None
    return ColumnReduction(fold, body, epilogue, lane, width, depth)


def _same_places(fold: Each, epilogue: Each | None) -> bool:
    """Whether each element is stored where it was reduced, or all of it along the same axis."""
    if epilogue is None:
        return True
    (read,) = [load for load in loads(epilogue.value) if load.buffer is fold.out]
    return read.indices == epilogue.axes and is_row(epilogue.value, epilogue.axes[-1])


def _rows_together(of: ColumnReduction, whole: Stages, lanes: int) -> int:
    """How many rows are read as one, 1 where they are wide or do not lie one after another."""
    if of.width >= ENOUGH * lanes or not _lies_in_rows(of, whole):
        return 1
    return rows_together(of.width, of.depth, lanes)


def rows_together(width: int, depth: int, lanes: int) -> int:
    """How many of some rows fill whole vectors, and keep as many under way as they should; 1 where
    there are too few for that."""
    unit = lanes // gcd(width, lanes)
    vectors = unit * width // lanes
    for many in (unit * max(1, UNDER_WAY // vectors), unit):
        if 2 * many <= depth:
            return many
    return 1


def _lies_in_rows(of: ColumnReduction, whole: Stages) -> bool:
    """Whether all that is read along the kept axis is so along the last terms, of whole rows."""
    term = of.body.axes[-1]
    views = set()
    for each in loads(of.body.body):
        if free_vars(each).isdisjoint((of.lane, term)):
            continue
        sizes = [known(size) for size in each.buffer.shape[-2:]]
        if each.indices[-2:] != (term, of.lane) or sizes != [of.depth, of.width]:
            return False
        if not all(free_vars(place).isdisjoint((of.lane, term)) for place in each.indices[:-2]):
            return False
        views.add(each.buffer)
    rest = () if of.epilogue is None else loads(of.epilogue.value)
    return (
        views <= set(whole.inputs)
        and not any(each.buffer in views for each in rest)
        and all(
            each.indices[-2:] == (term, of.lane)
            for each in loads(of.body.body)
            if each.buffer in views
        )
        and stands_in_loads(of.body.body, (term, of.lane))
    )


def stands_in_loads(of: sc.Scalar, variables: tuple[sc.ScalarVar, ...]) -> bool:
    """Whether variables say where something is read, and nothing else."""

    def without(node: Term) -> Term:
        return sc.Lit(0, node.buffer.dtype) if isinstance(node, sc.Load) else node

    return free_vars(map_bottom_up(without, of)).isdisjoint(variables)
