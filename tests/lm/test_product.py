"""Products by weights in block formats: no float of a weight is written; numbers are right."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest

import plica
from plica import op
from plica.core import Name
from plica.ir.graph import Function, Module, Var, module
from plica.ir.type.dim import dim_var
from plica.ir.type.term import tensor
from plica_lm.format import FORMATS, BitField, BlockFormat

Array = np.ndarray[Any, Any]
FUSED = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ2_0",
    "NVFP4",
)  # fmt: skip


def product(of: BlockFormat, columns: int, depth: int, rows: int | None = None) -> Module:
    """Rows by a weight, as many as a call gives if they are not said."""
    open_ = dim_var("m")
    x = Var(Name("x"), tensor((open_ if rows is None else rows, depth), "f32"))
    raw = Var(Name("raw"), tensor((columns, of.row_bytes(depth)), "u8"))
    main = Var(Name("main"), None)
    dims = (open_,) if rows is None else ()
    return module({main: Function(dims, (), (x, raw), None, op.nn.dense(x, of.decode(raw)))}, main)


def check(exe: Any, of: BlockFormat, columns: int, depth: int, rows: int) -> None:
    """Beside the product in f64, where the weights are finite."""
    near = 2e-5  # digits keep 16 bits of the greatest of a group
    random = np.random.default_rng(rows)
    raw = random.integers(0, 256, (columns, of.row_bytes(depth)), np.uint8)
    x = random.standard_normal((rows, depth)).astype(np.float32)
    with np.errstate(all="ignore"):
        weight = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[of.name]).astype(np.float64)
        sums, sizes = x.astype(np.float64) @ weight.T, np.abs(x) @ np.abs(weight.T)
    known = np.isfinite(weight).all(axis=1)
    assert known.sum() > columns // 64
    found = exe(x, raw)
    assert (np.abs(found - sums)[:, known] <= near * sizes[:, known]).all()


@pytest.mark.parametrize("name", FUSED)
def test_products_read_bytes(name: str) -> None:
    of = FORMATS[name]
    columns, depth = 19, 4 * of.elements
    exe = plica.compile(product(of, columns, depth, 1), cache=False, threads=1)
    assert len(exe.artefact.launches) == 1
    assert not exe.source("passed-over")
    assert not any(each.count("f32") and f"({columns}, {depth})" in each
                   for each in exe.source("kernel").splitlines())  # fmt: skip
    check(exe, of, columns, depth, 1)


@pytest.mark.parametrize("name", ["Q4_0", "Q8_0", "Q4_K", "Q6_K"])
@pytest.mark.parametrize("rows", [1, 32])
def test_a_looser_contract_rounds_activations_to_8_bits(name: str, rows: int) -> None:
    """Each by at most 1/254 of the greatest of its block; the default by at most 1/65,200."""
    of = FORMATS[name]
    columns, depth = 24, 768
    random = np.random.default_rng(rows)
    weight = (0.1 * random.standard_normal((columns, depth))).astype(np.float32)
    if name in ("Q4_0", "Q8_0"):
        raw = gguf.quants.quantize(weight, gguf.GGMLQuantizationType[name])
    else:
        raw = random.integers(0, 256, (columns, depth // of.elements, of.size), np.uint8)
        for field in of.fields.values():
            if isinstance(field, BitField) and field.dtype is not None:
                scale = np.frombuffer(np.float16(1e-2).tobytes(), np.uint8)
                raw[:, :, field.at : field.at + 2] = scale
        raw = raw.reshape(columns, -1)
    numbers = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name]).astype(np.float64)
    x = random.standard_normal((rows, depth)).astype(np.float32)
    expected = x.astype(np.float64) @ numbers.T
    peaks = np.abs(x).reshape(rows, -1, of.elements).max(axis=2)
    bound = peaks @ np.abs(numbers).reshape(columns, -1, of.elements).sum(axis=2).T
    errors = {}
    for contract, share in (("approx(0.0001)", 1 / 65_200), ("approx(0.01)", 1 / 254)):
        exe = plica.compile(product(of, columns, depth, rows), contract=contract, cache=False,
                            threads=1)  # fmt: skip
        errors[contract] = np.abs(exe(x, raw) - expected)
        rounding = 1e-6 * np.abs(x) @ np.abs(numbers.T)
        assert (errors[contract] <= share * bound + rounding).all()
    fine, coarse = errors.values()
    assert fine.max() <= 1e-4 * np.abs(expected).max()
    assert 10 * fine.max() < coarse.max() <= 1e-2 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["Q4_0", "Q6_K", "IQ4_XS", "TQ1_0"])
def test_any_number_of_rows(name: str) -> None:
    of = FORMATS[name]
    columns, depth = 12, 2 * of.elements
    exe = plica.compile(product(of, columns, depth), cache=False, threads=1)
    for rows in (0, 1, 3, 8, 13, 70):
        check(exe, of, columns, depth, rows)


@pytest.mark.parametrize("name", ["Q4_0", "Q8_0", "Q4_K", "Q6_K"])
@pytest.mark.parametrize(("rows", "columns"), [(17, 37), (64, 24)])
def test_panels_are_unpacked_once(name: str, rows: int, columns: int) -> None:
    of = FORMATS[name]
    exe = plica.compile(product(of, columns, 768, rows), cache=False, threads=2)
    assert len(exe.artefact.launches) == 1
    panel = "floats" if rows == 17 else "codes"
    assert f"{panel} = alloc" in exe.source("kernel")
    check(exe, of, columns, 768, rows)


def test_rows_that_share_far_memory_may_be_alone() -> None:
    of = FORMATS["Q8_0"]
    exe = plica.compile(product(of, 1024, 1024), cache=False, threads=1)
    assert "(1, 1024), f32" in exe.source("kernel")
    for rows in (0, 1, 2, 3, 5, 9):
        check(exe, of, 1024, 1024, rows)


def test_many_rows_read_floats() -> None:
    of = FORMATS["Q4_0"]
    exe = plica.compile(product(of, 12, 64, 257), cache=False, threads=1)
    assert len(exe.artefact.launches) > 1
    check(exe, of, 12, 64, 257)


@pytest.mark.parametrize("contract", ["exact", "reassociates"])
def test_stricter_contracts(contract: str) -> None:
    of = FORMATS["Q4_K"]
    exe = plica.compile(product(of, 5, 512, 2), contract=contract, cache=False, threads=1)
    assert len(exe.artefact.launches) > 1  # in order, the sums of floats in memory are faster
    check(exe, of, 5, 512, 2)


def test_a_result_of_other_axes_than_the_sums_is_right() -> None:
    """One row of sums as a column: `plica fuzz form --seed 1147 --first 1203`."""
    draw = np.random.default_rng(5)
    x, w = draw.standard_normal((1, 64)), draw.standard_normal((28, 64))
    source = """
import plica
from plica import op
from plica.script import Tensor, f16, f32

@plica.function
def main(x: Tensor[(1, 64), f32], w: Tensor[(28, 64), f16]) -> Tensor[(28, 1), f32]:
    return op.transpose(op.matmul(x, op.transpose(op.cast(w, dtype="f32"), (1, 0))), (1, 0))
"""
    half = w.astype(np.float16)
    product = plica.compile(plica.from_text(source), cache=False)
    expected = half.astype(np.float64) @ x.astype(np.float32).T
    np.testing.assert_allclose(product(x.astype(np.float32), half), expected, rtol=1e-4, atol=1e-4)
