"""Statements: how lowering passes walk kernels, and how they refuse.

A walk goes down with a state (what is known of the loops around, say), and comes up with new
statements.  Each pair of a statement and a state is done once, whatever is shared.

>>> from plica.ir.loop.statement import NOTHING, For
>>> from plica.ir.loop.tensor import axis
>>> from plica.ir.loop.scalar import index
>>> nest = For(axis("i"), index(2), "serial", For(axis("j"), index(3), "serial", NOTHING))
>>> def unrolled(stmt, parts, state):
...     stmt = with_substatements(stmt, parts)
...     return For(stmt.var, stmt.extent, "unrolled", stmt.body) if isinstance(stmt, For) else stmt
>>> [each.kind for each in (walked(nest, None, same_state, unrolled),)]
['unrolled']
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from plica.analysis.index import EMPTY, Context
from plica.core.binding import free_vars
from plica.ir.loop.scalar import Buffer, Le, Scalar, index
from plica.ir.loop.statement import (
    Alloc,
    Bind,
    Block,
    Branch,
    For,
    Invoke,
    Kernel,
    Region,
    Seq,
    Stmt,
    Store,
    While,
    substatements,
)
from plica.runtime.error import Diagnostic, Place, PlicaError

H = TypeVar("H", bound=Hashable)

Down: TypeAlias = "Callable[[Stmt, H], tuple[Stmt, Sequence[H]]]"
Up: TypeAlias = "Callable[[Stmt, tuple[Stmt, ...], H], Stmt]"


class LoweringRefused(PlicaError):
    """A kernel asks lowering for what it cannot do without changing what the kernel means."""

    @property
    def reason(self) -> str:
        """The refusal on one line."""
        first, *_ = self.diagnostics
        return f"{first.message} expected: {first.expected}; found: {first.found}"


def refused(
    message: str, where: object, expected: str, found: str, hint: str | None = None
) -> LoweringRefused:
    """The error of a lowering pass, at a loop, a block or a buffer."""
    place = Place(node=str(where))
    return LoweringRefused(Diagnostic("illegal-lowering", message, place, expected, found, hint))


def walked(root: Stmt, start: H, down: Down[H], up: Up[H]) -> Stmt:
    """The statement after a walk.

    `down` gives the statement to go on with, and the state for each of its substatements; `up` is
    given those when they are done.
    """
    done: dict[tuple[Stmt, H], Stmt] = {}
    stack: list[Any] = [(root, start, None)]
    while stack:
        key, state, inside = stack.pop()
        if inside is not None:
            stmt, states = inside
            parts = [done[each] for each in zip(substatements(stmt), states, strict=True)]
            done[key, state] = up(stmt, tuple(parts), state)
        elif (key, state) not in done:
            stmt, states = down(key, state)
            stack.append((key, state, (stmt, states)))
            below = zip(substatements(stmt), states, strict=True)
            stack.extend([(each, its, None) for each, its in below if (each, its) not in done])
    return done[root, start]


def same_state(stmt: Stmt, state: H) -> tuple[Stmt, Sequence[H]]:
    """Go down with one state everywhere."""
    return stmt, (state,) * len(substatements(stmt))


def mapped(root: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """The statement with each part changed after what is inside it."""

    def up(stmt: Stmt, parts: tuple[Stmt, ...], state: None) -> Stmt:
        return change(with_substatements(stmt, parts))

    return walked(root, None, same_state, up)


def with_substatements(stmt: Stmt, parts: tuple[Stmt, ...]) -> Stmt:
    """The statement with other ones inside; a `Seq` stays as long as it is."""
    if parts == substatements(stmt):
        return stmt
    match stmt:
        case Seq():
            return Seq(parts)
        case For(var, extent, kind, _, annotations):
            return For(var, extent, kind, parts[0], annotations)
        case Branch(condition):
            return Branch(condition, *parts)
        case Alloc(buffer):
            return Alloc(buffer, parts[0])
        case Bind(var, value):
            return Bind(var, value, parts[0])
        case While(condition):
            return While(condition, parts[0])
        case Block():
            fields = [getattr(stmt, name) for name in Block._fields]
            at = Block._fields.index("body")
            fields[at] = parts[-1]
            if stmt.init is not None:
                fields[at - 1] = parts[0]
            return Block(*fields)
        case _:
            return stmt


def with_body(kernel: Kernel, body: Stmt) -> Kernel:
    """The kernel with another body."""
    if body is kernel.body:
        return kernel
    return Kernel(kernel.dims, kernel.params, kernel.inputs, body, kernel.annotations)


def outermost(kernel: Kernel) -> Context:
    """What is known everywhere in a kernel: dims are not negative."""
    return EMPTY.where(*[Le(index(0), each) for each in kernel.dims])


def contexts(stmt: Stmt, context: Context) -> tuple[Context, ...]:
    """What is known inside each substatement; conditions that read memory are not relied on."""
    match stmt:
        case For(var, extent):
            return (context.loop(var, extent),)
        case Branch(condition):
            if reads_memory(condition):
                return context, context
            return context.where(condition), context.unless(condition)
        case Bind(var):
            return (context.without((var,)),)
        case Block():
            inner = context if reads_memory(stmt.predicate) else context.where(stmt.predicate)
            for var, extent in zip(stmt.vars, stmt.extents, strict=True):
                inner = inner.loop(var, extent)
            return (inner,) * len(substatements(stmt))
        case _:
            return (context,) * len(substatements(stmt))


def reads_memory(term: Scalar) -> bool:
    """Whether a scalar loads from some buffer."""
    return any(isinstance(each, Buffer) for each in free_vars(term))


def direct_scalars(stmt: Stmt) -> Iterator[Scalar]:
    """The scalars of a statement that are in no substatement."""
    match stmt:
        case For(_, extent):
            yield extent
        case Branch(condition) | While(condition):
            yield condition
        case Bind(_, value):
            yield value
        case Alloc(buffer):
            yield from (*buffer.shape, *buffer.strides)
        case Store(_, indices, value):
            yield from (*indices, value)
        case Block():
            yield from (*stmt.extents, *stmt.bindings, stmt.predicate)
        case Invoke(_, operands):
            for each in operands:
                if isinstance(each, Region):
                    yield from (*each.starts, *each.extents)
                else:
                    yield each
        case _:
            return
