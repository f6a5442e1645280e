"""Windows of open images: every height and width gives what numpy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import example, given, settings, strategies as st

import plica
from plica.codegen.lower.processor import on_processor
from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.loop.statement import Alloc, statements
from plica.ir.type.dim import dim_var
from plica.ir.type.term import tensor
from plica.op import nn
from plica.schedule.default.machine import Machine
from plica.schedule.form import Facts

Array = np.ndarray[Any, Any]


def windows(x: Array, size: int, stride: int, pad: int, fill: float) -> Array:
    """All windows of the last two axes, with a border."""
    wide = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    every = np.lib.stride_tricks.sliding_window_view(wide, (size, size), axis=(2, 3))
    return every[:, :, ::stride, ::stride]


def weight_of(size: int) -> Array:
    return np.random.default_rng(0).standard_normal((4, 1, size, size)).astype(np.float32)


def model(kind: str, weight: Array, stride: int, image: tuple[int | str, int | str]) -> Module:
    """Windows of four channels."""
    size = weight.shape[-1]
    x = Var(Name("x"), tensor((1, 4, *image), "f32"))
    made: Expr = (
        nn.max_pool(x, (size, size), strides=stride, padding=size // 2) if kind == "pool"
        else nn.conv(x, const(weight), padding=size // 2, strides=stride, groups=4)
    )  # fmt: skip
    dims = tuple([dim_var(each) for each in image if isinstance(each, str)])
    main = Var(Name("main"), None)
    return module({main: Function(dims, (), (x,), None, made)}, main)


def by_numpy(kind: str, weight: Array, stride: int, data: Array) -> Array:
    size = weight.shape[-1]
    seen = windows(data, size, stride, size // 2, -np.inf if kind == "pool" else 0)
    if kind == "pool":
        return np.asarray(seen.max((-2, -1)))
    return np.asarray(np.einsum("nchwij,cij->nchw", seen.astype(np.float64), weight[:, 0]))


@pytest.mark.parametrize(
    ("kind", "size", "stride"), [("pool", 3, 2), ("conv", 5, 1), ("conv", 3, 3)]
)
def test_windows_at_the_ends_of_images(kind: str, size: int, stride: int) -> None:
    weight = weight_of(size)
    exe = plica.compile(model(kind, weight, stride, ("h", "w")), threads=1, cache=False)
    sizes = [(1, 1), (3, 70), (9, 15), (8, 16), (13, 17), (24, 31), (25, 33), (26, 48), (17, 50)]
    for each in sizes:
        data = np.random.default_rng(1).standard_normal((1, 4, *each)).astype(np.float32)
        wanted = by_numpy(kind, weight, stride, data)
        np.testing.assert_allclose(exe(data), wanted, rtol=1e-4, atol=1e-4)


@given(
    st.sampled_from(("pool", "conv")),
    st.sampled_from((3, 5)),
    st.integers(1, 3),
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    st.integers(1, 2),
)
@example("conv", 3, 1, (24, 16), 1)  # strips fill a row
@example("pool", 3, 2, (9, 1), 2)  # no vector long
@settings(max_examples=4, deadline=None)
def test_known_sizes_in_a_hurry_give_what_numpy_gives(
    kind: str, size: int, stride: int, image: tuple[int, int], threads: int
) -> None:
    weight = weight_of(size)
    of = model(kind, weight, stride, image)
    exe = plica.compile(of, effort="fast", threads=threads, cache=False)
    data = np.random.default_rng(2).standard_normal((1, 4, *image)).astype(np.float32)
    wanted = by_numpy(kind, weight, stride, data)
    np.testing.assert_allclose(exe(data), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("machine", [Machine(128, 32), Machine(512, 32), Machine(256, 16)])
@pytest.mark.parametrize(("high", "texts"), [(28, 1), (29, 2)])
def test_all_tiles_of_known_sizes_have_one_text(machine: Machine, high: int, texts: int) -> None:
    x = Var(Name("x"), tensor((1, 4, high, 60), "f32"))
    weight = Var(Name("weight"), tensor((4, 1, 3, 3), "f32"))
    conv = nn.conv(x, weight, padding=1, groups=4)
    function = Function((), (), (x, weight), tensor((1, 4, high, 60), "f32"), conv)
    facts = Facts((False, True), (), reassociates)
    assert on_processor(function, facts, machine).origin is not None  # a default has a trace
    made = on_processor(function, facts, evolve(machine, soon=True))
    assert made.origin is None  # nobody scheduled it
    sums = [each for each in statements(made.kernel.body) if isinstance(each, Alloc)]
    assert len(sums) == (1 if machine.masks else texts)  # tiles, and rows that fill none


@given(
    st.sampled_from(("pool", "conv")),
    st.sampled_from((2, 3, 5, 7)),
    st.integers(1, 3),
    st.tuples(st.integers(4, 24), st.integers(4, 40)),
    st.integers(1, 2),
)
@example("conv", 3, 2, (9, 16), 1)  # a row as long as a vector, tiles that overlap
@example("conv", 7, 1, (5, 17), 1)
@settings(max_examples=6, deadline=None)
def test_known_sizes_give_what_numpy_gives(
    kind: str, size: int, stride: int, image: tuple[int, int], threads: int
) -> None:
    weight = weight_of(size)
    exe = plica.compile(model(kind, weight, stride, image), threads=threads, cache=False)
    data = np.random.default_rng(3).standard_normal((1, 4, *image)).astype(np.float32)
    wanted = by_numpy(kind, weight, stride, data)
    np.testing.assert_allclose(exe(data), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wide", [4, 16])
def test_a_tile_that_ends_with_the_image_makes_nothing_of_what_it_wrote(wide: int) -> None:
    x = Var(Name("x"), tensor((1, 4, 9, wide), "f32"))
    beside = nn.relu(x * 3.0)  # dies where it is added, and has the size of what is made
    made = nn.conv(x, const(weight_of(3)), padding=1, groups=4) + beside * 0.5
    main = Var(Name("main"), None)
    whole = module({main: Function((), (), (x,), None, made)}, main)
    exe = plica.compile(whole, threads=1, cache=False)
    data = np.random.default_rng(4).standard_normal((1, 4, 9, wide)).astype(np.float32)
    wanted = by_numpy("conv", weight_of(3), 1, data) + np.maximum(data * 3.0, 0.0) * 0.5
    np.testing.assert_allclose(exe(data), wanted, rtol=1e-4, atol=1e-4)


def test_a_plane_before_the_first_is_outside() -> None:
    x = Var(Name("x"), tensor(("n", 1, 4, 4, 4), "f32"))
    weight = np.array([2.0, 3.0], np.float32).reshape(1, 1, 1, 1, 2)
    main = Var(Name("main"), None)
    made = nn.conv(x, const(weight), padding=((1, 0), (0, 0), (0, 0)))
    function = Function((dim_var("n"),), (), (x,), None, made)
    exe = plica.compile(module({main: function}, main), threads=1, cache=False)
    data = np.random.default_rng(0).standard_normal((2, 1, 4, 4, 4)).astype(np.float32)
    wide = np.pad(data, ((0, 0), (0, 0), (1, 0), (0, 0), (0, 0)))
    np.testing.assert_allclose(exe(data), 2 * wide[..., :-1] + 3 * wide[..., 1:], rtol=1e-5)
