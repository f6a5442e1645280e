"""Words of the tables: operators by name, holes by kind of dtype, right sides that need a shape.

>>> x.name, [each.name for each in f.constraint.dtypes]
('x', ['f16', 'bf16', 'f32', 'f64'])

A law that forgets an argument may forget a part of the shape as well: `where(b, x, x)` can be
larger than `x`.  `spread` makes the right side as large as the left side was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import attrs

from plica.core import CompilerBug, Term, free_vars, ill_formed, name_of
from plica.core.deferred import unobserved
from plica.ir.graph.expression import Apply, Expr, const
from plica.ir.graph.operator import Operator
from plica.ir.graph.provenance import derived_const
from plica.ir.loop.scalar import Scalar
from plica.ir.op import Mismatch, find
from plica.ir.type import DTYPES, DType, TensorType, bool_, f32, known, same_dim, type_of
from plica.ir.type.dtype import COMPUTED
from plica.rewrite.instantiate import plan
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pattern import constants, hole, hole_names, holes
from plica.rewrite.rule import Computed, Rule
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.interpret.graph_machine import computed

Shape: TypeAlias = tuple[Scalar, ...]

FLOATS: Final = tuple(dtype for dtype in COMPUTED if dtype.is_float)
INTEGERS: Final = tuple(dtype for dtype in COMPUTED if dtype.is_integer)
SIGNED: Final = tuple(dtype for dtype in COMPUTED if dtype.kind in ("int", "float"))
UNSIGNED: Final = tuple(dtype for dtype in COMPUTED if dtype.kind == "uint")

# Any: a hole can stand for a term or an attribute, and an operator takes both.
x, y, z = holes("x y z")
c, e = constants("c e")
f, g, h = (hole(name, dtypes=FLOATS) for name in "fgh")
n, m, k = (hole(name, dtypes=INTEGERS) for name in "nmk")
i, j = (hole(name, dtypes=(*INTEGERS, bool_)) for name in "ij")
s: Any = hole("s", dtypes=SIGNED)
b, d = (hole(name, dtypes=bool_) for name in "bd")
v: Any = hole("v", rank=0)
(w,) = holes("w")


def op(name: str) -> Any:
    """The operator of that name."""
    if (operator := find(name)) is None:
        raise CompilerBug(f"A table names the operator {name}, which there is not.")
    return operator


def spoken(name: str) -> str:
    """The name of an operator as a part of the name of a rule."""
    return name.removeprefix("nn.").replace("_", "-")


def admitted(name: str) -> tuple[DType, ...]:
    """The dtypes an operator accepts, by its type relation."""
    of = op(name)
    given = {each.name: f32 if each.required else each.default for each in of.attributes}
    return tuple(
        dtype
        for dtype in DTYPES
        if not isinstance(of.relation(given, *[TensorType((), dtype)] * len(of.inputs)), Mismatch)
    )


def tensor(of: Expr) -> TensorType:
    """The type of an argument of an operator."""
    found = type_of(of)
    if not isinstance(found, TensorType):
        raise CompilerBug(f"An argument of an operator is a {found}.")
    return found


def shape(of: Expr) -> Shape:
    """The shape of an argument of an operator."""
    return tensor(of).shape


def same_shape(left: Shape, right: Shape) -> bool:
    """Whether two shapes are equal whatever their dims are."""
    return len(left) == len(right) and all(map(same_dim, left, right))


def covers(large: Shape, small: Shape) -> bool:
    """Whether broadcasting `small` with `large` gives `large`."""
    skip = len(large) - len(small)
    return skip >= 0 and all(
        known(b) == 1 or same_dim(a, b) for a, b in zip(large[skip:], small, strict=True)
    )


def sizes(of: Shape) -> tuple[int, ...] | None:
    """The numeric shape, or None if a dim is symbolic."""
    found = tuple(map(known, of))
    return None if None in found else tuple(each or 0 for each in found)


def ascending(axes: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in order; None is all of them."""
    return tuple(range(rank)) if axes is None else tuple(sorted(axis % rank for axis in axes))


_plan: Final = lru_cache(maxsize=1024)(plan)


@attrs.frozen
class Evaluated:
    """A right side in which `w` is a constant term, computed: two constants become one."""

    right: Term
    constant: Term

    def __call__(self, match: PatternMatch) -> Term:
        closed = _plan(self.constant)(match.filling)
        if free := free_vars(closed):
            names = ", ".join(sorted(str(name_of(var)) for var in free))
            raise ill_formed(f"A constant that is computed beforehand depends on {names}.")
        with unobserved():
            constant = const(computed(closed), tensor(closed).dtype)
        done: Term = _plan(self.right)({**match.filling, "w": derived_const(closed, constant)})
        return done


@attrs.frozen
class LikeLeft:
    """A right side: a part broadcast, or reshaped, to the shape of the left side.

    With `always` the operator stands there even where the part has that shape already.
    """

    left: Term
    part: Term
    by: Literal["broadcast_to", "reshape"]
    always: bool

    def __call__(self, match: PatternMatch) -> Term | None:
        found: Any = _plan(self.part)(match.filling)
        if found is None:
            return None
        wanted = shape(_plan(self.left)(match.filling))
        keep = not self.always and same_shape(shape(found), wanted)
        done: Term = found if keep else op(self.by)(found, wanted)
        return done


@attrs.frozen
class FirstFilled:
    """A right side that is the first of some terms whose holes are all filled, if there is one."""

    terms: tuple[Term, ...]

    def among(self, names: frozenset[str]) -> Term | None:
        """The term for a match that fills the holes of these names."""
        return next((term for term in self.terms if hole_names(term) <= names), None)

    def __call__(self, match: PatternMatch) -> Term | None:
        chosen = self.among(frozenset(match.filling))
        term: Term | None = None if chosen is None else _plan(chosen)(match.filling)
        return term


@attrs.frozen
class OneShape:
    """A guard: what fills two holes has one shape."""

    first: str
    second: str

    def __call__(self, match: PatternMatch) -> bool:
        return same_shape(shape(match[self.first]), shape(match[self.second]))


@attrs.frozen
class DtypesAre:
    """A guard that looks at dtypes alone: of what fills holes, or of attributes."""

    predicate: Callable[..., bool]
    names: tuple[str, ...]

    def __call__(self, match: PatternMatch) -> bool:
        filled = (match[name] for name in self.names)
        return self.predicate(*(tensor(it).dtype if isinstance(it, Expr) else it for it in filled))


@attrs.frozen
class HasElements:
    """A guard: none of the axes that fill a hole is empty."""

    name: str
    axes: Any  # Any: a hole for an attribute

    def __call__(self, match: PatternMatch) -> bool:
        dims = shape(match[self.name])
        return all(known(dims[at]) for at in ascending(match[self.axes.name], len(dims)))


@attrs.frozen
class CoversShape:
    """A guard: what fills a hole is as large as an attribute that is a shape."""

    large: str
    small: str

    def __call__(self, match: PatternMatch) -> bool:
        return covers(shape(match[self.large]), match[self.small])


@attrs.frozen
class ByDefinition:
    """A right side: what a composite operator is defined as, of the left side's own arguments."""

    record: Operator
    inputs: tuple[str, ...]
    attributes: tuple[str, ...]

    def is_of(self, left: Term) -> bool:
        """Whether a left side is that operator of these arguments."""
        if not isinstance(left, Apply) or left.op != self.record.name:
            return False
        given = dict(left.attrs)
        parts = (*left.args, *(given[attribute.name] for attribute in self.record.attributes))
        return tuple(getattr(it, "name", "") for it in parts) == (*self.inputs, *self.attributes)

    def __call__(self, match: PatternMatch) -> Term:
        names = (attribute.name for attribute in self.record.attributes)
        values = {name: match[hole] for name, hole in zip(names, self.attributes, strict=True)}
        assert self.record.decompose is not None
        return self.record.decompose(values, *(match[each] for each in self.inputs))


def by_definition(
    of: Operator, inputs: Sequence[Any], attributes: Sequence[Any]
) -> tuple[Any, Computed]:
    """A composite operator, and what it is defined as."""
    if of.decompose is None:
        raise CompilerBug(f"{of.name} is not made of other operators.")
    names = (tuple(each.name for each in part) for part in (inputs, attributes))
    return of(*inputs, *attributes), ByDefinition(of, *names)


def unfolded(name: str) -> Rule:
    """The rule that replaces a composite operator by what its record says it is made of."""
    of = op(name)
    inputs = [hole(f"{each}_of") for each in of.inputs]
    attributes = [hole(f"of_{attribute.name}") for attribute in of.attributes]
    return rule(f"{spoken(name)}-unfolded", *by_definition(of, inputs, attributes))


def shaped(left: Any, build: Callable[[PatternMatch, Shape], Term | None]) -> tuple[Any, Computed]:
    """A left side, and the right side that `build` makes of the match and the left side's shape."""
    whole = plan(left)

    def right(match: PatternMatch) -> Term | None:
        return build(match, shape(whole(match.filling)))

    return left, right


def spread(left: Any, right: Any) -> tuple[Any, Computed]:
    """Two sides of which the right one may be smaller: it is broadcast where it is."""
    return left, LikeLeft(left, right, "broadcast_to", always=False)


def reshaped(left: Any) -> tuple[Any, Computed]:
    """A left side that only rearranges `x`, and `x` reshaped."""
    return left, LikeLeft(left, x, "reshape", always=True)


def refilled(left: Any) -> tuple[Any, Computed]:
    """A left side whose elements are all `v`, and `v` broadcast."""
    return left, LikeLeft(left, v, "broadcast_to", always=True)
