"""A convolution is computed in the order of its own result; a product may be in any."""

from __future__ import annotations

from plica.core.name import Name
from plica.ir.graph.expression import Expr, Var
from plica.ir.op.convolution import conv
from plica.ir.op.linear import matmul
from plica.ir.op.shape import transpose
from plica.ir.type.infer import infer_expr
from plica.ir.type.term import tensor
from plica.rewrite.fuse.decide import decide
from plica.rewrite.fuse.limit import DEFAULT_LIMITS


def reasons(term: Expr) -> list[str]:
    return [each.reason for each in decide(infer_expr(term), DEFAULT_LIMITS).verdicts.values()]


def test_a_turned_convolution_is_a_kernel_of_its_own() -> None:
    x, w = (Var(Name(name), tensor((4, 4, 3, 3), "f32")) for name in "xw")
    assert reasons(transpose(conv(x, w, padding=1), (1, 0, 2, 3))) == ["escapes", "moved"]
    assert reasons(conv(x, w, padding=1) * 2.0) == ["escapes", "epilogue"]


def test_a_turned_product_is_not() -> None:
    x, y = (Var(Name(name), tensor((4, 5), "f32")) for name in "xy")
    assert reasons(transpose(matmul(x, transpose(y, (1, 0))), (1, 0)))[:2] == [
        "escapes",
        "epilogue",
    ]
