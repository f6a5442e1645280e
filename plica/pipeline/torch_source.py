"""Models of torch: programs that were exported are read, modules are exported at their first call.

    exe = plica.compile(model.eval())
    exe(x)              torch exports the model for inputs like these; the code serves until the
                        state of the module changes (`plica.frontend.torch.module_state`)
    exe.at(x).save(…)   the executable for such inputs: it can be saved, exported, looked into

A module says nothing of its inputs before it is called; an exported program does, open sizes
included, so that is what one deploys.  Nothing of torch is imported to ask what something is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Final

from plica.ir.graph.module import Module
from plica.runtime.artefact import Artefact
from plica.runtime.error import Diagnostic, InputError, UnsupportedError
from plica.runtime.executable import Executable, Interface
from plica.runtime.late import lazy_imports
from plica.runtime.port import Array, Port
from plica.runtime.profile import Profile
from plica.runtime.stats import Stats

if TYPE_CHECKING:
    import torch

with lazy_imports(__name__):  # torch is there when they are called
    from plica.frontend.torch.exporting import (
        ModuleInputs,
        exported,
        inputs_of,
        of_other_elements,
    )
    from plica.frontend.torch.module_state import ModuleState, state_of
    from plica.runtime.notebook import table

MOST: Final = 16
"""So many executables are kept, for inputs of other shapes; the oldest goes first."""


def module_of_program(of: torch.export.ExportedProgram) -> Module:
    """The module that an exported program is."""
    from plica.frontend.torch import from_torch  # torch is there, its reader may not be

    return from_torch(of)


class TorchExecutable(Executable):
    """A module of torch that is exported and compiled for the shapes of each call."""

    def __init__(
        self, model: torch.nn.Module, compiled: Callable[[Module], Executable], tier: str
    ) -> None:
        super().__init__(0, Interface((), (), (), True))  # nothing is known before a call
        if _is_script(model):
            message = "TorchScript is no module that torch exports."
            hint = "Compile the module that it was made of: plica.compile(model.eval())."
            name = type(model).__name__
            raise UnsupportedError(
                Diagnostic("unsupported", message, None, "a module in Python", name, hint)
            )
        _check_mode(model)
        self.told(tier)
        self._model, self._compiled = model, compiled
        self._known: dict[object, Executable] = {}
        self._state: ModuleState | None = None
        self._lock = threading.Lock()

    def __call__(
        self, *args: object, stream: object = None, **named: object
    ) -> Array | tuple[Array, ...]:
        """Run the model; inputs by position or by the names of its `forward`.

        With the `stream` of a GPU's other work it runs there, as the executable for such inputs
        says.
        """
        if stream is not None and "stream" in signature(self._model.forward).parameters:
            named["stream"], stream = stream, None
        self._calls.add()
        given = inputs_of(self._model, args, named)
        found = self._at(given)
        return found(*given.tensors) if stream is None else found(*given.tensors, stream=stream)

    def at(self, *args: object, **named: object) -> Executable:
        """The executable for inputs like these: it can be saved, exported and looked into.

        It takes the tensors among them by position; Python values are part of its code.
        """
        return self._at(inputs_of(self._model, args, named))

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
                while len(self._known) > MOST:
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

    @property
    def inputs(self) -> tuple[Port, ...]:
        """Refuse: what a module takes is known when it is called."""
        raise self._unknown()

    @property
    def outputs(self) -> tuple[Port, ...]:
        """Refuse, as for inputs."""
        raise self._unknown()

    @property
    def artefact(self) -> Artefact:
        """Refuse: there is an artefact for some inputs only."""
        raise self._unknown()

    def source(self, kind: str | None = None) -> str:
        """Refuse: there is code for some inputs only."""
        raise self._unknown()

    def run(self, addresses: Sequence[int]) -> None:
        """Refuse: there is code for some inputs only."""
        raise self._unknown()

    @property
    def target(self) -> str:
        """What the code was made for, as soon as some was made."""
        for each in tuple(self._known.values()):
            return each.target
        raise self._unknown()

    @property
    def stats(self) -> Stats:
        """Calls of it, how often it was compiled, and what the code holds."""
        held = sum(each.stats.bytes for each in tuple(self._known.values()))
        return Stats(self._calls.count, self._compilations, held, self._compilations)

    def profile(
        self,
        *args: object,
        runs: int = 10,
        peak: float | None = None,
        bandwidth: float | None = None,
        **named: object,
    ) -> Profile:
        """Where the time of a call with these inputs goes, launch by launch."""
        given = inputs_of(self._model, args, named)
        found = self._at(given)
        return found.profile(*given.tensors, runs=runs, peak=peak, bandwidth=bandwidth)

    def seconds(
        self,
        *args: object,
        runs: int = 20,
        before: Callable[[int], object] | None = None,
        **named: object,
    ) -> list[float]:
        """How long a GPU works on a call with these inputs, without copies, run by run."""
        given = inputs_of(self._model, args, named)
        found = self._at(given)
        times: list[float] = found.seconds(*given.tensors, runs=runs, before=before)
        return times

    def _repr_html_(self) -> str:
        """What was compiled of it: what a notebook shows."""
        rows = [["compiled", repr(each)] for each in tuple(self._known.values())]
        return table(["", repr(self)], [*rows, ["effort", self.tier]])

    def __repr__(self) -> str:
        return f"<Torch {type(self._model).__name__}, {len(self._known)} compiled>"

    def _unknown(self) -> UnsupportedError:
        message = "A module of torch says what it takes when it is called."
        hint = (
            "Take the executable for some inputs, exe.at(…), or compile an exported program: "
            "torch.export.export(model, inputs)."
        )
        name = type(self._model).__name__
        return UnsupportedError(Diagnostic("unsupported", message, None, "inputs", name, hint))


def _check_mode(model: torch.nn.Module) -> None:
    """Refuse a module that is in training."""
    if model.training:
        message = "The module is in training: what it computes then is not one function."
        hint = "plica.compile(model.eval())"
        raise UnsupportedError(Diagnostic("unsupported", message, None, "eval()", "train()", hint))


def _is_script(model: torch.nn.Module) -> bool:
    import torch  # it is torch's module

    return isinstance(model, torch.jit.ScriptModule)
