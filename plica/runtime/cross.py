"""Cross: libraries and programs for other kinds of Linux machines, and QEMU that runs them here.

>>> CROSS["aarch64"].emulator, CROSS["armv7"].compiler
('qemu-aarch64', 'arm-linux-gnueabihf-gcc')
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Final

from plica.runtime.artefact import Artefact, to_members
from plica.runtime.c_interface import c_parameters, header_text, wrapper_text
from plica.runtime.device_executable import DeviceExecutable
from plica.runtime.emulated import EmulatedModel, check_tool, emulated_executable
from plica.runtime.error import ArtefactError, Diagnostic, UnsupportedError

WORD: Final = "model"
_SCRIPT: Final = 4096  # bytes that no script for a linker is longer than


@dataclass(frozen=True, slots=True)
class CrossTools:
    """Who links for an architecture, who runs its programs, and the packages that hold them."""

    compiler: str
    emulator: str
    package: str
    processor: str  # what QEMU calls a processor that has all it can
    lacks: tuple[str, ...] = ()  # how the names of features begin that QEMU has on no processor

    def unknown(self, features: Sequence[str]) -> list[str]:
        """Those of some features that QEMU does not have."""
        return [
            feature[1:]
            for feature in features
            if feature.startswith("+") and feature[1:].startswith(self.lacks)
        ]


CROSS: Final[dict[str, CrossTools]] = {
    architecture: CrossTools(
        f"{prefix}-gcc", f"qemu-{emulator}",
        f"gcc-{prefix.replace('_', '-')} libc6-dev-{libc}-cross qemu-user", most, lacks,
    )
    for architecture, prefix, emulator, libc, most, lacks in (
        ("x86_64", "x86_64-linux-gnu", "x86_64", "amd64", "max",
         ("avx512", "avx10", "avxvnni", "amx")),
        ("aarch64", "aarch64-linux-gnu", "aarch64", "arm64", "max", ()),
        ("riscv64", "riscv64-linux-gnu", "riscv64", "riscv64", "rv64,v=true,vext_spec=v1.0", ()),
        ("armv7", "arm-linux-gnueabihf", "arm", "armhf", "max", ()),
    )
}  # fmt: skip
"""The tools of each architecture, by LLVM's name of it."""


def cross_tools_missing(architecture: str) -> str:
    """What code for another architecture needs to run here and is not here."""
    if (tools := CROSS.get(architecture)) is None:
        return f"Nothing here runs code for {architecture}."
    for each in (tools.compiler, tools.emulator):
        if shutil.which(each) is None:
            return f"There is no {each} here: apt-get install {tools.package}."
    return ""


def cross_lacking(architecture: str, features: Sequence[str]) -> str:
    """Which of a processor's features QEMU does not have."""
    unknown = CROSS[architecture].unknown(features)
    return f"QEMU's user mode has no {', '.join(unknown)}." if unknown else ""


def check_cross(triple: str) -> None:
    """Refuse a kind of machine that nothing here runs code of."""
    if triple.partition("-")[0] not in CROSS or "linux" not in triple:
        message, expected = f"Code for {triple} cannot run on this machine.", ", ".join(CROSS)
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, triple))


def emulated(
    artefact: Artefact, texts: Mapping[str, Callable[[], str]] | None = None, cpu: str = ""
) -> DeviceExecutable:
    """An artefact for another kind of machine, run in QEMU's user mode as a processor of it."""
    return emulated_executable(emulated_model(artefact, cpu), artefact, texts or {})


def emulated_model(artefact: Artefact, cpu: str = "") -> EmulatedModel:
    """The program of an artefact in QEMU's user mode, linked at the first call."""
    tools = CROSS[artefact.machine.architecture]
    program: list[bytes] = []

    def made() -> bytes:
        if unknown := tools.unknown(artefact.machine.features):
            message = "The artefact uses instructions that QEMU's user mode does not have."
            hint = "Save it, and load it on a machine that has them."
            has, lacks = str(artefact.machine), ", ".join(unknown)
            raise ArtefactError(Diagnostic("other-machine", message, None, has, lacks, hint))
        if not program:
            program.append(linked_program(artefact))
        return program[0]

    command = [tools.emulator, "-cpu", cpu or tools.processor, "./program"]
    return EmulatedModel(artefact, made, command, tools.package)


def linked_program(artefact: Artefact) -> bytes:
    """A single-file program that reads `inputs.bin`, runs the model, and writes `outputs.bin`: the
    model's status, the minimum nanoseconds over a given number of runs, and the outputs."""
    tools = CROSS[artefact.machine.architecture]
    check_tool(tools.compiler, tools.package)
    with tempfile.TemporaryDirectory(prefix="plica-") as name:
        folder = Path(name)
        write_parts(artefact, WORD, folder)
        (folder / "main.c").write_text(_main_text(artefact), encoding="utf-8")
        objects = [f"{number}.o" for number in range(len(artefact.objects))]
        done = subprocess.run(
            [tools.compiler, "-std=gnu11", "-O1", "-static", "main.c", "wrapper.c", *objects,
             *mathematics(tools.compiler), "-lpthread", "-o", "program"],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            message = "The C compiler could not link the program."
            found = "\n".join(done.stderr.strip().splitlines()[-3:])
            raise ArtefactError(Diagnostic("missing-tool", message, found=found))
        return (folder / "program").read_bytes()


@lru_cache(maxsize=8)
def mathematics(compiler: str) -> tuple[str, ...]:
    """The words that link a static library of mathematics.

    A linker script may name files by their path on the target machine (Debian's for x86-64 does):
    the compiler is asked for their location here.
    """
    script = Path(_file(compiler, "libm.a"))
    with script.open("rb") if script.is_file() else BytesIO() as file:
        text = b"" if (head := file.read(_SCRIPT)).startswith(b"!<arch>") else head
    named = [Path(each.decode()) for each in re.findall(rb"/\S+\.a\b", text)]
    if all(each.is_file() for each in named):
        return ("-lm",)
    found = [str(each) if each.is_file() else _file(compiler, each.name) for each in named]
    return ("-Wl,--start-group", *found, "-Wl,--end-group")


def _file(compiler: str, name: str) -> str:
    """Where a compiler has a file; the name itself where it has none."""
    asked = [compiler, f"-print-file-name={name}"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def write_parts(artefact: Artefact, word: str, folder: Path) -> None:
    """Writes the sources of a library or program: objects, weights, the function in C."""
    (folder / f"{word}.h").write_text(header_text(artefact, word), encoding="utf-8")
    (folder / "wrapper.c").write_text(wrapper_text(artefact, word), encoding="utf-8")
    params = to_members(artefact, with_record=False)["params.bin"]
    (folder / "params.bin").write_bytes(params or b"\0")
    for number, each in enumerate(artefact.objects):
        (folder / f"{number}.o").write_bytes(each)


def _main_text(artefact: Artefact) -> str:
    interface = artefact.interface
    names, params = c_parameters(artefact)
    ports = (*interface.inputs, *interface.outputs)
    sizes = [prod(port.shape) * port.numpy.itemsize for port in ports]
    count = len(interface.inputs)
    lines = [
        "#include <stdio.h>",
        "#include <stdlib.h>",
        "#include <time.h>",
        f'#include "{WORD}.h"',
        "int main(int words, char **word) {",
        "  long repeats = words > 1 ? atol(word[1]) : 1;",
    ]
    lines += ['  FILE *file = fopen("inputs.bin", "rb");', "  if (!file) return 2;"]
    for name, size, declared in zip(names, sizes, params, strict=True):
        kind = declared.removeprefix("const ").partition(" *")[0]
        lines.append(f"  {kind} *{name} = calloc({max(1, size)}, 1);")
    lines += [
        f"  if (fread({name}, 1, {size}, file) != {size}) return 3;"
        for name, size in zip(names[:count], sizes[:count], strict=True)
    ]
    lines += [
        "  int64_t said[2] = {0, INT64_MAX};",
        "  for (; repeats > 0 && !said[0]; repeats--) {",
        "    struct timespec begin, end;",
        "    clock_gettime(CLOCK_MONOTONIC, &begin);",
        f"    said[0] = {WORD}({', '.join([*names, '0'])});",
        "    clock_gettime(CLOCK_MONOTONIC, &end);",
        "    int64_t took = (end.tv_sec - begin.tv_sec) * 1000000000LL;",
        "    took += end.tv_nsec - begin.tv_nsec;",
        "    said[1] = took < said[1] ? took : said[1];",
        "  }",
        '  file = fopen("outputs.bin", "wb");',
        "  fwrite(said, 1, sizeof said, file);",
    ]
    lines += [
        f"  fwrite({name}, 1, {size}, file);"
        for name, size in zip(names[count:], sizes[count:], strict=True)
    ]
    return "\n".join([*lines, "  return fclose(file);", "}", ""])
