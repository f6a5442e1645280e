"""Neighbours: what a vectorized loop moves from and to memory, by one instruction.

    for v in vectorized(4): y[4 * i + v] = f(x[4 * i + v])

        alignas(16) float v[4], u[4];
        *((uint4*)&u[0]) = *((const uint4*)&x[4 * i]);
        v[0] = f(u[0]); …
        *((uint4*)&y[4 * i]) = *((const uint4*)&v[0]);

What reads or writes places that are not known to be neighbours is done one by one.

Tensor cores leave pairs of a row to each of four threads, which are half of what memory moves at
least.  So these hand each other four such pairs of a row, and each stores eight neighbours:

    for o in range(4 * n): for v in vectorized(2): y[8 * o + 2 * (lane % 4) + v] = f(…)
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from math import prod
from typing import Final

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.codegen.cuda.address import (
    VECTORS,
    are_neighbours,
    certain,
    first_lanes,
    lanes_of,
    wide,
)
from plica.codegen.cuda.dialect import WIDE
from plica.codegen.emit.expression import Expressions, linear, mentions
from plica.codegen.emit.operator import packed, unpacked
from plica.core.binding import free_vars
from plica.core.fold import map_bottom_up, post_order
from plica.core.term import Term
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import (
    And,
    Buffer,
    FloorDiv,
    FloorMod,
    Lit,
    Load,
    Lt,
    Scalar,
    ScalarVar,
    Select,
    dtype_of,
    index,
)
from plica.ir.loop.statement import NOTHING, Branch, For, Seq, Stmt, Store, statements
from plica.ir.type.dim import known, polynomial
from plica.ir.type.dtype import i64

QUAD: Final = 4
"""Threads that hold neighbours of a row."""

PAIR: Final = 2

NARROW: Final = 2
"""Bytes of elements that are read by aligned words, wherever they begin, at most."""

ANYWHERE: Final = "p_from_anywhere"
"""The function that reads them."""

HELD: Final = 16
"""Vectors that a thread holds on their way to shared memory, at most."""

TURNED: Final = "p_quads_turned"
"""The function by which four threads hand each other what they hold."""


@frozen
class HeldCopy:
    """What a thread holds of a copy until it stores it: registers, by loops and their lengths."""

    word: str
    loops: tuple[tuple[ScalarVar, int], ...]

    def place(self, values: Expressions) -> str:
        """The register of a turn."""
        at = "0"
        for var, size in self.loops:
            at = f"({at}) * {size} + {values.of(var)}"
        return f"{self.word}[{at}]"


class VectorAccess:
    """Writes vectorized loops; what is `handed` over at barriers is copied while others go on."""

    def __init__(self, values: Expressions, handed: frozenset[Buffer]) -> None:
        self.values, self.handed = values, handed
        self.holding: HeldCopy | None = None
        self.giving: HeldCopy | None = None
        self.guarded: list[Scalar] = []  # what stores that threads do together ask before
        self.lines, self.names = values.lines, values.names

    def write(self, loop: For, count: int) -> bool:
        """Write a vectorized loop as one of neighbours; False where it is not such a loop."""
        if self.giving is not None and isinstance(loop.body, Store):
            self._given(loop.body, loop.var)
            return True
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

    def guards(self, of: Branch, lane: ScalarVar) -> bool:
        """Whether a choice guards nothing but loops that `turned` writes, which will ask then."""
        body = of.then
        while isinstance(body, For) and _pairs(body, lane) is None:
            if body.kind not in ("serial", "unrolled") or known(body.extent) is None:
                return False
            body = body.body
        if not isinstance(body, For) or not _same_of_quad(of.condition, lane):
            return False
        self.guarded.append(of.condition)
        return True

    def unguarded(self) -> None:
        """After what the last choice guards."""
        self.guarded.pop()

    def turned(self, loop: For, lane: ScalarVar) -> bool:
        """Write a loop over pairs that four threads of a row store, each of them eight neighbours;
        False where it is not such a loop."""
        found = _pairs(loop, lane)
        if found is None:
            return False
        guard, inner, store = found
        every = [*self.guarded, *([] if guard is None else [guard])]
        guard = reduce(And, every) if every else None
        values, lines, names = self.values, self.lines, self.names
        count, kind = known(loop.extent) or 0, values.dialect.register(dtype_of(loop.var))
        turn, own, word = map(names.fresh, ("q", "o", "w"))
        lines.do("#pragma unroll")
        lines.open(f"for (int {turn} = 0; {turn} < {count // QUAD}; ++{turn})")
        lines.do(f"alignas({WIDE}) unsigned int {word}[{QUAD}] = {{0, 0, 0, 0}};")
        lines.do("#pragma unroll")
        lines.open(f"for (int {own} = 0; {own} < {QUAD}; ++{own})")
        values.vars[loop.var] = f"({kind})({turn} * {QUAD} + {own})"
        reads = [each for each in post_order(store.value) if isinstance(each, Load)]
        far = any(scope(each.buffer.scope).reach != "thread" for each in reads)
        if guard is not None and far:  # what a thread has of its own is there in any case
            lines.open(f"if ({values.of(guard)})")
        held = names.fresh("v")
        self._reserve(held, store.buffer, PAIR)
        self._fill(held, store, store.value, inner.var, PAIR)
        lines.do(f"{word}[{own}] = *((const unsigned int*)&{held}[0]);")
        if guard is not None and far:
            lines.close()
        lines.close()
        lines.do(f"{values.help(TURNED)}({word});")
        place = f"{values.vars[lane]} % {QUAD}"
        values.vars[loop.var] = f"({kind})({turn} * {QUAD} + {place})"
        values.vars[inner.var] = values.dialect.literal(0, dtype_of(inner.var))
        if guard is not None:
            lines.open(f"if ({values.of(guard)})")
        to = values.place(store.buffer, store.indices)
        lines.do(f"*((uint4*)(&{to} - {PAIR} * ({place}))) = *((const uint4*)&{word}[0]);")
        if guard is not None:
            lines.close()
        lines.close()
        return True

    def _store(self, store: Store, var: ScalarVar, count: int) -> None:
        """Neighbours that are stored at once."""
        if self._copied(store, var, count) or self._gathered(store, var, count):
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
        """What a store moves from and to where neighbours lie that can be moved at once, behind
        which guard, and whether threads need not wait for it; None where it does more."""
        value, buffer = store.value, store.buffer
        condition: Scalar | None = None
        if isinstance(value, Select) and _is_zero(value.orelse):
            condition = value.condition
            value = value.then
        if not isinstance(value, Load) or value.buffer.dtype is not buffer.dtype:
            return None
        places = [(buffer, store.indices), (value.buffer, value.indices)]
        if not all(lanes_of(*place, var, count) for place in places):
            return None
        outside = scope(value.buffer.scope).reach == "all"
        later = outside and buffer in self.handed and count * buffer.dtype.bytes == WIDE
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
        many = str(WIDE)
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
        """Store what was read before."""
        assert self.giving is not None
        values = self.values
        values.vars[var] = values.dialect.literal(0, dtype_of(var))
        to = values.place(store.buffer, store.indices)
        self.lines.do(f"*((uint4*)&{to}) = {self.giving.place(values)};")

    def held(self, nest: Stmt) -> HeldCopy | None:
        """A nest that does nothing but copy what begins anywhere, so little that a thread can hold
        it; None for any other."""
        loops: list[For] = []
        while isinstance(nest, For) and nest.kind != "vectorized":
            if nest.kind in ("serial", "unrolled"):
                loops.append(nest)
            nest = nest.body
        if not isinstance(nest, For) or not isinstance(store := nest.body, Store):
            return None
        sizes = [known(each.extent) or 0 for each in loops]
        lanes = (store, nest.var, known(nest.extent) or 0)
        if self._moved(*lanes) is not None or _from_anywhere(*lanes) is None:
            return None
        if not 0 < prod(sizes) <= HELD:
            return None
        word = self.names.fresh("held")
        return HeldCopy(
            word, tuple([(each.var, size) for each, size in zip(loops, sizes, strict=True)])
        )

    def hold(self, of: HeldCopy) -> None:
        """Before a nest whose copies are held by threads."""
        self.lines.do(f"uint4 {of.word}[{prod(size for _, size in of.loops)}];")
        self.holding = of

    def give(self, of: HeldCopy) -> None:
        """Before the same nest, where what is held is stored."""
        self.giving = of

    def passed(self) -> None:
        """After either."""
        self.holding = self.giving = None

    @property
    def whole(self) -> bool:
        """Whether loops must be unrolled, as they say which register is meant."""
        return self.holding is not None or self.giving is not None

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


def _from_anywhere(
    store: Store, var: ScalarVar, count: int
) -> tuple[Load, list[Scalar], Lt | None] | None:
    """What a store moves that has as many bytes as memory moves at once, where that begins anywhere
    and is zero after its first lanes; and what says how many these are."""
    value, same, limit = store.value, list[Scalar](), None
    if isinstance(value, Select) and _is_zero(value.orelse):
        inside = first_lanes(value.condition, var, count)
        if inside is None:
            return None
        same, limit = inside
        value = value.then
    if not isinstance(value, Load) or value.buffer.dtype is not store.buffer.dtype:
        return None
    size = value.buffer.dtype.bytes
    if size > NARROW or count * size != WIDE or scope(value.buffer.scope).reach != "all":
        return None
    if not lanes_of(store.buffer, store.indices, var, count):
        return None
    if not are_neighbours(value.buffer, value.indices, var, count):
        return None
    return value, same, limit


def _is_zero(of: Scalar) -> bool:
    return isinstance(of, Lit) and of.value == 0


def _same_of_quad(term: Term, lane: ScalarVar) -> bool:
    """Whether a term is the same for four neighbouring threads."""
    number = Lit(QUAD, dtype_of(lane))

    def change(node: Term) -> Term:
        match node:
            case FloorDiv(of, Lit(int(by))) if of is lane and by % QUAD == 0:
                return number
            case _:
                return node

    return lane not in free_vars(map_bottom_up(change, term))


def _pairs(loop: For, lane: ScalarVar) -> tuple[Scalar | None, For, Store] | None:
    """What guards a pair, the loop over it and its store, where four threads have eight neighbours
    of which four turns of a loop are neighbours."""
    guard, body = None, loop.body
    if isinstance(body, Branch) and body.orelse is NOTHING:
        guard, body = body.condition, body.then
    if not isinstance(body, For) or body.kind != "vectorized" or known(body.extent) != PAIR:
        return None
    if loop.kind not in ("serial", "unrolled"):
        return None
    store, count = body.body, known(loop.extent)
    if not isinstance(store, Store) or count is None or count % QUAD:
        return None
    if store.buffer.dtype.bytes != PAIR or scope(store.buffer.scope).reach != "all":
        return None
    if guard is not None and (not _same_of_quad(guard, lane) or mentions([guard], body.var)):
        return None
    own, place, pair = (ScalarVar(each.name, i64) for each in (loop.var, lane, body.var))
    quad = simple(FloorMod(place, index(QUAD)))
    steps: dict[Term, int] = {own: PAIR * QUAD, quad: PAIR, pair: 1}
    found: set[Term] = set()
    for atoms, factor in polynomial(simple(wide(linear(store.buffer, store.indices)))).values():
        if len(atoms) == 1 and steps.get(atoms[0]) == factor:
            found.add(atoms[0])
        elif factor % (PAIR * QUAD) or not _apart(atoms, own, pair, place):
            return None
    return (guard, body, store) if len(found) == len(steps) else None


def _apart(atoms: Iterable[Scalar], own: ScalarVar, pair: ScalarVar, lane: ScalarVar) -> bool:
    """Whether terms say nothing of where in a row of eight neighbours a thread is."""
    return all(
        own not in free_vars(each) and pair not in free_vars(each) and _same_of_quad(each, lane)
        for each in atoms
    )
