"""A finding as a pytest case that can be pasted into a file and run.

>>> import numpy as np
>>> literal((np.array([1.0, np.nan], np.float32), np.array(2)))
'(np.array([1.0, np.nan], "float32").reshape((2,)), np.array([2], "int64").reshape(()))'
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from plica.ir.module import Module
from plica.rewrite.contract import Contract, approx


def as_pytest(
    name: str, reason: str, pair: tuple[Module, Module], inputs: tuple[Any, ...], under: Contract
) -> str:
    """A test that fails as long as the two modules differ: the states around the wrong step."""
    before, after = pair
    word = re.sub(r"\W+", "_", name)
    arrays = "".join(f"        {literal(each)},\n" for each in inputs)
    return f'''import ml_dtypes  # noqa: F401  # its dtypes have names for numpy then
import numpy as np

import plica
from plica.rewrite.contract import {_import(under)}
from plica.rewrite.fuzz.difference import unlike

# {name}: {reason}
BEFORE = """
{_text(before)}
"""
AFTER = """
{_text(after)}
"""


def test_{word}() -> None:
    inputs = [
{arrays}    ]
    before = plica.interpret(plica.from_text(BEFORE), *inputs)
    after = plica.interpret(plica.from_text(AFTER), *inputs)
    assert unlike(before, after, {under}) is None
'''


def literal(value: Any) -> str:
    """Arrays, and tuples of them, as Python."""
    if isinstance(value, tuple):
        inside = ", ".join(map(literal, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    array = np.asarray(value)
    numbers = ", ".join(_number(each) for each in array.ravel().tolist())
    return f'np.array([{numbers}], "{array.dtype}").reshape({array.shape})'


def _number(value: Any) -> str:
    text = repr(value)
    return f"np.{text}" if text in ("nan", "inf") else "-np.inf" if text == "-inf" else text


def _import(under: Contract) -> str:
    return "approx" if under.level == approx(0.5).level else str(under)


def _text(module: Module) -> str:
    return str(module).rstrip().replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
