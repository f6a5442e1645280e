"""Certificates of derivations: right ones are accepted, damaged ones are refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from plica.core import Name
from plica.demo.cnn_script import cnn
from plica.ir.graph.expression import Expr, Var
from plica.ir.text.script import as_module
from plica.ir.type import tensor
from plica.pipeline import lower
from plica.rewrite.certificate import certificate
from plica.rewrite.derivation import Derivation
from plica.rewrite.pack import rewrite
from plica.rewrite.packs import find_pack
from plica.rewrite.packs.word import op
from plica.rewrite.strategy import bottom_up, choice, top_down
from plica.runtime.derivation_check import check_derivation

Json = Any  # what json.loads gives
x = Var(Name("x"), tensor((2, 3, 4), "f32"))
sum_, transpose, concat = map(op, ["sum", "transpose", "concat"])
TERMS: dict[str, Expr] = {
    "reduction": sum_(transpose(x, (2, 0, 1)), (0,), False) + sum_(sum_(x, (0,)), (0,)),
    "algebra": op("negative")(op("negative")(x + 0)) * 1,
    "rearrange": concat((concat((x, x), axis=0), x), axis=0),
}


@cache
def text_of(name: str) -> str:
    if name == "a compilation":
        return json.dumps(certificate(lower(as_module(cnn)).derivation))
    term = TERMS[name]
    _, steps = rewrite(term, find_pack(name))
    return json.dumps(certificate(Derivation(term, steps.steps)))


NAMES = ("a compilation", *TERMS)


@pytest.mark.parametrize("name", NAMES)
def test_certificates_are_accepted(name: str) -> None:
    found = check_derivation(json.loads(text_of(name)))
    assert found.problem == ""
    assert found.matched > 0


@pytest.mark.parametrize("sweep", [bottom_up, top_down])
def test_sweeps_once_over_a_term_are_followed(sweep: Any) -> None:
    term = TERMS["algebra"]
    done = sweep(choice(*find_pack("algebra")))(term)
    assert done is not None
    found = check_derivation(certificate(Derivation(term, done.steps)))
    assert (found.problem, found.matched) == ("", len(done.steps))


def places(of: Json, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a certificate."""
    items = of.items() if isinstance(of, dict) else enumerate(of) if isinstance(of, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


def damaged(value: Json, draw: Any) -> Json:
    """Another value of its kind."""
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, bool | int):
        return value + draw(st.sampled_from((-1, 1, 7)))
    if value is None:
        return 0
    if isinstance(value, dict):
        return {**value, "another": [["1"], []]}
    return value[:-1] if value and draw(st.booleans()) else value + (value[-1:] or [0])


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_certificates_are_refused(data: Any) -> None:
    whole = json.loads(text_of(data.draw(st.sampled_from(NAMES))))
    path = data.draw(st.sampled_from(list(places(whole))))
    made = copy.deepcopy(whole)
    at = made
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = damaged(at[path[-1]], data.draw)
    if made != whole:
        assert check_derivation(made).problem != "", path


def test_a_step_left_out_is_missed() -> None:
    whole = json.loads(text_of("a compilation"))
    for number, group in enumerate(whole["groups"]):
        made = copy.deepcopy(whole)
        made["groups"][number][3] = group[3][1:]
        assert check_derivation(made).problem != ""


def test_computed_steps_in_a_circle_are_refused() -> None:
    whole = json.loads(text_of("a compilation"))
    (number,) = [at for at, group in enumerate(whole["groups"]) if group[0] == "normal"]
    steps = whole["groups"][number][3]
    assert len(steps) > 1
    for at, step in enumerate(steps):
        alone, circle = copy.deepcopy(whole), copy.deepcopy(whole)
        alone["groups"][number][3][at][3] = step[2]
        circle["groups"][number][3][at][3] = steps[at - 1][2]
        circle["groups"][number][3][at - 1][3] = step[2]
        assert "comes back" in check_derivation(alone).problem
        assert check_derivation(circle).problem != ""


def test_a_constant_of_a_rule_keeps_its_sign() -> None:
    whole = json.loads(text_of("algebra"))
    (rule,) = [each for each in whole["rules"] if each[0] == "add-zero"]
    assert ["number", "0", []] in rule[4][0][0]
    of_zero = next(step for group in whole["groups"] for step in group[3]
                   if any(name[0] in "lr" and name[1:].isdigit() for name in step[4]))  # fmt: skip
    (zero,) = [value[1][0] for name, value in of_zero[4].items() if name[1:].isdigit()]
    assert whole["nodes"][zero][0] in (["Const(f32;();0.0)"], ["Literal(0)"])
    whole["nodes"][zero][0] = ["Const(f32;();-0.0)"]
    assert check_derivation(whole).problem != ""


def test_a_certificate_of_another_version_is_refused() -> None:
    assert "version 2" in check_derivation({"version": 2}).problem
    assert check_derivation([]).problem != ""
