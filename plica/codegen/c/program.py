"""Programs in C99: one file, whose only function that others see is the entry.

long long plica_main(void **table)      inputs, outputs, constants, and the workspace last
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from plica.codegen.c.dialect import HEAD, helpers
from plica.codegen.c.kernel import SCRATCH, function
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.program import Choose, Chunks, Copy, Force, Launch, Program, Space, kernel_name
from plica.core import CompilerBug

ENTRY: Final = "plica_main"

NarrowParams: TypeAlias = Mapping[int, frozenset[int]]
"""The numbers of parameters, by the numbers of kernels."""

_SPACES: Final[tuple[Space, ...]] = ("input", "output", "constant")


def fold(program: Program, plan: WorkspacePlan, narrow: NarrowParams | None = None) -> str:
    """The C text of a program without open sizes; with `narrow`, one of which one call runs at a
    time, and whose kernels take tables of bytes for those parameters."""
    overlap = {
        step.kernel
        for steps in program.regions
        for step in steps
        if isinstance(step, Launch)
        and len({_pointer(slot, program, plan) for slot in step.args}) < len(step.args)
    }
    static, none = narrow is not None, frozenset[int]()
    kernels = [
        function(
            kernel,
            kernel_name(number, program),
            number not in overlap,
            static,
            (narrow or {}).get(number, none),
        )
        for number, kernel in enumerate(program.kernels)
    ]
    regions = _regions(program, plan)
    used = frozenset[str]().union(*[text.helpers for text in kernels])
    if any(isinstance(step, Copy) for steps in program.regions for step in steps):
        used |= {"p_copy"}
    room = max([text.scratch for text in kernels], default=0)
    scratch = [f"static union {{ unsigned char bytes[{room}]; long long whole; }} {SCRATCH};\n"]
    return "\n".join([
        HEAD, helpers(used), *(scratch if room else ()), *[text.text for text in kernels], *regions
    ])  # fmt: skip


def _regions(program: Program, plan: WorkspacePlan) -> list[str]:
    """The functions that launch kernels, the entry last; all are declared before."""
    code = 0
    parts: list[str] = []
    for number, steps in enumerate(program.regions):
        lines = [f"static long long r{number}(void **table, unsigned char *work) {{"]
        lines += ["  (void)table, (void)work;"]
        for step in steps:
            if isinstance(step, Launch):
                code += 1
            lines += [f"  {line}" for line in _step(step, code, program, plan)]
        parts.append("\n".join([*lines, "  return 0;", "}", ""]))
    heads = [
        f"static long long r{number}(void **table, unsigned char *work);"
        for number in range(len(program.regions))
    ]
    workspace = sum(len(program.space(space)) for space in _SPACES)
    entry = [
        f"long long {ENTRY}(void **table);",
        f"long long {ENTRY}(void **table) {{",
        f"  unsigned char *work = (unsigned char *)table[{workspace}];",
        *[f"  work[{plan.flags + thunk}] = 0;" for thunk in range(len(program.thunks))],
        f"  return r{program.entry}(table, work);",
        "}",
        "",
    ]
    return [*heads, "", *parts, "\n".join(entry)]


def _step(step: object, code: int, program: Program, plan: WorkspacePlan) -> list[str]:
    """The lines of one step; a launch that fails gives back its number."""
    match step:
        case Launch(kernel, args, _) if not isinstance(step, Chunks):
            given = ", ".join([_pointer(slot, program, plan) for slot in args])
            return [f"if ({kernel_name(kernel, program)}({given})) return {code};"]
        case Copy(source, target):
            to, of = _pointer(target, program, plan), _pointer(source, program, plan)
            return [f"p_copy({to}, {of}, {program.slots[source].bytes}ULL);"]
        case Choose(condition, then, orelse):
            test = f"*(const unsigned char *){_pointer(condition, program, plan)}"
            return [f"if ({test}) {{", *_call(then), "} else {", *_call(orelse), "}"]
        case Force(thunk):
            flag = f"work[{plan.flags + thunk}]"
            return [f"if (!{flag}) {{", f"  {flag} = 1;", *_call(program.thunks[thunk]), "}"]
        case _:
            raise CompilerBug("There are chunks in a program whose sizes are all known.")


def _call(region: int) -> list[str]:
    return [f"  const long long code = r{region}(table, work);", "  if (code) return code;"]


def _pointer(number: int, program: Program, plan: WorkspacePlan) -> str:
    """Where a slot is; the type is that of the parameter it is given for."""
    slot = program.slots[number]
    if slot.space == "temporary":
        return f"(void *)(work + {plan.where[number]})"
    before = _SPACES.index(slot.space)
    base = sum(len(program.space(space)) for space in _SPACES[:before])
    whole = f"table[{base + slot.index}]"
    return whole if not slot.offset else f"(void *)((unsigned char *){whole} + {slot.offset})"
