from __future__ import annotations

from plica.ir.loop.tensor import buffer, compute, reduce
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32
from plica.ir.type.term import tensor
from plica.rewrite.graph.feature import steps, steps_of


def test_every_element_takes_the_boxes_it_reduces_over() -> None:
    x = buffer("x", (4, 5), f32)
    total = reduce("sum", (4, 5), lambda i, j: x[i, j])
    assert steps_of(compute((x,), (3,), lambda i: total + total)) == 3 * 20
    nested = reduce("sum", (4,), lambda i: reduce("max", (5,), lambda j: x[i, j], "l"))
    assert steps_of(compute((x,), (3,), lambda i: nested)) == 3 * 20
    assert steps_of(compute((x,), (0,), lambda i: total)) == 0


def test_operators_made_of_others_take_their_steps() -> None:
    square = tensor((8, 8), "f32")
    assert steps("exp", (), (square,)) == 64
    assert steps("nn.softmax", (("axis", -1),), (square,)) not in (None, 64)


def test_unknown_sizes_have_no_number() -> None:
    assert steps("exp", (), (tensor((dim_var("n"),), "f32"),)) is None
