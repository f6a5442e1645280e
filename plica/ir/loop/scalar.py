"""Scalars: the expressions inside loops, and the dims of tensor types.

    Scalar ::= Lit | ScalarVar | Load(buffer, indices) | Reduce(combiner, axes, extents, body, runs)
             | Add | Sub | Mul | Div | FloorDiv | FloorMod | Min | Max | Pow
             | BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight
             | Eq | Ne | Lt | Le | And | Or | Not | Select | Cast | Intrinsic(name, args)
             | Ramp(base, stride, lanes) | Broadcast(value, lanes) | Shuffle(vectors, indices)

Meaning (the same in every interpreter and every target):
- integers wrap around; `FloorDiv` and `FloorMod` by zero give 0; the least integer divided by -1
  wraps to itself; a shift by the width or more gives 0 (all sign bits for a signed right shift);
- `Div` is for floats; `Eq`..`Le` are false on nan, `Ne` is true;
- `Min` and `Max` of floats, and reductions with them, are IEEE 754's minimum and maximum (LLVM's
  `llvm.minimum` and `llvm.maximum`): nan if a side is nan (which nan is not said), and -0.0 is less
  than 0.0, so `Max(-0.0, 0.0)` is 0.0 and `Min(0.0, -0.0)` is -0.0 whatever the order;
- `Cast` from float to integer truncates towards zero, saturates, and takes nan to 0; to bool it is
  `!= 0`; between integers it wraps; f16 and bf16 round to nearest even;
- `Select`, `And`, `Or` evaluate lazily: a load behind a false guard never happens;
- `Ramp`, `Broadcast` and `Shuffle` are vectors: an operation on vectors is one on each lane, a load
  or store with a vector among its indices reads or writes all lanes; their dtype is a lane's.

>>> n = ScalarVar(Name("n"), i64)
>>> (n + 1) * 2 is (n + 1) * 2
True
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, cast

from attrs import frozen

from plica.core import Name, OutOfRange, Term, ill_formed
from plica.ir.loop.scalar_row import ScalarRow
from plica.ir.loop.scalar_table import INTRINSIC_ROWS, ROWS
from plica.ir.type.dtype import DType, bool_, i64

WRITTEN = "ir.scalar"  # the path that its terms are written down under

Number: TypeAlias = bool | int | float
Like: TypeAlias = "Scalar | bool | int | float"


class Scalar(Term):
    """A scalar expression; Python's operators build terms, numbers take the other side's dtype."""

    __slots__ = ("_dtype",)
    _dtype: DType  # remembered by `dtype_of`

    def __add__(self, other: Like) -> Scalar:
        return Add(self, like(other, self))

    def __radd__(self, other: Like) -> Scalar:
        return Add(like(other, self), self)

    def __sub__(self, other: Like) -> Scalar:
        return Sub(self, like(other, self))

    def __rsub__(self, other: Like) -> Scalar:
        return Sub(like(other, self), self)

    def __mul__(self, other: Like) -> Scalar:
        return Mul(self, like(other, self))

    def __rmul__(self, other: Like) -> Scalar:
        return Mul(like(other, self), self)

    def __truediv__(self, other: Like) -> Scalar:
        return Div(self, like(other, self))

    def __rtruediv__(self, other: Like) -> Scalar:
        return Div(like(other, self), self)

    def __floordiv__(self, other: Like) -> Scalar:
        return FloorDiv(self, like(other, self))

    def __rfloordiv__(self, other: Like) -> Scalar:
        return FloorDiv(like(other, self), self)

    def __mod__(self, other: Like) -> Scalar:
        return FloorMod(self, like(other, self))

    def __rmod__(self, other: Like) -> Scalar:
        return FloorMod(like(other, self), self)

    def __neg__(self) -> Scalar:
        return Sub(like(0, self), self)

    def __lt__(self, other: Like) -> Scalar:
        return Lt(self, like(other, self))

    def __le__(self, other: Like) -> Scalar:
        return Le(self, like(other, self))

    def __gt__(self, other: Like) -> Scalar:
        return Lt(like(other, self), self)

    def __ge__(self, other: Like) -> Scalar:
        return Le(like(other, self), self)


@frozen(eq=False)
class Lit(Scalar):
    """A literal: a bool, an int or a float as its dtype says."""

    value: bool | int | float
    dtype: DType

    @staticmethod
    def normal(value: Number, dtype: DType) -> tuple[Number, DType]:
        if dtype.is_float:
            if isinstance(value, int) and abs(value) >= (1 << 1024) - (1 << 970):
                raise ill_formed(f"An integer of {value.bit_length()} bits is no value of {dtype}.")
            return float(value), dtype
        if dtype is bool_:
            return bool(value), dtype
        low, high = dtype.bounds
        if not low <= value <= high or int(value) != value:  # nan is in no bounds
            raise OutOfRange.of("ill-formed-term", f"{value!r} is no value of {dtype}.")
        return int(value), dtype


@frozen(eq=False)
class ScalarVar(Scalar):
    """A loop variable, an axis, or a symbolic dim."""

    variable = True
    name: Name
    dtype: DType


@frozen(eq=False)
class Buffer(Term):
    """A named region of memory, or a tensor that a tensor expression reads.

    `scope` is its memory (`plica.ir.loop.memory_scope`). Without `strides` it is row-major. `align`
    is the alignment of its address in bytes; 0 means that of the dtype.
    """

    variable = True
    name: Name
    shape: tuple[Scalar, ...]
    dtype: DType
    scope: str = "global"
    strides: tuple[Scalar, ...] = ()
    align: int = 0

    def __getitem__(self, indices: Like | tuple[Like, ...]) -> Scalar:
        """`buffer[i, j]`, a load."""
        given = indices if isinstance(indices, tuple) else (indices,)
        return Load(self, tuple(index(i) for i in given))


@frozen(eq=False)
class Load(Scalar):
    """`buffer[indices]`."""

    buffer: Buffer
    indices: tuple[Scalar, ...]

    @staticmethod
    def normal(buffer: Buffer, indices: tuple[Scalar, ...]) -> tuple[Any, ...]:
        if len(indices) != len(buffer.shape):
            raise ill_formed(f"{buffer.name} has rank {len(buffer.shape)}, not {len(indices)}.")
        return buffer, indices


Combiner = Literal["sum", "prod", "max", "min", "all", "any"]

Runs = Literal["", "row", "box"]  # how the terms of a long sum are cut into runs, if they are

RUN_LENGTH: Final[dict[Runs, int]] = {"row": 16, "box": 256}
"""The maximum number of terms per run. A sum of 16 equal terms is off by at most three half ulps;
after 256 products in registers, adding their total to another is negligible."""


@frozen(eq=False)
class Reduce(Scalar):
    """`body` combined over the box of `axes`; over an empty box the combiner's identity.

    Floats are added, or multiplied, one by one in row-major order; in `runs`, those of a run are,
    and the totals of runs after that (`plica.ir.loop.summation`).
    """

    binds = (("axes", ("body",)),)
    combiner: Combiner
    axes: tuple[ScalarVar, ...]
    extents: tuple[Scalar, ...]
    body: Scalar
    runs: Runs = ""

    @staticmethod
    def normal(
        combiner: Combiner,
        axes: tuple[ScalarVar, ...],
        extents: tuple[Scalar, ...],
        body: Scalar,
        runs: Runs,
    ) -> tuple[Any, ...]:
        if runs and (_has_no_runs(combiner, body) or _is_run(extents, runs)):
            runs = ""
        return combiner, axes, extents, body, runs


def _has_no_runs(combiner: Combiner, body: Scalar) -> bool:
    """Whether runs would make no difference: to numbers that are no floats, and to products, which
    are off by as much in any order."""
    return combiner != "sum" or not dtype_of(body).is_float


def _is_run(extents: tuple[Scalar, ...], runs: Runs) -> bool:
    """Whether a box is known to be one run."""
    count = 1
    for extent in extents:
        if not isinstance(extent, Lit) or (runs == "row" and count > 1):
            return False
        count *= int(extent.value)
    return count <= RUN_LENGTH[runs]


@frozen(eq=False)
class Pair(Scalar):
    """An operator between two sides of one dtype: one of the classes below."""

    left: Scalar
    right: Scalar


@frozen(eq=False)
class Add(Pair):
    """`left + right`."""


@frozen(eq=False)
class Sub(Pair):
    """`left - right`."""


@frozen(eq=False)
class Mul(Pair):
    """`left * right`."""


@frozen(eq=False)
class Div(Pair):
    """`left / right` of floats."""


@frozen(eq=False)
class FloorDiv(Pair):
    """`left // right`, rounded down."""


@frozen(eq=False)
class FloorMod(Pair):
    """`left % right`, with the sign of the right side."""


@frozen(eq=False)
class Min(Pair):
    """The lesser; nan if either is."""


@frozen(eq=False)
class Max(Pair):
    """The greater; nan if either is."""


@frozen(eq=False)
class Pow(Pair):
    """`left ** right`; for integers the right side is not negative (a negative one gives 0)."""


@frozen(eq=False)
class BitAnd(Pair):
    """`left & right` of integers or bools."""


@frozen(eq=False)
class BitOr(Pair):
    """`left | right` of integers or bools."""


@frozen(eq=False)
class BitXor(Pair):
    """`left ^ right` of integers or bools."""


@frozen(eq=False)
class ShiftLeft(Pair):
    """`left << right` of integers."""


@frozen(eq=False)
class ShiftRight(Pair):
    """`left >> right` of integers, arithmetic where signed."""


@frozen(eq=False)
class Eq(Pair):
    """`left == right`."""


@frozen(eq=False)
class Ne(Pair):
    """`left != right`."""


@frozen(eq=False)
class Lt(Pair):
    """`left < right`."""


@frozen(eq=False)
class Le(Pair):
    """`left <= right`."""


@frozen(eq=False)
class And(Pair):
    """Conjunction; the right operand is evaluated only if the left one holds."""


@frozen(eq=False)
class Or(Pair):
    """Either; the right side is looked at only if the left does not hold."""


@frozen(eq=False)
class Not(Scalar):
    """The contrary of a bool."""

    value: Scalar


@frozen(eq=False)
class Select(Scalar):
    """`then` if the condition holds, otherwise `orelse`; only one is evaluated."""

    condition: Scalar
    then: Scalar
    orelse: Scalar


@frozen(eq=False)
class Cast(Scalar):
    """The value in another dtype."""

    value: Scalar
    dtype: DType


@frozen(eq=False)
class Intrinsic(Scalar):
    """A function of the machine or its library, a row of `plica.ir.loop.scalar_table`."""

    name: str
    args: tuple[Scalar, ...]


@frozen(eq=False)
class Ramp(Scalar):
    """The lanes `base, base + stride, …`; as an index it means all these places at once."""

    base: Scalar
    stride: Scalar
    lanes: int


@frozen(eq=False)
class Broadcast(Scalar):
    """The value in every lane."""

    value: Scalar
    lanes: int


@frozen(eq=False)
class Shuffle(Scalar):
    """Lanes picked by number from the vectors laid end to end."""

    vectors: tuple[Scalar, ...]
    indices: tuple[int, ...]


Binary: TypeAlias = (
    Add | Sub | Mul | Div | FloorDiv | FloorMod | Min | Max | Pow
    | BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight
)  # fmt: skip
Comparison: TypeAlias = Eq | Ne | Lt | Le
Logical: TypeAlias = And | Or | Not
BINARY: Final = (
    Add, Sub, Mul, Div, FloorDiv, FloorMod, Min, Max, Pow,
    BitAnd, BitOr, BitXor, ShiftLeft, ShiftRight,
)  # fmt: skip
COMPARISON: Final = (Eq, Ne, Lt, Le)


def lit(value: Number, dtype: DType) -> Scalar:
    """A literal of the given dtype."""
    return Lit(value, dtype)


def index(value: Like) -> Scalar:
    """An index or a dim: integers become i64 literals."""
    if value.__class__ is int:
        return _whole(value)
    return value if isinstance(value, Scalar) else Lit(value, i64)


@lru_cache(maxsize=4096)
def _whole(number: int) -> Scalar:
    """The literal of a number, of which indices have few."""
    return Lit(number, i64)


def like(value: Like, other: Scalar) -> Scalar:
    """A scalar, or a number as a literal with the dtype of `other`."""
    return value if isinstance(value, Scalar) else Lit(value, dtype_of(other))


def dtype_of(scalar: Scalar) -> DType:
    """The dtype of a scalar term, found along one path: the sides of an operation agree."""
    if (known := getattr(scalar, "_dtype", None)) is not None:
        return known  # type: ignore[no-any-return]  # a slot holds a dtype or nothing
    path = [scalar]
    while (known := getattr(scalar, "_dtype", None)) is None:
        match scalar:
            case Lit(_, dtype) | ScalarVar(_, dtype) | Cast(_, dtype):
                known = dtype
            case Load(buffer, _):
                known = buffer.dtype
            case Eq() | Ne() | Lt() | Le() | And() | Or() | Not():
                known = bool_
            case Intrinsic(name, _) if name in GIVEN_DTYPES:
                known = GIVEN_DTYPES[name]
            case Intrinsic(_, args):
                scalar = args[0]
            case Select(_, inner, _) | Reduce(_, _, _, inner):
                scalar = inner
            case Ramp(inner, _, _) | Broadcast(inner, _):
                scalar = inner
            case Shuffle(vectors, _):
                scalar = vectors[0]
            case Pair(left, _):
                scalar = left
            case _:
                known = scalar.dtype  # type: ignore[attr-defined]  # a hole says what fills it
        if known is not None:
            break
        path.append(scalar)
    for term in path:  # all of it, so that asking from the top down stays linear
        _remember_dtype(term, known)
    return known


GIVEN_DTYPES: Final = {row.name: DType(row.gives) for row in INTRINSIC_ROWS if row.gives}
"""The dtypes of intrinsics that have not the dtype of their first argument."""

BOOL_INTRINSICS: Final = frozenset(row.name for row in INTRINSIC_ROWS if row.is_bool)
"""Intrinsics that answer yes or no."""

UNARY_FLOAT: Final = tuple(
    row.name
    for row in INTRINSIC_ROWS
    if row.arity == 1 and "float" in row.takes and not row.is_bool and not row.gives
)
"""Intrinsics from a float of any dtype to one of that dtype; `round` is to even."""

_remember_dtype: Final = cast(Any, Scalar.__dict__["_dtype"]).__set__

INTRINSICS: Final = frozenset(row.name for row in INTRINSIC_ROWS)

ROW_OF: Final[dict[type[Scalar], ScalarRow]] = {
    each: ROWS[each.__name__] for each in (*BINARY, *COMPARISON, And, Or, Not, Select)
}
"""The rows of operators that have a class."""


def row_of(node: Scalar) -> ScalarRow | None:
    """The table row of a scalar operator, or None for other terms (literals, loads, casts)."""
    return ROWS.get(node.name) if isinstance(node, Intrinsic) else ROW_OF.get(type(node))
