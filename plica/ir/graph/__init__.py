"""graph: the graph language: expressions, operators, modules, and whether they are well formed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "Apply", "Attrs", "Call", "Const", "Defined", "Definition", "Expr", "Function", "If", "Let",
    "Mismatch", "Module", "Operator", "Project", "Tuple", "Var", "attr", "const", "find",
    "main_module", "module",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.ir.graph.expression import (
        Apply,
        Attrs,
        Call,
        Const,
        Expr,
        Function,
        If,
        Let,
        Project,
        Tuple,
        Var,
        attr,
        const,
    )
    from plica.ir.graph.module import Defined, Definition, Module, main_module, module
    from plica.ir.graph.operator import Mismatch, Operator, find
else:
    lazily(__name__)
