"""Winograd rules: used where they pay and the contract allows, and near the convolution."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings

import plica
from plica.codegen.llvm.processor import find_target
from plica.core.name import Name
from plica.ir.contract import Contract, approx, exact, reassociates
from plica.ir.graph.expression import Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.graph.weight_array import MAX_WEIGHT
from plica.ir.op.convolution import conv
from plica.ir.op.winograd import TILES
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.pipeline import lower
from plica.rewrite.pack import rewrite
from plica.rewrite.packs.winograd import WINOGRAD, Costs, WinogradLayer, winograd_for
from tests.ir.reference.neural import _conv as reference

Array = np.ndarray[Any, Any]
EXAMPLES = max(2, settings().max_examples // 8)
COSTS = Costs(lanes=16, cache=2 << 20)
AVX512 = evolve(find_target("cpu"), vector=512, registers=32)


def numbers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def layer(x: tuple[int, ...], w: Array, **attrs: Any) -> Module:
    given_, main = Var(Name("x"), tensor(x, "f32")), Var(Name("main"), None)
    body = conv(given_, const(w), **attrs)
    return infer(module({main: Function((), (), (given_,), None, body)}, main))


def used(of: Module, contract: Contract, costs: Costs = COSTS) -> list[str]:
    """The names of the rules that apply to a layer."""
    _, derivation = rewrite(of, winograd_for(costs), contract)
    return [step.rule.name for step in derivation.steps]


CHOICES = (
    (64, 56, 4),  # a quarter of the products
    (128, 28, 4),
    (256, 14, 4),
    (512, 7, 2),  # 4x4 would take weights of 38 MB
    (6, 56, None),  # vectors would be empty
)


@pytest.mark.parametrize(("channels", "size", "tile"), CHOICES)
def test_tiles_are_chosen_by_what_they_cost(channels: int, size: int, tile: int | None) -> None:
    assert COSTS.best(WinogradLayer(1, channels, channels, size, size)) == tile


@given(st.integers(1, 4), st.integers(1, 600), st.integers(1, 600), st.integers(1, 60))
def test_the_least_cost_is_less_than_without(n: int, c: int, o: int, size: int) -> None:
    of = WinogradLayer(n, c, o, size, size)
    best = COSTS.best(of)
    costs = [COSTS.tiled(of, each) for each in TILES]
    assert (best is None) == (min(costs) >= COSTS.direct(of))
    assert best is None or COSTS.tiled(of, best) == min(costs)


@given(st.integers(1, 4), st.integers(1, 600), st.integers(1, 600), st.integers(1, 60))
def test_in_a_hurry_no_weight_is_transformed_that_is_larger_than_its_images(
    n: int, c: int, o: int, size: int
) -> None:
    of, soon = WinogradLayer(n, c, o, size, size), evolve(COSTS, soon=True)
    small = 9 * c * o <= n * size * size * (c + o)
    assert soon.best(of) == (COSTS.best(of) if small else None)
    for tile in TILES:
        assert soon.pays(of, tile) == (small and COSTS.pays(of, tile))


@pytest.mark.parametrize("threads", [1, 2])
def test_code_in_a_hurry_is_near_the_convolution(threads: int) -> None:
    w, x = numbers(1, 64, 64, 3, 3), numbers(2, 1, 64, 23, 26)
    exe = plica.compile(layer(x.shape, w, padding=1), effort="fast", threads=threads, cache=False)
    assert any("winograd" in each.kernel for each in exe.artefact.launches)
    wanted = reference(x.astype(np.float64), w.astype(np.float64), padding=1)
    np.testing.assert_allclose(exe(x), wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def test_the_contract_decides_how_large_tiles_may_be() -> None:
    of = layer((1, 64, 56, 56), np.zeros((64, 64, 3, 3), np.float32), padding=1)
    assert used(of, approx(1e-4)) == ["conv-winograd-4x4"]
    assert used(of, approx(1e-5)) == ["conv-winograd-2x2"]
    assert used(of, reassociates) == used(of, exact) == []


OTHERS = ({"strides": 2}, {"dilation": 2, "padding": 2}, {"groups": 2}, {"strides": (1, 2)})


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_other_convolutions_stay(other: dict[str, Any]) -> None:
    own = 64 // other.get("groups", 1)
    of = layer((1, 64, 56, 56), np.zeros((64, own, 3, 3), np.float32), **other)
    assert used(of, approx(1e-4)) == []


def test_windows_of_another_size_stay() -> None:
    of = layer((1, 64, 56, 56), np.zeros((64, 64, 3, 1), np.float32))
    assert used(of, approx(1e-4)) == []


@pytest.mark.parametrize("value", [np.inf, np.nan, 2 * MAX_WEIGHT])
def test_weights_that_would_overflow_stay(value: float) -> None:
    w = np.zeros((64, 64, 3, 3), np.float32)
    w[3, 2, 1, 0] = value
    assert used(layer((1, 64, 56, 56), w), approx(1e-4)) == []


def test_weights_are_transformed_when_compiling() -> None:
    of = layer((1, 64, 28, 28), numbers(0, 64, 64, 3, 3), padding=1)
    done = lower(of, target=AVX512)
    assert done.program.names == ("nn.conv_winograd",)
    assert [each.numpy().shape for each in done.program.constants] == [(36, 4, 64, 16)]


@settings(max_examples=EXAMPLES)
@given(st.sampled_from((2, 4)), st.sampled_from((16, 64)), st.integers(8, 20), st.integers(0, 9))
def test_the_error_is_far_below_the_contract(tile: int, c: int, size: int, seed: int) -> None:
    x, w = numbers(seed, 1, c, size, size), numbers(seed + 1, 16, c, 3, 3)
    (only,) = [each for each in WINOGRAD if each.name.endswith(f"{tile}x{tile}")]
    made, _ = rewrite(layer(x.shape, w, padding=1), [only])
    assert isinstance(made, Module)
    wanted = reference(x.astype(np.float64), w.astype(np.float64), padding=1)
    limit = 5e-5 if tile == 4 else 5e-6
    found = plica.compile(made, cache=False)(x)
    assert np.abs(found - wanted).max() <= limit * np.abs(wanted).max()
