"""Products by block-coded weights: which of them the coded templates take, what they mean, and what
is left to other forms."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings, strategies as st

from plica.codegen.dot_product import DOTS
from plica.core import Name
from plica.ir.contract import approx, exact, reassociates
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import Each, stage
from plica.ir.loop.stages import Stages, evaluate_stages, kernel_of, stages
from plica.ir.loop.tensor import axis, buffer, reduce
from plica.ir.type import known
from plica.ir.type.dtype import DType, bf16, f16, f32, i8, i16, i32, u8
from plica.schedule.default.choose import template_schedule
from plica.schedule.default.coded import (
    MAX_TERMS,
    coded_form,
    coded_product,
    coded_schedule,
    digit_cuts,
)
from plica.schedule.default.coded_digit import coded_digit_form
from plica.schedule.default.coded_dot import MAX_BLOCK, coded_dot_form
from plica.schedule.default.coded_dot_schedule import coded_dot_schedule
from plica.schedule.default.coded_panel import MIN_ROWS, coded_panel_form
from plica.schedule.default.general_schedule import general_schedule
from plica.schedule.default.machine import Machine
from plica.schedule.default.processor_form import formed
from plica.schedule.form import Facts

Array: TypeAlias = np.ndarray[Any, Any]

PAIRS: Final = max((dot for *_, dot in DOTS if dot.pairs), key=lambda dot: dot.lanes)
WORDS: Final = next(dot for *_, dot in DOTS if dot.dtype is i16)
NEON: Final = Machine(128, 32, dot=next(dot for *_, dot in DOTS if dot.dtype is i8))
PLAIN, VNNI = Machine(512, 32), Machine(512, 32, dot=PAIRS)
BYTES: Final = Machine(512, 32, dot=evolve(PAIRS, wide=None))
DIGITS: Final = st.integers(1, 2)
NEAR: Final = {1: 5e-3, 2: 2e-5}
"""How far rounding to so many digits moves a product, beside the sum of magnitudes."""
SOME: Final = settings(max_examples=max(4, settings().max_examples // 4))
BLOCK: Final = 32
"""Weights that have a scale in common."""
MAX_CODE: Final = 128
"""The greatest magnitude of a weight."""


def number(of: sc.Scalar) -> sc.Scalar:
    """A byte as a float."""
    return sc.Cast(sc.Cast(of, i32), f32)


def of_bytes(
    rows: int, columns: int, blocks: int, *, epilogue: bool = False, scaled: bool = True
) -> Stages:
    """Rows by weights of one byte, each block of which may have a scale of 16 bits."""
    terms = blocks * BLOCK
    x, w = buffer("x", (rows, terms), f32), buffer("w", (columns, terms), i8)
    s, bias = buffer("s", (columns, blocks), f16), buffer("bias", (columns,), f32)

    def weight(n: sc.Scalar, k: sc.Scalar) -> sc.Scalar:
        code = number(w[n, k // BLOCK * BLOCK + k % BLOCK])
        return sc.Cast(s[n, k // BLOCK], f32) * code if scaled else code

    made = [
        stage("sums", (rows, columns), lambda m, n: reduce(
            "sum", (terms,), lambda k: x[m, k] * weight(n, k)))
    ]  # fmt: skip
    if epilogue:
        made.append(stage("y", (rows, columns), lambda m, n: made[0][m, n] + bias[n]))
    return stages([x, w, *[s] * scaled, *[bias] * epilogue], made)


def of_nibbles(rows: int, columns: int, blocks: int) -> Stages:
    """Rows by weights of 4 bits, less 8, the first half of a block in the low ones."""
    terms, half = blocks * BLOCK, BLOCK // 2
    x, w = buffer("x", (rows, terms), f32), buffer("w", (columns, blocks * half), u8)
    s = buffer("s", (columns, blocks), f16)

    def weight(n: sc.Scalar, k: sc.Scalar) -> sc.Scalar:
        byte = sc.Cast(w[n, k // BLOCK * half + k % half], i32)
        low = sc.Cast(k % BLOCK // half, i32) * sc.Lit(4, i32)
        code = sc.BitAnd(sc.ShiftRight(byte, low), sc.Lit(15, i32)) - sc.Lit(8, i32)
        return sc.Cast(s[n, k // BLOCK], f32) * sc.Cast(code, f32)

    return stages((x, w, s), (stage("y", (rows, columns), lambda m, n: reduce(
        "sum", (terms,), lambda k: x[m, k] * weight(n, k))),))  # fmt: skip


def of_narrow(dtype: DType, rows: int, columns: int, terms: int) -> Stages:
    """Rows by weights that are narrow floats."""
    x, w = buffer("x", (rows, terms), f32), buffer("w", (columns, terms), dtype)
    return stages((x, w), (stage("y", (rows, columns), lambda m, n: reduce(
        "sum", (terms,), lambda k: x[m, k] * sc.Cast(w[n, k], f32))),))  # fmt: skip


def arrays_of(of: Stages) -> list[Array]:
    """Numbers for what stages read."""
    random = np.random.default_rng(0)
    found: list[Array] = []
    for each in of.inputs:
        shape = [int(size.value) for size in each.shape if isinstance(size, sc.Lit)]
        if each.dtype in (i8, u8):
            low, high = (int(bound) for bound in each.dtype.bounds)
            found.append(random.integers(low, high + 1, shape).astype(each.dtype.numpy))
        else:
            found.append(random.uniform(-1, 1, shape).astype(each.dtype.numpy))
    return found


def same(found: Array, of: Stages, near: float) -> None:
    """Numbers are those of stages, beside the sum of magnitudes."""
    arrays = arrays_of(of)
    margin = near * MAX_CODE * float(np.abs(arrays[0]).sum())
    np.testing.assert_allclose(found, evaluate_stages(of, arrays), rtol=0, atol=margin)


# --- what is taken --------------------------------------------------------------------------------


@SOME
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 3)),
    st.sampled_from((of_bytes, of_nibbles)),
    st.sampled_from((Machine(128, 32), Machine(256, 16), PLAIN, Machine(512, 32, cores=2))),
)
def test_floats_of_codes_mean_the_same_by_the_template(
    sizes: tuple[int, int, int], product: Any, machine: Machine
) -> None:
    of = product(*sizes)
    form = coded_form(of, machine)
    assert form is not None
    made = template_schedule(kernel_of(form), machine)
    assert isinstance(made, tuple), made
    assert made[0] == "coded-rows"
    assert made[1].steps
    same(run_kernel(made[2], arrays_of(of))[0], of, 1e-6)


@SOME
@given(st.integers(1, 5), st.integers(2, 3), st.sampled_from((of_bytes, of_nibbles)), DIGITS)
def test_digits_mean_the_same_by_the_template(
    columns: int, blocks: int, product: Any, digits: int
) -> None:
    of = product(1, columns, blocks)
    form = coded_dot_form(of, VNNI, digits)
    assert form is not None
    made = template_schedule(kernel_of(form), VNNI)
    assert isinstance(made, tuple), made
    assert made[0] == "coded-rows"
    assert "tensorize" in made[1].to_python()
    same(run_kernel(made[2], arrays_of(of))[0], of, NEAR[digits])


@SOME
@given(
    st.tuples(st.integers(MIN_ROWS, 40), st.integers(2, 9), st.sampled_from((1, 3, 16))),
    st.sampled_from((of_bytes, of_nibbles)),
    st.booleans(),
    st.sampled_from((Machine(128, 16), Machine(256, 16), VNNI, Machine(512, 32, cores=2))),
)
def test_panels_of_codes_mean_the_same_by_the_template(
    sizes: tuple[int, int, int], product: Any, epilogue: bool, machine: Machine
) -> None:
    of = product(*sizes, epilogue=True) if epilogue and product is of_bytes else product(*sizes)
    form = coded_panel_form(of, machine)
    assert form is not None
    made = template_schedule(kernel_of(form), machine, None, ("register-tile",))
    assert isinstance(made, tuple), made
    every = [each for each in form.stages if isinstance(each, Each)]
    floats = next(each.out for each in every if each.out.name == Name("floats"))
    kernel = made[2]
    assert floats not in kernel.params  # a panel is unpacked where it is read
    given_ = [
        each.reshape([known(size) or 0 for size in buffer.shape])
        for each, buffer in zip(arrays_of(of), kernel.params, strict=False)
    ]
    same(run_kernel(kernel, given_)[-1], of, 1e-6)


@SOME
@given(
    st.tuples(st.integers(1, 2), st.integers(2, 4), st.sampled_from((2, 3, 16))),
    st.sampled_from((of_bytes, of_nibbles)),
    st.booleans(),
    st.sampled_from((NEON, BYTES, VNNI, evolve(VNNI, cores=2))),
    DIGITS,
)
def test_panels_of_digits_mean_the_same_by_the_template(
    sizes: tuple[int, int, int], product: Any, epilogue: bool, machine: Machine, digits: int
) -> None:
    sizes = (MIN_ROWS * sizes[0], *sizes[1:])
    of = product(*sizes, epilogue=True) if epilogue and product is of_bytes else product(*sizes)
    form = coded_digit_form(of, machine, digits)
    assert form is not None
    made = template_schedule(kernel_of(form), machine, None, ("coded-digits",))
    assert isinstance(made, tuple), made
    assert "tensorize" in made[1].to_python()
    kernel = made[2]
    assert not [each for each in kernel.params if each.name in (Name("codes"), Name("sum"))]
    given_ = [
        each.reshape([known(size) or 0 for size in buffer.shape])
        for each, buffer in zip(arrays_of(of), kernel.params, strict=False)
    ]
    same(run_kernel(kernel, given_)[-1], of, NEAR[digits])


def turned(of: Stages) -> Stages:
    """A product with its rows as columns."""
    (first,) = of.stages
    assert isinstance(first, Each)
    rows, columns = first.out.shape
    y = stage("y", (columns, rows), lambda n, m: sc.Load(first.out, (m, n)))
    return stages(of.inputs, (first, y))


@pytest.mark.parametrize(
    ("of", "machine"),
    [
        (of_bytes(MIN_ROWS, 8, 2), PLAIN),
        (of_bytes(MIN_ROWS, 8, 2), Machine(256, 16, dot=WORDS)),
        (of_bytes(MIN_ROWS - 1, 8, 2), VNNI),
        (of_bytes(MIN_ROWS + 1, 8, 2), VNNI),
        (of_narrow(f16, MIN_ROWS, 8, 64), VNNI),
        (turned(of_bytes(MIN_ROWS, 8, 2)), VNNI),
    ],
    ids=["floats", "words", "few rows", "no vectors", "f16", "turned"],
)
def test_panels_of_digits_are_of_integers_in_whole_vectors(of: Stages, machine: Machine) -> None:
    assert coded_digit_form(of, machine) is None


@pytest.mark.parametrize(
    ("of", "machine", "stages_made"),
    [
        (of_bytes(MIN_ROWS, 8, 2), PLAIN, "floats"),
        (of_bytes(MIN_ROWS, 8, 2), VNNI, "codes"),
        (of_narrow(f16, MIN_ROWS, 8, 64), VNNI, "floats"),
        (of_bytes(1, 8, 2), PLAIN, "part"),
        (of_bytes(7, 8, 2), VNNI, "part"),
        (of_bytes(1, 8, 2), VNNI, "peak"),
        (of_bytes(1, 8, 2, scaled=False), VNNI, "peak"),
        (of_nibbles(1, 8, 2), VNNI, "peak"),
        (of_narrow(f16, 1, 8, 64), VNNI, "part"),
        (of_narrow(bf16, 3, 8, 64), PLAIN, "part"),
    ],
    ids=[
        "panels",
        "bytes",
        "f16 panels",
        "floats",
        "rows",
        "digits",
        "no scales",
        "nibbles",
        "f16",
        "bf16",
    ],
)
def test_a_product_of_codes_takes_the_coded_form(
    of: Stages, machine: Machine, stages_made: str
) -> None:
    found = formed(of, Facts((False,) * len(of.inputs), contract=approx(1e-4)), machine)
    assert found is not None
    panels = {"floats": "coded-panels", "codes": "coded-digits"}
    assert found.form == panels.get(stages_made, "coded-rows")
    assert stages_made in [str(each.out.name) for each in found.stages.stages]  # type: ignore[union-attr]  # elements


@pytest.mark.parametrize("rows", [1, MIN_ROWS])
@pytest.mark.parametrize("product", [of_bytes, of_nibbles])
def test_data_of_8_bits_are_for_who_allows_them(rows: int, product: Any) -> None:
    of, names = product(rows, 8, 2), []
    for contract in (approx(1e-4), approx(1e-2)):
        found = formed(of, Facts((False,) * len(of.inputs), contract=contract), VNNI)
        assert found is not None
        names.append(found.form)
        assert isinstance(found.stages, Stages)
        made = {str(each.out.name): each for each in found.stages.stages if isinstance(each, Each)}
        assert made["digits"].out.dtype is (i16 if names == ["coded-digits"] else i8)
    assert names == ["coded-rows" if rows == 1 else "coded-digits", "coded-bytes"]


def test_what_follows_a_product_is_done_to_its_total() -> None:
    of = of_bytes(3, 8, 2, epilogue=True)
    form = coded_form(of, PLAIN)
    assert form is not None
    made = template_schedule(kernel_of(form), PLAIN)
    assert isinstance(made, tuple)
    assert made[0] == "coded-rows"
    same(run_kernel(made[2], arrays_of(of))[0], of, 1e-6)


@pytest.mark.parametrize("digits", [1, 2])
def test_the_result_of_one_row_may_lack_its_axis(digits: int) -> None:
    of = of_nibbles(1, 8, 2)
    (sums,) = of.stages
    assert isinstance(sums, Each)
    y = stage("y", (8,), lambda n: sc.Load(sums.out, (sc.index(0), n)) * 2.0)
    of = stages(of.inputs, (sums, y))
    form = coded_dot_form(of, VNNI, digits)
    assert form is not None
    made = template_schedule(kernel_of(form), VNNI)
    assert isinstance(made, tuple)
    assert made[0] == "coded-rows"
    same(run_kernel(made[2], arrays_of(of))[0], of, 2 * NEAR[digits])


def test_cores_share_rows_of_a_weight_that_is_long() -> None:
    form = coded_form(of_bytes(1, 4096, 128), Machine(512, 32, cores=2))
    assert form is not None
    made = template_schedule(kernel_of(form), Machine(512, 32, cores=2))
    assert isinstance(made, tuple)
    assert "parallel" in made[1].to_python()


# --- what is not ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, MIN_ROWS])
@pytest.mark.parametrize("contract", [exact, reassociates], ids=str)
def test_who_allows_no_approximation_has_no_codes(contract: Any, rows: int) -> None:
    of = of_bytes(rows, 64, 64)
    found = formed(of, Facts((False,) * 3, contract=contract), PLAIN)
    assert found is None or found.form not in ("coded-rows", "coded-digits", "coded-panels")


def replaced(of: Stages, value: Any) -> Stages:
    """A product with another reduction."""
    first, *rest = of.stages
    assert isinstance(first, Each)
    assert isinstance(first.value, sc.Reduce)
    return stages(of.inputs, (evolve(first, value=value(first.value)), *rest))


def of_two_terms() -> Stages:
    x, w = buffer("x", (2, 4, 16), f32), buffer("w", (8, 4, 16), i8)
    return stages((x, w), (stage("y", (2, 8), lambda m, n: reduce(
        "sum", (4, 16), lambda a, b: x[m, a, b] * number(w[n, a, b]))),))  # fmt: skip


def of_made_codes() -> Stages:
    """The codes are made in the kernel."""
    x, given_ = buffer("x", (2, 64), f32), buffer("w", (8, 64), i8)
    w = stage("w", (8, 64), lambda n, k: given_[n, k] + sc.Lit(1, i8))
    y = stage("y", (2, 8), lambda m, n: reduce(
        "sum", (64,), lambda k: x[m, k] * number(w[n, k])))  # fmt: skip
    return stages((x, given_), (w, y))


def of_shared_codes() -> Stages:
    """One code for each result is read for all terms."""
    x, w = buffer("x", (2, 64), f32), buffer("w", (8,), i8)
    return stages((x, w), (stage("y", (2, 8), lambda m, n: reduce(
        "sum", (64,), lambda k: x[m, k] * number(w[n]))),))  # fmt: skip


def of_floats() -> Stages:
    x, w = buffer("x", (2, 64), f32), buffer("w", (8, 64), f32)
    return stages((x, w), (stage("y", (2, 8), lambda m, n: reduce(
        "sum", (64,), lambda k: x[m, k] * w[n, k])),))  # fmt: skip


def widened(of: sc.Reduce) -> sc.Reduce:
    return evolve(of, body=sc.Cast(of.body, i32))


@pytest.mark.parametrize(
    "of",
    [
        of_floats(),
        of_two_terms(),
        of_made_codes(),
        of_shared_codes(),
        replaced(of_bytes(2, 8, 2), lambda each: evolve(each, combiner="max")),
        replaced(of_bytes(2, 8, 2), widened),
        replaced(of_bytes(2, 8, 2), lambda each: each + each),
        stages((), (stage("y", (4,), lambda i: sc.Cast(i, f32)),)),
    ],
    ids=["floats", "terms", "made", "shared", "max", "integers", "two sums", "no sum"],
)
def test_what_is_no_sum_of_given_codes_is_no_coded_product(of: Stages) -> None:
    assert coded_product(of) is None
    assert coded_form(of, PLAIN) is None
    assert coded_dot_form(of, VNNI) is None
    assert coded_panel_form(of, PLAIN) is None


def of_read_again() -> Stages:
    """The epilogue reads the data, too."""
    x, w = buffer("x", (32, 32), f32), buffer("w", (32, 32), i8)
    sums = stage("sums", (32, 32), lambda m, n: reduce(
        "sum", (32,), lambda k: x[m, k] * number(w[n, k // 32 * 32 + k % 32])))  # fmt: skip
    return stages((x, w), (sums, stage("y", (32, 32), lambda m, n: sums[m, n] + x[m, n])))


def of_computed_data() -> Stages:
    """The data is no input as it is."""
    x, w = buffer("x", (32, 32), f32), buffer("w", (8, 32), i8)
    return stages((x, w), (stage("y", (32, 8), lambda m, n: reduce(
        "sum", (32,), lambda k: x[m, k] * 2.0 * number(w[n, k % 32]))),))  # fmt: skip


@pytest.mark.parametrize(
    "of",
    [of_bytes(MIN_ROWS - 1, 8, 2), of_read_again(), of_computed_data(), of_narrow(f16, 1, 64, 64)],
    ids=["few rows", "read again", "computed", "one row"],
)
def test_products_without_panels(of: Stages) -> None:
    assert coded_panel_form(of, PLAIN) is None
    assert coded_form(of, PLAIN) is not None


@pytest.mark.parametrize(
    ("count", "cuts"), [(64, [1, 16, 32, 64]), (32, [1, 16, 32]), (33, None), (16, None), (6, None)]
)
def test_digits_of_a_term_fill_vectors(count: int, cuts: list[int] | None) -> None:
    k = axis("k")
    value = k // 32 * 18 + k % 32 % 16 if count > 32 else k % 16
    assert digit_cuts(value, k, count, 16) == cuts


def test_lanes_that_do_not_lie_side_by_side_have_no_form() -> None:
    x, w = buffer("x", (1, 64), f32), buffer("w", (64, 8), i8)
    of = stages((x, w), (stage("y", (1, 8), lambda m, n: reduce(
        "sum", (64,), lambda k: x[m, k] * number(w[k, n]))),))  # fmt: skip
    assert coded_product(of) is not None
    assert coded_form(of, PLAIN) is None


def test_lanes_of_more_terms_than_keep_their_bits_have_no_form() -> None:
    for terms, has in ((16 * MAX_TERMS, True), (32 * MAX_TERMS, False)):
        assert (coded_form(of_narrow(f16, 1, 4, terms), PLAIN) is not None) == has


@pytest.mark.parametrize(
    ("of", "machine"),
    [
        (of_bytes(1, 8, 2), PLAIN),
        (of_bytes(1, 8, 2), Machine(512, 32, dot=evolve(PAIRS, pairs=""))),
        (of_bytes(2, 8, 2), VNNI),
        (of_narrow(f16, 1, 8, 64), VNNI),
        (of_narrow(bf16, 1, 8, 64), VNNI),
    ],
    ids=["no dots", "no pairs", "two rows", "f16", "bf16"],
)
def test_what_no_dot_product_takes_has_no_digits(of: Stages, machine: Machine) -> None:
    assert coded_dot_form(of, machine) is None


def test_blocks_that_are_long_have_no_digits() -> None:
    for block, has in ((MAX_BLOCK, True), (2 * MAX_BLOCK, False)):
        x, w = buffer("x", (1, 4 * block), f32), buffer("w", (8, 4 * block), i8)
        of = stages((x, w), (stage("y", (1, 8), lambda m, n, x=x, w=w, block=block: reduce(
            "sum", (4 * block,), lambda k: x[m, k] * number(
                w[n, k // block * block + k % block]))),))  # fmt: skip
        assert (coded_dot_form(of, VNNI) is not None) == has


def test_numbers_that_fill_no_byte_alone_have_no_digits() -> None:
    """Those from -128 to 382 have no place in a byte, whatever is taken off."""
    x, w = buffer("x", (1, 64), f32), buffer("w", (8, 64), u8)
    for factor, has in ((1, True), (2, False)):
        of = stages((x, w), (stage("y", (1, 8), lambda m, n, factor=factor: reduce(
            "sum", (64,), lambda k: x[m, k] * sc.Cast(
                sc.Cast(w[n, k // 32 * 32 + k % 32], i32) * sc.Lit(factor, i32)
                - sc.Lit(128, i32), f32))),))  # fmt: skip
        assert (coded_dot_form(of, VNNI) is not None) == has


# --- kernels of others ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "of",
    [
        of_floats(),
        of_bytes(2, 8, 2),  # as it is: no parts
        of_made_codes(),
        stages((buffer("x", (4,), f32),), (stage("y", (4,), lambda i: sc.Cast(i, f32)),)),
    ],
    ids=["floats", "no parts", "made", "elements"],
)
def test_kernels_that_no_coded_form_made_are_left_to_others(of: Stages) -> None:
    kernel = kernel_of(of)
    assert coded_schedule(kernel, PLAIN) is None
    assert coded_dot_schedule(kernel, VNNI) is None
    assert coded_dot_schedule(kernel, PLAIN) is None


def test_a_sum_of_codes_alone_is_left_to_others() -> None:
    """It has lanes like a product, but there is no data that a few rows share weights for."""
    w = buffer("w", (8, 64), i8)
    of = stages((w,), (stage("y", (8,), lambda n: reduce(
        "sum", (64,), lambda k: number(w[n, k // 32 * 32 + k % 32]))),))  # fmt: skip
    form = coded_form(of, PLAIN)
    assert form is not None
    assert coded_schedule(kernel_of(form), PLAIN) is None


def test_a_result_with_other_axes_than_the_sums_is_left_to_others() -> None:
    of = of_bytes(3, 8, 2)
    (sums,) = of.stages
    turned = stage("y", (8, 3), lambda n, m: sums[m, n] * 2.0)
    form = coded_form(stages(of.inputs, (sums, turned)), PLAIN)
    assert form is not None
    assert coded_schedule(kernel_of(form), PLAIN) is None
    general_schedule(kernel_of(form), PLAIN)  # plain loops fit it


def test_groups_shorter_than_a_vector_fill_one_together() -> None:
    found = coded_dot_form(of_nibbles(1, 8, 4), VNNI)
    assert found is not None
    shapes = {str(each.out.name): each.out.shape for each in found.stages if isinstance(each, Each)}
    assert [known(n) for n in shapes["codes"]] == [8, 2, 2 * BLOCK]
    assert [known(n) for n in shapes["scale"]] == [8, 2, 2]
    alone = coded_dot_form(of_nibbles(1, 8, 3), VNNI)
    assert alone is not None
    assert "scale" not in {str(each.out.name) for each in alone.stages if isinstance(each, Each)}
