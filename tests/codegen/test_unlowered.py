"""Statements that lowering removes must not reach the fold that writes LLVM's text."""

from __future__ import annotations

import pytest

from plica.codegen.llvm.fold import emit
from plica.core.diagnostic import CompilerBug
from plica.ir.loop.statement import NOTHING, TRUE, Barrier, Invoke, Kernel, Stmt, While, block
from plica.ir.loop.tensor import buffer
from plica.ir.type.dtype import f32


@pytest.mark.parametrize(
    "stmt",
    [
        block("b", (), (), "", (), NOTHING),
        While(TRUE, NOTHING),
        Invoke("any", ()),
        Barrier("shared"),
    ],
)
def test_what_lowering_left_is_a_bug(stmt: Stmt) -> None:
    kernel = Kernel((), (buffer("x", (1,), f32),), 0, stmt)
    word = "invocation" if isinstance(stmt, Invoke) else type(stmt).__name__
    with pytest.raises(CompilerBug, match=word):
        emit(kernel, "left")
