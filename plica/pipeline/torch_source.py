"""Models of torch: programs that were exported are read, modules are exported at their first call.

exe = plica.compile(model.eval())
exe(x)              torch exports the model for inputs like these; the code serves until the
                    state of the module changes (`plica.frontend.torch.module_state`)
exe.at(x).save(…)   the executable for such inputs: it can be saved, exported, looked into
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from inspect import signature
from typing import TYPE_CHECKING, Final

from plica.ir.graph.module import Module
from plica.runtime.error import Diagnostic, InputError, UnsupportedError
from plica.runtime.executable import Executable, Interface
from plica.runtime.late import lazy_imports
from plica.runtime.port import Port
from plica.runtime.selecting_executable import Args, Named, Selected, SelectingExecutable, Selector
from plica.runtime.stats import Stats

if TYPE_CHECKING:
    import torch

with lazy_imports(__name__):  # torch is there when they are called
    from plica.frontend.torch.exporting import ModuleInputs, exported, inputs_of, of_other_elements
    from plica.frontend.torch.module_state import ModuleState, state_of
    from plica.runtime.notebook import table

MAX_EXECUTABLES: Final = 16
"""The number of cached executables for inputs of different shapes; the oldest is evicted."""


def module_of_program(of: torch.export.ExportedProgram) -> Module:
    """The module that an exported program is."""
    from plica.frontend.torch import from_torch  # torch is there, its reader may not be

    return from_torch(of)


class CodeForInputs(Selector):
    """Selects the code of a module for the shapes of each call; exports and compiles on
    first use."""

    interface = Interface((), (), (), True)  # nothing is known before a call

    def __init__(self, model: torch.nn.Module, compiled: Callable[[Module], Executable]) -> None:
        if _is_script(model):
            message = "TorchScript is no module that torch exports."
            hint = "Compile the module that it was made of: plica.compile(model.eval())."
            name = type(model).__name__
            raise UnsupportedError(
                Diagnostic("unsupported", message, None, "a module in Python", name, hint)
            )
        _check_mode(model)
        self._model, self._compiled = model, compiled
        self._known: dict[object, Executable] = {}
        self._compilations = 0
        self._state: ModuleState | None = None
        self._lock = threading.Lock()

    def select(self, of: Executable, args: Args, named: Named) -> Selected:
        """The executable for these inputs: tensors are passed by position, Python values are
        constants of its code, and `stream` selects where it runs."""
        rest, more = dict(named), dict[str, object]()
        if "stream" in rest and "stream" not in signature(self._model.forward).parameters:
            more["stream"] = rest.pop("stream")
        given = inputs_of(self._model, args, rest)
        return self._at(given), given.tensors, more

    def _at(self, given: ModuleInputs) -> Executable:
        if self._state is None or not self._state.holds():
            with self._lock:
                self._read_state()
        if (known := self._known.get(given.key)) is not None:
            return known
        with self._lock:
            if (known := self._known.get(given.key)) is None:
                _check_mode(self._model)
                traced = self._traced(given)
                self._read_state()  # torch replaces containers by equal ones when it exports
                known = self._known[given.key] = self._compiled(traced)
                self._compilations += 1
                while len(self._known) > MAX_EXECUTABLES:
                    self._known.pop(next(iter(self._known)))
        return known

    def _read_state(self) -> None:
        """Read the state of the module; code that was made in another one is dropped."""
        state = state_of(self._model)
        if self._state is None or not state.equals(self._state):
            self._known.clear()
        self._state = state

    def _traced(self, given: ModuleInputs) -> Module:
        """The graph of a module for inputs like these.

        Where elements of two types meet in it, the inputs that have them are named.
        """
        program = exported(self._model, given)
        try:
            return module_of_program(program)
        except UnsupportedError as error:
            if wrong := [*of_other_elements(self._model, given, error)]:
                raise InputError(*wrong) from error
            raise

    def refusal(self) -> UnsupportedError:
        """The refusal to show one code before a call determines the inputs."""
        message = "A module of torch says what it takes when it is called."
        hint = (
            "Take the executable for some inputs, exe.at(…), or compile an exported program: "
            "torch.export.export(model, inputs)."
        )
        name = type(self._model).__name__
        return UnsupportedError(Diagnostic("unsupported", message, None, "inputs", name, hint))

    @property
    def known(self) -> tuple[Executable, ...]:
        """The executables compiled so far."""
        return tuple(self._known.values())

    def stats(self, calls: int) -> Stats:
        """The number of compilations, and the memory of the code."""
        held = sum(executable.stats.bytes for executable in self.known)
        return Stats(calls, self._compilations, held, self._compilations)

    def show(self, of: Executable) -> str:
        """The class of the module, and for how many inputs it was compiled."""
        return f"<Torch {type(self._model).__name__}, {len(self._known)} compiled>"


class TorchExecutable(SelectingExecutable[CodeForInputs]):
    """A module of torch that is exported and compiled for the shapes of each call."""

    @property
    def inputs(self) -> tuple[Port, ...]:
        """Refuses: the inputs of a module are unknown before a call."""
        raise self.selector.refusal()

    @property
    def outputs(self) -> tuple[Port, ...]:
        """Refuse, as for inputs."""
        raise self.selector.refusal()

    @property
    def target(self) -> str:
        """The target of the code, once some is compiled."""
        for each in self.selector.known:
            return each.target
        raise self.selector.refusal()

    def _repr_html_(self) -> str:
        """The compiled executables, as a notebook shows them."""
        rows = [["compiled", repr(executable)] for executable in self.selector.known]
        return table(["", repr(self)], [*rows, ["effort", self.tier]])


def _check_mode(model: torch.nn.Module) -> None:
    """Refuse a module that is in training."""
    if model.training:
        message = "The module is in training: what it computes then is not one function."
        hint = "plica.compile(model.eval())"
        raise UnsupportedError(Diagnostic("unsupported", message, None, "eval()", "train()", hint))


def _is_script(model: torch.nn.Module) -> bool:
    import torch  # it is torch's module

    return isinstance(model, torch.jit.ScriptModule)
