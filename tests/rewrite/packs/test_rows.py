"""What each family of rules is for, on terms that real models hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Expr, Project, Var, const
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import bool_
from plica.ir.type.infer import type_of
from plica.ir.type.term import tensor
from plica.rewrite import exact, rewrite
from plica.rewrite.packs.simplify import SIMPLIFY

N = dim_var("n")
IMAGE = Var(Name("image"), tensor((N, 8, 6, 3), "f32"))
MATRIX = Var(Name("matrix"), tensor((2, 3), "f32"))
WEIGHT = Var(Name("weight"), tensor((3, 4), "f32"))
COUNTS = Var(Name("counts"), tensor((2, 3), "i32"))
FLAGS = Var(Name("flags"), tensor((2, 3), "bool"))


def simplified(term: Any, contract: Any = None) -> Expr:
    """The normal form of a term."""
    done, _ = rewrite(term, SIMPLIFY, contract)
    assert isinstance(done, Expr)
    return done


def operators(term: Expr) -> list[str]:
    """The operators on the way from the result to the first argument."""
    names = []
    while isinstance(term, Apply) and term.args:
        names.append(term.op)
        term = term.args[0]
    return names


def test_layout_transposes_around_bias_and_activation_cancel() -> None:
    bias = const(np.arange(3), "f32")
    inside = op.nn.relu(op.transpose(op.transpose(IMAGE, (0, 3, 1, 2)), (0, 2, 3, 1)) + bias)
    assert operators(simplified(inside)) == ["nn.relu", "add"]
    turned = op.nn.relu(op.transpose(IMAGE, (0, 3, 1, 2)) + const(np.ones((3, 1, 1)), "f32"))
    back = simplified(op.transpose(turned, (0, 2, 3, 1)))
    assert operators(back) == ["nn.relu", "add"]


def test_bias_add_and_mean_become_base_operators() -> None:
    bias = Var(Name("bias"), tensor((8,), "f32"))
    assert operators(simplified(op.nn.bias_add(IMAGE, bias))) == ["add"]
    assert "mean" not in operators(simplified(op.mean(IMAGE, axis=(1, 2))))


def test_bias_add_is_done_once() -> None:
    bias = Var(Name("bias"), tensor((8,), "f32"))
    once = simplified(op.nn.bias_add(IMAGE, bias))
    assert simplified(once) is once


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (op.reshape(op.reshape(IMAGE, (-1, 144)), (-1, 8, 18)), ["reshape"]),
        (op.squeeze(op.expand_dims(IMAGE, 1), 1), []),
        (op.nn.flatten(op.reshape(IMAGE, (-1, 144))), ["reshape"]),
        (op.transpose(op.transpose(IMAGE)), []),
        (op.transpose(op.expand_dims(MATRIX, 0), (1, 0, 2)), ["reshape"]),
        (op.flip(op.flip(IMAGE, (0, 1)), (1, 0)), []),
        (op.slice(op.concat((MATRIX, MATRIX), axis=0), (1,), (2,)), ["slice"]),
        (op.slice(op.concat((MATRIX, MATRIX), axis=0), (2,), (4,)), []),
        (op.slice(op.slice(MATRIX, (0, 1), (2, 3)), (1,), (2,)), ["slice"]),
        (op.concat((op.slice(MATRIX, (0,), (1,)), op.slice(MATRIX, (1,), (2,)))), []),
        (op.pad(MATRIX, ((0, 0), (0, 0))), []),
        (op.tile(MATRIX, (1, 1)), []),
        (op.take(MATRIX, const(1, "i64"), 0), ["reshape", "slice"]),
        (op.matmul(MATRIX, op.transpose(op.transpose(WEIGHT))), ["matmul"]),
        (op.nn.dense(MATRIX, op.transpose(WEIGHT)), ["matmul"]),
        (MATRIX * const(np.ones((1, 3)), "f32"), []),
        (MATRIX / const(4.0, "f32"), ["multiply"]),
        (MATRIX / const(3.0, "f32"), ["divide"]),
        (op.maximum(op.minimum(MATRIX, const(6.0, "f32")), const(0.0, "f32")), ["clip"]),
        (op.clip(op.clip(MATRIX, 0, 6), None, 5), ["clip"]),
        (op.cast(op.cast(COUNTS, "i64"), "i32"), []),
        (op.cast(op.cast(COUNTS, "f32"), "i32"), ["cast", "cast"]),
        (op.sum(op.sum(MATRIX, 0), 0), ["sum"]),
        (op.max(op.transpose(IMAGE, (0, 3, 1, 2)), (2, 3)), ["max"]),
        (op.where(op.logical_not(FLAGS), MATRIX, MATRIX), []),
        (op.logical_not(op.greater(COUNTS, 3)), ["less_equal"]),
        (op.logical_not(op.greater(MATRIX, 3)), ["logical_not", "less"]),
        (op.equal(COUNTS, COUNTS), ["broadcast_to"]),
        (COUNTS + (COUNTS - COUNTS), []),
        (MATRIX + op.zeros((2, 3)), []),
        (MATRIX * op.ones_like(MATRIX), []),
    ],
)  # fmt: skip
def test_what_is_left(given: Expr, expected: list[str]) -> None:
    done = simplified(given)
    assert operators(done) == expected
    assert type_of(done) is type_of(given)


def test_split_and_concat_undo_each_other() -> None:
    parts = op.split(IMAGE, 2, axis=1)
    assert simplified(op.concat((Project(parts, 0), Project(parts, 1)), axis=1)) is IMAGE
    joined = op.concat((MATRIX, MATRIX), axis=0)
    assert simplified(Project(op.split(joined, 2, axis=0), 1)) is MATRIX


def test_what_depends_on_a_symbolic_size_does_not_apply() -> None:
    row = op.slice(op.concat((IMAGE, IMAGE), axis=0), (0,), (1,))
    assert operators(simplified(row)) == ["slice", "concat"]
    assert operators(simplified(op.size(IMAGE))) == ["size"]
    assert operators(simplified(op.sum(IMAGE, 0))) == ["sum"]
    assert operators(simplified(op.slice(IMAGE, (0,), (2,)))) == ["slice"]


def test_an_exact_contract_leaves_out_what_moves_roundings() -> None:
    sums = (MATRIX + const(0.1, "f32")) + const(0.2, "f32")
    assert operators(simplified(sums)) == ["add"]
    assert operators(simplified(sums, exact)) == ["add", "add"]
    assert operators(simplified(MATRIX + const(0.0, "f32"), exact)) == ["add"]
    assert operators(simplified(COUNTS + const(0, "i32"), exact)) == []


def test_broadcasts_are_made_once_and_late() -> None:
    row = Var(Name("row"), tensor((3,), "f32"))
    wide = op.broadcast_to(row, (2, 3))
    assert operators(simplified(op.exp(wide) + MATRIX)) == ["add", "exp"]
    assert operators(simplified(op.tanh(op.exp(wide)))) == ["broadcast_to", "tanh", "exp"]


def test_choices_keep_the_shape_of_what_they_forget() -> None:
    scalar = Var(Name("scalar"), tensor((), "f32"))
    done = simplified(op.where(FLAGS, scalar, scalar))
    assert operators(done) == ["broadcast_to"]
    assert type_of(done) is tensor((2, 3), "f32")
    assert simplified(op.where(const(True, bool_), MATRIX, scalar)) is MATRIX
