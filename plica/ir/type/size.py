"""Sizes: the numbers that symbolic dims stand for, found by holding types against values.

A type says `("n", "2*n+1")`, a value has the shape `(3, 7)`: each axis is an equation between a dim
and a number.  `solve` finds the dims that the equations determine: those that stand alone, then
those that are the only unknown of a linear equation.

>>> from plica.ir.type.dim import dim, dim_var
>>> n, m = dim_var("n"), dim_var("m")
>>> found = solve([(dim(2 * n + m), 10), (n, 3)])
>>> found[n], found[m]
(3, 4)

Not here: which equations an inconsistent input breaks (`plica.ir.interpret.input` says that to the
user).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from plica.core import Term
from plica.ir.loop.scalar import Lit, Scalar, ScalarVar
from plica.ir.type.dim import evaluate, polynomial
from plica.ir.type.term import DataType, FuncType, TensorType, TupleType, Type

Sizes: TypeAlias = Mapping[Term, int]
Equation: TypeAlias = tuple[Scalar, int]


def size_of(dim: Scalar, sizes: Sizes) -> int | None:
    """The value of a dim under `sizes`, or None if undetermined."""
    if isinstance(dim, Lit):
        return int(dim.value)
    if isinstance(dim, ScalarVar):
        return sizes.get(dim)
    return evaluate(dim, sizes)


def shape_of(shape: Iterable[Scalar], sizes: Sizes) -> tuple[int, ...] | None:
    """A numeric shape, or None if some dim is undetermined."""
    found = [size_of(dim, sizes) for dim in shape]
    return None if None in found else tuple(size for size in found if size is not None)


def solve(equations: Iterable[Equation], sizes: Sizes | None = None) -> dict[Term, int]:
    """`sizes`, and the dims the equations add to it; the first equation for a dim decides."""
    found: dict[Term, int] = dict(sizes or {})
    hard: list[Equation] = []
    for dim, number in equations:
        if isinstance(dim, ScalarVar):
            found.setdefault(dim, number)
        elif not isinstance(dim, Lit):
            hard.append((dim, number))
    progress = bool(hard)
    while progress:
        progress = False
        for dim, number in hard:
            progress |= _solve_one(dim, number, found)
    return found


def type_equations(pattern: Type, type: Type, sizes: Sizes) -> Iterator[Equation]:
    """One equation per axis of `pattern`, with the sizes of the same axes of another type.

    `plica.ir.interpret.value.equations` gives those of a value.
    """
    match pattern, type:
        case TensorType(), TensorType() if len(pattern.shape) == len(type.shape):
            for dim, other in zip(pattern.shape, type.shape, strict=True):
                if (number := size_of(other, sizes)) is not None:
                    yield dim, number
        case (TupleType(left), TupleType(right)) | (DataType(_, left), DataType(_, right)):
            for one, two in zip(left, right, strict=False):
                yield from type_equations(one, two, sizes)
        case FuncType(), FuncType():
            yield from type_equations(
                TupleType((*pattern.params, pattern.ret)),
                TupleType((*type.params, type.ret)),
                sizes,
            )


def _solve_one(dim: Scalar, number: int, found: dict[Term, int]) -> bool:
    """Solves a linear equation with exactly one unknown, if the division is exact."""
    slope, unknown, rest = 0, None, number
    for atoms, coefficient in polynomial(dim).values():
        factor = coefficient
        for atom in atoms:
            if (known := size_of(atom, found)) is not None:
                factor *= known
            elif isinstance(atom, ScalarVar) and unknown in (None, atom) and atoms.count(atom) == 1:
                unknown = atom
            else:
                return False
        if unknown is not None and unknown in atoms:
            slope += factor
        else:
            rest -= factor
    if unknown is None or slope == 0 or rest % slope or rest // slope < 0:
        return False
    found[unknown] = rest // slope
    return True
