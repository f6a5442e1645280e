"""Floats of bf16 in registers of f32: each result is rounded, and whatever is nan stays nan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import plica
from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var
from plica.ir.graph.module import module
from plica.ir.op.elementwise import cast
from plica.ir.type.dtype import bf16
from plica.ir.type.term import tensor

COUNT = 512
X, Y = Var(Name("x"), tensor((COUNT,), "f32")), Var(Name("y"), tensor((COUNT,), "bf16"))

RESULTS: dict[str, Callable[[], Expr]] = {
    "cast": lambda: cast(X, bf16),
    "sum": lambda: cast(X, bf16) + Y,
    "product": lambda: cast(X, bf16) * Y,
    "quotient": lambda: Y / cast(X, bf16),
    "several": lambda: (cast(X, bf16) + Y) * Y - cast(X, bf16),
    "greatest": lambda: op.maximum(cast(X, bf16), Y),
    "negative": lambda: -cast(X, bf16) * Y,
}


def drawn() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Floats of any bits, a third of them nan, among these all whose bits could be carried away."""
    draw = np.random.default_rng(7)
    bits = draw.integers(0, 1 << 32, COUNT, dtype=np.uint64)
    bits[: COUNT // 4] = draw.integers(0x7F7F0000, 0x80000000, COUNT // 4)
    bits[COUNT // 4 : COUNT // 2] = draw.integers(0xFF7F0000, 0x100000000, COUNT // 4)
    bits[:6] = [0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF, 0x7FFF8000, 0x7FC00000]
    narrow = draw.integers(0, 1 << 16, COUNT).astype(np.uint16)
    return bits.astype(np.uint32).view(np.float32), narrow.view(ml_dtypes.bfloat16)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", RESULTS)
def test_results_are_those_of_the_interpreter(name: str) -> None:
    main = Var(Name("main"), None)
    of = module({main: Function((), (), (X, Y), None, RESULTS[name]())}, main)
    values = drawn()
    found = plica.compile(of, cache=False, threads=1)(*values)
    wanted = plica.interpret(of, *values)
    assert isinstance(found, np.ndarray)
    assert isinstance(wanted, np.ndarray)
    nan = np.isnan(wanted.astype(np.float32))
    assert nan.any()
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), nan)
    np.testing.assert_array_equal(found[~nan].view(np.uint16), wanted[~nan].view(np.uint16))
