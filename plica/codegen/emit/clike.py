"""Statements of C-like targets: the rows of the statement fold that such targets share.

Each target overrides the rows that differ: thread loops, shared memory.

>>> from plica.codegen.emit.dialect import Dialect
>>> from plica.codegen.emit.identifier import Identifiers
>>> from plica.codegen.emit.lines import Lines
>>> from plica.codegen.emit.statement import write
>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.scalar import index
>>> from plica.ir.loop.tensor import axis, buffer
>>> plain = Dialect("plain", {"i64": "long", "f32": "float"}, integer=lambda n, of: str(n))
>>> values = Expressions(plain, Lines(), Identifiers())
>>> y, i = buffer("y", (3,), f32), axis("i")
>>> values.buffers[y] = "y"
>>> write([For(i, index(3), "serial", Store(y, (i,), Lit(1.0, f32)))], rows(values))
>>> print(values.lines.text())
for (long i = 0; i < 3; ++i) {
  y[i] = 1.0f;
}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod

from plica.analysis.constant_bound import facts_of, within
from plica.analysis.index.context import negated
from plica.analysis.statement import refused
from plica.codegen.emit.contraction import products
from plica.codegen.emit.expression import Expressions
from plica.codegen.emit.statement import Row, Step, assuming
from plica.ir.loop.scalar import Buffer, Lit, Scalar, dtype_of
from plica.ir.loop.statement import NOTHING, Alloc, Barrier, Bind, Branch, For, Store
from plica.ir.type import evaluate

__all__ = ["Lit", "allocate", "count_of", "loop", "rows"]


def rows(values: Expressions) -> dict[type, Row]:
    """How each kind of statement is written."""
    return {
        For: partial(loop, values),
        Store: partial(_store, values),
        Alloc: partial(allocate, values),
        Bind: partial(_bind, values),
        Branch: partial(_branch, values),
        Barrier: partial(_barrier, values),
    }


def loop(values: Expressions, of: For, unroll: bool = False) -> Sequence[Step]:
    """A loop, preceded by its unroll pragma."""
    if unroll and values.dialect.unroll:
        values.lines.do(values.dialect.unroll)
    values.open(of.var, of.extent)
    inside = assuming(values.known, of.body, within(of.var, of.extent))
    return *inside, values.lines.close


def _store(values: Expressions, of: Store) -> None:
    values.contracted |= products(of.buffer, of.value)
    found = values.of(of.value)
    doubtful = values.unproved(of.buffer, of.indices)
    if not doubtful:
        values.store(of.buffer, of.indices, found)
        return
    places = [values.of(at) for at, _ in doubtful]
    values.lines.open(f"if ({values.inside(places, [count for _, count in doubtful])})")
    values.store(of.buffer, of.indices, found)
    values.lines.turn("else")
    values.lines.do(values.dialect.failure)
    values.lines.close()


def allocate(values: Expressions, of: Alloc) -> Sequence[Step]:
    """Memory of the function itself."""
    dialect, buffer = values.dialect, of.buffer
    name = values.names.of(buffer.name, buffer)
    if buffer in values.buffers:  # the same statement again, maybe in the same braces
        name = values.names.fresh(name)
    values.buffers[buffer] = name
    kind = dialect.memory(buffer.dtype)
    values.lines.do(dialect.allocation.format(type=kind, name=name, count=count_of(buffer)))
    return (of.body,)


def _bind(values: Expressions, of: Bind) -> Sequence[Step]:
    dialect, text = values.dialect, values.of(of.value)
    name = values.names.of(of.var.name, of.var)
    if of.var in values.vars:  # as above
        name = values.names.fresh(name)
    kind = dialect.register(dtype_of(of.var))
    values.lines.do(dialect.value.format(type=kind, name=name, text=text))
    values.vars[of.var] = name
    if dtype_of(of.var).is_integer:
        values.known.bound(of.var, values.known.interval(of.value))
    return (of.body,)


def _branch(values: Expressions, of: Branch) -> Sequence[Step]:
    lines, known = values.lines, values.known
    lines.open(f"if ({values.of(of.condition)})")
    then = assuming(known, of.then, facts_of(of.condition))
    if of.orelse is NOTHING:
        return *then, lines.close
    turn: Callable[[], None] = partial(lines.turn, "else")
    other = assuming(known, of.orelse, facts_of(negated(of.condition)))
    return *then, turn, *other, lines.close


def _barrier(values: Expressions, of: Barrier) -> None:
    if values.dialect.barrier:
        values.lines.do(values.dialect.barrier)


def count_of(buffer: Buffer) -> int:
    """How many elements a buffer has room for, one at least: rows may be further apart than they
    are long."""
    sizes = [_number(dim, buffer) for dim in buffer.shape]
    if 0 in sizes:
        return 1
    steps = [_number(stride, buffer) for stride in buffer.strides]
    last = sum((size - 1) * step for size, step in zip(sizes, steps, strict=False))
    return max(prod(sizes), last + 1)


def _number(size: Scalar, buffer: Buffer) -> int:
    if (found := evaluate(size, {})) is None:
        message = "The size of a buffer is not known before its kernel is launched."
        raise refused(message, buffer.name, "a number", str(size))
    return found
