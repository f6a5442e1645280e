"""Symbols: the sizes that an exported program leaves open, as dims of the graph language.

>>> _number_or_term(normal_dim(dim_var("n") - dim_var("n")))
0

Equal sizes: the simplest of the sizes that the guards of a program hold to be one.

Torch writes sizes as they were computed (`n - n // 2`, `4 * (n // 4)`), and records required
equalities as guards. Guards are asserted at each call, so both sides are interchangeable.

>>> from plica.ir.type.dim import dim_var
>>> n = dim_var("n")
>>> equal = EqualSizes([(n - n // 2, n // 2), (16 * (n // 4), 4 * n)])
>>> sizes = (n - n // 2 + 1, 8 * (n // 4), n // 3)
>>> [show_dim(equal.simplest(each), lambda v: str(v.name)) for each in sizes]
['n//2+1', '2*n', 'n//3']
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from itertools import count, product
from math import gcd
from typing import Any, Final, TypeAlias

from plica.core.name import Name
from plica.ir.loop.scalar import FloorDiv, FloorMod, Max, Min, Scalar, ScalarVar, index
from plica.ir.text.show.type import show_dim
from plica.ir.type.dim import dim_var, from_polynomial, known, normal_dim, polynomial, quotient

Size = int | Scalar
Sympy = Any  # sympy has no types, and is only there where torch is
Late: TypeAlias = Callable[[Sympy], "Scalar | None"]
"""What makes a dim of a number that is computed from sizes."""


class Symbols:
    """The symbols of a program: their names, and the numbers that some of them have.

    Symbols of data-dependent sizes are bound to terms during reading. Sizes that are no terms in
    dims, such as `int(1.3 * n)`, become dims if `late` creates them. A slice that may be shorter
    than torch assumed has the assumed length if `assumes_lengths`, else its own (`has_own_lengths`:
    there is one). Sizes equal by guards are written identically (`equal`).
    """

    def __init__(self, names: Mapping[Sympy, str], given: Mapping[str, int]) -> None:
        self.names = dict(names)
        self.given = dict(given)
        self.bound: dict[Sympy, Scalar] = {}
        self.late: Late | None = None
        self.equal = EqualSizes()
        self.assumes_lengths = True
        self.has_own_lengths = False
        self._numbers = count()

    def new_name(self, hint: str) -> Name:
        """A name that no variable of the program has: those of inputs have no numbers."""
        return Name(hint, next(self._numbers) + 1)

    def bind(self, expression: Sympy, term: Scalar) -> None:
        """Binds an unbound symbol to a term."""
        if expression.is_Symbol and expression not in self.names:
            self.bound.setdefault(expression, term)

    def depends_on_elements(self, expression: Sympy) -> bool:
        """Whether an expression has symbols that are bound."""
        return any(symbol in self.bound for symbol in expression.free_symbols)

    def sides(self, relation: Sympy) -> tuple[Scalar, Scalar] | None:
        """The two sizes that a relation compares; None for other forms."""
        left, right = (self._index(self.settled(arg)) for arg in relation.args)
        return None if left is None or right is None else (left, right)

    def least(self, relation: Sympy) -> tuple[Scalar, ...] | None:
        """Terms that are non-negative exactly if a relation holds, or None for other forms."""
        kind = type(relation).__name__
        if kind in ("And", "Or"):
            parts = [self.least(arg) for arg in relation.args]
            found = [part for part in parts if part is not None]
            if len(found) < len(parts):
                return None
            if kind == "And":
                return tuple(scalar for part in found for scalar in part)
            return (normal_dim(reduce(Max, [reduce(Min, part) for part in found])),)
        if kind not in _RELATIONS or (sides := self.sides(relation)) is None:
            return None
        return tuple(normal_dim(scalar) for scalar in _RELATIONS[kind](*sides))

    def term(self, expression: Sympy) -> Size | None:
        """A size as a number or an index term, or None for other forms."""
        return self._term(expression, self.late)

    def index_term(self, expression: Sympy) -> Size | None:
        """A size as `term` has it, if it follows from dims without being computed."""
        return self._term(expression, None)

    def _term(self, expression: Sympy, late: Late | None) -> Size | None:
        settled = self.settled(expression)
        if settled.is_number and settled.is_integer:
            return int(settled)
        scalar = self._index(settled, late)
        return None if scalar is None else _number_or_term(self.equal.simplest(normal_dim(scalar)))

    def holds(self, relation: Sympy) -> bool | None:
        """Whether a relation between sizes holds, or None if it depends on open ones."""
        settled = self.settled(relation)
        return bool(settled) if str(settled) in ("True", "False") else None

    def real(self, expression: Sympy) -> float | None:
        """A number computed from sizes, or None if it depends on open ones."""
        settled = self.settled(expression)
        return float(settled) if settled.is_number else None

    def settled(self, expression: Sympy) -> Sympy:
        """An expression with the numbers that some symbols have."""
        numbers = {s: self.given[n] for s, n in self.names.items() if n in self.given}
        return expression.subs(numbers) if numbers else expression

    def _index(self, expression: Sympy, late: Late | None = None) -> Scalar | None:
        """The index term of an expression: operands first, on a stack of our own."""
        done: dict[Sympy, Scalar | None] = {}
        stack = [(expression, False)]
        while stack:
            here, ready = stack.pop()
            if here in done:
                continue
            if not ready:
                stack.append((here, True))
                stack += [(arg, False) for arg in here.args]
                continue
            parts = [done[arg] for arg in here.args]
            known_ = [part for part in parts if part is not None]
            done[here] = self._node(here, known_) if len(known_) == len(parts) else _cut(here, self)
            if done[here] is None and late is not None and here.is_integer:
                done[here] = late(here)
        return done[expression]

    def _node(self, here: Sympy, parts: list[Scalar]) -> Scalar | None:
        if here.is_Integer:
            return index(int(here))
        if here.is_Symbol:
            name = self.names.get(here)
            return self.bound.get(here) if name is None else dim_var(name)
        match type(here).__name__:
            case "Add":
                return _joined(parts, lambda a, b: a + b)
            case "Mul":
                return _joined(parts, lambda a, b: a * b)
            case "Max":
                return _joined(parts, Max)
            case "Min":
                return _joined(parts, Min)
            case "FloorDiv" | "CleanDiv":
                return FloorDiv(*parts)
            case "Mod" | "PythonMod":
                return FloorMod(*parts)
            case "Pow":
                times = known(parts[1])
                if times is None or not 0 < times <= 8:
                    return None
                return _joined([parts[0]] * times, lambda a, b: a * b)
            case _:
                return None


_RELATIONS: Final[dict[str, Callable[[Scalar, Scalar], tuple[Scalar, ...]]]] = {
    "GreaterThan": lambda a, b: (a - b,),
    "StrictGreaterThan": lambda a, b: (a - b - 1,),
    "LessThan": lambda a, b: (b - a,),
    "StrictLessThan": lambda a, b: (b - a - 1,),
    "Equality": lambda a, b: (a - b, b - a),
    "Unequality": lambda a, b: ((a - b) * (a - b) - 1,),
}
"""The terms that are non-negative if a relation between two sizes holds."""


_FINEST: Final = 1 << 16
"""Scales of greater numerators or denominators are multiplied as floats are, and rounded."""


def _cut(here: Sympy, symbols: Symbols) -> Scalar | None:
    """The term that a size is which was scaled by a short fraction and cut: `int(1.5 * n)`."""
    if type(here).__name__ not in ("TruncToInt", "FloorToInt") or not here.args[0].is_Mul:
        return None
    scales = [arg for arg in here.args[0].args if arg.is_number]
    sizes = [arg.args[0] for arg in here.args[0].args if type(arg).__name__ == "ToFloat"]
    if len(scales) != 1 or len(sizes) != 1 or len(here.args[0].args) != 2:
        return None
    up, down = float(scales[0]).as_integer_ratio()
    size = symbols.index_term(sizes[0])
    if size is None or not 0 < up <= _FINEST or down > _FINEST:
        return None
    return FloorDiv(size * index(up), index(down))


def _joined(parts: list[Scalar], join: Any) -> Scalar:  # Any: of two terms, a term
    whole = parts[0]
    for part in parts[1:]:
        whole = join(whole, part)
    return whole


def _number_or_term(term: Scalar) -> Size:
    number = known(term)
    return term if number is None else number


class EqualSizes:
    """Pairs of sizes that are equal."""

    def __init__(self, pairs: Iterable[tuple[Scalar, Scalar]] = ()) -> None:
        zeros = [_without_factor(a - b) for a, b in pairs]
        self._zeros = [(scalar, _products(scalar)) for scalar in zeros if known(scalar) is None]
        self._simplest: dict[Scalar, Scalar] = {}

    def simplest(self, size: Scalar) -> Scalar:
        """The simplest size that is found to be equal to another."""
        if not self._zeros or isinstance(size, ScalarVar) or known(size) is not None:
            return size
        if (scalar := self._simplest.get(size)) is None:
            scalar = size
            while (simpler := min(self._equal(scalar), key=_order, default=scalar)) is not scalar:
                if _order(simpler) >= _order(scalar):
                    break
                scalar = simpler
            self._simplest[size] = scalar
        return scalar

    def _equal(self, size: Scalar) -> Iterator[Scalar]:
        """What each pair makes of a size that one of its products divides a product of."""
        products = _products(size)
        for zero, parts in self._zeros:
            for whole, part in product(products, parts):
                if known(part) is None and (times := quotient(whole, part)) is not None:
                    yield normal_dim(size - zero * times)


def _without_factor(zero: Scalar) -> Scalar:
    """A sum that is 0 where another is: what divides all of that leaves it."""
    terms = polynomial(zero)
    most = gcd(*[count for _, count in terms.values()])
    return from_polynomial({key: (atoms, count // most) for key, (atoms, count) in terms.items()})


def _products(of: Scalar) -> list[Scalar]:
    return [from_polynomial({key: each}) for key, each in polynomial(of).items()]


def _order(of: Scalar) -> tuple[bool, int, str]:
    """Numbers first, then short terms, independent of names, so that this terminates."""
    return known(of) is None, len(show_dim(of, lambda _: "n")), show_dim(of, repr)
