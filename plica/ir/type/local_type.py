"""Local types: those of operators, constants and projections, from the types of their arguments.

These need no unification, so operator records, which come before inference, may use them.

>>> from plica.ir.graph.expression import const
>>> print(local_type(const([1.0, 2.0], "f32")))
Tensor[(2,), f32]
"""

from __future__ import annotations

from typing import Any, Final

from plica.core import Memo
from plica.core.term import leaf_key
from plica.ir.graph.expression import Apply, Attrs, Const, Expr, Project, Var, remember_type
from plica.ir.graph.operator import Mismatch, Operator, find
from plica.ir.type.refresh import is_untyped
from plica.ir.type.term import TupleType, Type, tensor


def local_type(root: Expr) -> Type | None:
    """The type of an expression of operators over typed expressions; None if that is not enough.

    Only nodes without a type are visited, so a term that rewriting puts on top of typed ones costs
    its own size.
    """
    if (known := _remembered(root)) is not None:
        return known
    stack = [root]
    while stack:
        node = stack[-1]
        if _remembered(node) is not None:
            stack.pop()
        elif isinstance(node, Const):
            remember_type(node, tensor(node.shape, node.dtype), 2)
        elif isinstance(node, Apply):
            missing = [arg for arg in node.args if _remembered(arg) is None]
            stack.extend(missing)
            if (operator := find(node.op)) is None:
                return None
            if missing:
                continue
            result = related(operator, node.attrs, tuple([arg._type for arg in node.args]))
            if isinstance(result, Mismatch):
                return None
            remember_type(node, result, min([arg._settled for arg in node.args], default=2))
        elif isinstance(node, Project):
            if _remembered(node.value) is None:
                stack.append(node.value)
                continue
            whole = node.value._type
            if not isinstance(whole, TupleType) or not 0 <= node.index < len(whole.items):
                return None
            remember_type(node, whole.items[node.index], node.value._settled)
        else:
            return None
    return root._type


def related(operator: Operator, attributes: Attrs, types: tuple[Type, ...]) -> Type | Mismatch:
    """The type of an operator for given argument types, memoised for repeated layers."""
    key = (operator.name, leaf_key(attributes) if attributes else (), *types)
    return _RELATED.found(key, lambda: operator.relation(dict(attributes), *types))


_RELATED: Final[Memo[tuple[Any, ...], Type | Mismatch]] = Memo(4096)  # Any: as `leaf_key` gives it


def _remembered(expr: Expr) -> Type | None:
    """The cached or declared type of an expression, or None."""
    known: Type | None = getattr(expr, "_type", None)
    if known is None and isinstance(expr, Var) and not is_untyped(expr):
        known = expr.type
        assert known is not None
        remember_type(expr, known, 2)
    return known
