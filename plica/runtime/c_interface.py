"""The C interface of an artefact: texts of a header, of a function around the code, and an example.

A model with open sizes is one function for all sizes: its dims come first, as `int64_t`, and a
second function returns the sizes of the workspace, the inputs and the outputs.

>>> identifier("3d model")
'model_3d_model'
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from plica.runtime.artefact import ALIGNMENT, SIZES, Artefact
from plica.runtime.c_machine import UNSUPPORTED_STATUS, machine_check
from plica.runtime.element import ELEMENTS
from plica.runtime.elf import header, parse
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.interface import dims_of
from plica.runtime.link import MAKE, USE
from plica.runtime.open_executable import MAX_BYTES, TOO_LARGE
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
    main calloc malloc free printf fprintf stdin stdout stderr errno NULL EOF assert environ
    _start _init _fini plica_main plica_params
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t
"""
WORDS: Final = frozenset(_WORDS.split())
"""The words of C and C++, and the names that the wrapper and the example use themselves."""

_OWN: Final = (
    "workspace", "own", "start", "table", "result", "dims", "sizes", "wrong", "code", "i",
)  # fmt: skip
_MADE: Final = "/* Made for "
_THREADS: Final = "_threads(int64_t count)"
"""How headers begin, and what those of libraries declare."""

EXAMPLE: Final = 3  # the value of open sizes in the example, if the model accepts it


def identifier(text: str) -> str:
    """A name C accepts."""
    plain = re.sub(r"\W", "_", text, flags=re.ASCII).strip("_")
    return plain if plain and not plain[0].isdigit() else f"model_{plain}".rstrip("_")


def checked_word(text: str) -> str:
    """The name of a function of C that a text gives; words of C and functions of its library, which
    the function would replace in a whole program, are refused."""
    if (word := identifier(text)) in WORDS or _is_in_c_library(word):
        message = f"A function of C cannot be named {word!r}."
        expected = "a name that neither C nor its library has"
        hint = "Name the library otherwise, or give another name."
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, word, hint))
    return word


def _is_in_c_library(word: str) -> bool:
    """Whether the libraries of a running program define a name, as far as this system tells."""
    try:
        return hasattr(ctypes.CDLL(None), word)
    except (OSError, TypeError):  # Windows has no table of all names
        return False


def c_parameters(artefact: Artefact) -> tuple[list[str], list[str]]:
    """The names of inputs and outputs as parameters of C, and how they are declared."""
    count = len(artefact.interface.inputs)
    named = _named(artefact)
    return [name for name, _ in named], [
        f"{'const ' if number < count else ''}{ELEMENTS[port.dtype].c} *{name}"
        for number, (name, port) in enumerate(named)
    ]


def header_text(artefact: Artefact, word: str, static: bool = False) -> str:
    """The declaration of the function, for C and C++; `static` says that it has its own memory."""
    interface = artefact.interface
    inputs = [f"   {name}: {port.type}" for name, port in _named(artefact)[: len(interface.inputs)]]
    outputs = [
        f"   {name}: {port.type}" for name, port in _named(artefact)[len(interface.inputs) :]
    ]
    versions = ", ".join(f"{name} {version}" for name, version in artefact.versions)
    lines = [
        f"{_MADE}{artefact.machine} ({versions}).",
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
        *(_static_lines if static else _library_lines)(artefact, word),
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def check_header(path: Path, static: bool) -> None:
    """Refuse to write the header of a library over that of a source, and the other way round."""
    text = path.read_text("utf-8", "replace") if path.is_file() else ""
    if text.startswith(_MADE) and (_THREADS in text) == static:
        one, other = ("a source", "a library") if static else ("a library", "a source")
        message = f"{path.name} is the header of {other}, and {one} would have one of that name."
        hint = "Export it into another folder, or under another name."
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, "another name", str(path), hint)
        )


def _static_lines(artefact: Artefact, word: str) -> list[str]:
    """The function of a model that has its own memory."""
    return [
        f"#define {word.upper()}_ARENA {artefact.workspace} /* bytes of static memory */",
        "",
        "/* Runs the model, one call at a time.  The result is 0, or the number of the launch that",
        "   was given an index outside. */",
        f"int64_t {word}({', '.join(c_parameters(artefact)[1]) or 'void'});",
    ]


def _library_lines(artefact: Artefact, word: str) -> list[str]:
    """The functions of a library."""
    return [
        *_size_lines(artefact, word),
        "",
        "/* Runs the model; any number of threads may call it at once.  `workspace` is memory for",
        "   one call at a time, or null: then the function takes memory itself.  The result is 0,",
        f"   or -1 without memory, {UNSUPPORTED_STATUS} if the machine lacks instructions, or",
        "   the number of the launch that was given an index outside"
        + (f",\n   or what {word}_sizes says. */" if c_dims(artefact) else ". */"),
        f"{_signature(artefact, word)};",
        "",
        "/* How many threads share the work of a call from now on. */",
        f"void {word}{_THREADS};",
    ]


def _size_lines(artefact: Artefact, word: str) -> list[str]:
    """How large the workspace is; where sizes are open, the function that says it and them."""
    if not (dims := c_dims(artefact)):
        return [f"#define {word.upper()}_WORKSPACE {artefact.workspace + ALIGNMENT} /* bytes */"]
    ranges = [
        f"   {name} is {least} or more" + (f", {most} at most" if most is not None else "")
        for name, least, most in dims
    ]
    return [
        f"#define {word.upper()}_SIZES {size_count(artefact)}",
        "",
        "/* Writes these numbers: the bytes of the workspace, then the sizes of every axis of",
        "   the inputs, then of the outputs, in the order above.  The result is 0, or -2 where the",
        "   model has no value at these dims, or -3 where they are too large to compute with.",
        *ranges,
        "*/",
        f"int64_t {word}_sizes({', '.join([*_dim_params(artefact), 'int64_t *sizes'])});",
    ]


def wrapper_text(artefact: Artefact, word: str) -> str:
    """The function itself, around the entry of the code."""
    interface = artefact.interface
    names = [f"(void *){name}" for name, _ in _named(artefact)]
    dims = [name for name, _, _ in c_dims(artefact)]
    starts = []
    end = 0
    for constant in artefact.constants:
        start = -(-end // ALIGNMENT) * ALIGNMENT
        starts.append(f"(void *)(plica_params + {start})")
        end = start + constant.nbytes
    threads = (
        [f"    {USE}(count > 1 ? {MAKE}(count) : 0);"]
        if _has_pool(artefact.objects)
        else ["    (void)count; /* no loop of this model is parallel */"]
    )
    last = ["(void *)start", *(["(void *)dims"] if dims else [])]
    first, has = machine_check(artefact.machine.architecture, artefact.machine.features)
    lines = [
        "#include <stdlib.h>",
        *first.splitlines(),
        f'#include "{word}.h"',
        f"extern void *{MAKE}(int64_t);",
        f"extern void {USE}(void *);",
        "extern int64_t plica_main(void **);",
        *([f"extern void {SIZES}(int64_t *, int64_t *);"] if dims else []),
        "extern const unsigned char plica_params[];",
        f'__asm__(".section .rodata\\n.balign {ALIGNMENT}\\nplica_params:\\n"',
        '        ".incbin \\"params.bin\\"\\n.text\\n");',
        "",
        *(_sizes_function(artefact, word) if dims else []),
        f"static int {word}_fits(void) {{ return {has}; }}",
        "",
        _signature(artefact, word),
        "{",
        "    void *own = 0;",
        f"    if (!{word}_fits())",
        f"        return {UNSUPPORTED_STATUS};",
        *(_asked(artefact, word) if dims else []),
        "    if (!workspace) {",
        f"        own = malloc({'sizes[0]' if dims else artefact.workspace + ALIGNMENT});",
        "        if (!own)",
        "            return -1;",
        "        workspace = own;",
        "    }",
        f"    uintptr_t start = ((uintptr_t)workspace + {ALIGNMENT - 1})"
        f" & ~(uintptr_t){ALIGNMENT - 1};",
        f"    void *table[] = {{{', '.join([*names, *starts, *last])}}};",
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
        *(["    __builtin_cpu_init();"] if "__builtin_cpu" in has else []),
        f"    if ({word}_fits())",
        f"        {word}_threads({artefact.threads});",
        "}",
        "",
    ]
    assert len(interface.inputs) + len(interface.outputs) == len(names)
    return "\n".join(lines)


def _sizes_function(artefact: Artefact, word: str) -> list[str]:
    """The function that says how large everything is, and refuses dims that have no value."""
    dims = c_dims(artefact)
    outside = [f"{name} < {least}" for name, least, _ in dims]
    outside += [f"{name} > {most}" for name, _, most in dims if most is not None]
    outputs = 1 + sum(len(port.shape) for port in artefact.interface.inputs)
    return [
        f"int64_t {word}_sizes({', '.join([*_dim_params(artefact), 'int64_t *sizes'])})",
        "{",
        f"    int64_t dims[] = {{{', '.join(name for name, _, _ in dims)}}};",
        f"    if ({' || '.join(outside)})",
        "        return -2;",
        f"    {SIZES}(dims, sizes);",
        f"    if (sizes[0] == {TOO_LARGE} || sizes[0] >= {MAX_BYTES})",
        "        return -3;",
        f"    for (int i = {outputs}; i < {size_count(artefact)}; i++)",
        "        if (sizes[i] < 0)",
        "            return -2;",
        "    if (sizes[0] < 0)",
        "        return -2;",
        f"    sizes[0] += {ALIGNMENT};",
        "    return 0;",
        "}",
        "",
    ]


def _asked(artefact: Artefact, word: str) -> list[str]:
    """How a call begins where sizes are open."""
    names = ", ".join(name for name, _, _ in c_dims(artefact))
    return [
        f"    int64_t dims[] = {{{names}}}, sizes[{size_count(artefact)}];",
        f"    int64_t wrong = {word}_sizes({names}, sizes);",
        "    if (wrong)",
        "        return wrong;",
    ]


def example_text(artefact: Artefact, word: str) -> str:
    """A program that calls the function with numbers and prints the sums of the results."""
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
    dims = [name for name, _, _ in c_dims(artefact)]
    for name, least, most in c_dims(artefact):
        lines.append(f"    int64_t {name} = {max(least, min(EXAMPLE, most or EXAMPLE))};")
    if dims:
        lines += [
            f"    int64_t sizes[{word.upper()}_SIZES];",
            f"    if ({word}_sizes({', '.join(dims)}, sizes))",
            "        return 1;",
        ]
    counts = _counts(artefact)
    for number, (name, port) in enumerate(_named(artefact)):
        kind, size = ELEMENTS[port.dtype].c, counts[name]
        room = size if dims else max(1, int(size))
        lines.append(f"    {kind} *{name} = calloc({room}, sizeof *{name});")
        if number < count and port.dtype in ("f32", "f64"):
            lines += [
                f"    for (int64_t i = 0; i < {size}; i++)",
                f"        {name}[i] = ({kind})(i % 7) / 7;",
            ]
    given = ", ".join([*dims, *(name for name, _ in _named(artefact)), "0"])
    lines += [
        f"    int64_t code = {word}({given});",
        "    if (code) {",
        '        fprintf(stderr, "failed with %lld\\n", (long long)code);',
        "        return 1;",
        "    }",
    ]
    for name, _ in _named(artefact)[count:]:
        lines += [
            "    {",
            "        double sum = 0;",
            f"        for (int64_t i = 0; i < {counts[name]}; i++)",
            f"            sum += (double){name}[i];",
            f'        printf("{name} %.6g\\n", sum);',
            "    }",
        ]
    return "\n".join([*lines, "    return 0;", "}", ""])


def _signature(artefact: Artefact, word: str) -> str:
    whole = [*_dim_params(artefact), *c_parameters(artefact)[1], "void *workspace"]
    return f"int64_t {word}({', '.join(whole)})"


def c_dims(artefact: Artefact) -> list[tuple[str, int, int | None]]:
    """The open sizes: names that C accepts, the least and the most the model was made for."""
    ranges = {name: (least, most) for name, least, most in artefact.interface.ranges}
    taken = {*WORDS, *_OWN, *(name for name, _ in _named(artefact))}
    found: list[tuple[str, int, int | None]] = []
    for dim in dims_of(artefact.interface):
        name = identifier(dim.name)
        while name in taken:
            name = f"dim_{name}"
        taken.add(name)
        found.append((name, *ranges.get(dim.name, (0, None))))
    return found


def _dim_params(artefact: Artefact) -> list[str]:
    return [f"int64_t {name}" for name, _, _ in c_dims(artefact)]


def size_count(artefact: Artefact) -> int:
    """How many numbers the function that says sizes writes."""
    interface = artefact.interface
    return 1 + sum(len(port.shape) for port in (*interface.inputs, *interface.outputs))


def _counts(artefact: Artefact) -> dict[str, str]:
    """How many elements each input and output has, in C."""
    found: dict[str, str] = {}
    is_open, at = bool(c_dims(artefact)), 1
    for name, port in _named(artefact):
        axes = range(at, at + len(port.shape))
        at += len(port.shape)
        found[name] = (
            " * ".join(f"sizes[{axis}]" for axis in axes) or "1" if is_open else str(_size(port))
        )
    return found


def _named(artefact: Artefact) -> list[tuple[str, Port]]:
    """The inputs and outputs with unique names that are no C keywords."""
    found: dict[str, Port] = {}
    interface = artefact.interface
    for prefix, ports in (("in", interface.inputs), ("out", interface.outputs)):
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
