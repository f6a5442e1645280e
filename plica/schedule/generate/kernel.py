"""Random kernels that can be scheduled and run: stages over small buffers, with inputs for them.

>>> from plica.ir.interpret.kernel import run_kernel
>>> made = random_case(Random(3))
>>> results = run_kernel(made.kernel, made.arrays, made.sizes)
>>> len(results) == len(made.kernel.params) - made.kernel.inputs
True

Intrinsics for random schedules: small meanings of any size, which random kernels often contain.

>>> len(NAMES) == len(set(NAMES))
True
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, TypeAlias

from plica.analysis.site import with_parts
from plica.ir.loop import (
    Alloc,
    Block,
    Buffer,
    For,
    Kernel,
    Scalar,
    ScalarVar,
    Stmt,
    Store,
    axis,
    buffer,
    scalar as sc,
    seq,
)
from plica.ir.loop.intrinsic import intrinsic
from plica.ir.loop.scalar import lit
from plica.ir.loop.statement import block
from plica.ir.type import DType, dim_var, f32, f64, i32, known
from plica.schedule.generate.material import KernelCase, Material

Vars: TypeAlias = tuple[sc.ScalarVar, ...]
Extents: TypeAlias = tuple[sc.Scalar, ...]
Value: TypeAlias = Callable[[Vars], sc.Scalar]
Element: TypeAlias = Callable[[sc.Buffer, Vars, sc.Scalar], sc.Scalar]
Operation: TypeAlias = type[sc.Add] | type[sc.Max] | type[sc.Min]
Body: TypeAlias = Callable[[Vars], tuple[Stmt | None, Stmt]]
BlockInLoops: TypeAlias = tuple[Block, Vars]

STAGES: Final = (
    "map", "map", "reduce", "reduce", "product", "pad", "stencil", "scan", "wave", "twice",
    "shared", "widened",
)  # fmt: skip


def random_case(random: Random) -> KernelCase:
    """A kernel of a few stages, and data for it."""
    maker = _Maker(random)
    for _ in range(random.randint(1, 3)):
        maker.stage(random.choice(STAGES))
    return maker.case()


class _Maker(Material):
    """A kernel under construction, stage by stage."""

    def stage(self, kind: str) -> None:
        """One more stage."""
        stages: dict[str, Callable[[], Stmt]] = {
            "map": self.map, "reduce": self.reduce, "product": self.product, "pad": self.pad,
            "stencil": self.stencil, "scan": self.scan, "wave": self.wave, "twice": self.twice,
            "shared": self.shared, "widened": self.widened,
        }  # fmt: skip
        self.stmts.append(stages[kind]())

    def block(self, kinds: str, extents: Extents, body: Body, label: str = "") -> BlockInLoops:
        """A block bound to its own loops, which are returned."""
        label = label or str(self.buffer("y", (), self.dtype).name)
        loops = tuple(self.axis() for _ in extents)
        own = tuple(axis(f"v{loop.name.hint}", loop.name.index) for loop in loops)
        init, inside = body(own)
        return block(label, own, extents, kinds, loops, inside, init), loops

    def nest(self, kinds: str, extents: Extents, body: Body, label: str = "") -> Stmt:
        """A block in the loops it needs, reductions outside now and then."""
        inside, loops = self.block(kinds, extents, body, label)
        around = list(zip(loops, extents, strict=True))
        if "o" not in kinds and self.random.random() < 0.2:
            self.random.shuffle(around)
        return _looped(inside, *around)

    def stored(
        self, shape: Extents, value: Value, element: Element = lambda made, own, value: value
    ) -> Body:
        """The content of a new buffer: an element of a value, and of the buffer itself."""

        def body(own: Vars) -> tuple[Stmt | None, Stmt]:
            scalar = value(own)
            made = self.result(shape)
            return None, Store(made, own, element(made, own, scalar))

        return body

    def folded(
        self, shape: Extents, value: Value, operation: Operation = sc.Add, start: float = 0
    ) -> Body:
        """A reduction into a new buffer over the first axes, element by element along the
        others."""

        def body(own: Vars) -> tuple[Stmt | None, Stmt]:
            scalar, at = value(own), own[: len(shape)]
            made = self.result(shape)
            update = Store(made, at, operation(made[at], scalar))
            return Store(made, at, sc.lit(start, self.dtype)), update

        return body

    def map(self) -> Stmt:
        shape = self.source().shape if self.random.random() < 0.6 else self.shape(2)
        shape = shape or self.shape(1)
        body = self.stored(shape, lambda own: self.value(dict(zip(own, shape, strict=True))))
        return self.nest("s" * len(shape), shape, body)

    def combiner(self) -> tuple[Operation, float]:
        """An operation to reduce with, and what it begins with."""
        least, greatest = (
            (float("-inf"), float("inf")) if self.dtype.is_float else self.dtype.bounds
        )
        options = ((sc.Add, 0), (sc.Add, 0), (sc.Max, least), (sc.Min, greatest))
        return self.random.choice(options)

    def reduce(self) -> Stmt:
        """Sums and extremes over one or two axes."""
        spatial = self.shape(self.random.randint(0, 2))
        reduced = self.shape(self.random.randint(1, 2 if len(spatial) < 2 else 1))
        operation, start = self.combiner()
        whole = (*spatial, *reduced)

        def value(own: Vars) -> sc.Scalar:
            vars = dict(zip(own, whole, strict=True))
            scalar = self.input(whole)[own] if self.random.random() < 0.35 else self.value(vars)
            if self.random.random() < 0.2:
                scalar = scalar + self.load(self.input(reduced), vars)
            return scalar

        body = self.folded(spatial, value, operation, start)
        return self.nest("s" * len(spatial) + "r" * len(reduced), whole, body)

    def widened(self) -> Stmt:
        """Sums of f32 in a wider accumulator, rounded once by a block behind them."""
        if self.dtype is not f32:
            return self.reduce()
        spatial, (terms,) = self.shape(1), self.shape(1)
        given = self.input((*spatial, terms))
        wide = self.buffer("w", spatial, f64)

        def summed(own: Vars) -> tuple[Stmt | None, Stmt]:
            at = own[:1]
            update = Store(wide, at, wide[at] + sc.Cast(given[own], f64))
            return Store(wide, at, sc.lit(0, f64)), update

        first = self.nest("sr", (*spatial, terms), summed, str(wide.name))
        rounded = self.stored(spatial, lambda own: sc.Cast(wide[own], f32))
        return Alloc(wide, seq(first, self.nest("s", spatial, rounded)))

    def product(self) -> Stmt:
        """A matrix product of an existing buffer and an input."""
        left = self.source()
        if len(left.shape) != 2:
            left = self.input(self.shape(2))
        rows, inner = left.shape
        (columns,) = self.shape(1)
        right = self.input((inner, columns))
        body = self.folded((rows, columns), lambda v: left[v[0], v[2]] * right[v[2], v[1]])
        return self.nest("ssr", (rows, columns, inner), body)

    def pad(self) -> Stmt:
        """A border of zeros along the first dimension."""
        given = self.source()
        if not given.shape:
            given = self.input(self.shape(1))
        first = given.shape[0]
        below, above = self.random.choice(((1, 1), (0, 2), (2, 0)))
        shape = (first + (below + above), *given.shape[1:])
        if (size := known(first)) is not None:
            shape = (sc.index(size + below + above), *given.shape[1:])

        def value(own: Vars) -> sc.Scalar:
            v = own[0]
            within = sc.And(sc.Le(sc.index(below), v), sc.Lt(v, first + below))
            return sc.Select(within, given[(v - below, *own[1:])], sc.lit(0, self.dtype))

        return self.nest("s" * len(shape), shape, self.stored(shape, value))

    def stencil(self) -> Stmt:
        """A window over an input, or over an existing buffer if it is wide enough."""
        (size,) = self.shape(1)
        width = self.random.choice((2, 3))
        number = known(size)
        wide = size + (width - 1) if number is None else sc.index(number + width - 1)
        given = self.source()
        first = None if not given.shape else known(given.shape[0])
        if first is not None and first >= width and len(given.shape) == 1:
            size = sc.index(first - width + 1)
        else:
            given = self.input((wide,))
        weights = self.input((sc.index(width),))
        body = self.folded((size,), lambda own: sc.Mul(given[own[0] + own[1]], weights[own[1]]))
        return self.nest("sr", (size, sc.index(width)), body)

    def scan(self) -> Stmt:
        """Running sums, whose order matters."""
        (size,) = self.shape(1)

        def element(made: sc.Buffer, own: Vars, value: sc.Scalar) -> sc.Scalar:
            return sc.Select(sc.Lt(own[0], sc.index(1)), value, made[own[0] - 1] + value)

        body = self.stored((size,), lambda own: self.value({own[0]: size}), element)
        return self.nest("o", (size,), body)

    def wave(self) -> Stmt:
        """Sums along a diagonal, for which the order of both loops matters."""
        rows, columns = self.shape(2)

        def element(made: sc.Buffer, own: Vars, value: sc.Scalar) -> sc.Scalar:
            v, w = own
            edge = sc.Or(sc.Lt(v, sc.index(1)), sc.Le(columns - 1, w))
            return sc.Select(edge, value, made[v - 1, w + 1] + value)

        shape = (rows, columns)
        value = self.stored(
            shape, lambda own: self.value(dict(zip(own, shape, strict=True))), element
        )
        return self.nest("oo", shape, value)

    def twice(self) -> Stmt:
        """Two blocks that write one buffer."""
        first = self.map()
        made = self.made[-1]

        def body(own: Vars) -> tuple[Stmt | None, Stmt]:
            return None, Store(made, own, made[own] + sc.Lit(1, self.dtype))

        return seq(first, self.nest("s" * len(made.shape), made.shape, body, f"{made.name}b"))

    def shared(self) -> Stmt:
        """A producer and a consumer in one loop."""
        rows, columns = shape = self.shape(2)
        body = self.stored(shape, lambda own: self.value(dict(zip(own, shape, strict=True))))
        first, (i, j) = self.block("ss", shape, body)
        between = self.made[-1]
        then, (_, r) = self.block(
            "sr", shape, self.folded((rows,), lambda own: between[own], *self.combiner())
        )
        moved = with_parts(then, bindings=(i, r))
        nests = seq(For(j, columns, "serial", first), For(r, columns, "serial", moved))
        return For(i, rows, "serial", nests)


# --- intrinsics for random schedules -----------------------------------------------------------


M, N, P = (dim_var(name) for name in ("rows", "columns", "depth"))
X, Y, Z = (axis(name) for name in "ijk")


def _looped(body: Stmt, *loops: tuple[ScalarVar, Scalar]) -> Stmt:
    for var, extent in reversed(loops):
        body = For(var, extent, "serial", body)
    return body


def _product(dtype: DType) -> Kernel:
    a, b, c = buffer("a", (M, P), dtype), buffer("b", (P, N), dtype), buffer("c", (M, N), dtype)
    body = Store(c, (X, Y), c[X, Y] + a[X, Z] * b[Z, Y])
    return Kernel((M, N, P), (a, b, c), 2, _looped(body, (X, M), (Y, N), (Z, P)))


def _copy(dtype: DType) -> Kernel:
    a, b = buffer("a", (M, N), dtype), buffer("b", (M, N), dtype)
    return Kernel((M, N), (a, b), 1, _looped(Store(b, (X, Y), a[X, Y]), (X, M), (Y, N)))


def _line(value: Callable[[Buffer], Scalar]) -> Callable[[DType], Kernel]:
    def made(dtype: DType) -> Kernel:
        a, b = buffer("a", (N,), dtype), buffer("b", (N,), dtype)
        return Kernel((N,), (a, b), 1, _looped(Store(b, (X,), value(a)), (X, N)))

    return made


def _sums(dtype: DType) -> Kernel:
    a, b = buffer("a", (M, P), dtype), buffer("b", (M,), dtype)
    return Kernel((M, P), (a, b), 1, _looped(Store(b, (X,), b[X] + a[X, Z]), (X, M), (Z, P)))


def _zeros(dtype: DType) -> Kernel:
    b = buffer("b", (N,), dtype)
    return Kernel((N,), (b,), 0, _looped(Store(b, (X,), lit(0, dtype)), (X, N)))


# fmt: off
MEANINGS: Final[dict[str, Callable[[DType], Kernel]]] = {
    "product": _product,
    "copy":    _copy,
    "line":    _line(lambda a: a[X]),
    "twice":   _line(lambda a: a[X] * 2),
    "sums":    _sums,
    "zeros":   _zeros,
}
# fmt: on
NAMES: Final = tuple(
    [
        intrinsic(f"fuzz.{name}_{dtype}", meaning(dtype)).name
        for name, meaning in MEANINGS.items()
        for dtype in (i32, f32)
    ]
)
