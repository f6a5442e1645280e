"""Python programs that hold kernels and functions, read as scripts without running them.

>>> head = "import numpy as np\\nimport plica\\nN = 4\\n"
>>> text = f"{head}@plica.kernel\\ndef f(): ...\\nprint(np.ones(N))\\n"
>>> print(declarations(text))
<BLANKLINE>
import plica
N = 4
@plica.kernel
def f(): ...
"""

from __future__ import annotations

import ast
from typing import Final

MARKS: Final = ("data", "function", "kernel")  # decorators of a script's declarations
WORDS: Final = ("data", "function", "kernel", "op", "script")
"""Names that a script imports from plica itself."""


def declarations(source: str) -> str:
    """The source if it is a script; of a program only its declarations, each on its own line.

    A program is what imports other packages, or does something when it is run.
    """
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return source  # whoever reads it says where
    kept = [_declaration(statement) for statement in body]
    is_program = any(
        left is None and not isinstance(node, ast.FunctionDef | ast.ClassDef)
        for node, left in zip(body, kept, strict=True)
    )
    marked = [each for each in kept if isinstance(each, ast.FunctionDef)]
    if not is_program or not marked:
        return source
    lines = source.splitlines()
    blank = [""] * len(lines)
    for node, left in zip(body, kept, strict=True):
        if left is None:
            continue
        first = min([node.lineno, *[each.lineno for each in getattr(node, "decorator_list", ())]])
        last = node.end_lineno or node.lineno
        same = left is node
        blank[first - 1 : last] = (
            lines[first - 1 : last] if same else [ast.unparse(left), *[""] * (last - first)]
        )
    return "\n".join(blank).rstrip()


def _declaration(node: ast.stmt) -> ast.stmt | None:
    """The declaration in a statement of a script, or None for other code."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            return node if any(map(_is_mark, node.decorator_list)) else None
        case ast.Import(names):
            return node if all(name.name == "plica" for name in names) else None
        case ast.ImportFrom(module="__future__"):
            return node
        case ast.ImportFrom(module=str(module), level=0) if module.startswith(
            ("plica.script", "plica.op")
        ):
            return node
        case ast.ImportFrom(module="plica", names=names, level=0):
            left = [name for name in names if name.name in WORDS]
            if len(left) == len(names):
                return node
            return ast.ImportFrom("plica", left, 0) if left else None
        case ast.Assign([ast.Name()], ast.Constant(int() | float())):
            return node
        case ast.Expr(ast.Constant(str())):
            return node
        case _:
            return None


def _is_mark(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    match called:
        case ast.Attribute(ast.Name("plica"), name) | ast.Name(name):
            return name in MARKS
        case _:
            return False
