"""Trainers: compiled steps, called with what the last call gave.

>>> import numpy as np
>>> from plica.core.name import Name
>>> from plica.ir.graph import Function, Var
>>> from plica.ir.type import tensor
>>> from plica.training.optimiser import sgd
>>> w, x = Var(Name("w"), tensor((2,), "f32")), Var(Name("x"), tensor((2,), "f32"))
>>> from plica.ir.op.reduction import sum_
>>> train = trainer(Function((), (), (w, x), None, sum_((w - x) * (w - x))), sgd(0.25), wrt="w")
>>> state = train.start(w=np.zeros(2, np.float32))
>>> for _ in range(20):
...     loss, state = train(state, np.array([1, 2], np.float32))
>>> state["w"].round(3)
array([1., 2.], dtype=float32)
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from attrs import frozen

from plica.codegen.target import Target
from plica.ir.dim import known
from plica.pipeline import compile
from plica.rewrite.contract import Contract
from plica.rewrite.gradient.derive import Program, Which
from plica.runtime.error import Diagnostic, InputError, Place
from plica.runtime.executable import Executable
from plica.training.optimiser import Optimiser
from plica.training.step import Step, step

Array: TypeAlias = np.ndarray[Any, Any]


@frozen(eq=False)
class State:
    """The weights, and what the optimiser remembers: a value, like all that a step gives."""

    names: tuple[str, ...]
    weights: tuple[Array, ...]
    memory: tuple[Any, ...]
    """For each weight a tuple of arrays, after the number of steps where it is counted."""

    def __getitem__(self, name: str) -> Array:
        """A weight by its name."""
        return self.weights[self.names.index(name)]

    def named(self) -> dict[str, Array]:
        """The weights by name, as a model takes them."""
        return dict(zip(self.names, self.weights, strict=True))


class Trainer:
    """A compiled step: `loss, state = train(state, x, y)`, one native call."""

    def __init__(self, of: Step, exe: Executable) -> None:
        self.step = of
        self.exe = exe
        self._names = tuple([name for name, _ in of.weights])
        self._slots = len(of.optimiser.slots)
        self._counts = of.optimiser.counts

    def start(self, **weights: object) -> State:
        """The state before the first step: these weights, and a memory of zeros."""
        wrong = [
            Diagnostic("input-missing", f"The weight {name!r} is not given.", Place(node=name))
            for name in self._names
            if name not in weights
        ] + [
            Diagnostic(
                "input-unknown",
                f"There is no weight {name!r}.",
                Place(node=name),
                ", ".join(self._names),
                name,
            )
            for name in weights
            if name not in self._names
        ]
        if wrong:
            raise InputError(*wrong)
        arrays = []
        for name, of in self.step.weights:
            array = np.asarray(weights[name])
            shape = tuple([known(size) for size in of.shape])
            if array.dtype != of.dtype.numpy or (None not in shape and array.shape != shape):
                found = f"{array.dtype} of shape {array.shape}"
                message = f"The weight {name!r} is not what the loss takes."
                wrong.append(Diagnostic("input-shape", message, Place(node=name), str(of), found))
            arrays.append(array)
        if wrong:
            raise InputError(*wrong)
        memory = [tuple([np.zeros_like(each) for _ in range(self._slots)]) for each in arrays]
        counted = [np.zeros((), np.float32)] if self._counts else []
        return State(self._names, tuple(arrays), (*counted, *(memory if self._slots else [])))

    def __call__(self, state: State, *args: object, **named: object) -> tuple[Array, State]:
        """The loss before the step, and the state after it."""
        found = self.exe(state.weights, state.memory, *args, **named)
        count = len(self._names)
        loss, weights, rest = found[0], found[1 : 1 + count], found[1 + count :]
        memory: list[Any] = []
        if self._counts:
            memory, rest = [rest[0]], rest[1:]
        if self._slots:
            every = range(0, len(rest), self._slots)
            memory += [tuple(rest[at : at + self._slots]) for at in every]
        return loss, State(self._names, tuple(weights), tuple(memory))


def trainer(
    loss: Program,
    optimiser: Optimiser,
    wrt: Which = None,
    *,
    target: str | Target = "cpu",
    threads: int | None = None,
    contract: Contract | str | None = None,
) -> Trainer:
    """The step of a loss and an optimiser (`plica.training.step`), compiled."""
    made = step(loss, optimiser, wrt)
    return Trainer(made, compile(made.module, target, threads, contract=contract))
