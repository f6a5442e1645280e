"""Open regions: launches of kernels with open sizes.

    i64 plica_main(void **table)          inputs, outputs, constants, the workspace, the dims
    void plica_sizes(i64 *dims, i64 *out)     the bytes of the workspace, then the sizes of all
                                              inputs and outputs, axis after axis

Where some number does not fit in 64 bits, a tensor would have less than nothing, or an operator has
no value, it is said in the place of the bytes of the workspace, and `plica_main` is not called.

>>> from plica.ir.type.dim import dim_var
>>> w = LlvmWriter()
>>> n = dim_var("n")
>>> checked = Checked(w, {n: "%n"})
>>> checked.text(n * n), checked.failed
('%2', '%3')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from plica.analysis.constant_bound import DIM_RANGE
from plica.codegen.emit.scalar import operands, operation
from plica.codegen.llvm.dialect import LLVM
from plica.codegen.llvm.lane import LaneValue, constant
from plica.codegen.llvm.region import Callee, Regions, Variant
from plica.codegen.llvm.value import LlvmValues
from plica.codegen.llvm.writer import LlvmPlace, LlvmWriter
from plica.codegen.open_memory_plan import OpenPlan
from plica.codegen.program import Chunks, Copy, Launch, Program, RowKernel
from plica.core import CompilerBug, post_order
from plica.ir.loop.scalar import Add, Lit, Mul, Scalar, ScalarVar, Sub, index
from plica.ir.type import is_size
from plica.runtime.artefact import SIZES
from plica.runtime.open_executable import NEGATIVE, TOO_LARGE

APART: Final = 64  # arenas begin at multiples of this


class OpenRegions(Regions):
    """The functions that launch kernels of a program with dims."""

    def __init__(self, program: Program, plan: OpenPlan, kernels: Mapping[Variant, Callee]) -> None:
        super().__init__(program, plan, kernels)
        steps = [step for steps in program.regions for step in steps]
        chunks = [step for step in steps if isinstance(step, Chunks)]
        padded = max([_padded_bytes(_smallest(step.pieces)) for step in chunks], default=0)
        self.arenas = (*plan.arenas, index(padded)) if padded else plan.arenas
        copied = [
            step.source for steps in program.regions for step in steps if isinstance(step, Copy)
        ]
        self.copied = {slot: number for number, slot in enumerate(dict.fromkeys(copied))}
        self.first = len(program.dims)  # the number that says where the first arena begins
        self.last = self.first + len(self.arenas)  # and the one that says how much is copied first
        counts = dict.fromkeys(step.rows for step in chunks)
        launches = [step for step in steps if isinstance(step, Launch)]
        given = [size for step in launches for size in (*step.sizes, *step.least)]
        counts |= dict.fromkeys(size for size in given if size not in program.dims)
        self.after = self.last + len(self.copied)  # the number of rows or size looked up first
        self.rows = {rows: self.after + number for number, rows in enumerate(counts)}
        self.flags = 8 * (self.after + len(self.rows))

    def functions(self) -> list[str]:
        """All of them, the entry last but for what says the sizes."""
        return [*super().functions(), self._sizes()]

    def _sizes(self) -> str:
        """The function that says sizes: every sum and product in it is checked."""
        w = LlvmWriter()
        dims: dict[ScalarVar, str] = {}
        for number, dim in enumerate(self.program.dims):
            at = w.let(f"getelementptr inbounds i64, ptr %dims, i64 {number}")
            dims[dim] = w.let(f"load i64, ptr {at}, align 8")
        checked = Checked(w, dims)
        for slot in self.program.slots:
            for size in slot.shape:
                if not isinstance(size, int) and not is_size(size):
                    checked.at_least_none(size)
        for need in self.program.needs:
            checked.at_least_none(need)
        for slot in self.program.space("output"):
            checked.text(slot.size)
        end = str(self.flags + len(self.program.thunks))
        for arena in self.arenas:
            over = checked.combined("sadd", end, str(APART - 1))
            start = w.let(f"and i64 {over}, {-APART}")
            end = checked.combined("sadd", start, checked.text(arena))
        for scalar in (*[self.program.slots[slot].size for slot in self.copied], *self.rows):
            checked.text(scalar)
        slots = [*self.program.space("input"), *self.program.space("output")]
        sizes = [size for slot in slots for size in slot.shape]
        shown = [index(size) if isinstance(size, int) else size for size in sizes]
        texts = [checked.text(scalar) for scalar in shown]
        end = w.let(f"select i1 {checked.negative}, i64 {NEGATIVE}, i64 {end}")
        end = w.let(f"select i1 {checked.failed}, i64 {TOO_LARGE}, i64 {end}")
        for number, text in enumerate([end, *texts]):
            at = w.let(f"getelementptr inbounds i64, ptr %out, i64 {number}")
            w.do(f"store i64 {text}, ptr {at}, align 8")
        w.do("ret void")
        head = f"define void @{SIZES}(ptr %dims, ptr %out) nounwind {{"
        return "\n".join([head, "entry:", *w.lines, "}"])

    def _prepare(self, w: LlvmWriter) -> None:
        """Write down the numbers that are looked up later."""
        at = w.let(f"getelementptr inbounds ptr, ptr %table, i64 {self.workspace + 1}")
        values = self._opened(w, w.let(f"load ptr, ptr {at}, align 8"))
        dims = [values.lanes.scalar(values.around.vars[dim]) for dim in self.program.dims]
        starts = self._laid_out(w, values)
        copied = _texts(values, [self.program.slots[slot].size for slot in self.copied])
        counts = _texts(values, list(self.rows))
        for number, text in enumerate([*dims, *starts, *copied, *counts]):
            at = w.let(f"getelementptr inbounds i64, ptr %work, i64 {number}")
            w.do(f"store i64 {text}, ptr {at}, align 8")

    def _opened(self, w: LlvmWriter, dims: str) -> LlvmValues:
        """Values of terms over the dims, which are read from memory."""
        values = LlvmValues(w)
        for number, dim in enumerate(self.program.dims):
            at = w.let(f"getelementptr inbounds i64, ptr {dims}, i64 {number}")
            values.around.bind(dim, LaneValue(w.let(f"load i64, ptr {at}, align 8")), DIM_RANGE)
        return values

    def _laid_out(self, w: LlvmWriter, values: LlvmValues) -> list[str]:
        """Where each arena begins; all of them are known to fit by now."""
        lanes = values.lanes
        end = constant(self.flags + len(self.program.thunks))
        starts = []
        for size in _values(values, self.arenas):
            over = lanes.scalar(lanes.add(end, constant(APART - 1)))
            start = w.let(f"and i64 {over}, {-APART}")
            starts.append(start)
            end = lanes.add(LaneValue(start), size)
        return starts

    def _number(self, w: LlvmWriter, number: int) -> str:
        at = w.let(f"getelementptr inbounds i64, ptr %work, i64 {number}")
        return w.let(f"load i64, ptr {at}, align 8")

    def _chunks(self, w: LlvmWriter, step: Chunks, code: int) -> None:
        """Runs kernels on rows: each piece as often as it fits.

        The remaining rows, if smaller pieces would take as many calls, are processed together with
        earlier rows, whose results are recomputed unchanged. Fewer rows than the last piece takes
        are copied to a buffer with space for all of its rows, except for a single row with its own
        piece.
        """
        many = self._number(w, self.rows[step.rows])
        done = "0"
        last = _smallest(step.pieces)
        alone = int(step.pieces[-1].size == 1)
        smaller = [*[row_kernel.size for row_kernel in step.pieces[1:]], last.size]
        for piece, next_size in zip(step.pieces, smaller, strict=True):
            bases = [self._pointer(w, slot) for slot in piece.args]
            test, run, after, end, now, next_ = w.labels(
                "test", "run", "after", "end", "%now", "%next"
            )
            before = w.block
            w.do(f"br label %{test}")
            w.start(test)
            w.do(f"{now} = phi i64 [ {done}, %{before} ], [ {next_}, %{after} ]")
            w.do(f"{next_} = add i64 {now}, {piece.size}")
            some = w.let(f"icmp sle i64 {next_}, {many}")
            w.do(f"br i1 {some}, label %{run}, label %{end}")
            w.start(run)
            self._piece_at(w, piece, bases, now, code)
            w.do(f"br label %{after}")
            w.start(after)
            w.do(f"br label %{test}")
            w.start(end)
            done = now
            if piece.size > 1:
                least = alone if piece is last else piece.size - next_size
                done = self._together(w, piece, bases, (now, many), least, code)
            if piece is last and piece.size > 1:
                done = self._padded(w, last, (done, many), alone, code)

    def _together(  # noqa: PLR0917  # what is left of rows
        self,
        w: LlvmWriter,
        piece: RowKernel,
        bases: Sequence[str],
        counts: tuple[str, str],
        least: int,
        code: int,
    ) -> str:
        """Processes the last rows, if more than a number are left, together with earlier ones;
        returns the number done."""
        done, many = counts
        last, end = w.labels("last", "whole")
        left = w.let(f"icmp sgt i64 {w.let(f'sub i64 {many}, {done}')}, {least}")
        enough = w.let(f"icmp sge i64 {many}, {piece.size}")
        both = w.let(f"and i1 {left}, {enough}")
        before = w.block
        w.do(f"br i1 {both}, label %{last}, label %{end}")
        w.start(last)
        self._piece_at(w, piece, bases, w.let(f"sub i64 {many}, {piece.size}"), code)
        behind = w.block
        w.do(f"br label %{end}")
        w.start(end)
        return w.let(f"phi i64 [ {done}, %{before} ], [ {many}, %{behind} ]")

    def _padded(
        self, w: LlvmWriter, piece: RowKernel, counts: tuple[str, str], least: int, code: int
    ) -> str:
        """Processes fewer rows than a kernel takes, if more than a number are left, by repeating
        the last one; returns the number done."""
        done, many = counts
        few, end = w.labels("few", "none")
        left = w.let(f"icmp sgt i64 {w.let(f'sub i64 {many}, {done}')}, {least}")
        before = w.block
        w.do(f"br i1 {left}, label %{few}, label %{end}")
        w.start(few)
        most = w.let(f"sub i64 {many}, 1")
        arena = self._arena_start(w, len(self.arenas) - 1)
        given: list[str] = []
        *bases, result = [self._pointer(w, slot) for slot in piece.args]
        for base, size in zip(bases, piece.steps, strict=False):
            if not size:
                given.append(base)
                continue
            given.append(arena)
            for row in range(piece.size):
                over = w.let(f"icmp slt i64 {row}, {most}")
                taken = w.let(f"select i1 {over}, i64 {row}, i64 {most}")
                source = self._far(w, base, w.let(f"mul i64 {taken}, {size}"))
                self._copied(w, self._far(w, arena, str(row * size)), source, str(size))
            arena = self._far(w, arena, str(_padded_row_bytes(piece, size)))
        self._piece_at(w, piece, [*given, arena], "0", code)
        self._copied(w, result, arena, w.let(f"mul i64 {many}, {piece.steps[-1]}"))
        behind = w.block
        w.do(f"br label %{end}")
        w.start(end)
        return w.let(f"phi i64 [ {done}, %{before} ], [ {many}, %{behind} ]")

    @staticmethod
    def _far(w: LlvmWriter, base: str, offset: str) -> str:
        return w.let(f"getelementptr inbounds i8, ptr {base}, i64 {offset}")

    @staticmethod
    def _copied(w: LlvmWriter, target: str, source: str, size: str) -> None:
        w.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    def _piece_at(
        self, w: LlvmWriter, piece: RowKernel, bases: Sequence[str], row: str, code: int
    ) -> None:
        """Run a kernel on the rows from one on."""
        callee = self.kernels[piece.kernel, None]
        given = []
        for base, size in zip(bases, piece.steps, strict=True):
            pointer = base
            if size:
                far = w.let(f"mul i64 {row}, {size}")
                pointer = w.let(f"getelementptr inbounds i8, ptr {base}, i64 {far}")
            given.append(f"ptr {pointer}")
        if callee.can_fail:
            failed = w.let(f"call i1 @{callee.name}({', '.join(given)})")
            self._leave(w, failed, str(code))
        else:
            w.do(f"call void @{callee.name}({', '.join(given)})")

    def _sizes_given(self, w: LlvmWriter, step: Launch) -> list[str]:
        """The open sizes that a launch gives to its kernel."""
        own = self.program.kernels[step.kernel].dims
        if len(own) != len(step.sizes):
            raise CompilerBug(f"{step.source} gives {len(step.sizes)} sizes to {len(own)} dims.")
        return [f"i64 {self._size(w, size)}" for size in step.sizes]

    def _size(self, w: LlvmWriter, of: Scalar) -> str:
        """The value of a term over the dims in this call."""
        place = self.rows[of] if of in self.rows else self.program.dims.index(of)
        return self._number(w, place)

    def _bytes(self, w: LlvmWriter, slot: int) -> str:
        """How many bytes a slot has."""
        return self._number(w, self.last + self.copied[slot])

    def _temporary(self, w: LlvmWriter, slot: int) -> str:
        """Where a temporary is."""
        return self._arena_start(w, self.plan.where[slot])

    def _arena_start(self, w: LlvmWriter, number: int) -> str:
        """Where an arena begins."""
        start = self._number(w, self.first + number)
        return w.let(f"getelementptr inbounds i8, ptr %work, i64 {start}")


def _smallest(pieces: Sequence[RowKernel]) -> RowKernel:
    """The smallest piece with several rows, to which fewer rows are padded; a single row uses its
    own piece, if any."""
    return min([piece for piece in pieces if piece.size > 1], key=lambda each: each.size,
               default=pieces[-1])  # fmt: skip


def _padded_row_bytes(piece: RowKernel, row: int) -> int:
    """The bytes of the rows of one argument, in whole lines."""
    return -(-piece.size * row // APART) * APART


def _padded_bytes(piece: RowKernel) -> int:
    """The memory for padded copies of all arguments."""
    return sum(_padded_row_bytes(piece, row) for row in piece.steps) if piece.size > 1 else 0


def _values(values: LlvmValues, terms: Sequence[Scalar]) -> list[LaneValue]:
    return values.evaluate(terms) if terms else []


def _texts(values: LlvmValues, terms: Sequence[Scalar]) -> list[str]:
    return [values.lanes.scalar(value) for value in _values(values, terms)]


WORDS: Final[Mapping[type[Scalar], str]] = {Add: "sadd", Sub: "ssub", Mul: "smul"}


class Checked:
    """Writes the values of index terms, and whether any did not fit."""

    def __init__(self, w: LlvmWriter, dims: Mapping[ScalarVar, str]) -> None:
        self.w = w
        self.place = LlvmPlace(LLVM, w)
        self.failed = "false"
        self.negative = "false"
        self._known: dict[Scalar, str] = {}
        self._known.update(dims.items())

    def text(self, of: Scalar) -> str:
        """The value of a term over the dims."""
        for node in post_order(of):
            if not isinstance(node, Scalar) or node in self._known:
                continue
            if isinstance(node, ScalarVar):
                raise CompilerBug(f"{node.name} is no dim of the program.")
            if isinstance(node, Lit):
                self._known[node] = str(int(node.value))
                continue
            kids = [self._known[operand] for operand in operands(node)]
            if (word := WORDS.get(type(node))) is None:
                self._known[node] = operation(node, kids, self.place)
            else:
                self._known[node] = self.combined(word, kids[0], kids[1])
        return self._known[of]

    def combined(self, word: str, left: str, right: str) -> str:
        """A sum, a difference or a product of two numbers."""
        name = f"@llvm.{word}.with.overflow.i64"
        both = self.w.let(f"call {{i64, i1}} {name}(i64 {left}, i64 {right})")
        value = self.w.let(f"extractvalue {{i64, i1}} {both}, 0")
        over = self.w.let(f"extractvalue {{i64, i1}} {both}, 1")
        self.failed = over if self.failed == "false" else self.w.let(f"or i1 {self.failed}, {over}")
        return value

    def at_least_none(self, of: Scalar) -> None:
        """Note where a size would be less than nothing."""
        below = self.w.let(f"icmp slt i64 {self.text(of)}, 0")
        before = self.negative
        self.negative = below if before == "false" else self.w.let(f"or i1 {before}, {below}")
