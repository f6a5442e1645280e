"""Values: a scalar term becomes straight LLVM text, with loops for the reductions inside it.

Both sides of a `Select` are computed and one is chosen: no operation traps, and a load whose index
may be out of bounds is predicated. Whether a failed check matters is decided afterwards
(`plica.codegen.llvm.scope`). So each node is emitted once, however much is shared, and the only
branches are around such loads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from plica.analysis.constant_bound import LinearForm, linear, within
from plica.codegen.emit import scalar
from plica.codegen.emit.contraction import factors, nearest_integer, small_parts, summed_factors
from plica.codegen.llvm.access import MemoryEmitter
from plica.codegen.llvm.buffer_address import Size
from plica.codegen.llvm.dialect import LLVM, literal, register
from plica.codegen.llvm.evaluation_order import EvaluationOrder, of_literal, parts, recipe, start_of
from plica.codegen.llvm.free_value import EASY, easy, is_arithmetic
from plica.codegen.llvm.lane import FALSE, TRUE, Lanes, LaneValue, constant, valued, wrapped
from plica.codegen.llvm.loop_context import FAR, LoopContext
from plica.codegen.llvm.scalar import multiply_add, nearest, small
from plica.codegen.llvm.writer import LlvmPlace, LlvmWriter
from plica.core import CompilerBug, free_vars
from plica.ir.loop import MEANING, scalar as sc
from plica.ir.type import DType, bool_, i32, i64, known
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.codegen.llvm.moved_read import beside_lanes, row_lanes
    from plica.codegen.llvm.scope import outside, unsafe

SHARED: Final = (sc.FloorDiv, sc.FloorMod, sc.Min, sc.Max)
"""Operations on indices that are remembered."""


class LlvmValues:
    """Emits values into a writer; knows the open loops and the buffers."""

    def __init__(self, w: LlvmWriter) -> None:
        self.w = w
        self.fused = w.traits.fused
        self.lanes = Lanes(w)
        self.around = LoopContext(self.lanes)
        self.access = MemoryEmitter(self.lanes)
        self.access.size, self.access.reserve = self.size_of, self._zeros
        self.registers: list[str] = []  # lines that reserve memory in the function's first block
        self.fails: str | None = None  # where a failed check is noted
        self.loops = False  # whether some term is a loop
        self.small = False  # whether integers are made of small numbers alone
        self._recipes: dict[tuple[sc.Scalar, ...], EvaluationOrder] = {}
        self._places: dict[int, LlvmPlace] = {}
        self._zeros_of: dict[str, str] = {}  # memory that holds zeros, by its type
        self._sizes: dict[sc.Scalar, LaneValue] = {}  # of open sizes that are known everywhere
        self.contracted: frozenset[sc.Scalar] = frozenset()  # sums that are rounded with a product

    def close(self) -> None:
        """Forget how terms are written, which refers back to this: else only a collection of
        rings would free all that was written with it."""
        self._recipes.clear()
        del self.access.size, self.access.reserve

    # --- memory --------------------------------------------------------------------------------

    def reserve(self, kind: str, count: int = 1) -> str:
        """Memory of the function itself."""
        name = self.w.fresh().replace("%", "%own.")
        row = LLVM.variable if count == 1 else LLVM.allocation
        self.registers.append(f"  {row.format(type=kind, name=name, count=count)}")
        return name

    def _zeros(self, kind: str) -> str:
        """A function-local memory of zeros."""
        if kind not in self._zeros_of:
            self._zeros_of[kind] = self.reserve(kind)
            self.registers.append(f"  store {kind} zeroinitializer, ptr {self._zeros_of[kind]}")
        return self._zeros_of[kind]

    def size_of(self, of: Size) -> LaneValue:
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
                    self._sizes[each] = self.size_of(each)

    # --- terms ---------------------------------------------------------------------------------

    def evaluate(self, roots: Sequence[sc.Scalar]) -> list[LaneValue]:
        """The values of terms here and now; loads are made again each time."""
        key = tuple(roots)
        order = self._recipes.get(key)
        if order is None:
            parts_in_order = scalar.order(key, self.operands_of, self.row, of_literal)
            order = self._recipes[key] = recipe(key, parts_in_order)
        return self.results(order, key)

    def results(self, made: EvaluationOrder, roots: Sequence[sc.Scalar]) -> list[LaneValue]:
        """The values of terms whose order is known; what failed of their checks is noted."""
        self.around.prepare(made.bounds)
        frame = scalar.fold(made.order, self._within)
        if frame.checked:
            for root in roots:
                self.note(outside(frame, root, self.around, self.operands_of))
        return frame.results

    def _within(
        self, roots: Sequence[sc.Scalar], frame: scalar.Frame[LaneValue]
    ) -> scalar.Order[LaneValue]:
        """The order of terms in a loop: a check that was made outside says nothing inside."""
        known_here = scalar.visible_values(frame, unsafe)
        return scalar.order(roots, self.operands_of, self.row, of_literal, known_here)

    def row(self, node: sc.Scalar) -> scalar.Row[LaneValue] | tuple[str, object]:
        """What writes a part."""
        match node:
            case sc.ScalarVar():
                return self._variable
            case sc.Load():
                return self._loaded
            case sc.Add() | sc.Sub() | sc.Mul() if (form := linear(node)) is not None:
                return partial(self._sum, form)
            case sc.Reduce():
                return scalar.nest(self._reduced)
            case _ if factors(node, self.contracted) is not None:
                return partial(self._instruction, write=multiply_add)
            case sc.Cast(place, dtype) if dtype is i32 and sc.dtype_of(place) is i64:
                return self._counted
            case sc.Cast() if nearest_integer(node) is not None:
                return partial(self._instruction, write=nearest)
            case _ if self.small and small_parts(node) is not None:
                return partial(self._instruction, write=small)
            case _ if isinstance(node, EASY) and not is_arithmetic(node):
                return self._operation
            case _:
                return self._plain

    # --- rows ----------------------------------------------------------------------------------

    def _variable(self, step: scalar.OrderStep, frame: scalar.Frame[LaneValue]) -> LaneValue:
        found = self.around.vars.get(step[2])
        if found is None:
            raise CompilerBug(f"The variable {step.node.name} is not bound.")
        return found

    def _sum(
        self, form: LinearForm, step: scalar.OrderStep, frame: scalar.Frame[LaneValue]
    ) -> LaneValue:
        """An index sum; known summands, and a single unknown one, take no instruction."""
        found, plus, apart, written = frame.values, form[0], 0, []
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
        self, form: LinearForm, step: scalar.OrderStep, frame: scalar.Frame[LaneValue]
    ) -> LaneValue:
        """A sum of indices of which some are another in every lane."""
        lanes, found = self.lanes, constant(form[0])
        for kid, count in zip(step[3], form[1], strict=True):
            found = lanes.add(found, lanes.mul(frame.values[kid], constant(count)))
        return found

    def _loaded(self, step: scalar.OrderStep, frame: scalar.Frame[LaneValue]) -> LaneValue:
        node, found = step[2], frame.values
        places = [found[kid] for kid in step[3]]
        value, fits = self._load(node.buffer, node.indices, places)
        if fits is not None:
            frame.checked[node] = fits
        return value

    def _operation(self, step: scalar.OrderStep, frame: scalar.Frame[LaneValue]) -> LaneValue:
        node, found = step[2], frame.operands(step)
        value = easy(node, found, self.around)
        if value is not None:
            return value
        texts, n = self._texts(step[4], found)
        if not n and isinstance(node, SHARED) and step[4][0] is i64:
            return LaneValue(self._once(node, texts))
        return valued((scalar.operation(node, texts, self._place(n)), None if n else 0, 0))

    def _once(self, node: sc.Scalar, texts: Sequence[str]) -> str:
        """An index that takes more than a sum, emitted once per scope."""
        key = " ".join((type(node).__name__, *texts))
        if not self.lanes.is_known(key):
            self.lanes.remember(key, scalar.operation(node, texts, self._place(0)))
        return self.lanes.recall(key)

    def _counted(self, step: scalar.OrderStep, frame: scalar.Frame[LaneValue]) -> LaneValue:
        """An index as a number of 32 bits: of lanes that count, one number and what they add."""
        (value,) = frame.operands(step)
        if not value.step:
            return self._plain(step, frame)
        return LaneValue(self.lanes.counted(value, i32), None)

    def _plain(self, step: scalar.OrderStep, frame: scalar.Frame[LaneValue]) -> LaneValue:
        """An operation that always takes an instruction."""
        return self._instruction(step, frame, scalar.operation)

    def _instruction(
        self,
        step: scalar.OrderStep,
        frame: scalar.Frame[LaneValue],
        write: Callable[[Any, Sequence[str], LlvmPlace], str],
    ) -> LaneValue:
        texts, n = self._texts(step[4], frame.operands(step))
        return valued((write(step[2], texts, self._place(n)), None if n else 0, 0))

    def _place(self, lanes: int) -> LlvmPlace:
        """Where operators of a given number of lanes stand; 0 for a single value."""
        llvm_place = self._places.get(lanes)
        if llvm_place is None:
            llvm_place = LlvmPlace(LLVM, self.w, lanes, self.around.divides_naturals)
            self._places[lanes] = llvm_place
        return llvm_place

    def operands_of(self, node: sc.Scalar) -> tuple[sc.Scalar, ...]:
        """The parts that are evaluated before a term is."""
        if self.small and (scalars := small_parts(node)) is not None:
            return scalars
        return parts(node, self.contracted)

    def _added(self, node: sc.Reduce) -> tuple[sc.Scalar, ...]:
        """The terms evaluated in each step of a reduction: the body, or its factors."""
        factors_of = summed_factors(node) if self.fused else None
        return (node.body,) if factors_of is None else factors_of

    def _texts(self, dtypes: Sequence[DType], found: Sequence[LaneValue]) -> tuple[list[str], int]:
        """Operands as an instruction takes them, and their lane count; 0 for scalars."""
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
        self, buffer: sc.Buffer, indices: Sequence[sc.Scalar], found: Sequence[LaneValue]
    ) -> tuple[LaneValue, LaneValue | None]:
        """The element, and whether its indices were in bounds; None if they always are."""
        lanes, around = self.lanes, self.around
        unsure: list[tuple[LaneValue, LaneValue]] = []
        # A uniform address belongs to an active lane.
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
                unsure.append((value, self.size_of(count)))
        at = self.access.linear(buffer, found)
        if not unsure:
            beside = (0, 0)
            if at.step is not None and at.step > 1 and needed == TRUE:
                last = indices[-1]
                near = partial(self._is_near_row, last, shape[-1])
                beside = beside_lanes(found, around.interval(last), shape[-1], near)
            return self.access.load(buffer, at, needed, sound, beside=beside), None
        here = lanes.fit([each for each in unsure if each[0].is_uniform])
        apart = [each for each in unsure if not each[0].is_uniform]
        fits = lanes.fit(apart)
        some = lanes.both(fits, needed)
        reach = lanes.reach(apart, at)
        moves = needed == TRUE and self.w.traits.whole  # others read a part of a vector
        row = None
        if moves:
            exceeds = partial(self._exceeds, shape[-1])
            row = row_lanes(found, apart, lanes.count, exceeds)
        split = None
        if here != TRUE and self.access.places[buffer].strides[-1] == 1 and len(found) > 1:
            split = self.access.linear(buffer, (*found[:-1], constant(0))), found[-1]
        loaded = self.access.load(
            buffer, at, some, sound, here=here, reach=reach, row=row, apart=split
        )
        return loaded, lanes.both(here, fits)

    def _is_near_row(self, column: sc.Scalar, size: Size, apart: int) -> bool:
        """Whether an element at a distance from a column is proved to be in its row, too."""
        return self.around.is_inside(column + apart, size)

    def _exceeds(self, size: Size, number: int) -> bool:
        """Whether a size is shown to be greater than a number."""
        return self.around.is_inside(sc.Lit(number, i64), size)

    # --- reductions ----------------------------------------------------------------------------

    def _reduced(
        self, step: scalar.OrderStep, frame: scalar.Frame[LaneValue]
    ) -> scalar.Walk[LaneValue]:
        """A reduction: loops around an accumulation."""
        node, w, lanes, around = step.node, self.w, self.lanes, self.around
        if any(known(extent) == 0 for extent in node.extents):
            return start_of(node)
        n = self._width(node)
        of = sc.dtype_of(node)
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
        for term in added:
            fails = lanes.either(fails, outside(inner, term, around, self.operands_of))
        if fails != FALSE:
            before = LaneValue(w.let(f"load {flags}, ptr {flag}"), None if n else 0)
            now = lanes.either(before, fails)
            w.do(f"store {flags} {lanes.vector(now, bool_) if n else now.text}, ptr {flag}")
        so_far = w.let(f"load {kind}, ptr {total}")
        if len(texts) == 2:
            joined = multiply_add(node, (*texts, so_far), self._place(n))
        else:
            _, join = MEANING[node.combiner]
            joined = scalar.operation(join(node.body, node.body), [so_far, *texts], self._place(n))
        w.do(f"store {kind} {joined}, ptr {total}")
        for loop in reversed(loops):
            around.close(loop)
        del around.facts[facts:]
        found = LaneValue(w.let(f"load {kind}, ptr {total}"), None if n else 0)
        if fails != FALSE:
            failed = LaneValue(w.let(f"load {flags}, ptr {flag}"), None if n else 0)
            frame.checked[node] = lanes.negated(failed)
        return found

    def _width(self, node: sc.Reduce) -> int:
        """How many lanes a reduction has: all, if it may be another in each."""
        around = self.around
        if around.lane is None or (around.lane not in free_vars(node) and around.mask.is_uniform):
            return 0
        return self.lanes.count

    # --- checks --------------------------------------------------------------------------------

    def note(self, failed: LaneValue) -> None:
        """Records a failed bounds check in an active lane."""
        failed = self.lanes.both(self.around.mask, failed)
        if failed == FALSE:
            return
        if self.fails is None:
            self.fails = self.reserve("i1")
            self.registers.append(f"  store i1 false, ptr {self.fails}")
        before = self.w.let(f"load i1, ptr {self.fails}")
        now = self.w.let(f"or i1 {before}, {self.lanes.some(failed)}")
        self.w.do(f"store i1 {now}, ptr {self.fails}")


def nothing(buffer: sc.Buffer) -> LaneValue:
    """The value loaded from an empty buffer."""
    return constant(0) if buffer.dtype is i64 else LaneValue(literal(0, buffer.dtype))
