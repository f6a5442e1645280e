"""Values in text: literals and constants.

The attributes of operators and functions are plain data; constants are numbers with a dtype.  A
constant that does not fit its dtype is refused, never rounded to infinity or wrapped around.
"""

from __future__ import annotations

import ast
import base64
import binascii
import math
import struct
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from plica.ir.graph.expression import Const, Expr, Literal
from plica.ir.text.script.scope import Word
from plica.ir.text.script.type import TypeReader
from plica.ir.text.show.constant import constant_key
from plica.ir.text.word import DTYPE_WORDS
from plica.ir.type import DType, bool_, f32, i64

# Any: values of attributes are whatever operators declare.
Value = Any
WRONG: Final = object()  # a placeholder for an unreadable value; the problem is recorded
_FLOATS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_LIMIT: Final = 1 << 32  # elements: more than any text or archive can hold


class ValueReader(TypeReader):
    """Reads plain data and constants."""

    constants: Mapping[str, Const] = {}

    def value(self, node: ast.expr) -> Value:
        """Plain data: numbers, strings, dtypes, dims, types and tuples of them."""
        match node:
            case ast.Constant(None | bool() | int() | float() | str() | bytes() as value):
                return value
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)) if not isinstance(
                value, bool
            ):
                return -value
            case ast.Tuple(items) | ast.List(items):
                return tuple([self.value(item) for item in items])
            case ast.Call(callee, [ast.Constant(str() as text)], []):
                return self._made(node, self.meaning(callee), text)
            case ast.Subscript():
                return self.read(node)
            case ast.Name() | ast.Attribute():
                return self._named_value(node)
            case _:
                return self._no_value(node)

    def number(self, node: ast.expr) -> bool | int | float | None:
        """The literal number of a node, or None."""
        match node:
            case ast.Constant(bool() | int() | float() as value):
                return value
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)) if not isinstance(
                value, bool
            ):
                return -value
            case ast.Call(callee, [ast.Constant(str() as text)], []):
                if self.meaning(callee) == Word("float"):
                    found = named_float(text)
                    return None if found is WRONG else found
        return None

    def is_constant(self, path: str) -> bool:
        """Whether a word, used as a function, makes a constant."""
        return path in DTYPE_WORDS or path in ("const", "data", "archived", "float")

    def constant(self, node: ast.Call, path: str) -> Expr | None:
        """The constant of such a call, or None if it is wrong."""
        args = node.args
        plain = not node.keywords and not any(isinstance(arg, ast.Starred) for arg in args)
        if path == "float":
            number = self.number(node)
            return self._bad(node, 'float("inf")') if number is None else Literal(number)
        if path in DTYPE_WORDS and plain and len(args) == 1:
            return self._array(node, args[0], DTYPE_WORDS[path], scalar=True)
        if path == "const" and plain and len(args) in (1, 2):
            of = self.dtype_argument(args[1]) if len(args) == 2 else None
            return self._array(node, args[0], of)
        if path in ("data", "archived") and plain and len(args) == 3:
            return self._stored(node, path, self.value(args[0]), self.value(args[1]), args[2])
        return self._bad(node, "f32(1.0), const([1.0, 2.0], f32), or what the printer writes")

    def _array(
        self, node: ast.Call, arg: ast.expr, of: DType | None, scalar: bool = False
    ) -> Const | None:
        flat: list[bool | int | float] = []
        shape = self._flatten(arg, flat)
        if shape is None or (scalar and shape):
            return self._bad(node, "numbers, in lists of equal length")
        dtype = of or _natural(flat)
        for value in flat:
            if not _fits(value, dtype):
                message = f"{value!r} is no value of {dtype}."
                self.error(
                    node, "bad-constant", message, expected=f"a value of {dtype}", found=repr(value)
                )
                return None
        array = np.array(flat, dtype.numpy).reshape(shape)
        return Const(dtype, shape, np.ascontiguousarray(array).tobytes())

    def _flatten(self, node: ast.expr, flat: list[Any]) -> tuple[int, ...] | None:
        """Appends the numbers of nested lists to `flat`; returns their shape, or None if it is
        ragged."""
        if not isinstance(node, ast.List | ast.Tuple):
            number = self.number(node)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                number = _FLOATS.get(node.value)
            flat.append(number)
            return None if number is None else ()
        shapes = [self._flatten(item, flat) for item in node.elts]
        if None in shapes or len(set(shapes)) > 1:
            return None
        return (len(shapes), *(shapes[0] or ())) if shapes else (0,)

    def _stored(
        self, node: ast.Call, path: str, content: Value, shape: Value, kind: ast.expr
    ) -> Const | None:
        dtype = self.dtype_argument(kind)
        sizes = type(shape) is tuple and all(type(n) is int and n >= 0 for n in shape)
        if dtype is None or type(content) is not str or not sizes:
            return self._bad(node, f'{path}("…", (2, 3), f32)')
        if math.prod(shape) > _LIMIT:
            return self._bad(node, f"at most {_LIMIT} elements")
        if path == "archived":
            return self._from_archive(node, content, shape, dtype)
        try:
            raw = base64.b85decode(content)
        except (ValueError, binascii.Error):  # both mean: not base 85
            return self._bad(node, "bytes in base 85")
        wanted = math.prod(shape) * dtype.bytes
        if len(raw) != wanted:
            return self._bad(node, f"{wanted} bytes", f"{len(raw)} bytes")
        return Const(dtype, shape, raw)

    def _from_archive(
        self, node: ast.Call, key: str, shape: tuple[int, ...], dtype: DType
    ) -> Const | None:
        if (constant := self.constants.get(key)) is None:
            message = "The text refers to a constant that was not given with it."
            hint = "plica.ir.text.show.show_module(m) gives the table: from_text(text, constants)."
            self.error(node, "missing-constant", message, found=key[:60], suggestion=hint)
            return None
        if constant.dtype is not dtype or constant.shape != shape or constant_key(constant) != key:
            return self._bad(node, "the constant that was printed", "another one under its key")
        return constant

    def _bad(self, node: ast.Call, expected: str, found: str | None = None) -> Const | None:
        shown = found or self.origin.excerpt(node)
        self.error(node, "bad-constant", "This is no constant.", expected=expected, found=shown)
        return None

    def _made(self, node: ast.expr, by: object, text: str) -> Value:
        if by == Word("dim"):
            return self.dim(node, text)
        found = named_float(text) if by == Word("float") else WRONG
        return self._no_value(node) if found is WRONG else found

    def _named_value(self, node: ast.expr) -> Value:
        found = self.meaning(node)
        if isinstance(found, Word) and found.path in DTYPE_WORDS:
            return DTYPE_WORDS[found.path]
        if isinstance(found, Literal):  # a number among Python's globals
            return found.value
        if isinstance(node, ast.Name):
            value = self.scope.outer.plain(node.id)
            if value is not None:
                return value
        if isinstance(found, Word | None):
            return self._no_value(node)
        return self.read(node)

    def _no_value(self, node: ast.expr) -> Value:
        expected = "numbers, strings, dtypes, dims and tuples of them"
        self.bad(node, expected, "An attribute must be known without running anything.")
        return WRONG


def named_float(text: str) -> Any:
    """The float that the printer writes as a string."""
    if text in _FLOATS:
        return _FLOATS[text]
    head, _, bits = text.partition(":")
    if head == "nan" and len(bits) == 16 and all(c in "0123456789abcdef" for c in bits):
        value = struct.unpack(">d", bytes.fromhex(bits))[0]
        return value if math.isnan(value) else WRONG
    return WRONG


def _natural(values: list[bool | int | float]) -> DType:
    """The dtype of numbers that are given none: as inference has it."""
    if any(isinstance(value, float) for value in values):
        return f32
    return bool_ if values and all(isinstance(value, bool) for value in values) else i64


def _fits(value: bool | int | float, dtype: DType) -> bool:
    if dtype is bool_:
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if dtype.is_integer:
        low, high = dtype.bounds
        return isinstance(value, int) and low <= value <= high
    if isinstance(value, float) and not math.isfinite(value):
        return True
    if abs(value) > 2.0**1023 and abs(value) >= 2**1024:  # beyond what a float can hold
        return False
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.asarray(float(value)).astype(dtype.numpy)))
