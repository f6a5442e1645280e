"""The calling convention of routines, and their requirements on the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from plica.codegen.dynamic.program import DynamicProgram, KernelCall
from plica.codegen.llvm.region import Callee
from plica.codegen.llvm.writer import LlvmWriter
from plica.runtime.dynamic import state
from plica.runtime.error import Diagnostic, UnsupportedError

IN_REGISTERS: Final = 4  # the number of a routine's arguments in registers; see Note [Arguments]

# Note [Arguments]
# Every machine has registers for the state, the place of other results, and four more arguments.
# The rest goes through the state, and is fetched before anything else is done: a call in tail
# position that has arguments on the stack would have to move the frame of its caller, and LLVM 22
# forgets to write them.


class Folding(Protocol):
    """The program as seen by a routine."""

    program: DynamicProgram
    callees: Sequence[Callee]
    jumps: bool
    tags: set[int]

    def code_of(self, step: KernelCall) -> int:
        """The code that says in which call of a kernel an index was outside."""


def name_of(program: DynamicProgram, number: int) -> str:
    name = program.routines[number].name
    plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in name)
    return f"f{number}_{plain}"


def passed(w: LlvmWriter, others: str, values: Sequence[str]) -> str:
    """The arguments of a call; those that find no register are in the state."""
    for number, value in enumerate(values[IN_REGISTERS:]):
        w.do(f"store ptr {value}, ptr {word_at(w, '%state', state.MORE + number)}, align 8")
    if len(values) - IN_REGISTERS > state.ARGUMENTS:
        message = "A function needs too many values at once to be compiled."
        most = str(state.ARGUMENTS + IN_REGISTERS)
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, f"at most {most}", str(len(values)))
        )
    return ", ".join([f"ptr {each}" for each in ("%state", others, *values[:IN_REGISTERS])])


def word_at(w: LlvmWriter, base: str, word: int) -> str:
    return w.let(f"getelementptr i8, ptr {base}, i64 {8 * word}")
