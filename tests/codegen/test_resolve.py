"""Resolve: calls, closures, tuples and lets disappear, and the meaning stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import plica.codegen.lower.graph_flattening
from plica.codegen.lower.graph_flattening import flatten_graph, is_resolved
from plica.codegen.lower.shared_passes import GROUP
from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.driver import run
from plica.ir.graph.expression import Apply, Call, Expr, Function, If, Let, Tuple, Var
from plica.ir.graph.module import Module, module
from plica.ir.interpret.interpreter import interpret
from plica.ir.text.script import from_text
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.runtime.error import UnsupportedError
from tests.codegen.native import assert_close
from tests.conftest import Golden
from tests.strategies import inputs_for, static_modules

HEAD = """
from __future__ import annotations
import plica
from plica import op
from plica.op import nn
from plica.script import Fn, Tensor, bool, f32
"""


def leaves(value: Any) -> list[Any]:
    return (
        [leaf for item in value for leaf in leaves(item)] if isinstance(value, tuple) else [value]
    )


@given(st.data())
def test_meaning_is_kept_and_every_pass_is_sound(data: st.DataObject) -> None:
    of = infer(data.draw(static_modules()))
    args = data.draw(inputs_for(of))
    resolved = flatten_graph(of)
    assert is_resolved(resolved)
    assert flatten_graph(resolved) is resolved
    for ours, meant in zip(
        leaves(interpret(resolved, *args)), leaves(interpret(of, *args)), strict=True
    ):
        assert_close(ours, meant)
    run(GROUP, of, debug=True)


def test_text(golden: Golden) -> None:
    source = (
        HEAD
        + """
@plica.function
def twice(f: Fn[(Tensor[("n",), f32],), Tensor[("n",), f32]], x: Tensor[("n",), f32]):
    return f(f(x))

@plica.function
def swapped(pair: tuple[Tensor[(4,), f32], Tensor[(4,), f32]]):
    match pair:
        case (a, b): return b, a

@plica.function
def flat(x: Tensor[("n", "m"), f32]):
    return op.reshape(x, shape=("n*m",))

@plica.function
def main(x: Tensor[(2, 2), f32], c: Tensor[(), bool]):
    y = flat(x)
    scale = op.sum(y)
    z = twice(lambda v: v * scale, y)
    pair = swapped((z, op.reshape(x, shape=(4,))))
    if c:
        chosen = pair
    else:
        chosen = (pair[0] + 1.0, pair[1])
    return chosen, pair[1]
"""
    )
    golden(str(flatten_graph(from_text(source))), "resolve")


def test_a_function_chosen_at_run_time_is_refused() -> None:
    source = (
        HEAD
        + """
@plica.function
def main(x: Tensor[(2,), f32], c: Tensor[(), bool]):
    f = (lambda v: v + x) if c else (lambda v: v * x)
    return f(x)
"""
    )
    with pytest.raises(UnsupportedError, match="A function is chosen by an `if` at run time"):
        flatten_graph(from_text(source))


def chain(length: int) -> Module:
    x = Var(Name("x"), tensor((2,), "f32"))
    lets = [Var(Name("y", i), None) for i in range(length)]
    body: Expr = lets[-1]
    for i in reversed(range(length)):
        body = Let(lets[i], (lets[i - 1] if i else x) + 1.0, body)
    main = Var(Name("main"), None)
    return infer(module({main: Function((), (), (x,), None, body)}, main))


def test_a_let_chain_4000_deep() -> None:
    resolved = flatten_graph(chain(4_000))
    applied = [node for node in post_order(resolved.main_function()) if isinstance(node, Apply)]
    assert len(applied) == 4_000


def test_a_doubling_chain_through_calls() -> None:
    """2^60 calls of the same functions with the same arguments are sixty."""
    x = Var(Name("x"), tensor((2,), "f32"))
    main = Var(Name("main"), None)
    functions: dict[Any, Any] = {}
    last: Var | None = None
    for level in range(60):
        name = Var(Name("f", level), None)
        body: Expr = x + 1.0 if last is None else Call(last, (x,)) + Call(last, (x,))
        functions[name] = Function((), (), (x,), None, body)
        last = name
    assert last is not None
    whole = module({**functions, main: Function((), (), (x,), None, Call(last, (x,)))}, main)
    resolved = flatten_graph(infer(whole))
    assert sum(isinstance(node, Apply) for node in post_order(resolved.main_function())) == 60
    found = interpret(resolved, np.zeros(2, np.float32))
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [2.0**59] * 2


def test_a_program_that_grows_too_big_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plica.codegen.lower.graph_flattening, "LIMIT", 1_000)
    x = Var(Name("x"), tensor((2,), "f32"))
    main = Var(Name("main"), None)
    functions: dict[Any, Any] = {}
    last: Var | None = None
    for level in range(30):
        name = Var(Name("f", level), None)
        body: Expr = x + 1.0 if last is None else Call(last, (Call(last, (x,)),))
        functions[name] = Function((), (), (x,), None, body)
        last = name
    assert last is not None
    whole = module({**functions, main: Function((), (), (x,), None, Call(last, (x,)))}, main)
    with pytest.raises(UnsupportedError, match="too big once every call is written out"):
        flatten_graph(infer(whole))


def test_what_both_branches_agree_on_is_not_chosen() -> None:
    x, c = Var(Name("x"), tensor((2,), "f32")), Var(Name("c"), tensor((), "bool"))
    body = If(c, Tuple((x, x + 1.0)), Tuple((x, x + 2.0)))
    main = Var(Name("main"), None)
    whole = infer(module({main: Function((), (), (x, c), None, body)}, main))
    resolved = flatten_graph(whole).main_function().body
    assert isinstance(resolved, Tuple)
    assert resolved.items[0] is x
    assert isinstance(resolved.items[1], If)


def doubling(levels: int, again: str) -> str:
    text = "import plica\n@plica.function\ndef g0(x: f32):\n    return x + 1.0\n"
    for n in range(levels):
        text += f"@plica.function\ndef g{n + 1}(x: f32):\n    return {again.format(f=f'g{n}')}\n"
    return f"{text}@plica.function\ndef main(x: f32):\n    return g{levels}(x)\n"


def test_calls_that_double_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plica.codegen.lower.graph_flattening, "LIMIT", 10**9)  # it is not come to
    with pytest.raises(UnsupportedError, match="too big once every call") as refused:
        plica.compile(plica.from_text(doubling(40, "{f}({f}(x))")), cache=False)
    assert refused.value.diagnostics[0].found == f"{2**41} calls"


def test_calls_that_are_the_same_again_are_made_once() -> None:
    run = plica.compile(plica.from_text(doubling(40, "{f}(x) + {f}(x)")), cache=False)
    assert run(0.0) == 2.0**40


def test_a_function_in_a_tuple_is_an_argument_of_a_function_with_dims() -> None:
    """Sizes are read off tensors; a tuple may hold functions beside them."""
    source = f"""{HEAD}
@plica.function(forall="A")
def first(x: Tensor[("n", 2), f32], y: A) -> Tensor[("n", 2), f32]:
    return op.exp(x)

@plica.function
def same(z: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return z

@plica.function
def main(x: Tensor[(3, 2), f32]) -> Tensor[(3, 2), f32]:
    return first(x, (x, same))
"""
    resolved = flatten_graph(infer(from_text(source)))
    body, (x,) = resolved.main_function().body, resolved.main_function().params
    assert isinstance(body, Apply)
    assert (body.op, body.args) == ("exp", (x,))
