"""A counterexample as a pytest case that can be pasted into a file and run.

>>> as_comment("swapped: one line\\nand another")
'# swapped: one line\\n# and another'
>>> slug("fold/2 (again)")
'fold_2_again'
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from plica.core import Name, Term
from plica.ir.contract import APPROX, Contract
from plica.ir.graph import Expr, Function, Module, Var, main_module, module
from plica.ir.type import FuncType, type_of
from plica.rewrite.check.instance import Instance
from plica.rewrite.near_miss import near_miss
from plica.rewrite.rule import Rule


def closed(body: Expr, made: Instance) -> Module:
    """A module whose main function takes the instance's variables and returns `body`."""
    ret = type_of(body)
    params = tuple(type_of(variable) for variable in made.variables)
    main = Var(Name("main"), FuncType((), (), params, ret))
    return module({main: Function((), (), made.variables, ret, body)}, main)


def as_pytest(rule: Rule, made: Instance, after: Term | None, reason: str, typed: bool) -> str:
    """The text of a test that fails as long as the rule is wrong."""
    if not isinstance(after, Expr):
        return _of_failure(rule, made, reason)
    # A right side without a type is printed as it is: reading it fails.
    right = closed(after, made) if typed else _untyped(after, made)
    modules = {"LEFT": closed(made.term, made), "RIGHT": right}
    arrays = [value for _, value in made.inputs]
    return unlike_test(rule.name, reason, modules, arrays, rule.contract)


def unlike_test(
    name: str, reason: str, modules: Mapping[str, Module], arrays: Sequence[Any], under: Contract
) -> str:
    """A test that fails as long as two modules differ by more than a contract allows."""
    one, two = modules
    head = f"""import ml_dtypes  # noqa: F401  # its dtypes have names for numpy then
{HEAD}
from plica.ir.contract import {contract_name(under)}
from plica.rewrite.fuzz.difference import unlike"""
    body = f"""
    {one.lower()} = plica.interpret(plica.from_text({one}), *inputs)
    {two.lower()} = plica.interpret(plica.from_text({two}), *inputs)
    assert unlike({one.lower()}, {two.lower()}, {under}) is None
"""
    return failing_test(
        slug(name), f"{name}: {reason}", modules, {"inputs": arrays}, body, head=head
    )


HEAD: Final = "import numpy as np\n\nimport plica"


def failing_test(
    name: str, comment: str, modules: Mapping[str, Module], arrays: Mapping[str, Sequence[Any]],
    body: str, *, head: str = HEAD,
) -> str:  # fmt: skip
    """The text of a test: imports, modules as scripts, lists of arrays, and what to assert."""
    scripts = [f'{word} = """\n{text(module)}\n"""\n' for word, module in modules.items()]
    lists = [
        f"    {word} = [\n{''.join(f'        {literal(it)},{chr(10)}' for it in values)}    ]\n"
        for word, values in arrays.items()
    ]
    start = f"{head}\n\n{as_comment(comment)}\n{''.join(scripts)}"
    return f"{start}\n\ndef test_{name}() -> None:\n{''.join(lists)}{body.lstrip(chr(10))}"


def _of_failure(rule: Rule, made: Instance, reason: str) -> str:
    """A test of a rule that makes no term: it can only say so."""
    return f'''{as_comment(f"{rule.name}: {reason}")}
LEFT = """
{text(closed(made.term, made))}
"""


def test_{slug(rule.name)}() -> None:
    raise AssertionError({reason!r})
'''


def _untyped(body: Expr, made: Instance) -> Module:
    return main_module(Function((), (), made.variables, None, body))


def text(of: Module) -> str:
    """A module as it can stand in a string of three quotes."""
    return str(of).rstrip().replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def slug(name: str) -> str:
    """A suffix valid in identifiers."""
    return re.sub(r"[^0-9A-Za-z_]+", "_", name).strip("_") or "rule"


def as_comment(words: str) -> str:
    """Every line as a comment."""
    return "\n".join(f"# {line}".rstrip() for line in words.splitlines())


def contract_name(of: Contract) -> str:
    """The expression that denotes a contract."""
    return "approx" if of.level == APPROX else str(of)


def literal(value: Any) -> str:
    """Arrays, and tuples of them, as Python.

    >>> literal((np.array([1.0, np.nan], np.float32), np.array(2)))
    '(np.array([1.0, np.nan], "float32").reshape((2,)), np.array([2], "int64").reshape(()))'
    """
    if isinstance(value, tuple):
        inside = ", ".join(map(literal, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    array = np.asarray(value)
    numbers = ", ".join(_number(each) for each in array.ravel().tolist())
    return f'np.array([{numbers}], "{array.dtype}").reshape({array.shape})'


def _number(value: Any) -> str:
    shown = repr(value)
    return f"np.{shown}" if shown in ("nan", "inf") else "-np.inf" if shown == "-inf" else shown


# --- declined instances ------------------------------------------------------------------------


MAX_DECLINED_KEPT: Final = 8  # declined instances that are looked at again


class Declined:
    """What became of attempts to make an instance that a rule changes."""

    def __init__(self) -> None:
        self.attempts = self.made = 0
        self.kept: list[Instance] = []

    def add(self, made: Instance | None) -> None:
        """An attempt that gave no instance, or one that the rule left alone."""
        self.attempts += 1
        if made is not None:
            self.made += 1
            if len(self.kept) < MAX_DECLINED_KEPT:
                self.kept.append(made)

    def why(self, rule: Rule) -> str:
        """Why a rule was tried on nothing."""
        if not self.made:
            hint = "examples= or instances= of the rule can tell some"
            return f"no well-typed instance was found in {self.attempts} attempts; {hint}"
        misses = [(near_miss(rule, instance.term), instance) for instance in self.kept]
        told = [(miss, instance) for miss, instance in misses if miss is not None]
        who = "the guard" if rule.when is not None else "the right side"
        count = f"{self.made} instances made, all declined by {who}"
        if not told:
            return count
        miss, nearest = max(told, key=lambda each: each[0].fitting / each[0].parts)
        return f"{count}; the nearest, {in_one_line(nearest.term, nearest)}, {miss}"


def in_one_line(term: Expr, made: Instance) -> str:
    """A term in one line, as a script says it."""
    body = text(closed(term, made)).partition("def main")[2].partition(":\n")[2]
    return " ".join(body.split()).removeprefix("return ")
