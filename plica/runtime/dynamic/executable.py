"""Dynamic executables: compiled programs whose inputs and outputs may be values of data types.

Not here: how native code is made.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from plica.runtime import host
from plica.runtime.artefact import Artefact
from plica.runtime.dynamic.artefact import DynamicArtefact, to_members
from plica.runtime.dynamic.form import flat, ports
from plica.runtime.dynamic.state import DEEP, FULL, KEEP, RELEASE, RUN, CallMemory
from plica.runtime.dynamic.value import NEVER, CallArguments, Make, Ways, taken
from plica.runtime.error import Diagnostic, EvaluationError, InputError, Place, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.interface import Interface
from plica.runtime.link import link, use_threads

_RUN: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_RELEASE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class DynamicExecutable(Executable):
    """A compiled program over tensors and data: `exe(x, y)` or `exe(name=x)` gives its value."""

    def __init__(
        self,
        artefact: DynamicArtefact,
        *,
        threads: int | None = None,
        texts: Mapping[str, Callable[[], str]] | None = None,
        make: Make | None = None,
    ) -> None:
        host.check(artefact.machine)
        typed = artefact.interface
        code = link(artefact.objects)
        use_threads(code, artefact.threads if threads is None else threads)
        inputs = [port for name, form in typed.params for port in ports(name, form, typed.data)]
        params, count = [], 0
        for name, form in typed.params:
            params.append((name, count))
            count += len(flat(form))
        outputs = ports("output", typed.result, typed.data)
        single = not isinstance(typed.result, tuple)
        interface = Interface(tuple(params), tuple(inputs), tuple(outputs), single)
        super().__init__(0, interface, texts=texts, target=str(artefact.machine), keep=code)
        self._program = artefact
        self._typed = typed
        self._code = code
        self._make = make
        self._run: Callable[[int, int, int], int] = _RUN(code.address(RUN))
        self._release: Callable[[int, int], None] = _RELEASE(code.address(RELEASE))
        table = np.zeros((len(artefact.constants) + 1, 3), np.int64)
        table[:, 0] = NEVER
        for number, constant in enumerate(artefact.constants):
            table[number, 2] = constant.__array_interface__["data"][0]
        self._table = table
        self._ways: Ways = {}
        self._states: list[CallMemory] = []  # those no call is using
        self._flat = flat(typed.result)

    def __call__(self, /, *args: object, **named: object) -> Any:  # Any: arrays, data
        """Run the program; inputs by position or by name."""
        self._calls.add()
        block = self._given(args, named).block()
        roots = array("Q", [*block.roots, 0])
        results = array("Q", [0] * (len(self._flat) + 1))
        state = self._state()
        where = results.buffer_info()[0]
        if code := self._run(state.address, roots.buffer_info()[0], where):
            state.reset()
            self._states.append(state)
            raise self._failed(code)
        found = list(results)[: len(self._flat)]
        values = taken(found, self._flat, self._typed.data, self._make)
        for each in found:
            self._release(state.address, each)
        if state.live:  # a mistake of the compiler, never of the program
            raise AssertionError(f"{state.live} objects are alive after a call.")
        if state.held > KEEP:
            state.reset()
        self._states.append(state)
        return values[0] if self._interface.single else tuple(values)

    def members(self) -> dict[str, bytes]:
        """The members of the archive that this is written as."""
        return to_members(self._program)

    @property
    def artefact(self) -> Artefact:
        """Refuse: a dynamic program is no list of launches that could be profiled or exported."""
        message = "A program with data and recursion is not profiled, nor exported to C."
        hint = "It can be saved, and loaded again."
        raise UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))

    def at(self, /, *args: object, **named: object) -> Executable:
        """The executable for inputs like these: itself."""
        self._given(args, named)
        return self

    def __repr__(self) -> str:
        return super().__repr__().replace("<Executable", "<DynamicExecutable", 1)

    def _given(self, args: Sequence[object], named: Mapping[str, object]) -> CallArguments:
        given = CallArguments(self._typed.data, self._ways)
        if named or len(args) != len(self._typed.params):
            args = self._in_order(args, named, given.wrong)
        if not given.wrong:
            for (name, form), value in zip(self._typed.params, args, strict=True):
                given.add(name, form, value)
        if given.wrong:
            raise InputError(given.wrong[0], *given.wrong[1:])
        return given

    def _state(self) -> CallMemory:
        """A state of this call's own; lists pop and append in one step for all threads."""
        try:
            return self._states.pop()
        except IndexError:
            return CallMemory(self._code, self._table.__array_interface__["data"][0])

    def _failed(self, code: int) -> EvaluationError:
        if code == DEEP:
            message = "The program recurses deeper than its stack allows."
            hint = (
                "Let the recursive call be the last thing a function does, or use a smaller input."
            )
            return EvaluationError(Diagnostic("recursion-depth", message, suggestion=hint))
        if code == FULL:
            message = "There is not enough memory for the values of the program."
            hint = "Run it on smaller inputs."
            return EvaluationError(Diagnostic("no-memory", message, suggestion=hint))
        end = self._program.endings[code - 1]
        place = None if end.node is None else Place(node=end.node)
        return EvaluationError(Diagnostic(end.code, end.message, place, end.expected))
