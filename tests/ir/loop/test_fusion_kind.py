"""Fusion kinds: derived from the tensor expression, and true of it."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from plica.ir.loop.fusion_kind import kind, kind_of
from plica.ir.loop.tensor import buffer, compute, reduce
from plica.ir.op import find
from plica.ir.type.dtype import f32
from plica.ir.type.term import tensor
from tests.ir.reference import CASES, ELEMENTWISE, array, attributes, close, run, types_of

# Types in shapes that show the general case: no axis of size 1.
EXPECTED: dict[str, tuple[dict[str, Any], tuple[tuple[int, ...], ...]]] = {
    "elementwise exp": ({}, ((2, 3),)),
    "elementwise add": ({}, ((2, 3), (2, 3))),
    "elementwise where": ({}, ((2, 3), (2, 3), (2, 3))),
    "elementwise zeros": ({"shape": (2, 3)}, ()),
    "elementwise nn.relu": ({}, ((2, 3),)),
    "broadcast add": ({}, ((2, 3), (3,))),
    "broadcast multiply": ({}, ((2, 1), (2, 3))),
    "broadcast expand_dims": ({"axis": 0}, ((2, 3),)),
    "broadcast broadcast_to": ({"shape": (4, 2, 3)}, ((2, 3),)),
    "broadcast nn.prelu": ({}, ((2, 3, 4), (3,))),
    "injective transpose": ({}, ((2, 3),)),
    "injective reshape": ({"shape": (6,)}, ((2, 3),)),
    "injective concat": ({}, ((2, 3), (2, 3))),
    "injective split": ({"indices_or_sections": 2}, ((2, 3),)),
    "injective slice": ({"starts": 1, "stops": 2}, ((2, 3),)),
    "injective pad": ({"pad_width": 1}, ((2, 3),)),
    "injective flip": ({}, ((2, 3),)),
    "injective diagonal": ({}, ((3, 3),)),
    "reduction sum": ({"axis": 1}, ((2, 3),)),
    "reduction max": ({"keepdims": True}, ((2, 3),)),
    "reduction einsum": ({"equation": "ij,ij->i"}, ((2, 3), (2, 3))),
    "complex-out-fusable matmul": ({}, ((2, 3), (3, 4))),
    "complex-out-fusable nn.dense": ({}, ((2, 3), (4, 3))),
    "complex-out-fusable nn.conv": ({}, ((1, 2, 5, 5), (3, 2, 3, 3))),
    "complex-out-fusable nn.max_pool": ({"kernel": 2}, ((1, 2, 6, 6),)),
    "complex-out-fusable cumsum": ({"axis": 0}, ((2, 3),)),
    "opaque nn.softmax": ({}, ((2, 3),)),
    "opaque nn.layer_norm": ({}, ((2, 3), (3,), (3,))),
}


@pytest.mark.parametrize("expected", EXPECTED)
def test_known_operators(expected: str) -> None:
    wanted, name = expected.split()
    given_, shapes = EXPECTED[expected]
    record = find(name)
    assert record is not None
    dtypes = ["bool", "f32", "f32"] if name == "where" else ["f32"] * len(shapes)
    types = [tensor(shape, of) for shape, of in zip(shapes, dtypes, strict=True)]
    assert kind(record, attributes(record, given_), *types) == wanted


def test_two_reductions_are_opaque() -> None:
    x = buffer("x", (3,), f32)
    body = compute(
        (x,), (), lambda: reduce("sum", (3,), lambda k: x[k]) / reduce("max", (3,), lambda k: x[k])
    )
    assert kind_of(body) == "opaque"


@pytest.mark.parametrize("name", ELEMENTWISE)
@settings(max_examples=2)
@given(data=st.data())
def test_elementwise_operators_commute_with_any_order(name: str, data: st.DataObject) -> None:
    """Moving elements about before or after makes no difference."""
    record = find(name)
    assert record is not None
    case = data.draw(CASES[name])
    dtype = types_of(case.args)[0].dtype
    args = [data.draw(array(dtype, (5,), wild=True)) for _ in case.args]
    order = data.draw(st.permutations(range(5)))
    assert kind(record, {}, *types_of(args)) == "elementwise"
    (before,) = run(record, [each[order] for each in args], {})
    (after,) = run(record, args, {})
    close(before, after[order])
