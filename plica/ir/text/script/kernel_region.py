"""Buffers, regions and annotations in the text of kernels.

Buffer[(4, n), f32, "shared", strides(8, 1), align(64)]
A[i, 0:4]
annotations={"pipeline": (0, 1)}
"""

from __future__ import annotations

import ast

from plica.ir.loop.scalar import Add, Buffer, Lit, Scalar, Sub
from plica.ir.loop.statement import Annotations, Plain, Region
from plica.ir.text.script.kernel_scalar import ScalarReader
from plica.ir.text.script.value import WRONG, named_float
from plica.ir.text.word import DTYPE_WORDS
from plica.ir.type import i64


class RegionReader(ScalarReader):
    """Reads the parts of statements other than scalars."""

    def buffer_type(self, node: ast.expr, name: str) -> Buffer | None:
        """The buffer of a name whose type is written as `Buffer[(4, n), f32, …]`."""
        match node:
            case ast.Subscript(base, ast.Tuple([ast.Tuple(sizes), kind, *rest])) if (
                self.word(base) == "Buffer"
            ):
                pass
            case _:
                self.bad(node, 'Buffer[("n", 4), f32]', "This is no type of a buffer.")
                return None
        if (dtype := DTYPE_WORDS.get(self.word(kind) or "")) is None:
            self.no_dtype(kind)
        shape = [self.size(size) for size in sizes]
        scope, strides, align = "global", [], 0
        for part in rest:
            match part:
                case ast.Constant(str() as scope):
                    pass
                case ast.Call(callee, steps, []) if self.word(callee) == "strides":
                    strides = [self.size(step) for step in steps]
                    if len(steps) != len(shape):
                        message = f"A buffer of rank {len(shape)} has as many strides."
                        found = str(len(steps))
                        self.error(
                            part, "wrong-arity", message, expected=str(len(shape)), found=found
                        )
                        return None
                case ast.Call(callee, [ast.Constant(int() as align)], []) if self.word(
                    callee
                ) == "align" and not isinstance(align, bool):
                    pass
                case _:
                    self.bad(part, 'a scope such as "shared", strides(8, 1) or align(64)')
        if dtype is None or None in shape or None in strides:
            return None
        fixed = [scalar for scalar in (*shape, *strides) if scalar is not None]
        rank = len(shape)
        return Buffer(
            self.scope.free(name), tuple(fixed[:rank]), dtype, scope, tuple(fixed[rank:]), align
        )

    def size(self, node: ast.expr) -> Scalar | None:
        """A size of a buffer: an expression, or one in quotes."""
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            return self.index(node)
        try:
            inside = ast.parse(node.value.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # the parser's own refusals
            self.unsupported(node, f"{node.value[:60]!r} is no size.", expected='"2*n+1"')
            return None
        for each in ast.walk(inside):  # what is wrong in it is wrong at the string
            if isinstance(each, ast.expr):
                ast.copy_location(each, node)
        return self.index(inside)

    def operand(self, node: ast.expr) -> Region | Scalar | None:
        match node:
            case ast.Subscript(ast.Name(), index) if _is_region(index):
                return self.region(node)
            case ast.Name(name) if (b := self.scope.find(name)) and isinstance(b.term, Buffer):
                return self.region(node)
        return self.scalar(node)

    def region(self, node: ast.expr) -> Region | None:
        """`A[i, 0:4]`, or a whole buffer by its name."""
        found = self._region(node)
        if found is not None and found.buffer in self.scope.views:
            message = "A view of a buffer is read and written element by element."
            self.unsupported(node, message, found=self.origin.excerpt(node))
            return None
        return found

    def _region(self, node: ast.expr) -> Region | None:
        if isinstance(node, ast.Name):
            whole = self.buffer(node)
            zeros = () if whole is None else (Lit(0, i64),) * len(whole.shape)
            return None if whole is None else Region(whole, zeros, whole.shape)
        if not isinstance(node, ast.Subscript):
            self.bad(node, "A[i, 0:4]", "This is no region of a buffer.")
            return None
        buffer = self.buffer(node.value)
        if buffer is not None and isinstance(node.slice, ast.Constant) and not buffer.shape:
            return Region(buffer, (), ())  # A[...]
        items = None if buffer is None else self.indices(buffer, node)
        if buffer is None or items is None:
            return None
        spans = [self._span(item) for item in items]
        fixed = [span for span in spans if span is not None]
        if len(fixed) != len(spans):
            return None
        return Region(buffer, tuple([a for a, _ in fixed]), tuple([b for _, b in fixed]))

    def _span(self, node: ast.expr) -> tuple[Scalar, Scalar] | None:
        """Where a slice begins, and how long it is."""
        if not isinstance(node, ast.Slice):
            start = self.index(node)
            return None if start is None else (start, Lit(1, i64))
        if node.lower is None or node.upper is None or node.step is not None:
            self.bad(node, "0:4", "A slice has a start and an end.")
            return None
        start = self.index(node.lower)
        match node.upper:
            case ast.BinOp(left, ast.Add(), right) if start is not Lit(0, i64) and ast.dump(
                left
            ) == ast.dump(node.lower):
                # How long it is may have another dtype than where it begins.
                extent = self.index(right)
                return None if start is None or extent is None else (start, extent)
        stop = self.index(node.upper)
        if start is None or stop is None:
            return None
        if start is Lit(0, i64):
            return start, stop
        if isinstance(start, Lit) and isinstance(stop, Lit):
            return start, Lit(stop.value - start.value, i64)
        if isinstance(stop, Add) and stop.left is start:
            return start, stop.right
        return start, Sub(stop, start)

    def annotations(self, keywords: list[ast.keyword]) -> Annotations:
        """What keywords say besides: each by itself, or all in `annotations={…}`."""
        found: dict[str, Plain] = {}
        for keyword in keywords:
            if keyword.arg == "annotations":
                found |= self.notes(keyword.value)
            elif keyword.arg is not None and (value := self._plain(keyword.value)) is not None:
                found[keyword.arg] = value
        return tuple(sorted(found.items()))

    def notes(self, node: ast.expr) -> dict[str, Plain]:
        """A dict of plain data."""
        found: dict[str, Plain] = {}
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                made = self._plain(value)
                if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                    self.bad(key or node, '{"name": 1}', "The keys of annotations are strings.")
                elif made is not None:
                    found[key.value] = made
        else:
            self.bad(node, 'annotations={"name": 1}', "Annotations are a dict.")
        return found

    def _plain(self, node: ast.expr) -> Plain | None:
        match node:
            case ast.Constant(bool() | int() | float() | str() as value):
                return value
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
                return -value
            case ast.Call(callee, [ast.Constant(str() as text)], []) if (
                self.word(callee) == "float" and named_float(text) is not WRONG
            ):
                return named_float(text)  # type: ignore[no-any-return]  # a float
            case ast.Tuple(items):
                inside = [self._plain(item) for item in items]
                return None if None in inside else tuple(inside)  # type: ignore[arg-type]  # None was just ruled out
        self.bad(node, "numbers, strings, bools, tuples of them", "This is no plain data.")
        return None


def _is_region(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(isinstance(part, ast.Slice) or _is_dots(part) for part in parts)


def _is_dots(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...
