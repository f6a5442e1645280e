"""Exporting: a shared library for programs in C, and whatever calls C, a header and an example.

    libmodel.so     one function, which takes the inputs, the outputs and a workspace, and one
                    for tvm-ffi (`plica.runtime.tvm_ffi`)
    model.h         its declaration
    model_example.c     a program that calls it once

A C compiler is needed to link the library, and none of Python to use it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from plica.runtime.archive import destination, write
from plica.runtime.artefact import Artefact, ArtefactMachine
from plica.runtime.binding import LANGUAGES, export_binding
from plica.runtime.c_interface import check_header, checked_word, example_text, header_text
from plica.runtime.c_source import export_source
from plica.runtime.cross import CROSS, write_parts
from plica.runtime.error import ArtefactError, Diagnostic, UnsupportedError
from plica.runtime.link import architecture
from plica.runtime.tvm_ffi import SYMBOL, ffi_text, is_offered

_MAX_SECONDS: Final = 600.0  # seconds


def exported(
    artefact: Artefact, path: str | os.PathLike[str], name: str | None, libraries: tuple[str, ...]
) -> None:
    """Exports in the format of the file name: a library, the model as C, or a language binding."""
    suffix = os.path.splitext(path)[1]
    if suffix == ".c":
        export_source(artefact, path, name)
    elif suffix in LANGUAGES:
        _check_system(artefact)
        export_binding(artefact, path, name)
    elif suffix in ("", ".so"):
        export(artefact, path, name, libraries)
    else:
        message = f"Nothing that ends with {suffix!r} is exported."
        known = ", ".join([".so", ".c", *sorted(LANGUAGES)])
        raise UnsupportedError(Diagnostic("unsupported", message, None, known, os.fspath(path)))


def export(
    artefact: Artefact,
    path: str | os.PathLike[str],
    name: str | None = None,
    libraries: Sequence[str] = (),
) -> None:
    """Writes the library, its header and an example.

    `libraries` are the libraries whose functions the model calls; the dynamic linker loads them,
    too.
    """
    library = Path(path)
    destination(library)
    word = checked_word(name if name is not None else library.stem.removeprefix("lib"))
    if artefact.interface.donated:
        message = "A model with donated inputs is not exported: a function of C takes const inputs."
        hint = "Compile it without donate."
        raise UnsupportedError(Diagnostic("unsupported", message, None, None, None, hint))
    check_header(library.with_name(f"{word}.h"), static=False)
    compiler = _compiler(artefact)
    with tempfile.TemporaryDirectory(prefix="plica-") as folder:
        inside = Path(folder)
        write_parts(artefact, word, inside)
        script = f"{{ global: {word}; {word}_*; {SYMBOL}{word}; local: *; }};\n"
        sources = ["wrapper.c"]
        if is_offered(artefact):
            (inside / "ffi.c").write_text(ffi_text(artefact, word), encoding="ascii")
            sources.append("ffi.c")
        (inside / "names.map").write_text(script, encoding="ascii")
        objects = [f"{number}.o" for number in range(len(artefact.objects))]
        made = inside / "library.so"
        _run(
            [
                compiler,
                *("-std=gnu11", "-O1", "-shared", "-fPIC", "-o", made.name, *sources),
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
    """A library as a linker argument: a file by path, others by name."""
    path = Path(library)
    return str(path.resolve()) if path.is_file() else f"-l:{library}"


def _check_system(artefact: Artefact) -> None:
    """Refuses machines without shared libraries."""
    if not artefact.machine.triple.partition("-")[2].count("linux"):
        message = "Libraries are made for Linux."
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, "linux", artefact.machine.triple)
        )


def _compiler(artefact: Artefact) -> str:
    _check_system(artefact)
    foreign = artefact.machine.architecture != architecture()
    tools = CROSS.get(artefact.machine.architecture) if foreign else None
    wanted = os.environ.get("CC") or (tools.compiler if tools is not None else "cc")
    if (found := shutil.which(wanted)) is None:
        message = "There is no C compiler, which links the library."
        hint = "Install one, or name it by the variable CC; an artefact (save) needs none."
        if tools is not None:
            hint = f"apt-get install {tools.package}"
        raise UnsupportedError(Diagnostic("missing-tool", message, None, "cc", wanted, hint))
    if foreign:
        _check_cross(found, artefact.machine)
    return found


def _check_cross(compiler: str, machine: ArtefactMachine) -> None:
    """Refuse a C compiler that links for this kind of machine while another was meant."""
    done = subprocess.run(
        [compiler, "-dumpmachine"],
        capture_output=True,
        text=True,
        timeout=_MAX_SECONDS,
        check=False,
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
        words, cwd=folder, capture_output=True, text=True, timeout=_MAX_SECONDS, check=False
    )
    if done.returncode:
        message = "The C compiler could not link the library."
        last = done.stderr.strip().splitlines()[-3:]
        raise ArtefactError(Diagnostic("missing-tool", message, found="\n".join(last)))
