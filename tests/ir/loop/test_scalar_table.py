"""The table of scalar operators: every row is what it says, and is all that an operator needs."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import plica
from plica.codegen.cuda.fold import fold
from plica.codegen.lower.passes import lower
from plica.ir.generate.value import numbers
from plica.ir.interpret import number
from plica.ir.interpret.evaluate import evaluate
from plica.ir.loop.define import defined
from plica.ir.loop.scalar import BINARY, ROW_OF, Add, FloorDiv, FloorMod, Intrinsic, Mul, Scalar
from plica.ir.loop.scalar_row import FLAT, ScalarRow
from plica.ir.loop.scalar_table import DECLARED, INTRINSIC_ROWS, OPERATOR_ROWS, ROWS
from plica.ir.loop.tensor import Compute, buffer, compute
from plica.ir.type.dtype import COMPUTED, DType, bf16, f16, f32, f64, i8, i32, i64, u8, u64
from plica.schedule.default.gpu import Gpu, gpu_schedule
from plica.search.feature.operation import KINDS, operations
from tests.codegen.cuda.emulate import COMPILER, run as emulated
from tests.codegen.native import assert_same, native_kernel

Array = np.ndarray[Any, Any]
SOURCE = Path(plica.__file__).parent
NEW = ("fma", "popcount")
BY_NAME = {each.__name__: each for each in ROW_OF}


# --- what rows say of themselves ---------------------------------------------------------------


def applied(row: ScalarRow, dtype: DType, *args: Any) -> Any:
    if row.name in BY_NAME:
        return number.binary(BY_NAME[row.name], dtype)(*args)
    return number.intrinsic(row.name, dtype)(*args)


def same(a: Any, b: Any) -> bool:
    return bool(a == b) or (math.isnan(a) and math.isnan(b))


def test_every_name_is_there_once() -> None:
    assert len(ROWS) == len(OPERATOR_ROWS) + len(INTRINSIC_ROWS) + len(DECLARED)
    assert {each.__name__ for each in ROW_OF} == {each.name for each in OPERATOR_ROWS}


@pytest.mark.parametrize("row", [each for each in OPERATOR_ROWS if each.laws], ids=lambda r: r.name)
@given(data=st.data())
def test_laws_hold(row: ScalarRow, data: st.DataObject) -> None:
    fit = [each for each in COMPUTED if each.kind in row.takes and each.kind in row.numbers]
    if not fit:  # lazy operators are the interpreters' own
        return
    dtype = data.draw(st.sampled_from(fit))
    x, y, z = (data.draw(numbers(dtype)) for _ in range(3))
    with np.errstate(all="ignore"):
        if "commutative" in row.laws:
            assert same(applied(row, dtype, x, y), applied(row, dtype, y, x))
        if "idempotent" in row.laws:
            assert same(applied(row, dtype, x, x), x)
        if "associative" in row.laws and not dtype.is_float:
            left = applied(row, dtype, applied(row, dtype, x, y), z)
            assert left == applied(row, dtype, x, applied(row, dtype, y, z))
        if row.unit is not None:
            ends = {"least": -math.inf, "greatest": math.inf, "zero": 0.0, "one": 1.0}
            low, high = (0, 0) if dtype.is_float else dtype.bounds
            whole = {"least": low, "greatest": high, "zero": 0, "one": 1}
            unit = (ends if dtype.is_float else whole)[row.unit]
            assert same(applied(row, dtype, x, unit), x)


RANGED = [each for each in ROWS.values() if each.range is not None and each.name != "Select"]


@pytest.mark.parametrize("row", RANGED, ids=lambda each: each.name)
@given(data=st.data())
def test_results_lie_in_their_interval(row: ScalarRow, data: st.DataObject) -> None:
    dtype = f64 if "float" in row.takes and row.name not in ("FloorDiv", "FloorMod") else i64
    ends = st.floats(-9, 9).map(lambda x: x + 0.0) if dtype is f64 else st.integers(-9, 9)
    boxes = [sorted((data.draw(ends), data.draw(ends))) for _ in range(row.arity)]
    points = [
        data.draw(st.floats(a, b) if dtype is f64 else st.integers(int(a), int(b)))
        for a, b in boxes
    ]
    assert row.range is not None
    found = row.range(*[tuple(each) for each in boxes])
    with np.errstate(all="ignore"):
        result = applied(row, dtype, *points)
    if found is not None and not math.isnan(result):
        slack = 1e-12 * max(1.0, abs(float(result))) if math.isfinite(result) else 0.0
        assert found[0] - slack <= result <= found[1] + slack


DERIVED = [each for each in ROWS.values() if callable(each.derivative) and "float" in each.takes]


@pytest.mark.parametrize("row", DERIVED, ids=lambda each: each.name)
def test_derivatives_are_slopes(row: ScalarRow) -> None:
    """Of f64, against a difference; a derivative is written in numbers as in graphs."""

    def calls(name: str, *args: Any) -> Any:
        match name:
            case "square":
                return args[0] * args[0]
            case "where":
                return args[1] if args[0] else args[2]
            case "equal":
                return args[0] == args[1]
            case "logical_xor":
                return args[0] != args[1]
            case "signbit":
                return math.copysign(1.0, args[0]) < 0
            case _:
                return applied(ROWS[name], f64, *args)

    start = 1.25 if row.name == "acosh" else 0.4
    point = [start + 0.3 * at for at in range(row.arity)]
    value = applied(row, f64, *point)
    assert callable(row.derivative)
    found = row.derivative(calls, 1.0, value, *point)
    step = 1e-6
    for at, slope in enumerate(found if isinstance(found, tuple) else (found,)):
        if slope is None:
            continue
        high, low = (
            applied(row, f64, *[x + d * (i == at) for i, x in enumerate(point)])
            for d in (step, -step)
        )
        assert slope == pytest.approx((high - low) / (2 * step), rel=1e-6, abs=1e-8)


def test_what_rounds_to_whole_numbers_is_flat() -> None:
    assert all(ROWS[name].derivative == FLAT for name in ("floor", "ceil", "round", "trunc"))


def test_every_operator_has_a_text_in_scripts() -> None:
    for kind in BINARY:
        row = ROW_OF[kind]
        assert bool(row.sign) != bool(row.word)


# --- one row is all an intrinsic needs -----------------------------------------------------------


def test_the_new_intrinsics_are_named_in_their_row_alone() -> None:
    # A feature of processors and its rate have the name fma.
    apart = {"runtime/host.py", "codegen/target.py", "runtime/machine.py"}
    apart |= {"bench/machine.py", "cli/machine.py", "runtime/c_machine.py"}
    apart |= {"codegen/llvm/rounded_quotient.py"}  # it corrects products by one
    apart |= {"codegen/webgpu/dialect.py"}  # WGSL says which words of C it has, and its own
    apart |= {"frontend/whole_array/scalar.py", "rewrite/prove/smt.py"}  # words of other languages
    apart |= {"codegen/emit/formula_text.py", "codegen/llvm/formula.py"}  # carriers of formulas
    apart |= {"rewrite/prove/linear.py"}  # functions that are defined everywhere
    for name in NEW:
        mentions = {
            str(each.relative_to(SOURCE))
            for each in SOURCE.rglob("*.py")
            if f'"{name}"' in each.read_text()
        }
        assert mentions - apart == {"ir/loop/scalar_table.py"}


def fma_case(of: DType) -> tuple[Compute, list[Array]]:
    random = np.random.default_rng(0)
    given = [random.standard_normal(67).astype(of.numpy) for _ in range(3)]
    given[2][:32] = -(given[0][:32].astype(np.float64) * given[1][:32].astype(np.float64)).astype(
        of.numpy
    )  # what is left is what the product lost
    x, y, z = (buffer(name, (67,), of) for name in "xyz")
    return compute((x, y, z), (67,), lambda i: Intrinsic("fma", (x[i], y[i], z[i]))), given


def popcount_case(of: DType) -> tuple[Compute, list[Array]]:
    low, high = of.bounds
    given = np.random.default_rng(0).integers(low, high, 67, of.numpy, endpoint=True)
    given[:2] = low, high
    x = buffer("x", (67,), of)
    return compute((x,), (67,), lambda i: Intrinsic("popcount", (x[i],))), [given]


def truncating_case(name: str, of: DType) -> tuple[Compute, list[Array]]:
    low, high = of.bounds
    random = np.random.default_rng(0)
    some = [low, low + 1, -7, -1, 0, 1, 3, 7, high - 1, high]
    edges = np.array([each for each in some if low <= each <= high], of.numpy)
    grid = [each.reshape(-1) for each in np.meshgrid(edges, edges)]
    more = [random.integers(low, high, 20, of.numpy, endpoint=True) for _ in range(2)]
    given = [np.concatenate(each) for each in zip(grid, more, strict=True)]
    x, y = (buffer(each, given[0].shape, of) for each in "xy")
    return compute((x, y), given[0].shape, lambda i: Intrinsic(name, (x[i], y[i]))), given


TRUNCATING = ("truncdiv", "truncmod")

CASES = [
    *[
        pytest.param(partial(truncating_case, name), of, id=f"{name}-{of}")
        for name in TRUNCATING
        for of in (i8, u8, i64)
    ],
    *[pytest.param(fma_case, of, id=f"fma-{of}") for of in (f16, bf16, f32, f64)],
    *[pytest.param(popcount_case, of, id=f"popcount-{of}") for of in (i8, u8, i32, u64)],
]
EMULATED = ("truncdiv-i8", "truncmod-i64", "fma-bf16", "fma-f32", "popcount-i8", "popcount-u64")


@pytest.mark.parametrize(("case", "of"), CASES)
def test_interpreters_and_native_code_agree(case: Any, of: DType) -> None:
    whole, given = case(of)
    expected = evaluate(whole, tuple(given))
    meant = number.intrinsic(whole.body.name, of)
    one_by_one = [meant(*[each.item() for each in row]) for row in zip(*given, strict=True)]
    np.testing.assert_array_equal(np.array(one_by_one, of.numpy), expected)
    kernel = defined(whole)
    code, (found,) = native_kernel(lower(kernel), given)
    assert code == 0
    assert_same(found, expected)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize(
    ("case", "of"),
    [each if each.id in EMULATED else pytest.param(*each.values, id=each.id, marks=pytest.mark.slow)
     for each in CASES],
)  # fmt: skip
def test_cuda_agrees(case: Any, of: DType) -> None:
    whole, given = case(of)
    made = gpu_schedule(defined(whole), Gpu(threads=8, warp=4))
    assert made is not None
    expected = evaluate(whole, tuple(given))
    found = np.zeros_like(expected)
    emulated(fold(lower(made[1], "gpu"), "k"), [*given, found])
    assert_same(found, expected)


@given(st.integers(-300, 300), st.integers(-40, 40))
def test_truncating_and_flooring_division_of_whole_numbers(a: int, b: int) -> None:
    floor, rest = number.binary(FloorDiv, i32)(a, b), number.binary(FloorMod, i32)(a, b)
    towards_zero, left = (number.intrinsic(name, i32)(a, b) for name in TRUNCATING)
    if b == 0:
        assert (floor, towards_zero, rest, left) == (0, 0, 0, 0)
        return
    assert (floor, rest) == divmod(a, b)
    assert towards_zero == math.trunc(Fraction(a, b))
    assert left == a - b * towards_zero == math.fmod(a, b)


def test_fma_rounds_once() -> None:
    a = 1.0 + 2.0**-12
    assert number.intrinsic("fma", f32)(a, a, -1.0 - 2.0**-11) == 2.0**-24
    assert number.binary(Add, f32)(number.binary(Mul, f32)(a, a), -1.0 - 2.0**-11) == 0.0
    assert number.intrinsic("fma", f64)(math.inf, 0.0, 1.0) != 0.0
    assert math.copysign(1.0, number.intrinsic("fma", f64)(-0.0, 1.0, -0.0)) == -1.0
    assert number.intrinsic("fma", f32)(3e38, 3.0, 0.0) == math.inf


def test_scripts_print_and_read_them() -> None:
    text = """
import plica
from plica.script import Buffer, f32, fma, i32, popcount, truncdiv, truncmod
@plica.kernel
def k(x: Buffer[(4,), f32], n: Buffer[(4,), i32], y: Buffer[(4,), f32], m: Buffer[(4,), i32]):
    for i in range(4):
        y[i] = fma(x[i], x[i], 1.0)
        m[i] = popcount(n[i]) + truncdiv(n[i], 3) - truncmod(n[i], -3)
"""
    module = plica.from_text(text)
    printed = str(module)
    assert "fma(x[i], x[i], 1.0)" in printed
    assert "popcount(n[i]) + truncdiv(n[i], 3) - truncmod(n[i], -3)" in printed
    assert plica.digest(plica.from_text(printed)) == plica.digest(module)
    with pytest.raises(plica.PlicaError, match="popcount is for integers"):
        plica.from_text(text.replace("popcount(n[i])", "i32(popcount(x[i]))"))


def test_features_count_them() -> None:
    x, n = buffer("x", (4,), f32), buffer("n", (4,), i32)
    i: Scalar = buffer("at", (1,), i64)[0]
    counts = dict(zip(KINDS, operations(Intrinsic("fma", (x[i], x[i], x[i]))), strict=True))
    assert counts["float-multiply"] == 1
    counts = dict(zip(KINDS, operations(Intrinsic("popcount", (n[i],))), strict=True))
    assert counts["int-other"] == 1
