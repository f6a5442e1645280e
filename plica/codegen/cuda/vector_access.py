"""Neighbours: what a vectorized loop moves from and to memory, by one instruction.

    for v in vectorized(4): y[4 * i + v] = f(x[4 * i + v])

        alignas(16) float v[4], u[4];
        *((uint4*)&u[0]) = *((const uint4*)&x[4 * i]);
        v[0] = f(u[0]); …
        *((uint4*)&y[4 * i]) = *((const uint4*)&v[0]);

What reads or writes places that are not known to be neighbours is done one by one.
"""

from __future__ import annotations

from plica.codegen.cuda.address import VECTORS, certain, lanes_of
from plica.codegen.cuda.dialect import WIDE
from plica.codegen.emit.expression import Expressions, mentions
from plica.codegen.emit.operator import packed, unpacked
from plica.core.term import Term
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import Buffer, Lit, Load, Scalar, ScalarVar, Select, dtype_of
from plica.ir.loop.statement import For, Seq, Store, statements


class VectorAccess:
    """Writes vectorized loops; what is `handed` over at barriers is copied while others go on."""

    def __init__(self, values: Expressions, handed: frozenset[Buffer]) -> None:
        self.values, self.handed = values, handed
        self.lines, self.names = values.lines, values.names

    def write(self, loop: For, count: int) -> bool:
        """Write a vectorized loop as one of neighbours; False where it is not such a loop."""
        stores: list[Store] = []
        for stmt in statements(loop.body):
            if isinstance(stmt, Store):
                stores.append(stmt)
            elif not isinstance(stmt, Seq):
                return False
        var = loop.var
        for each in stores:
            value = each.value  # what is read behind a guard of all lanes is read by all or none
            if isinstance(value, Select) and not mentions([value.condition], var):
                value = value.then
            loads = list(certain(value))
            places = [(each.buffer, each.indices), *[(e.buffer, e.indices) for e in loads]]
            if not any(lanes_of(*place, var, count) for place in places):
                return False
        for each in stores:
            self._store(each, loop.var, count)
        return True

    def _store(self, store: Store, var: ScalarVar, count: int) -> None:
        """Neighbours that are stored at once."""
        if self._copied(store, var, count):
            return
        word = self.names.fresh("v")
        self._reserve(word, store.buffer, count)
        self._fill(word, store, store.value, var, count)
        values = self.values
        if lanes_of(store.buffer, store.indices, var, count):
            values.vars[var] = values.dialect.literal(0, dtype_of(var))
            place = values.place(store.buffer, store.indices)
            self._move(place, f"{word}[0]", store.buffer, count)
            return
        for lane in range(count):
            values.vars[var] = values.dialect.literal(lane, dtype_of(var))
            self.lines.do(f"{values.place(store.buffer, store.indices)} = {word}[{lane}];")

    def _copied(self, store: Store, var: ScalarVar, count: int) -> bool:
        """Write a store that only moves neighbours of memory; False where it does more.

        Behind a guard that holds for all of them or for none, they are 0 elsewhere.
        """
        value, buffer = store.value, store.buffer
        condition: Scalar | None = None
        if isinstance(value, Select) and _is_zero(value.orelse):
            condition = value.condition
            value = value.then
        if not isinstance(value, Load) or value.buffer.dtype is not buffer.dtype:
            return False
        places = [(buffer, store.indices), (value.buffer, value.indices)]
        if not all(lanes_of(*place, var, count) for place in places):
            return False
        outside = scope(value.buffer.scope).reach == "all"
        later = outside and buffer in self.handed and count * buffer.dtype.bytes == WIDE
        if condition is not None and (not later or mentions([condition], var)):
            return False
        values = self.values
        values.vars[var] = values.dialect.literal(0, dtype_of(var))
        to, source = (values.place(*place) for place in places)
        if condition is not None:
            inside = values.of(condition)
            copy = values.help("p_copy_async_or_zero")
            self.lines.do(f"{copy}(&{to}, &{source}, {inside});")
        elif later:
            self.lines.do(f"{values.help('p_copy_async')}(&{to}, &{source});")
        else:
            self._move(to, source, buffer, count)
        return True

    def _fill(self, word: str, store: Store, value: Scalar, var: ScalarVar, count: int) -> None:
        """The values of all lanes, where what they read as neighbours is read at once."""
        values, lines = self.values, self.lines
        if isinstance(value, Select) and not mentions([value.condition], var):
            lines.open(f"if ({values.of(value.condition)})")
            self._fill(word, store, value.then, var, count)
            lines.turn("else")
            self._fill(word, store, value.orelse, var, count)
            lines.close()
            return
        read: dict[Load, str] = {}
        for load in certain(value):
            if lanes_of(load.buffer, load.indices, var, count):
                into = self.names.fresh("u")
                self._reserve(into, load.buffer, count)
                values.vars[var] = values.dialect.literal(0, dtype_of(var))
                place = values.place(load.buffer, load.indices)
                self._move(f"{into}[0]", place, load.buffer, count)
                read[load] = into
        for lane in range(count):
            values.vars[var] = values.dialect.literal(lane, dtype_of(var))
            given: dict[Term, str] = {
                load: unpacked(f"{into}[{lane}]", load.buffer.dtype, values)
                for load, into in read.items()
            }
            found = packed(values.of(value, given), store.buffer.dtype, values)
            lines.do(f"{word}[{lane}] = {found};")

    def _reserve(self, name: str, buffer: Buffer, count: int) -> None:
        """Memory for some elements like those of a buffer."""
        dialect = self.values.dialect
        kind = dialect.memory(buffer.dtype)
        self.lines.do(dialect.allocation.format(type=kind, name=name, count=count))

    def _move(self, to: str, source: str, buffer: Buffer, count: int) -> None:
        """Neighbours from one place to another, as many bytes at a time as can be."""
        size = buffer.dtype.bytes
        each = min(WIDE, count * size)
        kind = VECTORS[each]
        for at in range(0, count * size, each):
            step = f" + {at // each}" if at else ""
            self.lines.do(f"*(({kind}*)&{to}{step}) = *((const {kind}*)&{source}{step});")


def _is_zero(of: Scalar) -> bool:
    return isinstance(of, Lit) and of.value == 0
