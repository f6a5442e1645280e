"""Decompose: composite operators are written out, and the meaning stays."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.lower.decompose import decompose, instance, is_primitive
from plica.codegen.lower.graph_flattening import flatten_graph, is_resolved
from plica.core.name import Name
from plica.ir.graph.expression import Function, If, Tuple, Var
from plica.ir.graph.module import Module, module
from plica.ir.interpret.interpreter import interpret
from plica.ir.op import find, names
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from tests.codegen.native import assert_close
from tests.conftest import Golden

X = Var(Name("x"), tensor((2, 3), "f32"))
C = Var(Name("c"), tensor((), "bool"))


def softmax_module() -> Module:
    record = find("nn.softmax")
    assert record is not None
    soft = record(X, axis=-1)
    main = Var(Name("main"), None)
    body = Tuple((If(C, soft, X), soft))
    return flatten_graph(infer(module({main: Function((), (), (X, C), None, body)}, main)))


def test_text(golden: Golden) -> None:
    golden(str(decompose(softmax_module())), "decompose")


@pytest.mark.parametrize("choice", [True, False])
def test_meaning_is_kept(choice: bool) -> None:
    before = softmax_module()
    after = decompose(before)
    assert not is_primitive(before)
    assert is_primitive(after)
    assert is_resolved(after)
    assert decompose(after) is after
    values = np.array([[1, 2, 3], [0, -1, 7]], np.float32)
    found, expected = interpret(after, values, choice), interpret(before, values, choice)
    assert isinstance(found, tuple)
    assert isinstance(expected, tuple)
    for ours, meant in zip(found, expected, strict=True):
        assert isinstance(ours, np.ndarray)
        assert isinstance(meant, np.ndarray)
        assert_close(ours, meant)


def test_instances_are_made_once_per_type() -> None:
    record = find("nn.softmax")
    assert record is not None
    _, attributes = record.bind((X,), {})
    first = instance("nn.softmax", attributes, (tensor((2, 3), "f32"),))
    assert instance("nn.softmax", attributes, (tensor((2, 3), "f32"),)) is first
    assert instance("nn.softmax", attributes, (tensor((3, 3), "f32"),)) is not first


def test_every_operator_is_one_or_the_other() -> None:
    records = [find(name) for name in names()]
    assert all((each.compute is None) != (each.decompose is None) for each in records if each)
