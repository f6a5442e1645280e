"""Random kernels that can be scheduled and run: stages over small buffers, with inputs for them.

A kernel has one to three stages; each reads inputs and what earlier stages made.  Extents are small
numbers, often not divisible, or symbolic.  Numbers are small and whole, so that sums are exact in
any order.

>>> from plica.ir.interpret.kernel import run_kernel
>>> made = random_case(Random(3))
>>> results = run_kernel(made.kernel, made.arrays, made.sizes)
>>> len(results) == len(made.kernel.params) - made.kernel.inputs
True
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from plica.analysis.site import with_parts
from plica.core.name import Name
from plica.ir.loop import scalar as sc
from plica.ir.loop.statement import Alloc, Block, For, Stmt, Store, block, seq
from plica.ir.loop.tensor import axis
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32, f64
from plica.schedule.generate.material import KernelCase, Material

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

    def block(
        self,
        label: sc.Buffer,
        kinds: str,
        extents: tuple[sc.Scalar, ...],
        body: Callable[[tuple[sc.ScalarVar, ...]], tuple[Stmt | None, Stmt]],
    ) -> tuple[Block, tuple[sc.ScalarVar, ...]]:
        """A block bound to loops of its own, which are given back."""
        loops = tuple(self.axis() for _ in extents)
        own = tuple(axis(f"v{loop.name.hint}", loop.name.index) for loop in loops)
        init, inside = body(own)
        return block(str(label.name), own, extents, kinds, loops, inside, init), loops

    def nest(
        self,
        label: sc.Buffer,
        kinds: str,
        extents: tuple[sc.Scalar, ...],
        body: Callable[[tuple[sc.ScalarVar, ...]], tuple[Stmt | None, Stmt]],
    ) -> Stmt:
        """A block in the loops it needs, reductions outside now and then."""
        inside, loops = self.block(label, kinds, extents, body)
        around = list(zip(loops, extents, strict=True))
        if "o" not in kinds and self.random.random() < 0.2:
            self.random.shuffle(around)
        return _looped(around, inside)

    def map(self) -> Stmt:
        shape = self.source().shape if self.random.random() < 0.6 else self.shape(2)
        shape = shape or self.shape(1)
        made = None

        def body(own: tuple[sc.ScalarVar, ...]) -> tuple[Stmt | None, Stmt]:
            nonlocal made
            value = self.value(dict(zip(own, shape, strict=True)))
            made = self.result(shape)
            return None, Store(made, own, value)

        label = self.buffer("y", shape, self.dtype)
        return self.nest(label, "s" * len(shape), shape, body)

    def combiner(self) -> tuple[type[sc.Add] | type[sc.Max] | type[sc.Min], float]:
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

        def body(own: tuple[sc.ScalarVar, ...]) -> tuple[Stmt | None, Stmt]:
            vars = dict(zip(own, (*spatial, *reduced), strict=True))
            if self.random.random() < 0.35:
                value = self.input((*spatial, *reduced))[own]
            else:
                value = self.value(vars)
            if self.random.random() < 0.2:
                value = value + self.load(self.input(reduced), vars)
            made = self.result(spatial)
            at = own[: len(spatial)]
            update = Store(made, at, operation(made[at], value))
            return Store(made, at, sc.lit(start, self.dtype)), update

        label = self.buffer("y", spatial, self.dtype)
        return self.nest(label, "s" * len(spatial) + "r" * len(reduced), (*spatial, *reduced), body)

    def widened(self) -> Stmt:
        """Sums of f32 in a wider accumulator, rounded once by a block behind them."""
        if self.dtype is not f32:
            return self.reduce()
        spatial, (terms,) = self.shape(1), self.shape(1)
        given = self.input((*spatial, terms))
        wide = self.buffer("w", spatial, f64)

        def summed(own: tuple[sc.ScalarVar, ...]) -> tuple[Stmt | None, Stmt]:
            at = own[:1]
            update = Store(wide, at, wide[at] + sc.Cast(given[own], f64))
            return Store(wide, at, sc.lit(0, f64)), update

        def rounded(own: tuple[sc.ScalarVar, ...]) -> tuple[Stmt | None, Stmt]:
            return None, Store(self.result(spatial), own, sc.Cast(wide[own], f32))

        first = self.nest(wide, "sr", (*spatial, terms), summed)
        label = self.buffer("y", spatial, self.dtype)
        return Alloc(wide, seq(first, self.nest(label, "s", spatial, rounded)))

    def product(self) -> Stmt:
        """A matrix product of what there is and an input."""
        left = self.source()
        if len(left.shape) != 2:
            left = self.input(self.shape(2))
        rows, inner = left.shape
        (columns,) = self.shape(1)
        right = self.input((inner, columns))

        def body(own: tuple[sc.ScalarVar, ...]) -> tuple[Stmt | None, Stmt]:
            i, j, k = own
            made = self.result((rows, columns))
            update = Store(made, (i, j), made[i, j] + left[i, k] * right[k, j])
            return Store(made, (i, j), sc.lit(0, self.dtype)), update

        label = self.buffer("y", (), self.dtype)
        return self.nest(label, "ssr", (rows, columns, inner), body)

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

        def body(own: tuple[sc.ScalarVar, ...]) -> tuple[Stmt | None, Stmt]:
            v = own[0]
            made = self.result(shape)
            within = sc.And(sc.Le(sc.index(below), v), sc.Lt(v, first + below))
            value = sc.Select(within, given[(v - below, *own[1:])], sc.lit(0, self.dtype))
            return None, Store(made, own, value)

        label = self.buffer("y", shape, self.dtype)
        return self.nest(label, "s" * len(shape), shape, body)

    def stencil(self) -> Stmt:
        """A window slides over an input, or over what was made if it is wide enough."""
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

        def body(own: tuple[sc.ScalarVar, ...]) -> tuple[Stmt | None, Stmt]:
            v, r = own
            made = self.result((size,))
            update = Store(made, (v,), made[v] + sc.Mul(given[v + r], weights[r]))
            return Store(made, (v,), sc.lit(0, self.dtype)), update

        label = self.buffer("y", (size,), self.dtype)
        return self.nest(label, "sr", (size, sc.index(width)), body)

    def scan(self) -> Stmt:
        """Running sums, whose order matters."""
        (size,) = self.shape(1)

        def body(own: tuple[sc.ScalarVar, ...]) -> tuple[Stmt | None, Stmt]:
            (v,) = own
            value = self.value({v: size})
            made = self.result((size,))
            return None, Store(
                made, (v,), sc.Select(sc.Lt(v, sc.index(1)), value, made[v - 1] + value)
            )

        label = self.buffer("y", (size,), self.dtype)
        return self.nest(label, "o", (size,), body)

    def wave(self) -> Stmt:
        """Sums along a diagonal, for which the order of both loops matters."""
        rows, columns = self.shape(2)

        def body(own: tuple[sc.ScalarVar, ...]) -> tuple[Stmt | None, Stmt]:
            v, w = own
            value = self.value({v: rows, w: columns})
            made = self.result((rows, columns))
            edge = sc.Or(sc.Lt(v, sc.index(1)), sc.Le(columns - 1, w))
            return None, Store(made, own, sc.Select(edge, value, made[v - 1, w + 1] + value))

        label = self.buffer("y", (rows, columns), self.dtype)
        return self.nest(label, "oo", (rows, columns), body)

    def twice(self) -> Stmt:
        """Two blocks that write one buffer."""
        first = self.map()
        made = self.made[-1]

        def body(own: tuple[sc.ScalarVar, ...]) -> tuple[Stmt | None, Stmt]:
            return None, Store(made, own, made[own] + sc.Lit(1, self.dtype))

        label = sc.Buffer(Name(f"{made.name}b"), (), self.dtype)
        return seq(first, self.nest(label, "s" * len(made.shape), made.shape, body))

    def shared(self) -> Stmt:
        """A producer and a consumer in one loop."""
        rows, columns = self.shape(2)

        def produced(own: tuple[sc.ScalarVar, ...]) -> tuple[Stmt | None, Stmt]:
            value = self.value(dict(zip(own, (rows, columns), strict=True)))
            return None, Store(self.result((rows, columns)), own, value)

        label = self.buffer("y", (), self.dtype)
        first, (i, j) = self.block(label, "ss", (rows, columns), produced)
        between = self.made[-1]
        operation, start = self.combiner()

        def consumed(own: tuple[sc.ScalarVar, ...]) -> tuple[Stmt | None, Stmt]:
            v, w = own
            made = self.result((rows,))
            update = Store(made, (v,), operation(made[v], between[v, w]))
            return Store(made, (v,), sc.lit(start, self.dtype)), update

        then, (_, r) = self.block(self.buffer("y", (), self.dtype), "sr", (rows, columns), consumed)
        moved = with_parts(then, bindings=(i, r))
        nests = seq(For(j, columns, "serial", first), For(r, columns, "serial", moved))
        return For(i, rows, "serial", nests)


def _looped(around: list[tuple[sc.ScalarVar, sc.Scalar]], inside: Stmt) -> Stmt:
    for var, extent in reversed(around):
        inside = For(var, extent, "serial", inside)
    return inside
