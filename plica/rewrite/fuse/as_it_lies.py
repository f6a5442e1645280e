"""Operands that products read directly: bytes as wider integers or as floats, narrow floats as f32,
transposed matrices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from plica.ir.graph.expression import Apply, Expr, attr
from plica.ir.type import TensorType, bf16, f16, f32, i8, i32, type_of, u8
from plica.rewrite.fuse.reading import count, operator, parts

MATRICES: Final = ("einsum", "matmul", "nn.batch_matmul", "nn.dense")
"""Operators that multiply matrices."""


def is_as_it_lies(value: Expr, users: Iterable[Expr], tiles: bool) -> bool:
    """Whether products read a value's source directly from memory."""
    return is_widened(value) or (tiles and (is_narrow(value) or is_transposed(value, users)))


def is_restored(value: Expr, users: Iterable[Expr]) -> bool:
    """Whether windows over one channel, channels last, read bytes as wider integers or as floats,
    moved or not."""
    args, of = parts(value), type_of(value)
    if isinstance(of, TensorType) and of.dtype is i32 and count(of.shape) is not None:
        return is_widened(value) and all(_is_apart(user, value) for user in users)
    if operator(value) != "cast" or args is None:
        return False
    if not isinstance(of, TensorType) or of.dtype is not f32 or count(of.shape) is None:
        return False
    before = type_of(args[0])
    bare = isinstance(before, TensorType) and before.dtype in (i8, u8)
    moved = not bare and parts(args[0]) is not None and is_widened(args[0])
    return (bare or moved) and all(_is_apart(user, value) for user in users)


def _is_apart(user: Expr, value: Expr) -> bool:
    """Whether a value is what such a window slides over."""
    args = parts(user)
    if args is None or not isinstance(user, Apply) or operator(user) != "nn.conv_laid":
        return False
    return args[0] is value and args[1] is not value and int(attr(user, "groups", 1)) > 1


def is_narrow(value: Expr) -> bool:
    """Whether narrow floats are read as f32, which is exact: products of them are sums of f32."""
    args = parts(value)
    if operator(value) != "cast" or args is None:
        return False
    before, after = type_of(args[0]), type_of(value)
    return (
        isinstance(before, TensorType)
        and isinstance(after, TensorType)
        and before.dtype in (f16, bf16)
        and after.dtype is f32
    )


def is_transposed(value: Expr, users: Iterable[Expr]) -> bool:
    """Whether products of matrices read a value that is another with its axes in another order.

    A window is read repeatedly: it is stored in the form in which it is read.
    """
    return operator(value) == "transpose" and all(
        operator(user) in MATRICES or operator(user) in ("transpose", "cast") for user in users
    )


def is_widened(value: Expr) -> bool:
    """Whether integers of 8 bits are read as wider ones, each moved by the same number or not."""
    seen = 0
    while seen < 2 and operator(value) in ("add", "subtract"):
        left, right = parts(value) or (value, value)
        one = [expr for expr in (left, right) if not _is_one(expr)]
        if len(one) != 1 or parts(one[0]) is None:
            return False
        value, seen = one[0], seen + 1
    args = parts(value)
    if operator(value) != "cast" or args is None:
        return False
    (of,) = args
    before, after = type_of(of), type_of(value)
    return (
        isinstance(before, TensorType)
        and isinstance(after, TensorType)
        and before.dtype in (i8, u8)
        and after.dtype is i32
    )


def _is_one(value: Expr) -> bool:
    of = type_of(value)
    return isinstance(of, TensorType) and count(of.shape) == 1
