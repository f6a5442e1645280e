"""Externs: who serves the symbols that the code of a model calls but does not define.

    {"scale": "libscale.so"}       a library, by its path or its name
    {"scale": function}            a Python function; it runs on the thread that calls the model

A Python function exists only in the compiling process: such a model is neither saved nor exported.
Its exceptions are raised by the call of the model, after the code has returned.

>>> from math import isclose
>>> served = Externs({"cos": "libm.so.6"})
>>> isclose(ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(served.addresses["cos"])(0.0), 1.0)
True
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, TypeAlias

import numpy as np

from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.runtime.port import Array

Shapes: TypeAlias = "Callable[[Sequence[int]], Sequence[tuple[int, ...]]]"


class _Raised(threading.local):
    """What Python functions raised on this thread while the code of a model was running."""

    error: BaseException | None = None


_RAISED: Final = _Raised()


class _Carried:
    """Keeps exceptions for the caller: none may cross C frames."""

    def __init__(self, written: Sequence[Array]) -> None:
        self.written = written

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is not None:
            _RAISED.error = _RAISED.error or error
            for array in self.written:
                array[...] = 0  # the code goes on until it comes back, with numbers that are there
        return True


class ExternCallback:
    """A Python function as one of the C ABI: it is given arrays, and what it returns is copied."""

    def __init__(
        self,
        call: Callable[[tuple[Any, ...]], Any],  # Any: arrays in, an array or a tuple of them out
        shapes: Shapes,
        dtypes: Sequence[np.dtype[Any]],
        inputs: int,
        dims: int,
    ) -> None:
        self._call, self._shapes = call, shapes
        self._dtypes, self._inputs = tuple(dtypes), inputs
        kinds = [*[ctypes.c_void_p] * len(self._dtypes), *[ctypes.c_int64] * dims]
        self._entry = ctypes.CFUNCTYPE(None, *kinds)(self._run)

    @property
    def address(self) -> int:
        """Where C calls it."""
        return ctypes.cast(self._entry, ctypes.c_void_p).value or 0

    def _run(self, *given: int) -> None:
        pointers, dims = given[: len(self._dtypes)], given[len(self._dtypes) :]
        triples = zip(pointers, self._shapes(dims), self._dtypes, strict=True)
        arrays = [_array(*triple) for triple in triples]
        written = arrays[self._inputs :]
        if _RAISED.error is not None:
            for array in written:
                array[...] = 0
            return
        with _Carried(written):
            # Copies, because the function may keep its arguments.
            result = self._call(tuple([array.copy() for array in arrays[: self._inputs]]))
            results = result if isinstance(result, tuple) else (result,)
            for target, value in zip(written, results, strict=True):
                target[...] = value


def _array(address: int | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """The memory at an address as an array."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if not size or address is None:
        return np.zeros(shape, dtype)
    memory: Any = (ctypes.c_char * size).from_address(address)  # a buffer, to numpy's types none
    array: Array = np.frombuffer(memory, dtype).reshape(shape)
    return array


ExternSource: TypeAlias = "str | os.PathLike[str] | ExternCallback"


class Externs:
    """The addresses of symbols, and the objects that keep them alive."""

    def __init__(self, given: Mapping[str, ExternSource] | None = None) -> None:
        self.libraries: dict[str, str] = {}
        self.callbacks: list[str] = []
        self.addresses: dict[str, int] = {}
        self._keep: list[object] = []
        wrong: list[Diagnostic] = []
        for symbol, source in (given or {}).items():
            if isinstance(source, ExternCallback):
                self.callbacks.append(symbol)
                self.addresses[symbol] = source.address
                self._keep.append(source)
            elif isinstance(source, str | os.PathLike):
                self._open(symbol, os.fspath(source), wrong)
            else:
                message = f"Nothing that could serve the extern {symbol!r} is given."
                expected = "the path of a library"
                wrong.append(
                    Diagnostic("unsupported", message, Place(node=symbol), expected, repr(source))
                )
        if wrong:
            raise UnsupportedError(wrong[0], *wrong[1:])

    def _open(self, symbol: str, path: str, wrong: list[Diagnostic]) -> None:
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            message = f"The library of the extern {symbol!r} cannot be opened."
            wrong.append(
                Diagnostic("unsupported", message, Place(node=symbol), "a library", str(error))
            )
            return
        if (function := getattr(library, symbol, None)) is None:
            message = f"The library has no function {symbol!r}."
            wrong.append(Diagnostic("unsupported", message, Place(node=symbol), symbol, path))
            return
        self.libraries[symbol] = path
        self.addresses[symbol] = ctypes.cast(function, ctypes.c_void_p).value or 0
        self._keep.append(library)

    def guarded(self, main: Callable[[int], int]) -> Callable[[int], int]:
        """The code, which raises a Python function's exception after returning."""
        if not self.callbacks:
            return main

        def run(table: int) -> int:
            before, _RAISED.error = _RAISED.error, None  # a function may call a model itself
            code = main(table)
            error, _RAISED.error = _RAISED.error, before
            if error is not None:
                raise error
            return code

        return run

    def check_written(self, what: str) -> None:
        """Refuse to write down what only this process can call."""
        if not self.callbacks:
            return
        message = f"A model that calls Python functions is not {what}."
        found = ", ".join(self.callbacks)
        hint = "Give a library instead: externs={'symbol': 'libname.so'}."
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, "functions of libraries", found, hint)
        )


NONE: Final = Externs()
