"""Dims: index terms in normal form.

A dim is a polynomial with integer coefficients over variables and other index terms (quotients,
remainders, minima …). Normal form: products expanded, like terms collected, the constant last.
Other terms stay in order of first occurrence, because ordering by name would make a type's digest
depend on names. So `n + m` and `m + n` are two terms, and `same_dim` says they are equal.

>>> n, m = dim_var("n"), dim_var("m")
>>> normal_dim(2 * (n + 1) - n) is normal_dim(n + 2), same_dim(n + m, m + n)
(True, True)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import gcd, prod
from typing import Final, TypeAlias

from plica.core import Name, Term, post_order, rebuild, substitute
from plica.ir.loop.scalar import Add, FloorDiv, FloorMod, Lit, Max, Min, Mul, Scalar, ScalarVar, Sub
from plica.ir.type.dtype import i64

Monomial: TypeAlias = tuple[Scalar, ...]  # a product of atoms; () is 1
Key: TypeAlias = frozenset[tuple[Scalar, int]]  # the same product whatever its order
Polynomial: TypeAlias = dict[Key, tuple[Monomial, int]]  # in order of first sight

DimLike: TypeAlias = "int | Scalar"

MAX_TERMS: Final = 256
"""A product of more terms than this is not multiplied out: there could be exponentially many."""


def dim_var(name: str | Name) -> ScalarVar:
    """A symbolic dim."""
    return ScalarVar(name if isinstance(name, Name) else Name(name), i64)


def dim(value: DimLike) -> Scalar:
    """A dim in normal form."""
    return normal_dim(value) if isinstance(value, Scalar) else Lit(value, i64)


def known(value: Scalar) -> int | None:
    """The value of a dim, or None if it is symbolic."""
    return int(value.value) if isinstance(value, Lit) else None


def same_dim(a: Scalar, b: Scalar) -> bool:
    """Whether two dims are equal whatever their variables are."""
    return a is b or not _plus(polynomial(a), polynomial(b), -1)


def is_size(value: Scalar) -> bool:
    """Whether a dim is at least 0 for all sizes of its variables; `False` where that is not seen.

    A variable is the size of an axis, so never negative; a loop's variable may be, so the normal
    form itself does not ask this.

    >>> n = dim_var("n")
    >>> is_size(n * 2 + 1), is_size(n - 1), is_size(Max(n, Lit(2, i64)) - 1)
    (True, False, True)
    """
    total = 0
    for atoms, coefficient in polynomial(value).values():
        bounds = [lower_bound(atom) for atom in atoms]
        if (coefficient < 0 and bounds) or any(bound is None or bound < 0 for bound in bounds):
            return False
        total += coefficient * prod([bound for bound in bounds if bound is not None])
    return total >= 0


def lesser(a: Scalar, b: Scalar) -> Scalar:
    """The minimum of two dims; one of them if that holds for all sizes.

    >>> n = dim_var("n")
    >>> lesser(n, n + n) is n
    True
    >>> shorter = normal_dim(Max(n - 1, Lit(0, i64)))
    >>> lesser(shorter, n) is shorter
    True
    """
    whole = normal_dim(a)
    parts = (whole.left, whole.right) if isinstance(whole, Max) else (whole,)
    if all(is_size(normal_dim(b - part)) for part in parts):
        return whole
    return normal_dim(b) if is_size(normal_dim(a - b)) else normal_dim(Min(a, b))


def greater(a: Scalar, b: Scalar) -> Scalar:
    """The maximum of two dims; one of them if that holds for all sizes.

    >>> n = dim_var("n")
    >>> greater(n, Lit(0, i64)) is n
    True
    """
    if is_size(normal_dim(b - a)):
        return normal_dim(b)
    return normal_dim(a) if is_size(normal_dim(a - b)) else normal_dim(Max(a, b))


def lower_bound(value: Scalar) -> int | None:
    """A lower bound of a dim, or None if none is found.

    >>> n = dim_var("n")
    >>> lower_bound(Min(n, Lit(240, i64)) + 160), lower_bound(Max(n, Lit(3, i64)) // 2)
    (160, 1)
    """
    memo: dict[Term, int | None] = {}
    for node in post_order(value):
        match node:
            case Lit(number, _):
                memo[node] = int(number)
            case ScalarVar():
                memo[node] = 0
            case _:
                memo[node] = _joined_bound(node, [memo[child] for child in node._children])
    return memo[value]


def _joined_bound(of: Term, bounds: list[int | None]) -> int | None:
    """The lower bound of a term whose parts have these."""
    seen = [bound for bound in bounds if bound is not None]
    match of:
        case Max() if seen:
            return max(seen)
        case FloorMod() if bounds[1] is not None and bounds[1] >= 0:
            return 0  # the sign of a remainder is that of the divisor
        case _ if len(seen) < 2:
            return None
        case Add():
            return sum(seen)
        case Min():
            return min(seen)
        case Mul() if min(seen) >= 0:
            return prod(seen)
        case FloorDiv(_, Lit(by, _)) if int(by) > 0:
            return seen[0] // int(by)
        case FloorDiv() if min(seen) >= 0:
            return 0
        case _:
            return None


def product(dims: Iterable[Scalar]) -> Scalar:
    """The product of dims in normal form."""
    every = tuple(dims)
    numbers = [int(each.value) for each in every if isinstance(each, Lit)]
    if len(numbers) == len(every):
        return Lit(prod(numbers), i64)
    total = _monomial((), 1)
    for scalar in every:
        total = _times(total, polynomial(scalar))
    return from_polynomial(total)


def quotient(whole: Scalar, part: Scalar) -> Scalar | None:
    """`whole / part` where the division is exact whatever the variables are, otherwise None.

    By a sum only a quotient that is one product is looked for.

    >>> n, m = dim_var("n"), dim_var("m")
    >>> quotient((n - 6) * m * 64, (n - 6) * m) is Lit(64, i64), quotient(n * n - 1, n - 1)
    (True, None)
    """
    left, right = polynomial(whole), polynomial(part)
    if len(right) != 1:
        if not right or len(left) != len(right):
            return None
        first, *_ = [from_polynomial(_monomial(*each)) for each in right.values()]
        for each in left.values():
            scalar = quotient(from_polynomial(_monomial(*each)), first)
            if scalar is not None and same_dim(product((scalar, part)), whole):
                return scalar
        return None
    ((atoms, factor),) = right.values()
    result: Polynomial = {}
    for monomial, coefficient in left.values():
        rest = list(monomial)
        for atom in atoms:
            if atom not in rest:
                return None
            rest.remove(atom)
        if coefficient % factor:
            return None
        result |= _monomial(tuple(rest), coefficient // factor)
    return from_polynomial(result)


def evaluate(value: Scalar, sizes: Mapping[Term, int]) -> int | None:
    """The number a dim is when its variables have the given sizes."""
    return known(normal_dim(substitute(value, {v: Lit(n, i64) for v, n in sizes.items()})))


def normal_dim(value: Term) -> Scalar:
    """The normal form of an index term.  `normal_dim(normal_dim(d)) is normal_dim(d)`."""
    if isinstance(value, Lit | ScalarVar):
        return value
    return from_polynomial(polynomial(value))


def polynomial(value: Term) -> Polynomial:
    """An index term as a polynomial; terms other than sums and products are atoms."""
    return dict(_polynomial(value))


@lru_cache(maxsize=8192)
def _polynomial(value: Term) -> Polynomial:
    memo: dict[Term, Polynomial] = {}
    for node in post_order(value):
        match node:
            case Lit(number, _):
                memo[node] = _monomial((), int(number))
            case Add(left, right):
                memo[node] = _plus(memo[left], memo[right], 1)
            case Sub(left, right):
                memo[node] = _plus(memo[left], memo[right], -1)
            case Mul(left, right):
                a, b = memo[left], memo[right]
                if len(a) * len(b) <= MAX_TERMS:
                    memo[node] = _times(a, b)
                else:
                    whole = rebuild(node, (from_polynomial(a), from_polynomial(b)))
                    memo[node] = _monomial((whole,), 1)
            case (
                FloorDiv(left, right) | FloorMod(left, right) | Min(left, right) | Max(left, right)
            ):
                x, y = from_polynomial(memo[left]), from_polynomial(memo[right])
                memo[node] = _opaque(rebuild(node, (x, y)), x, y)
            case Scalar():
                memo[node] = _monomial((node,), 1)
            case _:
                memo[node] = {}  # a dtype: no part of the value
    return memo[value]


def from_polynomial(terms: Polynomial) -> Scalar:
    """The term of a polynomial."""
    result: Scalar | None = None
    for atoms, coefficient in sorted(terms.values(), key=lambda term: not term[0]):
        size = abs(coefficient) if result is not None else coefficient
        part: Scalar | None = None if size == 1 and atoms else Lit(size, i64)
        for atom in atoms:
            part = atom if part is None else Mul(part, atom)
        assert part is not None
        if result is None:
            result = part
        else:
            result = Add(result, part) if coefficient > 0 else Sub(result, part)
    return Lit(0, i64) if result is None else result


def _opaque(node: Scalar, a: Scalar, b: Scalar) -> Polynomial:
    """A quotient, remainder, minimum or maximum, computed where it can be."""
    x, y = known(a), known(b)
    if x is not None and y is not None:
        match node:
            case FloorDiv():
                return _monomial((), x // y if y else 0)
            case FloorMod():
                return _monomial((), x % y if y else 0)
            case Min():
                return _monomial((), min(x, y))
            case _:
                return _monomial((), max(x, y))
    if isinstance(node, FloorDiv) and y is not None and y > 0:
        return _pull_out(a, y)
    if isinstance(node, FloorMod) and y == 1:
        return {}
    if isinstance(node, Min | Max):
        return polynomial(a) if same_dim(a, b) else _multiple(node, a, b)
    return _monomial((node,), 1)


def _multiple(node: Min | Max, a: Scalar, b: Scalar) -> Polynomial:
    """`min(4*k, 6)` is `2 * min(2*k, 3)`: what divides both sides leaves them."""
    sides = polynomial(a), polynomial(b)
    most = gcd(*[coefficient for side in sides for _, coefficient in side.values()])
    if most == 1:
        return _monomial((node,), 1)
    x, y = (
        from_polynomial({key: (atoms, each // most) for key, (atoms, each) in side.items()})
        for side in sides
    )
    return _monomial((type(node)(x, y),), most)


def _pull_out(a: Scalar, y: int) -> Polynomial:
    """`(y*k + r) // y` is `k + r // y`: the part that divides leaves the quotient."""
    whole: Polynomial = {}
    rest: Polynomial = {}
    for atoms, coefficient in polynomial(a).values():
        k, r = divmod(coefficient, y)
        whole |= _monomial(atoms, k)
        rest |= _monomial(atoms, r)
    if rest.keys() <= {frozenset()}:  # a constant below y leaves nothing
        return whole
    return _plus(whole, _monomial((FloorDiv(from_polynomial(rest), Lit(y, i64)),), 1), 1)


def _monomial(atoms: Monomial, coefficient: int) -> Polynomial:
    return {_key(atoms): (atoms, coefficient)} if coefficient else {}


def _key(atoms: Monomial) -> Key:
    return frozenset(Counter(atoms).items())


def _plus(a: Polynomial, b: Polynomial, sign: int) -> Polynomial:
    total = dict(a)
    for key, (atoms, coefficient) in b.items():
        _add_to(total, key, atoms, sign * coefficient)
    return total


def _times(a: Polynomial, b: Polynomial) -> Polynomial:
    total: Polynomial = {}
    for left, x in a.values():
        for right, y in b.values():
            _add_to(total, _key(left + right), left + right, x * y)
    return total


def _add_to(total: Polynomial, key: Key, atoms: Monomial, coefficient: int) -> None:
    seen, already = total.get(key, (atoms, 0))
    if already + coefficient:
        total[key] = seen, already + coefficient
    else:
        total.pop(key, None)
