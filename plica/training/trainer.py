"""Trainers: compiled training steps from state to state.

A state is immutable while it is referenced.  A step writes into the memory of a state that is no
longer referenced, so a training loop alternates between two buffers and allocates nothing.

>>> import numpy as np
>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Function, Var
>>> from plica.ir.op.reduction import sum_
>>> from plica.ir.type.term import tensor
>>> from plica.training.optimisers import sgd
>>> w, x = Var(Name("w"), tensor((2,), "f32")), Var(Name("x"), tensor((2,), "f32"))
>>> train = trainer(Function((), (), (w, x), None, sum_((w - x) * (w - x))), sgd(0.25), wrt="w")
>>> state = train.start(w=np.zeros(2, np.float32))
>>> for _ in range(20):
...     loss, state = train(state, np.array([1, 2], np.float32))
>>> state["w"].round(3)
array([1., 2.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from sys import getrefcount
from threading import Lock
from typing import Any, Final, TypeAlias

import numpy as np
from attrs import field, frozen

from plica.codegen.backend import AnyTarget
from plica.core import did_you_mean
from plica.ir.contract import Contract
from plica.pipeline import compile
from plica.rewrite.gradient.derive import Program, Which
from plica.runtime.error import Diagnostic, InputError, Place, UnsupportedError
from plica.runtime.executable import Executable, address_of
from plica.runtime.given import in_order
from plica.runtime.port import MISSING, Port
from plica.training.optimisers import Optimiser
from plica.training.step import TrainingStep, step

Array: TypeAlias = np.ndarray[Any, Any]  # Any: the dtype is that of a weight


STATE_BUFFERS: Final = 3  # memory for this many states is kept to be used again


class StateBuffer:
    """The memory of one state, which knows whether it is still referenced."""

    def __init__(self, ports: Sequence[Port]) -> None:
        self.arrays = [port.empty() for port in ports]
        self.addresses = [address_of(array) for array in self.arrays]
        self._unused = self._uses()  # nothing else holds them yet

    @property
    def is_free(self) -> bool:
        """Whether nothing but this holds its arrays: views and memory lent to others count."""
        return self._uses() == self._unused

    def _uses(self) -> int:
        return sum(map(getrefcount, self.arrays))


@frozen(eq=False)
class State:
    """The weights and the state of the optimiser, immutable."""

    names: tuple[str, ...]
    weights: tuple[Array, ...]
    memory: tuple[Any, ...]
    """For each weight a tuple of arrays, after the number of steps where it is counted."""
    _buffer: StateBuffer = field(repr=False)

    def __getitem__(self, name: str) -> Array:
        """A weight by its name."""
        return self.named()[name]

    def named(self) -> dict[str, Array]:
        """The weights by name, as a model takes them."""
        return dict(zip(self.names, self.weights, strict=True))


class Trainer:
    """A compiled step: `loss, state = train(state, x, y)`, one native call."""

    def __init__(self, of: TrainingStep, exe: Executable) -> None:
        if type(exe) is not Executable:
            raise UnsupportedError(
                Diagnostic(
                    "unsupported",
                    "A trainer is for losses without data and recursion, of sizes that are known.",
                    None,
                    "an executable for a processor",
                    type(exe).__name__,
                    "Compile plica.training.step(...).module, and hand on what it gives.",
                )
            )
        self.step = of
        self.exe = exe
        self.names = tuple([name for name, _ in of.weights])
        self._slots = [len(of.optimiser.memory(tensor_type)) for _, tensor_type in of.weights]
        self._counts = of.optimiser.counts
        held = len(self.names) + sum(self._slots) + self._counts
        self._loss, self._held, self._data = exe.outputs[0], exe.outputs[1:], exe.inputs[held:]
        self._states: list[StateBuffer] = []
        self._choosing = Lock()

    def start(self, **weights: object) -> State:
        """The state before the first step: copies of these weights, and a memory of zeros."""
        wrong = [
            Diagnostic("input-missing", f"The weight {name!r} is not given.", Place(node=name))
            for name in self.names
            if name not in weights
        ]
        for name in weights:
            if name not in self.names:
                message, every = f"There is no weight {name!r}.", ", ".join(self.names)
                hint = did_you_mean(name, self.names)
                wrong.append(Diagnostic("input-unknown", message, None, every, name, hint))
        ports = [
            Port(name, port.shape, port.dtype, port.numpy)
            for name, port in zip(self.names, self.exe.inputs, strict=False)
        ]
        buffer = StateBuffer(self._held)
        for array in buffer.arrays[len(ports) :]:
            array[...] = 0
        for port, array in zip(ports, buffer.arrays, strict=False):
            taken = port.take(weights[port.name]) if port.name in weights else array
            if isinstance(taken, Diagnostic):
                wrong.append(taken)
            else:
                array[...] = taken
        if wrong:
            raise InputError(*wrong)
        return self._state(buffer)

    def __call__(self, state: State, *args: object, **named: object) -> tuple[Array, State]:
        """The loss before the step, and the state after it."""
        data = self._taken(args, named)
        loss, buffer = self._loss.empty(), self._buffer()
        given = [*state._buffer.addresses, *map(address_of, data)]
        self.exe.run([*given, address_of(loss), *buffer.addresses])
        return loss, self._state(buffer)

    def _state(self, buffer: StateBuffer) -> State:
        """The state in a buffer, which is reused when the state is no longer referenced."""
        with self._choosing:
            self._states = [*self._states[1 - STATE_BUFFERS :], buffer]
        count = len(self.names)
        weights, rest = buffer.arrays[:count], buffer.arrays[count:]
        memory: list[Any] = [rest.pop(0)] if self._counts else []
        if any(self._slots):
            remaining = iter(rest)
            memory += [tuple(islice(remaining, count)) for count in self._slots]
        return State(self.names, tuple(weights), tuple(memory), buffer)

    def _buffer(self) -> StateBuffer:
        """A buffer without a referenced state."""
        with self._choosing:
            for at, state in enumerate(self._states):
                if state.is_free:
                    return self._states.pop(at)
        return StateBuffer(self._held)

    def _taken(self, args: tuple[object, ...], named: dict[str, object]) -> list[Array]:
        """The inputs of the loss that are no weights, and the open settings."""
        wrong: list[Diagnostic] = []
        types = {port.name: port.type for port in self._data}
        values = in_order([*types], args, named, wrong, types.get)
        arrays: list[Array] = []
        for port, value in zip(self._data, values, strict=True):
            if value is MISSING:
                continue
            if isinstance(taken := port.take(value), Diagnostic):
                wrong.append(taken)
            else:
                arrays.append(taken)
        if wrong:
            raise InputError(*wrong)
        return arrays


def trainer(
    loss: Program,
    optimiser: Optimiser,
    wrt: Which = None,
    *,
    target: str | AnyTarget = "cpu",
    threads: int | None = None,
    contract: Contract | str | None = None,
) -> Trainer:
    """The step of a loss and an optimiser (`plica.training.step`), compiled."""
    made = step(loss, optimiser, wrt)
    return Trainer(made, compile(made.module, target, threads, contract=contract))
