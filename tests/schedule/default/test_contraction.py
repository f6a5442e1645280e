"""Convolutions and matrix products by rules of thumb mean what they did, at odd sizes too."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from attrs import evolve, frozen
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Apply, Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Reduce
from plica.ir.loop.stage import Each, placeholder, stage
from plica.ir.loop.stages import Names, evaluate_stages, kernel_of, stages
from plica.ir.loop.tensor import reduce
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.rewrite.fuse.to_stages import to_stages
from plica.runtime.machine import MachineDescription
from plica.schedule import replay
from plica.schedule.default import FORMS, Machine, default_schedule, default_trace, formed
from plica.schedule.default.contraction import contraction, merged
from plica.schedule.default.estimate import tiles_together
from plica.schedule.default.register_tile import rows_together
from plica.schedule.default.role import contraction_blocks, roles
from plica.schedule.default.summed import in_equal_runs
from plica.schedule.default.tile import RegisterTile
from plica.schedule.form import Facts
from plica.schedule.unlowered import run_unlowered
from tests.conftest import Golden
from tests.deep import spread
from tests.schedule.begun import begun

Array = np.ndarray[Any, Any]
FEW = settings(max_examples=max(4, settings().max_examples // 3))
WIDE = Machine(512, 32)
NARROW = Machine(128, 16)


@frozen
class Layer:
    """A convolution: channels, outputs, size, window, and how the window goes."""

    channels: int
    outputs: int
    size: tuple[int, int]
    window: tuple[int, int]
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1
    groups: int = 1
    batch: int = 1

    @property
    def fits(self) -> bool:
        reach = [(each - 1) * self.dilation + 1 for each in self.window]
        sides = self.before + self.after
        return all(size + sides >= each for size, each in zip(self.size, reach, strict=True))


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    """Convolutions of any kind, small, at sizes nothing divides."""
    groups = draw(st.sampled_from((1, 1, 1, 2, 8)))
    return Layer(
        groups * draw(st.integers(1, 5)),
        groups * draw(st.sampled_from((1, 3, 4, 8, 12, 16, 48))),
        (draw(st.integers(1, 9)), draw(st.integers(1, 37))),
        (draw(st.integers(1, 3)), draw(st.integers(1, 4))),
        draw(st.integers(1, 3)),
        draw(st.integers(0, 2)),
        draw(st.integers(0, 2)),
        draw(st.integers(1, 2)),
        groups,
        draw(st.sampled_from((1, 1, 2))),
    )


def numbers(seed: int, shape: tuple[int, ...]) -> Array:
    """Small whole numbers: their sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def convolution(
    of: Layer, x: Expr, *, constant: bool = True, bias: bool = True
) -> tuple[Expr, list[Var]]:
    """The convolution with what is often fused after it, and its parameters besides `x`."""
    shape = (of.outputs, of.channels // of.groups, *of.window)
    weight: Expr = const(numbers(1, shape)) if constant else Var(Name("w"), tensor(shape, "f32"))
    sides = ((of.before, of.after), (of.before, of.after))
    attrs = (
        ("dilation", of.dilation), ("groups", of.groups), ("padding", sides),
        ("strides", of.stride),
    )  # fmt: skip
    value: Expr = Apply("nn.conv", (x, weight), attrs)
    if bias:
        value = value + const(numbers(2, (of.outputs, 1, 1)))
    value = Apply("nn.relu", (value,))
    return value, [] if constant else [weight]  # type: ignore[list-item]  # a variable, if any


def whole(params: list[Var], body: Expr) -> Module:
    main = Var(Name("main"), None)
    return module({main: Function((), (), tuple(params), None, body)}, main)


def same(of: Module, *arrays: Array, contract: str | None = None) -> None:
    """Compiled code gives what the interpreter gives, to the bit."""
    found = plica.compile(of, cache=False, contract=contract)(*arrays)
    np.testing.assert_array_equal(found, plica.interpret(of, *arrays))


@FEW
@given(layers(), st.booleans())
def test_convolutions_mean_the_same(layer: Layer, constant: bool) -> None:
    if not layer.fits:
        return
    x = Var(Name("x"), tensor((layer.batch, layer.channels, *layer.size), "f32"))
    value, more = convolution(layer, x, constant=constant)
    arrays = [numbers(3, (layer.batch, layer.channels, *layer.size))]
    arrays += [numbers(1, (layer.outputs, layer.channels // layer.groups, *layer.window))] * len(
        more
    )
    same(whole([x, *more], value), *arrays)


# fmt: off
LAYERS = {
    "3x3":           Layer( 5,  32, (13, 11), (3, 3), 1, 1, 1),
    "3x3 ragged":    Layer( 3,  16, ( 5, 37), (3, 3), 1, 1, 1),
    "3x3 stride 2":  Layer( 5,  48, (13, 15), (3, 3), 2, 1, 1),
    "7x7 stride 2":  Layer( 3,  32, (17, 19), (7, 7), 2, 3, 2),
    "dilated":       Layer( 4,  16, (11, 12), (3, 3), 1, 2, 2, 2),
    "1x1":           Layer(12,  32, ( 7,  9), (1, 1)),
    "1x1 wide":      Layer(12,  24, ( 8, 32), (1, 1)),
    "1x1 sampled":   Layer(40,  64, (13, 10), (1, 1), 2),
    "1x1 stride 2":  Layer( 8,  16, ( 9, 33), (1, 1), 2),
    "odd outputs":   Layer( 6,  13, ( 9, 20), (3, 3), 1, 1, 1),
    "twelve":        Layer( 6,  12, ( 9, 11), (3, 3), 1, 1, 1),
    "depthwise":     Layer(24,  24, ( 9, 13), (3, 3), 1, 1, 1, 1, 24),
    "depthwise 2":   Layer(24,  24, ( 9, 23), (3, 3), 2, 1, 1, 1, 24),
    "groups":        Layer( 8,  32, ( 9, 11), (3, 3), 1, 1, 1, 1, 2),
    "batch":         Layer( 4,  16, ( 7,  7), (3, 3), 1, 1, 1, 1, 1, 3),
}
# fmt: on


@pytest.mark.parametrize("name", spread(LAYERS, 8))
def test_known_layers_agree_with_another_runtime(name: str) -> None:
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    layer = LAYERS[name]
    x = Var(Name("x"), tensor((layer.batch, layer.channels, *layer.size), "f32"))
    value, _ = convolution(layer, x)
    given_ = numbers(3, (layer.batch, layer.channels, *layer.size))
    found = plica.compile(whole([x], value), cache=False)(given_)
    assert isinstance(found, np.ndarray)
    shape = (layer.outputs, layer.channels // layer.groups, *layer.window)
    kept = [
        onnx.numpy_helper.from_array(numbers(1, shape), "w"),
        onnx.numpy_helper.from_array(numbers(2, (layer.outputs,)), "b"),
    ]
    node = onnx.helper.make_node(
        "Conv", ["x", "w", "b"], ["c"], strides=[layer.stride] * 2, group=layer.groups,
        pads=[layer.before] * 2 + [layer.after] * 2, dilations=[layer.dilation] * 2,
    )  # fmt: skip
    nodes = [node, onnx.helper.make_node("Relu", ["c"], ["y"])]
    float_ = onnx.TensorProto.FLOAT
    ports = [onnx.helper.make_tensor_value_info("x", float_, given_.shape)]
    ends = [onnx.helper.make_tensor_value_info("y", float_, found.shape)]
    graph = onnx.helper.make_graph(nodes, "g", ports, ends, kept)
    opset = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9)
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    np.testing.assert_array_equal(found, session.run(None, {"x": given_})[0])


@FEW
@given(
    st.integers(1, 30), st.integers(1, 40), st.sampled_from((8, 16, 20, 24, 48, 17)), st.booleans()
)
def test_matrix_products_mean_the_same(m: int, k: int, n: int, constant: bool) -> None:
    x = Var(Name("x"), tensor((m, k), "f32"))
    w = Var(Name("w"), tensor((k, n), "f32"))
    right: Expr = const(numbers(1, (k, n))) if constant else w
    bias = const(numbers(2, (n,)))
    params = [x] if constant else [x, w]
    arrays = [numbers(3, (m, k)), numbers(1, (k, n))][: len(params)]
    same(whole(params, Apply("matmul", (x, right)) + bias), *arrays)


@FEW
@given(layers(), st.sampled_from(("nn.max_pool", "nn.avg_pool")))
def test_pools_mean_the_same(layer: Layer, word: str) -> None:
    sides = min(layer.before, layer.window[0] - 1, layer.window[1] - 1)
    shape = (layer.batch, 3 * layer.channels, layer.size[0] + 3, layer.size[1] + 4)
    x = Var(Name("x"), tensor(shape, "f32"))
    make = getattr(op.nn, word.removeprefix("nn."))
    value = make(x, kernel=layer.window, strides=layer.stride, padding=sides)
    same(whole([x], value), numbers(3, shape))


def test_residuals_are_added_in_the_tile() -> None:
    layer = LAYERS["3x3"]
    x = Var(Name("x"), tensor((1, 5, 13, 11), "f32"))
    other = Var(Name("r"), tensor((1, 32, 13, 11), "f32"))
    value, _ = convolution(layer, x)
    of = whole([x, other], Apply("nn.relu", (value + other,)))
    same(of, numbers(3, (1, 5, 13, 11)), numbers(4, (1, 32, 13, 11)))


def test_without_one_rounding_nothing_is_lost() -> None:
    layer = LAYERS["3x3"]
    x = Var(Name("x"), tensor((1, 5, 13, 11), "f32"))
    value, _ = convolution(layer, x)
    same(whole([x], value), numbers(3, (1, 5, 13, 11)), contract="exact")


@pytest.mark.parametrize("machine", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", ["3x3", "1x1 wide", "depthwise"])
def test_a_default_schedule_is_an_ordinary_trace(name: str, machine: Machine) -> None:
    layer = LAYERS[name]
    x = Var(Name("x"), tensor((1, layer.channels, *layer.size), "f32"))
    value, more = convolution(layer, x, constant=False, bias=False)
    function = infer(whole([x, *more], value)).main_function()
    form = formed(to_stages(function).stages, Facts((False, True)), machine)
    assert form is not None
    kernel = begun(form.stages, (False, True))
    made = default_schedule(kernel, machine)
    trace = default_trace(kernel, machine)
    assert isinstance(made, tuple)
    assert trace is not None
    again = type(trace).from_json(trace.to_json())
    assert plica.digest(replay(again, kernel)) == plica.digest(replay(trace, kernel))


@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize("machine", [WIDE, NARROW], ids=["wide", "narrow"])
def test_every_form_has_a_schedule(machine: Machine, cores: int) -> None:
    shares = Machine(machine.vector, machine.registers, machine.caches, cores)
    for layer in LAYERS.values():
        x = Var(Name("x"), tensor((layer.batch, layer.channels, *layer.size), "f32"))
        value, more = convolution(layer, x, constant=False, bias=False)
        function = infer(whole([x, *more], value)).main_function()
        for constant in (True, False):
            facts = Facts((False, constant))
            form = formed(to_stages(function).stages, facts, shares)
            if form is not None:
                kernel = begun(form.stages, facts.constant)
                assert isinstance(default_schedule(kernel, shares), tuple), layer


@pytest.mark.parametrize(("outputs", "width", "cores"), spread([(24, 12, 1), (13, 16, 2)], 1))
def test_rows_go_together_where_data_leave_the_cache(outputs: int, width: int, cores: int) -> None:
    small = Machine(128, 16, (1024, 24 << 10), cores)
    layer = Layer(12, outputs, (24, width), (3, 3), stride=2, before=1, after=1)
    x = Var(Name("x"), tensor((1, layer.channels, *layer.size), "f32"))
    value, more = convolution(layer, x, constant=False, bias=False)
    function = infer(whole([x, *more], value)).main_function()
    form = formed(to_stages(function).stages, Facts((False, True)), small)
    assert form is not None
    kernel = kernel_of(form.stages)
    made = default_schedule(kernel, small)
    assert isinstance(made, tuple)
    roles_, blocks = roles(kernel), contraction_blocks(kernel, runs=True)
    assert roles_ is not None
    assert blocks is not None
    lanes = small.lanes(f32)
    assert 0 < rows_together(roles_, blocks.reduction, RegisterTile(2, 2), lanes, small) < 12
    arrays = [
        numbers(n, tuple([known(s) or 0 for s in b.shape])) for n, b in enumerate(kernel.params)
    ]
    given = arrays[: kernel.inputs]
    np.testing.assert_array_equal(
        run_unlowered(made[1], given)[-1], run_unlowered(kernel, given)[-1]
    )


@pytest.mark.parametrize(("pixels", "cores"), [((24, 24), 1), ((24, 24), 2), ((23, 24), 1)])
def test_tiles_of_one_row_go_together_where_data_leave_the_cache(
    pixels: tuple[int, int], cores: int
) -> None:
    """All outputs of a part of a long row, whose next lines are asked for before they are read."""
    small = Machine(128, 16, (1024, 8 << 10), cores)
    layer = Layer(6, 20, pixels, (1, 1))
    x = Var(Name("x"), tensor((1, layer.channels, *layer.size), "f32"))
    value, more = convolution(layer, x, constant=False, bias=False)
    function = infer(whole([x, *more], value)).main_function()
    form = formed(to_stages(function).stages, Facts((False, True)), small, "lanes-over-row")
    assert form is not None
    kernel = kernel_of(form.stages)
    made = default_schedule(kernel, small)
    assert isinstance(made, tuple)
    assert "'fetch'" in made[0].to_python() or '"fetch"' in made[0].to_python()
    roles_, blocks = roles(kernel), contraction_blocks(kernel, runs=True)
    assert roles_ is not None
    assert blocks is not None
    tiles = -(-prod(pixels) // 8)
    together = rows_together(roles_, blocks.reduction, RegisterTile(2, 2), small.lanes(f32), small)
    assert 1 < together < tiles
    assert tiles // together % cores == 0
    arrays = [
        numbers(n, tuple([known(s) or 0 for s in b.shape])) for n, b in enumerate(kernel.params)
    ]
    given = arrays[: kernel.inputs]
    np.testing.assert_array_equal(
        run_unlowered(made[1], given)[-1], run_unlowered(kernel, given)[-1]
    )


def test_runs_go_one_by_one_where_data_leave_the_cache(golden: Golden) -> None:
    small = Machine(128, 14, (1024, 8 << 10), 2)
    layer = Layer(64, 20, (5, 4), (3, 3), stride=2)
    x = Var(Name("x"), tensor((1, layer.channels, *layer.size), "f32"))
    value, more = convolution(layer, x, constant=False, bias=False)
    function = infer(whole([x, *more], value)).main_function()
    form = formed(to_stages(function).stages, Facts((False, True), contract=reassociates), small)
    assert form is not None
    kernel = kernel_of(form.stages)
    blocks = contraction_blocks(kernel, runs=True)
    assert blocks is not None
    assert blocks.again is not None
    made = default_schedule(kernel, small)
    assert isinstance(made, tuple)
    golden(show_kernel(made[1], "convolution"))


@pytest.mark.parametrize("threads", [1, 2])
def test_runs_one_by_one_mean_the_same(threads: int) -> None:
    small = MachineDescription("small", caches=(4 << 10, 128 << 10, 1 << 20))
    layer = Layer(288, 132, (9, 11), (3, 3), stride=2, before=1, after=1)
    x = Var(Name("x"), tensor((1, layer.channels, *layer.size), "f32"))
    of, array = whole([x], convolution(layer, x)[0]), numbers(3, (1, layer.channels, *layer.size))
    exe = plica.compile(of, cache=False, contract="reassociates", machine=small, threads=threads)
    assert "total: " in exe.source("kernel")
    np.testing.assert_array_equal(exe(array), plica.interpret(of, array))


@pytest.mark.parametrize("threads", [1, 2])
def test_tiles_of_a_run_go_together_while_their_rows_stay_near(threads: int) -> None:
    small = MachineDescription("small", caches=(4 << 10, 128 << 10, 1 << 20))
    x, w = Var(Name("x"), tensor((240, 520), "f32")), numbers(2, (120, 520))
    of, array = whole([x], Apply("nn.dense", (x, const(w)))), numbers(1, (240, 520))
    exe = plica.compile(of, cache=False, contract="reassociates", machine=small, threads=threads)
    assert "total: " in exe.source("kernel")
    np.testing.assert_array_equal(exe(array), array @ w.T)


@pytest.mark.parametrize(
    ("sizes", "kept", "wanted"),
    [
        ((2048, 2048, 2048), True, 8),  # rows 8 KB apart share an eighth of the lines
        ((2000, 2000, 2000), True, 50),
        ((2000, 2000, 24), True, 0),  # weights would come again for few outputs
        ((64, 2000, 2000), True, 0),  # all stay near
        ((1024, 1024, 1024), False, 16),
    ],
)
def test_tiles_go_together_where_fewer_bytes_come(
    sizes: tuple[int, int, int], kept: bool, wanted: int
) -> None:
    m, k, n = sizes
    x, w = placeholder("x", (m, k), f32), placeholder("w", (k, n), f32)
    product = stage("y", (m, n), lambda i, j: reduce("sum", (k,), lambda t: x[i, t] * w[t, j]))
    last = stage("z", (m, n), lambda i, j: product[i, j])
    found = roles(kernel_of(stages((x, w), (product, last))))
    assert found is not None
    machine, tile = Machine(128, 32, (64 << 10, 1 << 20)), RegisterTile(2, 8)
    run = evolve(found, extents=(m, n, k // 8)) if kept else found
    assert tiles_together(run, tile, 4, machine, 1, kept=kept) == wanted


@pytest.mark.parametrize("name", ["3x3", "1x1 wide", "depthwise 2"])
def test_golden(name: str, golden: Golden) -> None:
    layer = LAYERS[name]
    x = Var(Name("x"), tensor((1, layer.channels, *layer.size), "f32"))
    value, more = convolution(layer, x, constant=False, bias=False)
    function = infer(whole([x, *more], value)).main_function()
    form = formed(to_stages(function).stages, Facts((False, True)), WIDE)
    assert form is not None
    made = default_schedule(begun(form.stages, (False, True)), WIDE)
    assert isinstance(made, tuple)
    text = made[0].to_python() + "\n" + show_kernel(made[1], "convolution")
    golden(text, name.replace(" ", "_"))


def test_what_is_no_contraction_has_no_form() -> None:
    x = Var(Name("x"), tensor((64, 64), "f32"))
    function = infer(whole([x], Apply("exp", (x + x,)))).main_function()
    assert formed(to_stages(function).stages, Facts((False,)), WIDE) is None


def test_a_bias_along_the_last_axis_stands_apart_from_a_single_row() -> None:
    """The axis before the last has length 1, and what is added has no such axis."""
    x, w = placeholder("x", (33, 16), f32), placeholder("w", (4, 1, 16), f32)
    b = placeholder("b", (33,), f32)
    product = stage(
        "s", (4, 1, 33), lambda o, u, p: reduce("sum", (16,), lambda k: x[p, k] * w[o, u, k])
    )
    last = stage("y", (4, 1, 33), lambda o, u, p: product[o, u, p] + b[p])
    of = stages((x, w, b), (product, last))
    found = contraction(of)
    assert found is not None
    assert merged(found) is None
    form = formed(of, Facts((False, True, False)), WIDE)
    assert form is not None
    arrays = [numbers(1, (33, 16)), numbers(2, (4, 1, 16)), numbers(3, (33,))]
    np.testing.assert_array_equal(
        evaluate_stages(form.stages, arrays).reshape(4, 1, 33), evaluate_stages(of, arrays)
    )


@pytest.mark.parametrize("terms", [1, 2, 16])
def test_one_example_of_a_batch_merges_with_its_rows(terms: int) -> None:
    """The batch has one place, which the weight has, too."""
    x, w = placeholder("x", (1, 2048, terms), f32), placeholder("w", (1, terms), f32)
    product = stage(
        "y", (1, 2048), lambda b, m: reduce("sum", (terms,), lambda k: x[b, m, k] * w[b, k])
    )
    of = stages((x, w), (product,))
    arrays = [numbers(1, (1, 2048, terms)), numbers(2, (1, terms))]
    wanted = np.einsum("bmk,bk->bm", *arrays)
    reached = [each for form in FORMS for each in form.reach(of, Facts((False, False)), WIDE)]
    assert reached
    for each in reached:
        shapes = [[known(size) or 0 for size in one.shape] for one in each.stages.inputs]
        given_ = [array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True)]
        *_, found = run_kernel(kernel_of(each.stages), given_)
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("terms", "runs"), [(288, 1), (600, 2), (577, 0), (36, 1)])
def test_sums_of_any_order_have_runs_of_one_length(terms: int, runs: int) -> None:
    x, w = placeholder("x", (2, terms), f32), placeholder("w", (terms,), f32)
    total = stage(
        "y", (2,), lambda m: reduce("sum", (terms,), lambda k: x[m, k] * w[k], runs="box")
    )
    before = stages((x, w), (total,))
    assert isinstance(total.value, Reduce)
    value = in_equal_runs(total.value, Names(before))
    if not runs:  # a prime number has no equal parts
        assert value is total.value
        return
    assert [known(each) for each in value.extents] == ([terms] if runs == 1 else [runs])
    after = stages((x, w), (Each(total.out, total.axes, value),))
    random = np.random.default_rng(terms)
    given_ = [random.standard_normal(s).astype(np.float32) for s in ((2, terms), (terms,))]
    made, wanted = evaluate_stages(after, given_), evaluate_stages(before, given_)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)
