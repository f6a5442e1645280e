"""Tutorials as executed notebooks: each block of Python with what it prints and shows.

    cells(text)        a page as cells: prose and code, in order
    executed(cells)    the same cells with the outputs of a run, in one namespace
    as_json(cells)     a notebook in the format of Jupyter (nbformat 4)
    as_page(cells)     the page in Markdown, with outputs below the code

The last expression of a cell is shown as in a notebook: by `_repr_html_` where its value has one.

>>> [cell.kind for cell in cells("# Sums\\n\\n```python\\n1 + 1\\n```\\nDone.")]
['markdown', 'code', 'markdown']
"""

from __future__ import annotations
import __future__

import ast
import io
import json
import linecache
import re
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import Any, Final

PYTHON: Final = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ANNOTATIONS: Final = __future__.annotations.compiler_flag
"""Cells that follow `from __future__ import annotations` have it, too, as in Jupyter."""


@dataclass(frozen=True)
class Cell:
    """Prose or code; code with what it printed and its value as HTML and as text."""

    source: str
    kind: str
    printed: str = ""
    shown: tuple[str, str] | None = None


def cells(text: str) -> list[Cell]:
    """The prose and the blocks of Python of a page."""
    kinds = ("markdown", "code")
    parts = [part.rstrip("\n") for part in PYTHON.split(text)]
    return [Cell(part.lstrip("\n"), kinds[at % 2]) for at, part in enumerate(parts) if part.strip()]


def executed(page: Sequence[Cell], name: str) -> list[Cell]:
    """The cells with the outputs of a run as a module of that name."""
    module = types.ModuleType(name)
    before = sys.modules.get(name)
    sys.modules[name] = module  # entry points and pickles look there
    try:
        return list(_run(page, module))
    finally:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before


def _run(page: Sequence[Cell], module: types.ModuleType) -> Iterator[Cell]:
    for number, cell in enumerate(page):
        if cell.kind == "markdown":
            yield cell
            continue
        file = f"<{module.__name__}:{number}>"
        source = cell.source + "\n"
        # Decorated functions read their own source where `inspect` looks.
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        tree = ast.parse(source, file)
        last = tree.body[-1] if tree.body else None
        value = None
        with redirect_stdout(io.StringIO()) as out:
            if isinstance(last, ast.Expr):
                tree.body.pop()
            exec(compile(tree, file, "exec", ANNOTATIONS), module.__dict__)
            if isinstance(last, ast.Expr):
                code = compile(ast.Expression(last.value), file, "eval", ANNOTATIONS)
                value = eval(code, module.__dict__)
        yield replace(cell, printed=out.getvalue(), shown=_shown(value))


def _shown(value: object) -> tuple[str, str] | None:
    if value is None:
        return None
    rich = getattr(value, "_repr_html_", None)
    return (rich() if rich is not None else "", repr(value))


def as_json(page: Sequence[Cell]) -> str:
    """The cells as a notebook of Jupyter."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    found = {
        "nbformat": 4, "nbformat_minor": 4, "metadata": kernel, "cells": [*map(_as_data, page)],
    }  # fmt: skip
    return json.dumps(found, indent=1) + "\n"


def _as_data(cell: Cell) -> dict[str, Any]:
    data: dict[str, Any] = {"cell_type": cell.kind, "metadata": {}, "source": cell.source}
    if cell.kind == "code":
        outputs: list[dict[str, Any]] = []
        if cell.printed:
            outputs.append({"output_type": "stream", "name": "stdout", "text": cell.printed})
        if cell.shown is not None:
            html, text = cell.shown
            shown = {"text/plain": text} | ({"text/html": html} if html else {})
            outputs.append({"output_type": "display_data", "metadata": {}, "data": shown})
        data |= {"execution_count": None, "outputs": outputs}
    return data


def as_page(page: Sequence[Cell]) -> str:
    """The cells as a page in Markdown, each output below its code."""
    return "\n\n".join(map(_as_markdown, page)) + "\n"


def _as_markdown(cell: Cell) -> str:
    if cell.kind == "markdown":
        return cell.source
    parts = [f"```python\n{cell.source}\n```"]
    html, text = cell.shown or ("", "")
    written = cell.printed + ("" if html else text)
    if written.strip():
        parts.append(f'```text title="Output"\n{written.rstrip()}\n```')
    if html:
        # Markdown ends a block of HTML at an empty line.
        flat = re.sub(r"\n\s*\n", "\n", html)
        parts.append(f'<div class="output">\n{flat}\n</div>')
    return "\n\n".join(parts)
