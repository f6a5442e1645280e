"""The toolchain of WebAssembly: LLVM makes an object, and a linker of LLVM's makes a module of it.

`PLICA_WASM_LD` names another linker than those that are looked for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from plica.codegen.llvm.pool import WASM_THREADS
from plica.codegen.llvm.region import ENTRY
from plica.codegen.llvm.toolchain import emit_static
from plica.codegen.target import Target
from plica.runtime.error import Diagnostic, UnsupportedError

LINKERS: Final = ("wasm-ld", *[f"wasm-ld-{version}" for version in range(22, 13, -1)])
"""What LLVM's linker is called, by itself or with a version."""

INSTALL: Final = "apt-get install lld-14"

STACK_BYTES: Final = 1 << 22  # the stack: tiles of kernels lie there

FLAGS: Final = (
    "--no-entry", f"--export={ENTRY}", "--export=__heap_base", "--allow-undefined",
    "--stack-first", "-z", f"stack-size={STACK_BYTES}", "--strip-all",
)  # fmt: skip
"""A stack that grows too far leaves the memory at once, since it comes first."""


MAX_BYTES: Final = 1 << 31  # what a memory that is shared may grow to; engines set so much aside

SHARED: Final = (
    "--shared-memory", "--import-memory", f"--max-memory={MAX_BYTES}",
    "--export=__stack_pointer", "--export-if-defined=plica_threads",
    "--export-if-defined=plica_worker",
)  # fmt: skip
"""Threads are instances of one module with one memory, each with a stack of its own."""


def linker() -> tuple[str, ...]:
    """The words that call the linker; refuses a machine that has none."""
    if (found := _linker(os.environ.get("PLICA_WASM_LD", ""))) is None:
        message = "There is no linker for WebAssembly."
        hint = f"Install one ({INSTALL}, or pip install ziglang), or name it in PLICA_WASM_LD."
        expected = os.environ.get("PLICA_WASM_LD") or "wasm-ld"
        raise UnsupportedError(Diagnostic("no-toolchain", message, None, expected, "none", hint))
    return found


@lru_cache(maxsize=8)
def _linker(asked: str) -> tuple[str, ...] | None:
    for name in (asked,) if asked else LINKERS:
        if (path := shutil.which(name)) is not None:
            return (path,)
    if not asked and find_spec("ziglang") is not None:
        return sys.executable, "-m", "ziglang", "wasm-ld"
    return None


@lru_cache(maxsize=8)
def version(words: tuple[str, ...]) -> str:
    """What a linker says it is."""
    done = subprocess.run([*words, "--version"], capture_output=True, text=True, check=False)
    return (done.stdout.splitlines() or [""])[0]


def emit(text: str, target: Target, level: int = 2) -> bytes:
    """The module of an LLVM text: the same text and level give the same bytes."""
    words = linker()
    with tempfile.TemporaryDirectory() as folder:
        source, path = Path(folder) / "program.o", Path(folder) / "program.wasm"
        source.write_bytes(emit_static(text, target, level))
        shared = SHARED if target.triple == WASM_THREADS else ()
        command = [*words, *FLAGS, *shared, str(source), "-o", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = " / ".join(done.stderr.strip().splitlines()[:6])
            message = "The linker refuses a program."
            raise UnsupportedError(Diagnostic("toolchain", message, None, "a module", said))
        return path.read_bytes()
