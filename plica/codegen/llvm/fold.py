"""The fold: a program and its memory plan become one LLVM module.

    i64 main(void **table)        inputs, outputs, constants, and the workspace last

Kernels are internal functions called directly.  The result is 0, or the number of the launch
(counted from 1) in which an index was outside its tensor.  Nothing here depends on anything but
the arguments: the same program gives the same text.
"""

from __future__ import annotations

from collections.abc import Sequence

from plica.codegen.llvm import helper
from plica.codegen.llvm.kernel import Text, emit
from plica.codegen.llvm.writer import Writer, declarations
from plica.codegen.program import Choose, Copy, Force, Launch, Plan, Program, Step
from plica.codegen.target import Target

ENTRY = "plica_main"


def fold(program: Program, plan: Plan, target: Target) -> str:
    """The LLVM text of a program."""
    kernels = [
        emit(kernel, _name(number, program)) for number, kernel in enumerate(program.kernels)
    ]
    functions = {name: signature for each in kernels for name, signature in each.functions}
    helpers = sorted({name for each in kernels for name in each.helpers})
    for name in helper.needs(helpers, target.has_half):
        kind = "float" if name.endswith("f32") else "double"
        params = (kind, kind) if "copysign" in name else (kind,)
        functions[name] = ("i32" if ".sat.i32" in name else kind, params)
    bodies = _Bodies(program, plan, kernels)
    parts = [
        f'target triple = "{target.triple}"',
        *declarations(functions),
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
        *helper.texts(helpers, target.has_half),
        *("\n".join(each.lines) for each in kernels),
        *bodies.functions(),
    ]
    return "\n".join(parts) + "\n"


def launches(program: Program) -> tuple[Launch, ...]:
    """Every launch in the order in which failures are numbered."""
    return tuple([s for steps in program.regions for s in steps if isinstance(s, Launch)])


def _name(number: int, program: Program) -> str:
    plain = "".join(c if c.isalnum() else "_" for c in program.names[number])
    return f"k{number}_{plain}"


class _Bodies:
    """The functions that launch kernels: one for the whole, one for each thunk."""

    def __init__(self, program: Program, plan: Plan, kernels: Sequence[Text]) -> None:
        self.program = program
        self.plan = plan
        self.kernels = kernels
        self.offsets = dict(plan.offsets)
        self.codes: dict[tuple[int, int], int] = {}
        for region, steps in enumerate(program.regions):
            for position, step in enumerate(steps):
                if isinstance(step, Launch):
                    self.codes[region, position] = len(self.codes) + 1
        counts = [len(program.space(space)) for space in ("input", "output", "constant")]
        self.base = {"input": 0, "output": counts[0], "constant": counts[0] + counts[1]}
        self.workspace = sum(counts)

    def functions(self) -> list[str]:
        """All of them, the entry last."""
        parts = []
        for number, region in enumerate(self.program.thunks):
            w = Writer()
            self._region(w, region)
            w.do("ret i64 0")
            head = f"define internal i64 @thunk{number}(ptr %table, ptr %work) optnone noinline"
            parts.append("\n".join([f"{head} nounwind {{", "entry:", *w.lines, "}"]))
        w = Writer()
        at = w.let(f"getelementptr inbounds ptr, ptr %table, i64 {self.workspace}")
        w.do(f"%work = load ptr, ptr {at}, align 8")
        if self.program.thunks:
            flags = w.let(f"getelementptr inbounds i8, ptr %work, i64 {self.plan.flags}")
            count = len(self.program.thunks)
            w.do(f"call void @llvm.memset.p0.i64(ptr {flags}, i8 0, i64 {count}, i1 false)")
        self._region(w, self.program.entry)
        w.do("ret i64 0")
        head = f"define i64 @{ENTRY}(ptr %table) optnone noinline nounwind"
        parts.append("\n".join([f"{head} {{", "entry:", *w.lines, "}"]))
        return parts

    def _region(self, w: Writer, root: int) -> None:
        """The steps of a region and of the branches inside it, without recursion."""
        stack: list[tuple[int, int] | tuple[str, str]] = []
        self._push(stack, root)
        while stack:
            first, second = stack.pop()
            if isinstance(first, str) or isinstance(second, str):
                w.do(f"br label %{first}")
                w.start(str(second))
                continue
            step = self.program.regions[first][second]
            if isinstance(step, Choose):
                yes, no, done = w.labels("then", "else", "done")
                flag = w.let(f"load i8, ptr {self._pointer(w, step.condition)}, align 1")
                test = w.let(f"icmp ne i8 {flag}, 0")
                w.do(f"br i1 {test}, label %{yes}, label %{no}")
                w.start(yes)
                stack.append((done, done))
                self._push(stack, step.orelse)
                stack.append((done, no))
                self._push(stack, step.then)
            else:
                self._step(w, step, self.codes.get((first, second), 0))

    def _push(self, stack: list[tuple[int, int] | tuple[str, str]], region: int) -> None:
        stack.extend((region, i) for i in reversed(range(len(self.program.regions[region]))))

    def _step(self, w: Writer, step: Step, code: int) -> None:
        match step:
            case Launch(kernel, args, _):
                pointers = ", ".join(f"ptr {self._pointer(w, slot)}" for slot in args)
                name = _name(kernel, self.program)
                if not self.kernels[kernel].can_fail:
                    w.do(f"call void @{name}({pointers})")
                    return
                failed = w.let(f"call i1 @{name}({pointers})")
                self._leave(w, failed, str(code))
            case Copy(source, target):
                size = self.program.slots[source].bytes
                to, of = self._pointer(w, target), self._pointer(w, source)
                w.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {of}, i64 {size}, i1 false)")
            case Force(thunk):
                place = self.plan.flags + thunk
                flag = w.let(f"getelementptr inbounds i8, ptr %work, i64 {place}")
                was = w.let(f"load i8, ptr {flag}, align 1")
                known = w.let(f"icmp ne i8 {was}, 0")
                run, done = w.labels("force", "forced")
                w.do(f"br i1 {known}, label %{done}, label %{run}")
                w.start(run)
                w.do(f"store i8 1, ptr {flag}, align 1")
                found = w.let(f"call i64 @thunk{thunk}(ptr %table, ptr %work)")
                bad = w.let(f"icmp ne i64 {found}, 0")
                self._leave(w, bad, found)
                w.do(f"br label %{done}")
                w.start(done)
            case Choose():
                raise AssertionError("a choice is opened where it is found")

    def _leave(self, w: Writer, when: str, code: str) -> None:
        fail, on = w.labels("fail", "on")
        w.do(f"br i1 {when}, label %{fail}, label %{on}")
        w.start(fail)
        w.do(f"ret i64 {code}")
        w.start(on)

    def _pointer(self, w: Writer, number: int) -> str:
        slot = self.program.slots[number]
        if slot.space == "temporary":
            return w.let(f"getelementptr inbounds i8, ptr %work, i64 {self.offsets[number]}")
        entry = self.base[slot.space] + slot.index
        at = w.let(f"getelementptr inbounds ptr, ptr %table, i64 {entry}")
        return w.let(f"load ptr, ptr {at}, align 8")
