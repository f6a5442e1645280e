"""Windows over one channel mean what they did, and read nothing that is outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.codegen.lower.passes import lower
from plica.codegen.lower.processor import on_processor
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import stages
from plica.ir.loop.statement import Alloc, statements
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule.default import Machine, formed
from plica.schedule.default.contraction import contraction
from plica.schedule.default.depthwise import holds_rows, window_tile
from plica.schedule.default.depthwise_schedule import window_schedule
from plica.schedule.form import Facts
from tests.conftest import Golden
from tests.deep import spread
from tests.schedule.begun import begun

Array = np.ndarray[Any, Any]
FEW = settings(max_examples=max(4, settings().max_examples // 3))
FEWER = settings(max_examples=max(4, settings().max_examples // 6))
WIDE = Machine(512, 32)
AVX2 = "cpu:x86-64-v3"
VECTORS = st.sampled_from(("cpu", "cpu vector=128"))
"""Short ones are read whole, at the ends of rows too."""


def numbers(seed: int, shape: tuple[int, ...], of: Any = np.float32) -> Array:
    """Small whole numbers: their sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(of)


def whole(x: Var, body: Expr) -> Module:
    main = Var(Name("main"), None)
    return module({main: Function((), (), (x,), None, body)}, main)


def same(of: Module, *arrays: Array, threads: int | None = None, target: str | None = None) -> None:
    """Compiled code gives what the interpreter gives, to the bit."""
    found = plica.compile(of, cache=False, threads=threads, target=target or "cpu")(*arrays)
    np.testing.assert_array_equal(found, plica.interpret(of, *arrays))


def depthwise(x: Var, window: tuple[int, ...], of: Any = np.float32, **attrs: Any) -> Expr:
    """A convolution of each channel by itself, with a bias and a relu after it."""
    assert x.type is not None
    channels = x.type.shape[1].value  # type: ignore[union-attr]  # a tensor of known shape
    weight = const(numbers(1, (channels, 1, *window), of))
    bias = const(numbers(2, (channels, *(1 for _ in window)), of))
    return op.nn.relu(op.nn.conv(x, weight, groups=channels, **attrs) + bias)


def variable(shape: tuple[int, ...], of: str = "f32") -> Var:
    return Var(Name("x"), tensor(shape, of))


@FEW
@given(st.data())
def test_windows_of_any_size_mean_the_same(data: st.DataObject) -> None:
    draw = data.draw
    window = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    dilation = draw(st.sampled_from((1, 1, 2)))
    strides = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    pads = tuple((draw(st.integers(0, 4)), draw(st.integers(0, 4))) for _ in range(2))
    least = [max(1, (w - 1) * dilation + 1 - sum(p)) for w, p in zip(window, pads, strict=True)]
    size = draw(st.integers(least[0], least[0] + 19)), draw(st.integers(least[1], least[1] + 40))
    shape = draw(st.sampled_from((1, 2))), draw(st.integers(3, 9)), *size
    x = variable(shape)
    value = depthwise(x, window, strides=strides, padding=pads, dilation=dilation)
    same(whole(x, value), numbers(3, shape), target=draw(VECTORS))


@FEW
@given(st.data())
def test_pools_of_any_size_mean_the_same(data: st.DataObject) -> None:
    draw = data.draw
    window = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    side = draw(st.integers(0, min(window) - 1))
    strides = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    size = draw(st.integers(window[0], 20)), draw(st.integers(window[1], 40))
    make = draw(st.sampled_from((op.nn.max_pool, op.nn.avg_pool)))
    x = variable((1, 5, *size))
    # Only negative numbers: what stands outside must not win.
    value = make(x, kernel=window, strides=strides, padding=side)
    same(whole(x, value), -1 - abs(numbers(3, (1, 5, *size))), target=draw(VECTORS))


# fmt: off
SHAPES = {  # height, width, window, stride, padding
    "rows fill vectors":   (16, 32, 3, 1, 1), "one row":            ( 1, 40, 3, 1, 1),
    "two tiles":           ( 8, 20, 3, 1, 1), "a row too many":     (13, 33, 3, 1, 1),
    "stride 2 even":       (14, 30, 3, 2, 1), "stride 2 odd":       (15, 31, 3, 2, 1),
    "stride 3":            (17, 50, 3, 3, 1), "stride 4":           (17, 70, 5, 4, 2),
    "7x7":                 ( 7,  7, 3, 1, 1), "window 5":           (14, 18, 5, 1, 2),
    "no border":           (12, 37, 3, 1, 0), "border over window": ( 6,  9, 3, 1, 5),
    "window 7, three tiles": (21, 37, 7, 1, 3), "window 7, stride 2": (23, 41, 7, 2, 3),
}
# fmt: on


@pytest.mark.parametrize("name", spread(SHAPES, 8))
def test_known_shapes_agree_with_another_runtime(name: str) -> None:
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    height, width, window, stride, side = SHAPES[name]
    given_ = np.random.default_rng(3).standard_normal((1, 6, height, width), np.float32)
    weight = np.random.default_rng(4).standard_normal((6, 1, window, window), np.float32)
    x = variable(given_.shape)
    value = op.nn.conv(x, const(weight), groups=6, strides=stride, padding=side)
    found = plica.compile(whole(x, value), cache=False)(given_)
    assert isinstance(found, np.ndarray)
    node = onnx.helper.make_node(
        "Conv", ["x", "w"], ["y"], strides=[stride] * 2, group=6, pads=[side] * 4
    )
    float_ = onnx.TensorProto.FLOAT
    ports = [onnx.helper.make_tensor_value_info("x", float_, given_.shape)]
    ends = [onnx.helper.make_tensor_value_info("y", float_, found.shape)]
    kept = [onnx.numpy_helper.from_array(weight, "w")]
    graph = onnx.helper.make_graph([node], "g", ports, ends, kept)
    opset = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, {"x": given_})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_double_precision_and_threads() -> None:
    x = variable((2, 8, 19, 27), "f64")
    value = depthwise(x, (3, 3), np.float64, strides=(2, 1), padding=1)
    same(whole(x, value), numbers(3, (2, 8, 19, 27), np.float64))
    wide = variable((1, 16, 64, 64))
    same(whole(wide, depthwise(wide, (3, 3), padding=1)), numbers(3, (1, 16, 64, 64)), threads=2)


def test_shorter_vectors() -> None:
    x = variable((1, 8, 19, 27))
    of, given_ = whole(x, depthwise(x, (3, 3), strides=2, padding=1)), numbers(3, (1, 8, 19, 27))
    found = plica.compile(of, target="cpu vector=256", cache=False)(given_)
    np.testing.assert_array_equal(found, plica.interpret(of, given_))


@pytest.mark.parametrize("shape", [(1, 8, 60), (1, 4, 6, 7, 20)])
def test_one_and_three_axes(shape: tuple[int, ...]) -> None:
    x = variable(shape)
    same(whole(x, depthwise(x, (3,) * (len(shape) - 2), padding=1)), numbers(3, shape))


def test_what_is_outside_is_never_a_number() -> None:
    x = variable((1, 4, 9, 21))
    given_ = np.full((1, 4, 9, 21), np.inf, np.float32)
    value = op.nn.conv(x, const(np.ones((4, 1, 3, 3), np.float32)), groups=4, padding=1)
    found = plica.compile(whole(x, value), cache=False)(given_)
    np.testing.assert_array_equal(found, given_)  # an infinity that is read where none is gives nan


def window(shape: tuple[int, ...], strides: int = 1) -> Function:
    """A depthwise convolution of 3x3 whose weight is a parameter."""
    x, w = variable(shape), Var(Name("w"), tensor((shape[1], 1, 3, 3), "f32"))
    value = op.nn.relu(op.nn.conv(x, w, groups=shape[1], padding=1, strides=strides))
    main = Var(Name("main"), None)
    return infer(module({main: Function((), (), (x, w), None, value)}, main)).main_function()


@pytest.mark.parametrize(
    ("machine", "wide", "holds"),
    [(WIDE, 14, True), (WIDE, 16, True), (WIDE, 17, False), (Machine(256, 16), 8, False)],
)
def test_weights_that_products_read_from_memory_need_no_registers(
    machine: Machine, wide: int, holds: bool
) -> None:
    x, w = buffer("x", (8, 18, wide + 4), f32), buffer("w", (8, 5, 5), f32)
    conv = stage(
        "y", (8, 14, wide),
        lambda c, i, j: reduce("sum", (5, 5), lambda k, v: x[c, i + k, j + v] * w[c, k, v]),
    )  # fmt: skip
    found = contraction(stages((x, w), (conv,)))
    assert found is not None
    assert holds_rows(found, machine) == holds


def test_no_copy_of_the_data_is_made() -> None:
    made = on_processor(window((1, 32, 40, 40)), Facts((False, False)), WIDE)
    lowered = lower(made.kernel, "cpu")
    own = [each.buffer for each in statements(lowered.body) if isinstance(each, Alloc)]
    assert {known(each.shape[0]) for each in own} == {4 * 16}
    assert not made.scratch


@pytest.mark.parametrize(
    ("shape", "window", "soon", "is_window"),
    [
        ((40, 40), 3, False, True),
        ((9, 7), 3, False, True),
        ((40, 40), 3, True, False),
        ((9, 5), 3, False, False),
        ((40, 40), 7, False, False),
        ((9, 40, 40), 3, False, False),
    ],
)
def test_without_masks_it_is_known_which_lanes_are_outside(
    shape: tuple[int, ...], window: int, soon: bool, is_window: bool
) -> None:
    """Not in rows shorter than a vector, nor in a third axis, nor where the text would be long."""
    narrow, x = Machine(128, 32, soon=soon), variable((1, 32, *shape))
    value = op.nn.max_pool(x, kernel=window, strides=2, padding=1)
    of = to_stages(infer(whole(x, value)).main_function()).stages
    made = formed(of, Facts((False,)), narrow)
    found = made is not None and window_schedule(begun(made.stages, (False,)), narrow) is not None
    assert found is is_window


def test_rows_outside_are_zeros_where_zeros_are_wanted() -> None:
    """Then all tiles of rows are one text; in a pool the first and the last are apart."""
    narrow, x = Machine(128, 32), variable((1, 32, 40, 40))
    pool = infer(whole(x, op.nn.max_pool(x, kernel=3, strides=1, padding=1))).main_function()
    summed = on_processor(window((1, 32, 40, 40)), Facts((False, False)), narrow)
    pooled = on_processor(pool, Facts((False,)), narrow)
    asked = on_processor(
        window((1, 32, 40, 40)), Facts((False, False)), evolve(narrow, zero_rows=False)
    )
    every = [statements(lower(made.kernel, "cpu").body) for made in (summed, pooled, asked)]
    texts = [len([each for each in stmts if isinstance(each, Alloc)]) for stmts in every]
    assert texts == [3, 9, 9]  # the first vectors of a row, those between, the last ones


@pytest.mark.parametrize(("stride", "texts"), [(1, 3), (2, 4)])  # of rows one, of rows two
def test_rows_in_steps_are_apart_where_lanes_have_masks(stride: int, texts: int) -> None:
    function = window((1, 32, 96, 96), strides=stride)
    made = on_processor(function, Facts((False, False)), WIDE)
    every = [each for each in statements(lower(made.kernel, "cpu").body) if isinstance(each, Alloc)]
    assert len(every) == texts


@given(st.integers(2, 7), st.integers(2, 7), st.integers(1, 300))
def test_a_tile_of_short_vectors_fits_its_registers_and_its_text(
    down: int, across: int, rows: int
) -> None:
    narrow = Machine(128, 32)
    high, lanes = window_tile(down * across, rows, 50, narrow, 4, columns=across)
    assert lanes == 4
    assert 1 <= high <= min(rows, 8)
    texts = 1 if rows % high == 0 and down <= 3 else min(3, -(-rows // high))
    assert high * texts <= 16


@pytest.mark.parametrize(("rows", "down", "high"), [(112, 3, 8), (56, 3, 4), (112, 5, 5)])
def test_tiles_that_fill_no_image_are_higher_where_those_are_one_text(
    rows: int, down: int, high: int
) -> None:
    found, _ = window_tile(down * down, rows, rows, Machine(128, 32), 4, columns=down)
    assert found == high


@given(
    st.integers(1, 49), st.integers(1, 300), st.integers(1, 300), st.sampled_from((16, 32)),
    st.booleans(),
)  # fmt: skip
def test_a_tile_is_no_larger_than_it_must_be(
    taps: int, rows: int, row: int, registers: int, by_columns: bool
) -> None:
    high, lanes = window_tile(taps, rows, row, Machine(512, registers), 16, by_columns)
    assert 1 <= high <= rows
    assert high + 2 <= registers
    assert lanes in (4, 8, 16)
    assert lanes == 4 or lanes < 2 * row
    assert -(-rows // high) * high - rows < high


def test_golden(golden: Golden) -> None:
    made = on_processor(window((1, 24, 17, 40)), Facts((False, False)), WIDE)
    golden(show_kernel(lower(made.kernel, "cpu"), "depthwise"), "depthwise")


@pytest.mark.parametrize("window", [5, 7, 11])
def test_windows_too_large_to_be_written_out(window: int) -> None:
    x = Var(Name("x"), tensor((1, 5, 8, 8), "f32"))
    of = whole(x, depthwise(x, (window, window), padding=((window // 2,) * 2,) * 2))
    same(of, numbers(3, (1, 5, 8, 8)))
    source = plica.compile(of, target=AVX2, cache=False, threads=1).source("kernel")
    assert f"for k_2 in range({window})" in source  # columns, each with all of its rows
    assert f"unrolled({window})" in source


def test_what_a_window_read_may_be_read_again() -> None:
    """A pool less its own data is one kernel of vectors."""
    x = Var(Name("x"), tensor((1, 6, 14, 14), "f32"))
    pool = op.nn.avg_pool(x, kernel=(3, 3), strides=(1, 1), padding=((1, 1), (1, 1)))
    of = whole(x, pool - x)
    values = numbers(4, (1, 6, 14, 14)) * 9
    found = plica.compile(of, cache=False, threads=1)
    np.testing.assert_allclose(found(values), plica.interpret(of, values), rtol=1e-6, atol=1e-6)
    elsewhere = plica.compile(of, target=AVX2, cache=False, threads=1)
    assert "vectorized(8)" in elsewhere.source("kernel")


@FEWER
@given(
    channels=st.integers(4, 40),
    size=st.integers(3, 19),
    window=st.sampled_from(((3, 3), (5, 5), (1, 3), (3, 1))),
    stride=st.integers(1, 2),
    border=st.integers(0, 2),
)
def test_lanes_go_along_channels_that_are_neighbours(
    channels: int, size: int, window: tuple[int, int], stride: int, border: int
) -> None:
    if size + 2 * border < max(window):
        return
    x = Var(Name("x"), tensor((1, size, size + 1, channels), "f32"))
    weight = const(numbers(1, (*window, 1, channels)))
    conv = op.nn.conv_laid(
        x, weight, layouts=("NHWC", "HWIO", "NHWC"), groups=channels,
        strides=(stride, stride), padding=(border, border),
    )  # fmt: skip
    bias = const(numbers(2, (channels,)))
    same(whole(x, op.nn.relu(conv + bias)), numbers(3, (1, size, size + 1, channels)))


def test_a_window_of_channels_packs_its_weight_and_copies_no_data() -> None:
    x = Var(Name("x"), tensor((1, 9, 9, 24), "f32"))
    weight = Var(Name("w"), tensor((24, 3, 3, 1), "f32"))
    conv = op.nn.conv_laid(
        x, weight, layouts=("NHWC", "OHWI", "NHWC"), groups=24, padding=(1, 1)
    )  # fmt: skip
    main = Var(Name("main"), None)
    both = module({main: Function((), (), (x, weight), None, conv)}, main)
    made = formed(to_stages(infer(both).main_function()).stages, Facts((False, True)), WIDE)
    assert made is not None
    assert made.form == "window"
    weights, sums, results = [
        [known(size) for size in out.shape] for each in made.stages.stages for out in each.outs
    ]
    assert weights == [2, 1, 3, 3, 16]
    assert (sums[-1], results) == (32, [1, 9, 9, 24])


@pytest.mark.parametrize(("channels", "window"), [(24, True), (22, False)])
def test_short_vectors_go_along_channels_they_divide(channels: int, window: bool) -> None:
    """No lane of theirs can be left out at the end of a row."""
    x, w = buffer("x", (9, 9, channels), f32), buffer("w", (3, 3, channels), f32)
    conv = stage("y", (7, 7, channels), lambda i, j, c: reduce(
        "sum", (3, 3), lambda k, m: x[i + k, j + m, c] * w[k, m, c]))  # fmt: skip
    made = formed(stages((x, w), (conv,)), Facts((False, True)), Machine(128, 32))
    assert (made is not None and made.form == "window") is window
