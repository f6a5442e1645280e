"""Values: a scalar term becomes straight LLVM text, with loops for the reductions inside it.

Both sides of a `Select` are computed and one is chosen: no operation can fail, and a load whose
index may be outside is made only where it is inside.  Whether that mattered is asked afterwards
(`plica.codegen.llvm.scope`).  So each node is emitted once, however much is shared, and the code
has no branches but around such loads.

In a vectorized loop a term that depends on its variable becomes a vector of all lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plica.analysis.constant_bound import within
from plica.codegen.emit.contraction import accumulations, factors, summed_factors
from plica.codegen.emit.operator import operation
from plica.codegen.emit.scalar import (
    Frame,
    Order,
    OrderStep,
    Row,
    Walk,
    fold,
    known_around,
    nest,
    order,
)
from plica.codegen.llvm.access import MemoryEmitter, Size, nothing
from plica.codegen.llvm.dialect import LLVM, literal, register
from plica.codegen.llvm.evaluation_order import EvaluationOrder, of_literal, parts, recipe
from plica.codegen.llvm.free_value import EASY, easy, summed
from plica.codegen.llvm.lane import FALSE, TRUE, Lanes, LaneValue, constant, valued, wrapped
from plica.codegen.llvm.loop_context import FAR, LoopContext
from plica.codegen.llvm.scalar import multiply_add
from plica.codegen.llvm.scope import outside, unsafe
from plica.codegen.llvm.writer import LlvmPlace, LlvmWriter
from plica.core.binding import free_vars
from plica.core.diagnostic import CompilerBug
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.scalar import (
    Add,
    Buffer,
    FloorDiv,
    FloorMod,
    Lit,
    Load,
    Max,
    Min,
    Mul,
    Reduce,
    Scalar,
    ScalarVar,
    dtype_of,
)
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType, bool_, i64

SHARED: Final = (FloorDiv, FloorMod, Min, Max)
"""Operations on indices that are remembered."""


class LlvmValues:
    """Emits values into a writer; knows the loops that are open and the buffers there are.

    `fused` allows a product and the running sum it is added to to be rounded once.
    """

    def __init__(self, w: LlvmWriter, fused: bool = False) -> None:
        self.w = w
        self.fused = fused
        self.lanes = Lanes(w)
        self.around = LoopContext(self.lanes)
        self.access = MemoryEmitter(self.lanes)
        self.access.size = self._size
        self.registers: list[str] = []  # lines that reserve memory in the function's first block
        self.fails: str | None = None  # where a failed check is noted
        self.loops = False  # whether some term is a loop
        self._recipes: dict[tuple[Scalar, ...], EvaluationOrder] = {}
        self._places: dict[int, LlvmPlace] = {}
        self._contracted: frozenset[Scalar] = frozenset()  # sums that are rounded with a product

    def close(self) -> None:
        """Forget how terms are written, which refers back to this: else only a collection of
        rings would free all that was written with it."""
        self._recipes.clear()
        del self.access.size

    # --- memory --------------------------------------------------------------------------------

    def reserve(self, kind: str, count: int = 1) -> str:
        """Memory of the function itself."""
        name = self.w.fresh().replace("%", "%own.")
        row = LLVM.variable if count == 1 else LLVM.allocation
        self.registers.append(f"  {row.format(type=kind, name=name, count=count)}")
        return name

    def store(self, buffer: Buffer, indices: Sequence[Scalar], value: Scalar) -> None:
        """`buffer[indices] = value`; what only a condition keeps inside is checked if need be."""
        lanes, around = self.lanes, self.around
        if self.fused:
            self._contracted |= accumulations(buffer, value)
        found = self.evaluate((value, *indices))
        # Nothing is stored in an empty buffer: the loops around do not run.
        unsure: list[tuple[Scalar, Size]] = []
        sound = True  # whether each index is inside without the constant it has in the end, too
        shape = self.access.places[buffer].shape
        for index, value_, size in zip(indices, found[1:], shape, strict=True):
            low, high = around.interval(index)
            if not 0 <= value_[2] <= low:
                sound = False
            if isinstance(size, int):
                if low >= 0 and high < size:
                    continue
                size = max(1, size)
            if not around.is_inside(index, size):
                unsure.append((index, size))
        if unsure and not around.facts:
            raise CompilerBug(f"A store to {buffer.name} may be outside of it.")
        if not unsure:
            self.access.store(buffer, found[1:], found[0], around.mask, sound)
            return
        where = dict(zip(indices, found[1:], strict=True))
        fits = self._fit([(where[index], size) for index, size in unsure])
        self._note(lanes.negated(fits))
        if not fits.is_uniform:
            self.access.store(buffer, found[1:], found[0], lanes.both(around.mask, fits), sound)
            return
        with self.access.only_where(fits):
            self.access.store(buffer, found[1:], found[0], around.mask, sound)

    def _fit(self, places: Sequence[tuple[LaneValue, Size]]) -> LaneValue:
        """Whether all indices are below their counts, and not negative."""
        lanes, found = self.lanes, TRUE
        for value, count in places:
            n = 0 if value.is_uniform else lanes.count
            text = lanes.vector(value, i64) if n else lanes.scalar(value)
            if isinstance(count, int):
                most = literal(count, i64, n)
            else:
                size = self._size(count)
                most = lanes.vector(size, i64) if n else lanes.scalar(size)
            fits = LLVM.inside.format(type=register(i64, n), at=text, count=most)
            found = lanes.both(found, LaneValue(self.w.let(fits), None if n else 0))
        return found

    def _size(self, of: Scalar) -> LaneValue:
        """The value of an open size."""
        (found,) = self.evaluate([of])
        return found

    # --- terms ---------------------------------------------------------------------------------

    def evaluate(self, roots: Sequence[Scalar]) -> list[LaneValue]:
        """The values of terms here and now; loads are made again each time."""
        key = tuple(roots)
        made = self._recipes.get(key)
        if made is None:
            parts_in_order = order(key, self._operands, self._row, of_literal)
            made = self._recipes[key] = recipe(key, parts_in_order)
        self.around.prepare(made.bounds)
        frame = fold(made.order, self._within)
        if frame.checked:
            for root in roots:
                self._note(outside(frame, root, self.around, self._operands))
        return frame.results

    def _within(self, roots: Sequence[Scalar], frame: Frame[LaneValue]) -> Order[LaneValue]:
        """The order of terms in a loop: a check that was made outside says nothing inside."""
        known_here = known_around(frame, unsafe)
        return order(roots, self._operands, self._row, of_literal, known_here)

    def _row(self, node: Scalar) -> Row[LaneValue] | tuple[str, object]:
        """What writes a part."""
        match node:
            case ScalarVar():
                return self._variable
            case Load():
                return self._loaded
            case Add() if dtype_of(node) is i64:
                return self._sum
            case Mul() if dtype_of(node) is i64:
                return self._product
            case Reduce():
                return nest(self._reduced)
            case _ if factors(node, self._contracted) is not None:
                return self._fused
            case _:
                return self._operation if isinstance(node, EASY) else self._plain

    # --- rows ----------------------------------------------------------------------------------

    def _variable(self, step: OrderStep, frame: Frame[LaneValue]) -> LaneValue:
        found = self.around.vars.get(step[2])
        if found is None:
            raise CompilerBug(f"The variable {step.node.name} is not bound.")
        return found

    def _sum(self, step: OrderStep, frame: Frame[LaneValue]) -> LaneValue:
        """The sum of two indices: of numbers that are known, or with one, it takes nothing."""
        _, _, node, (left, right), _ = step
        a, b = frame.found[left], frame.found[right]
        if a[1] is None or b[1] is None or (a[0] and b[0]):
            return summed(node, a, b, self.around)
        plus = a[2] + b[2]
        if not -FAR < plus < FAR:
            plus = wrapped(plus)
        return valued((a[0] or b[0], a[1] + b[1], plus))

    def _product(self, step: OrderStep, frame: Frame[LaneValue]) -> LaneValue:
        """The product of two indices."""
        _, _, node, (left, right), _ = step
        a, b = frame.found[left], frame.found[right]
        if a[0] or b[0] or a[1] != 0 or b[1] != 0:
            return summed(node, a, b, self.around)
        return constant(a[2] * b[2])

    def _loaded(self, step: OrderStep, frame: Frame[LaneValue]) -> LaneValue:
        node, found = step[2], frame.found
        places = [found[kid] for kid in step[3]]
        value, fits = self._load(node.buffer, node.indices, places)
        if fits is not None:
            frame.checked[node] = fits
        return value

    def _operation(self, step: OrderStep, frame: Frame[LaneValue]) -> LaneValue:
        node, found = step[2], frame.operands(step)
        value = easy(node, found, self.around)
        if value is not None:
            return value
        texts, n = self._texts(step[4], found)
        if not n and isinstance(node, SHARED) and step[4][0] is i64:
            return LaneValue(self._once(node, texts))
        return valued((operation(node, texts, self._place(n)), None if n else 0, 0))

    def _once(self, node: Scalar, texts: Sequence[str]) -> str:
        """An index that takes more than a sum, written once while the first of it is in reach."""
        key = " ".join((type(node).__name__, *texts))
        if not self.lanes.is_known(key):
            self.lanes.remember(key, operation(node, texts, self._place(0)))
        return self.lanes.recall(key)

    def _plain(self, step: OrderStep, frame: Frame[LaneValue]) -> LaneValue:
        """What always takes an instruction."""
        texts, n = self._texts(step[4], frame.operands(step))
        return valued((operation(step[2], texts, self._place(n)), None if n else 0, 0))

    def _place(self, lanes: int) -> LlvmPlace:
        """Where operators of so many lanes stand; 0 for a single value."""
        found = self._places.get(lanes)
        if found is None:
            found = LlvmPlace(LLVM, self.w, lanes, self.around.divides_naturals)
            self._places[lanes] = found
        return found

    def _operands(self, node: Scalar) -> tuple[Scalar, ...]:
        return parts(node, self._contracted)

    def _added(self, node: Reduce) -> tuple[Scalar, ...]:
        """What is evaluated in each step of a reduction: the body, or the factors of it."""
        factors_of = summed_factors(node) if self.fused else None
        return (node.body,) if factors_of is None else factors_of

    def _texts(self, dtypes: Sequence[DType], found: Sequence[LaneValue]) -> tuple[list[str], int]:
        """Operands as one instruction takes them, and how many lanes that has; 0 for one value."""
        lanes = self.lanes
        for each in found:
            if each[1] != 0:
                vector = lanes.vector
                return [
                    vector(value, of) for of, value in zip(dtypes, found, strict=True)
                ], lanes.count
        return [lanes.scalar(value) for value in found], 0

    def _fused(self, step: OrderStep, frame: Frame[LaneValue]) -> LaneValue:
        """A running sum and a product, rounded once."""
        terms, n = self._texts(step[4], frame.operands(step))
        return valued((multiply_add(terms, dtype_of(step[2]), self._place(n)), None if n else 0, 0))

    def _load(
        self, buffer: Buffer, indices: Sequence[Scalar], found: Sequence[LaneValue]
    ) -> tuple[LaneValue, LaneValue | None]:
        """The element, and whether the indices were inside; None where they always are."""
        lanes, around = self.lanes, self.around
        unsure: list[tuple[LaneValue, Size]] = []
        # A place that all lanes share is one of a lane that there is.
        needed = TRUE if all(each.step == 0 for each in found) else around.padding
        sound = True
        shape = self.access.places[buffer].shape
        for index, value, count in zip(indices, found, shape, strict=True):
            low, high = around.interval(index)
            if not 0 <= value.plus <= low:
                sound = False
            if count == 0:
                return nothing(buffer), FALSE
            if isinstance(count, int) and low >= 0 and high < count:
                continue
            if around.is_inside(index, count):
                needed = around.mask  # it is inside in the lanes that take part
            else:
                unsure.append((value, count))
        if not unsure:
            return self.access.load(buffer, found, needed, sound), None
        fits = self._fit(unsure)
        loaded = self.access.load(buffer, found, lanes.both(fits, needed), sound)
        return loaded, fits

    # --- reductions ----------------------------------------------------------------------------

    def _reduced(self, step: OrderStep, frame: Frame[LaneValue]) -> Walk[LaneValue]:
        """A reduction: loops around the body, which is added to what there is so far."""
        node, w, lanes, around = step.node, self.w, self.lanes, self.around
        if any(known(extent) == 0 for extent in node.extents):
            return _start(node)
        n = self._width(node)
        of = dtype_of(node)
        kind, flags = register(of, n), register(bool_, n)
        total, flag = self.reserve(kind), self.reserve(flags)
        first = _start(node)
        text = lanes.vector(first, of) if n else lanes.scalar(first)
        w.do(f"store {kind} {text}, ptr {total}")
        w.do(f"store {flags} {literal(False, bool_, n)}, ptr {flag}")
        self.loops = True
        loops, facts = [], len(around.facts)
        for var, extent in zip(node.axes, node.extents, strict=True):
            (many,) = self.evaluate([extent])
            loops.append(around.open(var, many, around.interval(extent)))
            around.facts += within(var, extent)
        added = self._added(node)
        inner = yield added
        texts = [lanes.vector(each, of) if n else lanes.scalar(each) for each in inner.results]
        fails = FALSE
        for each in added:
            fails = lanes.either(fails, outside(inner, each, around, self._operands))
        if fails != FALSE:
            before = LaneValue(w.let(f"load {flags}, ptr {flag}"), None if n else 0)
            now = lanes.either(before, fails)
            w.do(f"store {flags} {lanes.vector(now, bool_) if n else now.text}, ptr {flag}")
        so_far = w.let(f"load {kind}, ptr {total}")
        if len(texts) == 2:
            joined = multiply_add((*texts, so_far), of, self._place(n))
        else:
            _, join = MEANING[node.combiner]
            joined = operation(join(node.body, node.body), [so_far, *texts], self._place(n))
        w.do(f"store {kind} {joined}, ptr {total}")
        for loop in reversed(loops):
            around.close(loop)
        del around.facts[facts:]
        found = LaneValue(w.let(f"load {kind}, ptr {total}"), None if n else 0)
        if fails != FALSE:
            failed = LaneValue(w.let(f"load {flags}, ptr {flag}"), None if n else 0)
            frame.checked[node] = lanes.negated(failed)
        return found

    def _width(self, node: Reduce) -> int:
        """How many lanes a reduction has: all, if it may be another in each."""
        around = self.around
        if around.lane is None or (around.lane not in free_vars(node) and around.mask.is_uniform):
            return 0
        return self.lanes.count

    # --- checks --------------------------------------------------------------------------------

    def _note(self, failed: LaneValue) -> None:
        """Remember that an index was outside, in a lane that takes part."""
        failed = self.lanes.both(self.around.mask, failed)
        if failed == FALSE:
            return
        if self.fails is None:
            self.fails = self.reserve("i1")
            self.registers.append(f"  store i1 false, ptr {self.fails}")
        before = self.w.let(f"load i1, ptr {self.fails}")
        now = self.w.let(f"or i1 {before}, {self.lanes.some(failed)}")
        self.w.do(f"store i1 {now}, ptr {self.fails}")


def _start(node: Reduce) -> LaneValue:
    """What a reduction begins with."""
    start, _ = MEANING[node.combiner]
    first = start(dtype_of(node))
    assert isinstance(first, Lit)
    return of_literal(first)
