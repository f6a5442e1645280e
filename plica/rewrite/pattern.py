"""Patterns: terms with holes, built by the same functions as terms.

    Pattern ::= a term in which Hole | IndexHole | Rest | Either | Recursive stand for subterms or
                attributes; Dominator and Outputs, as a whole left side, for several terms
    Right   ::= a term with the holes of the pattern, and Derived for what is computed of them

>>> from plica.ir.op import find
>>> x, p, q = holes("x p q")
>>> transpose = find("transpose")
>>> sorted(hole_names(transpose(transpose(x, p), q)))
['p', 'q', 'x']

A hole used twice means the same term. `Literal` in a pattern matches a scalar constant of that
value in any dtype. `either(p, q)` matches what one of them matches, trying them in order.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Set
from functools import lru_cache
from typing import Any, TypeAlias, cast

from attrs import frozen

from plica.core import RuleRefused, Term, post_order, rebuild
from plica.ir.graph.expression import Expr
from plica.ir.loop.scalar import Scalar
from plica.ir.type import DTYPES, DType, dtype, i64
from plica.runtime.error import Diagnostic, wrong_argument

Predicate: TypeAlias = Callable[[Any], bool]
"""Any: a graph term, for a constant hole a `Const` (`.numpy()`), for an index constant a `Lit`
(`.value`), for an attribute hole the value itself."""


@frozen(eq=False)
class Constraint(Term):
    """A hole's constraint on its filling; None is no constraint."""

    constant: bool = False
    dtypes: tuple[DType, ...] | None = None
    ranks: tuple[int, ...] | None = None
    shape: tuple[int | None, ...] | None = None
    when: Predicate | None = None


ANYTHING = Constraint()


@frozen(eq=False)
class Hole(Expr):
    """Matches an expression, or the value of an attribute."""

    hole = True
    unfilled = True
    name: str
    constraint: Constraint = ANYTHING


@frozen(eq=False)
class IndexHole(Scalar):
    """Matches a scalar term; with `constant` an integer literal."""

    hole = True
    name: str
    constraint: Constraint = ANYTHING
    dtype: DType = i64


@frozen(eq=False)
class Rest(Expr):
    """Matches all remaining arguments of an operator of any arity."""

    hole = True
    name: str


@frozen(eq=False)
class Either(Expr):
    """What one of the patterns matches."""

    patterns: tuple[Term, ...]


@frozen(eq=False)
class Dominator(Expr):
    """Matches a region from a parent along a path to a child; see `dominates`."""

    parent: Term
    path: Term
    child: Term


@frozen(eq=False)
class Again(Expr):
    """Refers to the recursive pattern from within its step."""

    hole = True
    name: str


@frozen(eq=False)
class Recursive(Expr):
    """Matches a step, repeatedly where the step says so; see `plica.rewrite.recursive`."""

    name: str
    step: Term
    ends: tuple[Term, ...]


@frozen(eq=False)
class Outputs(Expr):
    """Several terms that share parts; see `plica.rewrite.output_groups`."""

    patterns: tuple[Term, ...]
    sole: tuple[Term, ...]


@frozen
class TermFunction:
    """A function that a right side may apply: to axes, orders, shapes and terms that it matched.

    Called in a rule, it gives a part of the right side; `compute` is applied to what was matched.
    """

    name: str
    compute: Callable[..., Any]  # Any: attributes and terms

    def __call__(self, *args: Any) -> Any:
        return Derived(self, args)


@frozen(eq=False)
class Derived(Expr):
    """On a right side: what a function makes of matched values; None: the rule does not apply."""

    unfilled = True
    function: TermFunction
    args: tuple[Any, ...]  # Any: terms with holes, and values


def derived(compute: Callable[..., Any]) -> TermFunction:
    """The function as a word of right sides, which the prover may know by its name."""
    return TermFunction(compute.__name__, compute)


def hole(
    name: str,
    *,
    constant: bool = False,
    dtypes: DType | str | Iterable[DType | str] | None = None,
    rank: int | Iterable[int] | None = None,
    shape: Iterable[int | None] | None = None,
    when: Predicate | None = None,
) -> Any:
    """A hole with demands: a constant, one of some dtypes, of some ranks, a shape (None: any)."""
    words = (dtypes,) if isinstance(dtypes, str | DType) else dtypes
    ordered = sorted(words, key=str) if isinstance(words, Set) else words  # the same everywhere
    asked = None if ordered is None else tuple(ordered)
    ranks = None if rank is None else tuple(rank) if isinstance(rank, Iterable) else (rank,)
    sizes = _sizes(name, shape)
    wrong = [each for each in asked or () if isinstance(each, str) and not _is_dtype(each)]
    _demand(name, "the dtypes", wrong, f"some of {', '.join(each.name for each in DTYPES)}")
    _demand(name, "the rank", [each for each in ranks or () if not _is_size(each)], "0 or more")
    predicate: object = when  # whatever a user gives
    refused = [] if predicate is None or callable(predicate) else [predicate]
    _demand(name, "when", refused, "a function")
    allowed = None if asked is None else tuple(map(dtype, asked))
    return Hole(word(name), Constraint(constant, allowed, ranks, sizes, when))


def _sizes(name: str, shape: Any) -> tuple[int | None, ...] | None:  # Any: what a user gives
    if shape is None:
        return None
    sizes = tuple(shape) if isinstance(shape, Iterable) else (shape,)
    wrong = [size for size in sizes if size is not None and not _is_size(size)]
    _demand(name, "the shape", wrong if isinstance(shape, Iterable) else [shape], "(2, None)")
    return sizes


def _is_dtype(word: str) -> bool:
    return any(word in (each.name, each.numpy.name) for each in DTYPES)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _demand(name: str, what: str, wrong: list[Any], expected: str) -> None:
    if wrong:
        message = f"A hole {name} cannot ask for {what} {', '.join(map(repr, wrong))}."
        raise RuleRefused(Diagnostic("bad-rule", message, expected=expected))


def holes(names: str) -> tuple[Any, ...]:
    """Holes for graph patterns. Any: a hole can stand for a term or an attribute."""
    return tuple(Hole(name) for name in _names(names))


def constants(names: str) -> tuple[Any, ...]:
    """Holes that only constants fill."""
    return tuple(hole(name, constant=True) for name in _names(names))


def _names(words: str, most: int | None = None) -> list[str]:
    """The names in a text, apart by blanks or commas; each can be written as `m.name`."""
    if not isinstance(words, str):
        raise wrong_argument("Holes are named by a text.", "names apart by blanks", words)
    names = words.replace(",", " ").split()
    wrong = [name for name in names if not name.isidentifier() or names.count(name) > 1]
    if wrong or not names or (most is not None and len(names) > most):
        message = "The name of a hole must be an identifier, and no two have one name."
        expected = "one name" if most == 1 else "names apart by blanks, as in 'x y'"
        found = ", ".join(map(repr, wrong)) or repr(words)
        raise RuleRefused(Diagnostic("bad-rule", message, expected=expected, found=found))
    return names


def word(name: str) -> str:
    """One name, as holes have them."""
    return _names(name, 1)[0]


def index_holes(names: str) -> tuple[Any, ...]:
    """Holes for index patterns: `x + y` of these is an index term."""
    return tuple(IndexHole(name) for name in _names(names))


def index_constants(names: str, when: Predicate | None = None) -> tuple[Any, ...]:
    """Holes that only integer literals fill."""
    demand = Constraint(constant=True, when=when)
    return tuple(IndexHole(name, demand) for name in _names(names))


def either(*patterns: Any) -> Any:
    """What one of the patterns matches, the first that does."""
    return Either(patterns)


def optional(wrap: Callable[[Any], Any], inner: Any) -> Any:
    """`wrap(inner)` or `inner` alone; the longer match is preferred."""
    return Either((wrap(inner), inner))


def dominates(parent: Any, path: Any, child: Any) -> Any:
    """Matches a child at which all uses of a parent have joined again: a region with one result.

    Every expression on a path from the parent to the child matches `path`, and only the child is
    used outside of the region. Holes of the path are matched anew for each expression on it. Rules
    with such a left side are applied by `plica.rewrite.dominate.rewrite_dominated`; the parts are
    available as `m.parent`, `m.path` (a tuple) and `m.child` besides the holes.
    """
    return Dominator(parent, path, child)


def bound_names(pattern: Term) -> frozenset[str]:
    """The names that a match of the pattern fills."""
    if isinstance(pattern, Dominator):
        ends = hole_names(pattern.parent) | hole_names(pattern.child)
        return ends | {"parent", "path", "child"}
    return frozenset(cast(Any, node).name for node in once(pattern) if type(node).hole)


def once(pattern: Term) -> list[Term]:
    """The nodes of a pattern that are matched once: those of recursive steps are not."""
    found: dict[Term, None] = {}
    stack = [pattern]
    while stack:
        node = stack.pop()
        if node not in found:
            found[node] = None
            stack.extend(node.ends if isinstance(node, Recursive) else node._children)
    return list(found)


def recursions(pattern: Term) -> list[Recursive]:
    """The recursive patterns of a pattern, those inside the steps of others left out."""
    return [node for node in once(pattern) if isinstance(node, Recursive)]


def hole_names(pattern: Term) -> frozenset[str]:
    """The names of the holes of a pattern."""
    return frozenset(cast(Any, node).name for node in post_order(pattern) if type(node).hole)


@lru_cache(maxsize=4096)
def alternatives(pattern: Term) -> tuple[Term, ...]:
    """The patterns without `Either` that together match what `pattern` matches, in order.

    A recursive pattern is one alternative: it chooses anew in each iteration.
    """
    order = post_order(pattern)
    if not any(isinstance(node, Either) for node in order):
        return (pattern,)
    memo: dict[Term, tuple[Term, ...]] = {}
    for node in order:
        if isinstance(node, Either):
            memo[node] = tuple(dict.fromkeys(a for each in node.patterns for a in memo[each]))
        elif isinstance(node, Recursive):
            memo[node] = (node,)
        else:
            options = [memo[kid] for kid in node._children]
            memo[node] = tuple(rebuild(node, kids) for kids in itertools.product(*options))
    return memo[pattern]
