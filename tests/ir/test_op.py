"""Operators: every record is whole, and means what numpy means."""

from __future__ import annotations

import warnings
from typing import Any

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

import tests.ir.reference.case_neural
import tests.ir.reference.neural
from plica.ir.dtype import dtype
from plica.ir.op import find, names
from tests.ir.reference.case import CASES, Case
from tests.ir.reference.meaning import REFERENCE
from tests.ir.reference.run import run

assert tests.ir.reference.case_neural is not None  # imported for their entries in the tables
assert tests.ir.reference.neural is not None

Array = np.ndarray[Any, Any]

# How many units in the last place may lie between us and the reference, in the result's dtype and
# relative to the largest number about; summing a few numbers costs a few units.
UNITS = {"f16": 8, "bf16": 8, "f32": 64, "f64": 4096}


def close(found: Array, wanted: Array, args: tuple[Array, ...]) -> None:
    """Equal, or within a few units of the greatest magnitude about; nan and infinities agree."""
    kind = dtype(found.dtype)
    assert found.shape == np.shape(wanted)
    if not kind.is_float:
        np.testing.assert_array_equal(found, np.asarray(wanted).astype(found.dtype))
        return
    with np.errstate(all="ignore"):
        expected = np.asarray(wanted).astype(found.dtype).astype(np.float64)
    eps = float(ml_dtypes.finfo(found.dtype).eps)
    magnitudes = [abs(each.astype(np.float64)) for each in (found, expected, *args) if each.size]
    tame = [m[np.isfinite(m) & (m < 1e4)].max(initial=0) for m in magnitudes]
    tolerance = UNITS[kind.name] * eps
    np.testing.assert_allclose(
        found.astype(np.float64), expected, rtol=tolerance, atol=tolerance * max(1.0, *tame, 0.0)
    )


def check(name: str, case: Case) -> None:
    record = find(name)
    assert record is not None
    found = run(record, case.args, case.attrs)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        wanted = REFERENCE[name](*case.args, **case.attrs)
    several = wanted if isinstance(wanted, tuple) else (wanted,)
    assert len(found) == len(several)
    for ours, theirs in zip(found, several, strict=True):
        close(ours, np.asarray(theirs), case.args)


@pytest.mark.parametrize("name", names())
@settings(max_examples=25)
@given(data=st.data())
def test_it_means_what_the_reference_means(name: str, data: st.DataObject) -> None:
    check(name, data.draw(CASES[name]))
