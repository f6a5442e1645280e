"""Exporting: a shared library for programs in C, and whatever calls C, a header and an example.

    libmodel.so     one function, which takes the inputs, the outputs and a workspace
    model.h         its declaration
    model_example.c     a program that calls it once

A C compiler is needed to link the library, and none of Python to use it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from plica.runtime.archive import destination, write
from plica.runtime.artefact import ALIGNMENT, Artefact, ArtefactMachine, to_members
from plica.runtime.element import ELEMENTS
from plica.runtime.elf import header, parse
from plica.runtime.error import ArtefactError, Diagnostic, UnsupportedError
from plica.runtime.link import architecture
from plica.runtime.pool import MAKE, USE
from plica.runtime.port import Port

_WORDS: Final = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept
    const const_cast consteval constexpr constinit continue co_await co_return co_yield decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend
    goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq
    private protected public register reinterpret_cast requires restrict return short signed sizeof
    static static_assert static_cast struct switch template this thread_local throw true try typedef
    typeid typename typeof typeof_unqual union unsigned using virtual void volatile wchar_t while
    xor xor_eq linux unix i386
    main calloc malloc free printf fprintf stderr plica_main plica_params
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t
"""
WORDS: Final = frozenset(_WORDS.split())
"""The words of C and C++, and the names that the wrapper and the example use themselves."""

_LONGEST: Final = 600.0  # seconds


def export(
    artefact: Artefact,
    path: str | os.PathLike[str],
    name: str | None = None,
    libraries: Sequence[str] = (),
) -> None:
    """Write the library, and beside it the header and the example.

    `libraries` are those whose functions the model calls: whoever loads this one loads them, too.
    """
    library = Path(path)
    destination(library)
    word = identifier(name if name is not None else library.stem.removeprefix("lib"))
    if word in WORDS:
        message = f"A function of C cannot be named {word!r}."
        hint = "Name the library otherwise, or give another name."
        raise UnsupportedError(Diagnostic("unsupported", message, None, None, word, hint))
    compiler = _compiler(artefact)
    members = to_members(artefact, with_record=False)
    with tempfile.TemporaryDirectory(prefix="plica-") as folder:
        inside = Path(folder)
        (inside / f"{word}.h").write_text(header_text(artefact, word), encoding="utf-8")
        (inside / "wrapper.c").write_text(wrapper_text(artefact, word), encoding="utf-8")
        (inside / "params.bin").write_bytes(members["params.bin"] or b"\0")
        script = f"{{ global: {word}; {word}_threads; local: *; }};\n"
        (inside / "names.map").write_text(script, encoding="ascii")
        objects = []
        for number, each in enumerate(artefact.objects):
            (inside / f"{number}.o").write_bytes(each)
            objects.append(f"{number}.o")
        made = inside / "library.so"
        _run(
            [
                compiler,
                *("-std=gnu11", "-O1", "-shared", "-fPIC", "-o", made.name, "wrapper.c"),
                *objects,
                *("-Wl,--version-script=names.map", "-Wl,-z,nodelete", "-Wl,-z,noexecstack"),
                *("-Wl,--no-undefined", f"-Wl,-soname,{library.name}", "-lm", "-lpthread"),
                *dict.fromkeys(_linked(each) for each in libraries),
            ],
            inside,
        )
        write(library, made.read_bytes())
    write(library.with_name(f"{word}.h"), header_text(artefact, word).encode())
    write(library.with_name(f"{word}_example.c"), example_text(artefact, word).encode())


def _linked(library: str) -> str:
    """A library as the linker is told of it: a file by its path, another one by its name."""
    found = Path(library)
    return str(found.resolve()) if found.is_file() else f"-l:{library}"


def identifier(text: str) -> str:
    """A name C accepts."""
    plain = re.sub(r"\W", "_", text, flags=re.ASCII).strip("_")
    return plain if plain and not plain[0].isdigit() else f"model_{plain}".rstrip("_")


def header_text(artefact: Artefact, word: str) -> str:
    """The declaration of the function, for C and C++."""
    face = artefact.interface
    inputs = [f"   {name}: {port.type}" for name, port in _named(artefact)[: len(face.inputs)]]
    outputs = [f"   {name}: {port.type}" for name, port in _named(artefact)[len(face.inputs) :]]
    versions = ", ".join(f"{name} {version}" for name, version in artefact.versions)
    lines = [
        f"/* Made for {artefact.machine} ({versions}).",
        "",
        "   Inputs, with their elements in order of rows:",
        *(inputs or ["   none"]),
        "   Outputs:",
        *(outputs or ["   none"]),
        "*/",
        f"#ifndef PLICA_{word.upper()}_H",
        f"#define PLICA_{word.upper()}_H",
        "#include <stdint.h>",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"#define {word.upper()}_WORKSPACE {artefact.workspace + ALIGNMENT} /* bytes */",
        "",
        "/* Runs the model; any number of threads may call it at once.  `workspace` is memory for",
        "   one call at a time, or null: then the function takes memory itself.  The result is 0,",
        "   or -1 without memory, or the number of the launch that was given an index outside. */",
        f"{_signature(artefact, word)};",
        "",
        "/* How many threads share the work of a call from now on. */",
        f"void {word}_threads(int64_t count);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def wrapper_text(artefact: Artefact, word: str) -> str:
    """The function itself, around the entry of the code."""
    face = artefact.interface
    names = [f"(void *){name}" for name, _ in _named(artefact)]
    starts = []
    end = 0
    for each in artefact.constants:
        start = -(-end // ALIGNMENT) * ALIGNMENT
        starts.append(f"(void *)(plica_params + {start})")
        end = start + each.nbytes
    threads = (
        [f"    {USE}(count > 1 ? {MAKE}(count) : 0);"]
        if _has_pool(artefact.objects)
        else ["    (void)count; /* no loop of this model is parallel */"]
    )
    lines = [
        "#include <stdlib.h>",
        f'#include "{word}.h"',
        f"extern void *{MAKE}(int64_t);",
        f"extern void {USE}(void *);",
        "extern int64_t plica_main(void **);",
        "extern const unsigned char plica_params[];",
        f'__asm__(".section .rodata\\n.balign {ALIGNMENT}\\nplica_params:\\n"',
        '        ".incbin \\"params.bin\\"\\n.text\\n");',
        "",
        _signature(artefact, word),
        "{",
        "    void *own = 0;",
        "    if (!workspace) {",
        f"        own = malloc({artefact.workspace + ALIGNMENT});",
        "        if (!own)",
        "            return -1;",
        "        workspace = own;",
        "    }",
        f"    uintptr_t start = ((uintptr_t)workspace + {ALIGNMENT - 1})"
        f" & ~(uintptr_t){ALIGNMENT - 1};",
        f"    void *table[] = {{{', '.join([*names, *starts, '(void *)start'])}}};",
        "    int64_t result = plica_main(table);",
        "    free(own);",
        "    return result;",
        "}",
        "",
        f"void {word}_threads(int64_t count)",
        "{",
        *threads,
        "}",
        "",
        f"__attribute__((constructor)) static void {word}_begin(void)",
        "{",
        f"    {word}_threads({artefact.threads});",
        "}",
        "",
    ]
    assert len(face.inputs) + len(face.outputs) == len(names)
    return "\n".join(lines)


def example_text(artefact: Artefact, word: str) -> str:
    """A program that gives the function numbers, and prints the sums of what comes back."""
    count = len(artefact.interface.inputs)
    lines = [
        f"/* cc {word}_example.c -L. -l{word} -Wl,-rpath,'$ORIGIN' -o {word}_example",
        "   The rpath lets the program find the library beside itself. */",
        "#include <stdio.h>",
        "#include <stdlib.h>",
        f'#include "{word}.h"',
        "",
        "int main(void)",
        "{",
    ]
    for number, (name, port) in enumerate(_named(artefact)):
        kind, size = ELEMENTS[port.dtype].c, _size(port)
        lines.append(f"    {kind} *{name} = calloc({max(1, size)}, sizeof *{name});")
        if number < count and port.dtype in ("f32", "f64"):
            lines += [
                f"    for (int64_t i = 0; i < {size}; i++)",
                f"        {name}[i] = ({kind})(i % 7) / 7;",
            ]
    given = ", ".join([*(name for name, _ in _named(artefact)), "0"])
    lines += [
        f"    int64_t code = {word}({given});",
        "    if (code) {",
        '        fprintf(stderr, "failed with %lld\\n", (long long)code);',
        "        return 1;",
        "    }",
    ]
    for name, port in _named(artefact)[count:]:
        lines += [
            "    {",
            "        double sum = 0;",
            f"        for (int64_t i = 0; i < {_size(port)}; i++)",
            f"            sum += (double){name}[i];",
            f'        printf("{name} %.6g\\n", sum);',
            "    }",
        ]
    return "\n".join([*lines, "    return 0;", "}", ""])


def _signature(artefact: Artefact, word: str) -> str:
    count = len(artefact.interface.inputs)
    params = [
        f"{'const ' if number < count else ''}{ELEMENTS[port.dtype].c} *{name}"
        for number, (name, port) in enumerate(_named(artefact))
    ]
    return f"int64_t {word}({', '.join([*params, 'void *workspace'])})"


def _named(artefact: Artefact) -> list[tuple[str, Port]]:
    """The inputs and outputs, each with a name of its own that is no word of C."""
    found: dict[str, Port] = {}
    face = artefact.interface
    for prefix, ports in (("in", face.inputs), ("out", face.outputs)):
        for port in ports:
            name = f"{prefix}_{identifier(port.name)}"
            number = 1
            while name in found:
                number += 1
                name = f"{prefix}_{identifier(port.name)}_{number}"
            found[name] = port
    return list(found.items())


def _size(port: Port) -> int:
    count = 1
    for each in port.shape:
        count *= each
    return count


def _has_pool(objects: Sequence[bytes]) -> bool:
    return any(
        symbol.name == USE and symbol.section
        for each in objects
        if header(each).bits == 64
        for symbol in parse(each).symbols
    )


def _compiler(artefact: Artefact) -> str:
    if not artefact.machine.triple.partition("-")[2].count("linux"):
        message = "Libraries are made for Linux."
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, "linux", artefact.machine.triple)
        )
    wanted = os.environ.get("CC") or "cc"
    found = shutil.which(wanted)
    if found is None:
        message = "There is no C compiler, which links the library."
        hint = "Install one, or name it by the variable CC; an artefact (save) needs none."
        raise UnsupportedError(Diagnostic("missing-tool", message, None, "cc", wanted, hint))
    if artefact.machine.architecture != architecture():
        _check_cross(found, artefact.machine)
    return found


def _check_cross(compiler: str, machine: ArtefactMachine) -> None:
    """Refuse a C compiler that links for this kind of machine while another was meant."""
    done = subprocess.run(
        [compiler, "-dumpmachine"], capture_output=True, text=True, timeout=_LONGEST, check=False
    )
    makes = done.stdout.strip()
    if not makes or not machine.architecture.startswith(makes.partition("-")[0]):
        message = f"The C compiler links no library for {machine.triple}."
        hint = "Name one that does by the variable CC, or write an artefact (M.plica)."
        raise UnsupportedError(
            Diagnostic("missing-tool", message, None, machine.triple, makes or compiler, hint)
        )


def _run(words: Sequence[str], folder: Path) -> None:
    done = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, timeout=_LONGEST, check=False
    )
    if done.returncode:
        message = "The C compiler could not link the library."
        last = done.stderr.strip().splitlines()[-3:]
        raise ArtefactError(Diagnostic("missing-tool", message, found="\n".join(last)))
