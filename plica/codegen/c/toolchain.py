"""The C compiler of the system: text in, an object file out.

`PLICA_CC` names another one than `cc`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Final

from plica.runtime.error import Diagnostic, UnsupportedError

OWN_POWERS: Final = ("-fno-builtin-pow", "-fno-builtin-powf")
"""Powers are those of `math.h`: GCC's own `pow(x, 0.5)` of vectors differs for -inf and -0.0."""

FLAGS: Final = (
    # Memory that is never read, or unused in a part of a loop, is no mistake.
    "-std=c99", "-Wall", "-Werror", "-Wno-unused-variable", "-Wno-unused-but-set-variable",
    "-ffp-contract=off",
    "-O2", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-fno-strict-aliasing",
    "-fno-stack-protector", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables",
    *OWN_POWERS,
)  # fmt: skip
"""Memory is reused for values of other types, so strict aliasing must be off."""


def _asked() -> str:
    return os.environ.get("PLICA_CC", "cc")


def missing() -> str:
    """What to install if there is no C compiler."""
    if shutil.which(_asked()) is not None:
        return ""
    return f"There is no {_asked()} here: apt-get install gcc, or name a C compiler in PLICA_CC."


def compiler() -> str:
    """The C compiler; refuses a machine that has none."""
    if (found := shutil.which(expected := _asked())) is None:
        message, hint = "There is no C compiler.", "Install one, or name it in PLICA_CC."
        raise UnsupportedError(Diagnostic("no-toolchain", message, None, expected, "none", hint))
    return found


def version() -> str:
    """The version of the compiler."""
    return _said(compiler(), "--version")


def triple() -> str:
    """The machine that the compiler makes code for."""
    return _said(compiler(), "-dumpmachine")


@lru_cache(maxsize=8)
def _said(path: str, option: str) -> str:
    """The first line of the compiler's output for an option."""
    done = subprocess.run([path, option], capture_output=True, text=True, check=False)
    return (done.stdout.splitlines() or [""])[0]


def emit(text: str) -> bytes:
    """The object file of a C text."""
    with tempfile.TemporaryDirectory() as folder:
        source, path = Path(folder) / "program.c", Path(folder) / "program.o"
        source.write_text(text, encoding="utf-8")
        command = [compiler(), *FLAGS, "-c", str(source), "-o", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines()[:6]
            message, found = "The C compiler refuses a program.", " / ".join(said)
            raise UnsupportedError(Diagnostic("toolchain", message, None, "an object", found))
        return path.read_bytes()
