"""Sources: a model as two files of C99, which take their memory and weights along.

    model.h     one function, which takes the inputs and the outputs
    model.c     the code, its weights as constants (`.rodata`, or flash), and one static arena

Nothing is allocated and nothing is called but functions of `math.h`.  Words of several bytes are
written as they lie on a machine with the lowest byte first.

>>> print("\\n".join(_constant("weights", b"\\1\\2\\3")))
static const union { unsigned long long words[1]; unsigned char bytes[8]; } weights = {{
  0x30201ULL,
}};
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from plica.runtime.archive import destination, write
from plica.runtime.artefact import Artefact
from plica.runtime.c_interface import c_dims, c_parameters, check_header, checked_word, header_text
from plica.runtime.error import Diagnostic, UnsupportedError

FLAGS: Final = "-std=c99 -O2 -ffp-contract=off -fno-strict-aliasing"
"""The required compiler flags: memory is reused for values of other types."""

_WORDS_A_LINE: Final = 6


def export_source(
    artefact: Artefact, path: str | os.PathLike[str], name: str | None = None
) -> None:
    """Writes `path`, which ends with `.c`, and its header."""
    target = Path(path)
    destination(target)
    word = checked_word(name if name is not None else target.stem)
    header = f"{target.stem}.h"
    check_header(target.with_name(header), static=True)
    texts = source_files(artefact, word, header)
    write(target, texts[0].encode())
    write(target.with_name(header), texts[1].encode())


def source_files(artefact: Artefact, word: str, header: str) -> tuple[str, str]:
    """The texts of the two files, the header last."""
    if not artefact.text or artefact.device is not None or c_dims(artefact):
        message = "Only what was compiled to C is written as C."
        hint = "Compile the model with target='c', or export a library (.so)."
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, "target 'c'", str(artefact.machine), hint)
        )
    entry = f"{word}_main"
    constants = [
        line
        for number, constant in enumerate(artefact.constants)
        for line in _constant(f"{word}_c{number}", constant.tobytes())
    ]
    names, params = c_parameters(artefact)
    places = [f"(void *){name}" for name in names]
    places += [f"(void *){word}_c{number}.bytes" for number in range(len(artefact.constants))]
    lines = [
        f"/* Compile with {FLAGS}.",
        "   A call writes to the one arena of this file: one call at a time. */",
        f'#include "{header}"',
        f"#define plica_main {entry}",
        artefact.text,
        *constants,
        "",
        f"static union {{ unsigned char bytes[{max(1, artefact.workspace)}]; "
        f"long long whole; double real; }} {word}_arena;",
        "",
        f"int64_t {word}({', '.join(params) or 'void'})",
        "{",
        f"  void *table[] = {{{', '.join([*places, f'{word}_arena.bytes'])}}};",
        f"  return {entry}(table);",
        "}",
        "",
    ]
    return "\n".join(lines), header_text(artefact, word, static=True)


def _constant(name: str, data: bytes) -> Sequence[str]:
    """The bytes of a constant in words, which compilers read faster than bytes."""
    whole = data + bytes(-len(data) % 8)
    words = [f"{each:#x}ULL," for each in np.frombuffer(whole, "<u8").tolist()]
    lines = [
        "  " + " ".join(words[at : at + _WORDS_A_LINE])
        for at in range(0, len(words), _WORDS_A_LINE)
    ]
    head = f"unsigned long long words[{len(words)}]; unsigned char bytes[{len(whole)}];"
    return [f"static const union {{ {head} }} {name} = {{{{", *lines, "}};"]
