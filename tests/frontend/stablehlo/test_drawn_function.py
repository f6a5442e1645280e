"""Drawn functions of JAX give what JAX gives, as text in and as text out."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax")

import jax  # it may be missing

import plica
from plica.frontend.stablehlo.fuzz.run import run
from plica.ir.graph.module import Module
from tests.frontend.stablehlo.drawn_function import TABLE, drawn
from tests.frontend.stablehlo.test_specification import agree

FEW = range(4)


def lowered(function: Any, x: Any) -> tuple[Module, list[Any]]:
    """The module of a function, and what JAX gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = jax.jit(function, keep_unused=True)
        module = plica.from_stablehlo(compiled.lower(x).as_text())
        return module, [np.asarray(each) for each in jax.tree.leaves(compiled(x))]


def same(found: Any, expected: list[Any]) -> None:
    listed = found if isinstance(found, tuple) else (found,)
    assert len(listed) == len(expected)
    for one, other in zip(listed, expected, strict=True):
        agree(np.asarray(one), other)


@pytest.mark.parametrize("seed", FEW)
def test_a_drawn_function_is_compiled(seed: int) -> None:
    function, x = drawn(seed)
    module, expected = lowered(function, x)
    same(plica.compile(module)(x), expected)
    same(tuple(run(plica.to_stablehlo(module), x)), expected)


@pytest.mark.slow
def test_drawn_functions_are_right() -> None:
    """At least 95 % of 300; none that is compiled is wrong."""
    right = 0
    for seed in range(300):
        function, x = drawn(seed)
        try:
            module, expected = lowered(function, x)
        except plica.UnsupportedError:
            continue
        same(plica.compile(module)(x), expected)
        same(tuple(run(plica.to_stablehlo(module), x)), expected)
        right += 1
    assert right >= 285


@pytest.mark.slow
def test_each_step_is_right() -> None:
    x = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    for step in (step for family in TABLE for step in family):
        module, expected = lowered(step, x)
        same(plica.interpret(module, x), expected)
