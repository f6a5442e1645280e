"""Chains: softmax between two products is one function where somebody wants it so."""

from __future__ import annotations

import pytest

from plica.codegen.cuda.passes import TILED
from plica.ir.graph.expression import Call, Function, attr
from plica.ir.graph.module import Module
from plica.ir.text.script import from_text
from plica.ir.type.infer import infer
from plica.rewrite.fuse import FusionLimits, defuse, fuse
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.walk import expressions
from plica.rewrite.pack import rewrite
from plica.rewrite.packs.view import VIEWS

HEAD = """
import plica
from plica import op
from plica.op import nn
from plica.script import Tensor, f16, f32

@plica.function
"""

ATTENTION = (
    HEAD
    + """
def main(x: Tensor[(2, 40, 96), f16]):
    q = op.transpose(op.reshape(op.slice(x, (0,), (32,), None, (2,)), (2, 40, 2, 16)), (0, 2, 1, 3))
    k = op.reshape(op.slice(x, (32,), (64,), None, (2,)), (2, 40, 2, 16))
    k = op.transpose(k, (0, 2, 3, 1))
    v = op.reshape(op.slice(x, (64,), (96,), None, (2,)), (2, 40, 2, 16))
    v = op.transpose(v, (0, 2, 1, 3))
    s = op.matmul(op.cast(q, "f32"), op.cast(k, "f32")) * 0.25
    e = op.exp(s - op.max(s, axis=(3,), keepdims=True))
    w = e / op.sum(e, axis=(3,), keepdims=True)
    return op.cast(op.matmul(w, op.cast(v, "f32")), "f16")
"""
)


def functions(of: Module) -> list[Function]:
    """Those that are called, each a kernel."""
    body = of.main_function().body
    return [each.callee for each in expressions(body)
            if isinstance(each, Call) and isinstance(each.callee, Function)]  # fmt: skip


def viewed(text: str) -> Module:
    module, _ = rewrite(to_dataflow(infer(from_text(text))), VIEWS)
    assert isinstance(module, Module)
    return infer(module)


def test_attention_is_one_function_that_reads_its_heads_where_they_lie() -> None:
    (whole,) = functions(fuse(viewed(ATTENTION), TILED))
    assert len(attr(whole, "stages")) == 6
    assert len(whole.params) == 1


def test_it_can_be_undone() -> None:
    of = viewed(ATTENTION)
    assert defuse(fuse(of, TILED)) is of


def test_a_chain_that_nobody_wants_is_none() -> None:
    apart = functions(fuse(viewed(ATTENTION), FusionLimits(tiles=True, chains=lambda _: False)))
    assert len(apart) > 2


@pytest.mark.parametrize("more", ["s", "w"])
def test_what_others_read_is_kept(more: str) -> None:
    text = ATTENTION.replace('"f32")), "f16")', f'"f32")), "f16"), {more}')
    assert len(functions(fuse(viewed(text), TILED))) > 1


def test_keys_that_are_the_queries_are_widened_before() -> None:
    """One element of them is a query's and another a key's, so no stage widens them as it reads."""
    text = (
        HEAD
        + """
def main(x: Tensor[(2, 3, 40, 16), f16]):
    x = op.cast(x, "f32")
    s = op.matmul(x, op.transpose(x, (0, 1, 3, 2))) * 0.25
    return op.cast(op.matmul(nn.softmax(s), x), "f16")
"""
    )
    of = viewed(text)
    assert defuse(fuse(of, TILED)) is of
