"""A counterexample as a pytest case that can be pasted into a file and run."""

from __future__ import annotations

from typing import Any

import numpy as np

from plica.core.name import Name
from plica.core.term import Term
from plica.ir.graph import Expr, Function, Var
from plica.ir.infer import type_of
from plica.ir.module import Module, module
from plica.ir.type import FuncType
from plica.rewrite.check.instance import Instance
from plica.rewrite.contract import signless_zero
from plica.rewrite.rule import Rule


def closed(body: Expr, made: Instance) -> Module:
    """A module whose main function takes the instance's variables and gives `body`."""
    params = tuple(var for var, _ in made.inputs)
    ret = type_of(body)
    main = Var(Name("main"), FuncType((), (), tuple(type_of(each) for each in params), ret))
    return module({main: Function((), (), params, ret, body)}, main)


def as_pytest(rule: Rule, made: Instance, after: Term, reason: str, typed: bool) -> str:
    """The text of a test that fails as long as the rule is wrong."""
    name = rule.name.replace("-", "_")
    arrays = ",\n        ".join(_array(value) for _, value in made.inputs)
    left = str(closed(made.term, made)).rstrip()
    if not typed or not isinstance(after, Expr):
        return f'# {rule.name}: {reason}\nLEFT = """\n{left}\n"""\n# The right side is {after!r}\n'
    right = str(closed(after, made)).rstrip()
    compare = "assert_array_equal" if rule.contract <= signless_zero else "assert_allclose"
    return f'''import numpy as np

import plica

# {rule.name}: {reason}
LEFT = """
{left}
"""
RIGHT = """
{right}
"""


def test_{name}() -> None:
    inputs = [
        {arrays},
    ]
    left = plica.interpret(plica.from_text(LEFT), *inputs)
    right = plica.interpret(plica.from_text(RIGHT), *inputs)
    np.testing.{compare}(left, right)
'''


def _array(value: np.ndarray[Any, Any]) -> str:
    inner = np.array2string(value.ravel().astype(object), separator=", ", threshold=10_000)
    flat = inner.replace("nan", "np.nan").replace("inf", "np.inf")
    return f'np.array({flat}, "{value.dtype}").reshape({value.shape})'
