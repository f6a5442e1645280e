"""Attributes in print: the arguments of operators and functions besides operands.

>>> from plica.ir.type.dtype import f32
>>> value_text(("same", 1, None, f32, 0.5, True), TypePrinter())
'("same", 1, None, f32, 0.5, True)'
"""

from __future__ import annotations

import math
import struct
from typing import Any

from plica.core import CompilerBug
from plica.core.term import leaf_key
from plica.ir.graph.expression import Apply, Attrs
from plica.ir.graph.operator import Attribute, Operator
from plica.ir.loop.scalar import Lit, Scalar
from plica.ir.text.show.type import TypePrinter, parenthesised
from plica.ir.type import DType
from plica.ir.type.term import TypeTerm


def keyword_texts(node: Apply, record: Operator | None, types: TypePrinter) -> list[str]:
    """The attributes of an application as keywords, without those that are their defaults."""
    known = {} if record is None else {each.name: each for each in record.attributes}
    shown = []
    for name, value in node.attrs:
        if (attribute := known.get(name)) is None:
            shown.append(f"{name}={value_text(value, types)}")
        elif attribute.required or leaf_key(attribute.read(attribute.default)) != leaf_key(value):
            shown.append(f"{name}={_short(attribute, value, types)}")
    return shown


def attrs_text(attrs: Attrs, types: TypePrinter) -> str:
    """The attributes of a function as a dict."""
    inside = ", ".join(f"{string_text(name)}: {value_text(value, types)}" for name, value in attrs)
    return f"{{{inside}}}"


def value_text(value: Any, types: TypePrinter, brief: bool = False) -> str:
    """A value; with `brief`, dims are written as numbers and strings."""
    if isinstance(value, tuple):
        return parenthesised([value_text(item, types, brief) for item in value])
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, float):
        return float_text(value)
    if value is None or isinstance(value, bool | int | bytes):
        return repr(value)
    if isinstance(value, DType):
        return types.dtype(value)
    if isinstance(value, Scalar):
        if brief and isinstance(value, Lit):
            return str(value.value)
        if brief:
            return f'"{types.dim(value)}"'
        types.words.add("dim")
        return f'dim("{types.dim(value)}")'
    if isinstance(value, TypeTerm):
        return types.show(value)  # type: ignore[arg-type]  # every TypeTerm is a Type
    raise CompilerBug(f"{value!r} cannot be the value of an attribute.")


def string_text(value: str) -> str:
    """A string in double quotes where it needs no escapes."""
    plain = value.isascii() and value.isprintable() and not {'"', "\\"}.intersection(value)
    return f'"{value}"' if plain else ascii(value)


def float_text(value: float) -> str:
    """A float; those that Python has no literal for by name, and by bits where that is not all."""
    if math.isfinite(value):
        return repr(value)
    word = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    bits = struct.pack(">d", value)
    if bits != struct.pack(">d", float(word)):
        word = f"nan:{bits.hex()}"
    return f'float("{word}")'


def _short(attribute: Attribute, value: Any, types: TypePrinter) -> str:
    """With dims in short form where the attribute's reader brings back the same value."""
    brief = leaf_key(attribute.read(_numbers(value))) == leaf_key(value)
    return value_text(value, types, brief)


def _numbers(value: Any) -> Any:
    """The value that its brief text reads back to."""
    if isinstance(value, tuple):
        return tuple([_numbers(item) for item in value])
    return value.value if isinstance(value, Lit) else value
