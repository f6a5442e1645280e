"""Material of random kernels: extents, buffers, indices and values that later stages are made of.

>>> made = Material(Random(0))
>>> made.index(index(4), {}) is index(0)
True
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Final

import numpy as np
from attrs import frozen

from plica.analysis.region import boxes
from plica.core import Name, free_vars
from plica.ir.interpret.value import Array
from plica.ir.loop import Alloc, Kernel, Stmt, axis, index, scalar as sc, seq
from plica.ir.type import DType, dim_var, f32, i32, i64, shape_of

NUMBERS: Final = (1, 2, 3, 4, 4, 5, 6, 8)
MAX_POINTS: Final = 200


@frozen(eq=False)
class KernelCase:
    """A kernel, the sizes of its dims, and arrays for what it reads."""

    kernel: Kernel
    sizes: Mapping[sc.ScalarVar, int]
    arrays: tuple[Array, ...]


class Material:
    """A kernel under construction."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.dtype: DType = i32 if random.random() < 0.7 else f32
        self.sizes: dict[sc.ScalarVar, int] = {
            dim_var(name): random.choice((1, 2, 3, 5, 6)) for name in "nm"
        }
        numbers = [index(random.choice(NUMBERS)) for _ in range(2)]
        symbolic = [dim for dim in self.sizes if random.random() < 0.4]
        self.extents: list[sc.Scalar] = [*numbers, *symbolic]
        self.inputs: list[sc.Buffer] = []
        self.made: list[sc.Buffer] = []
        self.stmts: list[Stmt] = []
        self.axes = 0
        shape = self.shape(random.randint(1, 2))
        self.input(shape)

    def case(self) -> KernelCase:
        """The finished case: buffers that no stage reads are results, and some of the others."""
        read = {buffer for stmt in self.stmts for buffer in _loaded(stmt)}
        results = [buffer for buffer in self.made if buffer not in read]
        results += [each for each in self.made if each in read and self.random.random() < 0.15]
        results = results or self.made[-1:]
        body = seq(*self.stmts)
        for buffer in self.made:
            if buffer not in results:
                body = Alloc(buffer, body)
        free = free_vars(body).union(*[free_vars(buffer) for buffer in (*self.inputs, *results)])
        used = [size for size in self.sizes if size in free]
        kernel = Kernel(tuple(used), (*self.inputs, *results), len(self.inputs), body)
        sizes = {var: self.sizes[var] for var in used}
        filled = tuple(self.filled(buffer, sizes) for buffer in self.inputs)
        return KernelCase(kernel, sizes, filled)

    def filled(self, buffer: sc.Buffer, sizes: Mapping[sc.ScalarVar, int]) -> Array:
        """Small whole numbers."""
        shape = shape_of(buffer.shape, sizes)  # type: ignore[arg-type]  # dims are terms
        assert shape is not None
        count = int(np.prod(shape, dtype=np.int64))
        numbers = [self.random.randint(-3, 3) for _ in range(count)]
        return np.array(numbers, buffer.dtype.numpy).reshape(shape)

    # -- names and sizes ---------------------------------------------------------------------

    def axis(self) -> sc.ScalarVar:
        self.axes += 1
        return axis("ijkl"[self.axes % 4], self.axes // 4)

    def buffer(self, hint: str, shape: tuple[sc.Scalar, ...], dtype: DType) -> sc.Buffer:
        number = len(self.inputs) + len(self.made)
        return sc.Buffer(Name(f"{hint}{number}"), shape, dtype)

    def input(self, shape: tuple[sc.Scalar, ...], dtype: DType | None = None) -> sc.Buffer:
        """One more input; a stage may request a suitable shape."""
        new = self.buffer("x", shape, dtype or self.dtype)
        self.inputs.append(new)
        return new

    def result(self, shape: tuple[sc.Scalar, ...]) -> sc.Buffer:
        new = self.buffer("y", shape, self.dtype)
        self.made.append(new)
        return new

    def size(self, extent: sc.Scalar) -> int:
        shape = shape_of((extent,), self.sizes)  # type: ignore[arg-type]  # dims are terms
        assert shape is not None
        return shape[0]

    def shape(self, rank: int) -> tuple[sc.Scalar, ...]:
        """Extents with a small product."""
        scalars: list[sc.Scalar] = []
        points = 1
        for _ in range(rank):
            extent = self.random.choice(self.extents)
            if points * self.size(extent) > MAX_POINTS:
                extent = index(2)
            points *= self.size(extent)
            scalars.append(extent)
        return tuple(scalars)

    def source(self) -> sc.Buffer:
        """A buffer to read, usually the latest one."""
        if self.made and self.random.random() < 0.7:
            return self.made[-1]
        return self.random.choice([*self.inputs, *self.made])

    # -- indices and values --------------------------------------------------------------------

    def index(self, extent: sc.Scalar, vars: Mapping[sc.ScalarVar, sc.Scalar]) -> sc.Scalar:
        """An index below an extent."""
        same = [var for var, size in vars.items() if size is extent]
        draw = self.random.random()
        if same and draw < 0.75:
            return self.random.choice(same)
        if same and draw < 0.82:
            return extent - 1 - self.random.choice(same)
        if same and draw < 0.9:
            return sc.Min(self.random.choice(same) + 1, extent - 1)
        if vars and draw < 0.97:
            return self.random.choice(list(vars)) % extent
        if vars and draw < 0.985:
            var = self.random.choice(list(vars))
            places = self.input((vars[var],), i64)
            return places[var] % extent
        return index(0)

    def load(self, buffer: sc.Buffer, vars: Mapping[sc.ScalarVar, sc.Scalar]) -> sc.Scalar:
        return buffer[tuple(self.index(extent, vars) for extent in buffer.shape)]

    def value(self, vars: Mapping[sc.ScalarVar, sc.Scalar]) -> sc.Scalar:
        """An expression of one or two elements."""
        first = self.load(self.source(), vars)
        match self.random.choice(("copy", "add", "sub", "max", "twice", "input")):
            case "copy":
                return first
            case "add":
                return first + self.load(self.source(), vars)
            case "sub":
                return sc.Sub(first, self.load(self.source(), vars))
            case "max":
                return sc.Max(first, self.load(self.source(), vars))
            case "twice":
                return first * 2
            case _:
                fitting = self.input(tuple(vars.values())[-1:])
                return first + self.load(fitting, vars)


def _loaded(stmt: Stmt) -> set[sc.Buffer]:
    reads, writes = boxes(stmt)
    written = {write.buffer for write in writes}
    return {read.buffer for read in reads if read.buffer not in written}
