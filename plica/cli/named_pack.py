"""Packs, rules and contracts as the command line names them: by name, or in a Python file."""

from __future__ import annotations

import json
import linecache
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plica.runtime.error import Diagnostic, Place, PlicaError, unreadable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from plica.ir.contract import Contract
    from plica.ir.passes import Pass
    from plica.rewrite.pack import Pack
    from plica.rewrite.rule import Rule


class WrongUsage(PlicaError):
    """A name on the command line does not exist or is unreadable."""


def named_contract(word: str) -> Contract:
    """The float contract written so."""
    from plica.ir.contract import named, unknown_contract

    if (contract := named(word)) is None:
        raise WrongUsage(unknown_contract(word))
    return contract


def named_packs(name: str) -> tuple[Pack, ...]:
    """The pack of a name, or those that a Python file makes; rules of no pack are one."""
    from plica.core.diagnostic import RuleRefused
    from plica.rewrite.pack import Pack, pack
    from plica.rewrite.packs import find_pack
    from plica.rewrite.rule import Rule

    if not name.endswith(".py"):
        try:
            return (find_pack(name),)
        except RuleRefused as refused:
            raise WrongUsage(*refused.diagnostics) from None
    found = _made_by(name)
    packs = [value for value in found.values() if isinstance(value, Pack)]
    known = {rule for each in packs for rule in each}
    rules = [value for value in found.values() if isinstance(value, Rule) and value not in known]
    if rules:
        packs.append(pack(Path(name).stem, *dict.fromkeys(rules), version="0"))
    if not packs:
        message = "The file defines no pack and no rule."
        raise WrongUsage(Diagnostic("unknown-pack", message, Place(file=name)))
    return tuple(dict.fromkeys(packs))


def _made_by(name: str) -> dict[str, Any]:  # Any: whatever a file makes
    """Executes the user's file, named on the command line, as Python would, including its sibling
    imports."""
    from plica.core.extension import FAILURES

    path = Path(name)
    if not path.is_file():
        raise WrongUsage(unreadable(path, "a Python file", "No such file", ".py"))
    beside = str(path.parent.resolve())
    sys.path.insert(0, beside)
    try:
        return runpy.run_path(name)
    except PlicaError:  # a rule that is refused at its birth says so itself
        raise
    except FAILURES as error:
        raise WrongUsage(_broken(name, error)) from error
    finally:
        sys.path.remove(beside)


def named_pass(name: str) -> Pass:
    """The pass written so: the name of an installed one, or FILE.py:NAME."""
    from plica.core.diagnostic import did_you_mean
    from plica.ir.passes import Pass, PassError, installed_pass

    file, _, word = name.rpartition(":")
    if not file.endswith(".py"):
        try:
            return installed_pass(name)
        except PassError as refused:
            raise WrongUsage(*refused.diagnostics) from None
    found = {key: each for key, each in _made_by(file).items() if isinstance(each, Pass)}
    if word not in found:
        message, near = f"The file makes no pass {word!r}.", did_you_mean(word, found)
        told = Diagnostic("unknown-pass", message, Place(file=file), ", ".join(found), word, near)
        raise WrongUsage(told)
    return found[word]


def named_rule(name: str) -> Rule:
    """The rule written so: its name, or PACK:NAME, or FILE.py:NAME."""
    from plica.core.diagnostic import did_you_mean
    from plica.rewrite.packs import all_packs

    where, colon, word = name.rpartition(":")
    packs = named_packs(where) if colon else tuple(all_packs().values())
    rules = {rule.name: rule for pack in reversed(packs) for rule in pack}
    if word not in rules:
        message = f"There is no rule {word!r}" + (f" in {where}." if colon else " in any pack.")
        hint = did_you_mean(word, rules)
        raise WrongUsage(Diagnostic("unknown-rule", message, None, "a rule", word, hint))
    return rules[word]


def _broken(name: str, error: BaseException) -> Diagnostic:
    """The error of a file that cannot be run, with its line."""
    from plica.core.extension import raised_at, said

    at = raised_at(error, name) or Place(file=name)
    if isinstance(error, SyntaxError):
        return Diagnostic("broken-file", "The file is not valid Python.", at, found=error.msg)
    return Diagnostic("broken-file", "The file fails when it is run.", at, found=said(error))


def named_function(name: str) -> Callable[..., Any]:  # Any: whatever a user's function takes
    """The function written so: FILE.py:NAME."""
    from plica.core.diagnostic import did_you_mean

    file, _, word = name.rpartition(":")
    if not file.endswith(".py"):
        message = "A function is given as FILE.py:NAME."
        raise WrongUsage(Diagnostic("unknown-pass", message, None, "FILE.py:NAME", name))
    found: dict[str, Callable[..., Any]] = {
        key: each for key, each in _made_by(file).items() if callable(each)
    }
    if word not in found:
        message, near = f"The file has no function {word!r}.", did_you_mean(word, found)
        told = Diagnostic("unknown-pass", message, Place(file=file), ", ".join(found), word, near)
        raise WrongUsage(told)
    return found[word]


def run_verb(arguments: argparse.Namespace) -> int:
    """Runs the verb; errors are JSON if JSON was requested. Wrong usage exits with 2."""
    try:
        code: int = arguments.verb(arguments)
    except PlicaError as error:
        code = 2 if isinstance(error, WrongUsage) else 1
        if arguments.json:
            print(json.dumps(error.to_data(), indent=2))
        else:
            from rich.console import Console

            from plica.core.diagnostic import render

            render(error, Console(stderr=True), line_of=linecache.getline)
    return code
