"""Winograd convolutions by their kernels: the same numbers, on any machine, whatever the sizes."""

from __future__ import annotations

from math import prod
from typing import Any, TypeGuard

import hypothesis.strategies as st
import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings

import plica
from plica.codegen.lower.passes import LOWERING, lower, lowered
from plica.core.fold import map_bottom_up
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Load
from plica.ir.loop.stage import Each, stage
from plica.ir.loop.stages import Stages, stages, stages_of
from plica.ir.loop.statement import Alloc, For, Kernel, statements
from plica.ir.loop.tensor import Compute, buffer, reduce
from plica.ir.op.activation import relu
from plica.ir.op.winograd import TILES, conv_winograd, winograd_weight
from plica.ir.type.dim import DimLike, dim_var, known
from plica.ir.type.dtype import f32
from plica.ir.type.term import tensor
from plica.schedule.default import Machine
from plica.schedule.default.bilinear import bilinear_form
from plica.schedule.default.bilinear_schedule import planned_schedules
from plica.schedule.default.choose import default_schedule, recorded
from plica.schedule.default.winograd_open import open_winograd
from plica.schedule.default.winograd_plan import TileExtents, extents_of, found_open, planned
from plica.schedule.form import Facts
from tests.ir.reference.neural import _conv as reference
from tests.schedule.begun import begun, read_after

Array = np.ndarray[Any, Any]
EXAMPLES = max(2, settings().max_examples // 5)
WIDE = Machine(512, 32, (48 << 10, 2 << 20))
MACHINES = (WIDE, Machine(256, 16), Machine(128, 32), Machine(512, 32, (48 << 10, 64 << 10), 2))


KNOWN = Facts((False, True))


def work(x: tuple[DimLike, ...], outputs: int, tile: int, padding: Any = 1) -> Stages:
    """A convolution of such data."""
    data = buffer("x", x, f32)
    weight = buffer("w", ((tile + 2) ** 2, x[1], outputs), f32)
    assert conv_winograd.compute is not None
    made = conv_winograd.compute({"tile": tile, "padding": padding}, data, weight)
    assert isinstance(made, Compute)
    return stages_of(made)


def shape_of(of: Stages) -> TileExtents | None:
    """The extents of the convolution that stages are found to be."""
    (only,) = of.stages
    assert isinstance(only, Each)
    work = found_open(only)
    return None if work is None else extents_of(work, only)


def scheduled(form: Stages, machine: Machine) -> Kernel:
    """The kernel of a form after its default trace."""
    made = default_schedule(begun(form, KNOWN.constant), machine)
    assert isinstance(made, tuple)
    assert made[0].steps
    return made[1]


def numbers(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def run(form: Stages, kernel: Kernel, x: Array, weight: Array) -> Array:
    """What a kernel gives."""
    return run_kernel(kernel, read_after(form, KNOWN.constant, [x, weight]))[-1]


def transformed(w: Array, tile: int) -> Array:
    table = np.array([[float(each) for each in row] for row in TILES[tile].weight])
    whole = np.einsum("ak,ockl,bl->abco", table, w, table)
    return np.asarray(whole.reshape(-1, *whole.shape[2:]).astype(np.float32))


def whole(params: list[Var], body: Expr) -> Module:
    main = Var(Name("main"), None)
    return module({main: Function((), (), tuple(params), None, body)}, main)


def off(result: Array, wanted: Array) -> float:
    """The error in max-norm."""
    return float(np.abs(result - wanted).max() / np.abs(wanted).max())


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_code_computes_the_convolution(data: st.DataObject) -> None:
    n, channels, outputs = (
        data.draw(st.sampled_from(each)) for each in ((1, 2), (16, 24), (16, 8))
    )
    size = tuple(data.draw(st.integers(3, 19)) for _ in range(2))
    pads = tuple((data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))) for _ in range(2))
    tile = data.draw(st.sampled_from((2, 4)))
    x, w = numbers(0, n, channels, *size), numbers(1, outputs, channels, 3, 3)
    wanted = reference(x.astype(np.float64), w.astype(np.float64), padding=pads)
    bias, more = numbers(2, outputs, 1, 1), numbers(3, *wanted.shape)
    given_, other = Var(Name("x"), tensor(x.shape, f32)), Var(Name("y"), tensor(more.shape, f32))
    made = conv_winograd(given_, winograd_weight(const(w), tile), tile, pads)
    body = relu(made + const(bias) + other)
    threads = data.draw(st.integers(1, 2))
    exe = plica.compile(whole([given_, other], body), threads=threads, cache=False)
    assert "product" in exe.source("kernel")
    assert off(np.asarray(exe(x, more)), np.maximum(wanted + bias + more, 0)) < 5e-5


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_blocks_keep_the_rows_that_they_have_in_common(data: st.DataObject) -> None:
    """Caches so small that an image is several blocks, which one core or two go through."""
    n, threads = (data.draw(st.integers(1, 2)) for _ in range(2))
    channels, outputs = (data.draw(st.sampled_from((16, 32))) for _ in range(2))
    size = data.draw(st.integers(9, 41)), data.draw(st.integers(3, 33))
    pads = tuple((data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))) for _ in range(2))
    tile = data.draw(st.sampled_from((2, 4)))
    x, w = numbers(0, n, channels, *size), numbers(1, outputs, channels, 3, 3)
    wanted = reference(x.astype(np.float64), w.astype(np.float64), padding=pads)
    given_ = Var(Name("x"), tensor(x.shape, f32))
    made = conv_winograd(given_, winograd_weight(const(w), tile), tile, pads)
    few = f"cpu caches=4096,{data.draw(st.sampled_from((64, 256, 512))) << 10}"
    exe = plica.compile(whole([given_], relu(made)), few, threads=threads, cache=False)
    assert "product" in exe.source("kernel")
    for _ in range(2):  # what a call leaves behind is not read by the next
        assert off(np.asarray(exe(x)), np.maximum(wanted, 0)) < 5e-5


def test_the_copy_is_of_a_block_where_an_image_has_several() -> None:
    for cores in (1, 2):
        machine = evolve(WIDE, cores=cores)
        form = bilinear_form(work((1, 64, 112, 112), 64, 4), KNOWN, machine)
        assert form is not None
        body = lower(scheduled(form, machine), "cpu").body
        (copy,) = [
            each for each in statements(body)
            if isinstance(each, Alloc) and str(each.buffer.name).startswith("padded")
        ]  # fmt: skip
        (size,) = [known(each) or 0 for each in copy.buffer.shape]
        outside = next(each for each in statements(body) if isinstance(each, For))
        assert copy in statements(outside)
        assert outside.kind == ("serial" if cores == 1 else "parallel")
        assert size < 114 * 114 * 64 // 2


@pytest.mark.parametrize(("tile", "threads"), [(2, 1), (4, 1), (4, 2)])
def test_one_code_computes_the_convolution_of_every_size(tile: int, threads: int) -> None:
    n, h, w = (dim_var(each) for each in "nhw")
    x = Var(Name("x"), tensor((n, 16, h, w), f32))
    y = Var(Name("y"), tensor((n, 24, h, w + 1), f32))
    weight, pads = numbers(1, 24, 16, 3, 3), ((1, 1), (0, 3))
    made = conv_winograd(x, winograd_weight(const(weight), tile), tile, pads)
    main = Var(Name("main"), None)
    open_ = module({main: Function((n, h, w), (), (x, y), None, relu(made + y))}, main)
    exe = plica.compile(open_, threads=threads, cache=False)
    assert "product" in exe.source("kernel")
    passes = [(1, 3, wide) for wide in range(4, 4 * 14, 4)]  # whole ones, short ones, and both
    for size in ((1, 1, 1), (2, 3, 17), (1, 16, 16), (1, 33, 70), (3, 5, 2), (1, 130, 9), *passes):
        data = numbers(0, size[0], 16, *size[1:])
        wanted = reference(data.astype(np.float64), weight.astype(np.float64), padding=pads)
        more = numbers(3, *wanted.shape)
        assert off(np.asarray(exe(data, more)), np.maximum(wanted + more, 0)) < 5e-5
    assert exe.stats.at_call == 0


@pytest.mark.parametrize("tile", [2])
def test_a_kernel_of_open_size_reads_nothing_that_was_not_written(tile: int) -> None:
    h, w = (dim_var(each) for each in "hw")
    form = open_winograd(work((1, 16, h, w), 16, tile), KNOWN, WIDE)
    assert form is not None
    kernel = begun(form, KNOWN.constant)
    weight = numbers(1, 16, 16, 3, 3)
    _, packed = read_after(form, KNOWN.constant, [numbers(0, 1), transformed(weight, tile)])
    for size in ((3, 5), (1, 2)):
        x = numbers(0, 1, 16, *size)
        wanted = reference(x.astype(np.float64), weight.astype(np.float64), padding=1)
        assert off(run_kernel(kernel, [x, packed])[-1], wanted) < 5e-5


@pytest.mark.parametrize(
    ("machine", "tile"),
    [
        pytest.param(machine, tile, marks=() if (row + column) % 2 else pytest.mark.slow)
        for row, machine in enumerate(MACHINES)
        for column, tile in enumerate(TILES)
    ],
)
def test_a_kernel_means_the_convolution_on_every_machine(machine: Machine, tile: int) -> None:
    form = bilinear_form(work((1, 8, 5, 9), 8, tile), KNOWN, machine)
    if form is None:
        assert machine.lanes(f32) > 8
        form = bilinear_form(work((1, 16, 5, 9), 16, tile), KNOWN, machine)
    assert form is not None
    kernel = begun(form, KNOWN.constant)
    made = default_schedule(kernel, machine)
    assert isinstance(made, tuple)
    channels = known(kernel.params[0].shape[1]) or 0
    x, w = numbers(0, 1, channels, 5, 9), numbers(1, channels, channels, 3, 3)
    wanted = reference(x.astype(np.float64), w.astype(np.float64), padding=1)
    assert off(run(form, kernel, x, transformed(w, tile)), wanted) < 5e-5
    assert off(run(form, lower(made[1], "cpu"), x, transformed(w, tile)), wanted) < 5e-5


def test_rows_of_tiles_are_as_many_as_a_cache_holds() -> None:
    big, small = shape_of(work((1, 64, 56, 56), 64, 4)), shape_of(work((1, 256, 14, 14), 256, 4))
    assert big is not None
    assert small is not None
    near, far = planned(big, WIDE), planned(small, WIDE)
    assert near is not None
    assert far is not None
    assert near.rows < big.tiles[0]  # its products would not stay in the cache
    assert far.rows == small.tiles[0]  # its weights would come again for every block
    assert far.fetches
    assert not near.fetches


def test_blocks_are_parts_of_a_row_of_tiles_that_no_cache_holds() -> None:
    small = Machine(128, 32, (1 << 10, 6 << 10))
    of = work((1, 4, 5, 16), 4, 4)
    shape = shape_of(of)
    assert shape is not None
    plan = planned(shape, small)
    assert plan is not None
    assert plan.rows == 1
    assert plan.columns < shape.tiles[1]
    form = bilinear_form(of, KNOWN, small)
    assert form is not None
    kernel = begun(form, KNOWN.constant)
    x, w = numbers(0, 1, 4, 5, 16), numbers(1, 4, 4, 3, 3)
    wanted = reference(x.astype(np.float64), w.astype(np.float64), padding=1)
    assert off(run(form, kernel, x, transformed(w, 4)), wanted) < 5e-5


def test_every_plan_means_the_same() -> None:
    of = work((1, 8, 10, 9), 16, 4)
    machine = Machine(128, 32, (1 << 10, 24 << 10))
    x, w = numbers(0, 1, 8, 10, 9), numbers(1, 16, 8, 3, 3)
    wanted = reference(x.astype(np.float64), w.astype(np.float64), padding=1)
    form = bilinear_form(of, KNOWN, machine)
    assert form is not None
    kernel = begun(form, KNOWN.constant)
    ways = dict(planned_schedules(kernel, machine))
    assert len(ways) >= 24
    made = {name: recorded(ways[name], kernel) for name in list(ways)[:8]}
    assert len({trace for trace, _ in made.values()}) == 8
    assert scheduled(form, machine) in [each for _, each in made.values()]
    for name, (_, each) in list(made.items())[:3]:
        assert off(run(form, each, x, transformed(w, 4)), wanted) < 5e-5, name
        assert off(run(form, lower(each, "cpu"), x, transformed(w, 4)), wanted) < 5e-5, name
    assert bilinear_form(of, Facts((False, False)), machine) is None  # it is no constant


def test_places_of_a_tile_do_not_put_each_other_out_of_the_nearest_cache() -> None:
    passes = LOWERING["cpu"].passes
    until = [each.name for each in passes].index("flatten")
    for channels, size in ((32, 64), (32, 128), (24, 128)):
        for machine in (WIDE, Machine(128, 29, (64 << 10, 1 << 20))):
            form = bilinear_form(work((1, channels, size, size), channels, 4), KNOWN, machine)
            assert form is not None
            body = lowered(scheduled(form, machine), passes[:until]).body
            buffers = {e.buffer for e in statements(body) if isinstance(e, Alloc)}
            tiles = [each for each in buffers if each.name.hint in ("data", "product")]
            assert len(tiles) == 2
            for each in tiles:
                sizes = [known(size) or 0 for size in each.shape[2:]]
                apart = (known(each.strides[1]) or 0) if each.strides else prod(sizes)
                assert apart * 4 % 2048, (channels, size, str(each.name))


@pytest.mark.parametrize(("cores", "shared"), [(2, 1), (7, 1), (16, 4)])
def test_cores_share_what_is_large(cores: int, shared: int) -> None:
    """The blocks; the copy and each step where there are fewer blocks than cores."""
    form = bilinear_form(work((1, 32, 28, 28), 32, 4), KNOWN, Machine(512, 32, cores=cores))
    assert form is not None
    body = scheduled(form, Machine(512, 32, cores=cores)).body
    kinds = [each.kind for each in statements(body) if isinstance(each, For)]
    assert kinds.count("parallel") == shared


def test_a_weight_that_is_not_known_is_none_of_it() -> None:
    assert bilinear_form(work((1, 16, 8, 8), 16, 4), Facts((False, False)), WIDE) is None


def test_channels_that_fill_no_vector_are_none_of_it() -> None:
    assert bilinear_form(work((1, 6, 8, 8), 16, 4), KNOWN, WIDE) is None


def test_other_sums_are_not_taken_for_it() -> None:
    x, w = buffer("x", (1, 16, 8, 8), f32), buffer("w", (36, 16, 16), f32)
    other = stage(
        "y",
        (1, 16, 6, 6),
        lambda n, o, i, j: reduce(
            "sum", (16, 3, 3), lambda c, k, m: x[n, c, i + k, j + m] * w[k, c, o]
        ),
    )
    assert shape_of(stages((x, w), (other,))) is None


@pytest.mark.parametrize("longer", [(2, 16, 8, 8), (1, 20, 8, 8), (1, 16, 9, 8), (1, 16, 8, 9)])
def test_a_prefix_of_a_longer_tensor_is_not_taken_for_it(longer: tuple[int, ...]) -> None:
    (fold,) = work((1, 16, 8, 8), 16, 4).stages
    assert isinstance(fold, Each)
    whole_x = buffer("x", longer, f32)
    value = map_bottom_up(
        lambda node: Load(whole_x, node.indices) if is_of_data(node) else node, fold.value
    )
    assert found_open(evolve(fold, value=value)) is None


def is_of_data(node: Term) -> TypeGuard[Load]:
    return isinstance(node, Load) and len(node.buffer.shape) == 4
