"""In-flight depth: how many copies may be under way while a barrier is passed.

    for q in range(n):
        barrier                                 all copies but the last few are done here
        copy slice q + 2 to place (q + 2) % 3
        multiply what is at place q % 3

>>> from plica.ir.loop.tensor import axis
>>> q = axis("q")
>>> [sorted(numbers([(q + 2) % 3, q % 3], q, turn)) for turn in (0, 1)]
[[0, 2], [0, 1]]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from plica.codegen.cuda.address import valued
from plica.core import Name, post_order
from plica.ir.loop import Buffer, Load, Scalar, ScalarVar, statement as st
from plica.ir.type import i64, known

MAX_ITERATIONS_BEHIND: Final = 7  # the maximum number of iterations that copies may lag behind


NEVER: Final = ScalarVar(Name("no loop"), i64)  # the variable of no loop


def flat(stmts: Sequence[st.Stmt]) -> Iterator[st.Stmt]:
    """Statements one after another, whatever sequences they are in."""
    stack = [*reversed(stmts)]
    while stack:
        if isinstance(stmt := stack.pop(), st.Seq):
            stack.extend(reversed(stmt.stmts))
        else:
            yield stmt


def groups(nest: st.Stmt, handed: frozenset[Buffer]) -> frozenset[st.Stmt]:
    """The largest statements that do nothing but copy to buffers that are handed over."""

    def is_group(stmt: st.Stmt) -> bool:
        return not isinstance(stmt, st.Seq) and bool(copied(stmt)) and copied(stmt) <= handed

    return frozenset(st.outermost(nest, is_group))


def in_flight_depth(before: Sequence[st.Stmt], loop: st.For, copies: frozenset[st.Stmt]) -> int:
    """The number of pending groups allowed at the barrier at the start of a loop iteration."""
    count = known(loop.extent)
    first, *rest = [*flat((loop.body,))] or [loop.body]
    if loop.kind != "serial" or count is None or not isinstance(first, st.Barrier):
        return 0
    mine = [statement for statement in rest if statement in copies]
    others = [statement for stmt in rest if stmt not in copies for statement in st.statements(stmt)]
    if not mine or any(isinstance(each, st.Barrier) or each in copies for each in others):
        return 0
    earlier: list[st.Stmt] = []
    for statement in reversed([*before]):
        if statement not in copies:
            break
        earlier.append(statement)
    buffers = [_one(statement) for statement in mine]
    if None in buffers or len({*buffers}) != len(buffers):
        return 0
    reads = [places(rest, each, written=False) for each in buffers]
    found = 0
    for late in range(1, MAX_ITERATIONS_BEHIND + 1):
        for number, (buffer, read) in enumerate(zip(buffers, reads, strict=True)):
            written = places([mine[number]], buffer, written=True)
            for turn in range(count):
                if turn >= late:
                    last = numbers(written, loop.var, turn - late)
                else:
                    at = (late - turn) * len(mine) - 1 - number
                    if at >= len(earlier) or _one(earlier[at]) is not buffer:
                        return found * len(mine)
                    last = numbers(places([earlier[at]], buffer, written=True), loop.var, 0)
                now = numbers(read, loop.var, turn)
                if last is None or now is None or not last.isdisjoint(now):
                    return found * len(mine)
        found = late
    return found * len(mine)


def in_flight_slack(
    loop: st.For, copies: frozenset[st.Stmt], is_product: Callable[[st.Stmt], bool]
) -> int:
    """The number of pending products allowed at the barrier at the start of a loop iteration.

    One, where a turn multiplies once and copies over nothing that the turn before multiplied.
    """
    count = known(loop.extent)
    first, *rest = [*flat((loop.body,))] or [loop.body]
    if loop.kind != "serial" or count is None or not isinstance(first, st.Barrier):
        return 0
    mine = [statement for statement in rest if statement in copies]
    others = [statement for statement in rest if statement not in copies]
    if len(others) != 1 or not is_product(others[0]):
        return 0
    for statement in mine:
        buffer = _one(statement)
        for turn in range(1, count):
            now = numbers(places([statement], buffer, written=True), loop.var, turn)
            last = numbers(places(others, buffer, written=False), loop.var, turn - 1)
            if buffer is None or now is None or last is None or not now.isdisjoint(last):
                return 0
    return 1


def in_flight_after(
    before: Sequence[st.Stmt],
    after: Sequence[st.Stmt],
    copies: frozenset[st.Stmt],
    is_product: Callable[[st.Stmt], bool],
) -> tuple[int, ...]:
    """The number of older groups that may be pending when each of the products after a barrier
    begins; empty if the last one does not need all."""
    begun = [*_latest(before, copies)]
    found: list[int] = []
    for statement in after:
        if not is_product(statement):
            break
        less = found[-1] if found else len(begun)
        for number, (buffer, written) in enumerate(begun[:less]):
            read = numbers(places([statement], buffer, written=False), NEVER, 0)
            if read is None or not read.isdisjoint(written):
                less = number
                break
        found.append(less)
    return tuple(found) if found and found[-1] == 0 else ()


def _latest(
    before: Sequence[st.Stmt], copies: frozenset[st.Stmt]
) -> Iterator[tuple[Buffer, frozenset[int]]]:
    """The groups of some statements, the latest first: the buffer of each and where it writes, as
    long as both are known."""
    for stmt in reversed([*before]):
        if stmt in copies:
            turns: list[tuple[list[st.Stmt], ScalarVar, int]] = [([stmt], NEVER, 0)]
        elif isinstance(stmt, st.For) and stmt.kind == "serial" and (last := known(stmt.extent)):
            every = [*flat((stmt.body,))]
            mine = [statement for statement in every if statement in copies]
            others = [one for each in every if each not in copies for one in st.statements(each)]
            if any(statement in copies for statement in others):
                return
            first = max(0, last - MAX_ITERATIONS_BEHIND)
            turns = [(mine, stmt.var, turn) for turn in reversed(range(first, last))]
            if first and mine:
                turns.append(([], stmt.var, 0))
        else:
            return
        for mine, var, turn in turns:
            if not mine:
                return
            for statement in reversed(mine):
                buffer = _one(statement)
                at = numbers(places([statement], buffer, written=True), var, turn)
                if buffer is None or at is None:
                    return
                yield buffer, at


def copied(stmt: st.Stmt) -> frozenset[Buffer]:
    """The buffers written by a statement without waits and products; empty for others."""
    every = [*st.statements(stmt)]
    if any(isinstance(statement, st.Barrier | st.Invoke) for statement in every):
        return frozenset()
    return frozenset([each.buffer for each in every if isinstance(each, st.Store)])


def _one(stmt: st.Stmt) -> Buffer | None:
    buffers = copied(stmt)
    return next(iter(buffers)) if len(buffers) == 1 else None


def places(stmts: Sequence[st.Stmt], buffer: Buffer | None, *, written: bool) -> list[Scalar]:
    """The first indices at which statements write a buffer, or read it."""
    found: dict[Scalar, None] = {}
    for stmt in stmts:
        for statement in st.statements(stmt):
            if written and isinstance(statement, st.Store) and statement.buffer is buffer:
                found[statement.indices[0]] = None
            elif not written and buffer is not None and not isinstance(statement, st.Invoke):
                own = [part for part in statement._children if isinstance(part, Scalar)]
                for node in post_order(*own):
                    if isinstance(node, Load) and node.buffer is buffer:
                        found[node.indices[0]] = None
            elif not written and isinstance(statement, st.Invoke):
                for region in statement.operands:
                    if isinstance(region, st.Region) and region.buffer is buffer:
                        for step in range(known(region.extents[0]) or 0):
                            found[region.starts[0] + step if step else region.starts[0]] = None
    return [*found]


def numbers(places: Sequence[Scalar], var: ScalarVar, turn: int) -> frozenset[int] | None:
    """The indices in a loop iteration, or None if they depend on more."""
    found = []
    for place in places:
        if (number := known(valued(place, var, turn))) is None:
            return None
        found.append(number)
    return frozenset(found)
