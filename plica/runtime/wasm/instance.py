"""Instances: a module of WebAssembly in wasmtime, with the memory of one model.

stack and constants of the module | constants | workspace | inputs | outputs | table
"""

from __future__ import annotations

import ctypes
import ctypes.util
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, Final, Protocol

from plica.runtime.artefact import ALIGNMENT, ENTRY
from plica.runtime.error import ArtefactError, Diagnostic, EvaluationError, UnsupportedError
from plica.runtime.port import Array
from plica.runtime.wasm.module import names_of

INSTALL: Final = "pip install 'plica[wasm]'"

PAGE: Final = 1 << 16  # bytes by which memory grows
MAX_BYTES: Final = 1 << 32  # bytes that 32 bits can tell apart
_WORD: Final = 4


class WasmInstance:
    """A module that runs in this process; calls wait for one another, since they share a memory."""

    def __init__(
        self, code: bytes, sizes: Sequence[int], inputs: int, constants: Sequence[Array],
        workspace: int,
    ) -> None:  # fmt: skip
        wasmtime = engine()
        names_of(code)  # a damaged one is told by us rather than by the engine
        self._store: Any = wasmtime.Store(_engine())
        try:
            module = wasmtime.Module(self._store.engine, code)
        except wasmtime.WasmtimeError as error:
            message = "The engine of WebAssembly does not take the module."
            said = " / ".join(str(error).strip().splitlines()[-2:])
            hint = "Compile the model without the extension: target='wasm:scalar' needs none."
            wrong = Diagnostic("other-machine", message, None, "its extensions", said, hint)
            raise ArtefactError(wrong) from error
        try:
            given = [_imported(self._store, each) for each in module.imports]
            exports = wasmtime.Instance(self._store, module, given).exports(self._store)
        except wasmtime.WasmtimeError as error:  # it reserves all that addresses can name
            raise _no_memory("room for a module", str(error).partition("\n")[0]) from error
        shared = [each for each in given if isinstance(each, wasmtime.SharedMemory)]
        self._memory: _Memory = (
            _SharedMemory(shared[0]) if shared else _OwnMemory(exports["memory"], self._store)
        )
        self._main = exports[ENTRY]
        self._trap = wasmtime.Trap
        self._sizes, self._inputs = tuple(sizes), inputs
        self._lock = threading.Lock()
        begin = exports["__heap_base"].value(self._store)
        held = [constant.nbytes for constant in constants]
        *places, table = _places(begin, [*held, workspace, *sizes])
        self._reserve(table + _WORD * (len(places) + 1))
        kept, (work, *arrays) = places[: len(held)], places[len(held) :]
        self._arrays, self._table = arrays, table
        base = self._base()
        for constant, place in zip(constants, kept, strict=True):
            ctypes.memmove(base + place, constant.ctypes.data, constant.nbytes)
        words = (*arrays, *kept, work)
        (ctypes.c_uint32 * len(words)).from_address(base + table)[:] = list(words)

    def call(self, addresses: Sequence[int]) -> int:
        """Run the module on arrays of this process; 0, or the number of the launch that failed."""
        moves = list(zip(addresses, self._arrays, self._sizes, strict=True))
        with self._lock:
            base = self._base()
            for address, place, size in moves[: self._inputs]:
                ctypes.memmove(base + place, address, size)
            try:
                code: int = self._main(self._store, self._table)
            except self._trap as error:
                message = f"The module of WebAssembly was stopped: {error}"
                raise EvaluationError(Diagnostic("unsupported", message)) from error
            for address, place, size in moves[self._inputs :]:
                ctypes.memmove(address, base + place, size)
        return code

    def _base(self) -> int:
        """Where the memory begins in this process."""
        return self._memory.base()

    def _reserve(self, size: int) -> None:
        """Make the memory so large."""
        more = -(-(size - self._memory.size()) // PAGE)
        try:
            if size > MAX_BYTES:
                raise MemoryError
            if more > 0:
                self._memory.grow(more)
        except (MemoryError, engine().WasmtimeError):
            raise _no_memory(f"{size} bytes", f"{MAX_BYTES} bytes at most") from None


def _no_memory(need: str, found: str) -> EvaluationError:
    message = "There is not enough memory for the model in WebAssembly."
    hint = "Compile the model for smaller sizes, or a smaller batch."
    return EvaluationError(Diagnostic("no-memory", message, None, need, found, hint))


class _Memory(Protocol):
    """The memory of a module."""

    def base(self) -> int: ...

    def size(self) -> int: ...

    def grow(self, pages: int) -> object: ...


class _OwnMemory:
    """A memory of one instance."""

    def __init__(self, of: Any, store: Any) -> None:  # Any: wasmtime's own
        self._of, self._store = of, store

    def base(self) -> int:
        return ctypes.addressof(self._of.data_ptr(self._store).contents)

    def size(self) -> int:
        return int(self._of.data_len(self._store))

    def grow(self, pages: int) -> object:
        return self._of.grow(self._store, pages)


class _SharedMemory:
    """A memory that instances in other threads may have, too; here is one."""

    def __init__(self, of: Any) -> None:  # as above
        self._of = of

    def base(self) -> int:
        return ctypes.addressof(self._of.data_ptr().contents)

    def size(self) -> int:
        return int(self._of.data_len())

    def grow(self, pages: int) -> object:
        return self._of.grow(pages)


def _places(begin: int, sizes: Sequence[int]) -> list[int]:
    """Where memory of some sizes begins, one behind another, and where the last ends."""
    found = [-(-begin // ALIGNMENT) * ALIGNMENT]
    for size in sizes:
        found.append(found[-1] + -(-max(size, 1) // ALIGNMENT) * ALIGNMENT)
    assert all(one < two for one, two in pairwise(found))
    return found


def engine() -> Any:  # the package wasmtime, as it is
    """The package that runs modules; refuses a Python that has none."""
    try:
        import wasmtime
    except ImportError:
        message = "There is no engine for WebAssembly in this Python."
        hint = f"Install one: {INSTALL}."
        wrong = Diagnostic("no-toolchain", message, None, "wasmtime", "none", hint)
        raise UnsupportedError(wrong) from None
    return wasmtime


def _shared(wasmtime: Any) -> Any:  # as above
    """A memory that can be imported: the package's own hands on a pointer to the pointer."""
    from wasmtime import _ffi as ffi

    class Importable(wasmtime.SharedMemory):  # type: ignore[misc]  # the package is not typed here
        def _as_extern(self) -> Any:  # as above
            union = ffi.wasmtime_extern_union(sharedmemory=self.ptr())
            return ffi.wasmtime_extern_t(ffi.WASMTIME_EXTERN_SHAREDMEMORY, union)

    return Importable


def _engine() -> Any:  # as above
    """An engine whose memory threads may share, where the package has that."""
    wasmtime = engine()
    config = wasmtime.Config()
    if hasattr(type(config), "shared_memory"):
        config.shared_memory = True
    return wasmtime.Engine(config)


@lru_cache(maxsize=1)
def _mathematics() -> ctypes.CDLL:
    return ctypes.CDLL(ctypes.util.find_library("m") or None)


def _imported(store: Any, wanted: Any) -> Any:  # Any: wasmtime's own
    """A function of this process for one that a module imports."""
    wasmtime = engine()
    if isinstance(wanted.type, wasmtime.MemoryType):
        return _shared(wasmtime)(store.engine, wanted.type)
    kinds = {
        str(wasmtime.ValType.f32()): ctypes.c_float,
        str(wasmtime.ValType.f64()): ctypes.c_double,
        str(wasmtime.ValType.i32()): ctypes.c_int32,
    }
    function: Callable[..., Any] | None = getattr(_mathematics(), wanted.name or "", None)
    if wanted.module != "env" or function is None:
        message = "The module imports what is no function of mathematics."
        found = f"{wanted.module}.{wanted.name}"
        raise UnsupportedError(Diagnostic("unsupported", message, None, "functions of C", found))
    own: Any = function  # a function of ctypes, whose types are set here
    own.argtypes = [kinds[str(param)] for param in wanted.type.params]
    own.restype = kinds[str(wanted.type.results[0])]
    return wasmtime.Func(store, wanted.type, partial(own))
