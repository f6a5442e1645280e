"""Models in: from the flatbuffer of a TFLite file to a module of the graph language.

Weights become constants; inputs and outputs keep their names and the sizes that the file gives
them. Everything unsupported is listed at once.

A tensor with scales is stored as integers: operators compute with the numbers that the integers
stand for, and the result is quantised by the scale of its own tensor.
"""

from __future__ import annotations

import re
import struct
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from plica.core import Name
from plica.core.collector import paused
from plica.frontend.tflite.flatbuffer import FlatTable
from plica.frontend.tflite.node import EMPTY, TfliteNode
from plica.frontend.tflite.table import TABLE
from plica.ir.graph.expression import Expr, Function, Tuple, Var, const
from plica.ir.graph.module import Module, main_module
from plica.ir.op.namespace import op
from plica.ir.op.record import tensor_of
from plica.ir.type import DType, TensorType, dtype, f32, infer, static_shape, tensor
from plica.runtime.error import Diagnostic, InputError, Place, PlicaError, UnsupportedError

MARK: Final = b"TFL3"
CUSTOM: Final = 32
CASTS: Final = 53  # the operator that reads quantised integers as they are stored

ELEMENTS: Final = {
    0: "f32", 1: "f16", 2: "i32", 3: "u8", 4: "i64", 6: "bool", 7: "i16", 9: "i8", 10: "f64",
    12: "u64", 15: "u32", 16: "u16",
}  # fmt: skip
"""The element types, by the numbers that files have for them."""


def from_tflite(source: str | PathLike[str] | bytes) -> Module:
    """The module of a TFLite model: the path of a file, or its bytes."""
    data = source if isinstance(source, bytes) else Path(source).read_bytes()
    if data[4:8] != MARK:
        message, expected = "This is no TFLite model.", "a flatbuffer that begins with TFL3"
        raise InputError.of(
            "input-type", message, None, expected, repr(data[4:8]), "Give a .tflite."
        )
    try:
        with paused():
            return _Model(FlatTable.root(data)).module()
    except (struct.error, IndexError) as error:
        message = "The TFLite file is damaged."
        raise InputError.of("input-type", message, None, "a whole file", str(error)) from error


class _Model:
    """One file: its tensors, and the terms known so far."""

    def __init__(self, root: FlatTable) -> None:
        self.root, self.codes, self.buffers = root, root.tables(1), root.tables(4)
        graphs = root.tables(2)
        if len(graphs) != 1:
            message, found = "The model has control flow.", f"{len(graphs)} graphs"
            raise UnsupportedError.of("unsupported", message, None, "one graph", found)
        self.graph = graphs[0]
        self.tensors = self.graph.tables(0)
        self.values: dict[int, Expr] = {}
        self.errors: list[Diagnostic] = []
        self.unknown: set[int] = set()  # tensors that depend on what was refused

    def module(self) -> Module:
        """The module of the only graph."""
        names: set[str] = set()
        params = []
        for at in self.graph.numbers(1):
            of = TensorType(tensor(self.shape(at), self.dtype(at)).shape, self.dtype(at))
            params.append(Var(Name(_free(self.name(at), names)), of))
            self.values[at] = params[-1]
        for number, table in enumerate(self.graph.tables(3)):
            if not self.unknown.isdisjoint(table.numbers(1)):
                self.unknown.update(table.numbers(2))
                continue
            try:
                self._operator(number, table)
            except PlicaError as error:
                self.errors += error.diagnostics
                self.unknown.update(table.numbers(2))
        if self.errors:
            raise UnsupportedError(*self.errors)
        outputs = self.graph.numbers(2)
        exprs = [self.value(at) for at in outputs]
        body = exprs[0] if len(exprs) == 1 else Tuple(tuple(exprs))
        attrs = (("outputs", tuple([self.name(at) for at in outputs])),)
        return infer(main_module(Function((), (), tuple(params), None, body, attrs)))

    def name(self, at: int) -> str:
        """The name of a tensor."""
        return self.tensors[at].text(3) or f"tensor_{at}"

    def shape(self, at: int) -> tuple[int, ...]:
        """The sizes of a tensor."""
        found = self.tensors[at].numbers(0)
        if min(found, default=0) < 0:
            raise struct.error(f"the tensor {self.name(at)!r} has a negative size")
        return found

    def dtype(self, at: int) -> DType:
        """The element type of a tensor in the file."""
        number = self.tensors[at].byte(1)
        if number not in ELEMENTS:
            message, expected = "There are no such elements here.", ", ".join(ELEMENTS.values())
            place, found = Place(node=self.name(at)), f"type {number} of TFLite"
            raise UnsupportedError.of("unsupported", message, place, expected, found)
        return dtype(ELEMENTS[number])

    def steps(self, at: int) -> tuple[Expr, Expr] | None:
        """Scale and zero point of a quantised tensor, which broadcast to it."""
        of = self.tensors[at].table(4)
        if of is None or not len(scales := of.array(2, "<f4")):
            return None
        shape, zeros, axis = self.shape(at), of.array(3, "<i8"), of.number(6)
        into, count = self.dtype(at), len(scales)
        zeros = zeros if len(zeros) else np.zeros(count, np.int64)
        low, high = into.bounds if into.is_integer else (0, -1)
        if len(zeros) != count or not low <= min(zeros) <= max(zeros) <= high:
            raise struct.error(f"the tensor {self.name(at)!r} has other zero points than scales")
        if count > 1:
            if not 0 <= axis < len(shape) or shape[axis] != count:
                raise struct.error(f"the tensor {self.name(at)!r} has {count} scales")
            along = [count if here == axis else 1 for here in range(len(shape))]
        else:
            along = []
        return (const(scales.reshape(along), f32),
                const(zeros.astype(into.numpy).reshape(along), into))  # fmt: skip

    def numbers(self, at: int) -> Expr:
        """The numbers that a tensor stands for."""
        steps = self.steps(at)
        return self.value(at) if steps is None else op.dequantise(self.value(at), *steps)

    def value(self, at: int) -> Expr:
        """The term of a tensor: computed before, or constant."""
        if at not in self.values:
            self.values[at] = const(self._stored(at), self.dtype(at))
        return self.values[at]

    def _stored(self, at: int) -> np.ndarray[Any, Any]:
        buffer = self.buffers[self.tensors[at].number(2, 0, "<I")]
        data = buffer.array(0, "u1")
        if not len(data) and (start := buffer.number(1, 0, "<Q")) > 1:  # after the flatbuffer
            size = buffer.number(2, 0, "<Q")
            data = np.frombuffer(buffer.data[start : start + size], np.uint8)
        sizes, element = self.shape(at), self.dtype(at).numpy
        if len(data) != int(np.prod(sizes, dtype=np.int64)) * element.itemsize:
            raise struct.error(f"the tensor {self.name(at)!r} has no value")
        return np.frombuffer(data.tobytes(), element).reshape(sizes)

    def _operator(self, number: int, of: FlatTable) -> None:
        code = self.codes[of.number(0, 0, "<I")]
        kind = max(code.byte(0), code.number(3))
        results = of.numbers(2)
        place = Place(node=self.name(results[0]) if results else f"operator {number}")
        if kind not in TABLE:
            word = code.text(1) if kind == CUSTOM else f"number {kind}"
            message = f"The operator {word} of TFLite is not supported."
            hint = "docs/tflite.md lists the operators that are."
            raise UnsupportedError.of("unsupported", message, place, None, word, hint)
        name, row = TABLE[kind]
        places = of.numbers(1)
        if kind == CASTS and self.steps(places[0]) is not None:
            message, hint = f"{name} of a quantised tensor.", "Use DEQUANTIZE."
            raise UnsupportedError.of(
                "unsupported", message, place, "a tensor without scales", None, hint
            )
        args = tuple([None if at < 0 else self.numbers(at) for at in places])
        shapes = tuple([self.shape(at) for at in results])
        steps = [self.steps(at) for at in results]
        dtypes = tuple([self.dtype(at) if by is None else f32
                        for at, by in zip(results, steps, strict=True)])  # fmt: skip
        options = of.table(4) or EMPTY
        found = row(TfliteNode(name, place, args, options, shapes, dtypes))
        every = [found] if isinstance(found, Expr) else list(found)
        if len(every) != len(results):
            message = f"{name} has {len(results)} results in the file."
            expected = f"{len(every)}"
            raise UnsupportedError.of("unsupported", message, place, expected)
        for at, expr, shape, element, by in zip(results, every, shapes, dtypes, steps, strict=True):
            typed = tensor_of(expr)
            if static_shape(typed) != shape or typed.dtype is not element:
                message, said = f"{name} gives another type than the file says.", f"{shape}"
                raise UnsupportedError.of(
                    "unsupported", message, place, f"{element}{said}", str(typed)
                )
            self.values[at] = expr if by is None else op.quantise(expr, *by)


def _free(name: str, taken: set[str]) -> str:
    """An identifier like a name, which no other input has."""
    word = re.sub(r"\W", "_", name, flags=re.ASCII)
    word = found = word if word[:1].isalpha() else f"x_{word}"
    while found in taken:
        found = f"{word}_{len(taken)}"
    taken.add(found)
    return found
