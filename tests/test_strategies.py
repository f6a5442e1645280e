"""The generators: they cover what they promise, or the laws tested with them mean little."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

from plica.core.binding import free_vars
from plica.core.fold import post_order
from plica.ir.generate import block_kernels
from plica.ir.graph.expression import (
    EXPRESSIONS,
    Apply,
    Call,
    Const,
    Function,
    Let,
    LetDim,
    Literal,
    Match,
    Pattern,
    PConstructor,
    PTuple,
    Var,
)
from plica.ir.graph.module import DataDef, Extern, Module
from plica.ir.loop.scalar import BINARY, COMPARISON, Pair, Scalar, ScalarVar
from plica.ir.loop.statement import Kernel, Stmt
from plica.ir.type.dtype import COMPUTED
from plica.ir.type.term import FuncType, TensorType, static_shape
from tests.strategies import (
    EXTERNS,
    MISTAKES,
    computes,
    ill_typed,
    inputs_for,
    kernels,
    modules,
    static_modules,
    surface,
)

MANY = 120


def collect(strategy: st.SearchStrategy[Any], count: int = MANY) -> list[Any]:
    """The same examples every time."""
    found: list[Any] = []

    @seed(0)
    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(example: Any) -> None:
        found.append(example)

    run()
    return found


def features(whole: Module) -> set[str]:
    """What a module has in it, by the names used below."""
    found: set[str] = set()
    defined = set(whole.names)
    for node in post_order(whole):
        found.add(type(node).__name__)
        match node:
            case Call(callee, _, types):
                found |= {"type arguments"} if types else set()
                if isinstance(callee, Var):
                    found.add("call of a definition" if callee in defined else "call of a closure")
                    kind = callee.type
                    params = kind.params if isinstance(kind, FuncType) else ()
                    if isinstance(kind, FuncType) and kind.dims:
                        found.add("call with dims")
                    if any(isinstance(each, FuncType) for each in params):
                        found.add("higher order")
            case Let(var, Function() as value, _):
                found |= {"recursive let"} if var in free_vars(value) else set()
            case Function(_, types, _, _, _, attrs):
                found |= {"polymorphic function"} if types else set()
                found |= {"attributes"} if attrs else set()
                free = free_vars(node) - defined
                found |= {"capture"} if any(isinstance(each, Var) for each in free) else set()
            case Match(_, _, False):
                found.add("partial match")
            case PConstructor(_, items) | PTuple(items):
                if any(isinstance(item, PConstructor | PTuple) for item in items):
                    found.add("nested pattern")
            case DataDef(types, _):
                found |= {"polymorphic data"} if types else set()
            case Const(dtype, shape, _):
                found.add(f"constant of {dtype}")
                found |= {"empty constant"} if 0 in shape else set()
            case _:
                pass
    names = [each.name for each in post_order(whole) if isinstance(each, Var)]
    hints = Counter(name.hint for name in set(names))
    found |= {"namesakes"} if max(hints.values(), default=0) > 1 else set()
    for name, function in whole.functions():
        found |= {"recursion"} if name in free_vars(function) else set()
    return found


WANTED = {
    *(each.__name__ for each in get_args(EXPRESSIONS) if each not in (Literal, LetDim)),
    *(each.__name__ for each in get_args(Pattern)),
    "Extern", "ScalarVar", "TypeVar", "TupleType", "type arguments", "call of a definition",
    "call of a closure", "call with dims", "higher order", "recursive let", "polymorphic function",
    "attributes", "capture", "partial match", "nested pattern", "polymorphic data", "namesakes",
    "recursion", "empty constant",
}  # fmt: skip


@pytest.mark.slow
def test_modules_cover_the_language() -> None:
    seen = Counter(
        each for whole in collect(modules(externs=True), 130) for each in features(whole)
    )
    assert {each for each in WANTED if not seen[each]} == set()
    assert sum(bool(seen[f"constant of {each}"]) for each in COMPUTED) > len(COMPUTED) / 2


@given(modules(externs=True))
def test_modules_are_elaborated(whole: Module) -> None:
    for node in post_order(whole):
        assert not isinstance(node, Literal)
        assert not isinstance(node, Var) or node.type is not None
        assert not isinstance(node, Function) or node.ret is not None
        assert not isinstance(node, Extern) or node.symbol in EXTERNS


@given(st.data())
def test_inputs_fit_the_parameters(data: st.DataObject) -> None:
    whole = data.draw(modules())
    function = whole.main_function()
    for param, value in zip(function.params, data.draw(inputs_for(whole)), strict=True):
        if isinstance(param.type, TensorType):
            assert isinstance(value, np.ndarray)
            assert value.dtype == param.type.dtype.numpy
            assert value.ndim == len(param.type.shape)


@given(static_modules())
def test_static_modules_are_static_and_first_order(whole: Module) -> None:
    for node in post_order(whole):
        assert not isinstance(node, TensorType) or static_shape(node) is not None
        assert not isinstance(node, ScalarVar | DataDef | Match)
    for _, function in whole.functions():
        assert not any(isinstance(each.type, FuncType) for each in function.params)


def test_static_modules_use_much_of_the_registry() -> None:
    nodes = {node for whole in collect(static_modules()) for node in post_order(whole)}
    assert len({node.op for node in nodes if isinstance(node, Apply)}) > 30


def test_surfaces_leave_things_out() -> None:
    erased = collect(modules().flatmap(surface), 20)
    nodes = {node for whole in erased for node in post_order(whole)}
    assert any(isinstance(node, Literal) for node in nodes)
    assert any(isinstance(node, Var) and node.type is None for node in nodes)
    assert any(isinstance(node, Function) and node.ret is None for node in nodes)


@pytest.mark.parametrize("code", MISTAKES)
def test_every_mistake_can_be_asked_for(code: str) -> None:
    assert {found for _, found in collect(ill_typed((code,)), 3)} == {code}


@pytest.mark.slow
def test_scalars_and_statements_are_all_covered() -> None:
    loops: list[Kernel] = [*collect(kernels(), 150), *collect(block_kernels(), 200)]
    nodes = {node for each in (*loops, *collect(computes(), 200)) for node in post_order(each)}
    seen = {type(node) for node in nodes}
    assert seen >= {*BINARY, *COMPARISON, *get_args(Stmt)}
    every = {*Scalar.__subclasses__(), *Pair.__subclasses__()} - {Pair}
    own = {each for each in every if "__attrs_attrs__" in each.__dict__}
    assert seen >= {each for each in own if each.__module__ == "plica.ir.loop.scalar"}
