"""What becomes integers, what does not, and why."""

from __future__ import annotations

import numpy as np
import pytest

import plica
from plica.ir.graph.expression import Apply, Expr, If, const
from plica.rewrite.quantise.annotate import annotate, prepare, tapped
from plica.rewrite.quantise.report import QuantisationReport
from tests.rewrite.quantise.net import digits, module_of, numbers, op, var

X = var("x", (1, 2, 6, 6))
W = const(numbers(0, 2, 2, 3, 3))


def conv(x: Expr) -> Expr:
    return op("nn.conv", x, W, padding=1)


def test_points_are_where_numbers_are_made() -> None:
    first = op("nn.relu", op("add", conv(X), const(np.ones((2, 1, 1), np.float32))))
    body = conv(op("nn.max_pool", first, kernel=2))
    found = annotate(module_of(body, X))
    assert found.points == (X, first)
    assert [row.form for row in found.rows] == ["i8"] * 5
    taps = plica.interpret(tapped(found), numbers(1, 1, 2, 6, 6))
    assert [each.shape for each in taps] == [(1, 2, 6, 6), (1, 2, 6, 6)]


def test_zeros_around_numbers_are_no_point_and_others_are() -> None:
    widths = ((0, 0), (0, 0), (1, 1), (1, 0))
    for value, points in ((0, ("nn.relu",)), (1.0, ("pad",))):
        around = op("pad", op("nn.relu", conv(X)), pad_width=widths, constant_values=value)
        found = annotate(module_of(conv(around), X))
        assert tuple([each.op for each in found.points if isinstance(each, Apply)]) == points


PADDED = op("nn.avg_pool", conv(X), kernel=3, padding=1)
HANGING = op("nn.avg_pool", conv(X), kernel=4, strides=3, ceil_mode=True)
REASONS = {
    "There is no integer form of it.": op("nn.softmax", conv(X)),
    "What it reads is in floats.": op("nn.relu", op("nn.softmax", X)),
    "Its weight is no constant.": op("nn.conv", X, X),
    "What it gives is used in floats only.": op("add", conv(X), X),
    "Its windows are not all as large.": conv(PADDED),
    "One side is a constant.": conv(op("add", X, const(1.0, "f32"))),
}


@pytest.mark.parametrize("why", REASONS)
def test_reasons(why: str) -> None:
    rows = annotate(module_of(REASONS[why], X)).rows
    assert why in [row.why for row in rows if row.form == "f32"]
    assert why in str(QuantisationReport(rows))


def test_windows_that_hang_over_are_not_all_as_large() -> None:
    rows = annotate(module_of(conv(HANGING), X)).rows
    assert [row.why for row in rows if row.op == "nn.avg_pool"] == [
        "Its windows are not all as large."
    ]


def test_sums_that_might_leave_32_bits_are_not_taken() -> None:
    x = var("x", (1, 40_000))
    body = op("nn.dense", x, const(np.ones((1, 40_000), np.float32)))
    (row,) = annotate(module_of(body, x)).rows
    assert row.why == "Its sums might leave 32 bits."


@pytest.mark.parametrize(("keep", "count"), [((), 4), (("first",), 3), (("last",), 3), (("first", "last"), 2), (("nn.conv",), 1)])  # fmt: skip  # noqa: E501
def test_what_is_kept(keep: tuple[str, ...], count: int) -> None:
    assert len(annotate(prepare(digits()), keep).layers) == count


def test_a_batch_norm_goes_into_the_weights_first() -> None:
    ones = [const(np.ones(2, np.float32)) for _ in range(4)]
    biased = op("nn.bias_add", op("nn.batch_norm", conv(X), *ones), ones[0], axis=1)
    rows = annotate(prepare(module_of(op("nn.relu", biased), X))).rows
    assert {row.op for row in rows} == {"nn.conv", "add", "nn.relu"}


def test_where_there_is_nothing_to_do_nothing_is_done() -> None:
    found = annotate(prepare(module_of(op("nn.softmax", X), X)))
    assert [row.form for row in found.rows] == ["f32"]
    assert found.points == ()


def test_layers_in_branches_are_left_alone() -> None:
    yes = var("yes", (), "bool")
    found = annotate(module_of(If(yes, conv(X), X), X, yes))
    assert (found.points, found.rows) == ((), ())


def test_a_last_relu_says_the_truth() -> None:
    (row,) = [
        each for each in annotate(module_of(op("nn.relu", conv(X)), X)).rows if each.form == "f32"
    ]
    assert (row.op, row.why) == ("nn.relu", "What it gives is used in floats only.")
