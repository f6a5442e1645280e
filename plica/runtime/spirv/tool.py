"""Tools of SPIR-V: clang, and the translator between its code and modules, of one version.

They build modules; a driver without SPIR-V is given the translator's output.  Of a module an
artefact needs the functions that can be launched, its entry points:

module       ::= magic version generator bound 0 instruction*      words of 4 bytes
instruction  ::= (count of words, opcode) operand*                 15: an entry point
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from shutil import which
from typing import Final

import numpy as np

from plica.runtime.error import Diagnostic, UnsupportedError, damaged
from plica.runtime.opencl.device import missing as no_device

PACKAGE: Final = "apt-get install clang-15 llvm-spirv-15"
_VERSIONS: Final = tuple([f"-{number}" for number in range(22, 13, -1)])


def found_pair() -> tuple[str, str] | None:
    """A compiler and a translator of matching versions, or None."""
    for version in _VERSIONS:
        clang, translator = which(f"clang{version}"), which(f"llvm-spirv{version}")
        if clang and translator:
            return clang, translator
    return None


def pair() -> tuple[str, str]:
    """The same; refuses a machine without them."""
    if (found := found_pair()) is None:
        message, expected = "The compiler of SPIR-V is not here.", "clang and llvm-spirv"
        hint = f"Install it: {PACKAGE}."
        raise UnsupportedError(Diagnostic("no-toolchain", message, None, expected, "none", hint))
    return found


def missing() -> str:
    """The missing tools for building and running modules, with the command that installs them."""
    if found_pair() is None:
        return f"The compiler of SPIR-V is not here. Install it: {PACKAGE}."
    return no_device()


def done(command: Sequence[str], folder: Path) -> None:
    """Runs a tool; raises with its error output."""
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode:
        message = f"{Path(command[0]).name} refuses what was made."
        said = " / ".join((ran.stderr or ran.stdout).strip().splitlines()[:4])
        raise UnsupportedError(Diagnostic("toolchain", message, None, "no errors", said))


# --- modules of SPIR-V, as far as artefacts are concerned --------------------------------------


MAGIC: Final = 0x07230203
_HEAD_WORDS: Final = 5
_ENTRY_POINT: Final = 15


def entry_points(code: bytes) -> frozenset[str]:
    """The names of functions that can be launched; raises `ArtefactError` where it is no module."""
    if len(code) % 4 or len(code) < 4 * _HEAD_WORDS:
        raise damaged("The code is no module of SPIR-V.")
    words = np.frombuffer(code, "<u4")
    if int(words[0]) != MAGIC:
        raise damaged("The code is no module of SPIR-V.")
    found = set[str]()
    at = _HEAD_WORDS
    while at < len(words):
        count, opcode = int(words[at]) >> 16, int(words[at]) & 0xFFFF
        if not 0 < count <= len(words) - at:
            raise damaged("An instruction of the module ends outside of it.")
        if opcode == _ENTRY_POINT and count > 3:
            name, end, _ = words[at + 3 : at + count].tobytes().partition(b"\0")
            if not end:
                raise damaged("A name in the module has no end.")
            found.add(name.decode("utf-8", "replace"))
        at += count
    return frozenset(found)
