"""Small networks in floats with points, and samples for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.op import find
from plica.ir.op.quantise import dequantise, quantise
from plica.ir.type.dtype import f32, i8, u8
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor

Array = np.ndarray[Any, Any]


def op(name: str, *args: Any, **attrs: Any) -> Expr:
    """An operator by its name, applied."""
    found = find(name)
    assert found is not None
    made: Expr = found(*args, **attrs)
    return made


def var(name: str, shape: tuple[int, ...], dtype: str = "f32") -> Var:
    """An input."""
    return Var(Name(name), tensor(shape, dtype))


def module_of(body: Expr, *params: Var) -> Module:
    """A module that computes the body."""
    main = Var(Name("main"), None)
    return infer(module({main: Function((), (), params, None, body)}, main))


def numbers(seed: int, *shape: int) -> Array:
    """Random numbers around zero."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def restored(x: Expr, scale: Any, zero: int = 0, signed: bool = True) -> Expr:
    """Bytes as numbers."""
    return dequantise(x, const(scale, f32), const(zero, i8 if signed else u8))


def rounded(x: Expr, scale: float, zero: int = 0, signed: bool = True, **how: Any) -> Expr:
    """Numbers as bytes."""
    return quantise(x, const(scale, f32), const(zero, i8 if signed else u8), **how)


def point(x: Expr, scale: float, zero: int = 0, signed: bool = True, **how: Any) -> Expr:
    """Numbers that are bytes for a moment."""
    return restored(rounded(x, scale, zero, signed, **how), scale, zero, signed)


def digits(seed: int = 0) -> Module:
    """A small network for images, with all that has an integer form."""
    x = var("x", (1, 2, 8, 8))
    y = op("nn.conv", x, const(numbers(seed, 8, 2, 3, 3) / 4), padding=1)
    y = op("nn.relu", op("add", y, const(numbers(seed + 1, 8, 1, 1) / 8)))
    y = op("nn.max_pool", y, kernel=2)
    z = op("nn.conv", y, const(numbers(seed + 2, 8, 8, 3, 3) / 8), padding=1)
    z = op("nn.hard_swish", z)
    z = op("nn.conv", z, const(numbers(seed + 3, 8, 1, 3, 3) / 2), padding=1, groups=8)
    y = op("nn.relu", op("add", z, y))
    y = op("nn.avg_pool", y, kernel=2)
    y = op("concat", (y, op("clip", y, min=0.0, max=0.5)), axis=1)
    y = op("nn.flatten", op("nn.global_avg_pool", y))
    y = op("nn.dense", y, const(numbers(seed + 4, 5, 16)))
    return module_of(op("nn.softmax", op("add", y, const(numbers(seed + 5, 5)))), x)
