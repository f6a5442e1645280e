"""Dtypes: facts, names, and agreement with numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from plica.core.diagnostic import IllFormed
from plica.ir.type.dtype import DTYPES, DType, bf16, bool_, dtype, f32, i8, u64


@pytest.mark.parametrize("each", DTYPES, ids=str)
def test_a_dtype_is_found_by_all_its_names(each: DType) -> None:
    assert dtype(each) is each
    assert dtype(each.name) is each
    assert dtype(each.numpy) is each
    assert dtype(each.numpy.type) is each
    assert str(each) == each.name
    assert each.numpy.itemsize == each.bytes


@pytest.mark.parametrize("each", DTYPES, ids=str)
def test_kinds_are_numpys(each: DType) -> None:
    kinds = {"b": "bool", "i": "int", "u": "uint", "f": "float"}
    if each.numpy.kind != "V":  # of dtypes that others have added numpy says nothing
        assert each.kind == kinds[each.numpy.kind]
    assert each.is_float == (each.kind == "float")
    assert each.is_integer == (each.kind in ("int", "uint"))


@pytest.mark.parametrize("each", [each for each in DTYPES if each.is_integer], ids=str)
def test_bounds_are_numpys(each: DType) -> None:
    facts = ml_dtypes.iinfo(each.numpy)  # type: ignore[no-untyped-call]  # it has no types
    assert each.bounds == (facts.min, facts.max)


@pytest.mark.parametrize("each", [each for each in DTYPES if each.is_float], ids=str)
def test_formats_are_numpys(each: DType) -> None:
    facts = ml_dtypes.finfo(each.numpy)  # type: ignore[no-untyped-call]  # it has no types
    assert (each.row.digits, each.row.exponent) == (facts.nmant + 1, facts.nexp)
    assert each.greatest == float(facts.max)
    assert each.row.has_infinity == bool(np.isinf(np.asarray(np.inf).astype(each.numpy)))


def test_bounds_of_others() -> None:
    assert bool_.bounds == (0, 1)
    with pytest.raises(ValueError, match="no integer bounds"):
        _ = f32.bounds


def test_names_people_use() -> None:
    assert dtype("int8") is i8
    assert dtype("uint64") is u64
    assert dtype(float).name == "f64"
    assert dtype(ml_dtypes.bfloat16) is bf16
    assert dtype(np.dtype("<f4")) is f32


def test_there_are_no_others() -> None:
    with pytest.raises(IllFormed, match="There is no dtype 'f33'"):
        DType("f33")
    with pytest.raises(ValueError, match="no dtype for 'complex64'"):
        dtype("complex64")
    with pytest.raises(TypeError):
        dtype("no such type")
