"""What the tests of the passes share: laws every pass keeps, and programs of awkward shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import settings, strategies as st

from plica.core.diagnostic import EvaluationError
from plica.core.name import Name
from plica.ir.graph.check import check
from plica.ir.graph.expression import (
    Call,
    Const,
    Constructor,
    Expr,
    Function,
    If,
    Let,
    Tuple,
    Var,
    const,
)
from plica.ir.graph.module import Module, module
from plica.ir.interpret.interpreter import interpret
from plica.ir.interpret.value import Closure, DataValue, NativeFunction
from plica.ir.text.script import from_text
from plica.ir.type.infer import infer
from plica.ir.type.term import FuncType, TupleType, Type, tensor
from tests.same_value import same_value
from tests.strategies import EXTERNS, inputs_for, modules

HEADER = """
from __future__ import annotations
import plica
from plica import op
from plica.op import nn
from plica.script import Fn, Tensor, const, f32, i64
"""
WHOLE = settings(max_examples=max(1, settings().max_examples * 2 // 5))
"""For laws on whole generated programs, which cost more than most examples do."""
VECTOR = tensor((2,), "f32")
X = Var(Name("x"), VECTOR)


def text(source: str) -> Module:
    """A module from its text without the imports."""
    return from_text(HEADER + source)


def keeps_laws(
    run: Callable[[Module], Module], data: st.DataObject, *forms: Callable[[Module], bool]
) -> Module:
    """Draw a module, run a pass, and hold it against the laws of all passes; the result."""
    before = infer(data.draw(modules(externs=data.draw(st.booleans()))))
    after = run(before)
    assert not check(after)
    assert infer(after) is after
    assert run(before) is after
    for form in forms:
        assert form(after)
    means_the_same(before, after, data.draw(inputs_for(before)))
    return after


def means_the_same(before: Module, after: Module, args: tuple[Any, ...]) -> None:
    """Whether two modules agree on some inputs; where the first fails the second may not."""
    try:
        expected = interpret(before, *args, externs=EXTERNS)
    except EvaluationError:
        return
    assert agree(expected, interpret(after, *args, externs=EXTERNS))


def agree(a: Any, b: Any) -> bool:
    """Whether two values are equal as far as they can be seen: functions cannot be compared."""
    stack = [(a, b)]
    while stack:
        a, b = stack.pop()
        if isinstance(a, Closure | NativeFunction | Constructor):
            continue
        if isinstance(a, DataValue) and isinstance(b, DataValue):
            if a.index != b.index or len(a.fields) != len(b.fields):
                return False
            stack.extend(zip(a.fields, b.fields, strict=True))
        elif isinstance(a, tuple):
            stack.extend(zip(a, b, strict=True))
        elif not same_value(a, b):
            return False
    return True


def program(body: Expr, params: tuple[Var, ...] = (X,), ret: Type = VECTOR) -> Module:
    """A module of one function."""
    types = tuple(each.type for each in params if each.type is not None)
    main = Var(Name("main"), FuncType((), (), types, ret))
    return infer(module({main: Function((), (), params, ret, body)}, main))


def let_chain(count: int) -> Module:
    """`a0 = x + x; a1 = a0 + x; …`."""
    names = [Var(Name("a", i), VECTOR) for i in range(count)]
    body: Expr = names[-1]
    for i in reversed(range(count)):
        body = Let(names[i], (names[i - 1] if i else X) + X, body)
    return program(body)


def wide_lets(count: int) -> Module:
    """A chain of lets, all of which are a part of the result."""
    names = [Var(Name("a", i), VECTOR) for i in range(count)]
    body: Expr = Tuple(tuple(names))
    for i in reversed(range(count)):
        body = Let(names[i], (names[i - 1] if i else X) + X, body)
    return program(body, ret=TupleType((VECTOR,) * count))


def doubling(count: int) -> Module:
    """`x + x` of `x + x` of …: few nodes and many ways through them."""
    body: Expr = X
    for _ in range(count):
        body = body + body
    return program(body)


def if_chain(count: int) -> Module:
    """Choices inside choices, whose branches share what is below."""
    condition = Var(Name("c"), tensor((), "bool"))
    body: Expr = X
    for _ in range(count):
        body = If(condition, body + X, body)
    return program(body, (condition, X))


def function_chain(count: int) -> Module:
    """Local functions, each of which calls the one before and captures x."""
    names = [Var(Name("f", i), FuncType((), (), (VECTOR,), VECTOR)) for i in range(count)]
    y = Var(Name("y"), VECTOR)
    body: Expr = Call(names[-1], (X,))
    for i in reversed(range(count)):
        inner = (Call(names[i - 1], (y,)) if i else y) + X
        body = Let(names[i], Function((), (), (y,), VECTOR, inner), body)
    return program(body)


def vector(*numbers: float) -> np.ndarray[Any, Any]:
    """A vector of f32."""
    return np.array(numbers, np.float32)


def scalar(value: float, dtype: str = "f32") -> Const:
    """A constant of rank 0."""
    return const(value, dtype)
