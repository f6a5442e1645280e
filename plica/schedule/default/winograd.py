"""The form of a Winograd convolution: its tiles are transformed, multiplied, transformed back.

    room    the data with its border, channels last                     room[h, w, c]
    for blocks of rows of tiles:
        data      (B x Bᵀ) of each tile, lanes over channels            data[p, tile, c]
        product   a matrix product for each of the places p of a tile   product[p, tile, o]
        out       f(A (product) Aᵀ) of each tile, lanes over outputs

As many rows of tiles make a block as keep its data and its products in a cache.  A tile is in
registers from when it is read until it is transformed; multiplications by 0 and 1 are not written.

>>> from plica.ir.dtype import f32
>>> from plica.ir.op.winograd import conv_winograd
>>> from plica.ir.tensor import buffer
>>> x, w = buffer("x", (1, 32, 8, 8), f32), buffer("w", (36, 32, 32), f32)
>>> of = Work(conv_winograd.compute({"tile": 4, "padding": 1}, x, w))
>>> [[known(size) for size in each.shape] for each in tiled(of, (False, True), Machine(512, 32)).scratch]
[[10, 10, 32], [36, 4, 32], [36, 4, 32]]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Final

from attrs import frozen

from plica.core.binding import substitute
from plica.core.digest import digest
from plica.core.fold import map_bottom_up, post_order
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.dim import known, polynomial
from plica.ir.dtype import f32, f64, i64
from plica.ir.loop import (
    NOTHING,
    Alloc,
    Block,
    Branch,
    For,
    Kernel,
    LoopKind,
    Stmt,
    Store,
    seq,
    statements,
)
from plica.ir.op.winograd import TILES, Matrix, Tiling, conv_winograd
from plica.ir.scalar import (
    Add,
    Buffer,
    Lit,
    Load,
    Lt,
    Mul,
    Reduce,
    Scalar,
    ScalarVar,
    Sub,
    dtype_of,
    index,
)
from plica.ir.tensor import Compute
from plica.schedule.around import simple
from plica.schedule.default.contraction import Work
from plica.schedule.default.form import Formed, Packing
from plica.schedule.default.machine import Machine
from plica.schedule.default.tile import Tile, fits

NARROW: Final = 4
"""Vectors of fewer lanes are none."""

SHARED: Final = 1 << 20
"""Fewer products than that are not worth waking other cores."""

LINE: Final = 64
"""Bytes that come from memory together."""

FAR: Final = 10
"""Bytes that come from behind the caches of a core in one cycle, about."""

WRITTEN: Final = 32
"""Multiply-adds in the text of the innermost loop, about."""


@frozen(eq=False)
class Shape:
    """A Winograd convolution that was found in some work."""

    x: Buffer
    weight: Buffer
    of: Tiling
    before: tuple[int, int]
    batch: int
    channels: int
    outputs: int
    size: tuple[int, int]
    """Rows and columns of the data."""
    result: tuple[int, int]
    """Rows and columns of the result."""

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        rows, columns = (-(-size // self.of.size) for size in self.result)
        return rows, columns


def found(of: Work) -> Shape | None:
    """The Winograd convolution some work begins with, None where it does not."""
    body = of.compute.body
    if not isinstance(body, Reduce) or body.combiner != "sum" or len(body.axes) != 3:
        return None
    loads = [node for node in post_order(body) if isinstance(node, Load)]
    data = [each for each in loads if len(each.buffer.shape) == 4]
    weights = {each.buffer: None for each in loads if len(each.buffer.shape) == 3}
    if len(data) != 1 or len(weights) != 1 or len(of.compute.shape) != 4:
        return None
    x, (weight,) = data[0].buffer, weights
    sizes = [known(each) for each in (*x.shape, *weight.shape, *of.compute.shape)]
    tile = next((each for each in TILES.values() if each.span**2 == known(weight.shape[0])), None)
    if tile is None or not all(sizes):
        return None
    n, c, h, w, _, _, o, _, _, rows, columns = (each or 0 for each in sizes)
    before = tuple([-_offset(each) for each in data[0].indices[2:]])
    after = (rows + 2 - h - before[0], columns + 2 - w - before[1])
    if min(*before, *after) < 0:
        return None
    pads = tuple(zip(before, after, strict=True))
    if not _is(of.compute, x, weight, tile, pads):
        return None
    return Shape(x, weight, tile, (before[0], before[1]), n, c, o, (h, w), (rows, columns))


def _offset(place: Scalar) -> int:
    """The number in an affine index."""
    return sum(factor for atoms, factor in polynomial(place).values() if not atoms)


def _is(of: Compute, x: Buffer, weight: Buffer, tile: Tiling, pads: tuple[object, ...]) -> bool:
    """Whether a tensor expression is that of the operator: the same up to names."""
    assert conv_winograd.compute is not None
    made = conv_winograd.compute({"tile": tile.size, "padding": pads}, x, weight)
    assert isinstance(made, Compute)
    bare = Compute((x, weight), of.axes, of.shape, of.body)
    return digest(_without_units(bare)) == digest(_without_units(made))


def _without_units(of: Compute) -> Compute:
    """The same with 0 for axes of length 1."""
    units: dict[Term, Term] = {
        axis: index(0) for axis, size in zip(of.axes, of.shape, strict=True) if known(size) == 1
    }
    body = substitute(of.body, units)
    assert isinstance(body, Scalar)
    return Compute(of.inputs, of.axes, of.shape, body)


# --- decisions ------------------------------------------------------------------------------------


@frozen
class Plan:
    """Lanes over channels and over outputs, rows of tiles of a block, the tile of the products.

    `whole` is how many lanes a vector has.
    """

    whole: int
    inner: int
    outer: int
    rows: int
    tile: Tile
    shares: bool
    fetches: bool
    """Whether weights come from behind the cache."""


def planned(of: Shape, machine: Machine) -> Plan | None:
    """What to do for a machine, None where channels fill no vectors."""
    lanes = machine.lanes(of.x.dtype)
    inner, outer = (_dividing(lanes, each) for each in (of.channels, of.outputs))
    if min(inner, outer) < NARROW:
        return None
    down, across = of.tiles
    places, size = of.of.span**2, of.x.dtype.bytes
    weights = places * of.channels * of.outputs * size
    row = places * across * (of.channels + of.outputs) * size
    vectors, near = of.outputs // outer, machine.cache(2)
    wide = outer * size / FAR if weights > near // 2 else 0.0
    choices: list[tuple[float, int, Tile]] = []
    for rows in range(down, 0, -1):
        if down % rows:
            continue
        count, blocks = rows * across, down // rows
        spilt = 2 * row * down / FAR if rows * row + min(weights, near // 2) > near else 0.0
        for tile in _tiles(vectors, count, machine.registers):
            # Weights that no cache holds come while others are used, if these are used again.
            passes, waits = count // tile.steps, tile.vectors * wide
            work = passes * tile.cycles
            each = max(work, waits) if passes > 1 else work + waits
            cycles = places * of.channels * blocks * (vectors // tile.vectors) * each
            choices.append((cycles + spilt, rows, tile))
    _, rows, tile = min(choices, key=lambda each: each[0])
    products = places * down * across * of.channels * of.outputs
    shares = machine.cores > 1 and products >= SHARED
    return Plan(lanes, inner, outer, rows, tile, shares, weights > near // 2)


def _tiles(vectors: int, steps: int, registers: int) -> list[Tile]:
    """The tiles that registers hold and that divide so many vectors and steps."""
    return [
        tile
        for m in range(1, min(vectors, registers) + 1)
        if vectors % m == 0
        for r in range(1, min(steps, registers) + 1)
        if steps % r == 0 and fits(tile := Tile(m, r), registers)
    ]


def _power(most: int) -> int:
    """The greatest power of two that is not more."""
    return 1 << most.bit_length() - 1


def _dividing(lanes: int, count: int) -> int:
    while count % lanes:
        lanes //= 2
    return lanes


# --- the kernel -----------------------------------------------------------------------------------


def tiled(of: Work, constant: tuple[bool, ...], machine: Machine) -> Formed | None:
    """The kernel of a Winograd convolution, None where the work is none or its weight not known."""
    shape = found(of)
    if shape is None or shape.x.dtype not in (f32, f64):
        return None
    if not constant[of.compute.inputs.index(shape.weight)]:
        return None
    plan = planned(shape, machine)
    return None if plan is None else _Writer(of, shape, plan).formed()


def is_tiled(kernel: Kernel) -> bool:
    """Whether a kernel is one of these: it has loops, and no block that could still be moved."""
    return not any(isinstance(each, Block) for each in statements(kernel.body))


class _Writer:
    """Writes the kernel: names in use, and the buffers."""

    def __init__(self, work: Work, of: Shape, plan: Plan) -> None:
        self.work, self.of, self.plan = work, of, plan
        compute = work.compute
        self.used = {each.name for each in (*compute.inputs, *compute.axes)}
        if work.reduced is not None:
            self.used.add(work.reduced.name)
        span, dtype = of.of.span, of.x.dtype
        down, across = of.tiles
        self.count = plan.rows * across
        self.room = self.buffer("room", down * of.of.size + 2, across * of.of.size + 2, of.channels)
        self.data = self.buffer("data", span**2, of.channels // plan.inner, self.count, plan.inner)
        self.product = self.buffer(
            "product", span**2, of.outputs // plan.outer, self.count, plan.outer
        )
        shape, dtype = (compute.shape, compute.dtype)
        if work.value is not None:
            shape, dtype = work.shape, dtype_of(work.value)
        self.out = Buffer(self.name("out"), shape, dtype)
        blocks = index(of.outputs // plan.outer)
        self.weight = Buffer(
            of.weight.name,
            (of.weight.shape[0], blocks, of.weight.shape[1], index(plan.outer)),
            of.weight.dtype,
        )

    def name(self, like: str) -> Name:
        found_ = fresh(Name(like), self.used)
        self.used.add(found_)
        return found_

    def buffer(self, like: str, *shape: int, scope: str = "global") -> Buffer:
        sizes = tuple([index(each) for each in shape])
        return Buffer(self.name(like), sizes, self.of.x.dtype, scope)

    @property
    def shared(self) -> LoopKind:
        """The kind of a loop whose iterations cores may share."""
        return "parallel" if self.plan.shares else "serial"

    def formed(self) -> Formed:
        """All of it."""
        of, compute = self.of, self.work.compute
        down, _ = of.tiles
        blocks = down // self.plan.rows

        def block(n: Scalar, b: Scalar) -> Stmt:
            return seq(self.transform(b), self.multiply(), self.finish(n, b))

        def image(n: Scalar) -> Stmt:
            inside = self.nest((blocks, "serial"), body=lambda b: block(n, b))
            return seq(self.copy(n), inside)

        body = self.nest((of.batch, "serial"), body=image)
        inputs = [self.weight if each is of.weight else each for each in compute.inputs]
        scratch = (self.room, self.data, self.product)
        kernel = Kernel((), (*inputs, *scratch, self.out), len(inputs), body)
        at = compute.inputs.index(of.weight)
        return Formed(kernel, (Packing(at, 2, self.plan.outer, (0, 2, 1, 3)),), scratch)

    def copy(self, n: Scalar) -> Stmt:
        """The data with its border, channels last: turned a square of elements at a time."""
        of, lanes = self.of, self.plan.inner
        height, width, channels = (known(each) or 0 for each in self.room.shape)
        (top, left), (rows, columns) = of.before, of.size
        many = _power(min(columns, self.plan.whole))
        square = self.buffer("square", lanes, self.plan.whole, scope="local")

        def zeros(height: int, width: int, y: Scalar | int, x: int) -> Stmt:
            if not height or not width:
                return NOTHING
            return self.nest(
                (height, "serial"), (width, "serial"), (channels // lanes, "serial"),
                (lanes, "vectorized"),
                body=lambda h, w, c, v: Store(
                    self.room, (h + y, w + x, c * lanes + v), Lit(0, of.x.dtype)
                ),
            )  # fmt: skip

        def turned(h: Scalar, c: Scalar, start: Scalar) -> Stmt:
            rows_ = self.nest(
                (lanes, "unrolled"), (many, "vectorized"),
                body=lambda k, v: Store(
                    square, (k, v), of.x[n, c * lanes + k, h, start + v]
                ),
            )  # fmt: skip
            columns_ = self.nest(
                (many, "unrolled"), (lanes, "vectorized"),
                body=lambda k, v: Store(
                    self.room, (h + top, start + k + left, c * lanes + v), square[v, k]
                ),
            )  # fmt: skip
            return Alloc(square, seq(rows_, columns_))

        def row(h: Scalar) -> Stmt:
            def part(c: Scalar) -> Stmt:
                return self.strips(columns, many, lambda start: turned(h, c, start))

            return seq(
                zeros(1, left, h + top, 0),
                self.nest((channels // lanes, "serial"), body=part),
                zeros(1, width - left - columns, h + top, left + columns),
            )

        return seq(
            zeros(top, width, 0, 0),
            self.nest((rows, self.shared), body=row),
            zeros(height - top - rows, width, top + rows, 0),
        )

    def strips(self, whole: int, many: int, body: Callable[[Scalar], Stmt]) -> Stmt:
        """So many at a time until the end; the last may overlap those before it."""
        parts = self.nest((whole // many, "serial"), body=lambda at: body(at * many))
        return seq(parts, body(index(whole - many))) if whole % many else parts

    def nest(self, *levels: tuple[int, LoopKind], body: Callable[..., Stmt]) -> Stmt:
        """Loops, one in another."""
        vars_ = [ScalarVar(self.name("ijkl"[at]), i64) for at in range(len(levels))]
        made = body(*vars_)
        for var, (count, kind) in reversed(list(zip(vars_, levels, strict=True))):
            made = For(var, index(count), kind, made)
        return made

    def transform(self, b: Scalar) -> Stmt:
        """The tiles of a block, each in two steps: columns first, then rows."""
        of, lanes = self.of, self.plan.inner
        span, size, (_, across) = of.of.span, of.of.size, of.tiles
        half = self.buffer("half", span, span, lanes, scope="local")

        def tile(r: Scalar, t: Scalar, c: Scalar) -> Stmt:
            top, left = (b * self.plan.rows + r) * size, t * size

            def columns(column: Scalar) -> Stmt:
                return self.rows_of(
                    of.of.data, lanes,
                    lambda k, v: self.room[simple(top + k), left + column, c * lanes + v],
                    lambda a, v, value: Store(half, (index(a), column, v), value),
                )  # fmt: skip

            def rows(a: Scalar) -> Stmt:
                return self.rows_of(
                    of.of.data, lanes,
                    lambda k, v: half[a, k, v],
                    lambda q, v, value: Store(
                        self.data, (a * span + q, c, r * across + t, v), value
                    ),
                )  # fmt: skip

            return Alloc(half, self.both(span, columns, span, rows))

        return self.nest(
            (self.plan.rows, self.shared), (across, "serial"), (of.channels // lanes, "serial"),
            body=tile,
        )  # fmt: skip

    def multiply(self) -> Stmt:
        """A product of matrices for each place of a tile."""
        of, plan, tile = self.of, self.plan, self.plan.tile
        total = self.buffer("total", tile.steps, tile.vectors, plan.outer, scope="local")
        many = tile.steps * tile.vectors
        most = [each for each in (8, 4, 2) if plan.inner % each == 0 and each * many <= WRITTEN]
        factor = max(most, default=1)
        sums: list[tuple[int, LoopKind]] = [
            (tile.steps, "unrolled"), (tile.vectors, "unrolled"), (plan.outer, "vectorized"),
        ]  # fmt: skip

        def one(p: Scalar, g: Scalar, q: Scalar) -> Stmt:
            def terms(outer: Scalar, inner: Scalar, u: Scalar) -> Stmt:
                def step(s: Scalar, m: Scalar, v: Scalar) -> Stmt:
                    at = inner * factor + u
                    weight = self.weight[p, g * tile.vectors + m, outer * plan.inner + at, v]
                    times = Mul(self.data[p, outer, q * tile.steps + s, at], weight)
                    return Store(total, (s, m, v), Add(total[s, m, v], times))

                return self.nest(*sums, body=step)

            def kept(s: Scalar, m: Scalar, v: Scalar) -> Stmt:
                place = (p, g * tile.vectors + m, q * tile.steps + s, v)
                return Store(self.product, place, total[s, m, v])

            start = self.nest(
                *sums, body=lambda s, m, v: Store(total, (s, m, v), Lit(0, total.dtype))
            )
            summed = self.nest(
                (of.channels // plan.inner, "serial"), (plan.inner // factor, "serial"),
                (factor, "unrolled"),
                body=terms,
            )  # fmt: skip
            return Alloc(total, seq(start, self.fetching(summed), self.nest(*sums, body=kept)))

        groups = of.outputs // plan.outer // tile.vectors
        return self.nest(
            (of.of.span**2, self.shared), (groups, "serial"), (self.count // tile.steps, "serial"),
            body=one,
        )  # fmt: skip

    def fetching(self, sums: Stmt) -> Stmt:
        """The loop over channels, in which each pass fetches its share of the next weights."""
        plan, passes = self.plan, self.count // self.plan.tile.steps
        if not plan.fetches or passes < 2 or not isinstance(sums, For):
            return sums
        ahead = self.of.channels * plan.tile.vectors * plan.outer
        lines = -(
            -ahead * self.of.x.dtype.bytes // LINE // passes // (self.of.channels // plan.inner)
        )
        notes = (("fetch_next", (ahead, passes, lines)),)
        return For(sums.var, sums.extent, sums.kind, sums.body, notes)

    def finish(self, n: Scalar, b: Scalar) -> Stmt:
        """The results of a block, some tiles of a row at a time, and what is done to each."""
        of, lanes = self.of, self.plan.outer
        span, size, (_, across) = of.of.span, of.of.size, of.tiles
        tiles = _power(min(across, max(1, self.plan.whole // size)))
        half = self.buffer("half", size, span, lanes, scope="local")
        square = self.buffer("square", size, tiles * size, self.plan.whole, scope="local")

        def tile(r: Scalar, t: Scalar, o: Scalar, at: Scalar) -> Stmt:
            def columns(column: Scalar) -> Stmt:
                return self.rows_of(
                    of.of.result, lanes,
                    lambda k, v: self.product[k * span + column, o, r * across + t, v],
                    lambda a, v, value: Store(half, (index(a), column, v), value),
                )  # fmt: skip

            def rows(a: Scalar) -> Stmt:
                return self.rows_of(
                    of.of.result, lanes,
                    lambda k, v: half[a, k, v],
                    lambda q, v, value: Store(square, (a, at * size + q, v), value),
                )  # fmt: skip

            return Alloc(half, self.both(span, columns, size, rows))

        def several(r: Scalar, start: Scalar, o: Scalar) -> Stmt:
            top, left = (b * self.plan.rows + r) * size, start * size

            def result(a: Scalar, lane: Scalar, v: Scalar) -> Stmt:
                place = (n, o * lanes + lane, top + a, left + v)
                return self.inside(place, self.stored(place, square[a, v, lane]))

            made = self.nest((tiles, "serial"), body=lambda at: tile(r, start + at, o, at))
            kept = self.nest(
                (size, "unrolled"), (lanes, "unrolled"), (tiles * size, "vectorized"), body=result
            )
            return Alloc(square, seq(made, kept))

        def row(r: Scalar) -> Stmt:
            def part(start: Scalar) -> Stmt:
                return self.nest(
                    (of.outputs // lanes, "serial"), body=lambda o: several(r, start, o)
                )

            return self.strips(across, tiles, part)

        return self.nest((self.plan.rows, self.shared), body=row)

    def stored(self, place: tuple[Scalar, ...], value: Scalar) -> Stmt:
        """A result at its place in the tensor that was to be computed."""
        work, compute = self.work, self.work.compute
        if work.value is None:
            return Store(self.out, place, value)
        at: dict[Term, Term] = dict(zip(compute.axes, place, strict=True))

        def filled(node: Term) -> Term:
            return value if isinstance(node, Load) and node.buffer is work.reduced else node

        whole = map_bottom_up(filled, substitute(work.value, at))
        there = [substitute(each, at) for each in work.indices]
        return Store(self.out, tuple(there), whole)  # type: ignore[arg-type]  # scalars give scalars

    def inside(self, place: tuple[Scalar, ...], stmt: Stmt) -> Stmt:
        """A statement for the places of a tile that are in the result."""
        of = self.of
        for at, size, tiles in zip(place[-1:1:-1], of.result[::-1], of.tiles[::-1], strict=True):
            if tiles * of.of.size > size:
                stmt = Branch(Lt(at, index(size)), stmt, NOTHING)
        return stmt

    def both(
        self, first: int, one: Callable[[Scalar], Stmt], second: int, two: Callable[[Scalar], Stmt]
    ) -> Stmt:
        return seq(
            self.nest((first, "unrolled"), body=one), self.nest((second, "unrolled"), body=two)
        )

    def rows_of(
        self,
        matrix: Matrix,
        lanes: int,
        read: Callable[[Scalar, Scalar], Scalar],
        store: Callable[[int, Scalar, Scalar], Stmt],
    ) -> Stmt:
        """A matrix times a column of vectors: one loop over lanes for each of its rows."""
        made = []
        for number in range(len(matrix)):

            def lane(v: Scalar, number: int = number) -> Stmt:
                values = [read(index(k), v) for k in range(len(matrix[0]))]
                return store(number, v, products(matrix, values)[number])

            made.append(self.nest((lanes, "vectorized"), body=lane))
        return seq(*made)


# --- sums -----------------------------------------------------------------------------------------


def products(matrix: Matrix, values: Sequence[Scalar]) -> list[Scalar]:
    """A matrix times a column, with the sums that rows share written alike.

    >>> from plica.ir.op.winograd import matrix
    >>> from plica.ir.tensor import axis
    >>> made = products(matrix("1 2; 1 -2"), [axis("x"), axis("y")])
    >>> made[0].left is made[1].left, made[0].right is made[1].right
    (True, True)
    """
    made: dict[int, Scalar] = {}
    pairs = _pairs(tuple(zip(*matrix, strict=True)))
    for one, two in _pairs(matrix):
        row, other = matrix[one], matrix[two]
        both = list(zip(row, other, strict=True))
        apart = [a if a != b else Fraction(0) for a, b in both]
        scale = min(abs(each) for each in apart if each)
        same = _summed([a if a == b else Fraction(0) for a, b in both], values)
        rest = _scaled(scale, _summed([each / scale for each in apart], values))
        made[one], made[two] = Add(same, rest), Sub(same, rest)
    for number, row in enumerate(matrix):
        if number not in made:
            made[number] = _summed(*_joined(row, values, pairs))
    return [made[number] for number in range(len(matrix))]


def _pairs(rows: Matrix) -> list[tuple[int, int]]:
    """Rows that differ in some signs, and only in these."""
    found_: list[tuple[int, int]] = []
    for one, row in enumerate(rows):
        for two in range(one + 1, len(rows)):
            both = [(a, b) for a, b in zip(row, rows[two], strict=True) if a or b]
            same, apart = ([sign * a == b for a, b in both] for sign in (1, -1))
            if any(same) and any(apart) and all(a or b for a, b in zip(same, apart, strict=True)):
                found_.append((one, two))
    return found_


def _joined(
    row: Sequence[Fraction], values: Sequence[Scalar], pairs: Sequence[tuple[int, int]]
) -> tuple[list[Fraction], list[Scalar]]:
    """The terms of a row, where pairs of values are sums and differences."""
    terms = dict(enumerate(zip(row, values, strict=True)))
    for one, two in pairs:
        if row[one]:
            pair = Add if row[one] == row[two] else Sub
            terms[one] = (row[one], pair(values[one], values[two]))
            del terms[two]
    return [factor for factor, _ in terms.values()], [value for _, value in terms.values()]


def _summed(row: Sequence[Fraction], values: Sequence[Scalar]) -> Scalar:
    """Numbers times values, without those that are zero; what is not scaled comes first."""
    terms = [(factor, value) for factor, value in zip(row, values, strict=True) if factor]
    terms.sort(key=lambda each: each[0] != 1)
    factor, value = terms[0]
    whole = _scaled(factor, value)
    for factor, value in terms[1:]:
        whole = (Add if factor > 0 else Sub)(whole, _scaled(abs(factor), value))
    return whole


def _scaled(factor: Fraction, value: Scalar) -> Scalar:
    return value if factor == 1 else Mul(Lit(float(factor), dtype_of(value)), value)
