"""`plica.compile` of kernels, and of graph functions that call them: what is scheduled is run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica.codegen.subject import subject
from plica.core.digest import digest
from plica.ir.graph.module import Module
from plica.ir.interpret.kernel import run_kernel
from plica.schedule import (
    block as find,
    do,
    loops,
    parallel,
    reorder,
    replay,
    rfactor,
    split,
    trace_of,
    transport,
    vectorize,
)
from plica.schedule.replay import kernel_of, scheduled

MATMUL = """
@plica.kernel
def matmul(A: Buffer[(M, K), f32], B: Buffer[(K, N), f32], C: Buffer[(M, N), f32]):
    for i, j, k in grid(C.shape[0], C.shape[1], A.shape[1]):
        with block("C", spatial=(i, j), reduce=(k,)):
            with init():
                C[i, j] = 0.0
            C[i, j] += A[i, k] * B[k, j]
"""


def matmul(m: object, k: object, n: object) -> Module:
    text = MATMUL
    for name, size in (("M", m), ("K", k), ("N", n)):
        quoted = f'"{size}"' if isinstance(size, str) else str(size)
        text = text.replace(f"({name}, ", f"({quoted}, ").replace(f", {name})", f", {quoted})")
    lowered = [str(each) for each in (m, n, k)]
    return plica.from_text(text.replace("C.shape[0], C.shape[1], A.shape[1]", ", ".join(lowered)))


@do
def tiled() -> Any:
    c = yield find("C")
    i, j, k = yield loops(c)
    j0, j1 = yield split(j, (None, 8))
    yield reorder(i, j0, k, j1)
    yield vectorize(j1)


def floats(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def test_a_kernel_is_a_program() -> None:
    exe = plica.compile(matmul(4, 5, 6))
    a, b = floats(4, 5), floats(5, 6)
    assert [port.name for port in exe.inputs] == ["A", "B"]
    assert [port.name for port in exe.outputs] == ["C"]
    assert np.array_equal(np.asarray(exe(a, B=b)), a @ b)
    (row,) = exe.profile(a, b, runs=1).rows
    assert row.kernel == exe.trace("matmul").kernel
    assert re.fullmatch("matmul_[0-9a-f]{8}", row.kernel)
    assert "C[i, j] += A[i, k] * B[k, j]" in exe.source("kernel")


def test_a_schedule_is_compiled_as_it_is() -> None:
    kernel = matmul(8, 5, 32)
    trace = trace_of(tiled, kernel)
    exe = plica.compile(replay(trace, kernel))
    a, b = floats(8, 5), floats(5, 32)
    assert np.array_equal(np.asarray(exe(a, b)), a @ b)
    assert "<8 x float>" in exe.source("llvm")
    before = kernel_of(plica.from_text(exe.trace("matmul").before))[2]
    assert digest(before) == digest(scheduled(trace, kernel_of(kernel)[2]))


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6))
def test_open_dims_are_bound_by_shapes(m: int, k: int, n: int) -> None:
    exe = plica.compile(matmul("m", "k", "n"))
    a, b = floats(m, k), floats(k, n)
    assert np.array_equal(np.asarray(exe(a, b)), a @ b)


def test_a_wrong_shape_is_refused_by_name() -> None:
    with pytest.raises(plica.InputError, match="'B' has the wrong shape"):
        plica.compile(matmul("m", "k", "n"))(floats(2, 3), floats(4, 2))


@pytest.mark.parametrize("number", [0, 1, 2, 5, 6, 7, 8])
def test_any_kernel_under_any_schedule(number: int) -> None:
    drawn = subject(seed=5, number=number)
    assert drawn is not None
    expected = run_kernel(drawn.kernel, drawn.arrays)
    found = plica.compile(replay(drawn.trace, drawn.kernel), threads=2)(*drawn.arrays)
    for one, two in zip(expected, found if isinstance(found, tuple) else (found,), strict=True):
        np.testing.assert_allclose(np.asarray(two), one, rtol=1e-4, atol=1e-4)


def test_saved_and_loaded(tmp_path: Path) -> None:
    exe = plica.compile(matmul(4, 5, 6))
    exe.save(tmp_path / "m.plica")
    a, b = floats(4, 5), floats(5, 6)
    assert np.array_equal(np.asarray(plica.load(tmp_path / "m.plica")(a, b)), a @ b)


@pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler links libraries")
def test_exported(tmp_path: Path) -> None:
    plica.compile(matmul(4, 5, 6)).export(tmp_path / "libmm.so")
    header = (tmp_path / "mm.h").read_text()
    assert "const float *in_A, const float *in_B, float *out_C" in header


# --- what is refused -----------------------------------------------------------------------------


def written(*lines: str, params: str = "x: Buffer[(8,), f32], y: Buffer[(8,), f32]") -> Module:
    body = "".join(f"    {line}\n" for line in lines)
    return plica.from_text(f"@plica.kernel\ndef k({params}):\n{body}")


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (("for i in range(8):", "    y[i + 1] = x[i]"), "index-out-of-bounds"),
        (("for i in range(8):", "    y[i] = x[i + 1]"), "index-out-of-bounds"),
        (("for i in parallel(8):", "    y[0] = x[i]"), "data-race"),
        (
            ("n = alloc(Buffer[(), i64])", "n[()] = 0", "while n[()] < 8:", "    n[()] += 1"),
            "unsupported",
        ),
    ],
)
def test_what_is_wrong_with_a_kernel_is_said(lines: tuple[str, ...], code: str) -> None:
    with pytest.raises(plica.UnsupportedError, match="The kernel 'k' is not compiled") as refused:
        plica.compile(written(*lines))
    assert refused.value.code == code


def test_an_index_that_data_decide_is_checked_when_it_runs() -> None:
    params = "x: Buffer[(8,), f32], at: Buffer[(8,), i64], y: Buffer[(8,), f32]"
    exe = plica.compile(written("for i in range(8):", "    y[i] = x[at[i]]", params=params))
    x, at = floats(8), np.arange(8)[::-1].copy()
    assert np.array_equal(np.asarray(exe(x, at)), x[::-1])
    at[3] = 8
    with pytest.raises(plica.PlicaError, match="outside the tensor"):
        exe(x, at)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("for i in range(4):", "    y[i] = x[i]"), [0, 1, 2, 3, 0, 0, 0, 0]),
        (("for i in range(8):", "    y[i] = y[i] + x[i]"), [0, 1, 2, 3, 4, 5, 6, 7]),
        (
            ("y[0] = x[0]", "for i in range(7):", "    y[i + 1] = y[i] + x[i + 1]"),
            [0, 1, 3, 6, 10, 15, 21, 28],
        ),
    ],
)
def test_what_is_not_shown_to_be_written_begins_as_zeros(
    lines: tuple[str, ...], expected: list[int]
) -> None:
    exe = plica.compile(written(*lines))
    for _ in range(3):
        assert np.asarray(exe(np.arange(8, dtype=np.float32))).tolist() == expected


LAID = """
@plica.kernel
def laid(x: Buffer[(3, 4), f32{x}], y: Buffer[(3, 4), f32{y}]):
    for i, j in grid(3, 4):
        with block("y", spatial=(i, j)):
            y[i, j] = x[i, j] * 2.0
"""


@pytest.mark.parametrize("x", ["", ", strides(1, 3)", ", strides(8, 2), align(64)"])
@pytest.mark.parametrize("y", ["", ", strides(1, 3)", ", strides(-1, 5)", ", align(128)"])
def test_parameters_lie_as_a_kernel_says_and_mean_their_elements(x: str, y: str) -> None:
    program = plica.from_text(LAID.format(x=x, y=y))
    value = np.arange(12, dtype=np.float32).reshape(3, 4)
    exe = plica.compile(program, threads=1)
    np.testing.assert_array_equal(exe(value), 2 * value)
    np.testing.assert_array_equal(plica.interpret(program, value), 2 * value)


@pytest.mark.parametrize("steps", ["1, 1", "2, 1", "0, 1", "4, -2"])
def test_parameters_whose_elements_meet_are_refused(steps: str) -> None:
    program = plica.from_text(LAID.format(x=f", strides({steps})", y=""))
    with pytest.raises(plica.UnsupportedError, match="'x' are not shown to lie apart"):
        plica.compile(program)


def test_which_of_two_kernels_is_meant() -> None:
    one = written("for i in range(8):", "    y[i] = x[i]")
    (name,) = one.names
    both = plica.from_text(
        str(one) + "\n\n" + str(one).split("\n\n", 1)[-1].replace("def k(", "def other(")
    )
    assert name is not None
    two = Module(both.names, both.values, None)
    with pytest.raises(plica.UnsupportedError, match="several kernels") as refused:
        plica.compile(two)
    assert refused.value.code == "no-main"


# --- kernels that a graph calls ------------------------------------------------------------------

MODEL = """
@plica.kernel
def halves(x: Buffer[("n",), f32], y: Buffer[("n",), f32], z: Buffer[("n",), f32]):
    for i in range(n):
        y[i] = x[i] * 2.0
    for i in range(n):
        z[i] = x[i] * 0.5

@plica.function
def main(x: Tensor[(SIZE,), f32]):
    a, b = halves(nn.relu(x))
    c, d = halves(a)
    e = halves(x)[0] if op.sum(x) > 0.0 else b
    return a + d, b, e, c
"""


@pytest.mark.parametrize("size", ["6", '"n"', '"2*n"'])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_graph_calls_kernels(size: str, sign: float, tmp_path: Path) -> None:
    model = plica.from_text(MODEL.replace("SIZE", size).replace('("2*n",)', '("n",)'))
    x = sign * np.arange(-2, 4, dtype=np.float32)
    expected = plica.interpret(model, x)
    exe = plica.compile(model)
    for one, two in zip(expected, exe(x), strict=True):
        assert np.array_equal(one, np.asarray(two))
    exe.save(tmp_path / "m.plica")
    for one, two in zip(expected, plica.load(tmp_path / "m.plica")(x), strict=True):
        assert np.array_equal(one, np.asarray(two))


def test_a_result_is_not_written_over_what_a_kernel_reads_again() -> None:
    text = """
@plica.kernel
def turned(x: Buffer[(8,), f32], y: Buffer[(8,), f32]):
    for k in range(3):
        for i in range(8):
            y[i] = x[i] * 2.0

@plica.function
def main(x: Tensor[(8,), f32]):
    return op.exp(turned(op.exp(x)))
"""
    model, x = plica.from_text(text), np.linspace(-1, 1, 8, dtype=np.float32)
    np.testing.assert_allclose(np.asarray(plica.compile(model)(x)), np.exp(2 * np.exp(x)), 1e-5)


TREE = """
@plica.data
class Tree:
    Leaf: (Tensor[(4,), f32],)
    Node: (Tree, Tree)

@plica.kernel
def twice(x: Buffer[("n",), f32], z: Buffer[("n",), f32]):
    for i in range(n):
        z[i] = x[i] * 2.0

@plica.function
def total(t: Tree) -> Tensor[(4,), f32]:
    match t:
        case Leaf(x):
            return twice(x)
        case Node(a, b):
            return total(a) + twice(total(b))

@plica.function
def main(x: Tensor[(4,), f32], n: i64) -> Tensor[(4,), f32]:
    def grown(n: i64) -> Tree:
        return Leaf(x) if n == 0 else Node(grown(n - 1), Leaf(x))
    return total(grown(n))
"""


def test_a_program_with_data_and_recursion_calls_kernels(tmp_path: Path) -> None:
    model, x = plica.from_text(TREE), np.arange(4, dtype=np.float32)
    expected, exe = plica.interpret(model, x, 3), plica.compile(model)
    assert np.array_equal(np.asarray(exe(x, 3)), expected)
    exe.save(tmp_path / "m.plica")
    assert np.array_equal(np.asarray(plica.load(tmp_path / "m.plica")(x, 3)), expected)


def test_a_program_with_data_calls_kernels_of_one_result() -> None:
    params = 'x: Buffer[("n",), f32], z: Buffer[("n",), f32]'
    text = TREE.replace(params, params + ', u: Buffer[("n",), f32]')
    text = text.replace("z[i] = x[i] * 2.0", "z[i] = x[i] * 2.0\n        u[i] = x[i]")
    text = text.replace("twice(x)", "twice(x)[0]").replace("twice(total(b))", "twice(total(b))[1]")
    with pytest.raises(plica.UnsupportedError, match="which has not one result"):
        plica.compile(plica.from_text(text))


@pytest.mark.parametrize("lanes", [(0,), (0, 1), (1,)])
def test_a_loop_around_others_is_made_vectors_of_as_it_stands(lanes: tuple[int, ...]) -> None:
    program = matmul(37, 5, 9)

    @do
    def outer() -> Any:
        around = yield loops((yield find("C")))
        for each in lanes:
            yield vectorize(around[each])

    run = plica.compile(replay(trace_of(outer, program), program), cache=False)
    a, b = (np.random.default_rng(3).normal(size=each).astype("f4") for each in ((37, 5), (5, 9)))
    assert np.allclose(run(a, b), a @ b, atol=1e-5)
    assert re.search(r"<\d+ x float>", run.source("llvm"))


def test_a_loop_of_cores_inside_of_vectors_is_refused_by_its_name() -> None:
    program = matmul(8, 4, 8)

    @do
    def wrong() -> Any:
        i, j, _ = yield loops((yield find("C")))
        yield vectorize(i)
        yield parallel(j)

    with pytest.raises(plica.PlicaError, match="a parallel loop j inside") as caught:
        plica.compile(replay(trace_of(wrong, program), program), cache=False)
    assert caught.value.__context__ is None  # that nothing was kept of it says nothing to anybody


def test_loops_of_threads_are_for_gpus() -> None:
    kernel = written('for i in thread("threadIdx.x", 8):', "    y[i] = x[i]")
    with pytest.raises(plica.PlicaError, match="no such threads"):
        plica.compile(kernel)


# --- schedules by name ---------------------------------------------------------------------------


def layered() -> Module:
    return plica.from_text(
        "@plica.function\n"
        "def main(x: Tensor[(8, 16), f32], w: Tensor[(16, 32), f32]):\n"
        "    return op.exp(op.matmul(nn.relu(x), w) * 0.1)\n"
    )


def test_a_trace_of_a_profile_is_put_back() -> None:
    model, x, w = layered(), floats(8, 16), floats(16, 32)
    exe = plica.compile(model)
    name = next(row.kernel for row in exe.profile(x, w, runs=1).rows if "matmul" in row.kernel)
    again = plica.compile(model, schedules={name: exe.trace(name)})
    assert np.array_equal(np.asarray(again(x, w)), np.asarray(exe(x, w)))
    assert again.trace(name).json == exe.trace(name).json
    bare = plica.compile(model, schedules={name: trace_of(do(nothing), kernel_at(exe, name))})
    np.testing.assert_allclose(np.asarray(bare(x, w)), np.asarray(exe(x, w)), 1e-4)
    assert bare.source("kernel") != exe.source("kernel")


def nothing() -> Any:
    yield from ()


def kernel_at(exe: Any, name: str) -> Module:
    return plica.from_text(exe.trace(name).before)


def test_a_kernel_is_known_by_its_name_and_by_its_block() -> None:
    kernel = matmul(8, 5, 32)
    trace, a, b = trace_of(tiled, kernel), floats(8, 5), floats(5, 32)
    for name in (plica.compile(kernel).trace("matmul").kernel, "matmul", "C"):
        exe = plica.compile(kernel, schedules={name: trace})
        assert "<8 x float>" in exe.source("llvm")
        assert exe.trace("matmul").json == trace.to_json()
        assert np.array_equal(np.asarray(exe(a, b)), a @ b)
    by_block = plica.compile(kernel, schedules={"C": tiled})
    assert by_block.trace("matmul").json == trace.to_json()


def test_names_that_mean_no_kernel_are_refused() -> None:
    trace = trace_of(tiled, matmul(8, 5, 32))
    with pytest.raises(plica.UnsupportedError, match="no kernel 'matmull'") as refused:
        plica.compile(matmul(8, 5, 32), schedules={"matmull": trace})
    assert re.fullmatch("matmul_[0-9a-f]{8}", str(refused.value.diagnostics[0].expected))
    assert refused.value.diagnostics[0].suggestion == "Did you mean 'matmul'?"


def test_a_name_that_means_two_kernels_is_refused() -> None:
    model = plica.from_text(
        "@plica.function\n"
        "def main(x: Tensor[(8, 8), f32], w: Tensor[(8, 16), f32]):\n"
        "    return op.matmul(op.matmul(x, x), w)\n"
    )
    with pytest.raises(plica.UnsupportedError, match="means several kernels"):
        plica.compile(model, schedules={"matmul": trace_of(tiled, matmul(8, 5, 32))})


def test_a_trace_that_does_not_fit_is_refused() -> None:
    trace = trace_of(tiled, matmul(8, 5, 32))
    with pytest.raises(plica.PlicaError, match="is refused") as refused:
        plica.compile(written("for i in range(8):", "    y[i] = x[i]"), schedules={"k": trace})
    (note,) = [each for each in refused.value.__notes__ if "of the kernel" in each]
    assert note.startswith("in the schedule of the kernel k_")


def test_a_kernel_has_its_name_in_every_program() -> None:
    def names(body: str) -> set[str]:
        head = "@plica.function\ndef main(x: Tensor[(8, 8), f32], w: Tensor[(8, 16), f32]):\n"
        exe = plica.compile(plica.from_text(f"{head}    return {body}\n"), cache=False, threads=1)
        return {each.kernel for each in exe.artefact.record().traces}

    alone, later = names("op.matmul(x, w)"), names("op.matmul(op.sort(x), w)")
    assert len(alone) == 1
    assert alone < later


@pytest.mark.parametrize("given", [3, {"C": 3}, {3: nothing}])
def test_what_is_no_schedule_is_refused(given: Any) -> None:
    with pytest.raises(plica.UnsupportedError):
        plica.compile(matmul(8, 5, 32), schedules=given)


def test_a_trace_is_transported_and_compiled() -> None:
    small, large = matmul(8, 5, 32), matmul(16, 7, 64)
    moved = transport(trace_of(tiled, small), large)
    a, b = floats(16, 7), floats(7, 64)
    assert np.array_equal(np.asarray(plica.compile(moved.module)(a, b)), a @ b)


def test_a_sum_in_factors_that_do_not_divide_is_shown_to_stay_inside() -> None:
    """What a block reads is bounded by its predicate through the loops it is bound to."""

    @do
    def factored() -> Any:
        b = yield find("R")
        _, k = yield loops(b)
        _, inner = yield split(k, (None, 16))
        yield rfactor(inner, 0)

    of = plica.from_text(ROWS)
    made = plica.compile(replay(trace_of(factored, of), of), cache=False)
    a = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
    np.testing.assert_allclose(made(a), a.sum(1), rtol=1e-5, atol=1e-5)


ROWS = """
@plica.kernel
def rows(A: Buffer[(3, 50), f32], R: Buffer[(3,), f32]):
    for i, k in grid(3, 50):
        with block("R", spatial=(i,), reduce=(k,)):
            with init():
                R[i] = 0.0
            R[i] += A[i, k]
"""
