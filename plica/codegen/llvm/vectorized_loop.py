"""Vectorized loops: strips of vectors side by side, then the tail, whose lanes are no power of two.

>>> from plica.ir.loop.tensor import axis
>>> from plica.ir.loop.scalar import index
>>> i, j = axis("i"), axis("j")
>>> apart(i * 32 + j, i), apart(j * 2, i), apart(i // 2, i)
(32, 0, None)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import product
from typing import Final, NamedTuple

from plica.codegen.emit.contraction import SMALL
from plica.codegen.emit.statement import Step
from plica.codegen.llvm.lane import TRUE, constant, mask_of
from plica.codegen.llvm.value import LlvmValues
from plica.core import free_vars, post_order
from plica.ir.loop.formula import FORMULAS
from plica.ir.loop.scalar import Buffer, Intrinsic, Load, Pow, Scalar, ScalarVar
from plica.ir.loop.statement import Alloc, For, Invoke, Stmt, Store, statements
from plica.ir.type import known, polynomial
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.codegen.llvm.fetch import fetch

WIDTH: Final = 512  # how many bits of a vector are used where nothing is known of the machine
MAX_STRAIGHT_LANES: Final = 64
"""The maximum number of lanes in straight-line code, even if no register holds them, ..."""

MAX_STRAIGHT_REGISTERS: Final = 4
"""... but at most this many registers: computed values take some, too."""

BESIDE: Final = 2  # vectors of a strip, at least
FETCHES: Final = frozenset({"fetch", "fetch_rows"})  # prefetching intrinsics
FORMULA_REGISTERS: Final = 8
"""The registers per vector of a formula: constants are shared, intermediates are not."""


class CopiedStore(NamedTuple):
    """A store enclosed only by unrolled loops, with their extents, and innermost a vectorized one,
    if any."""

    loops: tuple[tuple[For, int], ...]
    strip: For | None
    store: Store


@lru_cache(maxsize=256)
def copied_store(loop: For) -> CopiedStore | None:
    """The only store in unrolled loops, or None if they contain more."""
    loops: list[tuple[For, int]] = []
    inside: Stmt = loop
    while isinstance(inside, For) and inside.kind == "unrolled" and (count := known(inside.extent)):
        loops.append((inside, count))
        inside = inside.body
    strip = None
    if isinstance(inside, For) and inside.kind == "vectorized":
        strip, inside = inside, inside.body
    return CopiedStore(tuple(loops), strip, inside) if isinstance(inside, Store) else None


class VectorizedLoops:
    """Writes loops whose body is done for all lanes of vectors at the same time."""

    def __init__(self, values: LlvmValues) -> None:
        self.values = values
        self.around = values.around
        self.masks = values.w.traits.masks  # whether single lanes are read and written
        self.width = values.access.width = values.w.traits.width or WIDTH

    def strips(self, loop: For, count: int, side_by_side: int = 0) -> Sequence[Step]:
        """A vectorized loop: a strip at a time if it is long, then the lanes that are left.

        A strip is a number of adjacent vectors; for formulas, whose instructions are dependent, as
        many as registers allow. With memory operands two suffice: such machines look further ahead,
        and would spill more.
        """
        if not side_by_side:
            many = self.values.w.traits.picks // FORMULA_REGISTERS
            side_by_side = max(BESIDE, many if _has_formula(loop.body) else 0)
        strip, done = 0, 0
        lanes = self.width // (8 * widest_bytes(loop.body))
        if count > min(MAX_STRAIGHT_LANES, MAX_STRAIGHT_REGISTERS * lanes):
            strip = side_by_side * lanes
            done = count // strip * strip
        if not done:
            return self._spread(loop, 0, count)
        around, rest = self.around, partial(self._spread, loop, done, count)
        opened = around.open(loop.var, constant(done), (done, done), strip)
        if loop.annotations and not FETCHES.isdisjoint(dict(loop.annotations)):
            fetch(self.values, loop, strip)
        first = around.vars[loop.var]
        if first.text and not first.plus:
            self.values.lanes.is_multiple(first.text, strip)
        around.spread(loop.var, first, strip)
        return loop.body, around.gather, partial(around.close, opened), rest

    def copies(self, of: CopiedStore, write: Callable[[Store], None]) -> bool:
        """Write all copies of a store in unrolled loops, one after another: loops that have nothing
        else inside are not opened and closed for each.  False where its lanes are not one vector.
        """
        around, strip, lanes = self.around, of.strip, 0
        if around.lane is not None:
            return False
        if strip is not None:
            lanes = known(strip.extent) or 0
            if not self._is_one_vector(strip, lanes):
                return False
        for loop, count in of.loops:
            around.bind(loop.var, constant(0), (0, 0), (0, count - 1))
        if strip is not None:
            around.bind(strip.var, constant(0), (0, lanes - 1))
        fetches = strip is not None and not FETCHES.isdisjoint(dict(strip.annotations))
        variables = [loop.var for loop, _ in of.loops]
        for numbers in product(*[range(count) for _, count in of.loops]):
            around.rebind(variables, numbers)
            if strip is not None:
                if fetches:
                    around.rebind((strip.var,), (0,), (0, lanes - 1))
                    fetch(self.values, strip, lanes)
                around.spread(strip.var, constant(0), lanes)
            write(of.store)
            around.gather()
        if strip is not None:
            around.unbind(strip.var)
        for var in reversed(variables):
            around.unbind(var)
        return True

    def _is_one_vector(self, strip: For, count: int) -> bool:
        """Whether a vectorized loop is written at once, and all of its lanes take part."""
        if count < 2 or count & (count - 1) or SMALL in dict(strip.annotations):
            return False
        return count <= min(
            MAX_STRAIGHT_LANES,
            MAX_STRAIGHT_REGISTERS * (self.width // (8 * widest_bytes(strip.body))),
        )

    def small(self, loop: For, count: int) -> Sequence[Step]:
        """A vectorized loop in which integers are made of small numbers.

        Each vector is a chain of dependent products in two registers: as many are interleaved as
        fit in half of all registers.
        """
        vectors = max(2, self.values.w.traits.registers // 4)

        def tell(small: bool) -> None:
            self.values.small = small

        steps = self.strips(loop, count, vectors)
        return partial(tell, True), *steps, partial(tell, False)

    def _spread(self, loop: For, done: int, count: int) -> Sequence[Step]:
        """The body of a vectorized loop for the lanes from one on.

        The largest power of two that fits is processed at once: LLVM uses registers for these, but
        scalars for partial registers. With masks, the remaining lanes.
        """
        if done == count:
            return ()
        around, left = self.around, count - done
        if self.masks and around.mask == TRUE:
            lanes = padded(loop, left, self.width // (8 * widest_bytes(loop.body)))
            if lanes is not None:
                around.bind(loop.var, constant(done), (done, count - 1), (0, count - 1))
                some = mask_of(tuple([each < left for each in range(lanes)]))
                around.spread(loop.var, constant(done), lanes, some)
                return loop.body, partial(self._gathered, loop, count, count)
        lanes = 1 << left.bit_length() - 1
        around.bind(loop.var, constant(done), (done, done + lanes - 1), (0, count - 1))
        if loop.annotations and not FETCHES.isdisjoint(dict(loop.annotations)):
            fetch(self.values, loop, lanes)
        around.spread(loop.var, constant(done), lanes)
        return loop.body, partial(self._gathered, loop, done + lanes, count)

    def _gathered(self, loop: For, done: int, count: int) -> Sequence[Step]:
        """What follows the lanes before one."""
        self.around.gather()
        self.around.unbind(loop.var)
        return self._spread(loop, done, count)


def padded(loop: For, left: int, register: int) -> int | None:
    """The number of register lanes, some masked, that process the remainder of a loop.

    None if all are active, if one register does not hold them, and if a mask does not help.
    """
    lanes = 1 << (left - 1).bit_length()
    if lanes == left or lanes > register or not _can_be_masked(loop, register):
        return None
    return lanes


@lru_cache(maxsize=256)  # copies of an unrolled loop ask again
def _can_be_masked(loop: For, register: int) -> bool:
    for stmt in statements(loop.body):
        if isinstance(stmt, Invoke):
            return False
        if not isinstance(stmt, Store):
            continue
        if _is_own(stmt.buffer) and any(loop.var in free_vars(index) for index in stmt.indices):
            return False
        for node in post_order(stmt.value):
            if isinstance(node, Load) and _is_own(node.buffer):
                steps = [apart(index, loop.var) for index in node.indices]
                if not all(step is not None and step % register == 0 for step in steps):
                    return False
    return True


def _is_own(buffer: Buffer) -> bool:
    """Whether a buffer is to be in registers."""
    return buffer.scope == "local"


def apart(index: Scalar, var: ScalarVar) -> int | None:
    """The stride of an index along a variable, or None if it is not constant."""
    step = 0
    for atoms, coefficient in polynomial(index).values():
        if any(var in free_vars(atom) for atom in atoms):
            if atoms != (var,):
                return None
            step = coefficient
    return step


@lru_cache(maxsize=256)
def is_straight(loop: For) -> bool:
    """Whether a loop's body can be one instruction for all lanes."""
    for stmt in statements(loop.body):
        if isinstance(stmt, Alloc):
            return False
        if isinstance(stmt, For) and (
            stmt.kind == "vectorized" or loop.var in free_vars(stmt.extent)
        ):
            return False
    return True


@lru_cache(maxsize=256)  # copies of an unrolled loop ask again
def widest_bytes(body: Stmt) -> int:
    """The bytes of the widest element that is read or written; narrow floats become f32."""
    widest = 1
    for stmt in statements(body):
        if isinstance(stmt, Store):
            dtypes = [stmt.buffer.dtype]
            dtypes += [var.dtype for var in free_vars(stmt.value) if isinstance(var, Buffer)]
            widest = max(widest, *[4 if dtype.is_narrow else dtype.bytes for dtype in dtypes])
    return widest


@lru_cache(maxsize=256)  # copies of an unrolled loop ask again
def _has_formula(body: Stmt) -> bool:
    """Whether something stored is computed by a formula of several instructions."""
    values = [statement.value for statement in statements(body) if isinstance(statement, Store)]
    nodes = post_order(*values)
    return any(
        isinstance(node, Pow) or (isinstance(node, Intrinsic) and node.name in FORMULAS)
        for node in nodes
    )
