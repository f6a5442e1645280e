"""Open tiles: convolutions of any height and width, against numpy and against the interpreter."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper

import plica
from plica.codegen.lower.open_tile_choice import USUAL, open_passes
from plica.core.name import Name
from plica.ir.graph.expression import Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.type.dim import dim_var
from plica.ir.type.term import tensor
from plica.op import nn
from plica.runtime.error import InputError, PlicaError
from plica.schedule.default.machine import Machine
from plica.schedule.default.register_tile import UNDER_WAY

# fmt: off
#          channels  outputs  window   stride   border  groups  epilogue
CASES = {
    "3x3":      (24,      32, (3, 3), (1, 1), (1, 1), 1, "relu"),
    "runs":     (40,      16, (3, 3), (1, 1), (1, 1), 1, ""),
    "tail":    (288,      48, (1, 1), (1, 1), (0, 0), 1, "add"),
    "odd":      (16,      20, (3, 3), (1, 1), (1, 1), 1, "add"),
    "prime":     (8,      92, (1, 5), (1, 3), (0, 0), 1, ""),
    "half":     (16,       9, (3, 3), (2, 2), (1, 1), 1, "relu"),
    "first":     (3,      64, (7, 7), (2, 2), (3, 3), 1, "relu"),
    "point":    (64,      40, (1, 1), (1, 1), (0, 0), 1, "relu"),
    "left":     (20,      43, (1, 1), (1, 1), (0, 0), 1, "relu"),
    "few":      (20,       3, (1, 1), (1, 1), (0, 0), 1, "add"),
    "sparse":   (16,      32, (1, 1), (2, 2), (0, 0), 1, ""),
    "bare":      (8,      16, (3, 3), (1, 1), (0, 0), 1, "relu"),
    "flat":      (8,      33, (1, 3), (1, 1), (0, 1), 1, "add"),
    "tall":      (8,      17, (3, 1), (1, 1), (1, 0), 1, ""),
    "far":       (8,      16, (3, 3), (4, 4), (1, 1), 1, ""),
    "groups":   (16,      64, (3, 3), (1, 1), (1, 1), 2, "relu"),
    "apart":    (12,      12, (3, 3), (1, 1), (1, 1), 12, "relu"),
    "wide":     (24,      24, (5, 5), (2, 2), (2, 2), 24, ""),
    "deep":    (160,      96, (1, 1), (1, 1), (0, 0), 1, "relu"),
}
# fmt: on


def model(case: str, n: int | str, high: int | str, wide: int | str) -> tuple[Module, Any]:
    """A convolution of images of some sizes, and its weight."""
    channels, outputs, window, strides, padding, groups, after = CASES[case]
    weight = np.random.default_rng(1).normal(size=(outputs, channels // groups, *window))
    weight = weight.astype(np.float32)
    nodes = [helper.make_node(
        "Conv", ["x", "w"], ["c"], kernel_shape=window, strides=strides,
        pads=[*padding, *padding], group=groups,
    )]  # fmt: skip
    if after == "relu":
        nodes.append(helper.make_node("Relu", ["c"], ["y"]))
    elif after == "add":
        nodes.append(helper.make_node("Tanh", ["c"], ["t"]))
        nodes.append(helper.make_node("Add", ["c", "t"], ["y"]))
    else:
        nodes[0].output[0] = "y"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [n, channels, high, wide])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], [numpy_helper.from_array(weight, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    return plica.from_onnx(made), weight


@lru_cache(maxsize=64)
def made(case: str) -> tuple[Module, Any, Any]:
    """A convolution of open sizes, compiled, and its weight."""
    of, weight = model(case, "n", "h", "w")
    return of, plica.compile(of, contract="exact", threads=1), weight


def by_numpy(case: str, x: Any, weight: Any) -> Any:
    """The same in f64."""
    _, outputs, window, strides, padding, groups, after = CASES[case]
    border = [(0, 0), (0, 0), *[(each, each) for each in padding]]
    seen = sliding_window_view(np.pad(x.astype(np.float64), border), window, axis=(2, 3))
    seen = seen[:, :, :: strides[0], :: strides[1]]
    n, channels, high, wide = seen.shape[:4]
    parts = seen.reshape(n, groups, channels // groups, high, wide, *window)
    split = weight.astype(np.float64).reshape(groups, outputs // groups, -1, *window)
    found = np.einsum("ngchwkl,gockl->ngohw", parts, split).reshape(n, outputs, high, wide)
    return np.maximum(found, 0) if after == "relu" else found + np.tanh(found) * (after == "add")


SIDE = st.sampled_from((1, 2, 3, 4, 5, 7, 8, 9, 14, 16, 17, 23))


@pytest.mark.parametrize("case", CASES)
@given(st.integers(0, 3), SIDE, SIDE)
@example(1, 1, 1)
@example(0, 8, 8)
@example(1, 2, 19)
@example(1, 37, 35)  # more rows than are copied at once, more columns than a store has
@settings(max_examples=2, deadline=None)
def test_every_size_gives_what_numpy_gives(case: str, n: int, high: int, wide: int) -> None:
    of, exe, weight = made(case)
    x = np.random.default_rng(high).normal(size=(n, CASES[case][0], high, wide))
    x = x.astype(np.float32)
    try:
        found = np.asarray(exe(x))
    except InputError:
        with pytest.raises(PlicaError):
            plica.interpret(of, x)
        return
    wanted = by_numpy(case, x, weight)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    if n * high * wide < 64:  # each sum has its terms in the order that it says
        np.testing.assert_array_equal(found, np.asarray(plica.interpret(of, x)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", ["tail", "deep"])
def test_short_vectors_read_tiles_from_panels(case: str, threads: int) -> None:
    of, weight = model(case, "n", "h", "w")
    target = "cpu cpu=x86-64-v2 features=+sse4.1,-avx"
    exe = plica.compile(of, target=target, contract="exact", threads=threads)
    assert "panel" in exe.source("kernel")
    assert ("parallel" in exe.source("kernel")) == (threads > 1)
    for n, high, wide in ((1, 1, 1), (0, 8, 8), (2, 37, 35), (1, 3, 3)):
        x = np.random.default_rng(high).normal(size=(n, CASES[case][0], high, wide))
        x = x.astype(np.float32)
        found = np.asarray(exe(x))
        np.testing.assert_allclose(found, by_numpy(case, x, weight), rtol=1e-4, atol=1e-4)
        if n * high * wide < 64:
            np.testing.assert_array_equal(found, np.asarray(plica.interpret(of, x)))


@given(st.sampled_from(sorted(CASES)), st.integers(1, 3), SIDE, SIDE, st.integers(1, 2))
@example("tail", 1, 7, 7, 1)
@example("groups", 2, 5, 17, 2)
@example("apart", 1, 14, 3, 2)
@settings(max_examples=4, deadline=None)
def test_known_sizes_in_a_hurry_give_what_numpy_gives(
    case: str, n: int, high: int, wide: int, threads: int
) -> None:
    size = max(*CASES[case][2], high), max(*CASES[case][2], wide)
    of, weight = model(case, n, *size)
    exe = plica.compile(of, effort="fast", threads=threads, cache=False)
    x = np.random.default_rng(high).normal(size=(n, CASES[case][0], *size)).astype(np.float32)
    np.testing.assert_allclose(exe(x), by_numpy(case, x, weight), rtol=1e-4, atol=1e-4)


@given(
    st.sampled_from([(128, 32), (256, 16), (512, 32)]),
    st.integers(1, 40).map(lambda n: 8 * n),
    st.integers(1, 400),
)
def test_tiles_in_a_hurry_keep_units_busy(vectors: tuple[int, int], outputs: int, row: int) -> None:
    def sums(soon: bool) -> int:
        machine = Machine(*vectors, soon=soon)
        tile, _ = open_passes(outputs, 64, vectors[0] // 32, (row,), machine)
        return tile.vectors * tile.steps

    assert sums(soon=True) >= min(sums(soon=False), UNDER_WAY)


@given(
    st.sampled_from([(128, 32), (256, 16), (512, 32)]),
    st.integers(1, 40).map(lambda n: 8 * n),
    st.integers(8, 600),
)
def test_narrower_tiles_make_all_that_is_left_and_no_more_than_there_is_room_for(
    vectors: tuple[int, int], outputs: int, terms: int
) -> None:
    tile, narrower = open_passes(outputs, terms, vectors[0] // 32, tuple(USUAL), Machine(*vectors))
    for left in range(tile.steps):
        over = -left
        for wide, after in zip(narrower, (*narrower[1:], 0), strict=True):
            over += (-over + wide - after - 1) // wide * wide
        assert 0 <= over < narrower[-1]


@pytest.mark.parametrize(("outputs", "row"), [(24, 196), (96, 784), (320, 49), (160, 36)])
def test_tiles_in_a_hurry_have_one_text(outputs: int, row: int) -> None:
    tile, _ = open_passes(outputs, 64, 4, (row,), Machine(128, 32, soon=True))
    assert outputs % (4 * tile.vectors) == row % tile.steps == 0


def test_images_of_all_sizes_go_by_winograd() -> None:
    of, _, weight = made("3x3")
    exe = plica.compile(of, threads=1)
    for n, high, wide in ((1, 1, 1), (2, 5, 18), (1, 9, 61), (1, 66, 7)):
        x = np.random.default_rng(wide).normal(size=(n, 24, high, wide)).astype(np.float32)
        np.testing.assert_allclose(exe(x), by_numpy("3x3", x, weight), rtol=1e-3, atol=1e-3)
    assert "winograd" in exe.source("kernel")


PRODUCTS = {
    "gelu": (37, 52, 1),  # terms, outputs, threads
    "few": (12, 3, 1),
    "groups": (10_000, 5, 1),  # as many rows as stay in a cache are few
    "shared": (300, 450, 2),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_rows_of_a_product_are_one_kernel_whatever_their_number_is(case: str) -> None:
    terms, outputs, threads = PRODUCTS[case]
    random = np.random.default_rng(3)
    weight = random.normal(size=(outputs, terms)).astype(np.float32) / terms**0.5
    x = Var(Name("x"), tensor(("n", terms), "f32"))
    main, product = Var(Name("main"), None), nn.dense(x, const(weight))
    body = nn.gelu(product) if case == "gelu" else product
    of = module({main: Function((dim_var("n"),), (), (x,), None, body)}, main)
    exe = plica.compile(of, threads=threads)
    assert len(exe.artefact.launches) == 1
    for n in (0, 1, 5, 7, 12, 29):
        data = random.normal(size=(n, terms)).astype(np.float32)
        wanted = data.astype(np.float64) @ weight.T.astype(np.float64)
        if case == "gelu":
            wanted = np.asarray(plica.interpret(of, data))
        np.testing.assert_allclose(exe(data), wanted, rtol=1e-4, atol=1e-4)
