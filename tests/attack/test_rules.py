"""Hostile rules and packs: refused when they are made, or found out by the checker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import pytest

import plica
from plica import op
from plica.rewrite import approx, exact, hole, holes, pack, rewrite, rule
from plica.rewrite.check.verdict import Proved, Refuted
from plica.runtime.error import PlicaError
from tests.attack.judge import outcome, refused

x, y, z = holes("x y z")
made: Any = rule  # Any: attacks give what types forbid
packed: Any = pack


def raises(*args: Any) -> Any:
    raise LookupError("planted")


REFUSED: Final[dict[str, Callable[[], Any]]] = {
    "an unbound hole": lambda: rule("a", op.exp(x), y),
    "two unbound holes": lambda: rule("a", op.exp(x), y + z),
    "a hole alone": lambda: rule("a", x, op.exp(x)),
    "no name": lambda: rule("", op.exp(x), x),
    "a name of a number": lambda: made(7, op.exp(x), x),
    "a left side of a number": lambda: made("a", 1, x),
    "a left side of None": lambda: made("a", None, x),
    "a right side of a list": lambda: made("a", op.exp(x), [x]),
    "a right side of None": lambda: made("a", op.exp(x), None),
    "types that differ": lambda: rule("a", op.exp(x), op.greater(x, x)),
    "ranks that differ": lambda: rule("a", op.exp(x), op.expand_dims(op.exp(x), axis=0)),
    "a contract of a text": lambda: rule("a", op.exp(x), x, float="roughly"),
    "a contract of a number": lambda: made("a", op.exp(x), x, float=0.1),
    "a negative tolerance": lambda: rule("a", op.exp(x), x, float=approx(-1.0)),
    "a tolerance of nan": lambda: rule("a", op.exp(x), x, float=approx(float("nan"))),
    "a guard of a number": lambda: made("a", op.exp(x), x, when=3),
    "a guard that raises": lambda: _used(rule("a", op.exp(op.exp(x)), op.exp(x), when=raises)),
    "a right side that raises": lambda: _used(rule("a", op.exp(op.exp(x)), raises)),
    "a right side that is no term": lambda: _used(rule("a", op.exp(op.exp(x)), lambda m: 7)),
    "a right side of another type": lambda: _used(
        rule("a", op.exp(op.exp(x)), lambda m: op.greater(m.x, m.x))
    ),
    "a name twice in a pack": lambda: pack(
        "a", rule("b", op.exp(x), x), rule("b", op.log(x), x), version="1"
    ),
    "a pack of numbers": lambda: packed("a", 1, 2, version="1"),
    "a pack without a name": lambda: pack("", rule("b", op.exp(x), x), version="1"),
    "rules that run in a circle": lambda: _used(
        rule("a", op.add(x, y), op.add(y, x)),
    ),
    "rules that grow": lambda: _used(rule("a", op.exp(x), op.exp(op.negative(op.negative(x))))),
    "two rules in a circle": lambda: _used(
        rule("a", op.exp(op.exp(x)), op.sin(op.exp(x))),
        rule("b", op.sin(op.exp(x)), op.exp(op.exp(x))),
    ),
    "a pack that is not there": lambda: plica.check("no-such-pack"),
    "no examples": lambda: plica.check(rule("a", op.exp(x), x), examples=0),
    "a hole of no dtype": lambda: hole("x", dtypes="f31"),
}  # fmt: skip


def _used(*rules: Any) -> Any:
    """The rules on a program in which they apply."""
    module = plica.from_text("""
import plica
from plica import op

@plica.function
def main(x: Tensor[(3,), f32]) -> Tensor[(3,), f32]:
    return op.exp(op.exp(x)) + x
""")
    return rewrite(module, pack("hostile", *rules, version="1"))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_rule_is_refused(name: str) -> None:
    refused(REFUSED[name])


WRONG: Final[dict[str, Callable[[], Any]]] = {
    "sides exchanged": lambda: rule("w", op.subtract(x, y), op.subtract(y, x)),
    "a sign lost": lambda: rule("w", op.absolute(x), x),
    "nan forgotten": lambda: rule("w", op.multiply(x, 0.0), op.zeros_like(x), float=exact),
    "minus zero forgotten": lambda: rule("w", x + 0.0, x, float=exact),
    "an overflow": lambda: rule("w", (x * y) / y, x, float=exact),
    "a root of a square": lambda: rule("w", op.sqrt(op.square(x)), x),
    "a maximum of nan": lambda: rule("w", op.maximum(x, x), op.nn.relu(x)),
    "a double negation of logic": lambda: rule("w", op.floor(op.ceil(x)), op.floor(x)),
    "rounding": lambda: rule("w", op.round(x), op.trunc(x)),
    "powers": lambda: rule("w", op.exp(op.log(x)), x, float=exact),
    "an order of a sum": lambda: rule("w", (x + y) + z, x + (y + z), float=exact),
    "a distribution": lambda: rule("w", x * (y + z), x * y + x * z, float=exact),
    "turned the wrong way": lambda: rule("w", op.flip(op.flip(x, 0), 0), op.flip(x, 0)),
    "an axis": lambda: rule("w", op.sum(op.transpose(x, (1, 0)), axis=0), op.sum(x, axis=0)),
    "a truth that depends on data": lambda: rule("w", op.sign(x), op.ones_like(x)),
    "right but for 41": lambda: rule("w", op.cast(op.cast(x, "i8"), "f32"), op.trunc(x)),
    "a slope of one": lambda: rule("w", op.nn.relu(x), op.nn.leaky_relu(x)),
    "an identity near zero": lambda: rule("w", op.sin(x), x, float=exact),
    "division by itself": lambda: rule("w", x / x, op.ones_like(x), float=exact),
    "comparison with nan": lambda: rule("w", op.logical_not(op.less(x, y)), op.greater_equal(x, y)),
    "a minimum of zeros": lambda: rule("w", op.minimum(x, y), op.minimum(y, x), float=exact),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_found_out(name: str) -> None:
    wrong: Any = outcome(WRONG[name])
    if isinstance(wrong, PlicaError):
        return
    verdict = plica.check(wrong, examples=40 if name == "a minimum of zeros" else 200, seed=3)
    if name == "a minimum of zeros":  # minimum says which zero it gives: then they are the same
        assert not isinstance(verdict, Proved)
        return
    assert isinstance(verdict, Refuted), verdict


def test_a_slow_guard_ends_in_time() -> None:
    def slowly(m: Any) -> bool:
        time.sleep(0.001)
        return False

    outcome(lambda: _used(rule("a", op.exp(op.exp(x)), op.exp(x), when=slowly)))


def test_a_rule_cannot_change_what_it_is_given() -> None:
    held: list[Any] = []

    def right(m: Any) -> Any:
        held.append(m.x)
        return op.exp(m.x)

    module, _ = _used(rule("keeps", op.exp(op.exp(x)), right))
    again, _ = _used(rule("keeps", op.exp(op.exp(x)), right))
    assert plica.digest(module) == plica.digest(again)
    with pytest.raises(AttributeError):
        held[0].name = "y"


def test_a_hostile_pack_is_named_when_a_model_is_compiled() -> None:
    module = plica.from_text("""
import plica
from plica import op

@plica.function
def main(x: Tensor[(3,), f32]) -> Tensor[(3,), f32]:
    return op.exp(op.exp(x))
""")
    asked: list[Any] = []

    def later(m: Any) -> Any:
        asked.append(m)
        return raises() if len(asked) > quiet else None

    quiet = 10**9
    hostile = pack("hostile", rule("hostile-a", op.exp(op.exp(x)), later), version="1")
    quiet = 0
    found = outcome(lambda: plica.compile(module, packs=(hostile,), cache=False))
    assert isinstance(found, PlicaError)
    assert "hostile-a" in str(found)
