"""Smaller cases: of a kernel, a trace and data that go wrong, the least part that still does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import numpy as np
from attrs import evolve, frozen

from plica.core import Term, free_vars, map_bottom_up, post_order
from plica.ir.interpret.value import Array
from plica.ir.loop.scalar import Buffer, Lit, Scalar, dtype_of, index
from plica.ir.loop.statement import Alloc, Block, For, Kernel, Seq, Stmt, Store, seq, statements
from plica.ir.loop.verify import well_formed
from plica.ir.type import shape_of
from plica.rewrite.fuzz.driver import least
from plica.schedule.primitive.look_up import GetBlock
from plica.schedule.trace import Step, Trace

ATTEMPTS: Final = 400  # how many smaller cases are tried at most


@frozen(eq=False)
class ScheduledCase:
    """A kernel without symbolic dims, what it reads, and a schedule."""

    kernel: Kernel
    arrays: tuple[Array, ...]
    trace: Trace


C = TypeVar("C", bound=ScheduledCase)
T = TypeVar("T", bound=Term)


def minimal(trace: Trace, fails: Callable[[Trace], bool]) -> Trace:
    """A part of a failing trace that fails, too, and of which every step is needed."""
    return least(trace, _shorter, fails, attempts=None)


def _shorter(trace: Trace) -> Iterator[Trace]:
    """The trace without one of its steps and what needs that, the last first."""
    for gone in reversed(range(len(trace))):
        part = trace.only(tuple([each for each in range(len(trace)) if each != gone]))
        if part is not None:
            yield part


def smallest(of: C, fails: Callable[[C], bool]) -> C:
    """A case that fails as `of` does, and that none of the ways here makes smaller."""

    def shorter(of: C) -> C:
        return evolve(of, trace=minimal(of.trace, lambda trace: fails(evolve(of, trace=trace))))

    return shorter(least(shorter(of), smaller, fails, ATTEMPTS))


def smaller(of: C) -> Iterator[C]:
    """Cases a step smaller."""
    allocs, body = _opened(of.kernel.body)
    parts = body.stmts if isinstance(body, Seq) else ()
    if not all(param in free_vars(body) for param in of.kernel.params):
        yield from _rebuilt(of, allocs, body, of.trace)
    for number in range(len(parts)):
        kept = [part for at, part in enumerate(parts) if at != number]
        trace = _without_blocks(of.trace, [_blocks(part) for part in parts], number)
        if trace is not None:
            yield from _rebuilt(of, allocs, seq(*kept), trace)
    for plain in _plainer(body):
        for each in _rebuilt(of, allocs, plain, of.trace):
            if not well_formed(each.kernel):
                yield each
    for extent in sorted({e for e in _extents(of.kernel) if e > 1}, reverse=True):
        for less in (1, 2, extent // 2, extent - 1):
            if less < extent:
                yield from _resized(of, extent, less)
    for number, array in enumerate(of.arrays):
        if array.any():
            arrays = list(of.arrays)
            arrays[number] = np.zeros_like(array)
            yield evolve(of, arrays=tuple(arrays))


def _plainer(body: Stmt) -> Iterator[Stmt]:
    """The body with one operation replaced by an operand; running sums stay."""
    for store in [statement for statement in statements(body) if isinstance(statement, Store)]:
        for node in reversed(post_order(store.value)):
            if not isinstance(node, Scalar) or not dtype_of(node).is_float:
                continue
            for kid in node._children:
                if isinstance(kid, Scalar) and dtype_of(kid) is dtype_of(node):
                    value = _replaced(store.value, node, kid)
                    if (store.buffer in free_vars(value)) == (
                        store.buffer in free_vars(store.value)
                    ):
                        made = evolve(store, value=value)
                        yield _replaced(body, store, made)


def _replaced(term: T, old: Term, new: Term) -> T:
    made: Any = map_bottom_up(lambda node: new if node is old else node, term)
    return made  # type: ignore[no-any-return]  # a part of it is another, of the same kind


def _opened(body: Stmt) -> tuple[list[Buffer], Stmt]:
    """The buffers of a kernel, and the inner statement."""
    found = []
    while isinstance(body, Alloc):
        found.append(body.buffer)
        body = body.body
    return found, body


def _rebuilt(of: C, allocs: Sequence[Buffer], body: Stmt, trace: Trace) -> Iterator[C]:
    """The case with another body and only the buffers it needs; if no result is written any more,
    the last written buffer becomes the result."""
    free = free_vars(body)
    reads = [n for n, param in enumerate(of.kernel.params[: of.kernel.inputs]) if param in free]
    if not (writes := [param for param in of.kernel.params[of.kernel.inputs :] if param in free]):
        stored = [each.buffer for each in statements(body) if isinstance(each, Store)]
        writes = [buffer for buffer in stored[-1:] if buffer in allocs]
    whole = body
    for alloc in allocs:
        if alloc in free and alloc not in writes:
            whole = Alloc(alloc, whole)
    if writes:
        params = (*(of.kernel.params[n] for n in reads), *writes)
        kernel = Kernel((), params, len(reads), whole)
        arrays = tuple([of.arrays[n] for n in reads])
        yield evolve(of, kernel=kernel, arrays=arrays, trace=trace)


def _without_blocks(trace: Trace, blocks: Sequence[int], gone: int) -> Trace | None:
    """The trace for a kernel without a statement, or None if a step names a block of it."""
    first = sum(blocks[:gone])
    last = first + blocks[gone]
    steps = []
    for step in trace.steps:
        if isinstance(of := step.instruction, GetBlock):
            if first <= of.number < last:
                return None
            if of.number >= last:
                steps.append(Step(GetBlock(of.number - blocks[gone], of.role), step.decision))
                continue
        steps.append(step)
    return Trace(tuple(steps))


def _blocks(stmt: Stmt) -> int:
    return sum(isinstance(statement, Block) for statement in statements(stmt))


def _extents(kernel: Kernel) -> list[int]:
    """The numbers of iterations of the loops of a kernel."""
    loops = [statement for statement in statements(kernel.body) if isinstance(statement, For)]
    return [int(loop.extent.value) for loop in loops if isinstance(loop.extent, Lit)]


def _resized(of: C, extent: int, less: int) -> Iterator[C]:
    """The case with all occurrences of a number reduced, if that is consistent."""
    old, new = index(extent), index(less)
    kernel = map_bottom_up(lambda node: new if node is old else node, of.kernel)
    if well_formed(kernel):
        return
    arrays = []
    for param, array in zip(kernel.params, of.arrays, strict=False):
        shape = shape_of(param.shape, {})
        if shape is None or any(size > room for size, room in zip(shape, array.shape, strict=True)):
            return
        arrays.append(_cut(array, shape))
    yield evolve(of, kernel=kernel, arrays=tuple(arrays))


def _cut(array: Array, shape: tuple[int, ...]) -> Array:
    found: Array = np.ascontiguousarray(array[tuple(slice(size) for size in shape)])
    return found
