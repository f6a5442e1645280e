"""Regions: the functions that launch the kernels of a program, one after another.

i64 plica_main(void **table)      inputs, outputs, constants, the workspace
void r0(table, work)              the steps of a region: launches, copies, branches, thunks
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from attrs import frozen

from plica.codegen.llvm.writer import LlvmWriter
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.program import Choose, Chunks, Copy, Force, Launch, Program, Space
from plica.core import CompilerBug
from plica.ir.loop.scalar import Scalar
from plica.ir.loop.statement import Kernel

if TYPE_CHECKING:
    from plica.codegen.open_memory_plan import AnyPlan

ENTRY: Final = "plica_main"

MAX_STEPS_PER_FUNCTION: Final = 100  # the maximum number of steps per function
NESTED: Final = 8  # how many branches are written inside one another before one becomes a function

Variant: TypeAlias = tuple[int, int | None]
"""A kernel, and which of its inputs its result is written over."""


@frozen
class Callee:
    """A kernel function: its name, whether it reports failed checks, and the numbers passed after
    its dims."""

    name: str
    can_fail: bool
    told: tuple[int, ...] = ()

    def declared(self, kernel: Kernel) -> str:
        """The function of a kernel, for a module that it is not in."""
        numbers = len(kernel.dims) + len(self.told)
        params = ", ".join(["i64"] * numbers + ["ptr"] * len(kernel.params))
        return f"declare hidden {'i1' if self.can_fail else 'void'} @{self.name}({params})"


_SPACES: Final[tuple[Space, ...]] = ("input", "output", "constant")


class Regions:
    """The functions that launch kernels."""

    def __init__(self, program: Program, plan: AnyPlan, kernels: Mapping[Variant, Callee]) -> None:
        self.program = program
        self.plan = plan
        self.kernels = kernels
        self.flags = (
            plan.flags if isinstance(plan, WorkspacePlan) else 0
        )  # where those of thunks begin
        counts = [len(program.space(space)) for space in _SPACES]
        self.base: dict[Space, int] = {
            space: sum(counts[:number]) for number, space in enumerate(_SPACES)
        }
        self.workspace = sum(counts)
        self.codes: dict[tuple[int, int], int] = {}
        for region, steps in enumerate(program.regions):
            for place, step in enumerate(steps):
                if isinstance(step, Launch):
                    self.codes[region, place] = len(self.codes) + 1
        # Only where something can fail does anybody ask whether it did.
        every = [step for steps in program.regions for step in steps]
        checks = any(isinstance(step, Launch) and step.least for step in every)
        fails = checks or any(kernel.can_fail for kernel in kernels.values())
        self.result = "i64" if fails else "void"
        self.parts: list[str] = []
        self.called: dict[int, None] = {program.entry: None}
        self.room = 0  # how many steps the function being written may still take

    def functions(self) -> list[str]:
        """All of them, the entry last."""
        queue = [self.program.entry]
        for region in queue:
            known = len(self.called)
            self._region(region)
            queue += list(self.called)[known:]
        return [*self.parts, self._entry()]

    def _region(self, region: int) -> None:
        """A region as a function: its pieces, and a function that calls them in order."""
        name = f"r{region}"
        count = len(self.program.regions[region])
        starts = range(0, count, MAX_STEPS_PER_FUNCTION)
        if len(starts) <= 1:
            self._define(name, self._piece(region, 0, count))
            return
        pieces = [
            self._define(
                f"{name}.{number}", self._piece(region, start, start + MAX_STEPS_PER_FUNCTION)
            )
            for number, start in enumerate(starts)
        ]
        self._define(name, self._calls(pieces))

    def _piece(self, region: int, start: int, end: int) -> LlvmWriter:
        w = LlvmWriter()
        self.room = MAX_STEPS_PER_FUNCTION
        self._steps(w, region, start, end, 0)
        return w

    def _calls(self, names: Sequence[str]) -> LlvmWriter:
        w = LlvmWriter()
        for name in names:
            self._call(w, name)
        return w

    def _define(self, name: str, w: LlvmWriter) -> str:
        w.do("ret void" if self.result == "void" else "ret i64 0")
        head = f"define internal {self.result} @{name}(ptr %table, ptr %work) optnone noinline"
        self.parts.append("\n".join([f"{head} nounwind {{", "entry:", *w.lines, "}"]))
        return name

    def _entry(self) -> str:
        w = LlvmWriter()
        at = w.let(f"getelementptr inbounds ptr, ptr %table, i64 {self.workspace}")
        w.do(f"%work = load ptr, ptr {at}")
        if self.program.thunks:
            flags = w.let(f"getelementptr inbounds i8, ptr %work, i64 {self.flags}")
            count = len(self.program.thunks)
            w.do(f"call void @llvm.memset.p0.i64(ptr {flags}, i8 0, i64 {count}, i1 false)")
        self._prepare(w)
        w.do("call void @plica.tick(i64 -1)")  # what came before is nobody's
        self._call(w, f"r{self.program.entry}")
        w.do("ret i64 0")
        head = f"define i64 @{ENTRY}(ptr %table) optnone noinline nounwind {{"
        return "\n".join([head, "entry:", *w.lines, "}"])

    def _prepare(self, w: LlvmWriter) -> None:
        """The code before the first step."""

    def _call(self, w: LlvmWriter, name: str) -> None:
        """Run a region or a piece of one; leave with its code if it failed."""
        if self.result == "void":
            w.do(f"call void @{name}(ptr %table, ptr %work)")
            return
        code = w.let(f"call i64 @{name}(ptr %table, ptr %work)")
        self._leave(w, w.let(f"icmp ne i64 {code}, 0"), code)

    def _steps(self, w: LlvmWriter, region: int, start: int, end: int, depth: int) -> None:
        """Some steps of a region; `depth` is how many branches are written inside one another."""
        for place in range(start, min(end, len(self.program.regions[region]))):
            step = self.program.regions[region][place]
            self.room -= 1
            match step:
                case Chunks():
                    self._chunks(w, step, self.codes[region, place])
                    w.do(f"call void @plica.tick(i64 {self.codes[region, place] - 1})")
                case Launch(kernel, args, _):
                    for least in step.least:
                        below = w.let(f"icmp slt i64 {self._size(w, least)}, 0")
                        self._leave(w, below, str(-self.codes[region, place]))
                    given = [f"ptr {self._pointer(w, slot)}" for slot in args]
                    callee = self.kernels[kernel, self.plan.over(step, self.program)]
                    told = [f"i64 {each}" for each in callee.told]
                    pointers = ", ".join([*self._sizes_given(w, step), *told, *given])
                    if callee.can_fail:
                        failed = w.let(f"call i1 @{callee.name}({pointers})")
                        self._leave(w, failed, str(self.codes[region, place]))
                    else:
                        w.do(f"call void @{callee.name}({pointers})")
                    w.do(f"call void @plica.tick(i64 {self.codes[region, place] - 1})")
                case Copy(source, target):
                    size = self._bytes(w, source)
                    to, of = self._pointer(w, target), self._pointer(w, source)
                    copy = f"@llvm.memcpy.p0.p0.i64(ptr {to}, ptr {of}, i64 {size}, i1 false)"
                    w.do(f"call void {copy}")
                case Choose(condition, then, orelse):
                    flag = w.let(f"load i8, ptr {self._pointer(w, condition)}, align 1")
                    test = w.let(f"icmp ne i8 {flag}, 0")
                    yes, no, done = w.labels("then", "else", "done")
                    w.do(f"br i1 {test}, label %{yes}, label %{no}")
                    for label, inside in ((yes, then), (no, orelse)):
                        w.start(label)
                        self._branch(w, inside, depth)
                        w.do(f"br label %{done}")
                    w.start(done)
                case Force(thunk):
                    at = self.flags + thunk
                    flag = w.let(f"getelementptr inbounds i8, ptr %work, i64 {at}")
                    was = w.let(f"load i8, ptr {flag}, align 1")
                    new = w.let(f"icmp eq i8 {was}, 0")
                    run, done = w.labels("force", "forced")
                    w.do(f"br i1 {new}, label %{run}, label %{done}")
                    w.start(run)
                    w.do(f"store i8 1, ptr {flag}, align 1")
                    self._needed(w, self.program.thunks[thunk])
                    w.do(f"br label %{done}")
                    w.start(done)

    def _branch(self, w: LlvmWriter, region: int, depth: int) -> None:
        """A branch: written here if it is small, otherwise called."""
        if depth < NESTED and len(self.program.regions[region]) <= self.room:
            self._steps(w, region, 0, MAX_STEPS_PER_FUNCTION, depth + 1)
        else:
            self._needed(w, region)

    def _needed(self, w: LlvmWriter, region: int) -> None:
        """Calls a region that is a separate function."""
        self.called[region] = None
        self._call(w, f"r{region}")

    def _leave(self, w: LlvmWriter, when: str, code: str) -> None:
        fail, on = w.labels("fail", "on")
        w.do(f"br i1 {when}, label %{fail}, label %{on}")
        w.start(fail)
        w.do(f"ret i64 {code}")
        w.start(on)

    def _chunks(self, w: LlvmWriter, step: Chunks, code: int) -> None:
        """Run kernels on rows of a number that is known later."""
        raise CompilerBug("There are chunks in a program whose sizes are all known.")

    def _size(self, w: LlvmWriter, of: Scalar) -> str:
        """The value of a term over the dims in this call."""
        raise CompilerBug("There are terms over dims in a program whose sizes are all known.")

    def _sizes_given(self, w: LlvmWriter, step: Launch) -> list[str]:
        """The open sizes that a launch gives to its kernel."""
        if own := self.program.kernels[step.kernel].dims:
            names = ", ".join(str(var.name) for var in own)
            raise CompilerBug(f"{step.source} has no size for {names} of its kernel.")
        return []

    def _bytes(self, w: LlvmWriter, slot: int) -> str:
        """How many bytes a slot has."""
        return str(self.program.slots[slot].bytes)

    def _temporary(self, w: LlvmWriter, slot: int) -> str:
        """Where a temporary is."""
        return w.let(f"getelementptr inbounds i8, ptr %work, i64 {self.plan.where[slot]}")

    def _pointer(self, w: LlvmWriter, number: int) -> str:
        slot = self.program.slots[number]
        if slot.space == "temporary":
            return self._temporary(w, number)
        entry = self.base[slot.space] + slot.index
        at = w.let(f"getelementptr inbounds ptr, ptr %table, i64 {entry}")
        whole = w.let(f"load ptr, ptr {at}")
        if not slot.offset:
            return whole
        return w.let(f"getelementptr inbounds i8, ptr {whole}, i64 {slot.offset}")
