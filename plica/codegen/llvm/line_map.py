"""Line maps: the statement behind each line of a kernel's assembly, and behind each instruction.

`with_lines` gives LLVM text debug locations: lines of the kernel's printed text, which debuggers
and profilers read from the object (the option `debug` of a target).

>>> from plica.demo.cnn_script import cnn
>>> from plica.ir.text.script import as_module
>>> from plica.pipeline import lower, target_of
>>> kernel = lower(as_module(cnn)).program.kernels[0]
>>> lines = assembly_lines(kernel, target_of("cpu"))
>>> any(each.statement is not None for each in lines)
True
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from plica.codegen.backend import AnyTarget
from plica.codegen.llvm.fold import Text, alone, emit, traits_of
from plica.codegen.llvm.toolchain import assembly
from plica.codegen.llvm.writer import MARK
from plica.codegen.target import Target
from plica.ir.loop.statement import Kernel, Stmt, statements
from plica.ir.text.show.kernel import located_kernel
from plica.runtime.error import Diagnostic, UnsupportedError

NAME: Final = "kernel"

_LOC: Final = re.compile(r"\t\.loc\t\d+ (\d+) ")
_NO_CODE: Final = re.compile(
    r"\t\.(file|cfi_\w+|p2align|type|size|globl|hidden|text|section)\b"
    r"|\.L(tmp|func_|debug_|sec_end)"
)
_METADATA: Final = """\
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!1}
!0 = distinct !DICompileUnit(language: DW_LANG_C99, file: !2, emissionKind: FullDebug)
!1 = !{i32 2, !"Debug Info Version", i32 3}
!2 = !DIFile(filename: "FILE", directory: "FOLDER")
!3 = !DISubroutineType(types: !{})"""


@frozen(eq=False)
class AssemblyLine:
    """An instruction or a label, and the statement that it was written for, if any."""

    text: str
    statement: Stmt | None = None


def assembly_lines(
    kernel: Kernel, target: AnyTarget, contract: bool = False, signless: bool = False
) -> tuple[AssemblyLine, ...]:
    """The assembly of a kernel with the statement of each line; refused for non-processor
    targets."""
    if not isinstance(target, Target):
        message = "Only the assembly of processors is followed to statements."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "cpu", str(target)))
    order = tuple(dict.fromkeys(statements(kernel.body)))
    traits = evolve(traits_of(target, contract, signless), marks=order, open=bool(kernel.dims))
    text = emit(kernel, NAME, None, traits)
    numbers = range(1, len(order) + 1)
    located = evolve(text, lines=(*_located(text.lines, NAME, numbers), _METADATA))
    lines: list[AssemblyLine] = []
    number = 0
    for line in assembly(alone(located, NAME, target, contract), target).splitlines():
        if match := _LOC.match(line):
            number = int(match[1])
        elif line.startswith("\t.section\t.debug"):
            break
        elif line.strip() and not _NO_CODE.match(line):
            is_code = line.startswith("\t") and not line.startswith("\t.")
            statement = order[number - 1] if number and is_code else None
            lines.append(AssemblyLine(line.partition("#")[0].rstrip(), statement))
    return tuple(lines)


def with_lines(  # noqa: PLR0917  # as `kernel_text`
    kernel: Kernel,
    over: int | None,
    name: str,
    target: Target,
    contract: bool,
    signless: bool,
    label: str,
) -> Text:
    """The function of a kernel, whose instructions have the lines of its source file."""
    _, places = located_kernel(kernel, label)
    order = tuple(places)
    traits = evolve(traits_of(target, contract, signless), marks=order, open=bool(kernel.dims))
    text = emit(kernel, name, over, traits)
    folder = json.dumps(os.path.abspath(target.debug), ensure_ascii=False)
    end = _METADATA.replace("FILE", f"{label}.py").replace('"FOLDER"', folder)
    lines = _located(text.lines, label, [places[statement] for statement in order])
    return evolve(text, lines=(*lines, end))


def write_source(kernel: Kernel, label: str, target: Target) -> None:
    """Write the text of a kernel where its line table says it is."""
    path = Path(target.debug, f"{label}.py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{located_kernel(kernel, label)[0]}\n", encoding="utf-8")


def _located(lines: Sequence[str], name: str, numbers: Sequence[int]) -> Iterator[str]:
    """Lines of LLVM text with marks converted to debug locations, by the number of each mark; one
    scope per function."""
    metadata: list[str] = []
    scope = number = 0
    for line in lines:
        if line.startswith("define"):
            scope, number = len(metadata) + 4, 0
            metadata.append(
                f'!{scope} = distinct !DISubprogram(name: "{name}", file: !2, type: !3, unit: !0, '
                "spFlags: DISPFlagDefinition)"
            )
            yield f"{line.removesuffix('{')}!dbg !{scope} {{"
        elif line.startswith(MARK):
            number = numbers[int(line.removeprefix(MARK))]
        elif scope and line.startswith("  "):
            place = len(metadata) + 4
            metadata.append(f"!{place} = !DILocation(line: {number}, scope: !{scope})")
            yield f"{line}, !dbg !{place}"
        else:
            scope = 0 if line == "}" else scope
            yield line
    yield from metadata
