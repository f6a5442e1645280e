"""Products on tensor cores: the same numbers however the matrices lie, in code without spills."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import settings

from plica.codegen.cuda.fold import KernelCode, fold
from plica.codegen.cuda.scheduled import refused
from plica.codegen.cuda.toolchain import compiled, path_of
from plica.codegen.lower.passes import lower
from plica.ir.contract import reassociates
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Cast, Max, Scalar, lit
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, kernel_of, stages
from plica.ir.loop.statement import Invoke, Kernel, statements
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.type.dtype import DType, bf16, f16, f32
from plica.schedule.default.gpu.choose import GpuCandidate, candidates
from plica.schedule.default.gpu.form import tiled
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.operand import operands
from plica.schedule.default.gpu.product_form import GROUPS, WARPS
from plica.schedule.default.gpu.template import tensor_core_schedule
from plica.schedule.default.gpu.tensor_core import Warps
from plica.schedule.default.gpu.tensor_core_meaning import Along
from plica.schedule.form import Facts
from plica.schedule.hoist import hoist
from plica.schedule.replay import scheduled
from plica.schedule.trace import Trace
from tests.codegen.cuda.emulate import COMPILER, run as emulated
from tests.schedule.default.gpu.contractions import Case, batch, dense, drawn, image

SMALL = Warps(2, 2, 2, 4, 2)

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
needs_nvrtc = pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]")


PROFILE = settings.get_current_profile_name()
MORE = pytest.mark.skipif(PROFILE == "ci", reason="takes seconds: other profiles than ci have it")


def matrices(m: int, n: int, k: int, along: Along, of: DType = f16) -> Stages:
    """max(sum, -100) of a product, rounded to f16 where columns are neighbours on the right."""
    x = buffer("x", (m, k) if along[0] else (k, m), of)
    w = buffer("w", (n, k) if along[1] else (k, n), of)

    def term(i: Scalar, j: Scalar, t: Scalar) -> Scalar:
        one = x[i, t] if along[0] else x[t, i]
        other = w[j, t] if along[1] else w[t, j]
        return Cast(one, f32) * Cast(other, f32)

    held = stage("held", (m, n), lambda i, j: reduce("sum", (k,), lambda t: term(i, j, t)))

    def element(i: Scalar, j: Scalar) -> Scalar:
        total = Max(held[i, j], lit(-100.0, f32))
        return total if along[1] else Cast(total, f16)

    return stages((x, w), (held, stage("out", (m, n), element)))


def formed(of: Stages, warps: Warps, parts: int = 1) -> Stages:
    found = operands(of)
    assert found is not None
    along = (found.along(found.left), found.along(found.right))
    return tiled(found, warps.layout(along), parts)


def made(of: Stages, warps: Warps, parts: int = 1) -> tuple[Trace, Kernel]:
    found = tensor_core_schedule(formed(of, warps, parts), Gpu(threads=32), (warps,))
    assert found is not None
    return found


@needs_compiler
@pytest.mark.parametrize(
    ("warps", "along"),
    [
        (SMALL, (True, False)),
        (Warps(2, 2, 2, 4, 2, ahead=3), (False, True)),
        pytest.param(Warps(2, 2, 1, 2, 4, ahead=3), (True, False), marks=MORE),
        pytest.param(Warps(2, 2, 2, 4, 4, ahead=2), (True, True), marks=MORE),
        pytest.param(Warps(2, 2, 2, 4, 4, ahead=0), (False, False), marks=MORE),
        (Warps(1, 1, 1, 8, 4, ahead=2, together=True, near=2), (True, False)),
        pytest.param(Warps(1, 2, 1, 8, 4, ahead=1, together=True), (False, True), marks=MORE),
    ],
)
def test_products_on_tensor_cores_mean_the_same(warps: Warps, along: Along) -> None:
    rows, columns, terms = warps.tile
    of = matrices((2 if warps.near > 1 else 1) * rows, columns, 5 * terms, along)
    random = np.random.default_rng(0)
    inputs = [
        random.integers(-3, 4, [int(size.value) for size in each.shape]).astype(np.float16)  # type: ignore[attr-defined]  # sizes are numbers here
        for each in of.inputs
    ]
    left, right = [each.astype(np.float64) for each in inputs]
    exact = (left if along[0] else left.T) @ (right.T if along[1] else right)
    found = np.full(exact.shape, -1, np.float32 if along[1] else np.float16)
    emulated(fold(lower(made(of, warps)[1], "gpu"), "k"), [*inputs, found])
    np.testing.assert_array_equal(found, np.maximum(exact, -100))


@needs_compiler
def test_columns_may_be_axes_around_those_of_rows() -> None:
    """As images are, whose channels are the rows: no box of neighbours is along these."""
    lots, wide, pixels, deep = 3, 34, 9, 20
    x = buffer("x", (wide, deep), f16)
    y = buffer("y", (lots, deep, pixels), f16)

    def element(i: Scalar, row: Scalar, pixel: Scalar) -> Scalar:
        return reduce("sum", (deep,), lambda t: Cast(x[row, t], f32) * Cast(y[i, t, pixel], f32))

    of = stages((x, y), (stage("held", (lots, wide, pixels), element),))
    _, kernel = made(of, Warps(2, 2, 1, 2, 4, ahead=0))
    random = np.random.default_rng(5)
    left = random.integers(-3, 4, (wide, deep)).astype(np.float16)
    right = random.integers(-3, 4, (lots, deep, pixels)).astype(np.float16)
    found = np.full((lots, wide, pixels), -1, np.float32)
    emulated(fold(lower(kernel, "gpu"), "k"), [left, right, found])
    np.testing.assert_array_equal(found, left.astype(np.float32) @ right.astype(np.float32))


@needs_compiler
def test_bfloats_are_multiplied_by_four_warps() -> None:
    warps = Warps(1, 1, 2, 8, 4, ahead=0, together=True)
    rows, columns, terms = warps.tile
    of = matrices(rows, columns, 2 * terms, (True, True), bf16)
    code = fold(lower(made(of, warps)[1], "gpu"), "k")
    random = np.random.default_rng(2)
    x, w = (
        random.integers(-3, 4, (size, 2 * terms)).astype(np.float32) for size in (rows, columns)
    )
    found = np.full((rows, columns), -1, np.float32)
    emulated(code, [x.astype(bf16.numpy), w.astype(bf16.numpy), found])
    np.testing.assert_array_equal(found, np.maximum(x @ w.T, -100))
    if path_of() is not None:
        assert compiled(code.text, "sm_90a").usage[0][1].spilled == 0


@pytest.mark.parametrize(
    "warps", [pytest.param(SMALL, marks=MORE), Warps(1, 1, 1, 8, 4, ahead=1, together=True)]
)
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
    [*[pytest.param(each, marks=MORE) for each in (WARPS[0], Warps(2, 4, 4, 8, 4))], GROUPS[0],
     *[pytest.param(each, marks=MORE) for each in GROUPS[1:]]],
)  # fmt: skip
def test_nothing_is_spilled(warps: Warps) -> None:
    rows, columns, terms = warps.tile
    along = (True, not warps.in_panels)
    _, kernel = made(matrices(8 * rows, 2 * columns, 6 * terms, along), warps)
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
    body = turn(kernel)
    assert body.count("__syncthreads") == 1
    assert body.index("__syncthreads") < body.index("p_copy_async") < body.index("p_mma_f16")
    assert f"p_copies_done<{2 * (ahead - 1)}>" in body
    assert body.count("p_copy_async") == 2


def test_rows_that_begin_anywhere_are_held_while_others_are_multiplied() -> None:
    """Threads with many sums ask memory before a product, and store what came after it."""
    warps = Warps(2, 2, 4, 8, 2)
    rows, columns, terms = warps.tile
    of = matrices(rows, columns, 8 * terms - 1, (True, True))
    body = turn(made(of, warps)[1])
    assert body.count("__syncthreads") == 1
    assert "p_copy_async" not in body
    words = ["__syncthreads", "= p_from_anywhere", "p_mma_f16", "= held"]
    assert [body.index(each) for each in words] == sorted(body.index(each) for each in words)
    assert body.rindex("= p_from_anywhere") < body.index("p_mma_f16") < body.index("= held")


def test_what_many_threads_ask_for_is_stored_at_once() -> None:
    rows, columns, terms = SMALL.tile
    body = turn(made(matrices(rows, columns, 8 * terms - 1, (True, True)), SMALL)[1])
    assert "p_from_anywhere" in body
    assert "held" not in body


def test_products_of_the_turn_before_are_under_way() -> None:
    """At a barrier nobody waits for them where a spare version is not written over."""
    warps = Warps(1, 1, 1, 8, 4, ahead=2, together=True)
    rows, columns, terms = warps.tile
    of = matrices(rows, columns, 8 * terms, (True, False))
    trace, kernel = made(of, warps)
    body = turn(kernel)
    waits = ["p_tile_awaited", "p_products_done<1>", "__syncthreads"]
    order = [*waits, "p_tile_copy_2", "p_products_f16_64"]
    assert [body.index(each) for each in order] == sorted(body.index(each) for each in order)
    assert "awaited + 2 < begun" in body
    assert body.count("__syncthreads") == 1
    without = Trace(tuple([each for each in trace.steps if "spare" not in str(each)]))
    assert len(without.steps) == len(trace.steps) - 1
    assert "p_products_done<0>" in turn(scheduled(without, kernel_of(formed(of, warps))))


def turn(kernel: Kernel) -> str:
    """The text of a turn of the loop over slices, which is the one that waits."""
    text = fold(lower(kernel, "gpu"), "k").functions
    every = text.split("\n  for (int ")[1:]
    (loop,) = [each for each in (one.partition("\n  }\n")[0] for one in every)
               if "__syncthreads" in each]  # fmt: skip
    return loop


def best(of: Stages, gpu: Gpu, constant: tuple[bool, ...] = (False, False)) -> GpuCandidate:
    return next(candidates(of, Facts(constant, (), reassociates), gpu))


def test_warps_multiply_together_where_they_can() -> None:
    of = matrices(1024, 1024, 256, (True, False))
    for gpu, word in ((Gpu(), "cuda.mma_f16"), (Gpu(groups=True), "cuda.group_mma_f16")):
        assert word in best(of, gpu).trace.to_python()


def test_large_tiles_where_there_are_enough() -> None:
    of = matrices(256, 256, 64, (True, False))
    few, many = best(of, Gpu()), best(of, Gpu(processors=4))
    assert "cuda.mma_f16_1x2_kn" in few.trace.to_python()
    assert "cuda.mma_f16_4x8_kn" in many.trace.to_python()


def test_few_tiles_are_made_of_parts_of_the_terms() -> None:
    """Where tiles would leave processors without work."""
    found = best(matrices(64, 64, 8192, (True, True)), Gpu())
    assert len(fold(lower(found.kernel, "gpu"), "k").launches) == 2


def test_traces_are_read_back_in_another_process() -> None:
    trace, _ = made(matrices(256, 512, 128, (True, False)), GROUPS[0])
    text = (
        "import sys\n"
        "import plica.schedule.default.gpu\n"
        "from plica.ir.loop.intrinsic import find_intrinsic\n"
        "sys.exit(any(find_intrinsic(name) is None for name in sys.argv[1:]))"
    )
    names = re.findall(r"cuda\.\w+", trace.to_python())
    assert names
    assert subprocess.run([sys.executable, "-c", text, *names], check=False).returncode == 0


# --- whatever the sizes ---------------------------------------------------------------------------


def code_of(case: Case, gpu: Gpu, form: str) -> tuple[GpuCandidate, KernelCode]:
    """The best of some form, emitted."""
    for each in candidates(case.of, Facts(case.constant, (), reassociates), gpu):
        if each.form.form == form and not refused(each.kernel, gpu):
            return each, fold(lower(each.kernel, "gpu"), "k")
    raise AssertionError(f"{case.name} takes no {form}")


ODD = {
    "bias": dense((100,), 90, 56, ends="bias"),
    "residual": dense((2, 40), 72, 40, bf16, ends="residual", turned=True),
    "odd": dense((67,), 75, 33, ends="cast", swapped=True),
    "constant": dense((40,), 90, 72, ends="bias", constant=True),
    "batch": batch((2, 3), (40, 24, 32), ends="cast"),
    "heads": batch((2, 3), (24, 40, 32), bf16, heads=True),
    "image": image((2, 9, 8), 32, ends="bias", constant=True),
    "strided": image((1, 16, 9), 40, bf16, stride=2, ends="cast"),
}


@needs_compiler
@pytest.mark.parametrize(
    "name",
    [name if name in ("bias", "image") else pytest.param(name, marks=MORE)
     for name in ODD],
)  # fmt: skip
def test_sizes_that_no_tile_divides(name: str) -> None:
    case = ODD[name]
    found, code = code_of(case, Gpu(processors=4), "tensor-core-tiles")
    copies = [each for each in found.hoisted.rest.stages if each.outs[0].name.hint == "pad"]
    assert len(code.launches) == 1 + len(copies)  # the epilogue is done on sums in registers
    np.testing.assert_array_equal(case.runs(found.hoisted, code), case.expected(), case.name)
    if path_of() is not None:
        assert compiled(code.text, "sm_80").usage[0][1].spilled == 0


STAGED = {
    "warps": (batch((2,), (80, 75, 12), ends="cast"), "tensor-core-tiles"),
    "residual": (dense((300,), 75, 40, bf16, ends="residual", turned=True), "tensor-core-tiles"),
    "together": (dense((300,), 27, 64, turned=True, ends="bias"), "wgmma-tiles"),
}


@needs_compiler
@pytest.mark.parametrize(
    "name", [name if name == "warps" else pytest.param(name, marks=MORE) for name in STAGED]
)
def test_rows_of_odd_length_are_stored_by_neighbours(name: str) -> None:
    """Sums lie in shared memory first: each thread has the element beside its neighbour's."""
    case, form = STAGED[name]
    found, code = code_of(case, Gpu(processors=1, groups=True), form)
    assert "part_shared" in code.text
    assert code.text.count("(shared_memory + 0)") == 2  # sums lie where slices were
    copies = [each for each in found.hoisted.rest.stages if each.outs[0].name.hint == "pad"]
    assert len(code.launches) == 1 + len(copies)
    np.testing.assert_array_equal(case.runs(found.hoisted, code), case.expected(), case.name)


GROUPED = {
    "rows": dense((100,), 64, 136, turned=True, ends="bias"),
    "constant": dense((70,), 72, 72, constant=True, ends="cast"),
    "batch": batch((2,), (40, 64, 64), bf16, ends="cast"),
    "panels": batch((2,), (70, 104, 72), bf16, ends="cast"),
    "odd": dense((67,), 60, 75, ends="cast"),
}


@needs_compiler
@pytest.mark.parametrize(
    "name", [name if name == "rows" else pytest.param(name, marks=MORE) for name in GROUPED]
)
def test_the_copy_engine_writes_zeros_beyond_the_ends(name: str) -> None:
    case = GROUPED[name]
    found, code = code_of(case, Gpu(processors=4, groups=True), "wgmma-tiles")
    assert "p_tile_copy" in code.text
    np.testing.assert_array_equal(case.runs(found.hoisted, code), case.expected(), case.name)


@needs_compiler
@pytest.mark.parametrize("seed", [pytest.param(n, marks=MORE) for n in range(12)])
def test_what_is_drawn_means_the_same(seed: int) -> None:
    """Everything that could be done, in every form there is."""
    case, gpu = drawn(seed), Gpu(processors=4, groups=bool(seed % 2))
    done: set[str] = set()
    for each in candidates(case.of, Facts(case.constant, (), reassociates), gpu):
        if each.form.form in done or refused(each.kernel, gpu):
            continue
        done.add(each.form.form)
        code = fold(lower(each.kernel, "gpu"), "k")
        np.testing.assert_array_equal(case.runs(each.hoisted, code), case.expected(), case.name)
        if path_of() is not None:
            compiled(code.text, "sm_90a" if gpu.groups else "sm_80")
    assert "thread-elements" in done


def test_a_form_that_cannot_be_lowered_is_passed_over() -> None:
    """A GPU without memory that threads share has tiles of none, and threads all the same."""
    case, gpu = ODD["bias"], Gpu(shared=1024)
    every = [*candidates(case.of, Facts(case.constant, (), reassociates), gpu)]
    assert "share more memory" in refused(every[0].kernel, gpu)
    assert not refused(every[-1].kernel, gpu)
    assert every[-1].form.form == "thread-elements"


def test_what_the_copy_engine_cannot_fetch_is_fetched_by_threads() -> None:
    """Rows of 61 halves begin at no multiple of 16 bytes; heads that are apart in memory may."""
    for depth, form in ((61, "tensor-core-tiles"), (64, "wgmma-tiles")):
        case, gpu = batch((2, 2), (100, 60, depth), heads=True), Gpu(processors=4, groups=True)
        every = candidates(case.of, Facts(case.constant, (), reassociates), gpu)
        assert next(each.form.form for each in every if not refused(each.kernel, gpu)) == form


def test_tensor_cores_are_for_those_who_allow_another_order() -> None:
    found = next(candidates(ODD["bias"].of, Facts(ODD["bias"].constant), Gpu()))
    assert found.form.form == "thread-elements"
    assert hoist(found.form.stages, ODD["bias"].constant).rest is ODD["bias"].of


def test_products_of_f32_are_not_for_tensor_cores() -> None:
    of = matrices(128, 128, 64, (True, False), f32)
    assert "cuda.mma" not in best(of, Gpu()).trace.to_python()
