"""Values: a scalar term becomes straight LLVM text, with loops for the reductions inside it.

Both sides of a `Select` are computed and one is chosen: no operation can fail, and a load whose
index may be outside is made only where it is inside.  Whether that mattered is asked afterwards
(`plica.codegen.llvm.scope`).  So each node is emitted once, however much is shared, and the code
has no branches but around such loads.

In a vectorized loop a term that depends on its variable becomes a vector of all lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from plica.analysis.constant_bound import LinearForm, linear, within
from plica.codegen.emit.contraction import accumulations, factors, nearest_integer, summed_factors
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
from plica.codegen.llvm.access import MemoryEmitter
from plica.codegen.llvm.buffer_address import Size
from plica.codegen.llvm.dialect import LLVM, literal, register
from plica.codegen.llvm.evaluation_order import (
    EvaluationOrder,
    StraightAccess,
    StraightStore,
    of_literal,
    parts,
    recipe,
    start_of,
    straight_access,
)
from plica.codegen.llvm.free_value import EASY, easy, is_arithmetic
from plica.codegen.llvm.lane import FALSE, TRUE, Lanes, LaneValue, constant, valued, wrapped
from plica.codegen.llvm.loop_context import FAR, LoopContext
from plica.codegen.llvm.rounded_quotient import small_parts
from plica.codegen.llvm.scalar import multiply_add, nearest, small
from plica.codegen.llvm.writer import LlvmPlace, LlvmWriter, OperationLines, WriteOperation
from plica.core.binding import free_vars
from plica.core.diagnostic import CompilerBug
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.scalar import (
    Add,
    Buffer,
    Cast,
    FloorDiv,
    FloorMod,
    Load,
    Max,
    Min,
    Mul,
    Reduce,
    Scalar,
    ScalarVar,
    Sub,
    dtype_of,
)
from plica.ir.type.dim import known
from plica.ir.type.dtype import DType, bool_, i64
from plica.runtime.late import late

if TYPE_CHECKING:
    from plica.codegen.llvm.moved_read import beside_lanes, row_lanes
    from plica.codegen.llvm.scope import outside, unsafe
else:
    beside_lanes = late("plica.codegen.llvm.moved_read:beside_lanes")
    row_lanes = late("plica.codegen.llvm.moved_read:row_lanes")
    outside = late("plica.codegen.llvm.scope:outside")
    unsafe = late("plica.codegen.llvm.scope:unsafe")

SHARED: Final = (FloorDiv, FloorMod, Min, Max)
"""Operations on indices that are remembered."""


class LlvmValues:
    """Emits values into a writer; knows the loops that are open and the buffers there are."""

    def __init__(self, w: LlvmWriter) -> None:
        self.w = w
        self.fused = w.traits.fused
        self.lanes = Lanes(w)
        self.around = LoopContext(self.lanes)
        self.access = MemoryEmitter(self.lanes)
        self.access.size = self._size
        self.registers: list[str] = []  # lines that reserve memory in the function's first block
        self.fails: str | None = None  # where a failed check is noted
        self.loops = False  # whether some term is a loop
        self.small = False  # whether integers are made of small numbers alone
        self._recipes: dict[tuple[Scalar, ...], EvaluationOrder] = {}
        self._stores: dict[object, StraightStore | None] = {}
        self._places: dict[int, LlvmPlace] = {}
        self._sizes: dict[Scalar, LaneValue] = {}  # of open sizes that are known everywhere
        self._lines = OperationLines(w)
        self._contracted: frozenset[Scalar] = frozenset()  # sums that are rounded with a product

    def close(self) -> None:
        """Forget how terms are written, which refers back to this: else only a collection of
        rings would free all that was written with it."""
        self._recipes.clear()
        self._stores.clear()
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
        key = buffer, indices, value
        if key not in self._stores:
            if self.fused:
                self._contracted |= accumulations(buffer, value)
            self._stores[key] = self._straight(buffer, indices, value)
        straight = self._stores[key]
        if straight is not None and self._is_ready(straight):
            (stored,) = self._results(straight.recipe, (value,))
            place = self._place_of(straight.target)
            self.access.store(buffer, place, stored, around.mask, True)
            return
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
        at = self.access.linear(buffer, found[1:])
        if not unsure:
            self.access.store(buffer, at, found[0], around.mask, sound)
            return
        where = dict(zip(indices, found[1:], strict=True))
        fits = lanes.fit([(where[index], self._size(size)) for index, size in unsure])
        self._note(lanes.negated(fits))
        if not fits.is_uniform:
            self.access.store(buffer, at, found[0], lanes.both(around.mask, fits), sound)
            return
        with self.access.only_where(fits):
            self.access.store(buffer, at, found[0], around.mask, sound)

    def _straight(
        self, buffer: Buffer, indices: Sequence[Scalar], value: Scalar
    ) -> StraightStore | None:
        """A store whose copies differ in the numbers of addresses alone, None for another."""
        if (target := self._access(buffer, indices)) is None:
            return None
        loads: dict[Scalar, StraightAccess] = {}

        def row(node: Scalar) -> Row[LaneValue] | tuple[str, object]:
            return partial(self._straight_load, loads[node]) if node in loads else self._row(node)

        def operands_of(node: Scalar) -> tuple[Scalar, ...]:
            if isinstance(node, Load):
                access = self._access(node.buffer, node.indices)
                if access is not None and self._is_inside(access):
                    loads[node] = access
                    return ()
            return self._operands(node)

        found = order((value,), operands_of, row, of_literal)
        if any(isinstance(node, Reduce) for node in found.numbers):
            return None
        return StraightStore(recipe((value,), found, loads), tuple(loads.values()), target)

    def _access(self, buffer: Buffer, indices: Sequence[Scalar]) -> StraightAccess | None:
        place = self.access.places[buffer]
        return straight_access(buffer, indices, place.shape, place.strides)

    def _is_inside(self, of: StraightAccess) -> bool:
        """Whether an access is inside its buffer whatever the copy is."""
        known, boxes = self.around.vars, self.around.boxes
        plain = all(var in known and known[var].step is not None for var, _ in of.counts)
        return plain and all(each.is_inside(boxes) for each in of.indices)

    def _is_ready(self, of: StraightStore) -> bool:
        """Whether all places are inside whatever the copy is; then their registers are written."""
        around, lanes = self.around, self.lanes
        now = around.version, lanes.releases
        if of.since != now:
            of.since, every = now, (*of.loads, of.target)
            of.is_inside = all(map(self._is_inside, every))
            for each in every if of.is_inside else ():
                counts = dict(each.counts)
                inner = [var for var in around.vars if var in counts]  # loops, from the outermost
                apart = [(around.vars[v], around.boxes[v][1][1], counts[v]) for v in inner]
                written = [(value.text, count) for value, _, count in apart if value.text]
                each.text = lanes.total(written, "nsw ")
                each.most = sum([most * count for value, most, count in apart if value.text])
                copied = [each for each in apart if not each[0].text and each[0].is_uniform]
                each.copies = tuple([(most + 1, count) for _, most, count in copied if count])
        return of.is_inside

    def _place_of(self, access: StraightAccess) -> LaneValue:
        """How many elements a place is from the first, in this copy."""
        known, step, plus = self.around.vars, 0, access.number
        for var, count in access.counts:
            _, each, number = known[var]
            step += (each or 0) * count
            plus += number * count
        return valued((access.text, step, plus))

    def _straight_load(
        self, access: StraightAccess, step: OrderStep, frame: Frame[LaneValue]
    ) -> LaneValue:
        place = self._place_of(access)
        if place[1] == 0 and access.copies:
            beside = self.access.beside(access.buffer, place, access.most, access.copies)
            if beside is not None:
                return beside
        # A place that all lanes share is one of a lane that there is.
        needed = self.around.padding if place[1] else TRUE
        row = (0, 0)
        if place.step and place.step > 1 and needed == TRUE:
            row = access.beside(self.around.lane, self.around.boxes, self.around.vars)
        return self.access.load(access.buffer, place, needed, True, beside=row)

    def _size(self, of: Size) -> LaneValue:
        """The value of a size."""
        if isinstance(of, int):
            return constant(of)
        if (made := self._sizes.get(of)) is not None:
            return made
        (found,) = self.evaluate([of])
        return found

    def begin(self) -> None:
        """Write down the open sizes of all buffers, where a function begins: they serve it all."""
        for place in self.access.places.values():
            for each in (*place.strides, *place.shape):
                if not isinstance(each, int):
                    self._sizes[each] = self._size(each)

    # --- terms ---------------------------------------------------------------------------------

    def evaluate(self, roots: Sequence[Scalar]) -> list[LaneValue]:
        """The values of terms here and now; loads are made again each time."""
        key = tuple(roots)
        made = self._recipes.get(key)
        if made is None:
            parts_in_order = order(key, self._operands, self._row, of_literal)
            made = self._recipes[key] = recipe(key, parts_in_order)
        return self._results(made, key)

    def _results(self, made: EvaluationOrder, roots: Sequence[Scalar]) -> list[LaneValue]:
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
            case Add() | Sub() | Mul() if (form := linear(node)) is not None:
                return partial(self._sum, form)
            case Reduce():
                return nest(self._reduced)
            case _ if factors(node, self._contracted) is not None:
                return partial(self._instruction, write=multiply_add)
            case Cast() if nearest_integer(node) is not None:
                return partial(self._instruction, write=nearest)
            case _ if self.small and small_parts(node) is not None:
                return partial(self._instruction, write=small)
            case _ if isinstance(node, EASY) and not is_arithmetic(node):
                return self._operation
            case _:
                return self._plain

    # --- rows ----------------------------------------------------------------------------------

    def _variable(self, step: OrderStep, frame: Frame[LaneValue]) -> LaneValue:
        found = self.around.vars.get(step[2])
        if found is None:
            raise CompilerBug(f"The variable {step.node.name} is not bound.")
        return found

    def _sum(self, form: LinearForm, step: OrderStep, frame: Frame[LaneValue]) -> LaneValue:
        """A sum of indices: of numbers that are known, or with one, it takes nothing."""
        found, plus, apart, written = frame.found, form[0], 0, []
        for kid, count in zip(step[3], form[1], strict=True):
            text, each, number = found[kid]
            if each is None:
                return self._sum_of_vectors(form, step, frame)
            plus += number * count
            apart += each * count
            if text:
                written.append((text, count))
        text = written[0][0] if written else ""
        if len(written) > 1 or (written and written[0][1] != 1):
            text = self.lanes.total(written, "nsw " if self._is_near(form) else "")
        return valued((text, apart, plus if -FAR < plus < FAR else wrapped(plus)))

    def _is_near(self, form: LinearForm) -> bool:
        """Whether no part of a sum overflows."""
        most = 0
        for count, part in zip(form[1], form[2], strict=True):
            low, high = self.around.interval(part)
            most += abs(count) * max(high, -low)
        return most < FAR

    def _sum_of_vectors(
        self, form: LinearForm, step: OrderStep, frame: Frame[LaneValue]
    ) -> LaneValue:
        """A sum of indices of which some are another in every lane."""
        lanes, found = self.lanes, constant(form[0])
        for kid, count in zip(step[3], form[1], strict=True):
            found = lanes.add(found, lanes.mul(frame.found[kid], constant(count)))
        return found

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
        return self._instruction(step, frame, operation)

    def _instruction(
        self, step: OrderStep, frame: Frame[LaneValue], write: WriteOperation
    ) -> LaneValue:
        texts, n = self._texts(step[4], frame.operands(step))
        name = self._lines.write((step[2], n), texts, step[4], write, self._place(n))
        return valued((name, None if n else 0, 0))

    def _place(self, lanes: int) -> LlvmPlace:
        """Where operators of so many lanes stand; 0 for a single value."""
        found = self._places.get(lanes)
        if found is None:
            found = LlvmPlace(LLVM, self.w, lanes, self.around.divides_naturals)
            self._places[lanes] = found
        return found

    def _operands(self, node: Scalar) -> tuple[Scalar, ...]:
        if self.small and (found := small_parts(node)) is not None:
            return found
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
                    value[0] if value[1] is None else vector(value, of)
                    for of, value in zip(dtypes, found, strict=True)
                ], lanes.count
        return [lanes.scalar(value) for value in found], 0

    def _load(
        self, buffer: Buffer, indices: Sequence[Scalar], found: Sequence[LaneValue]
    ) -> tuple[LaneValue, LaneValue | None]:
        """The element, and whether the indices were inside; None where they always are."""
        lanes, around = self.lanes, self.around
        unsure: list[tuple[LaneValue, LaneValue]] = []
        # A place that all lanes share is one of a lane that there is.
        needed = TRUE if all(each.step == 0 for each in found) else around.padding
        sound = True
        shape = self.access.places[buffer].shape
        for index, value, count in zip(indices, found, shape, strict=True):
            low, high = around.interval(index)
            if not 0 <= value.plus <= low:
                sound = False
            if high < 0 or (isinstance(count, int) and low >= count):
                return nothing(buffer), FALSE
            if isinstance(count, int) and low >= 0 and high < count:
                continue
            if around.is_inside(index, count):
                needed = around.mask  # it is inside in the lanes that take part
            else:
                unsure.append((value, self._size(count)))
        at = self.access.linear(buffer, found)
        if not unsure:
            beside = (0, 0)
            if at.step is not None and at.step > 1 and needed == TRUE:
                beside = beside_lanes(around.interval(indices[-1]), found, shape[-1])
            return self.access.load(buffer, at, needed, sound, beside=beside), None
        here = lanes.fit([each for each in unsure if each[0].is_uniform])
        apart = [each for each in unsure if not each[0].is_uniform]
        fits = lanes.fit(apart)
        some = lanes.both(fits, needed)
        reach = lanes.reach(apart, at)
        row = row_lanes(found, apart) if needed == TRUE else None
        loaded = self.access.load(buffer, at, some, sound, here=here, reach=reach, row=row)
        return loaded, lanes.both(here, fits)

    # --- reductions ----------------------------------------------------------------------------

    def _reduced(self, step: OrderStep, frame: Frame[LaneValue]) -> Walk[LaneValue]:
        """A reduction: loops around the body, which is added to what there is so far."""
        node, w, lanes, around = step.node, self.w, self.lanes, self.around
        if any(known(extent) == 0 for extent in node.extents):
            return start_of(node)
        n = self._width(node)
        of = dtype_of(node)
        kind, flags = register(of, n), register(bool_, n)
        total, flag = self.reserve(kind), self.reserve(flags)
        first = start_of(node)
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
            joined = multiply_add(node, (*texts, so_far), self._place(n))
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


def nothing(buffer: Buffer) -> LaneValue:
    """What a load from an empty buffer gives."""
    return constant(0) if buffer.dtype is i64 else LaneValue(literal(0, buffer.dtype))
