"""The fold of dynamic programs: each routine becomes one LLVM function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from plica.codegen.dynamic.program import DynamicProgram, KernelCall
from plica.codegen.llvm.dynamic.convention import name_of, passed, word_at
from plica.codegen.llvm.dynamic.routine import RoutineEmitter
from plica.codegen.llvm.dynamic.support import has_tail_calls, meta, text
from plica.codegen.llvm.fold import kernel_text, module_text
from plica.codegen.llvm.region import Callee
from plica.codegen.llvm.writer import LlvmWriter
from plica.codegen.target import Target
from plica.runtime.dynamic import state

NEVER: Final = -1  # the count of what is not counted


def routines_text(program: DynamicProgram, callees: Sequence[Callee], target: Target) -> str:
    """A module of all routines; kernels are in modules of their own."""
    both = zip(program.kernels, callees, strict=True)
    declared = {callee.name: callee.declared(kernel) for kernel, callee in both}
    head = f'target triple = "{target.triple}"'
    return "\n".join([head, *declared.values(), *_routines(program, callees, target)])


def whole_text(
    program: DynamicProgram, target: Target, contract: bool = False, signless: bool = False
) -> str:
    """One module of the routines and the kernels."""
    texts = [
        kernel_text(program.kernels[number], None, f"k{number}", target, contract, signless)
        for number in range(len(program.kernels))
    ]
    callees = [Callee(f"k{number}", each.can_fail) for number, each in enumerate(texts)]
    return module_text(texts, _routines(program, callees, target), target, contract)


def _routines(program: DynamicProgram, callees: Sequence[Callee], target: Target) -> list[str]:
    """All but the kernels."""
    folding = _Folding(program, callees, has_tail_calls(target.triple))
    functions = [folding.function(number) for number in range(len(program.routines))]
    nullary = [
        f"@plica.tag.{tag} = internal constant [2 x i64] [i64 {NEVER}, i64 {meta(16, 0, tag)}]"
        for tag in sorted(folding.tags)
    ]
    return [*nullary, *functions, folding.entry(), text()]


def launches(program: DynamicProgram) -> tuple[KernelCall, ...]:
    """Every call of a kernel, in the order in which failures are numbered."""
    return tuple(
        [
            step
            for routine in program.routines
            for region in routine.regions
            for step in region.steps
            if isinstance(step, KernelCall)
        ]
    )


class _Folding:
    """A program, and what its routines refer to."""

    def __init__(self, program: DynamicProgram, callees: Sequence[Callee], jumps: bool) -> None:
        self.program = program
        self.callees = callees
        self.jumps = jumps
        self.tags: set[int] = set()
        self.codes: Mapping[int, int] = {
            id(step): number for number, step in enumerate(launches(program))
        }

    def code_of(self, step: KernelCall) -> int:
        """The code that says in which call of a kernel an index was outside: after failures."""
        return 1 + len(self.program.failures) + self.codes[id(step)]

    def function(self, number: int) -> str:
        """One routine."""
        return RoutineEmitter(self, number).text()

    def entry(self) -> str:
        """What runs the main routine on the arguments of a call."""
        main = self.program.routines[self.program.entry]
        w = LlvmWriter()
        args, results = (
            w.let(f"load ptr, ptr {word_at(w, '%state', word)}, align 8")
            for word in (state.ARGS, state.RESULTS)
        )
        others = w.let(f"getelementptr ptr, ptr {results}, i64 1")
        given = []
        for number in range(main.params):
            at = w.let(f"getelementptr ptr, ptr {args}, i64 {number}")
            given.append(w.let(f"load ptr, ptr {at}, align 8"))
        listed = passed(w, others, given)
        made = w.let(f"call tailcc ptr @{name_of(self.program, self.program.entry)}({listed})")
        if main.results:
            w.do(f"store ptr {made}, ptr {results}, align 8")
        w.do("ret void")
        head = "define internal void @plica.begin(ptr %state) noinline nounwind {"
        return "\n".join([head, "entry:", *w.lines, "}"])
