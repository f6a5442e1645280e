"""Gates of recurrent layers: several dot products per element and their epilogue, as one fold.

    z[j]  = sum over k of h[k] * w[j, k]               terms[j, k]   = h[k]
    y[j]  = f(z[j], z[j + 128], z[j + 256], …)   -->   terms_1[j, k] = w[j, k], and so on
                                                       total[j, g]   = sum over k of product g
                                                       y[j]          = f(total[j, 0], …)

A step of a recurrent layer is one launch: the fold template gives each element to the threads of a
warp, which read both operands in vectors and reduce all sums by shuffles.  It serves products of
few rows, whose weights are read about once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from attrs import frozen

from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import Each, Names, Stages, loads, scalar as sc
from plica.ir.loop.stages import stages
from plica.ir.type import f32, known
from plica.schedule.default.gpu.cost import ENDS, STREAM
from plica.schedule.default.gpu.fold_form import TERMS, TOTAL
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.row_passes import is_along
from plica.schedule.default.gpu.thread_code import digits, flattened
from plica.schedule.default.summed import in_free_order
from plica.schedule.online_softmax import folds_and_last

MAX_SUMS: Final = 8  # sums of an element, at most
MAX_READS: Final = 4  # how often all of the weights may be read


@frozen(eq=False)
class Gates:
    """The parts of an element: sums over the same terms, their loads, and the rest."""

    of: Stages
    out: Each
    sums: tuple[tuple[sc.Load, sc.Scalar], ...]  # what reads a sum, and its terms
    term: sc.ScalarVar
    count: int

    @property
    def sides(self) -> tuple[sc.Load, ...]:
        """The loads along the terms."""
        read = [load for _, body in self.sums for load in loads(body)]
        return tuple([each for each in dict.fromkeys(read) if self.term in free_vars(each)])

    @property
    def elements(self) -> int:
        return prod(known(size) or 0 for size in self.out.out.shape)


def gates_of(of: Stages) -> Gates | None:
    """Elements as functions of sums, or None for others, or if tiles are worthwhile."""
    of = in_free_order(of)
    if of.dims or len(of.outputs) != 1 or not all(isinstance(stage, Each) for stage in of.stages):
        return None
    *first, out = folds_and_last([stage for stage in of.stages if isinstance(stage, Each)])
    made = {stage.out: stage for stage in first}
    term = Names(of).var("k")
    found: dict[sc.Load, sc.Scalar] = {}
    counts: set[int | None] = set()
    for load in loads(out.value):
        if load.buffer not in made:
            continue
        whole = made[load.buffer].value
        if not isinstance(whole, sc.Reduce) or whole.combiner != "sum" or len(whole.axes) != 1:
            return None
        if whole.runs or sc.dtype_of(whole) is not f32:
            return None
        there: dict[Term, Term] = dict(zip(made[load.buffer].axes, load.indices, strict=True))
        body = substitute(whole.body, {**there, whole.axes[0]: term})
        if any(each.buffer in made for each in loads(body)):
            return None
        found[load] = body
        counts.add(known(whole.extents[0]))
    count = next(iter(counts)) if len(counts) == 1 else None
    gates = Gates(of, out, tuple(found.items()), term, count or 0)
    parts = len(found) > 1 or any(known(index) is None and not isinstance(index, sc.ScalarVar)
                                  for load in found for index in load.indices)  # fmt: skip
    if not count or not parts or len(found) > MAX_SUMS or not gates.elements or not gates.sides:
        return None
    sizes = dict(zip(out.axes, [known(size) or 0 for size in out.out.shape], strict=True))
    again = [prod(size for axis, size in sizes.items() if axis not in free_vars(side))
             for side in gates.sides]  # fmt: skip
    near = all(is_along(side, term) for side in gates.sides)
    return gates if near and min(again) <= MAX_READS else None


def gate_cost(of: Gates, gpu: Gpu) -> float:
    """Cycles, of which most go into reading weights."""
    read = of.elements * of.count * sum(side.buffer.dtype.bytes for side in of.sides)
    return ENDS + read / (STREAM * gpu.processors)


def gate_folds(of: Gates) -> Stages:
    """The stages of the fold template: operands in registers, one fold of all sums, the epilogue.

    Elements are one axis; the sums of an element are the last axis of the fold, whose number
    selects the product.
    """
    names, out, k = Names(of.of), of.out, of.term
    j, g = names.var("j"), names.var("g")
    sizes = {axis: known(size) or 0 for axis, size in zip(out.axes, out.out.shape, strict=True)}
    there = {axis: sc.index(0) for axis in out.axes} | digits(
        [axis for axis in out.axes if sizes[axis] != 1], sizes, j
    )
    extents = {j: sc.index(of.elements), k: sc.index(of.count), g: sc.index(len(of.sums))}

    def term(side: sc.Load) -> Each:
        into = sc.Buffer(names.name(TERMS), (extents[j], extents[k]), side.buffer.dtype, "local")
        return Each(into, (j, k), substitute(side, there))

    terms = [term(each) for each in of.sides]
    total = sc.Buffer(names.name(TOTAL), (extents[j], extents[g]), f32)
    read: dict[Term, Term] = {
        side: sc.Load(stage.out, (j, k)) for side, stage in zip(of.sides, terms, strict=True)
    }
    read |= {load: sc.Load(total, (j, sc.index(at))) for at, (load, _) in enumerate(of.sums)}
    *bodies, value = [
        substitute(replaced(scalar, read), there)
        for scalar in (*[body for _, body in of.sums], out.value)
    ]
    fold = sc.Reduce("sum", (k,), (extents[k],), chosen(bodies, g))
    made = (*terms, Each(total, (j, g), fold), Each(flattened(out.out), (j,), value))
    return stages(of.of.inputs, made)


def chosen(values: Sequence[sc.Scalar], number: sc.ScalarVar) -> sc.Scalar:
    """Selects one of several values by its number.

    Values that differ only in a load select that load, so that a multiply-add stays one.

    >>> from plica.ir.loop.tensor import axis, buffer
    >>> x, w, v = (sc.Load(buffer(each, (), f32), ()) for each in "xwv")
    >>> g = axis("g")
    >>> chosen([x * w, x * v], g) is x * sc.Select(sc.Eq(g, sc.index(0)), w, v)
    True
    """

    def choice(some: Sequence[sc.Scalar]) -> sc.Scalar:
        *before, value = some
        for at, other in reversed([*enumerate(before)]):
            if other is not value:
                value = sc.Select(sc.Eq(number, sc.index(at)), other, value)
        return value

    first, *others = values
    read = [loads(scalar) for scalar in values]
    slots = [*zip(*read, strict=False)]
    for number_of, body in enumerate(others, 1):
        mine: dict[Term, Term] = {slot[0]: slot[number_of] for slot in slots}
        if len(read[number_of]) != len(read[0]) or replaced(first, mine) is not body:
            return choice(values)
    return replaced(first, {slot[0]: choice(slot) for slot in slots})


def replaced(value: sc.Scalar, by: Mapping[Term, Term]) -> sc.Scalar:
    """The value with some subterms replaced."""
    return map_bottom_up(lambda node: by.get(node, node), value)
