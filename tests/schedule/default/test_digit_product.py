"""Weights of few bits by dot products: digits are the numbers, sums those of floats; refusals."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from plica.codegen.dot_product import DOTS
from plica.ir.loop.stages import Stages, evaluate_all, stages_of
from plica.ir.loop.tensor import Compute, buffer
from plica.ir.op.bitserial import packed_dense
from plica.ir.type.dtype import f32, i32
from plica.schedule.default.digit_product import DIGITS, digit_form, digit_tile
from plica.schedule.default.few_bits import few_bits
from plica.schedule.default.machine import Machine

Array = np.ndarray[Any, Any]

SDOT = next(dot for *_, dot in DOTS if dot.words)
NEON = Machine(128, 32, dot=SDOT)


def product(rows: int, groups: int, words: int, columns: int, bits: int = 4) -> Stages:
    """Rows by a weight of groups of a given number of words."""
    x = buffer("x", (rows, groups * words * 32 // bits), f32)
    w = buffer("w", (columns, groups * words), i32)
    scale, zero = (buffer(name, (columns, groups), f32) for name in ("scale", "zero"))
    assert packed_dense.compute is not None
    of = packed_dense.compute({"bits": bits}, x, w, scale, zero)
    assert isinstance(of, Compute)
    return stages_of(of)


def formed(of: Stages, machine: Machine = NEON) -> Stages | None:
    found = few_bits(of)
    assert found is not None
    return digit_form(found, of, machine)


@given(st.integers(1, 10**4), st.integers(1, 12), st.sampled_from((16, 32)))
def test_sums_of_a_tile_fit_into_registers(vectors: int, steps: int, registers: int) -> None:
    wide, high = digit_tile(vectors, steps, registers)
    assert 1 <= wide <= vectors
    assert 1 <= high <= steps
    assert (DIGITS + 1) * wide * high < registers


@pytest.mark.parametrize(
    ("of", "machine"),
    [
        (product(1, 2, 4, 8, bits=8), NEON),
        (product(1, 2, 4, 8), Machine(128, 32)),
        (product(1, 2, 4, 8), Machine(128, 32, dot=evolve(SDOT, words=""))),
    ],
    ids=["bytes", "no dots", "no dots of words"],
)
def test_what_no_instruction_takes_has_no_digits(of: Stages, machine: Machine) -> None:
    assert formed(of, machine) is None


def evaluated(of: Stages, x: Array, words: Array) -> dict[str, Array]:
    """Every tensor of the stages of a product, by its name; numbers are less 8."""
    columns, groups = len(words), 2
    scale = np.linspace(0.5, 1, columns * groups, dtype=np.float32)
    zero = np.full(columns * groups, 8, np.float32)
    with np.errstate(all="ignore"):
        held = evaluate_all(of, (x, words, scale, zero))
    return {str(buffer.name): array for buffer, array in held.items()}


WORDS: Final = np.random.default_rng(0).integers(-(2**31), 2**31, (8, 8)).astype(np.int32)
OF: Final = product(1, 2, 4, 8)


@given(st.lists(st.floats(-1, 1, width=32), min_size=64, max_size=64), st.integers(-140, 120))
def test_digits_are_the_bytes_of_whole_numbers(numbers: list[float], exponent: int) -> None:
    form, x = formed(OF), np.ldexp(np.array([numbers], np.float32), exponent)
    assert form is not None
    found, wanted = evaluated(form, x, WORDS), evaluated(OF, x, WORDS)
    places = 256 ** np.arange(DIGITS - 1, -1, -1)
    whole = np.einsum("mghdqs,d->mghsq", found["digits"].astype(np.int64), places)
    groups = x.reshape(1, 2, -1)
    greatest = np.maximum(np.abs(groups).max(-1, keepdims=True), 2.0**-100)
    off = whole.reshape(groups.shape) * found["unit"].astype(np.float64)[..., None] - groups
    assert (np.abs(off) <= 3e-7 * greatest).all()
    about = 8 * np.abs(x).sum() + 2.0**-100
    np.testing.assert_allclose(found["out"], wanted["out"], atol=3e-6 * about)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_gives_what_is_not_finite(number: float) -> None:
    form, x = formed(OF), np.ones((1, 64), np.float32)
    assert form is not None
    x[0, 40] = number
    assert not np.isfinite(evaluated(form, x, WORDS)["out"]).any()
