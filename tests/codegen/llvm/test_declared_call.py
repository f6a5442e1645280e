"""Kernels that call functions of C and instructions of LLVM that a program declares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica.core.diagnostic import EvaluationError
from plica.ir.graph.module import Module
from plica.ir.loop.intrinsic import intrinsic
from plica.ir.loop.scalar_row import INTEGERS, ScalarRow, every
from plica.ir.loop.scalar_table import declare_scalar
from plica.ir.loop.statement import Kernel

MEANING = """
@plica.kernel
def scale(X: Buffer[("n",), f64], Y: Buffer[("n",), f64]):
    for i in grid(n):
        Y[i] = 3.0 * X[i] + 1.0
"""

ROWS = """
@plica.kernel
def main(X: Buffer[(R, C), f64], Y: Buffer[(R, C), f64]):
    for i in grid(R):
        with block("Y", spatial=(i,)):
            reads(X[i, 0:C])
            writes(Y[i, 0:C])
            invoke("test.scale", X[i, 0:C], Y[i, 0:C], C)
"""

REVERSED = """
@plica.kernel
def main(X: Buffer[(9,), DT], Y: Buffer[(9,), DT]):
    for i in grid(9):
        Y[i] = intrinsic("NAME", X[i] + 1)
"""


def meaning() -> Kernel:
    (kernel,) = plica.from_text(MEANING).definitions().values()
    assert isinstance(kernel, Kernel)
    return kernel


intrinsic("test.scale", meaning(), hints=(("symbol", "plica_test_scale_row"),))


def reverse(x: Any) -> Any:
    """The bits of integers in the other order."""
    code = np.asarray(x)
    bits, of = 8 * code.dtype.itemsize, np.dtype(f"u{code.dtype.itemsize}").type
    words, turned = code.view(of), np.zeros_like(code.view(of))
    for at in range(bits):
        turned |= ((words >> of(at)) & of(1)) << of(bits - 1 - at)
    return turned.view(code.dtype)


BITREVERSE = declare_scalar(
    ScalarRow(
        "test.bitreverse", reverse, INTEGERS, is_exact=True,
        llvm=every("@llvm.bitreverse", INTEGERS),
    )
)  # fmt: skip


def rows(count: int, size: int) -> Module:
    return plica.from_text(ROWS.replace("R", str(count)).replace("C", str(size)))


def scale(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return 3 * x + 1


@settings(max_examples=4, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5))
def test_an_extern_is_called_on_regions(count: int, size: int) -> None:
    module, x = rows(count, size), np.arange(count * size, dtype=np.float64).reshape(count, size)
    exe = plica.compile(module, externs={"plica_test_scale_row": scale})
    np.testing.assert_array_equal(exe(x), scale(x))
    np.testing.assert_array_equal(plica.interpret(module, x), scale(x))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0:3], 3)", "0:3])", "does not say each dim"),
        ('scale", X[i, 0:3]', 'scale", X[0:2, 1]', "not contiguous"),
        ('scale", X[i, 0:3]', 'scale", X[i + 1, 0:3]', "inside its bounds"),
        ("test.scale", "test.absent", "No tensor intrinsic is called"),
    ],
)
def test_calls_that_cannot_be_are_refused(old: str, new: str, message: str) -> None:
    text = ROWS.replace("R", "2").replace("C", "3").replace(old, new)
    with pytest.raises(plica.PlicaError, match=message):
        plica.compile(plica.from_text(text), externs={"plica_test_scale_row": scale})


def test_a_target_without_externs_refuses() -> None:
    with pytest.raises(plica.UnsupportedError, match="calls no externs"):
        plica.compile(rows(2, 3), target="c", externs={"plica_test_scale_row": scale})


@pytest.mark.parametrize("dtype", ["i8", "u16", "i32", "u64"])
def test_an_instruction_of_llvm_is_called(dtype: str) -> None:
    module = plica.from_text(REVERSED.replace("DT", dtype).replace("NAME", BITREVERSE.name))
    x = np.arange(9).astype({"i": "int", "u": "uint"}[dtype[0]] + dtype[1:])
    expected = reverse(x + x.dtype.type(1))
    np.testing.assert_array_equal(plica.interpret(module, x), expected)
    np.testing.assert_array_equal(plica.compile(module)(x), expected)


def test_a_target_that_a_row_has_no_word_for_refuses() -> None:
    module = plica.from_text(REVERSED.replace("DT", "i32").replace("NAME", BITREVERSE.name))
    with pytest.raises(plica.UnsupportedError, match="no text in the dialect c"):
        plica.compile(module, target="c")


def test_a_name_that_nobody_declared_is_refused() -> None:
    module = plica.from_text(REVERSED.replace("DT", "i32").replace("NAME", "test.absent"))
    with pytest.raises(plica.PlicaError, match="No scalar intrinsic"):
        plica.compile(module)


def test_declarations_are_refused() -> None:
    assert declare_scalar(BITREVERSE) is BITREVERSE
    with pytest.raises(EvaluationError, match="already"):
        declare_scalar(ScalarRow("exp", np.exp, llvm=every("@llvm.exp")))
    with pytest.raises(EvaluationError, match="no text for any target"):
        declare_scalar(ScalarRow("test.silent", np.exp))
