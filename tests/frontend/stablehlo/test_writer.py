"""Every operator of the registry: as StableHLO, XLA and Plica's reader make of it what it means."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

pytest.importorskip("jax")

import plica
from plica.frontend.stablehlo.fuzz.run import run
from plica.frontend.stablehlo.literal import ELEMENTS
from plica.frontend.whole_array.program import flat_types
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.op import names
from plica.ir.text.script import from_text
from plica.ir.type.dtype import DType
from plica.ir.type.infer import infer, type_of
from tests.codegen.native import assert_close
from tests.codegen.test_operator import module_of
from tests.conftest import PROFILE
from tests.deep import spread
from tests.ir.reference.case import CASES

EXAMPLES = {"ci": 1, "dev": 5, "deep": 50}[PROFILE]


def means(of: Module, *arrays: Any) -> None:
    """The text means what the module means, to XLA and read back."""
    expected: Any = interpret(of, *arrays)
    text = plica.to_stablehlo(of)
    for found in (run(text, *arrays), interpret(plica.from_stablehlo(text), *arrays)):
        results = found if isinstance(found, tuple | list) else [found]
        wanted = expected if isinstance(expected, tuple) else [expected]
        for ours, meant in zip(results, wanted, strict=True):
            assert_close(np.asarray(ours), meant, arrays)


@pytest.mark.parametrize("name", spread(names(), len(names()) // 12))
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=st.data())
def test_an_operator_means_the_same(name: str, data: st.DataObject) -> None:
    case = data.draw(CASES[name])
    of = infer(module_of(name, case))
    if all(dtype in ELEMENTS for dtype in element_types(of)):
        means(of, *case.args)
    else:
        with pytest.raises(plica.UnsupportedError, match="no element type"):
            plica.to_stablehlo(of)


def element_types(of: Module) -> list[DType]:
    """The element types of what the main function takes and gives."""
    whole = of.main_function()
    types = [*[each.type for each in whole.params], type_of(whole.body)]
    return [dtype for each in types for _, dtype in flat_types(each)]


HEAD = """# plica 1
from __future__ import annotations

import plica
from plica import op
from plica.op import nn
from plica.script import Fn, Tensor, bool_, f32, i64
"""


def script(body: str) -> Module:
    return from_text(HEAD + body)


def test_layers_have_operations_of_their_own() -> None:
    of = script("""
@plica.function
def main(x: Tensor[(1, 2, 8, 8), f32], w: Tensor[(4, 1, 3, 3), f32]) -> Tensor[(1, 4, 4, 4), f32]:
    return nn.relu(nn.conv(x, w, strides=2, padding=((1, 1), (0, 2)), groups=2))
""")
    text = plica.to_stablehlo(of)
    assert "feature_group_count = 2" in text
    assert "gather" not in text
    draw = np.random.default_rng(0)
    x, w = (draw.standard_normal(s).astype(np.float32) for s in ((1, 2, 8, 8), (4, 1, 3, 3)))
    means(of, x, w)


def test_products_are_dots() -> None:
    of = script("""
@plica.function
def main(q: Tensor[(2, 3, 4, 8), f32], k: Tensor[(2, 3, 5, 8), f32]) -> Tensor[(2, 3, 4, 5), f32]:
    return op.einsum((q, k), equation="bhqd,bhkd->bhqk")
""")
    text = plica.to_stablehlo(of)
    assert "batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]" in text
    assert "stablehlo.reduce" not in text


def test_open_sizes_are_given() -> None:
    of = script("""
@plica.function
def main(x: Tensor[("n", 3), f32]) -> Tensor[("n",), f32]:
    return op.sum(x, axis=(1,))
""")
    assert "tensor<5x3xf32>" in plica.to_stablehlo(of, sizes={"n": 5})
    with pytest.raises(plica.UnsupportedError, match="sizes that are known"):
        plica.to_stablehlo(of)


def test_a_loop_and_a_branch_are_operations() -> None:
    of = script("""
@plica.function
def loop(x: Tensor[(3,), f32], n: Tensor[(), i64]) -> Tensor[(3,), f32]:
    if n < 3:
        return loop(x * 2.0, n + 1)
    return x + 1.0


@plica.function
def main(x: Tensor[(3,), f32], c: Tensor[(), bool_]) -> Tensor[(3,), f32]:
    if c:
        y = loop(x, 0)
    else:
        y = -x
    return y
""")
    text = plica.to_stablehlo(of)
    assert '"stablehlo.while"' in text
    assert '"stablehlo.if"' in text
    x = np.array([1, 2, 3], np.float32)
    for c in (True, False):
        means(of, x, np.bool_(c))


REFUSED = {
    "recursion that is no loop": ("""
@plica.function
def f(n: Tensor[(), i64]) -> Tensor[(), i64]:
    if n < 1:
        return n
    return f(n - 1) + f(n - 2)


@plica.function
def main(n: Tensor[(), i64]) -> Tensor[(), i64]:
    return f(n)
""", "where it is a loop"),
    "data types": ("""
@plica.data
class Maybe:
    Nothing: ()
    Just: (Tensor[(), i64],)


@plica.function
def main(n: Tensor[(), i64]) -> Tensor[(), i64]:
    match Just(n):
        case Just(m):
            return m
        case Nothing():
            return n
""", "of the graph language is not written"),
    "an extern": ("""
thrice = plica.extern("thrice", Fn[(Tensor[(3,), f32],), Tensor[(3,), f32]])


@plica.function
def main(x: Tensor[(3,), f32]) -> Tensor[(3,), f32]:
    return thrice(x)
""", "no function of the graph language"),
    "elements of four bits": ("""
from plica.script import i4
@plica.function
def main(x: Tensor[(3,), i4]) -> Tensor[(3,), i4]:
    return op.flip(x, axis=(0,))
""", "no element type for i4"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_written_is_refused(name: str) -> None:
    text, message = REFUSED[name]
    with pytest.raises(plica.UnsupportedError, match=message):
        plica.to_stablehlo(script(text))
