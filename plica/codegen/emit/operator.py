"""Operators: one term over the values of its operands, whatever language a dialect writes.

    specials    what the dialect has for an operator by its name, if that fits the operands
    words       else what the operator's row has for their kind, as the dialect writes it
    rounded     at last, where a dtype has no register of its own

Elements of memory are values after `unpacked`, and values are elements after `packed`.
"""

from __future__ import annotations

from collections.abc import Sequence

from plica.codegen.emit.dialect import OperatorPlace
from plica.core import CompilerBug
from plica.ir.loop.scalar import Cast, Intrinsic, Scalar, Select, dtype_of, row_of
from plica.ir.loop.scalar_row import ScalarRow
from plica.ir.loop.scalar_table import DECLARED
from plica.ir.type import DType
from plica.runtime.error import Diagnostic, Place, UnsupportedError


def operation(node: Scalar, operands: Sequence[str], place: OperatorPlace) -> str:
    """The value of a term from those of its operands."""
    dialect = place.dialect
    intrinsic = isinstance(node, Intrinsic)
    of = dtype_of(_deciding(node))
    special = dialect.specials.get(node.name if intrinsic else type(node).__name__)  # type: ignore[attr-defined]  # as was asked
    if special is not None and (found := special(node, of, operands, place)) is not None:
        return found
    if (row := row_of(node)) is None:
        raise CompilerBug(f"{node!r} is no operation on scalars.")
    if isinstance(node, Intrinsic) and (into := dtype_of(node)).is_narrow and into is not of:
        return _of_bits(node.args[0], into, operands[0], place)
    if (word := row.words(dialect.name).get(of.kind)) is None:
        raise _without_text(row, of, dialect.name)
    text = dialect.written(word, row, of, operands[: row.arity], place)
    return rounded(text, of, place) if row.rounds and of.is_float and not row.is_bool else text


def _without_text(row: ScalarRow, of: DType, dialect: str) -> Exception:
    message = f"{row.name} of {of} has no text in the dialect {dialect}."
    if row.name not in DECLARED:
        return CompilerBug(message)
    hint = "Give its row a word for this target, or compile for one that it has a word for."
    return UnsupportedError(
        Diagnostic("unsupported", message, Place(node=row.name), suggestion=hint)
    )


def _of_bits(code: Scalar, into: DType, value: str, place: OperatorPlace) -> str:
    """The value that the low bits of an integer are the code of."""
    of, wanted = dtype_of(code), DType(f"u{into.bits}")
    cast = place.dialect.specials["Cast"]
    held = value if of is wanted else cast(Cast(code, wanted), of, (value,), place)
    assert held is not None
    return place.converted("unpack", held, into)


def _deciding(node: Scalar) -> Scalar:
    """The term whose dtype says which code an operator has."""
    if isinstance(node, Intrinsic):
        return node.args[0]
    return node if isinstance(node, Select) else node._children[0]  # type: ignore[return-value]  # a scalar


def rounded(value: str, of: DType, place: OperatorPlace) -> str:
    """The value as its dtype holds it, after an operation in the dtype of its register."""
    return value if of.name in place.dialect.registers else place.converted("round", value, of)


def packed(value: str, of: DType, place: OperatorPlace) -> str:
    """A value as it is stored."""
    dialect = place.dialect
    if of.name not in dialect.registers:
        return place.converted("pack", value, of)
    return value if is_plain(of, place) else dialect.stored(value, of, place)


def unpacked(element: str, of: DType, place: OperatorPlace) -> str:
    """The value of an element."""
    dialect = place.dialect
    if of.name not in dialect.registers:
        return place.converted("unpack", element, of)
    return element if is_plain(of, place) else dialect.loaded(element, of, place)


def is_plain(of: DType, place: OperatorPlace) -> bool:
    """Whether an element in memory is of the type of a value."""
    return place.dialect.memory(of) == place.dialect.register(of)
