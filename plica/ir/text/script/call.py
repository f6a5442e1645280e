"""Operator calls in text: which arguments are operands and which are attributes."""

from __future__ import annotations

import ast
from typing import Any

from plica.core import OutOfRange, all_of
from plica.ir.graph.expression import Attrs
from plica.ir.graph.operator import Attribute, Mismatch, Operator, aliases
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.op import find, names
from plica.ir.text.script.scope import Word
from plica.ir.text.script.value import WRONG, ValueReader
from plica.ir.type.dim_text import read_dim

Operands = tuple[str, list[ast.expr], Attrs]


class OperatorReader(ValueReader):
    """Reads calls of operators."""

    def operator_name(self, node: ast.expr) -> str | None:
        """The operator's name if the expression denotes an operator, else None."""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            if self.meaning(node.value) == Word("op") and isinstance(node.slice.value, str):
                return node.slice.value
            return None
        found = self.meaning(node)
        if isinstance(found, Word) and found.path.startswith("op."):
            return found.path[3:]
        return None

    def operands(self, node: ast.Call, name: str) -> Operands | None:
        """The operator's own name, its operands still to be read, and its attributes."""
        if (record := find(name)) is None:
            hint = self.problems.suggest(name, (*names(), *aliases()))
            self.error(node, "unknown-operator", f"There is no operator {name!r}.", suggestion=hint)
            return None
        plain = [arg for arg in node.args if not isinstance(arg, ast.Starred)]
        if len(plain) != len(node.args):
            message = "Arguments are written out, one by one."
            self.unsupported(node, message, expected="f(x, y)", found="a starred argument")
        keywords = [(each.arg or "**", each) for each in node.keywords]
        given, wrong = record.named(plain, [(word, each.value) for word, each in keywords])
        for word, problem in wrong:
            at = dict(keywords)[word] if problem.code == "unknown-attribute" else node
            self.error(
                at, problem.code, problem.message, expected=problem.expected, found=problem.found,
                suggestion=problem.suggestion,
            )  # fmt: skip
        attrs = self._attributes(record, given)
        if attrs is None or len(attrs) < len(record.attributes):
            return None
        if not given.keys() >= {*record.slots}:
            return None
        if not record.variadic:
            return record.name, [given[slot] for slot in record.slots], attrs
        several = given["values"]
        if not isinstance(several, ast.Tuple | ast.List):
            message = f"{record.name} takes its operands as a tuple, written out."
            found = self.origin.excerpt(several)
            self.error(several, "wrong-arity", message, expected="(x, y)", found=found)
            return None
        return record.name, several.elts, attrs

    def _attributes(self, record: Operator, given: dict[str, ast.expr]) -> Attrs | None:
        found: list[tuple[str, Any]] = []
        for attribute in record.attributes:
            if (node := given.get(attribute.name)) is None:
                if not attribute.required:
                    found.append((attribute.name, attribute.read(attribute.default)))
                continue
            value = self._attribute(record, attribute, node)
            if value is WRONG:
                return None
            found.append((attribute.name, value))
        return tuple(sorted(found))

    def _attribute(self, record: Operator, attribute: Attribute, node: ast.expr) -> Any:
        raw = self.value(node)
        if _mentions_wrong(raw):
            return WRONG
        # A string may be a dim: where all its names are dims here, that is what it means first.
        symbolic = self._with_dims(raw)
        try:
            value = attribute.read(symbolic)
            if isinstance(value, Mismatch) and symbolic is not raw:
                value = attribute.read(raw)
        except OutOfRange as big:
            message = f"{record.name}: {big.diagnostics[0].message}"
            shown = self.origin.excerpt(node)
            self.error(node, "bad-attribute", message, expected="a value of i64", found=shown)
            return WRONG
        ours = _dims(symbolic)  # some readers make a dim of any string: it must be one of these
        unbound = next((name for var, name in _dims(value).items() if var not in ours), None)
        if unbound is not None:
            hint = self.problems.suggest(unbound, self.scope.known_dims())
            self.error(node, "unbound-name", f"No dim is called {unbound!r} here.", suggestion=hint)
            return WRONG
        if isinstance(value, Mismatch):
            expected, found = value.expected, value.found
            self.error(
                node,
                "bad-attribute",
                f"{record.name}: {value.message}",
                expected=expected,
                found=found,
                suggestion=value.suggestion,
            )
            return WRONG
        return value

    def _with_dims(self, value: Any) -> Any:
        if isinstance(value, tuple):
            new = tuple([self._with_dims(item) for item in value])
            return new if any(a is not b for a, b in zip(new, value, strict=True)) else value
        if isinstance(value, str):
            found = read_dim(value, self._dim_name)
            return found if isinstance(found, Scalar) else value
        return value


def _mentions_wrong(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(map(_mentions_wrong, value))
    return value is WRONG


def _dims(value: Any) -> dict[ScalarVar, str]:
    """The symbolic dims in a value, with their names."""
    if isinstance(value, tuple):
        return {var: name for item in value for var, name in _dims(item).items()}
    if isinstance(value, Scalar):
        return {v: str(v.name) for v in all_of(ScalarVar, value)}
    return {}
