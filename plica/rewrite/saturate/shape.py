"""The shape of a node: what it says apart from the children that equality may exchange.

>>> from plica.ir.type.dtype import i64
>>> from plica.ir.loop.scalar import Lit
>>> one, two = Lit(1, i64), Lit(2, i64)
>>> shape_of(one + two) == shape_of(two + one), shape_of(one + two) == shape_of(one * two)
(True, False)
>>> with_children(one + two, (two, two)) is two + two
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from plica.core.binding import fields_of_children
from plica.core.term import MANY, ONE, PLAIN, Term, field_kinds, field_names, leaf_key, rebuild
from plica.ir.graph.expression import Const
from plica.ir.loop.scalar import Lit
from plica.ir.type import DType
from plica.ir.type.term import TypeTerm

# Any: plain data of whatever fields the class has, under which `==` is exact.
Shape: TypeAlias = Any

CONSTANTS: Final = (Const, Lit)
_WHOLE: Final = (*CONSTANTS, TypeTerm, DType)
_LEAF: Final = "leaf"
_HERE: Final = "term"  # stands where a child stands among plain data


def is_leaf(node: Term) -> bool:
    """Whether equality never looks inside the node."""
    return not node._children or node.__class__.variable or isinstance(node, _WHOLE)


def open_places(node: Term) -> tuple[int, ...]:
    """Which of its children equal ones may replace."""
    if is_leaf(node):
        return ()
    if not (bound := node.__class__.binds):
        return tuple(range(len(node._children)))
    closed = {name for name, _ in bound}
    return tuple(i for i, (name, _) in enumerate(fields_of_children(node)) if name not in closed)


def open_children(node: Term) -> tuple[Term, ...]:
    """The children that equal ones may replace."""
    if is_leaf(node):
        return ()
    kids = node._children
    return kids if not node.__class__.binds else tuple([kids[i] for i in open_places(node)])


def with_children(node: Term, kids: Sequence[Term]) -> Term:
    """The node with other open children."""
    if is_leaf(node):
        return node
    if not node.__class__.binds:
        return rebuild(node, tuple(kids))
    whole = list(node._children)
    for place, kid in zip(open_places(node), kids, strict=True):
        whole[place] = kid
    return rebuild(node, tuple(whole))


def shape_of(node: Term) -> Shape:
    """The node's own data, including closed children."""
    if is_leaf(node):
        return (_LEAF, node)
    cls = node.__class__
    if cls._simple and not cls.binds:
        return cls
    closed = {name for name, _ in cls.binds}
    parts: list[Any] = [cls]
    for name, kind in zip(field_names(cls), field_kinds(cls), strict=True):
        value = getattr(node, name)
        if name in closed:
            parts.append(value)
        elif kind is PLAIN:
            parts.append(leaf_key(value))
        elif kind is MANY:
            parts.append(len(value))
        elif kind is not ONE:
            parts.append(_skeleton(value))
    return tuple(parts)


def _skeleton(value: Any) -> Any:
    if isinstance(value, Term):
        return _HERE
    if value.__class__ is tuple:
        return tuple([_skeleton(item) for item in value])
    return leaf_key(value)
