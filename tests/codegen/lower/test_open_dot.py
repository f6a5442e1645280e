"""Open dot products: bytes times bytes of which rows, or batches of both sides, are open, against
numpy, the interpreter and the reference of onnx, for every kind of instruction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import plica
from plica.codegen.dot_product import dot_of
from plica.codegen.lower.passes import lower
from plica.codegen.lower.processor import by_default
from plica.codegen.target import Target
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, kernel_of, stages
from plica.ir.loop.statement import Invoke, statements
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import DType, f32, i8, i32, u8
from plica.schedule.default.dot_product_schedule import dot_form
from plica.schedule.default.machine import MIN_PRODUCTS, Machine
from plica.schedule.default.tile import USUAL_OPEN_SIZE
from plica.schedule.form import Facts

Array = np.ndarray[Any, Any]
FEW = settings(max_examples=max(4, settings().max_examples // 10), deadline=None)
FEWER = settings(FEW, max_examples=max(1, settings().max_examples // 10))
"""Of models, which are compiled: in a hurry the least one, and those that are named."""
TARGETS = {
    "vnni": Target("cpu", "x86_64-unknown-linux-gnu", "cascadelake", ("+avx512f", "+avx512vnni")),
    "pairs": Target("cpu", "x86_64-unknown-linux-gnu", "haswell", ("+avx", "+avx2")),
    "sdot": Target("cpu", "aarch64-unknown-linux-gnu", "neoverse-n1", ("+dotprod",)),
}


def machine(name: str) -> Machine:
    """A machine with an instruction of some kind, and caches that few rows fill."""
    of = TARGETS[name]
    return Machine(of.vector_bits, of.vector_registers, (1024, 4096), 1, dot_of(of))


def product(
    dtypes: tuple[DType, DType], zero: int, depth: int, outputs: int, *, after: bool
) -> Stages:
    """Rows of an open number, for each of an open number of weights."""
    many, rows = dim_var("b"), dim_var("m")
    x, w = (
        buffer("x", (many, rows, depth), dtypes[0]),
        buffer("w", (many, depth, outputs), dtypes[1]),
    )
    middle = 128 if dtypes[1] is u8 else 0

    def term(b: Any, m: Any, n: Any) -> Any:
        def one(k: Any) -> Any:
            right: sc.Scalar = sc.Cast(w[b, k, n], i32)
            moved = sc.Cast(x[b, m, k], i32) + sc.Lit(-zero, i32)
            return moved * (right + sc.Lit(-middle, i32) if middle else right)

        return reduce("sum", (depth,), one)

    total = stage("total", (many, rows, outputs), term)
    every = [total]
    if after:
        every.append(
            stage(
                "out", (many, rows, outputs),
                lambda b, m, n: sc.Cast(sc.Load(total.out, (b, m, n)), f32) * sc.Lit(0.5, f32),
            )
        )  # fmt: skip
    return stages((x, w), every)


def drawn(random: np.random.Generator, of: DType, *shape: int) -> Array:
    """Bytes, of which many are the least and the greatest: sums that saturate are found."""
    low, high = of.bounds
    values = random.integers(low, high, shape, endpoint=True)
    ends = random.choice([low, high], shape)
    return np.where(random.random(shape) < 0.5, values, ends).astype(of.numpy)


@pytest.mark.parametrize("name", TARGETS)
@FEW
@given(
    st.tuples(st.sampled_from([i8, u8]), st.sampled_from([i8, u8])),
    st.integers(-128, 255),
    st.tuples(st.integers(1, 2), st.integers(1, 19), st.integers(4, 41), st.integers(1, 37)),
    st.booleans(),
    st.integers(0, 99),
)
def test_kernels_mean_what_stages_say(  # noqa: PLR0917  # what is drawn
    name: str,
    dtypes: tuple[DType, DType],
    zero: int,
    sizes: tuple[int, int, int, int],
    after: bool,
    seed: int,
) -> None:
    many, rows, depth, outputs = sizes
    of = product(dtypes, zero, depth, outputs, after=after)
    found = by_default(of, Facts((False, False)), machine(name), lowers=lambda kernel: kernel)
    if outputs == 1 or USUAL_OPEN_SIZE**2 * depth * outputs < MIN_PRODUCTS:  # no lanes, or few
        assert found is None
        return
    assert found is not None
    assert found.form.form == "dot-by-four"
    random = np.random.default_rng(seed)
    x, w = (
        drawn(random, dtypes[0], many, rows, depth),
        drawn(random, dtypes[1], many, depth, outputs),
    )
    wanted, kernel = run_kernel(kernel_of(of), (x, w))[-1], lower(found.kernel)
    assert any(isinstance(each, Invoke) for each in statements(kernel.body))
    for each in (kernel_of(found.form.stages), kernel):
        np.testing.assert_array_equal(run_kernel(each, (x, w))[-1].reshape(wanted.shape), wanted)


def test_what_is_no_such_product_is_left() -> None:
    one, given_ = machine("sdot"), Facts((False, False))
    assert dot_form(product((u8, i8), 3, 8, 9, after=False), given_, one) is not None
    bare = Machine(128, 32)
    assert dot_form(product((u8, i8), 3, 8, 9, after=False), given_, bare) is None
    x, w = buffer("x", (dim_var("m"), 80), u8), buffer("w", (80, dim_var("n")), i8)
    open_outputs = stage(
        "y", (dim_var("m"), dim_var("n")),
        lambda m, n: reduce(
            "sum", (80,), lambda k: sc.Cast(x[m, k], i32) * sc.Cast(w[k, n], i32)
        ),
    )  # fmt: skip
    assert dot_form(stages((x, w), (open_outputs,)), given_, one) is None


# --- models ---------------------------------------------------------------------------------------


def model(
    node: Any, given_: dict[str, Array], shapes: dict[str, tuple[Any, ...]], kept: dict[str, Array]
) -> ModelProto:
    """One operator over inputs of which some sizes are open."""
    inputs = [
        helper.make_tensor_value_info(
            each, helper.np_dtype_to_tensor_dtype(values.dtype), shapes.get(each, values.shape)
        )
        for each, values in given_.items()
    ]
    out = helper.make_empty_tensor_value_info("y")
    weights = [numpy_helper.from_array(np.asarray(values), each) for each, values in kept.items()]
    graph = helper.make_graph([node], "bytes", inputs, [out], weights)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def same(made: ModelProto, given_: dict[str, Array]) -> None:
    """A model gives what onnx's reference and the interpreter give.

    Not onnxruntime's results: without VNNI it saturates sums of two products of u8 and i8.
    """
    (wanted,) = ReferenceEvaluator(made).run(None, given_)
    read = plica.from_onnx(made)
    found = plica.compile(read, target="cpu")(**given_)
    np.testing.assert_array_equal(np.asarray(found), wanted)
    np.testing.assert_array_equal(plica.interpret(read, *given_.values()), wanted)


KINDS = st.tuples(st.sampled_from([i8, u8]), st.sampled_from([i8, u8]))


@FEWER
@given(KINDS, st.lists(st.booleans(), min_size=2, max_size=2), st.booleans(), st.integers(0, 999))
@example((u8, i8), [True, True], False, 5)
@example((i8, u8), [False, True], True, 3)
def test_products_of_open_sizes_are_exact(
    kinds: tuple[DType, DType], opened: list[bool], known_weight: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    batch, rows, depth, outputs = (int(random.integers(1, most)) for most in (4, 30, 90, 70))
    x, w = (
        drawn(random, kinds[0], batch, rows, depth),
        drawn(random, kinds[1], batch, depth, outputs),
    )
    zeros = {"zx": drawn(random, kinds[0]), "zw": drawn(random, kinds[1])}
    node = helper.make_node("MatMulInteger", ["x", "w", "zx", "zw"], ["y"])
    shape = ("b" if opened[0] and not known_weight else batch, "m" if opened[1] else rows, depth)
    shapes = {"x": shape, "w": (shape[0], depth, outputs)}
    given_ = {"x": x} if known_weight else {"x": x, "w": w}
    kept = zeros | ({"w": w} if known_weight else {})
    same(model(node, given_, shapes, kept), given_)


@FEWER
@given(st.integers(1, 9), st.integers(1, 300), st.integers(0, 99))
@example(3, 76, 0)
@example(9, 131, 1)
def test_extremes_of_open_rows_are_found(rows: int, depth: int, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=(rows, depth)).astype(np.float32)
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    made = model(node, {"x": x}, {"x": ("m", depth)}, {})
    made.graph.output.extend(
        [helper.make_empty_tensor_value_info(each) for each in ("scale", "zero")]
    )
    runtime = pytest.importorskip("onnxruntime")
    wanted = runtime.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    found = plica.compile(made, target="cpu")(x)
    assert isinstance(found, tuple)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-6)
    assert abs(int(found[2]) - int(wanted[2])) <= 1
    apart = np.abs(found[0].astype(np.int32) - wanted[0].astype(np.int32))
    assert apart.max() <= 1


@FEWER
@given(
    st.sampled_from(["ConvInteger", "QLinearConv"]),
    st.sampled_from([1, 2, 3]),
    st.tuples(st.integers(2, 6), st.integers(1, 9)),
    st.lists(st.booleans(), min_size=3, max_size=3),
    st.integers(0, 999),
)
@example("QLinearConv", 2, (3, 5), [True, False, True], 7)
@example("ConvInteger", 3, (5, 9), [False, True, True], 4)
def test_windows_in_groups_of_open_sizes_are_exact(
    kind: str, groups: int, each: tuple[int, int], opened: list[bool], seed: int
) -> None:
    random = np.random.default_rng(seed)
    channels, outputs, taps = each[0], groups * each[1], int(random.integers(1, 4))
    sides = [int(size) for size in random.integers(3, 9, 2)]
    x = drawn(random, u8, 2, groups * channels, *sides)
    of = i8 if kind == "QLinearConv" else (i8, u8)[seed % 2]
    w = drawn(random, of, outputs, channels, taps, taps)
    zeros = {
        "zx": drawn(random, u8),
        "zw": np.asarray(0, np.int8) if kind == "QLinearConv" else drawn(random, of),
    }
    shape = [name if yes else size for name, yes, size in zip(
        ("n", "h", "w"), opened, (2, *sides), strict=True)]  # fmt: skip
    inputs, kept = ["x", "w", "zx", "zw"], {**zeros, "w": w}
    if kind == "QLinearConv":
        inputs = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"]
        scales = {"sx": 0.05, "sw": 0.01, "sy": 4.0}
        kept |= {key: np.asarray(value, np.float32) for key, value in scales.items()}
        kept["zy"] = np.asarray(100, np.uint8)
    node = helper.make_node(kind, inputs, ["y"], group=groups, pads=[taps // 2] * 4)
    shapes = {"x": (shape[0], groups * channels, *shape[1:])}
    same(model(node, {"x": x}, shapes, kept), {"x": x})
