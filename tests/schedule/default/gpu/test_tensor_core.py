"""Products on tensor cores: the same numbers however the matrices lie, in code without spills."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import settings

from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.toolchain import compiled, path_of
from plica.codegen.lower.passes import lower
from plica.ir.define import defined
from plica.ir.dtype import DType, bf16, f16, f32
from plica.ir.loop import Invoke, Kernel, statements
from plica.ir.run import run_kernel
from plica.ir.scalar import Cast, Max, Scalar, lit
from plica.ir.tensor import Compute, buffer, compute, reduce
from plica.schedule.default.contraction import Work
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.tensor_core import Warps, tensor_core
from plica.schedule.default.gpu.tensor_core_choice import (
    DECLARED,
    GROUPS,
    WARPS,
    tensor_core_product,
)
from plica.schedule.default.gpu.tensor_core_form import tensor_core_form
from plica.schedule.default.gpu.tensor_core_meaning import Along
from plica.schedule.do import run
from plica.schedule.replay import scheduled
from plica.schedule.trace import Trace
from tests.codegen.cuda.emulate import COMPILER
from tests.codegen.cuda.emulate import run as emulated

SMALL = Warps(2, 2, 2, 4, 2)

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
needs_nvrtc = pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]")


PROFILE = settings.get_current_profile_name()
MORE = pytest.mark.skipif(PROFILE == "ci", reason="takes seconds: other profiles than ci have it")


def matrices(m: int, n: int, k: int, along: Along, of: DType = f16) -> Compute:
    """max(sum, -100) of a product, rounded to f16 where columns are neighbours on the right."""
    x = buffer("x", (m, k) if along[0] else (k, m), of)
    w = buffer("w", (n, k) if along[1] else (k, n), of)

    def term(i: Scalar, j: Scalar, t: Scalar) -> Scalar:
        one = x[i, t] if along[0] else x[t, i]
        other = w[j, t] if along[1] else w[t, j]
        return Cast(one, f32) * Cast(other, f32)

    def element(i: Scalar, j: Scalar) -> Scalar:
        total = Max(reduce("sum", (k,), lambda t: term(i, j, t)), lit(-100.0, f32))
        return total if along[1] else Cast(total, f16)

    return compute((x, w), (m, n), element)


def made(of: Compute, warps: Warps) -> tuple[Trace, Kernel]:
    form = tensor_core_form(Work(of), warps)
    assert form is not None
    steps, state, _ = run(tensor_core(warps, form.along, form.labels), form.kernel, 0, {})
    return Trace(steps), state.kernel


@needs_compiler
@pytest.mark.parametrize(
    ("warps", "along"),
    [
        (SMALL, (True, False)),
        (Warps(2, 2, 2, 4, 2, ahead=3), (False, True)),
        pytest.param(Warps(2, 2, 2, 4, 4, ahead=2), (True, True), marks=MORE),
        pytest.param(Warps(2, 2, 2, 4, 4, ahead=0), (False, False), marks=MORE),
        (Warps(1, 1, 1, 8, 4, ahead=2, together=True, near=2), (True, False)),
        pytest.param(Warps(1, 2, 1, 8, 4, ahead=1, together=True), (False, True), marks=MORE),
    ],
)
def test_products_on_tensor_cores_mean_the_same(warps: Warps, along: Along) -> None:
    rows, columns, terms = warps.tile
    of = matrices((2 if warps.near > 1 else 1) * rows, columns, 5 * terms, along)
    plain = defined(of)
    random = np.random.default_rng(0)
    inputs = [
        random.integers(-3, 4, [int(size.value) for size in each.shape]).astype(np.float16)  # type: ignore[attr-defined]  # sizes are numbers here
        for each in plain.params[: plain.inputs]
    ]
    left, right = [each.astype(np.float64) for each in inputs]
    exact = (left if along[0] else left.T) @ (right.T if along[1] else right)
    found = np.full(exact.shape, -1, np.float32 if along[1] else np.float16)
    emulated(fold(lower(made(of, warps)[1], "gpu"), "k"), [*inputs, found])
    np.testing.assert_array_equal(found, np.maximum(exact, -100))


@needs_compiler
def test_bfloats_are_multiplied_by_four_warps() -> None:
    warps = Warps(1, 1, 2, 8, 4, ahead=0, together=True)
    rows, columns, terms = warps.tile
    form = tensor_core_form(Work(matrices(rows, columns, 2 * terms, (True, True), bf16)), warps)
    assert form is not None
    schedule = tensor_core(warps, form.along, form.labels, bf16)
    code = fold(lower(run(schedule, form.kernel, 0, {})[1].kernel, "gpu"), "k")
    random = np.random.default_rng(2)
    x, w = (
        random.integers(-3, 4, (size, 2 * terms)).astype(np.float32) for size in (rows, columns)
    )
    found = np.full((rows, columns), -1, np.float32)
    emulated(code, [x.astype(bf16.numpy), w.astype(bf16.numpy), found])
    np.testing.assert_array_equal(found, np.maximum(x @ w.T, -100))
    if path_of() is not None:
        assert compiled(code.text, "sm_90a").usage[0][1].spilled == 0


@pytest.mark.parametrize("warps", [SMALL, Warps(1, 1, 1, 8, 4, ahead=1, together=True)])
def test_the_lowered_kernel_means_the_same(warps: Warps) -> None:
    """The interpreter, which takes the intrinsic by its meaning, agrees too."""
    rows, columns, terms = warps.tile
    _, kernel = made(matrices(rows, columns, 2 * terms, (True, False)), warps)
    lowered = lower(kernel, "gpu")
    assert any(isinstance(each, Invoke) for each in statements(lowered.body))
    random = np.random.default_rng(1)
    x, w = (
        random.integers(-3, 4, shape).astype(np.float16)
        for shape in ((rows, 2 * terms), (2 * terms, columns))
    )
    (found,) = run_kernel(lowered, [x, w])
    np.testing.assert_array_equal(found, np.maximum(x.astype(np.float64) @ w, -100))


@needs_nvrtc
@pytest.mark.parametrize(
    "warps",
    [WARPS[0], pytest.param(Warps(2, 4, 4, 8, 4), marks=MORE), GROUPS[0],
     *[pytest.param(each, marks=MORE) for each in GROUPS[1:]]],
)  # fmt: skip
def test_nothing_is_spilled(warps: Warps) -> None:
    rows, columns, terms = warps.tile
    _, kernel = made(matrices(8 * rows, 2 * columns, 6 * terms, (True, False)), warps)
    code = fold(lower(kernel, "gpu"), "k")
    cubin = compiled(code.text, "sm_90a" if warps.together else "sm_80")
    assert "serialized" not in cubin.log  # products that wait for one another
    ((_, usage),) = cubin.usage
    assert usage.spilled == 0
    assert usage.registers * warps.threads <= Gpu().registers
    assert code.launches[0].shared <= Gpu().shared
    assert not code.scratch


@pytest.mark.parametrize("ahead", [1, 3])
def test_slices_are_copied_while_others_are_multiplied(ahead: int) -> None:
    """One barrier a slice, at which copies of the slices after the next are under way."""
    rows, columns, terms = SMALL.tile
    warps = Warps(2, 2, 2, 4, 2, ahead)
    _, kernel = made(matrices(rows, columns, 8 * terms, (True, False)), warps)
    text = fold(lower(kernel, "gpu"), "k").functions
    loop = text[text.index("for (int q") :]
    body = loop[: loop.index("\n  }\n")]
    assert body.count("__syncthreads") == 1
    assert body.index("__syncthreads") < body.index("p_copy_async") < body.index("p_mma_f16")
    assert f"p_copies_done<{2 * (ahead - 1)}>" in body
    assert body.count("p_copy_async") == 2


def test_products_of_the_turn_before_are_under_way() -> None:
    """At a barrier nobody waits for them where a spare version is not written over."""
    warps = Warps(1, 1, 1, 8, 4, ahead=2, together=True)
    rows, columns, terms = warps.tile
    form = tensor_core_form(Work(matrices(rows, columns, 8 * terms, (True, False))), warps)
    assert form is not None
    trace, kernel = made(matrices(rows, columns, 8 * terms, (True, False)), warps)
    body = turn(kernel)
    waits = ["p_tile_awaited", "p_products_done<1>", "__syncthreads"]
    order = [*waits, "p_tile_copy_2", "p_products_f16_64"]
    assert [body.index(each) for each in order] == sorted(body.index(each) for each in order)
    assert "awaited + 2 < begun" in body
    assert body.count("__syncthreads") == 1
    without = Trace(tuple([each for each in trace.steps if "spare" not in str(each)]))
    assert len(without.steps) == len(trace.steps) - 1
    assert "p_products_done<0>" in turn(scheduled(without, form.kernel))


def turn(kernel: Kernel) -> str:
    """The text of a turn of the loop over slices."""
    text = fold(lower(kernel, "gpu"), "k").functions
    loop = text[text.index("for (int q") :]
    return loop[: loop.index("\n  }\n")]


def test_warps_multiply_together_where_they_can() -> None:
    of = matrices(1024, 1024, 256, (True, False))
    for gpu, word in ((Gpu(), "cuda.mma_f16"), (Gpu(groups=True), "cuda.group_mma_f16")):
        found = tensor_core_product(Work(of), gpu)
        assert found is not None
        assert word in found[1].to_python()


def test_large_tiles_where_there_are_enough() -> None:
    few = tensor_core_product(Work(matrices(256, 256, 64, (True, False))), Gpu())
    many = tensor_core_product(Work(matrices(256, 256, 64, (True, False))), Gpu(processors=4))
    assert few is not None
    assert many is not None
    assert "cuda.mma_f16_2x4_kn" in few[1].to_python()
    assert "cuda.mma_f16_4x8_kn" in many[1].to_python()


def test_traces_are_read_back_in_another_process() -> None:
    trace, _ = made(matrices(256, 512, 128, (True, False)), GROUPS[0])
    text = (
        "import sys\n"
        "import plica.schedule.default.gpu\n"
        "from plica.ir.intrinsic import find_intrinsic\n"
        "sys.exit(any(find_intrinsic(name) is None for name in sys.argv[1:]))"
    )
    names = [name for name in DECLARED if name in trace.to_python()]
    assert names
    assert subprocess.run([sys.executable, "-c", text, *names], check=False).returncode == 0


OTHER = {
    "sizes that no tile divides": matrices(100, 128, 64, (True, False)),
    "f32": matrices(128, 128, 64, (True, False), f32),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_work_is_not_for_tensor_cores(name: str) -> None:
    assert tensor_core_product(Work(OTHER[name]), Gpu()) is None


def test_a_batch_is_not_for_tensor_cores() -> None:
    x, w = buffer("x", (2, 128, 64), f16), buffer("w", (2, 64, 128), f16)
    of = compute(
        (x, w), (2, 128, 128),
        lambda b, i, j: reduce(
            "sum", (64,), lambda k: Cast(x[b, i, k], f32) * Cast(w[b, k, j], f32)
        ),
    )  # fmt: skip
    assert tensor_core_product(Work(of), Gpu()) is None
