"""Block formats: dequantisation is bit-equal to the gguf package's, whoever runs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import plica
from plica.core import Name
from plica.ir.graph import Function, Module, Var, module
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f16
from plica.ir.type.term import tensor
from plica_lm.format import FORMATS, BlockFormat, bits, floats
from plica_lm.format.ggml import Q4_0
from tests.library import Library

Array = np.ndarray[Any, Any]
ROWS, BLOCKS = 700, 3
REFERENCED = [name for name in FORMATS if name in gguf.GGMLQuantizationType.__members__]


def decoding(of: BlockFormat, blocks: int = BLOCKS) -> Module:
    """The weights of an open number of rows."""
    rows = dim_var("rows")
    raw, main = Var(Name("raw"), tensor((rows, blocks * of.size), "u8")), Var(Name("main"), None)
    return module({main: Function((rows,), (), (raw,), None, of.decode(raw))}, main)


def some(of: BlockFormat, rows: int = ROWS, blocks: int = BLOCKS, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (rows, blocks * of.size), np.uint8)


def meant(of: BlockFormat, raw: Array) -> Array:
    if of.name == "Q1_0":  # gguf knows its size alone; as ggml has it, a bit is the sign
        blocks = raw.reshape(-1, of.size)
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        signs = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little")
        return np.where(signs, scale, -scale).reshape(len(raw), -1)
    with np.errstate(all="ignore"):
        found = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[of.name])
    return np.asarray(found, np.float32)


def assert_same_bits(result: object, expected: Array) -> None:
    """Equal bits, but for which nan it is."""
    found = np.asarray(result)
    assert found.shape == expected.shape
    is_nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), is_nan)
    same = np.where(is_nan, 0, found.view(np.uint32)) == np.where(
        is_nan, 0, expected.view(np.uint32)
    )
    assert same.all(), np.argwhere(~same)[:4]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    made = Library(tmp_path, monkeypatch)
    yield made
    made.remove()


@pytest.mark.parametrize("name", REFERENCED)
def test_dequantisation_is_that_of_gguf(name: str) -> None:
    of = FORMATS[name]
    assert (of.elements, of.size) == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    raw, program = some(of), decoding(of)
    expected = meant(of, raw)
    assert_same_bits(plica.interpret(program, raw), expected)
    exe = plica.compile(program, contract="exact", cache=False, threads=1)
    assert_same_bits(exe(raw), expected)
    for rows in (0, 1, 17):
        assert_same_bits(exe(raw[:rows]), expected[:rows])


@pytest.mark.parametrize(
    "name",
    [each if each in ("Q4_0", "Q4_K") else pytest.param(each, marks=pytest.mark.slow)
     for each in REFERENCED],
)  # fmt: skip
def test_gpu_code_agrees(name: str) -> None:
    of = FORMATS[name]
    raw = some(of, 5)
    exe = plica.compile(decoding(of), target="cuda-emulator", contract="exact", cache=False)
    assert_same_bits(exe(raw), meant(of, raw))


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCED)
def test_a_million_blocks(name: str) -> None:
    of = FORMATS[name]
    exe = plica.compile(decoding(of, 5), contract="exact", cache=False)
    for seed in range(20):
        raw = some(of, 10_000, 5, seed)
        assert_same_bits(exe(raw), meant(of, raw))


def test_a_format_of_a_package(library: Library) -> None:
    text = """
from plica_lm.format import BlockFormat, bits, floats
from plica_lm.format.block import real
from plica.ir.type.dtype import f16
ACME4 = BlockFormat("acme4", (2,), 4, {"q": bits(4, 0, 4), "d": floats(f16, 2)},
                    lambda d, q: d * real(q))
"""
    library.install("acme", "[plica_lm.formats]\nacme4 = acme_f:ACME4\n", acme_f=text)
    assert "acme4" in FORMATS
    of = FORMATS["acme4"]
    raw = np.array([[0x52, 0, 0, 0x40]], np.uint8)  # 2 and 5, times 2.0
    np.testing.assert_array_equal(plica.interpret(decoding(of, 1), raw), [[4.0, 10.0]])
    with pytest.raises(plica.PlicaError, match="There is no weight format 'acme5'"):
        FORMATS["acme5"]


def test_a_field_outside_of_its_block_is_refused() -> None:
    def made(**fields: Any) -> BlockFormat:
        return BlockFormat("made", (2, 16), 18, fields, lambda **given: next(iter(given.values())))

    with pytest.raises(plica.InputError, match="at most 144 bits"):
        made(q=bits(4, 3, 4, 8))
    with pytest.raises(plica.InputError, match="numbers within a byte"):
        made(q=bits(4, 0, 5, 8))
    with pytest.raises(plica.InputError, match="a stride for each axis"):
        made(d=floats(f16, 0, 8, 8, 8))


def test_rows_are_whole_blocks() -> None:
    assert Q4_0.row_bytes(64) == 36
    assert Q4_0.columns(36) == 64
    with pytest.raises(plica.InputError, match="a multiple of 32"):
        Q4_0.row_bytes(33)
    with pytest.raises(plica.InputError, match="a multiple of 18 bytes"):
        Q4_0.columns(20)
