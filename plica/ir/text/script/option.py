"""Options in text: the arguments of a function's decorator.

@plica.function(forall="A B", dims="n", attrs={"inline": True})
"""

from __future__ import annotations

import ast

import attrs

from plica.ir.graph.expression import Attrs
from plica.ir.text.script.expression import ExpressionReader
from plica.ir.text.script.scope import Word


@attrs.frozen
class Options:
    """The arguments of a function's decorator."""

    forall: tuple[str, ...] = ()
    dims: tuple[str, ...] | None = None
    attrs: Attrs = ()


class OptionReader(ExpressionReader):
    """Reads decorators."""

    def options(self, decorators: list[ast.expr]) -> Options:
        """What `@plica.function(...)` says; other decorators are refused."""
        found = Options()
        for decorator in decorators:
            match decorator:
                case ast.Call(callee, [], keywords) if self.is_decorator(callee):
                    found = self._keywords(keywords)
                case ast.Name() | ast.Attribute() if self.is_decorator(decorator):
                    pass
                case _:
                    message = "A function has no other decorator than plica.function."
                    self.bad(decorator, "@plica.function", message)
        return found

    def is_decorator(self, node: ast.expr, name: str = "function") -> bool:
        """Whether an expression is `plica.function`, or another word of plica."""
        return self.meaning(node) == Word(f"plica.{name}")

    def _keywords(self, keywords: list[ast.keyword]) -> Options:
        forall: list[str] = []
        dims: list[str] | None = None
        given: Attrs = ()
        for each in keywords:
            match each.arg:
                case "forall":
                    forall = self.names(each.value)
                case "dims":
                    dims = self.names(each.value)
                case "attrs":
                    given = self._attrs(each.value)
                case _:
                    message = f"plica.function has no option {each.arg!r}."
                    self.error(each, "unknown-attribute", message, expected="forall, dims, attrs")
        return Options(tuple(forall), None if dims is None else tuple(dims), given)

    def _attrs(self, node: ast.expr) -> Attrs:
        if isinstance(node, ast.Dict) and all(
            isinstance(key, ast.Constant) and isinstance(key.value, str) for key in node.keys
        ):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            return tuple(sorted(zip(map(str, keys), map(self.value, node.values), strict=True)))
        message = "The attributes of a function are a dict with strings for keys."
        self.unsupported(node, message, expected='attrs={"inline": True}')
        return ()
