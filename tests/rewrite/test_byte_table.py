"""Functions of one byte are tables where they take long, and mean what they did."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import plica
from plica import op
from plica.codegen.lower.shared_passes import SLOW
from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Expr, Function, Tuple, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.type.term import tensor
from plica.rewrite.byte_table import with_byte_tables


def whole(body: Expr, *params: Var) -> Module:
    main = Var(Name("main"), None)
    return module({main: Function((), (), params, None, body)}, main)


def restored(x: Expr, scale: float, zero: int) -> Expr:
    moved = op.cast(x, dtype="i32") - const(zero, "i32")
    return op.cast(moved, dtype="f32") * const(scale, "f32")


def stored(x: Expr, scale: float, zero: int, of: str) -> Expr:
    low, high = (0.0, 255.0) if of == "u8" else (-128.0, 127.0)
    steps = op.round(x / const(scale, "f32")) + const(float(zero), "f32")
    return op.cast(op.clip(steps, min=low, max=high), dtype=of)


def operators(of: Module) -> Counter[str]:
    return Counter(node.op for node in post_order(of) if isinstance(node, Apply))


def gelu(x: Expr, of: str, zero: int) -> Expr:
    """As quantised models write it, with bytes between all steps."""
    half = stored(restored(x, 0.03, zero) * const(0.7071, "f32"), 0.02, zero, of)
    bent = stored(op.erf(restored(half, 0.02, zero)), 0.01, zero, of)
    more = restored(bent, 0.01, zero) + const(1.0, "f32")
    return stored(restored(x, 0.03, zero) * more, 0.03, zero, of)


@pytest.mark.parametrize(("of", "zero"), [("u8", 31), ("i8", -5)])
def test_a_chain_of_bytes_is_one_table(of: str, zero: int) -> None:
    x = Var(Name("x"), tensor((3, 100), of))
    before = whole(gelu(x, of, zero), x)
    after = with_byte_tables(before, SLOW)
    assert operators(after)["take"] == 1
    assert operators(after)["erf"] == 0
    info = np.iinfo(np.uint8 if of == "u8" else np.int8)
    given_ = np.resize(np.arange(info.min, info.max + 1), (3, 100)).astype(info.dtype)
    wanted = plica.interpret(before, given_)
    np.testing.assert_array_equal(plica.interpret(after, given_), wanted)
    np.testing.assert_array_equal(plica.compile(before, cache=False, threads=1)(given_), wanted)


def test_bytes_that_are_wanted_on_the_way_have_a_table_of_their_own() -> None:
    x = Var(Name("x"), tensor((4, 5), "u8"))
    first = stored(op.exp(restored(x, 0.01, 3)), 0.05, 0, "u8")
    second = stored(op.tanh(restored(first, 0.05, 0)), 0.01, 0, "u8")
    after = with_byte_tables(whole(Tuple((first, second)), x), SLOW)
    assert operators(after)["take"] == 2
    assert operators(after)["exp"] + operators(after)["tanh"] == 0


@pytest.mark.parametrize("what", ["two sources", "a row of numbers", "cheap", "floats"])
def test_what_is_no_function_of_a_byte_that_takes_long_stays(what: str) -> None:
    x, y = (Var(Name(name), tensor((4, 5), "u8")) for name in "xy")
    bent = op.exp(restored(x, 0.01, 3))
    body = {
        "two sources": stored(bent + restored(y, 0.1, 0), 0.05, 0, "u8"),
        "a row of numbers": stored(bent * const(np.ones(5, np.float32)), 0.05, 0, "u8"),
        "cheap": stored(restored(x, 0.01, 3) + const(1.0, "f32"), 0.05, 0, "u8"),
        "floats": bent,
    }[what]
    before = whole(body, x, y)
    assert operators(with_byte_tables(before, SLOW))["take"] == 0
