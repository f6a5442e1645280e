"""The compiler stamp: identifies everything besides model and options that determines the code,
without loading the compiler.

Hashing every file of the compiler takes longer than loading a small model, and so does asking LLVM
for the processor. The stamp uses only what the operating system reports: sizes and times of the
compiler's files and libraries, entry points of installed packages, the processor, measured machine
parameters, and environment variables. Equal stamps imply an equal compiler; different stamps imply
nothing (`plica.codegen.llvm.unit.fingerprint` compares contents).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from plica.runtime.host import cores
from plica.runtime.machine import processor_facts, stored_description
from plica.runtime.store import key_of

LIBRARIES: Final = ("llvmlite", "numpy", "onnx", "attr", "pyrsistent")
"""Libraries that determine the generated code."""

_METADATA: Final = (".dist-info", ".egg-info")
_SILENT: Final = ("PLICA_CACHE", "PLICA_JOBS")  # variables that change no code


def compiler_stamp() -> str:
    """A digest of everything besides model and options that determines the code."""
    return key_of(
        "stamp", sys.version, str(cores()), *processor_facts(), _measured(), *_library_states(),
        *_states(_sources(Path(__file__).parents[1])), *_entry_points(), *_variables(),
    )  # fmt: skip


def _sources(folder: Path) -> Iterator[str]:
    """The files of a package, in a fixed order."""
    queue = [str(folder)]
    for each in queue:
        with os.scandir(each) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_dir(follow_symlinks=False) and entry.name != "__pycache__":
                    queue.append(entry.path)
                elif entry.name.endswith((".py", ".ll", ".h", ".wgsl", ".records")):
                    yield entry.path


def _states(paths: Iterable[str]) -> Iterator[str]:
    """Each file with its size and when it was changed."""
    for path in paths:
        try:
            found = os.stat(path)
        except OSError:
            continue
        yield f"{path} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


@lru_cache(maxsize=1)
def _library_states() -> tuple[str, ...]:
    """The libraries that this process has or would import."""
    specs = [find_spec(library) for library in LIBRARIES]
    return tuple(_states([spec.origin for spec in specs if spec and spec.origin]))


def _measured() -> str:
    """The measured parameters of this machine, which select default schedules."""
    description = stored_description()
    return "" if description is None else description.to_text()


def _entry_points() -> Iterator[str]:
    """The entry points of installed packages, and of those that are tried before they are."""
    extension = sys.modules.get("plica.core.extension")
    yield repr([] if extension is None else vars(extension)["_provisional"])
    for folder in dict.fromkeys(sys.path):
        try:
            names = sorted(each for each in os.listdir(folder or ".") if each.endswith(_METADATA))
        except OSError:
            continue
        yield from _states(os.path.join(folder, name, "entry_points.txt") for name in names)


def _variables() -> list[str]:
    """The variables of the environment that are Plica's."""
    given = sorted(os.environ.items())
    return [f"{name}={value}" for name, value in given
            if name.startswith("PLICA_") and not name.startswith(_SILENT)]  # fmt: skip
