"""Vector accesses: vectorized loops as single memory instructions.

    for v in vectorized(4): y[4 * i + v] = f(x[4 * i + v])

        alignas(16) float v[4], u[4];
        *((uint4*)&u[0]) = *((const uint4*)&x[4 * i]);
        v[0] = f(u[0]); …
        *((uint4*)&y[4 * i]) = *((const uint4*)&v[0]);

Accesses not known to be contiguous are done one by one. Guarded lanes are contiguous if the guard
holds for the first and the last of them, and are done one by one elsewhere:

    if (4 * i < n && 4 * i + 3 < n) { *((uint4*)&y[4 * i]) = … }
    else { if (4 * i < n) y[4 * i] = …;  … }
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from math import prod
from typing import Final

from attrs import evolve, frozen

from plica.codegen.cuda import address
from plica.codegen.cuda.dialect import MAX_VECTOR_BYTES
from plica.codegen.emit.expression import Expressions, mentions
from plica.codegen.emit.scalar import pack_element, unpack_element
from plica.core import Term
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import And, Buffer, Lit, Load, Lt, Scalar, ScalarVar, Select, dtype_of
from plica.ir.loop.statement import NOTHING, Branch, For, Seq, Stmt, Store, statements
from plica.ir.type import known

MAX_UNALIGNED_BYTES: Final = 2  # the maximum element size for unaligned reads by aligned words
ANYWHERE: Final = "p_from_anywhere"  # the function that reads them
MAX_HELD_VECTORS: Final = 16
"""The maximum number of vectors a thread holds on their way to shared memory."""


@frozen
class HeldVectors:
    """Vectors in registers, by loops and their lengths."""

    word: str
    loops: tuple[tuple[ScalarVar, int], ...]

    def place(self, values: Expressions, *inner: tuple[str, int]) -> str:
        """The register of a turn of the loops, and of loops of the text inside of them."""
        at = "0"
        for turn, size in (*[(values.of(var), size) for var, size in self.loops], *inner):
            at = f"({at}) * {size} + {turn}"
        return f"{self.word}[{at}]"


class VectorAccess:
    """Emits vectorized loops; `handed` copies overlap with other work until a barrier."""

    def __init__(self, values: Expressions, handed: frozenset[Buffer]) -> None:
        self.values, self.handed = values, handed
        self.holding: HeldVectors | None = None
        self.giving: HeldVectors | None = None
        self.lines, self.names = values.lines, values.names

    def write(self, loop: For, count: int) -> bool:
        """Write a vectorized loop as one of neighbours; False where it is not such a loop."""
        if self.giving is not None and isinstance(loop.body, Store):
            self._given(loop.body, loop.var)
            return True
        stores = neighbours(loop, count)
        for store in stores:
            self._store(store, loop.var, count)
        return bool(stores)

    def guarded(self, loop: For, count: int) -> Branch | None:
        """A guarded vectorized loop: as one vector if all lanes are inside, otherwise lane by lane;
        None if checking each lane is as good."""
        if self.whole or not isinstance(guard := loop.body, Branch) or guard.orelse is not NOTHING:
            return None
        every = For(loop.var, loop.extent, loop.kind, guard.then, loop.annotations)
        if (inside := address.at_both_ends(guard.condition, loop.var, count)) is None:
            return None
        if not neighbours(every, count):
            return None
        return Branch(inside, every, For(loop.var, loop.extent, "unrolled", guard))

    def _store(self, store: Store, var: ScalarVar, count: int) -> None:
        """Neighbours that are stored at once."""
        if self._copied(store, var, count) or self._gathered(store, var, count):
            return
        word = self.names.fresh("v")
        self.reserve(word, store.buffer, count)
        self.fill(word, store, var, count, {})
        values = self.values
        if address.lanes_of(store.buffer, store.indices, var, count):
            values.vars[var] = values.dialect.literal(0, dtype_of(var))
            place = values.place(store.buffer, store.indices)
            self._move(place, f"{word}[0]", store.buffer, count)
            return
        for lane in range(count):
            values.vars[var] = values.dialect.literal(lane, dtype_of(var))
            self.lines.do(f"{values.place(store.buffer, store.indices)} = {word}[{lane}];")

    def _copied(self, store: Store, var: ScalarVar, count: int) -> bool:
        """Write a store that only moves neighbours of memory; False where it does more.

        With a uniform guard, they are 0 where it fails.
        """
        found = self._moved(store, var, count)
        if found is None:
            return False
        value, condition, later = found
        buffer = store.buffer
        places = [(buffer, store.indices), (value.buffer, value.indices)]
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

    def _moved(
        self, store: Store, var: ScalarVar, count: int
    ) -> tuple[Load, Scalar | None, bool] | None:
        """The source and destination of a contiguous move, its guard, and whether it may be
        asynchronous; None for other stores."""
        value, buffer = store.value, store.buffer
        condition: Scalar | None = None
        if isinstance(value, Select) and _is_zero(value.orelse):
            condition = value.condition
            value = value.then
        if not isinstance(value, Load) or value.buffer.dtype is not buffer.dtype:
            return None
        places = [(buffer, store.indices), (value.buffer, value.indices)]
        if not all(address.lanes_of(*place, var, count) for place in places):
            return None
        outside = scope(value.buffer.scope).reach == "all"
        later = outside and buffer in self.handed and count * buffer.dtype.bytes == MAX_VECTOR_BYTES
        if condition is not None and (not later or mentions([condition], var)):
            return None
        return value, condition, later

    def _gathered(self, store: Store, var: ScalarVar, count: int) -> bool:
        """Write a store that moves neighbours which begin anywhere, of which the first may be all
        that are inside; False where it does more."""
        found = _from_anywhere(store, var, count)
        if found is None:
            return False
        load, same, limit = found
        values, size = self.values, load.buffer.dtype.bytes
        values.vars[var] = values.dialect.literal(0, dtype_of(var))
        many = str(MAX_VECTOR_BYTES)
        if limit is not None:
            many = f"({values.of(limit.right)} - {values.of(limit.left)}) * {size}"
        if same:
            many = f"({values.of(reduce(And, same))}) ? {many} : 0"
        source = values.place(load.buffer, load.indices)
        read = f"{values.help(ANYWHERE)}(&{source}, {many})"
        if self.holding is not None:
            self.lines.do(f"{self.holding.place(values)} = {read};")
            return True
        to = values.place(store.buffer, store.indices)
        self.lines.do(f"*((uint4*)&{to}) = {read};")
        return True

    def _given(self, store: Store, var: ScalarVar) -> None:
        """Stores the values read before."""
        assert self.giving is not None
        values = self.values
        values.vars[var] = values.dialect.literal(0, dtype_of(var))
        to = values.place(store.buffer, store.indices)
        self.lines.do(f"*((uint4*)&{to}) = {self.giving.place(values)};")

    def held(self, nest: Stmt) -> HeldVectors | None:
        """A nest that only copies unaligned data, little enough for registers; None for others."""
        loops: list[For] = []
        while isinstance(nest, For) and nest.kind != "vectorized":
            if nest.kind in ("serial", "unrolled"):
                loops.append(nest)
            nest = nest.body
        if not isinstance(nest, For) or not isinstance(store := nest.body, Store):
            return None
        sizes = [known(loop.extent) or 0 for loop in loops]
        lanes = (store, nest.var, known(nest.extent) or 0)
        if self._moved(*lanes) is not None or _from_anywhere(*lanes) is None:
            return None
        if not 0 < prod(sizes) <= MAX_HELD_VECTORS:
            return None
        word = self.names.fresh("held")
        return HeldVectors(
            word, tuple([(loop.var, size) for loop, size in zip(loops, sizes, strict=True)])
        )

    def hold(self, of: HeldVectors) -> None:
        """Loads a nest's data into registers."""
        self.lines.do(f"uint4 {of.word}[{prod(size for _, size in of.loops)}];")
        self.holding = of

    def give(self, of: HeldVectors) -> None:
        """Stores a nest's data from registers."""
        self.giving = of

    def passed(self) -> None:
        """After either."""
        self.holding = self.giving = None

    @property
    def whole(self) -> bool:
        """Whether loops must be unrolled, as they say which register is meant."""
        return self.holding is not None or self.giving is not None

    def fill(
        self, word: str, store: Store, var: ScalarVar, count: int, there: Mapping[Load, str]
    ) -> None:
        """The values of all lanes, with contiguous operands loaded at once unless already
        available."""
        values, lines, value = self.values, self.lines, store.value
        if isinstance(value, Select) and not mentions([value.condition], var):
            lines.open(f"if ({values.of(value.condition)})")
            self.fill(word, evolve(store, value=value.then), var, count, there)
            lines.turn("else")
            self.fill(word, evolve(store, value=value.orelse), var, count, there)
            lines.close()
            return
        read = dict(there)
        for load in address.certain(value):
            if load not in there and address.lanes_of(load.buffer, load.indices, var, count):
                into = self.names.fresh("u")
                self.reserve(into, load.buffer, count)
                values.vars[var] = values.dialect.literal(0, dtype_of(var))
                place = values.place(load.buffer, load.indices)
                self._move(f"{into}[0]", place, load.buffer, count)
                read[load] = into
        for lane in range(count):
            values.vars[var] = values.dialect.literal(lane, dtype_of(var))
            given: dict[Term, str] = {
                load: unpack_element(f"{into}[{lane}]", load.buffer.dtype, values)
                for load, into in read.items()
            }
            found = pack_element(values.of(value, given), store.buffer.dtype, values)
            lines.do(f"{word}[{lane}] = {found};")

    def reserve(self, name: str, buffer: Buffer, count: int) -> None:
        """Memory for some elements like those of a buffer."""
        dialect = self.values.dialect
        kind = dialect.memory(buffer.dtype)
        self.lines.do(dialect.allocation.format(type=kind, name=name, count=count))

    def _move(self, to: str, source: str, buffer: Buffer, count: int) -> None:
        """Neighbours from one place to another, as many bytes at a time as can be."""
        size = buffer.dtype.bytes
        each = min(MAX_VECTOR_BYTES, count * size)
        kind = address.VECTORS[each]
        for at in range(0, count * size, each):
            step = f" + {at // each}" if at else ""
            self.lines.do(f"*(({kind}*)&{to}{step}) = *((const {kind}*)&{source}{step});")


def neighbours(loop: For, count: int) -> list[Store]:
    """The contiguous stores of a vectorized loop; empty if some are not contiguous or the body
    contains more."""
    stores: list[Store] = []
    for stmt in statements(loop.body):
        if isinstance(stmt, Store):
            stores.append(stmt)
        elif not isinstance(stmt, Seq):
            return []
    for store in stores:
        value = store.value  # what is read behind a guard of all lanes is read by all or none
        if isinstance(value, Select) and not mentions([value.condition], loop.var):
            value = value.then
        loads = list(address.certain(value))
        places = [(store.buffer, store.indices), *[(e.buffer, e.indices) for e in loads]]
        if not any(address.lanes_of(*place, loop.var, count) for place in places):
            return []
    return stores


def _from_anywhere(
    store: Store, var: ScalarVar, count: int
) -> tuple[Load, list[Scalar], Lt | None] | None:
    """An unaligned contiguous move as wide as memory accesses, zero after its first lanes, and the
    number of these lanes."""
    value, same, limit = store.value, list[Scalar](), None
    if isinstance(value, Select) and _is_zero(value.orelse):
        inside = address.first_lanes(value.condition, var, count)
        if inside is None:
            return None
        same, limit = inside
        value = value.then
    if not isinstance(value, Load) or value.buffer.dtype is not store.buffer.dtype:
        return None
    size = value.buffer.dtype.bytes
    if (
        size > MAX_UNALIGNED_BYTES
        or count * size != MAX_VECTOR_BYTES
        or scope(value.buffer.scope).reach != "all"
    ):
        return None
    if not address.lanes_of(store.buffer, store.indices, var, count):
        return None
    if not address.are_neighbours(value.buffer, value.indices, var, count):
        return None
    return value, same, limit


def _is_zero(of: Scalar) -> bool:
    return isinstance(of, Lit) and of.value == 0
