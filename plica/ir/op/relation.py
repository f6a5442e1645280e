"""Type relations: what operators require of their arguments, and their result types.

Everything works on symbolic dims: two dims agree when they are equal whatever their variables are.

Note [Refusals in relations]: a relation returns a type or a `Mismatch`. A refusal may be detected
many calls deep, so inside it is raised as the exception `Unfit`, which `fitting` turns into the
value; nothing else catches it, and it never leaves this package.

>>> n = dim_var("n")
>>> broadcast("add", ((n, dim(1)), (dim(4),))) == (n, dim(4))
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from contextvars import ContextVar
from itertools import pairwise
from typing import Any, Final, NoReturn, TypeAlias

from plica.core import OutOfRange
from plica.ir.graph.operator import Mismatch, Relation, Values
from plica.ir.loop.scalar import Lit, Scalar
from plica.ir.type.dim import dim, dim_var, known, same_dim
from plica.ir.type.dtype import COMPUTED, DTYPES, DType, bool_, f32
from plica.ir.type.term import TensorType, TupleType, Type

__all__ = [
    "ANY", "BOOL", "FLOAT", "INTEGER", "NUMBER", "Rule", "Shape", "Unfit",
    "axes_of", "axis_of", "broadcast", "dim_var", "fitting", "literal", "need", "needs_of",
    "per_axis", "refuse", "same", "wide",
]  # fmt: skip

Shape: TypeAlias = tuple[Scalar, ...]
Rule: TypeAlias = Callable[..., TensorType | TupleType]  # (attrs, *tensor types), may refuse

ANY: Final = frozenset(DTYPES)
BOOL: Final = frozenset({bool_})
FLOAT: Final = frozenset(dtype for dtype in COMPUTED if dtype.is_float)
INTEGER: Final = frozenset(dtype for dtype in COMPUTED if dtype.is_integer)
NUMBER: Final = FLOAT | INTEGER
_NAMES: Final = {
    ANY: "any element type",
    BOOL: "bool",
    FLOAT: "a floating-point type",
    INTEGER: "an integer type",
    NUMBER: "an integer or floating-point type",
    INTEGER | BOOL: "bool or an integer type",
}


class Unfit(Exception):
    """A relation refuses; see Note [Refusals in relations]."""

    def __init__(self, mismatch: Mismatch) -> None:
        super().__init__(mismatch.message)
        self.mismatch = mismatch


def refuse(
    code: str,
    message: str,
    expected: str | None = None,
    found: str | None = None,
    suggestion: str | None = None,
) -> NoReturn:
    """Leave the relation with a refusal."""
    raise Unfit(Mismatch(code, message, expected, found, suggestion))


_NEEDED: Final[ContextVar[list[Scalar] | None]] = ContextVar("needed", default=None)


def need(least: Scalar) -> None:
    """Say that a term over dims must not be negative, where it is no number yet.

    A check that a relation makes of a static size is recorded for an open size: `needs_of` collects
    the checks to make once sizes are known.
    """
    wanted = _NEEDED.get()
    if wanted is not None and known(least) is None:
        wanted.append(least)


def needs_of(relation: Relation, attrs: Values, *types: Type) -> tuple[Scalar, ...]:
    """The terms that must be non-negative for a relation to hold: its checks, and every size of its
    result, so that no operator computes with a negative size."""
    scalars: list[Scalar] = []
    token = _NEEDED.set(scalars)
    try:
        result = relation(attrs, *types)
    finally:
        _NEEDED.reset(token)
    stack = [result]
    while stack:
        match stack.pop():
            case TupleType(items):
                stack += items
            case TensorType(shape):
                scalars += [size for size in shape if known(size) is None]
            case _:
                pass
    return tuple(scalars)


def fitting(
    name: str,
    inputs: tuple[str, ...],
    rule: Rule,
    admits: Collection[DType] = ANY,
    like: tuple[int, ...] | None = None,
) -> Relation:
    """The relation that requires tensors, with one admitted dtype among `like`, then applies the
    rule."""
    variadic = inputs[:1] != () and inputs[0].startswith("*")

    def relation(attrs: Values, *types: Type) -> Type | Mismatch:
        try:
            if (len(types) < 1) if variadic else (len(types) != len(inputs)):
                message = f"{name} is called with the wrong number of arguments."
                refuse("wrong-arity", message, ", ".join(inputs), str(len(types)))
            for each in types:
                if not isinstance(each, TensorType):
                    refuse("type-conflict", f"{name} takes tensors.", "a tensor", str(each))
            _one_dtype(name, types, like, admits)
            return rule(attrs, *types)
        except Unfit as unfit:
            return unfit.mismatch
        except OutOfRange as big:
            why = big.diagnostics[0].message
            return Mismatch("shape-conflict", f"{name}: a size is out of range: {why}")

    return relation


# Any: the types were found to be tensor types, which mypy cannot carry through the star.
def _one_dtype(
    name: str, types: Sequence[Any], like: tuple[int, ...] | None, admits: Collection[DType]
) -> None:
    group = types if like is None else [types[i] for i in like]
    if not group:
        return
    first = group[0].dtype
    for each in group[1:]:
        if each.dtype is not first:
            refuse(
                "dtype-conflict",
                f"{name} takes arguments of one element type.",
                str(first),
                str(each.dtype),
                "Cast one of them: op.cast(x, dtype).",
            )
    if first not in admits:
        expected = _NAMES.get(frozenset(admits), " or ".join(map(str, sorted(admits, key=str))))
        refuse("dtype-conflict", f"{name} takes {expected}.", expected, str(first), _hint(first))


def _hint(found: DType) -> str:
    if found is bool_:
        return "Cast to a number first, or use a logical operator."
    return "Cast first: op.cast(x, dtype)."


def broadcast(name: str, shapes: Iterable[Shape]) -> Shape:
    """Numpy's rule: aligned at the right, dims are equal or 1."""
    result: Shape | None = None
    for shape in shapes:
        if result is None or shape == result:
            result = shape
            continue
        longer, shorter = (result, shape) if len(result) >= len(shape) else (shape, result)
        tail = len(longer) - len(shorter)
        merged = list(longer)
        for at, (a, b) in enumerate(zip(longer[tail:], shorter, strict=True)):
            if known(a) == 1:
                merged[tail + at] = b
            elif known(b) != 1 and not same_dim(a, b):
                refuse(
                    "shape-conflict",
                    f"{name} cannot broadcast its arguments to one shape.",
                    shown(result),
                    shown(shape),
                )
        result = tuple(merged)
    return () if result is None else result


def same(name: str, what: str, a: Scalar, b: Scalar) -> None:
    """Ask that two dims agree."""
    if not same_dim(a, b):
        refuse("shape-conflict", f"{name}: {what} must agree.", shown_dim(a), shown_dim(b))


def rank_at_least(name: str, of: TensorType, rank: int) -> None:
    """Requires a tensor with at least a given rank."""
    if len(of.shape) < rank:
        message = f"{name} takes a tensor of rank {rank} or more."
        refuse("shape-conflict", message, f"rank {rank} or more", str(of))


def rank_is(name: str, what: str, of: TensorType, rank: int) -> None:
    """Requires a tensor of exactly a given rank."""
    if len(of.shape) != rank:
        refuse("shape-conflict", f"{name}: {what} must have rank {rank}.", f"rank {rank}", str(of))


def axis_of(name: str, axis: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < rank:
        refuse(
            "bad-attribute",
            f"{name} has no axis {axis} in a tensor of rank {rank}.",
            f"from {-rank} to {rank - 1}" if rank else "no axis",
            str(axis),
        )
    return axis % rank


def axes_of(name: str, axes: Iterable[int] | None, rank: int) -> tuple[int, ...]:
    """Axes counted from the front in ascending order; None is all of them."""
    if axes is None:
        return tuple(range(rank))
    found = sorted(axis_of(name, axis, rank) for axis in axes)
    if twice := [a for a, b in pairwise(found) if a == b]:
        message = f"{name} names axis {twice[0]} twice."
        refuse("bad-attribute", message, "different axes", str(tuple(found)))
    return tuple(found)


def per_axis(name: str, what: str, given: Any, count: int) -> tuple[Any, ...]:
    """One value for each axis, from one for all or one for each."""
    if not isinstance(given, tuple):
        return (given,) * count
    if len(given) != count:
        message = f"{name} needs one {what} for each of {count} axes."
        refuse("bad-attribute", message, f"{count} values", str(len(given)))
    return given


def literal(name: str, value: bool | int | float, dtype: DType) -> Lit:
    """An attribute's number as a literal of the dtype; what it cannot hold is refused."""
    if not dtype.is_float and dtype is not bool_:
        low, high = dtype.bounds
        if not math.isfinite(value) or int(value) != value:
            refuse("bad-attribute", f"{name} works on {dtype}.", "a whole number", repr(value))
        if not low <= value <= high:
            refuse("bad-attribute", f"{name} works on {dtype}.", f"{low} to {high}", repr(value))
    return Lit(value, dtype)


def wide(dtype: DType) -> DType:
    """What sums of a dtype are made in: f32 for the narrow floats, otherwise the dtype itself."""
    return f32 if dtype.is_narrow else dtype


def shown_dim(of: Scalar) -> str:
    """A dim as people write it."""
    return shown((of,))[1:-1].removesuffix(",")


def shown(shape: Iterable[Scalar]) -> str:
    """A shape as people write it."""
    return (
        str(TensorType(tuple(map(dim, shape)), f32)).removeprefix("Tensor[").removesuffix(", f32]")
    )
