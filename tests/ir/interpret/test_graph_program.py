"""Programs: dims in attributes, executors, and what is remembered."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from plica.core.diagnostic import EvaluationError
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Const
from plica.ir.graph.operator import Mismatch, names
from plica.ir.interpret.evaluate import prepare
from plica.ir.interpret.graph_program import FunctionCode, executor, program_of
from plica.ir.interpret.interpreter import interpret
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.tensor import Compute
from plica.ir.op import find
from plica.ir.prelude import list_value
from plica.ir.text.script import from_text
from plica.ir.type.dtype import bool_, f32, i32
from plica.ir.type.term import tensor

ZEROS = """
@plica.data(forall="A")
class List:
    Nil: ()
    Cons: (A, List[A])

@plica.function
def main(xs: List[Tensor[("n",), f32]]) -> Tensor[("n",), f32]:
    return op.zeros(("n",), dtype=f32)
"""


def test_a_dim_is_found_in_data() -> None:
    assert interpret(from_text(ZEROS), list_value([np.ones(3, np.float32)])).shape == (3,)


def test_a_dim_that_nothing_determines() -> None:
    with pytest.raises(EvaluationError) as caught:
        interpret(from_text(ZEROS), list_value([]))
    assert caught.value.code == "cannot-infer"
    assert caught.value.diagnostics[0].expected == "a tensor with the dim n"


def test_a_dim_that_turns_out_negative() -> None:
    text = """
@plica.function
def main(x: Tensor[("n",), f32]) -> Tensor[("n-2",), f32]:
    return op.zeros(("n-2",), dtype=f32)
"""
    assert interpret(from_text(text), np.zeros(3, np.float32)).shape == (1,)
    with pytest.raises(EvaluationError) as caught:
        interpret(from_text(text), np.zeros(1, np.float32))
    assert caught.value.code == "bad-attribute"


def test_a_module_is_prepared_once() -> None:
    of = from_text("@plica.function\ndef main(x: f32) -> f32:\n    return x + 1.0\n")
    assert program_of(of) is program_of(of)


def test_attributes_that_differ_only_in_the_sign_of_zero() -> None:
    text = """
@plica.function
def main(x: f32) -> tuple[f32, f32]:
    return (op.full((), 0.0, dtype=f32), op.full((), -0.0, dtype=f32))
"""
    plus, minus = interpret(from_text(text), 1.0)
    assert [np.signbit(plus), np.signbit(minus)] == [False, True]


def test_an_executor_is_a_function_or_the_code_of_a_decomposition() -> None:
    signature = ((2,), np.dtype(np.float32))
    add = executor(Apply("add", ()), signature * 2)
    assert callable(add)
    assert add([np.ones(2, np.float32)] * 2).tolist() == [2, 2]  # type: ignore[union-attr]  # an array
    softmax = find("nn.softmax")
    assert softmax is not None
    head = softmax(Const(f32, (2,), bytes(8)), axis=0)
    assert isinstance(head, Apply)
    assert isinstance(executor(Apply(head.op, (), head.attrs), signature), FunctionCode)


def test_shapes_that_an_operator_does_not_take() -> None:
    with pytest.raises(EvaluationError) as caught:
        executor(Apply("add", ()), ((2,), np.dtype(np.float32), (3,), np.dtype(np.float32)))
    assert caught.value.code == "shape-conflict"


def test_pointwise_operators_are_what_their_tensor_expressions_are() -> None:
    tried = set()
    for name in names():
        record = find(name)
        if record is None or record.compute is None or not record.pointwise:
            continue
        if any(each.required for each in record.attributes):
            continue
        given = {each.name: each.read(each.default) for each in record.attributes}
        shapes = [(2, 3), (3,), (2, 1)][: len(record.inputs)]
        for of in (f32, i32, bool_):
            types = [tensor(shape, str(of)) for shape in shapes]
            if isinstance(record.relation(given, *types), Mismatch):
                continue
            random = np.random.default_rng(0)
            arrays = [(random.standard_normal(shape) * 3).astype(of.numpy) for shape in shapes]
            buffers = [Buffer(Name("x", i), each.shape, of) for i, each in enumerate(types)]
            whole = record.compute(given, *buffers)
            assert isinstance(whole, Compute)
            signature = tuple([part for each in arrays for part in (each.shape, each.dtype)])
            run = executor(Apply(name, (), tuple(given.items())), signature)
            assert not isinstance(run, FunctionCode)
            assert_array_equal(run(arrays), prepare(whole)(arrays), name, strict=True)
            tried.add(name)
    assert {"exp", "add", "nn.relu", "logical_and"} <= tried
