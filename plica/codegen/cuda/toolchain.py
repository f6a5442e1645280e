"""The compiler of CUDA C++: NVRTC, a shared library of NVIDIA's, called through ctypes."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes.util import find_library
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from attrs import frozen

from plica.runtime.cuda.code import ARCHITECTURES
from plica.runtime.error import Diagnostic, UnsupportedError

LINE: Final = "#line "  # a text that says of which lines it is compiles to code with line tables


@frozen
class Usage:
    """The resources of a function: registers per thread, shared bytes per block, spilled bytes."""

    registers: int
    shared: int
    spilled: int


@frozen
class Cubin:
    """Code for one architecture, with the resources of each function and the compiler's log."""

    code: bytes
    usage: tuple[tuple[str, Usage], ...]
    log: str


class CompileError(UnsupportedError):
    """NVRTC did not accept a text."""


def compiled(text: str, architecture: str, *, fused: bool = True) -> Cubin:
    """The cubin of a text; `fused` allows products to be added without rounding first."""
    if architecture not in ARCHITECTURES:
        message = "There is no such architecture of NVIDIA's."
        expected = f"one of {', '.join(ARCHITECTURES)}"
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, architecture))
    library = _library()
    options = [
        f"--gpu-architecture={architecture}",
        f"--fmad={'true' if fused else 'false'}",
        "--std=c++17",
        "--ptxas-options=-v",
        "--device-int128",
        *(["--generate-line-info"] if LINE in text else []),
    ]
    program = ctypes.c_void_p()
    _ask(
        library, "nvrtcCreateProgram", ctypes.byref(program), text.encode(), b"kernels.cu", 0, None,
        None,
    )  # fmt: skip
    try:
        array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        status = library.nvrtcCompileProgram(program, len(options), array)
        log = str(_text(library, program, "ProgramLog"))
        if status:
            message = "The CUDA compiler refused the text that was made."
            raise CompileError(Diagnostic("cuda-compile", message, None, "no errors", log[:2000]))
        code = _text(library, program, "CUBIN", binary=True)
        assert isinstance(code, bytes)
        return Cubin(code, tuple(_usage(log)), log)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def compiled_at_once(
    texts: Sequence[str], architecture: str, *, fused: bool = True
) -> tuple[Cubin, ...]:
    """Compiles several texts, as many in parallel as there are cores."""
    if len(texts) < 2:
        return tuple([compiled(text, architecture, fused=fused) for text in texts])
    _library()  # loaded once, before others ask for it
    make = partial(compiled, architecture=architecture, fused=fused)
    with ThreadPoolExecutor(min(len(texts), os.cpu_count() or 1)) as pool:
        return tuple(pool.map(make, texts))


def version() -> tuple[int, int] | None:
    """The version of NVRTC, or None."""
    if path_of() is None:
        return None
    major, minor = ctypes.c_int(), ctypes.c_int()
    _ask(_library(), "nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def check_installed() -> None:
    """Refuses a machine without NVRTC."""
    _library()


@lru_cache(maxsize=1)
def path_of() -> str | None:
    """Where NVRTC is: a package of NVIDIA's, then where the system has its libraries."""
    for each in _packaged():
        return str(each)
    return find_library("nvrtc")


def _packaged() -> Iterator[Path]:
    module_spec = find_spec("nvidia")
    for root in (module_spec.submodule_search_locations or ()) if module_spec is not None else ():
        yield from sorted(Path(root).glob("*/lib/libnvrtc.so.*"), reverse=True)


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    if (path := path_of()) is None:
        message = "The compiler of CUDA C++ (NVRTC) is not here."
        hint = "Install it: pip install 'plica[cuda]'."
        raise UnsupportedError(Diagnostic("no-cuda", message, None, "libnvrtc", "none", hint))
    library = ctypes.CDLL(path)
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def _ask(library: ctypes.CDLL, name: str, *args: object) -> None:
    if status := getattr(library, name)(*args):
        said = library.nvrtcGetErrorString(status).decode()
        raise CompileError(Diagnostic("cuda-compile", f"{name} failed.", None, "success", said))


def _text(
    library: ctypes.CDLL, program: ctypes.c_void_p, what: str, *, binary: bool = False
) -> str | bytes:
    size = ctypes.c_size_t()
    _ask(library, f"nvrtcGet{what}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    _ask(library, f"nvrtcGet{what}", program, buffer)
    return buffer.raw if binary else buffer.value.decode(errors="replace")


_FUNCTION: Final = re.compile(r"Compiling entry function '(\w+)'")
_SPILLS: Final = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_USED: Final = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def _usage(log: str) -> Iterator[tuple[str, Usage]]:
    """What ptxas says of each function."""
    name, spilled = "", 0
    for line in log.splitlines():
        if match := _FUNCTION.search(line):
            name = match[1]
        elif match := _SPILLS.search(line):
            spilled = int(match[1]) + int(match[2])
        elif (match := _USED.search(line)) and name:
            yield name, Usage(int(match[1]), int(match[2] or 0), spilled)
            name, spilled = "", 0
