"""Operators of C-like targets: the rows of a dialect that such targets share.

Operations that such languages define differently from `plica.ir.loop.scalar` are helpers in the
target's prelude. Integers loaded from memory wrap around; index terms never overflow, so they are
written plainly.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from plica.codegen.emit.dialect import Dialect, OperatorPlace, SpecialOperator
from plica.codegen.emit.scalar import round_to_dtype
from plica.ir.loop.scalar import Cast, Eq, FloorDiv, FloorMod, Le, Scalar, row_of
from plica.ir.loop.scalar_row import ScalarRow
from plica.ir.type import DType, bool_, f64


class TextPlace(OperatorPlace, Protocol):
    """The context of an operator in a text of expressions."""

    def call(self, helper: str, dtypes: Sequence[DType], args: Sequence[str]) -> str:
        """The call of a helper for some dtypes, which is then written out."""

    def is_read(self, node: Scalar) -> bool:
        """Whether a term depends on memory, so that an integer may be any, and wraps around."""

    def is_contracted(self, node: Scalar) -> bool:
        """Whether a product may be rounded together with the sum it is added to."""


def by_template(word: str, row: ScalarRow, of: DType, kids: Sequence[str], place: TextPlace) -> str:
    """The expression from a row's template (`plica.ir.loop.scalar_row`)."""
    dialect = place.dialect
    if word.startswith("@"):
        return place.call(word[1:], (of,), kids)
    inf = dialect.literal(float("inf"), of) if "{inf}" in word else ""
    mask = hex((1 << of.bits) - 1)
    text = word.format(*kids, e=_end(of), b=of.bits, m=mask, inf=inf)
    return dialect.cast(of, text) if row.name.startswith("Bit") else text


def _end(of: DType) -> str:
    return "" if of is f64 else "f"


def _arithmetic(node: Scalar, of: DType, kids: Sequence[str], place: TextPlace) -> str | None:
    row = row_of(node)
    assert row is not None
    if of is bool_:  # numpy's: or, and; a difference of bools is where they differ
        return place.dialect.cast(of, f"{kids[0]} {row.c['bool']} {kids[1]}")
    if of.is_float or place.is_read(node):
        return None
    return f"({kids[0]} {row.sign} {kids[1]})"


def _product(node: Scalar, of: DType, kids: Sequence[str], place: TextPlace) -> str | None:
    alone = place.dialect.products.get(of.name)
    if alone is not None and not place.is_contracted(node):
        return alone.format(*kids)
    return _arithmetic(node, of, kids, place)


def _quotient(node: Scalar, of: DType, kids: Sequence[str], place: TextPlace) -> str | None:
    assert isinstance(node, FloorDiv | FloorMod)
    if not of.is_integer or not place.divides_naturals(node):
        return None
    return f"({kids[0]} {'/' if isinstance(node, FloorDiv) else '%'} {kids[1]})"


def _extreme(
    word: str, node: Scalar, of: DType, kids: Sequence[str], place: TextPlace
) -> str | None:
    one, two = kids
    if of.is_float:
        return place.call(f"p_{word}_{'f64' if of is f64 else 'f32'}", (), kids)
    if of is bool_:
        return f"({one} {'&&' if word == 'min' else '||'} {two})"
    function = place.dialect.extremes.get(of.name)
    if function is not None:
        return function.format(one, two, word=word)
    return one if one == two else f"({one} {'<' if word == 'min' else '>'} {two} ? {one} : {two})"


def _comparison(node: Scalar, of: DType, kids: Sequence[str], place: TextPlace) -> str | None:
    """A comparison; of two equal texts, its constant result."""
    if kids[0] != kids[1] or of.is_float:
        return None
    return place.dialect.literal(isinstance(node, Eq | Le), bool_)


def _cast(node: Scalar, source: DType, kids: Sequence[str], place: TextPlace) -> str:
    assert isinstance(node, Cast)
    (value,), to = kids, node.dtype
    if source is to:
        return value
    if to is bool_:
        return f"({value} != 0)"
    if source.is_float and to.is_integer:
        low, high = to.bounds
        literal = place.dialect.literal
        limits = literal(float(low), source), literal(float(high), source)
        ends = literal(low, to), literal(high, to)
        return place.call("p_cast", (to, source), (value, *limits, *ends))
    return round_to_dtype(place.dialect.cast(to, value), to, place)


def _inverse_root(node: Scalar, of: DType, kids: Sequence[str], place: TextPlace) -> str | None:
    if not of.is_float:
        return None
    root = round_to_dtype(f"sqrt{_end(of)}({kids[0]})", of, place)
    return round_to_dtype(f"({place.dialect.literal(1.0, of)} / {root})", of, place)


_SPECIALS: Final[dict[str, SpecialOperator[TextPlace]]] = {
    "Add": _arithmetic,
    "Sub": _arithmetic,
    "Mul": _product,
    "FloorDiv": _quotient,
    "FloorMod": _quotient,
    "Min": partial(_extreme, "min"),
    "Max": partial(_extreme, "max"),
    **dict.fromkeys(("Eq", "Ne", "Lt", "Le"), _comparison),
    "Cast": _cast,
    "rsqrt": _inverse_root,
}
"""Operators that are more than the template of their row."""

_TYPES: Final = {
    "bool": "bool",
    "i8": "signed char", "i16": "short", "i32": "int", "i64": "long long",
    "u8": "unsigned char", "u16": "unsigned short", "u32": "unsigned int",
    "u64": "unsigned long long",
    "f32": "float", "f64": "double",
}  # fmt: skip

CLIKE: Final[Dialect[TextPlace]] = Dialect(
    "c-like", _TYPES, {"bool": "unsigned char"}, written=by_template, specials=_SPECIALS
)
"""The common dialect; each target overrides some words."""
