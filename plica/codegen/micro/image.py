"""Images: a model in C with what starts it on a bare machine, as one program for a board.

model.c, model.h     the model (`plica.runtime.c_source`): weights in flash, one arena
boot.c               vectors, memory, and a harness that reads inputs from a file and writes
                     outputs to one by semihosting: what an emulator or a debugger serves
board.ld             where flash and memory are
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Final

from attrs import frozen

from plica.codegen.c.toolchain import OWN_POWERS
from plica.codegen.micro.core import Core
from plica.core import fold_into
from plica.runtime.artefact import Artefact
from plica.runtime.c_interface import c_parameters
from plica.runtime.c_source import source_files
from plica.runtime.emulated import tool_output
from plica.runtime.error import Diagnostic, UnsupportedError

WORD: Final = "model"

OPTIONS: Final = (
    "-std=c99", "-O2", "-ffp-contract=off", "-fno-math-errno", "-fno-strict-aliasing",
    "-ffunction-sections", "-fdata-sections", "-fno-common",
    *OWN_POWERS,
)  # fmt: skip

UNKNOWN_STACK: Final = 512
"""Bytes of stack for a function that the compiler did not see: those of `math.h`."""

_BOOT: Final = """\
#include "model.h"
typedef unsigned int word;
#define PAINT 0xA5A5A5A5u
extern unsigned char __stack[], __stack_low[], __data[], __data_end[], __data_from[], __bss[],
    __bss_end[];

static int host(int what, volatile void *with);
static void run(void);

static word opened(const char *name, word length, word mode) {
  volatile word with[3] = {(word)(unsigned long)name, mode, length};
  return (word)host(1, with);
}
static void moved(int what, word file, const void *at, word bytes) {
  volatile word with[3] = {file, (word)(unsigned long)at, bytes};
  host(what, with);
}
static void leave(void) {
  volatile word with[2] = {0x20026u, 0};
  host(0x20, with);
  for (;;) { }
}

static void begin(void) {
  for (unsigned char *to = __data, *of = __data_from; to < __data_end;) *to++ = *of++;
  for (unsigned char *to = __bss; to < __bss_end;) *to++ = 0;
  for (word *to = (word *)__stack_low; to < (word *)__builtin_frame_address(0) - 32;) *to++ = PAINT;
  run();
  leave();
}
"""

_ARM: Final = """
static int host(int what, volatile void *with) {
  register int r0 __asm__("r0") = what;
  register volatile void *r1 __asm__("r1") = with;
  __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}
static void reset(void) {
#ifdef __ARM_FP
  *(volatile word *)0xE000ED88u |= 0xFu << 20;
#endif
  __asm__ volatile("dsb\\n isb" ::: "memory");
  begin();
}
__attribute__((section(".vectors"), used)) static void *const vectors[16] = {
  __stack, reset, leave, leave, leave, leave, leave, leave,
  leave, leave, leave, leave, leave, leave, leave, leave,
};
"""

_RISCV: Final = """
static int host(int what, volatile void *with) {
  register int a0 __asm__("a0") = what;
  register volatile void *a1 __asm__("a1") = with;
  __asm__ volatile(".balign 16\\n .option push\\n .option norvc\\n slli x0, x0, 0x1f\\n ebreak\\n"
                   "srai x0, x0, 7\\n .option pop" : "+r"(a0) : "r"(a1) : "memory");
  return a0;
}
__attribute__((used)) static void reset(void) { begin(); }
__attribute__((section(".vectors"), naked, used)) void entry(void) {
  __asm__ volatile(".option arch, +zicsr\\n la sp, __stack\\n la t0, trap\\n"
                   "csrw mtvec, t0\\n j reset");
}
__attribute__((aligned(4), used)) static void trap(void) { leave(); }
"""


@frozen
class SizeReport:
    """What a model takes on a machine, in bytes."""

    flash: int  # code, tables and functions of `math.h` that it calls, and weights
    weights: int
    arena: int  # static memory: the arena, and what kernels use one after the other
    stack: int  # no call of the model uses more: the deepest chain of its functions

    @property
    def ram(self) -> int:
        """All memory but that of inputs and outputs, which are the caller's."""
        return self.arena + self.stack

    def __str__(self) -> str:
        code = self.flash - self.weights
        return (
            f"flash {self.flash} (code {code}, weights {self.weights})\n"
            f"ram {self.ram} (arena {self.arena}, stack at most {self.stack})"
        )


@frozen
class Image:
    """A program for a board, and what it takes."""

    program: bytes
    size: SizeReport


def model_object(artefact: Artefact, core: Core, folder: Path) -> Path:
    """The model compiled for a core; the compiler writes who calls whom beside it."""
    source, header = source_files(artefact, WORD, f"{WORD}.h")
    (folder / f"{WORD}.c").write_text(source, encoding="utf-8")
    (folder / f"{WORD}.h").write_text(header, encoding="utf-8")
    _compile(core, folder, "-Wall", "-Werror", "-Wno-unused-variable",
             "-Wno-unused-but-set-variable", "-fcallgraph-info=su", "-c", f"{WORD}.c",
             "-o", f"{WORD}.o")  # fmt: skip
    return folder / f"{WORD}.o"


def image_of(artefact: Artefact, core: Core, folder: Path) -> Image:
    """The program that runs a model on the board of a core; refuses what does not fit."""
    weights = sum(constant.nbytes + -constant.nbytes % 8 for constant in artefact.constants)
    _check_fits(core, [("flash", weights, core.board.flash[1]),
                       ("ram", artefact.workspace, core.board.ram[1])])  # fmt: skip
    path = model_object(artefact, core, folder)
    special = _RISCV if core.name.startswith("rv32") else _ARM
    (folder / "boot.c").write_text(_BOOT + special + _run_text(artefact), encoding="utf-8")
    (folder / "board.ld").write_text(_linker_script(core), encoding="ascii")
    _compile(core, folder, "-c", "boot.c", "-o", "boot.o")
    said = _compile(
        core, folder, "-nostartfiles", "-T", "board.ld", "-Wl,--gc-sections", path.name, "boot.o",
        "-lm", "-lc", "-lgcc", "-o", "model.elf", may_fail=True,
    )  # fmt: skip
    if not (folder / "model.elf").is_file():
        over = re.findall(r"region `(\w+)' overflowed by (\d+) bytes", said)
        _check_fits(core, [(name.lower(), int(size), 0) for name, size in over])
        raise _refused(said)
    text, data, _ = _sizes(core, folder, "model.elf")
    boot, boot_data, _ = _sizes(core, folder, "boot.o")
    _, own, arena = _sizes(core, folder, path.name)
    graph = (folder / f"{WORD}.ci").read_text(encoding="utf-8")
    flash = text + data - boot - boot_data
    size = SizeReport(flash, weights, arena + own, stack_bound(graph, WORD))
    return Image((folder / "model.elf").read_bytes(), size)


def _check_fits(core: Core, wanted: Sequence[tuple[str, int, int]]) -> None:
    """Refuse what takes more than there is: the memory, bytes that are wanted, bytes of it.  A
    compiler takes minutes for weights that no board holds: they are asked first."""
    if over := [(name, size - most) for name, size, most in wanted if size > most]:
        message = f"The model does not fit into the memory of {core.board.machine}."
        found = ", ".join(f"{size} bytes too many for {name}" for name, size in over)
        limits = f"{core.board.flash[1]} bytes of flash, {core.board.ram[1]} of memory"
        raise UnsupportedError(Diagnostic("no-memory", message, None, limits, found))


def stack_bound(graph: str, entry: str) -> int:
    """The most bytes of stack below a function, by the call graph that the compiler wrote.

    >>> node = 'node: {{ title: "{0}" label: "{0}\\\\nm.c:1:1\\\\n{1} bytes (static)" }}'
    >>> edge = 'edge: { sourcename: "f" targetname: "g" }'
    >>> stack_bound("\\n".join([node.format("f", 8), node.format("g", 40), edge]), "f")
    48
    """
    own: dict[str, int] = {}
    calls: dict[str, list[str]] = {}
    for line in graph.splitlines():
        if line.startswith("node:"):
            (title,) = re.findall(r'title: "([^"]*)"', line)
            used = re.search(r"(\d+) bytes \(", line)
            own[title] = UNKNOWN_STACK if used is None else int(used[1])
        elif line.startswith("edge:"):
            (source,) = re.findall(r'sourcename: "([^"]*)"', line)
            (target,) = re.findall(r'targetname: "([^"]*)"', line)
            calls.setdefault(source, []).append(target)
    depth: dict[str, int] = {}

    def called(name: str) -> list[str]:
        return calls.get(name, [])

    def deepest(name: str) -> int:
        return own.get(name, UNKNOWN_STACK) + max([depth[each] for each in called(name)], default=0)

    return fold_into(depth, entry, called, deepest)


def _run_text(artefact: Artefact) -> str:
    """The function that reads inputs, runs the model and writes outputs."""
    interface = artefact.interface
    names, params = c_parameters(artefact)
    ports = (*interface.inputs, *interface.outputs)
    count = len(interface.inputs)
    sizes = [prod(port.shape) * port.numpy.itemsize for port in ports]
    kinds = [param.removeprefix("const ").partition(" *")[0] for param in params]
    lines = [
        f"static {kind} {name}[{max(1, prod(port.shape))}];"
        for kind, name, port in zip(kinds, names, ports, strict=True)
    ]
    lines += ["static int64_t said[2];", "static void run(void) {"]
    lines += ['  word file = opened("inputs.bin", 10, 1);']
    lines += [
        f"  moved(6, file, {name}, {size});"
        for name, size in zip(names[:count], sizes[:count], strict=True)
    ]
    lines += [
        f"  said[0] = {WORD}({', '.join(names)});",
        "  word *low = (word *)__stack_low;",
        "  while (*low == PAINT) ++low;",
        "  said[1] = __stack - (unsigned char *)low;",
        '  file = opened("outputs.bin", 11, 5);',
        "  moved(5, file, said, sizeof said);",
    ]
    lines += [
        f"  moved(5, file, {name}, {size});"
        for name, size in zip(names[count:], sizes[count:], strict=True)
    ]
    return "\n".join([*lines, "}", ""])


def _linker_script(core: Core) -> str:
    (flash, flash_size), (ram, ram_size) = core.board.flash, core.board.ram
    return f"""\
MEMORY
{{
  FLASH (rx) : ORIGIN = {flash:#x}, LENGTH = {flash_size:#x}
  RAM (rwx) : ORIGIN = {ram:#x}, LENGTH = {ram_size:#x}
}}
SECTIONS
{{
  .text : {{ KEEP(*(.vectors)) *(.text*) *(.rodata*) *(.srodata*) . = ALIGN(8); }} > FLASH
  .ARM.exidx : {{ *(.ARM.exidx*) }} > FLASH
  .data : {{ __data = .; *(.data*) *(.sdata*) . = ALIGN(8); __data_end = .; }} > RAM AT> FLASH
  __data_from = LOADADDR(.data);
  .bss (NOLOAD) : {{ __bss = .; *(.bss*) *(.sbss*) *(COMMON) . = ALIGN(8); __bss_end = .; }} > RAM
  __stack_low = __bss_end;
  end = __bss_end;
  __stack = ORIGIN(RAM) + LENGTH(RAM);
  ASSERT(__stack - __stack_low >= 0x1000, "region `RAM' overflowed by 4096 bytes")
}}
"""


def _sizes(core: Core, folder: Path, name: str) -> Sequence[int]:
    """Bytes of code and constants, of data and of what is zero at first."""
    tool = core.compiler.removesuffix("gcc") + "size"
    said = tool_output([tool, name], folder, package=core.package)
    text, data, zero = said.text.splitlines()[1].split()[:3]
    return int(text), int(data), int(zero)


def _compile(core: Core, folder: Path, *words: str, may_fail: bool = False) -> str:
    done = tool_output(
        [core.compiler, *core.options, *OPTIONS, *words], folder, package=core.package
    )
    if done.status and not may_fail:
        raise _refused(done.text)
    return done.text


def _refused(said: str) -> UnsupportedError:
    message, found = "The C compiler refuses a program.", " / ".join(said.splitlines()[:6])
    return UnsupportedError(Diagnostic("toolchain", message, None, "an image", found))
