"""Stores of tensor core results: four threads of a row store eight contiguous elements each.

Tensor cores leave pairs of a row in each of four threads, half of the minimum efficient store. So
these exchange four such pairs by shuffles, and each stores eight contiguous elements:

    for o in range(4 * n): for v in vectorized(2): y[8 * o + 2 * (lane % 4) + v] = f(…)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from math import prod
from typing import Final

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.codegen.cuda.address import certain, wide
from plica.codegen.cuda.dialect import MAX_VECTOR_BYTES
from plica.codegen.cuda.vector_access import HeldVectors, VectorAccess
from plica.codegen.emit.expression import linear, mentions
from plica.core import Term, free_vars, map_bottom_up, post_order
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import (
    And,
    Buffer,
    FloorDiv,
    FloorMod,
    Lit,
    Load,
    Scalar,
    ScalarVar,
    dtype_of,
    index,
)
from plica.ir.loop.statement import NOTHING, Branch, For, Stmt, Store
from plica.ir.type import i64, known, polynomial

QUAD: Final = 4  # threads that hold neighbours of a row
PAIR: Final = 2

QUADS_TURNED: Final = "p_quads_turned"
"""The function by which four threads hand each other what they hold, and get it back."""


MAX_PREFETCHED_VECTORS: Final = 8
"""The maximum number of prefetched vectors per thread, because registers hold sums already."""


@frozen
class _Pairs:
    """A loop over pairs of a row, what guards a pair, the loop over it and its store."""

    loop: For
    guard: Scalar | None
    inner: For
    store: Store

    @property
    def turns(self) -> int:
        return (known(self.loop.extent) or 0) // QUAD


class QuadStore:
    """Writes loops over pairs that threads of a warp store together."""

    def __init__(self, near: VectorAccess) -> None:
        self.near, self.values = near, near.values
        self.lines, self.names = near.lines, near.names
        self.guarded: list[Scalar] = []  # what is asked before stores that threads do together
        self.asked: dict[Load, HeldVectors] = {}

    def guards(self, of: Branch, lane: ScalarVar) -> bool:
        """Whether a choice guards nothing but loops that `write` writes, which will ask then."""
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
        """After the code guarded by the last conditional."""
        self.guarded.pop()

    def ask(self, loop: For, lane: ScalarVar) -> bool:
        """Before a loop: prefetches what its pairs will read, if registers allow."""
        loops, guards = list[For](), list[Scalar]()
        of = None
        around: Stmt = loop
        while not self.asked and of is None:
            if isinstance(around, Branch) and around.orelse is NOTHING:
                if not _same_of_quad(around.condition, lane):
                    return False
                guards.append(around.condition)
                around = around.then
            elif isinstance(around, For) and around.kind in ("serial", "unrolled"):
                of = _pairs(around, lane)
                if of is None:
                    loops.append(around)
                    around = around.body
            else:
                return False
        return of is not None and self._ask(of, lane, loops, guards)

    def answered(self) -> None:
        """After that loop."""
        self.asked.clear()

    def write(self, loop: For, lane: ScalarVar) -> bool:
        """Emits a loop over pairs that four threads of a row store, eight contiguous elements each;
        False for other loops."""
        of = _pairs(loop, lane)
        if of is None:
            return False
        values, lines, names = self.values, self.lines, self.names
        guard = self._guard(of, ())
        alone = self._ask(of, lane, (), ()) if not self.asked else False
        turn, own, word = map(names.fresh, ("q", "o", "w"))
        self._open(turn, of.turns)
        lines.do(f"alignas({MAX_VECTOR_BYTES}) unsigned int {word}[{QUAD}] = {{0, 0, 0, 0}};")
        there: dict[Load, str] = {}
        for load, held in self.asked.items():
            handed, kind = names.fresh("w"), values.dialect.memory(load.buffer.dtype)
            lines.do(f"alignas({MAX_VECTOR_BYTES}) unsigned int {handed}[{QUAD}];")
            lines.do(f"*((uint4*)&{handed}[0]) = {held.place(values, (turn, of.turns))};")
            lines.do(f"{values.help(QUADS_TURNED)}({handed});")
            there[load] = f"((const {kind}*)&{handed}[{own}])"
        self._open(own, QUAD)
        self._at(of, turn, own)
        reads = [each for each in post_order(of.store.value) if isinstance(each, Load)]
        far = any(read not in there and _reach(read.buffer) != "thread" for read in reads)
        if guard is not None and far:  # what a thread has of its own is there in any case
            lines.open(f"if ({values.of(guard)})")
        pair = names.fresh("v")
        self.near.reserve(pair, of.store.buffer, PAIR)
        self.near.fill(pair, of.store, of.inner.var, PAIR, there)
        lines.do(f"{word}[{own}] = *((const unsigned int*)&{pair}[0]);")
        if guard is not None and far:
            lines.close()
        lines.close()
        lines.do(f"{values.help(QUADS_TURNED)}({word});")
        to = self._eight(of, lane, turn, of.store.buffer, of.store.indices)
        self._guarded(guard, f"*((uint4*){to}) = *((const uint4*)&{word}[0]);")
        lines.close()
        if alone:
            self.answered()
        return True

    def _ask(
        self, of: _Pairs, lane: ScalarVar, loops: Sequence[For], guards: Sequence[Scalar]
    ) -> bool:
        """Prefetches operands at the places of the store; 0 where nothing is stored. False if there
        are none, or too many for registers."""
        loads = [
            load
            for load in dict.fromkeys(certain(of.store.value))
            if load.buffer is not of.store.buffer and _in_quads(of, load.buffer, load.indices, lane)
        ]
        sizes = [known(loop.extent) or 0 for loop in loops]
        every = prod(sizes) * of.turns
        if not loads or not 0 < every * len(loads) <= MAX_PREFETCHED_VECTORS:
            return False
        guard, values = self._guard(of, guards), self.values
        lengths = tuple([(loop.var, size) for loop, size in zip(loops, sizes, strict=True)])
        for var, size in (*lengths, (of.loop.var, of.turns * QUAD)):
            values.known.bound(var, (0, size - 1))
        for load in loads:
            held = HeldVectors(self.names.fresh("r"), lengths)
            self.lines.do(f"uint4 {held.word}[{every}] = {{}};")
            for var, size in lengths:
                name, kind = self.names.fresh("a"), values.dialect.register(dtype_of(var))
                self._open(name, size)
                values.vars[var] = f"({kind})({name})"
            turn = self.names.fresh("q")
            self._open(turn, of.turns)
            source = self._eight(of, lane, turn, load.buffer, load.indices)
            self._guarded(
                guard, f"{held.place(values, (turn, of.turns))} = *((const uint4*){source});"
            )
            for _ in range(len(lengths) + 1):
                self.lines.close()
            self.asked[load] = held
        return True

    def _guard(self, of: _Pairs, around: Iterable[Scalar]) -> Scalar | None:
        """The conjunction of conditions of a pair's store."""
        every = [*self.guarded, *around, *([] if of.guard is None else [of.guard])]
        return reduce(And, every) if every else None

    def _eight(
        self, of: _Pairs, lane: ScalarVar, turn: str, buffer: Buffer, indices: tuple[Scalar, ...]
    ) -> str:
        """Where the eight neighbours of a row are that are a thread's in a turn."""
        values = self.values
        place = f"{values.vars[lane]} % {QUAD}"
        self._at(of, turn, place)
        values.vars[of.inner.var] = values.dialect.literal(0, dtype_of(of.inner.var))
        return f"(&{values.place(buffer, indices)} - {PAIR} * ({place}))"

    def _at(self, of: _Pairs, turn: str, own: str) -> None:
        """From here on the loop is at one of the four pairs of a turn."""
        kind = self.values.dialect.register(dtype_of(of.loop.var))
        self.values.vars[of.loop.var] = f"({kind})({turn} * {QUAD} + {own})"

    def _open(self, var: str, count: int) -> None:
        self.lines.do("#pragma unroll")
        self.lines.open(f"for (int {var} = 0; {var} < {count}; ++{var})")

    def _guarded(self, guard: Scalar | None, line: str) -> None:
        """A line guarded by the conditions at the loop."""
        if guard is not None:
            self.lines.open(f"if ({self.values.of(guard)})")
        self.lines.do(line)
        if guard is not None:
            self.lines.close()


def _reach(buffer: Buffer) -> str:
    return scope(buffer.scope).reach


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


def _pairs(loop: For, lane: ScalarVar) -> _Pairs | None:
    """A loop over pairs in which four threads have eight contiguous elements from four contiguous
    iterations; None for others."""
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
    if guard is not None and (not _same_of_quad(guard, lane) or mentions([guard], body.var)):
        return None
    pairs = _Pairs(loop, guard, body, store)
    return pairs if _in_quads(pairs, store.buffer, store.indices, lane) else None


def _in_quads(of: _Pairs, buffer: Buffer, indices: Iterable[Scalar], lane: ScalarVar) -> bool:
    """Whether pairs of places are eight neighbours of four threads, and four of them in a row."""
    if buffer.dtype.bytes != PAIR or _reach(buffer) != "all":
        return False
    own, place, pair = (ScalarVar(var.name, i64) for var in (of.loop.var, lane, of.inner.var))
    quad = simple(FloorMod(place, index(QUAD)))
    steps: dict[Term, int] = {own: PAIR * QUAD, quad: PAIR, pair: 1}
    terms: set[Term] = set()
    for atoms, factor in polynomial(simple(wide(linear(buffer, tuple(indices))))).values():
        if len(atoms) == 1 and steps.get(atoms[0]) == factor:
            terms.add(atoms[0])
        elif factor % (PAIR * QUAD) or not _apart(atoms, own, pair, place):
            return False
    return len(terms) == len(steps)


def _apart(atoms: Iterable[Scalar], own: ScalarVar, pair: ScalarVar, lane: ScalarVar) -> bool:
    """Whether terms say nothing of where in a row of eight neighbours a thread is."""
    return all(
        own not in free_vars(atom) and pair not in free_vars(atom) and _same_of_quad(atom, lane)
        for atom in atoms
    )
