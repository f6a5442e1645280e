"""Variants: schedules that differ from one in structure, made by editing its trace.

    turned      the loops around a tile stand in another order
    banded      a loop around a tile goes in bands: all that is inside is done for one band first
    written     a few terms of the sum are written out
    spread      cores share fewer of the outer loops

>>> from plica.ir.text.script import from_text
>>> from plica.schedule import block, do, loops, reorder, split, trace_of
>>> @do
... def tiled():
...     i, j, k = yield loops((yield block("C")))
...     i0, i1 = yield split(i, (None, 4))
...     j0, j1 = yield split(j, (None, 4))
...     yield reorder(i0, j0, k, i1, j1)
>>> kernel = from_text(PRODUCT).values[0]
>>> (other,) = turned(trace_of(tiled, kernel), kernel)
>>> print(other.to_python().splitlines()[-1].strip())
yield reorder(loop_3_0, loop_2_0, loop_1_2, loop_2_1, loop_3_1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from attrs import frozen

from plica.core import Term, map_bottom_up
from plica.ir.loop.statement import Kernel
from plica.ir.type import known
from plica.schedule.handle import Handle
from plica.schedule.instruction import Instruction, Scene
from plica.schedule.primitive.fuse import Fuse
from plica.schedule.primitive.look_up import GetLoops
from plica.schedule.primitive.loop_kind import Parallel, Unroll
from plica.schedule.primitive.reorder import Reorder
from plica.schedule.primitive.split import Split
from plica.schedule.trace import Step, Trace
from plica.search.sketch.template import is_term, scenes_of

UNROLLED_TERMS: Final = (4, 2, 3, 8, 5, 7)  # terms to unroll: the first of these that divides them


@frozen(eq=False)
class LoopOrdering:
    """The order of loops in which a trace makes a sum: its step, loops around, loops of terms."""

    step: int
    around: tuple[Handle, ...]
    terms: tuple[Handle, ...]
    extents: Mapping[Handle, int]
    scenes: tuple[Scene, ...]


def tiled(trace: Trace, kernel: Kernel) -> LoopOrdering | None:
    """Where a trace places reduction loops inside others, or None."""
    scenes = scenes_of(trace, kernel)
    for number, step in enumerate(trace.steps):
        if not isinstance(step.instruction, Reorder):
            continue
        scene, every = scenes[number], step.instruction.loops
        sites = {handle: scene.loop(handle).node for handle in every}
        terms = [handle for handle in every if is_term(sites[handle])]
        if not terms or every[0] in terms:
            continue
        extents = {handle: known(site.extent) or 1 for handle, site in sites.items()}
        around = every[: every.index(terms[0])]
        return LoopOrdering(number, around, tuple(terms), extents, scenes)
    return None


def turned(trace: Trace, kernel: Kernel) -> tuple[Trace, ...]:
    """The trace with the loops around the terms in other orders."""
    if (of := tiled(trace, kernel)) is None:
        return ()
    long = [handle for handle in of.around if of.extents[handle] > 1]
    if len(long) < 2:
        return ()
    first, *rest = long
    orders = dict.fromkeys([(*rest, first), (*rest[:-1], first, rest[-1])])
    found = []
    for order in orders:
        if list(order) == long:
            continue
        instead = dict(zip(long, order, strict=True))
        head, tail = trace.steps[: of.step], trace.steps[of.step :]
        found.append(Trace((*head, *[_substituted(step, instead) for step in tail])))
    return tuple(found)


def banded(trace: Trace, kernel: Kernel) -> tuple[Trace, ...]:
    """The trace with one of the inner loops around the terms cut into bands, which go first."""
    if (of := tiled(trace, kernel)) is None:
        return ()
    whole = [
        each
        for each in of.around[1:]
        if of.extents[each] > 1 and isinstance(trace.steps[each.step].instruction, GetLoops)
    ]
    length = of.extents[whole[0]] if whole else 1
    if (band := next((each for each in range(2, length) if length % each == 0), None)) is None:
        return ()
    loop, first = whole[0], of.around[0]
    outer, inner = Handle(of.step, 0, "loop"), Handle(of.step, 1, "loop")
    top = of.scenes[of.step].outputs[first]
    # If the loops are requested again, there is one more of them.
    longer = {
        number
        for number, step in enumerate(trace.steps)
        if number > of.step
        and isinstance(step.instruction, GetLoops)
        and any(each.var is top for each in of.scenes[number].block(step.instruction.block).loops)
    }

    def moved(handle: Handle) -> Handle:
        if handle is loop:
            return inner
        later = handle.step + (handle.step >= of.step)
        return Handle(later, handle.output + (handle.step in longer), handle.sort)

    steps = list(trace.steps[: of.step])
    steps.append(Step(Split(loop, (None, band))))
    for each in trace.steps[of.step :]:
        changed = _moved(each.instruction, moved)
        match each.instruction:
            case Reorder(loops) if first in loops and loop in loops:
                changed = Reorder((outer, *[moved(every) for every in loops]))
            case Fuse(loops) if loops[0] is first:
                changed = Fuse((outer, *[moved(every) for every in loops]))
            case Parallel(shared) if shared is first:
                changed = Parallel(outer)
            case _:
                pass
        steps.append(Step(changed, each.decision))
    return (Trace(tuple(steps)),)


def written(trace: Trace, kernel: Kernel) -> tuple[Trace, ...]:
    """The trace with some of the innermost terms written out, where they all have loops."""
    if (of := tiled(trace, kernel)) is None:
        return ()
    scene = of.scenes[-1]
    for term in reversed(of.terms):
        if not scene.missing(Unroll(term)):
            node = scene.loop(term).node
            extent = known(node.extent) or 1
            few = next((few for few in UNROLLED_TERMS if extent % few == 0 and few <= extent), None)
            if extent > 1 and node.kind == "serial" and not node.annotations and few is not None:
                split = Step(Split(term, (None, few)))
                unroll = Step(Unroll(Handle(len(trace), 1, "loop")))
                return (Trace((*trace.steps, split, unroll)),)
        if of.extents[term] > 1:
            return ()  # a loop further out: what is inside is written out already
    return ()


def spread(trace: Trace, kernel: Kernel) -> tuple[Trace, ...]:
    """The trace in which cores share the outermost of the loops they share, or all but one."""
    fused = [
        number
        for number, step in enumerate(trace.steps[:-1])
        if isinstance(step.instruction, Fuse)
        and isinstance(trace.steps[number + 1].instruction, Parallel)
    ]
    if len(fused) != 1:
        return ()
    (number,) = fused
    step = trace.steps[number].instruction
    assert isinstance(step, Fuse)
    fewer = [step.loops[:-1]] if len(step.loops) > 2 else []
    return tuple(
        [
            Trace((*trace.steps[:number], Step(Fuse(loops)), *trace.steps[number + 1 :]))
            for loops in fewer
        ]
    )


def _substituted(step: Step, instead: Mapping[Handle, Handle]) -> Step:
    return Step(_moved(step.instruction, lambda each: instead.get(each, each)), step.decision)


def _moved(of: Instruction, where: Callable[[Handle], Handle]) -> Instruction:
    def move(node: Term) -> Term:
        term = where(node) if isinstance(node, Handle) else node
        assert isinstance(term, Term)
        return term

    return map_bottom_up(move, of)


PRODUCT: Final = """
from plica.script import Buffer, block, f32, grid, init
import plica

@plica.kernel
def product(A: Buffer[(8, 8), f32], B: Buffer[(8, 8), f32], C: Buffer[(8, 8), f32]):
    for i, j, k in grid(8, 8, 8):
        with block("C", spatial=(i, j), reduce=(k,)):
            with init():
                C[i, j] = 0.0
            C[i, j] += A[i, k] * B[k, j]
"""
"""A kernel for examples."""

__all__ = ["PRODUCT", "LoopOrdering", "banded", "spread", "tiled", "turned", "written"]
