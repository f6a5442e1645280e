"""Cases: a condition split into systems of linear constraints over quasi-affine terms.

    condition  =  one of several systems;   system  =  all of several constraints `e >= 0`, `e == 0`

>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.loop.scalar import Lt, Min
>>> x, y = dim_var("x"), dim_var("y")
>>> [len(system) for system in systems(Lt(Min(x, y), x))]
[2, 2]

Minima, maxima and selects are split by which side they take, bools by their value.  A product of
unknowns, or a quotient by one, is replacing by a fresh unknown: a system without solutions then has
none before either, and only such answers are used of it (`Linearised.exact` tells).
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from plica.analysis.index.context import FALSE, TRUE, Context, conjunction, negated
from plica.analysis.index.point import innermost, replacing, structure_nodes, structure_parts
from plica.analysis.index.polynomial import Key, Polynomial, Product, atom, number, to_term
from plica.core import Name, parts_first
from plica.ir.loop import scalar as sc
from plica.ir.type import i64


class LinearConstraint(NamedTuple):
    """`term >= 0`, or `term == 0`."""

    term: sc.Scalar
    equality: bool


System: TypeAlias = tuple[LinearConstraint, ...]

MAX_CASES: Final = 512


def systems(condition: sc.Scalar) -> tuple[System, ...]:
    """As `split`, for conditions known to be small."""
    found = split(condition)
    assert not isinstance(found, int)
    return found


def split(condition: sc.Scalar) -> tuple[System, ...] | int:
    """The systems of which at least one holds exactly where the condition does; if there are too
    many, their number."""
    work: list[tuple[tuple[sc.Scalar, ...], System]] = [((condition,), ())]
    found: list[System] = []
    made = 1
    while work:
        todo, done = work.pop()
        if not todo:
            found.append(done)
            continue
        first, rest = todo[0], todo[1:]
        branches = _branches(first, rest, done)
        made += len(branches)
        if made > 8 * MAX_CASES or len(found) > MAX_CASES:
            return MAX_CASES
        work += reversed(branches)
    return tuple(found)


def contrary(condition: sc.Scalar, context: Context) -> sc.Scalar:
    """The negation that must be unsatisfiable for the condition to hold."""
    return conjunction((*context.conditions(), negated(condition)))


def _branches(
    first: sc.Scalar, rest: tuple[sc.Scalar, ...], done: System
) -> list[tuple[tuple[sc.Scalar, ...], System]]:
    match first:
        case sc.Lit(value):
            return [(rest, done)] if value else []
        case sc.And(a, b):
            return [((a, b, *rest), done)]
        case sc.Or(a, b):
            return [((a, *rest), done), ((negated(a), b, *rest), done)]
        case sc.Not(a) if (other := negated(a)) is not first:
            return [((other, *rest), done)]
        case sc.Ne(a, b) if sc.dtype_of(a) is i64:
            return [((sc.Lt(a, b), *rest), done), ((sc.Lt(b, a), *rest), done)]
        case sc.Select(c, a, b):  # of bools
            return [((c, a, *rest), done), ((negated(c), b, *rest), done)]
        case sc.Lt(a, b) | sc.Le(a, b) | sc.Eq(a, b) if sc.dtype_of(a) is i64:
            if (choice := innermost(_is_choice, (first,))) is None:
                return [(rest, (*done, _constraint(first)))]
            return [
                ((*said, *map(replacing({choice: by}), (first, *rest))), done)
                for said, by in _sides(choice)
            ]
        case _:  # an unknown bool
            unknown = first.value if isinstance(first, sc.Not) else first
            truth = FALSE if isinstance(first, sc.Not) else TRUE
            return [(tuple(map(replacing({unknown: truth}), rest)), done)]


def _constraint(of: sc.Scalar) -> LinearConstraint:
    match of:
        case sc.Lt(a, b):
            return LinearConstraint(sc.Sub(sc.Sub(b, a), sc.Lit(1, i64)), False)
        case sc.Le(a, b):
            return LinearConstraint(sc.Sub(b, a), False)
        case sc.Eq(a, b):
            return LinearConstraint(sc.Sub(a, b), True)
    raise AssertionError(of)


def _sides(choice: sc.Scalar) -> list[tuple[tuple[sc.Scalar, ...], sc.Scalar]]:
    match choice:
        case sc.Min(a, b):
            return [((sc.Le(a, b),), a), ((sc.Lt(b, a),), b)]
        case sc.Max(a, b):
            return [((sc.Le(b, a),), a), ((sc.Lt(a, b),), b)]
        case sc.Select(c, a, b):
            return [((c,), a), ((negated(c),), b)]
    raise AssertionError(choice)


def _is_choice(node: sc.Scalar) -> bool:
    """Whether a node is a minimum, a maximum or a select of indices."""
    return isinstance(node, sc.Min | sc.Max) or (
        isinstance(node, sc.Select) and sc.dtype_of(node) is i64
    )


# --- quasi-affine terms --------------------------------------------------------------------------


def linear(condition: sc.Scalar, context: Context) -> bool:
    """Whether nothing is a product of unknowns or a quotient by one."""
    for node in structure_nodes(condition, *context.conditions()):
        if isinstance(node, sc.Mul) and not isinstance(node.left, sc.Lit):
            if not isinstance(node.right, sc.Lit):
                return False
        elif isinstance(node, sc.FloorDiv | sc.FloorMod) and not isinstance(node.right, sc.Lit):
            return False
    return True


class Linearised(NamedTuple):
    """Constraints over quasi-affine terms; exact where no fresh unknown was needed."""

    system: System
    exact: bool


def linearised(system: System) -> Linearised | None:
    """The system with fresh unknowns for terms that are not quasi-affine.

    None if a number does not fit into an index.
    """
    fresh: dict[object, sc.Scalar] = {}
    memo: dict[sc.Scalar, Polynomial] = {}
    result: list[LinearConstraint] = []
    for term, equality in system:
        for node in _arithmetic_order(term, memo):
            if (made := _linear(node, memo, fresh)) is None:
                return None
            memo[node] = made
        if (whole := _closed(memo[term], fresh)) is None:
            return None
        result.append(LinearConstraint(whole, equality))
    return Linearised(tuple(result), not fresh)


def _arithmetic_order(term: sc.Scalar, known: dict[sc.Scalar, Polynomial]) -> list[sc.Scalar]:
    """The nodes of a term without a known polynomial, operands first."""
    if term in known:
        return []

    def parts(node: sc.Scalar) -> list[sc.Scalar]:
        return [part for part in structure_parts(node)[::-1] if part not in known]

    return parts_first(parts, term)


def _linear(
    node: sc.Scalar, known: dict[sc.Scalar, Polynomial], fresh: dict[object, sc.Scalar]
) -> Polynomial | None:
    match node:
        case sc.Lit(value):
            return number(int(value))
        case sc.Add(a, b):
            return known[a].plus(known[b])
        case sc.Sub(a, b):
            return known[a].plus(known[b], -1)
        case sc.Mul(a, b):
            return known[a].times(known[b])
        case sc.FloorDiv(a, b) | sc.FloorMod(a, b):
            left, right = _closed(known[a], fresh), _closed(known[b], fresh)
            if left is None or right is None:
                return None
            made = (
                sc.FloorDiv(left, right)
                if isinstance(node, sc.FloorDiv)
                else sc.FloorMod(left, right)
            )
            if isinstance(right, sc.Lit):
                return number(0) if right.value == 0 else atom(made)
            return atom(_unknown(made, fresh))
        case _:
            return atom(node)


def _closed(of: Polynomial, fresh: dict[object, sc.Scalar]) -> sc.Scalar | None:
    """A term in which each product of unknowns is one unknown."""
    terms: dict[Key, int] = {
        (_unknown(key, fresh) if isinstance(key, Product) else key): coefficient
        for key, coefficient in of.terms.items()
    }
    return to_term(Polynomial(of.constant, terms))


def _unknown(key: object, fresh: dict[object, sc.Scalar]) -> sc.Scalar:
    if (scalar := fresh.get(key)) is None:
        scalar = fresh[key] = sc.ScalarVar(Name("an unknown", len(fresh)), i64)
    return scalar
