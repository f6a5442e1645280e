"""Shape functions: derived, and true of what comes out."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from plica.core.diagnostic import EvaluationError, IllTyped
from plica.core.term import Term
from plica.ir.interpret.evaluate import evaluate
from plica.ir.loop.scalar import Scalar
from plica.ir.loop.tensor import Compute, buffer
from plica.ir.op import Mismatch, Operator, find, names
from plica.ir.op.shape_function import shape_function
from plica.ir.type.dim import dim, dim_var
from plica.ir.type.term import TensorType, tensor
from tests.ir.reference import CASES, attributes, run, types_of

EXAMPLES = max(1, min(settings().max_examples // 8, 100))


def record_of(name: str) -> Operator:
    found = find(name)
    assert found is not None
    return found


def symbolic(types: list[TensorType]) -> list[TensorType]:
    """The types with a symbol for each size above 1: equal sizes have one symbol."""

    def symbol(size: Scalar) -> Scalar:
        number = int(size.value)  # type: ignore[attr-defined]  # a literal
        return dim_var(f"n{number}") if number > 1 else dim(number)

    return [TensorType(tuple(symbol(size) for size in each.shape), each.dtype) for each in types]


@pytest.mark.parametrize("name", names())
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_symbolic_dims_agree_with_numbers(name: str, data: st.DataObject) -> None:
    """What a relation accepts with symbols it computes with them, for shape and for elements."""
    record, case = record_of(name), data.draw(CASES[name])
    attrs, types = attributes(record, case.attrs), symbolic(types_of(case.args))
    if isinstance(record.relation(attrs, *types), Mismatch):
        return  # it could not tell: a refusal, never a wrong answer
    shapes = [each.shape for each in case.args]
    sizes: dict[Term, int] = {dim_var(f"n{n}"): n for shape in shapes for n in shape if n > 1}
    wanted = run(record, case.args, case.attrs)
    assert shape_function(record, attrs, *types)(*shapes) == tuple(w.shape for w in wanted)
    if record.compute is None:
        return
    buffers = [buffer(f"x{i}", each.shape, each.dtype) for i, each in enumerate(types)]
    computed: Any = record.compute(attrs, *buffers)
    parts = (computed,) if isinstance(computed, Compute) else computed
    for part, result in zip(parts, wanted, strict=True):
        assert evaluate(part, case.args, sizes).tobytes() == result.tobytes()


def test_symbols_reach_the_result() -> None:
    n = dim_var("n")
    conv = record_of("nn.conv")
    attrs = attributes(conv, {"strides": 2, "padding": 1})
    x, w = tensor((1, 3, n, n), "f32"), tensor((8, 3, 3, 3), "f32")
    assert shape_function(conv, attrs, x, w)((1, 3, 9, 9), (8, 3, 3, 3)) == ((1, 8, 5, 5),)
    reshape = record_of("reshape")
    flat = shape_function(reshape, attributes(reshape, {"shape": (-1, 2)}), tensor(("n", 4), "f32"))
    assert flat((3, 4)) == ((6, 2),)


def test_a_dim_of_an_attribute_needs_its_size() -> None:
    full = record_of("full")
    attrs = attributes(full, {"shape": ("2*n",), "value": 1.0})
    shapes = shape_function(full, attrs)
    assert shapes(sizes={dim_var("n"): 3}) == ((6,),)
    with pytest.raises(EvaluationError) as caught:
        shapes()
    assert caught.value.code == "input-missing"


def test_wrong_shapes_are_refused() -> None:
    add = record_of("add")
    shapes = shape_function(add, {}, tensor(("n", 2), "f32"), tensor(("n", 2), "f32"))
    for wrong in (((3, 2), (4, 2)), ((3, 2), (3, 3)), ((3, 2), (3,))):
        with pytest.raises(EvaluationError) as caught:
            shapes(*wrong)
        assert caught.value.code == "input-shape"


def test_a_negative_size_is_refused() -> None:
    conv = record_of("nn.conv")
    x, w = tensor((1, 1, "n"), "f32"), tensor((1, 1, 5), "f32")
    with pytest.raises(EvaluationError) as caught:
        shape_function(conv, attributes(conv, {}), x, w)((1, 1, 2), (1, 1, 5))
    assert caught.value.code == "input-shape"


def test_ill_typed_arguments_have_no_shape_function() -> None:
    with pytest.raises(IllTyped) as caught:
        shape_function(record_of("matmul"), {}, tensor((2, 3), "f32"), tensor((2, 3), "f32"))
    assert caught.value.code == "shape-conflict"
