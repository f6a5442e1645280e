"""Every reason for which an edge is fused or not has its case."""

from __future__ import annotations

from typing import get_args

import pytest

from plica.core.name import Name
from plica.ir.graph.expression import Expr, Project, Tuple, Var
from plica.ir.type.term import tensor
from plica.rewrite.fuse import REASONS, FusionLimits, Reason, explain
from tests.rewrite.fuse.graph import AT, PARAMS, X, Z, module_of, op

W = Var(Name("w"), tensor((3, 3, 2, 2), "f32"))
ROW = Var(Name("row"), tensor((4,), "f32"))
LONG = Var(Name("long"), tensor((2, 400, 6), "f32"))
BYTES = Var(Name("bytes"), tensor((3, 4), "i8"))
WEIGHT = Var(Name("weight"), tensor((2, 4), "i32"))

NEXT = X + 1.0
TURNED = op("transpose", X, (3, 2, 1, 0))
WIDE = op("cast", BYTES, "i32")
PRODUCT = op("nn.dense", WIDE, WEIGHT)
IMAGE = Var(Name("image"), tensor((1, 3, 4, 4), "f32"))
CONV = op("nn.conv", IMAGE, W)
PAIR = op("concat", (op("exp", CONV), CONV), axis=1)
# fmt: off
CASES: dict[Reason, tuple[Expr, str, str]] = {
    "inlined":        (op("exp", X + 1.0),                         "add.0",       "exp.1"),
    "epilogue":       (op("exp", op("sum", X)),                    "sum.0",       "exp.1"),
    "copied":         (Tuple((PRODUCT, op("negative", WIDE))),     "cast.0",      "nn.dense.1"),
    "opaque":         (op("nn.softmax", X + 1.0),                  "add.0",       "nn.softmax.1"),
    "view":           (op("exp", op("reshape", X, (-1,))),         "reshape.0",   "exp.1"),
    "may-fail":       (op("exp", op("take", X, AT, axis=1)),       "take.0",      "exp.1"),
    "escapes":        (Tuple((X + 1.0, op("exp", X + 1.0))),       "add.0",       "exp.1"),
    "shared":         (Tuple((op("sum", NEXT), op("exp", NEXT))),  "add.0",       "sum.1"),
    "unread":         (op("zeros_like", X + 1.0),                  "add.0",       "zeros_like.1"),
    "data-dependent": (op("take", X + 1.0, AT, axis=1),            "add.0",       "take.1"),
    "repeated":       (X + op("exp", ROW),                         "exp.0",       "add.1"),
    "reread":         (op("nn.conv", X + 1.0, W),                  "add.0",       "nn.conv.1"),
    "reordered":      (op("sum", TURNED, axis=(1,)),               "transpose.0", "sum.1"),
    "narrow":         (op("sum", op("exp", LONG), axis=(1,)),      "exp.0",       "sum.1"),
    "row":            (X - op("max", X, axis=(3,), keepdims=True), "max.0",       "subtract.1"),
    "moved":          (X - op("max", X, axis=(1,), keepdims=True), "max.0",       "subtract.1"),
    "in-place":       (PAIR,                                       "exp.1",       "concat.2"),
    "two-reductions": (op("sum", op("matmul", X, Z), axis=(3,)),   "matmul.0",    "sum.1"),
}
# fmt: on


@pytest.mark.parametrize("reason", CASES)
def test_reasons(reason: Reason) -> None:
    body, producer, consumer = CASES[reason]
    edges = explain(module_of(body, *PARAMS, W, ROW, LONG, BYTES, WEIGHT, IMAGE))
    found = {(str(each.producer), str(each.consumer)): each for each in edges}
    assert (producer, consumer) in found, sorted(found)
    edge = found[producer, consumer]
    assert edge.reason == reason
    assert edge.fused == (reason in ("inlined", "epilogue", "row", "copied"))
    assert REASONS[reason] in str(edge)


def test_every_word_has_a_meaning_and_a_case() -> None:
    limited = {"stopped", "size", "depth", "kept"}  # with the limits, in test_group and below
    assert set(get_args(Reason)) == set(REASONS) == set(CASES) | limited


def test_bytes_with_a_zero_point_are_copied_too() -> None:
    moved = WIDE - 3
    body = Tuple((op("nn.dense", moved, WEIGHT), op("negative", moved)))
    edges = explain(module_of(body, BYTES, WEIGHT))
    assert {each.reason for each in edges} == {"copied"}


@pytest.mark.parametrize(("rows", "fused"), [(1, True), (256, True), (257, False)])
def test_weights_are_unpacked_where_few_rows_read_them(rows: int, fused: bool) -> None:
    data = Var(Name("data"), tensor((rows, 16), "f32"))
    half = Var(Name("half"), tensor((8, 16), "f16"))
    codes = Var(Name("codes"), tensor((8, 9), "u8"))
    layout = {"block": 9, "width": 4, "at": 8, "extents": (2, 8), "strides": (4, 8)}
    numbers = op("cast", op("bit_field", codes, **layout) - 8, "f32")
    for weight in (op("cast", half, "f32"), op("reshape", numbers, (8, 16))):
        program = module_of(op("nn.dense", data, weight), data, half, codes)
        edges = explain(program, FusionLimits(unpacks=True))
        assert edges[-1].fused == fused
        assert all(each.fused for each in edges) == fused


def test_bytes_of_one_channel_are_widened_before() -> None:
    image = Var(Name("image"), tensor((1, 4, 6, 6), "i8"))
    weight = Var(Name("each"), tensor((4, 1, 3, 3), "i32"))
    body = op("nn.conv", op("cast", image, "i32"), weight, groups=4)
    (edge,) = explain(module_of(body, image, weight))
    assert edge.reason == "reread"


def test_bytes_stay_bytes_in_memory_where_the_limits_say_so() -> None:
    image = Var(Name("image"), tensor((1, 4, 6, 6), "i8"))
    weight = Var(Name("each"), tensor((4, 1, 3, 3), "i32"))
    body = op("nn.conv", op("cast", image, "i32"), weight, groups=4)
    limits = FusionLimits(bytes_stay=True)
    (edge,) = explain(module_of(body, image, weight), limits)
    assert edge.fused
    made = op("cast", op("nn.relu", op("cast", image, "i32")), "i8")
    total = op("sum", op("cast", made, "i32"))
    reasons = {each.reason for each in explain(module_of(total, image), limits)}
    assert "kept" in reasons


def test_bytes_that_escape_wider_are_not_copied() -> None:
    edges = explain(module_of(Tuple((PRODUCT, WIDE)), BYTES, WEIGHT))
    assert [each.reason for each in edges] == ["escapes"]


def test_cheap_work_may_be_done_again() -> None:
    (edge,) = explain(module_of(X + (ROW + 1.0), X, ROW))
    assert edge.fused
    assert edge.kinds == ("broadcast", "broadcast")


def test_a_read_at_two_places_is_no_read() -> None:
    twice = op("exp", Z)
    edges = explain(module_of(twice + op("transpose", twice), Z))
    assert {str(each.producer): each.reason for each in edges}["exp.0"] == "repeated"


def test_rows_that_are_only_moved_are_read_at_a_few_places() -> None:
    halves = op("split", op("transpose", X, (1, 0, 2, 3)), 2, axis=3)
    first, second = Project(halves, 0), Project(halves, 1)
    rotated = op("concat", (first * first - second, second + first), axis=3)
    assert {each.reason for each in explain(module_of(rotated, X))} == {"inlined"}


def test_columns_are_turned_once() -> None:
    columns = op("transpose", Z)
    upper, lower = (op("slice", columns, (at,), (at + 2,), axes=(0,)) for at in range(2))
    edges = explain(module_of(upper + lower, Z))
    assert {each.reason for each in edges if "transpose" in str(each.producer)} == {"repeated"}


def test_the_use_in_the_way_is_named() -> None:
    (edge,) = explain(module_of(Tuple((X + 1.0, op("exp", X + 1.0))), X))
    assert edge.because == "tuple"
    assert explain(module_of(op("exp", X), X), FusionLimits()) == ()


def test_bytes_are_made_in_the_order_they_are_made_of_before_they_are_transposed() -> None:
    data = Var(Name("data"), tensor((4, 6), "f32"))
    made = op("cast", op("exp", data), "u8")
    edges = explain(module_of(op("transpose", made), data))
    assert {str(each.producer): each.reason for each in edges}["cast.1"] == "kept"
    floats = explain(module_of(op("transpose", op("exp", data)), data))
    assert all(each.fused for each in floats)
