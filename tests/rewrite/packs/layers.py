"""What the tests of packs about layers share."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from plica.core.fold import post_order
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.graph.expression import Apply, Expr, Function, Var
from plica.ir.graph.module import Module, module
from plica.ir.interpret.interpreter import interpret
from plica.ir.op import find
from plica.ir.type.infer import infer


def operators(term: Term) -> Counter[str]:
    """How many distinct nodes each operator has in a term."""
    return Counter(node.op for node in post_order(term) if isinstance(node, Apply))


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    """Some numbers of both signs."""
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


def agree(before: Module, after: Module, *inputs: Any, rel: float = 1e-5) -> None:
    """Fail where two modules differ by more than `rel` in max-norm."""
    left, right = interpret(before, *inputs), interpret(after, *inputs)
    pairs = zip(left, right, strict=True) if isinstance(left, tuple) else [(left, right)]
    for a, b in pairs:
        assert np.abs(a - b).max(initial=0) <= rel * np.abs(a).max(initial=0)


def call(name: str, *args: Any, **attributes: Any) -> Expr:
    """An operator by its name."""
    record = find(name)
    assert record is not None
    return record(*args, **attributes)


def of(body: Expr, *params: Var) -> Module:
    """A module of one function."""
    main = Var(Name("main"), None)
    return infer(module({main: Function((), (), params, None, body)}, main))
