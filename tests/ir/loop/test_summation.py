"""The order of long sums: accurate, and the same in all code that keeps it."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var
from plica.ir.graph.module import Module, module
from plica.ir.interpret.evaluate import evaluate
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.define import defined
from plica.ir.loop.scalar import RUN_LENGTH, Reduce, Runs
from plica.ir.loop.summation import run_shape, spelled
from plica.ir.loop.tensor import buffer, compute, reduce
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32, f64
from plica.ir.type.term import tensor

Array = np.ndarray[Any, Any]

UNIT = 2.0**-24

KINDS = ("random", "normal", "constant", "alternating", "shifted", "mixed")


def data(kind: str, shape: tuple[int, ...], seed: int) -> Array:
    random = np.random.default_rng(seed)
    match kind:
        case "random":
            found = random.random(shape)
        case "normal":
            found = random.standard_normal(shape)
        case "constant":
            found = np.full(shape, random.random() + 0.05)
        case "alternating":
            found = np.where(np.arange(prod(shape)).reshape(shape) % 2, 0.1, -0.1)
        case "shifted":
            found = random.standard_normal(shape) * 0.1 + 1e4
        case _:
            found = random.standard_normal(shape) * 2.0 ** random.integers(-20, 20, shape)
    return found.astype(np.float32)


def program(body: Any, *shapes: Any, dtype: str = "f32") -> Module:
    params = tuple([Var(Name("x", at), tensor(each, dtype)) for at, each in enumerate(shapes)])
    name = Var(Name("main"), None)
    return module({name: Function((), (), params, None, body(*params))}, name)


def run(of: Module, *xs: Array, contract: str | None = "exact") -> Array:
    found = plica.compile(of, contract=contract, cache=False)(*xs)
    assert isinstance(found, np.ndarray)
    return found


@given(st.lists(st.integers(1, 700), min_size=1, max_size=3), st.sampled_from(("row", "box")))
def test_a_run_is_a_part_of_the_last_axes(extents: list[int], runs: Runs) -> None:
    shape = [int(str(each)) for each in run_shape(extents, runs)]
    assert prod(shape) <= RUN_LENGTH[runs]
    assert all(1 <= part <= extent for part, extent in zip(shape, extents, strict=True))
    cut = [at for at, part in enumerate(shape) if part < extents[at]]
    assert all(part == 1 for part in shape[: max(cut, default=0)])
    if runs == "box":  # axes of one place change nothing
        assert run_shape([*extents, 1], runs) == (*shape, 1)


@given(st.sampled_from(KINDS), st.integers(1, 60_000), st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_sums_are_accurate(kind: str, n: int, seed: int) -> None:
    x = data(kind, (n,), seed)
    value = reduce("sum", (n,), lambda k: buffer("x", (n,), f32)[k], runs="row")
    found = evaluate(compute((buffer("x", (n,), f32),), (), lambda: value), [x])
    size = float(np.abs(x).sum(dtype="f8"))
    assert abs(float(found) - float(x.sum(dtype="f8"))) <= 4 * UNIT * size


@pytest.mark.parametrize("dtype", [f32, f64])
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=3),
    st.sampled_from(("row", "box")),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=15)
def test_what_is_known_of_sizes_makes_no_difference(
    dtype: Any, extents: list[int], runs: Runs, seed: int
) -> None:
    """What is spelled for open sizes means what it does for known ones, bit by bit."""
    extents = [extents[0] * (1 if extents[1:] else 30), *extents[1:]]
    x = data("mixed", tuple(extents), seed).astype(dtype.numpy)
    dims = [dim_var(each) for each in "abc"[: len(extents)]]

    def whole(sizes: Any) -> Any:
        of = buffer("x", sizes, dtype)
        return compute((of,), (), lambda: reduce("sum", sizes, lambda *k: of[k], runs=runs))

    known, opened = whole(extents), whole(dims)
    assert not any(isinstance(n, Reduce) and n.runs for n in post_order(spelled(opened.body)))
    (found,) = run_kernel(defined(opened, empty=True), [x])
    assert np.asarray(found).tobytes() == evaluate(known, [x]).tobytes()


SUMS: dict[str, Any] = {
    "all": op.sum,
    "rows": lambda x: op.sum(x, axis=(-1,)),
    "columns": lambda x: op.sum(x, axis=(0,)),
    "outer": lambda x: op.mean(x, axis=(0, 2)),
    "variance": lambda x: op.var(x, axis=(1, 2)),
    "product": lambda x: op.prod(x * 2.0**-8 + 1.0, axis=(2,)),
}


@pytest.mark.parametrize("name", SUMS)
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(1, 300)),
    st.sampled_from(KINDS),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=3)
def test_exact_code_has_the_bits_of_the_meaning(
    name: str, shape: tuple[int, int, int], kind: str, seed: int
) -> None:
    x = data(kind, shape, seed)
    of = program(SUMS[name], shape)
    assert run(of, x).tobytes() == np.asarray(plica.interpret(of, x)).tobytes()


@pytest.mark.parametrize(
    ("m", "k", "n"), [(5, 256, 17), (5, 257, 40), (33, 768, 64), (15, 1000, 33), (3, 1009, 20)]
)
def test_exact_products_have_the_bits_of_the_meaning(m: int, k: int, n: int) -> None:
    x, y = data("random", (m, k), m), data("normal", (k, n), n)
    of = program(op.matmul, (m, k), (k, n))
    expected = plica.interpret(of, x, y)
    assert run(of, x, y).tobytes() == np.asarray(expected).tobytes()
    exact = x.astype("f8") @ y.astype("f8")
    size = np.abs(x).astype("f8") @ np.abs(y).astype("f8")
    assert (np.abs(run(of, x, y, contract=None) - exact) <= 12 * UNIT * size).all()


def test_exact_convolutions_have_the_bits_of_the_meaning() -> None:
    x, w = data("random", (2, 64, 9, 9), 0), data("normal", (20, 64, 3, 3), 1)

    def conv(x: Expr, w: Expr) -> Expr:
        return op.nn.relu(op.nn.conv2d(x, w, padding=(1, 1)))

    of = program(conv, x.shape, w.shape)
    assert run(of, x, w).tobytes() == np.asarray(plica.interpret(of, x, w)).tobytes()


OPEN = """
import plica
from plica import op
from plica.script import Tensor, {dtype}

@plica.function
def main(x: Tensor[("n", "h", "w"), {dtype}]):
    return op.sum(x, axis=(1, 2)) * op.mean(x)
"""


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_open_sums_have_the_bits_of_the_meaning(dtype: str) -> None:
    of = plica.from_text(OPEN.format(dtype=dtype))
    exe = plica.compile(of, contract="exact", cache=False)
    for shape in ((1, 1, 1), (2, 3, 17), (3, 40, 1), (2, 33, 100), (0, 3, 4), (300, 5, 3)):
        x = data("random", shape, 0).astype({"f32": "f4", "f64": "f8"}[dtype])
        expected = plica.interpret(of, x)
        assert np.asarray(exe(x)).tobytes() == np.asarray(expected).tobytes()


@given(
    st.sampled_from(("random", "normal", "constant", "alternating", "shifted")),
    st.sampled_from(
        ((1000,), (2048,), (2049,), (40_000,), (3, 5000), (600, 40), (7, 9, 33), (2, 4, 50, 50))
    ),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=6)
def test_sums_in_free_order_are_as_accurate(kind: str, shape: tuple[int, ...], seed: int) -> None:
    x = data(kind, shape, seed)
    for axes in ((len(shape) - 1,), (0,), tuple(range(len(shape)))):
        found = run(program(lambda x, a=axes: op.sum(x, axis=a), shape), x, contract=None)
        size = np.abs(x).sum(axis=axes, dtype="f8")
        assert (np.abs(found - x.sum(axis=axes, dtype="f8")) <= 6 * UNIT * size + 1e-30).all()


@pytest.mark.parametrize("contract", ["exact", None])
def test_many_ones_are_as_many(contract: str | None) -> None:
    n = 20_000_000
    assert run(program(op.sum, (n,)), np.ones(n, "f4"), contract=contract) == n


@pytest.mark.parametrize("contract", ["exact", None])
def test_norms_of_numbers_far_from_zero(contract: str | None) -> None:
    """The mean is right to half a unit in its last place: no norm can be better in f32."""
    x = data("shifted", (2, 20_000), 3)
    ones, zeros = np.ones(20_000, "f4"), np.zeros(20_000, "f4")
    of = program(op.nn.layer_norm, x.shape, ones.shape, zeros.shape)
    d = x.astype("f8")
    true = (d - d.mean(1, keepdims=True)) / np.sqrt(d.var(1, keepdims=True) + 1e-5)
    assert np.abs(run(of, x, ones, zeros, contract=contract) - true).max() < 6e-3


def test_sums_of_16_bits_are_made_in_f32() -> None:
    x = np.full(5000, 0.1, np.float16)
    for contract in ("exact", None):
        found = run(program(op.sum, (5000,), dtype="f16"), x, contract=contract)
        assert found == np.float16(x.sum(dtype="f8"))


KERNEL = """
import plica
from plica.script import Buffer, block, f32, grid

@plica.kernel
def totals(x: Buffer[(3, 1000), f32], y: Buffer[(3,), f32]):
    for i in grid(3):
        with block("y", spatial=(i,)):
            y[i] = sum((x[i, k] for k in range(1000)), runs="{runs}")
"""


@pytest.mark.parametrize("runs", ["row", "box"])
def test_terms_in_runs_are_printed_and_read(runs: Runs) -> None:
    of = plica.from_text(KERNEL.format(runs=runs))
    assert f'runs="{runs}"' in str(of)
    assert plica.digest(plica.from_text(str(of))) == plica.digest(of)
    x = data("constant", (3, 1000), 0)
    value = buffer("x", (3, 1000), f32)
    whole = compute(
        (value,), (3,), lambda i: reduce("sum", (1000,), lambda k: value[i, k], runs=runs)
    )
    assert np.asarray(plica.interpret(of, x)).tobytes() == evaluate(whole, [x]).tobytes()
    assert np.asarray(plica.compile(of, cache=False)(x)).tobytes() == evaluate(whole, [x]).tobytes()


def test_unknown_runs_are_refused() -> None:
    with pytest.raises(plica.PlicaError, match="takes its arguments in order"):
        plica.from_text(KERNEL.format(runs="column"))
