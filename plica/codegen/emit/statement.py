"""The statement fold: a kernel's statements are written one after another, each by its row.

A row writes its beginning and returns what remains to be written, in order: statements, or
callbacks that write the text between them. So statements can nest arbitrarily deep.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import axis, buffer
>>> from plica.ir.loop.scalar import index
>>> y, i = buffer("y", (3,), f32), axis("i")
>>> said = []
>>> rows = {
...     For: lambda loop: (said.append("for"), (loop.body, lambda: said.append("end")))[1],
...     Store: lambda store: said.append("store"),
... }
>>> write([For(i, index(3), "serial", Store(y, (i,), i))], rows)
>>> said
['for', 'store', 'end']
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from plica.analysis.constant_bound import KnownBounds
from plica.core import CompilerBug
from plica.ir.loop.statement import STATEMENTS, For, Seq, Stmt, Store
from plica.ir.type import Polynomial

__all__ = ["For", "Row", "Rows", "Step", "Store", "assuming", "write"]

Step: TypeAlias = "Stmt | Callable[[], Sequence[Step] | None]"
"""Pending output: a statement, or text between statements."""

# Any: the class of a row's statement is that of its key.
Row: TypeAlias = Callable[[Any], "Sequence[Step] | None"]

Rows: TypeAlias = Mapping[type, Row]
"""How each kind of statement is written; kinds without a row have left the kernel by lowering."""

_STATEMENTS: Final = frozenset(STATEMENTS)


def write(steps: Sequence[Step], rows: Rows) -> None:
    """Write statements one after another, and all that is inside them."""
    stack: list[Step] = list(reversed(steps))
    table: dict[type, Row] = {Seq: _sequence, **rows}
    while stack:
        item = stack.pop()
        if (row := table.get(item.__class__)) is not None:
            more = row(item)
        elif item.__class__ in _STATEMENTS:
            raise CompilerBug(f"Lowering left a {type(item).__name__} in a kernel.")
        else:
            more = item()  # type: ignore[operator]  # what is no statement is a call
        if more:
            stack.extend(more[::-1])


def assuming(known: KnownBounds, body: Stmt, facts: Sequence[Polynomial]) -> Sequence[Step]:
    """A statement in which some polynomials are not negative."""
    if not facts:
        return (body,)

    def begin() -> None:
        known.facts += facts

    def end() -> None:
        del known.facts[len(known.facts) - len(facts) :]

    return begin, body, end


def _sequence(of: Seq) -> Sequence[Step]:
    return of.stmts
