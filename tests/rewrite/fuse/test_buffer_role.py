"""Buffer roles: tensors that a contraction reads in several roles, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var
from plica.ir.graph.module import Module, module
from plica.ir.loop.stages import Stages
from plica.ir.type.term import tensor
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule.default.contraction import contraction

FEW = settings(max_examples=12, deadline=None)


def of_one(shape: tuple[int, ...], body: Any) -> Function:
    x = Var(Name("x"), tensor(shape, "f32"))
    return Function((), (), (x,), None, body(x))


def fused(shape: tuple[int, ...], body: Any) -> tuple[Stages, tuple[int, ...]]:
    found = to_stages(of_one(shape, body))
    return found.stages, found.reads


def gram(x: Expr) -> Expr:
    return op.matmul(x, op.transpose(x, (1, 0)))


def smoothed(x: Expr) -> Expr:
    """A window's largest element beside the element itself: data and epilogue are one tensor."""
    return x + op.tanh(op.nn.max_pool(x, kernel=(3, 3), strides=1, padding=(1, 1)))


@pytest.mark.parametrize(("shape", "body"), [((6, 8), gram), ((1, 2, 5, 5), smoothed)])
def test_each_role_is_an_input_of_its_own(shape: tuple[int, ...], body: Any) -> None:
    found, reads = fused(shape, body)
    assert reads == (0, 0)
    assert len(set(found.inputs)) == 2
    assert contraction(found) is not None


def test_a_sum_of_squares_has_one_role() -> None:
    found, reads = fused((6, 8), lambda x: op.sum(x * x, axis=(1,)))
    assert (len(found.inputs), reads) == (1, (0,))


def whole(shape: tuple[int, ...], body: Any) -> Module:
    """A program in which what is read in several roles is made by a kernel before."""
    main = Var(Name("main"), None)
    return module({main: of_one(shape, lambda x: body(op.exp(x)))}, main)


def agrees(target: str, shape: tuple[int, ...], body: Any, seed: int) -> None:
    of = whole(shape, body)
    x = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    found = plica.compile(of, target=target, cache=False)(x)
    np.testing.assert_allclose(found, plica.interpret(of, x), rtol=1e-4, atol=1e-4)


@FEW
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 99))
def test_products_of_a_matrix_with_itself(rows: int, depth: int, seed: int) -> None:
    agrees("cpu", (rows, depth), gram, seed)


@FEW
@given(st.integers(1, 20), st.integers(3, 20), st.integers(0, 99))
def test_what_the_epilogue_reads_again_is_not_written_over(
    channels: int, size: int, seed: int
) -> None:
    agrees("cpu", (1, channels, size, size), smoothed, seed)


@pytest.mark.parametrize(("shape", "body"), [((33, 20), gram), ((1, 3, 9, 9), smoothed)])
@pytest.mark.parametrize("target", ["c", "cuda-emulator"])
def test_other_targets_agree(target: str, shape: tuple[int, ...], body: Any) -> None:
    agrees(target, shape, body, 0)
