"""Matching: a pattern against a term, giving what fills the holes.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.rewrite.pattern import holes
>>> from plica.ir.type.term import tensor
>>> (x,) = holes("x")
>>> a = Var(Name("a"), tensor((2,), "f32"))
>>> match(x + x, a + a).x is a, match(x + x, a + 1)
(True, None)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

from attrs import frozen

from plica.core import RuleRefused, Term, field_names, post_order
from plica.core.term import MANY, ONE, field_kinds, leaf_key
from plica.ir.graph.expression import Apply, Const, Expr, Function, Literal, Tuple
from plica.ir.loop.scalar import Lit, Scalar, dtype_of
from plica.ir.type import TensorType, Type, known, type_of
from plica.rewrite import pattern as pt
from plica.runtime.error import Diagnostic, Place
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):  # most rules of a table are never tried
    from plica.rewrite.binder import is_clear
    from plica.rewrite.recursive import RecursiveMatcher

# Any: what fills a hole is a term, or the value of an attribute.
Filling: TypeAlias = dict[str, Any]
Matcher: TypeAlias = Callable[[Any, Filling], bool]
Head: TypeAlias = tuple[type[Term], str | None] | None  # class and operator; None: any


@frozen
class PatternMatch:
    """What fills each hole, by attribute: `m.x`.

    `m.type(x)` is the type of a hole's filling, or of an expression, `m.shape(x)` its sizes and
    `m.value(p)` an attribute, both with plain integers where known.
    """

    filling: Filling

    def __getitem__(self, hole: Any) -> Any:
        """What fills a hole, by the hole itself: `m[x]`."""
        name = hole if isinstance(hole, str) else hole.name
        if name not in self.filling:
            raise KeyError(self._no_hole(name))
        return self.filling[name]

    def _no_hole(self, name: str) -> str:
        return f"The pattern has no hole {name!r}; it has {', '.join(self.filling) or 'none'}."

    def __getattr__(self, name: str) -> Any:
        if name in self.filling:
            return self.filling[name]
        if name in ASKED:
            return partial(ASKED[name], self)
        raise AttributeError(self._no_hole(name))


def _type(of: PatternMatch, what: Any) -> Type:
    """`m.type(x)`: the type of a hole's filling, or of an expression."""
    name = what if isinstance(what, str) else what.name if isinstance(what, pt.Hole) else None
    value = what if name is None else of[name]
    if not isinstance(value, Expr):
        message, hint = "Only an expression has a type.", "An attribute is its value: m.axis."
        raise RuleRefused(Diagnostic("bad-rule", message, None, "an expression", repr(value), hint))
    return type_of(value)


def _shape(of: PatternMatch, what: Any) -> tuple[Any, ...]:
    """`m.shape(x)`: its sizes, an int where it is known, otherwise the term of the dim."""
    found = _type(of, what)
    if not isinstance(found, TensorType):
        message = "Only a tensor has a shape."
        raise RuleRefused(Diagnostic("bad-rule", message, None, "a tensor", str(found)))
    return tuple(size if known(size) is None else known(size) for size in found.shape)


def _value(of: PatternMatch, what: Any) -> Any:
    """`m.value(axes)`: an attribute with plain integers where its sizes are known."""
    return plain(of[what] if isinstance(what, str | pt.Hole) else what)


def plain(value: Any) -> Any:
    """The value of an attribute with integers in the place of sizes that are known."""
    if isinstance(value, tuple):
        return tuple([plain(each) for each in value])
    number = known(value) if isinstance(value, Scalar) else None
    return value if number is None else number


# fmt: off
ASKED: Final[Mapping[str, Callable[[PatternMatch, Any], Any]]] = {
    "type":  _type,
    "shape": _shape,
    "value": _value,
}
# fmt: on
"""Queries of a match by name, unless a hole has that name."""


def match(pattern: Term, term: Term) -> PatternMatch | None:
    """The filling with which `pattern` equals `term`, or None."""
    for _, matcher in compiled(pattern):
        filling: Filling = {}
        if matcher(term, filling):
            return PatternMatch(filling)
    return None


def compiled(pattern: Term) -> tuple[tuple[Head, Matcher], ...]:
    """A matcher for each alternative, with the head that its terms must have."""
    return tuple((head(term), _late(term)) for term in pt.alternatives(pattern))


def _late(pattern: Term) -> Matcher:
    """A matcher that is made when it is first asked: most rules of a table never are."""
    known: list[Matcher] = []

    def matcher(term: Any, filling: Filling) -> bool:
        if not known:
            known.append(_whole(pattern))
        return known[0](term, filling)

    return matcher


@lru_cache(maxsize=4096)  # whoever asks what a match covered needs it again
def _whole(pattern: Term) -> Matcher:
    """A matcher that also checks the scopes of bound variables."""
    matcher = part_matcher(pattern)
    if not any(type(node).binds for node in post_order(pattern)):
        return matcher
    if (clear := is_clear(pattern)) is None:
        return matcher
    return lambda term, filling: matcher(term, filling) and clear(filling)


def no_bool(answer: Term, of: str, place: Place | None = None) -> RuleRefused:
    """The refusal of a guard or predicate that answers with a term: every term would mean yes."""
    return RuleRefused(
        Diagnostic(
            "bad-rule",
            f"{of} gives a term where a bool is needed.",
            place,
            expected="True or False",
            found=repr(answer),
            suggestion="Ask about values: c.numpy() of a constant, c.value of an index literal.",
        )
    )


def covered(pattern: Term, term: Term) -> list[Term]:
    """The nodes of `term` that the structure of `pattern` took apart, the root first."""
    for alternative in pt.alternatives(pattern):
        if _whole(alternative)(term, {}):
            pairs: list[tuple[Term, Term]] = [(alternative, term)]
            for wanted, found in pairs:
                if isinstance(wanted, pt.Recursive):
                    inner: Filling = {}
                    part_matcher(wanted)(found, inner)
                    turns = inner[wanted.name]
                    pairs.extend(zip(turns.patterns, turns.terms, strict=True))
                elif not type(wanted).hole and len(wanted._children) == len(found._children):
                    pairs.extend(zip(wanted._children, found._children, strict=True))
            solid = dict.fromkeys(found for wanted, found in pairs if not type(wanted).hole)
            return list(solid) or [term]
    return [term]


def head(pattern: Term) -> Head:
    """The class, and for an operator its name, of every term that `pattern` matches."""
    if type(pattern).hole or isinstance(pattern, pt.Recursive):
        return None
    if isinstance(pattern, Literal):
        return (Const, None)
    return (type(pattern), pattern.op if isinstance(pattern, Apply) else None)


def is_scalar_constant(term: Any, value: float) -> bool:
    """Whether `term` is a scalar constant of that value: `2` is found as 2, 2.0 and f16's 2."""
    if not isinstance(term, Const) or term.shape:
        return False
    found = term.numpy()[()].item()
    return found == value and (found != 0 or not _is_negative_zero(found))


def _is_negative_zero(value: Any) -> bool:
    return isinstance(value, float) and leaf_key(value) == leaf_key(-0.0)


def part_matcher(pattern: Any) -> Matcher:
    if isinstance(pattern, pt.Hole):
        return _hole(pattern.name, _demands(pattern))
    if isinstance(pattern, pt.IndexHole):
        return _hole(pattern.name, _index_demands(pattern))
    if isinstance(pattern, Literal):
        value = pattern.value
        return lambda term, _: is_scalar_constant(term, value) or term is pattern
    if isinstance(pattern, Apply):
        return _apply(pattern)
    if isinstance(pattern, pt.Again):
        return _again(pattern.name)
    if isinstance(pattern, pt.Recursive):
        return _recursive(pattern)
    if isinstance(pattern, pt.Outputs):
        return _node(Tuple(pattern.patterns))  # type: ignore[arg-type]  # patterns for expressions
    if isinstance(pattern, Term) and type(pattern).variable:
        return lambda term, _: term is pattern
    if isinstance(pattern, Scalar) and not pt.hole_names(pattern):
        return lambda term, _: term is pattern  # without holes, equal terms are one object
    if isinstance(pattern, Term):
        return _node(pattern)
    if isinstance(pattern, tuple):
        return _items(pattern)
    wanted = leaf_key(pattern)
    return lambda value, _: leaf_key(value) == wanted


def _hole(name: str, demands: tuple[pt.Predicate, ...]) -> Matcher:
    def fill(value: Any, filling: Filling) -> bool:
        if name in filling:
            seen = filling[name]
            return seen is value or leaf_key(seen) == leaf_key(value)
        for demand in demands:
            if not demand(value):
                return False
        filling[name] = value
        return True

    return fill


def _apply(pattern: Apply) -> Matcher:
    op, arity = pattern.op, len(pattern.args)
    args = tuple(part_matcher(arg) for arg in pattern.args if not isinstance(arg, pt.Rest))
    rest = next((arg.name for arg in pattern.args if isinstance(arg, pt.Rest)), None)
    attrs = tuple(part_matcher(value) for _, value in pattern.attrs)

    def walk(term: Any, filling: Filling) -> bool:
        if term.__class__ is not Apply or term.op != op:
            return False
        given = term.args
        if rest is None:
            if len(given) != arity:
                return False
        elif len(given) < len(args):
            return False
        for matcher, arg in zip(args, given, strict=False):
            if not matcher(arg, filling):
                return False
        for matcher, (_, value) in zip(attrs, term.attrs, strict=True):
            if not matcher(value, filling):
                return False
        return rest is None or _hole(rest, ())(given[len(args) :], filling)

    return walk


def _again(name: str) -> Matcher:
    """Accepts any term, to be matched in the next round."""

    def fill(term: Any, filling: Filling) -> bool:
        filling[name] = (*filling.get(name, ()), term)
        return isinstance(term, Term)

    return fill


def _recursive(pattern: pt.Recursive) -> Matcher:
    steps = pt.alternatives(pattern.step)
    ends = tuple(alternative for end in pattern.ends for alternative in pt.alternatives(end))
    matchers = [(term, part_matcher(term)) for term in (*steps, *ends)]
    whole = frozenset[str]().union(*map(pt.hole_names, ends))
    return RecursiveMatcher(pattern.name, matchers, whole, PatternMatch)


def _node(pattern: Term) -> Matcher:
    cls = type(pattern)
    fields = []
    for name, kind in zip(field_names(cls), field_kinds(cls), strict=True):
        value = getattr(pattern, name)
        if cls is Function and name == "ret" and value is None:
            continue  # to be inferred: of any type
        fields.append((name, _items(value) if kind is MANY else part_matcher(value)))
    if all(kind is ONE for kind in field_kinds(cls)):
        matchers = tuple(matcher for _, matcher in fields)

        def kids(term: Any, filling: Filling) -> bool:
            if term.__class__ is not cls:
                return False
            for matcher, kid in zip(matchers, term._children, strict=True):
                if not matcher(kid, filling):
                    return False
            return True

        return kids

    def walk(term: Any, filling: Filling) -> bool:
        return term.__class__ is cls and all(
            matcher(getattr(term, name), filling) for name, matcher in fields
        )

    return walk


def _items(pattern: tuple[Any, ...]) -> Matcher:
    matchers = tuple(map(part_matcher, pattern))

    def walk(value: Any, filling: Filling) -> bool:
        return (
            value.__class__ is tuple
            and len(value) == len(matchers)
            and all(m(item, filling) for m, item in zip(matchers, value, strict=True))
        )

    return walk


def _demands(of: pt.Hole) -> tuple[pt.Predicate, ...]:
    constraint = of.constraint
    if constraint is pt.ANYTHING:
        return ()
    found: list[pt.Predicate] = []
    if constraint.constant:
        found.append(lambda value: isinstance(value, Const))
    typed = (constraint.dtypes, constraint.ranks, constraint.shape)
    if any(each is not None for each in typed):
        found.append(lambda value: isinstance(value, Expr) and fits(type_of(value), constraint))
    if constraint.when is not None:
        found.append(_answering(constraint.when, of.name))
    return tuple(found)


def _answering(when: pt.Predicate, name: str) -> pt.Predicate:
    def ask(value: Any) -> bool:
        if isinstance(answer := when(value), Term):
            raise no_bool(answer, f"The predicate of the hole {name}")
        return answer

    return ask


def _index_demands(of: pt.IndexHole) -> tuple[pt.Predicate, ...]:
    """A scalar of the hole's dtype: a law of integers says nothing of floats."""
    dtype, when = of.dtype, of.constraint.when
    if of.constraint.constant:
        kind: pt.Predicate = lambda value: isinstance(value, Lit) and value.dtype is dtype  # noqa: E731  # two forms of one predicate
    else:
        kind = lambda value: isinstance(value, Scalar) and dtype_of(value) is dtype  # noqa: E731  # as above
    return (kind,) if when is None else (kind, _answering(when, of.name))


def fits(of: object, constraint: pt.Constraint) -> bool:
    """Whether a type satisfies a hole's constraint."""
    if not isinstance(of, TensorType):
        return False
    if constraint.dtypes is not None and of.dtype not in constraint.dtypes:
        return False
    if constraint.ranks is not None and len(of.shape) not in constraint.ranks:
        return False
    return constraint.shape is None or (
        len(of.shape) == len(constraint.shape)
        and all(
            want is None or known(size) == want
            for size, want in zip(of.shape, constraint.shape, strict=True)
        )
    )
