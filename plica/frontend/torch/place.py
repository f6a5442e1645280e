"""Places: the node of a program and its Python line, for messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from plica.core.diagnostic import EvaluationError, IllTyped
from plica.runtime.error import Diagnostic, Place, PlicaError, UnsupportedError

if TYPE_CHECKING:
    from torch import fx

_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')


def place_of(node: fx.Node) -> Place:
    """The node with its Python line, if torch has kept it."""
    if not (frames := _FRAME.findall(node.meta.get("stack_trace") or node.stack_trace or "")):
        return Place(node=node.name)
    file, line = frames[-1]
    return Place(file=file, line=int(line), node=node.name)


def shown(target: object) -> str:
    """The name of a node's target: an operator's, or that of a Python function."""
    text = str(target)
    return str(getattr(target, "__name__", text)) if text.startswith("<") else text


def missing(node: fx.Node) -> Diagnostic:
    """The diagnostic of an operator without a row."""
    if shown(node.target).startswith("auto_functionalized"):
        message = f"The operator {node.args[0]} writes to its arguments."
        hint = "Return a new tensor from it."
        return Diagnostic("unsupported", message, place_of(node), None, str(node.args[0]), hint)
    message = f"The operator {shown(node.target)} is not supported."
    hint = "docs/torch.md lists the operators that are."
    return Diagnostic("unsupported", message, place_of(node), None, shown(node.target), hint)


def placed(error: PlicaError, node: fx.Node) -> PlicaError:
    """An error at a node: what typing refuses there, Plica does not have."""
    if not isinstance(error, IllTyped | EvaluationError):
        return error
    name = shown(node.target)
    listed = [
        Diagnostic(each.code, f"{name}: {each.message}", place_of(node), each.expected, each.found)
        for each in error.diagnostics
    ]
    return UnsupportedError(listed[0], *listed[1:])
