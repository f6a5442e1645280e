"""Near misses: the part of a pattern that fails, for every kind of part."""

from __future__ import annotations

from typing import Any

import plica
from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Tuple, Var, const
from plica.ir.type.term import tensor
from plica.op import nn
from plica.rewrite import Rest, dominates, either, hole, holes, rule
from plica.rewrite.near_miss import near_miss, near_misses

x, y, p = holes("x y p")
A = Var(Name("a"), tensor((2, 3), "f32"))
B = Var(Name("b"), tensor((2, 3), "f32"))
ONE = const(1.0, A.type.dtype)  # type: ignore[union-attr]


def test_what_is_missed_by_each_kind_of_part() -> None:
    c = hole("c", constant=True)
    flat = hole("flat", rank=1)
    whole = hole("whole", dtypes="i64")
    square = hole("square", shape=(2, 2))
    some = hole("some", when=lambda value: False)
    many: list[tuple[Any, Expr, str]] = [
        (x * nn.sigmoid(x), A * nn.sigmoid(B), "hole x: expected the same as before"),
        (nn.relu(nn.relu(x)), nn.relu(A), "argument 1: expected nn.relu, found the variable a"),
        (x + c, A + B, "the hole c: expected a constant, found the variable b"),
        (nn.relu(flat), nn.relu(A), "the hole flat: expected of rank 1"),
        (nn.relu(whole), nn.relu(A), "the hole whole: expected of i64"),
        (nn.relu(square), nn.relu(A), "the hole square: expected of shape (2, 2)"),
        (nn.relu(some), nn.relu(A), "the hole some: expected what its predicate wants"),
        (op.sum(x, axis=1), op.sum(A, axis=0), "attribute axis: expected (1,), found (0,)"),
        (x + 2, A + ONE, "argument 2: expected 2, found a constant"),
        (op.concat((x, y)), op.concat((A, B, A)), "concat: expected 2 arguments, found 3"),
        (Tuple((x, nn.relu(y))), Tuple((A, B)), "items"),
    ]
    for left, term, said in many:
        miss = near_miss(rule("r", left, lambda m: None), term)
        assert miss is not None
        assert said in str(miss), str(miss)


def test_the_head_alternatives_and_what_applies() -> None:
    of = rule("r", either(nn.relu(nn.relu(x)), nn.relu(op.exp(x))), lambda m: nn.relu(m.x))
    assert near_miss(of, nn.relu(nn.relu(A))) is None
    miss = near_miss(of, nn.relu(op.exp(A)) * 1.0)
    assert miss is not None
    assert miss.fitting == 0
    assert "the head: expected nn.relu, found multiply" in str(miss)


def test_a_rest_takes_what_is_left() -> None:
    rest = Rest("rest")
    of = rule("r", op.concat((nn.relu(x), rest)), lambda m: None)
    miss = near_miss(of, op.concat((nn.relu(A), B, B)))
    assert miss is not None
    assert "the right side declines" in str(miss)


def test_a_rule_that_fails_is_said_to() -> None:
    of = rule("r", nn.relu(nn.relu(x)), lambda m: m.x.type and None)
    miss = near_miss(of, nn.relu(nn.relu(op.exp(A))))
    assert miss is not None
    assert "fits, but it fails: AttributeError" in str(miss)


def test_a_region_is_no_single_term() -> None:
    of = rule("r", dominates(nn.relu(x), op.exp(y), nn.relu(y)), lambda m: None)
    miss = near_miss(of, nn.relu(A))
    assert miss is not None
    assert "expected a region" in str(miss)


PROGRAM = plica.from_text("""
@plica.function
def main(a: Tensor[(2, 3), f32], b: Tensor[(2, 3), f32]):
    return a * op.sigmoid(b) + a * op.exp(a) + a * op.sigmoid(a)
""")


def test_the_near_misses_of_a_program_come_nearest_first() -> None:
    silu = rule("silu", x * op.sigmoid(x), nn.silu(x), float="approx(1e-5)")
    applied, missed = near_misses(silu, PROGRAM)
    assert len(applied) == 1
    assert [each.fitting for each in missed] == [3, 2]
