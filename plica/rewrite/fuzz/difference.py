"""Whether two modules mean the same on some inputs, as far as results can be seen.

Functions among the results are not compared. Under an inexact contract a module may round
differently, and later operations may amplify that; so differing modules are also run with all
floats in f64, and if they agree there, the difference was rounding. Constants that a pass computed
are rounded in their dtype, and are no closer in f64: there, the result may also be that of the
first module with its constants perturbed accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from random import Random
from typing import Any, Final, TypeAlias

import numpy as np

from plica.core import EvaluationError, Name, Term, free_vars, map_bottom_up, post_order
from plica.ir.contract import APPROX, Contract, approx, exact
from plica.ir.graph.expression import Apply, Const, Constructor, Function, Tuple, Var, const
from plica.ir.graph.module import Module, module as module_of
from plica.ir.interpret.interpreter import RunLimits, interpret
from plica.ir.interpret.value import Closure, DataValue, NativeFunction
from plica.ir.type import FuncType, TensorType, infer, type_of
from plica.rewrite.check.compare import SLACK, array_in_f64, difference, epsilon, in_f64

Inputs: TypeAlias = tuple[Any, ...]  # Any: arrays, or tuples of them
Compiled: TypeAlias = Callable[[Module, Inputs], Any]
"""Compiles a module and runs it; None if it is unsupported."""

CALL_LIMITS: Final = (1 << 11, 1 << 15)
"""The limits of interpreter calls for a program with a value: a small one first, then a
larger one."""
CALL_LIMIT_FACTOR: Final = 8
"""The factor by which a rewritten program may exceed the calls of the original before it is
reported as non-terminating."""
WIDE: Final = approx(1e-6)
SETS_OF_CONSTANTS: Final = 6
"""The number of perturbed sets of constants compared if a pass computed some."""
CODE: Final = approx(1e-4)
"""How far native code may be from the meaning: its exponentials are another library's."""


def unlike(a: Any, b: Any, contract: Contract, met: float = 0.0) -> str | None:
    """How two results differ, or None; `met` is the largest intermediate magnitude."""
    stack = [(a, b)]
    while stack:
        a, b = stack.pop()
        if isinstance(a, Closure | NativeFunction | Constructor):
            continue
        if isinstance(a, DataValue) and isinstance(b, DataValue):
            if a.index != b.index or len(a.fields) != len(b.fields):
                return "the results are made by different constructors"
            stack.extend(zip(a.fields, b.fields, strict=True))
        elif isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
            stack.extend(zip(a, b, strict=True))
        elif (reason := difference(a, b, contract, max(met, _magnitude(a)))) is not None:
            return reason
    return None


def _flat(value: Any) -> list[Any]:
    """The arrays in tuples of them.  Recursion over the nesting of a type, not of a program."""
    if isinstance(value, tuple):
        return [each for item in value for each in _flat(item)]
    return [value]


def _magnitude(value: Any) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        sizes = np.abs(np.asarray(value).astype(np.float64))
    return float(sizes[np.isfinite(sizes)].sum())


def limits_of(calls: int) -> RunLimits:
    """A limit on the number of nested calls."""
    return RunLimits(depth=calls, calls=calls)


class Meaning:
    """A module's results for some inputs, as the reference for others."""

    def __init__(self, module: Module, inputs: Inputs, contract: Contract) -> None:
        self.module, self.inputs, self.contract = module, inputs, contract
        self.rounded = self.defined = False
        self.value: Any = None
        self._limits = limits_of(0)
        for calls in CALL_LIMITS:
            try:
                self.value = interpret(module, *inputs, limits=limits_of(calls))
            except EvaluationError as error:
                if error.code == "recursion-limit":
                    continue
                break
            self.defined, self._limits = True, limits_of(CALL_LIMIT_FACTOR * calls)
            break

    def differs(self, other: Module) -> str | None:
        """How another module differs; where this one has no value the other may do anything."""
        if not self.defined:
            return None
        try:
            value = interpret(other, *self.inputs, limits=self._limits)
        except EvaluationError as error:
            if error.code == "recursion-limit":
                return f"the result does not end: {self._limits.calls} calls were made"
            return f"the result fails: {error}"
        reason = unlike(self.value, value, self.contract)
        if reason is not None and self.contract.level == APPROX:
            reason = unlike(self.value, value, self.contract, self._met)
        if reason is not None and exact < self.contract and self._rounding(other):
            self.rounded = True
            return None
        return reason

    def native_differs(self, other: Module, native: Compiled) -> str | None:
        """How native code of another module differs; None if it cannot be compiled."""
        if (value := native(other, self.inputs)) is None:
            return ""
        if (reason := unlike(self.value, value, CODE)) is None:
            return None
        if (wide := _wide(other, self.inputs)) is not None:
            again = native(*wide)
            if again is not None and unlike(self._run(*wide), again, WIDE) is None:
                self.rounded = True
                return None
        return reason

    @cached_property
    def _met(self) -> float:
        """The largest magnitude among the inputs and the parts of main that they alone determine.

        The bound of an approximation is relative to it, as in rule checks: a result may be small by
        cancellation, such as gelu left of 0.
        """
        main = self.module.main_function()
        known = {*main.params, *main.dims}
        parts = tuple([
            node for node in post_order(main.body)
            if isinstance(node, Apply) and isinstance(type_of(node), TensorType)
            and free_vars(node) <= known
        ])  # fmt: skip
        values: tuple[Any, ...] = ()
        if parts:
            every = Tuple(parts)
            ret = type_of(every)
            name = Var(Name("main"), FuncType(main.dims, (), tuple(map(type_of, main.params)), ret))
            measured = module_of({name: Function(main.dims, (), main.params, ret, every)}, name)
            with suppress(EvaluationError):  # a part that nobody asks for may have no value
                values = self._run(measured, self.inputs)
        return max(map(_magnitude, (*_flat(self.inputs), *values)), default=0.0)

    def _rounding(self, other: Module) -> bool:
        """Whether the modules agree with wider floats."""
        ours, theirs = _wide(self.module, self.inputs), _wide(other, self.inputs)
        if ours is None or theirs is None:
            return False
        try:
            found, meant = self._run(*theirs), self._run(*ours)
            if unlike(meant, found, WIDE) is None:
                return True
            computed = _constants(other) - _constants(self.module)
            step = SLACK * max([epsilon(each.dtype.numpy) for each in computed], default=0.0)
            moved = [
                _with_constants(ours[0], factors, step) for factors in range(SETS_OF_CONSTANTS)
            ]
            runs = [meant, *[self._run(module, ours[1]) for module in moved if step]]
        except EvaluationError:
            return False
        return _is_between(found, runs)

    def _run(self, module: Module, inputs: Inputs) -> Any:
        return interpret(module, *inputs, limits=self._limits)


def _constants(module: Module) -> set[Const]:
    """The constants of floats in a module."""
    nodes = post_order(module)
    return {node for node in nodes if isinstance(node, Const) and node.dtype.is_float}


def _with_constants(module: Module, draw: int, step: float) -> Module:
    """A module in f64 with each constant larger or smaller by a step: all, none or some of them."""
    random = Random(draw)
    signs = {0: (1,), 1: (-1,)}.get(draw, (1, -1))
    moved: dict[Term, Term] = {
        each: const(each.numpy() * (1 + step * random.choice(signs)), each.dtype)
        for each in post_order(module)
        if isinstance(each, Const) and each.dtype.is_float
    }
    with_them = map_bottom_up(lambda node: moved.get(node, node), module)
    return infer(with_them)


def _is_between(value: Any, runs: Sequence[Any]) -> bool:
    """Whether each element of some arrays is between the least and the largest of several runs."""
    several = zip(_flat(value), *[_flat(run) for run in runs], strict=True)
    for one, *others in several:
        if not all(isinstance(each, np.ndarray | np.generic) for each in (one, *others)):
            return False
        low, high = np.minimum.reduce(others), np.maximum.reduce(others)
        if not np.all((low <= one) & (one <= high)):
            return False
    return True


def _wide(module: Module, inputs: Inputs) -> tuple[Module, Inputs] | None:
    """A module and inputs in f64, or None if nothing is narrower."""
    wide = in_f64(module)
    return None if wide is module else (infer(wide), tuple(map(_wide_value, inputs)))


def _wide_value(value: Any) -> Any:
    """Recursion over the nesting of a type, not of a program."""
    if isinstance(value, tuple):
        return tuple(map(_wide_value, value))
    return array_in_f64(np.asarray(value))
