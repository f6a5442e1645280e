"""Dialects: every target writes every dtype and every operator, in a record of one shape."""

from __future__ import annotations

from typing import Any

import pytest

from plica.codegen.backend import backend_named
from plica.codegen.c.dialect import C99
from plica.codegen.cuda.dialect import CUDA
from plica.codegen.cuda.fold import fold
from plica.codegen.emit.dialect import Dialect
from plica.codegen.emit.scalar import operation, pack_element, round_to_dtype, unpack_element
from plica.codegen.llvm.dialect import LLVM
from plica.codegen.llvm.writer import LlvmPlace, LlvmWriter
from plica.core.diagnostic import CompilerBug
from plica.ir.loop.scalar import Cast, Intrinsic, Lit, Reduce, index
from plica.ir.loop.scalar_row import ScalarRow
from plica.ir.loop.scalar_table import ROWS
from plica.ir.loop.statement import For, Kernel, Seq, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import DTYPES, DType, bool_, f16, f32, i4, i64

ALL: list[Dialect[Any]] = [LLVM, CUDA, C99]


@pytest.mark.parametrize("dialect", ALL, ids=lambda each: each.name)
def test_a_target_is_its_dialect(dialect: Dialect[Any]) -> None:
    name = "cpu" if dialect is LLVM else dialect.name
    assert backend_named(name).dialect is dialect


@pytest.mark.parametrize("of", DTYPES, ids=str)
@pytest.mark.parametrize("dialect", ALL, ids=lambda each: each.name)
def test_every_dtype_has_a_register_and_an_element(dialect: Dialect[Any], of: DType) -> None:
    assert dialect.register(of)
    assert dialect.memory(of)
    assert dialect.literal(1, of)


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda each: each.name)
@pytest.mark.parametrize("dialect", ALL, ids=lambda each: each.name)
def test_every_operator_has_a_word_or_a_special_row(dialect: Dialect[Any], row: ScalarRow) -> None:
    words = row.words(dialect.name)
    is_decoded = bool(row.gives) and DType(row.gives).is_narrow  # by the dialect's conversion
    assert row.name in dialect.specials or is_decoded or all(kind in words for kind in row.takes)


def test_special_rows_are_of_operators_that_there_are() -> None:
    for dialect in ALL:
        assert {*dialect.specials} <= {*ROWS, "Cast"}


def test_only_what_has_no_register_is_rounded_and_packed_by_helpers() -> None:
    w = LlvmWriter()
    place = LlvmPlace(LLVM, w, 4)
    assert round_to_dtype("%x", f32, place) == pack_element("%x", f32, place) == "%x"
    assert not w.helpers
    pack_element("%x", bool_, place)
    unpack_element("%x", i4, place)
    pack_element("%x", f16, place)
    assert w.lines == [
        "  %1 = zext <4 x i1> %x to <4 x i8>",
        "  %2 = trunc <4 x i8> %x to <4 x i4>",
        "  %3 = call <4 x i16> @plica.pack.f16.v4(<4 x float> %x)",
    ]
    assert w.helpers == {("f16", 4)}


def test_what_has_no_text_is_a_bug() -> None:
    place = LlvmPlace(LLVM, LlvmWriter())
    with pytest.raises(CompilerBug, match="exp of i64 has no text in the dialect llvm"):
        operation(Intrinsic("exp", (Lit(1, i64),)), ["%x"], place)
    k = axis("k")
    with pytest.raises(CompilerBug, match="is no operation on scalars"):
        operation(Reduce("sum", (k,), (index(3),), k), ["%x"], place)


def test_what_is_stored_as_it_was_read_is_moved_and_rounded_once() -> None:
    x, i = buffer("x", (8,), f16), axis("i")
    y, z = buffer("y", (8,), f16), buffer("z", (8,), f16)
    twice = Cast(Cast(x[i], f32) * 2.0, f16)
    body = For(i, index(8), "threadIdx.x", Seq((Store(y, (i,), x[i]), Store(z, (i,), twice))))
    text = fold(Kernel((), (x, y, z), 1, body), "k").functions
    assert "] = x[" in text
    assert "p_round_f16" not in text
    assert text.count("p_pack_f16") == 1
