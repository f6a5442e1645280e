"""Optimisers: how weights change by their gradient, as functions of the graph language.

A rule is written for one number and read at the shape of every weight, so it may use operators that
work element by element.  Its parameters are the weight, its slope, then memory (`slots`), and by
name the number of the step `t` and settings; it gives the new weight and the new memory.

>>> sgd(0.1)
Optimiser(sgd, rate=0.1)
>>> adam().slots
('m', 'v')
>>> momentum(rate=None).open  # given at each step
('rate',)
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Final

from attrs import frozen

from plica.core import did_you_mean
from plica.ir.graph import Function, Module
from plica.ir.text.script import Scripted, from_text
from plica.ir.type import TensorType, TupleType, Type, infer
from plica.runtime.error import Diagnostic, InputError, Place
from plica.training.tensor_rule import ADAFACTOR, ADAMW, MUON, TensorRule

_FILE: Final = "update_script.py"
TIME: Final = "t"  # the parameter that is the number of the step


@frozen(repr=False)
class Optimiser:
    """A rule for one weight, the names of its memory, and the settings that are decided."""

    name: str
    rule: Function | TensorRule
    """For one number, which is read at the shape of every weight, or for a whole tensor."""
    slots: tuple[str, ...]
    settings: tuple[tuple[str, float], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What the rule takes besides the weight, its slope and its memory."""
        if isinstance(self.rule, TensorRule):
            return self.rule.settings
        return _names(self.rule)[2 + len(self.slots) :]

    def memory(self, of: TensorType) -> tuple[TensorType, ...]:
        """The types of the memory of a weight."""
        if isinstance(self.rule, TensorRule):
            return self.rule.memory(of)
        return (of,) * len(self.slots)

    @property
    def open(self) -> tuple[str, ...]:
        """The settings that are given at each step."""
        known = {TIME, *dict(self.settings)}
        return tuple([name for name in self.names if name not in known])

    @property
    def counts(self) -> bool:
        """Whether the rule asks for the number of the step."""
        return TIME in self.names

    def __repr__(self) -> str:
        words = [f"{name}={value!r}" for name, value in self.settings]
        return f"Optimiser({', '.join([self.name, *words, *self.open])})"


def sgd(rate: float | None = 0.01) -> Optimiser:
    """Downhill: `w - rate * g`.  A setting that is None is given at each step."""
    return _of_library("sgd", (), rate=rate)


def momentum(rate: float | None = 0.01, decay: float | None = 0.9) -> Optimiser:
    """Downhill with a speed, of which `decay` is kept from step to step."""
    return _of_library("momentum", ("v",), rate=rate, decay=decay)


def adam(
    rate: float | None = 1e-3,
    first: float | None = 0.9,
    second: float | None = 0.999,
    small: float | None = 1e-8,
) -> Optimiser:
    """Downhill by running means of the slope, over the root of that of its square."""
    return _of_library("adam", ("m", "v"), rate=rate, first=first, second=second, small=small)


def adamw(
    rate: float | None = 1e-3,
    decay: float | None = 0.01,
    first: float | None = 0.9,
    second: float | None = 0.999,
    small: float | None = 1e-8,
) -> Optimiser:
    """Adam, whose weights also shrink by the share `rate * decay` at each step."""
    settings = {"rate": rate, "decay": decay, "first": first, "second": second, "small": small}
    return _of_tensors("adamw", ADAMW, ("m", "v"), settings)


def muon(
    rate: float | None = 0.02, momentum: float | None = 0.95, decay: float | None = 0.0
) -> Optimiser:
    """Matrices move by the orthogonal factor of their momentum, other weights by AdamW.

    >>> muon().slots
    ('m',)
    """
    settings = {**dict(adamw(rate, decay).settings), "rate": rate, "decay": decay}
    return _of_tensors("muon", MUON, ("m",), {**settings, "momentum": momentum})


def adafactor(
    rate: float | None = 1e-2,
    power: float | None = -0.8,
    clip: float | None = 1.0,
    small: float | None = 2.0**-23,
    floor: float | None = 1e-3,
) -> Optimiser:
    """By a share `rate` of the weight; a row and a column stand for a matrix of squares.

    >>> adafactor().slots
    ('row', 'column')
    """
    settings = {"rate": rate, "power": power, "clip": clip, "small": small, "floor": floor}
    return _of_tensors("adafactor", ADAFACTOR, ("row", "column"), settings)


def _of_tensors(
    name: str, rule: TensorRule, slots: tuple[str, ...], settings: dict[str, float | None]
) -> Optimiser:
    known = [(key, float(value)) for key, value in settings.items() if value is not None]
    return Optimiser(name, rule, slots, tuple(known))


def optimiser(rule: Scripted, slots: tuple[str, ...] = (), **settings: float | None) -> Optimiser:
    """An optimiser by a rule of one's own; settings that are left out are given at each step."""
    return _made(rule.name, infer(rule.module).main_function(), slots, settings)


@lru_cache(maxsize=1)
def _library() -> Module:
    return from_text(files(__package__).joinpath(_FILE).read_text(encoding="utf-8"), _FILE)


def _of_library(name: str, slots: tuple[str, ...], **settings: float | None) -> Optimiser:
    rule = _library().find(name)
    assert isinstance(rule, Function)
    return _made(name, rule, slots, settings)


def _made(
    name: str, rule: Function, slots: tuple[str, ...], settings: dict[str, float | None]
) -> Optimiser:
    """The optimiser, if the rule is one."""
    names = _names(rule)
    for each in (*slots, *settings):
        if each not in names[2:]:
            message = f"The rule {name} has no parameter {each!r}."
            hint = did_you_mean(each, names[2:])
            raise _refused(name, message, ", ".join(names[2:]) or "none", each, hint)
    if names[2 : 2 + len(slots)] != slots:
        message = f"The memory of the rule {name} does not follow its weight and its slope."
        raise _refused(name, message, ", ".join(slots), ", ".join(names[2:]))
    if wrong := [param for param in rule.params if not _is_number(param.type)]:
        message = f"The rule {name} is not one for single numbers."
        raise _refused(name, message, "floats of rank 0", f"{wrong[0].name}: {wrong[0].type}")
    found = rule.ret.items if isinstance(rule.ret, TupleType) else (rule.ret,)
    if len(names) < 2 or len(found) != 1 + len(slots) or not all(map(_is_number, found)):
        message = f"The rule {name} does not make a weight and its memory of a weight and a slope."
        raise _refused(name, message, f"{1 + len(slots)} floats of rank 0", str(rule.ret))
    known = [(key, float(value)) for key, value in settings.items() if value is not None]
    return Optimiser(name, rule, slots, tuple(known))


def _names(rule: Function) -> tuple[str, ...]:
    return tuple([str(param.name) for param in rule.params])


def _is_number(of: Type | None) -> bool:
    return isinstance(of, TensorType) and not of.shape and of.dtype.is_float


def _refused(
    name: str, message: str, expected: str, found: str, hint: str | None = None
) -> InputError:
    return InputError(Diagnostic("bad-optimiser", message, Place(node=name), expected, found, hint))
