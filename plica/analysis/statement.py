"""Statements: how lowering passes walk kernels, and how they refuse.

A walk passes a state down (such as the context of enclosing loops) and returns new statements. Each
pair of statement and state is visited once.

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
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from plica.analysis.index import EMPTY, Context
from plica.core import Name, fold_into, free_vars, rebuild, substitute
from plica.core.binding import fields_of_children
from plica.ir.loop import Buffer, Le, Reduce, Scalar, ScalarVar, index, statement as st
from plica.runtime.error import Diagnostic, Place, PlicaError

H = TypeVar("H", bound=Hashable)

Down: TypeAlias = "Callable[[st.Stmt, H], tuple[st.Stmt, Sequence[H]]]"
Done: TypeAlias = "dict[tuple[st.Stmt, H], st.Stmt]"
Up: TypeAlias = "Callable[[st.Stmt, tuple[st.Stmt, ...], H], st.Stmt]"


class LoweringRefused(PlicaError):
    """Lowering cannot preserve the meaning of a kernel."""

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


def walked(
    root: st.Stmt,
    start: H,
    down: Down[H],
    up: Up[H] | None = None,
    done: Done[H] | None = None,
    *,
    enters: Callable[[st.Stmt], bool] | None = None,
) -> st.Stmt:
    """The statement after a walk.

    `down` returns the statement to continue with, and the state for each of its substatements; `up`
    receives the results of these, in order; without one they are put in place. `done` memoises
    results across walks. Statements for which `enters` is false are returned unchanged.
    """
    done = {} if done is None else done
    stack: list[Any] = [((root, start), None)]
    while stack:
        key, inside = stack.pop()
        if inside is not None:
            stmt, below = inside
            parts = tuple([done[each] for each in below])
            done[key] = up(stmt, parts, key[1]) if up else with_substatements(stmt, parts)
        elif key not in done:
            if enters is not None and not enters(key[0]):
                done[key] = key[0]
                continue
            stmt, states = down(*key)
            below = list(zip(st.substatements(stmt), states, strict=True))
            stack.append((key, (stmt, below)))
            stack.extend([(each, None) for each in reversed(below)])  # the first is the next
    return done[root, start]


def holding(wanted: Callable[[st.Stmt], bool]) -> Callable[[st.Stmt], bool]:
    """A memoised predicate: whether a statement is wanted or contains a wanted one.

    A walk that targets few statement classes enters only statements that contain one.

    >>> holds = holding(lambda stmt: isinstance(stmt, st.Barrier))
    >>> holds(st.Seq((st.NOTHING, st.Barrier("shared")))), holds(st.NOTHING)
    (True, False)
    """
    memo: dict[st.Stmt, bool] = {}

    def found(stmt: st.Stmt) -> bool:
        return wanted(stmt) or any(memo[substatement] for substatement in st.substatements(stmt))

    return lambda stmt: fold_into(memo, stmt, st.substatements, found)


def same_state(stmt: st.Stmt, state: H) -> tuple[st.Stmt, Sequence[H]]:
    """Go down with one state everywhere."""
    return stmt, (state,) * len(st.substatements(stmt))


def mapped(root: st.Stmt, change: Callable[[st.Stmt], st.Stmt]) -> st.Stmt:
    """Rebuilds the statement bottom up, applying `change` to each part."""

    def up(stmt: st.Stmt, parts: tuple[st.Stmt, ...], state: None) -> st.Stmt:
        return change(with_substatements(stmt, parts))

    return walked(root, None, same_state, up)


def with_substatements(stmt: st.Stmt, parts: tuple[st.Stmt, ...]) -> st.Stmt:
    """The statement with other substatements; a `Seq` keeps its length."""
    if parts == st.substatements(stmt):
        return stmt
    rest = iter(parts)
    kids = [next(rest) if isinstance(kid, st.STATEMENTS) else kid for kid in stmt._children]
    return rebuild(stmt, tuple(kids))


def with_body(kernel: st.Kernel, body: st.Stmt) -> st.Kernel:
    """The kernel with another body."""
    if body is kernel.body:
        return kernel
    return st.Kernel(kernel.dims, kernel.params, kernel.inputs, body, kernel.annotations)


def outermost(kernel: st.Kernel) -> Context:
    """The context of a whole kernel: dims are non-negative."""
    return EMPTY.where(*[Le(index(0), dim) for dim in kernel.dims])


def contexts(stmt: st.Stmt, context: Context) -> tuple[Context, ...]:
    """The context of each substatement; conditions that read memory are not assumed."""
    match stmt:
        case st.For(var, extent):
            return (context.loop(var, extent),)
        case st.Branch(condition):
            if reads_memory(condition):
                return context, context
            return context.where(condition), context.unless(condition)
        case st.Bind(var):
            return (context.without((var,)),)
        case st.Block():
            inner = context if reads_memory(stmt.predicate) else context.where(stmt.predicate)
            inner = inner.loops(zip(stmt.vars, stmt.extents, strict=True))
            return (inner,) * len(st.substatements(stmt))
        case _:
            return (context,) * len(st.substatements(stmt))


@lru_cache(maxsize=4096)
def reads_memory(term: Scalar) -> bool:
    """Whether a scalar loads from some buffer."""
    return any(isinstance(var, Buffer) for var in free_vars(term))


def opened_sum(of: Reduce, depth: int) -> tuple[Scalar, list[tuple[ScalarVar, Scalar]]]:
    """The body of a reduction term, and its axes as loops with fresh names; `depth` is the number
    of enclosing reductions."""
    axes = [ScalarVar(Name("a term", depth + at), axis.dtype) for at, axis in enumerate(of.axes)]
    body = substitute(of.body, dict(zip(of.axes, axes, strict=True)))
    return body, list(zip(axes, of.extents, strict=True))


def direct_scalars(stmt: st.Stmt) -> Iterator[Scalar]:
    """The scalars of a statement that are in no substatement."""
    if isinstance(stmt, st.Alloc):
        yield from (*stmt.buffer.shape, *stmt.buffer.strides)
    binders = {name for name, _ in type(stmt).binds}
    for name, kid in fields_of_children(stmt):
        if isinstance(kid, Scalar) and name not in binders:
            yield kid
        elif isinstance(kid, st.Region) and name == "operands":
            yield from (*kid.starts, *kid.extents)
