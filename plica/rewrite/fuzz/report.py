"""A finding as a pytest case that can be pasted into a file and run."""

from __future__ import annotations

from typing import Any

from plica.ir.contract import Contract
from plica.ir.graph.module import Module
from plica.rewrite.check.report import as_comment, contract_name, literal, slug, text


def as_pytest(
    name: str, reason: str, pair: tuple[Module, Module], inputs: tuple[Any, ...], under: Contract
) -> str:
    """A test that fails as long as the two modules differ: the states around the wrong step."""
    before, after = pair
    arrays = "".join(f"        {literal(each)},\n" for each in inputs)
    return f'''import ml_dtypes  # noqa: F401  # its dtypes have names for numpy then
import numpy as np

import plica
from plica.ir.contract import {contract_name(under)}
from plica.rewrite.fuzz.difference import unlike

{as_comment(f"{name}: {reason}")}
BEFORE = """
{text(before)}
"""
AFTER = """
{text(after)}
"""


def test_{slug(name)}() -> None:
    inputs = [
{arrays}    ]
    before = plica.interpret(plica.from_text(BEFORE), *inputs)
    after = plica.interpret(plica.from_text(AFTER), *inputs)
    assert unlike(before, after, {under}) is None
'''
