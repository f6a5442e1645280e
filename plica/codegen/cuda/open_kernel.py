"""Open kernels: threads for stages with open sizes, guarded at the end of a block.

    y[i < n, j < m] = f(x[i, j])                 element b * 256 + t by thread t of block b
    s[i < n]        = sum(x[i, k] for k < m)     row i by the threads of block i
    y[i < n, j < m] = x[i, j] / s[i]             by the same threads, in the same launch

>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer
>>> n = dim_var("n")
>>> x = buffer("x", (n, 3), f32)
>>> made = open_kernel(stages((x,), (stage("y", (n, 3), lambda i, j: x[i, j] * 2.0),)), free=True)
>>> loops = [each for each in st.statements(made.body) if isinstance(each, st.For)]
>>> [str(each.name) for each in made.dims], [each.kind for each in loops]
(['n'], ['blockIdx.x', 'threadIdx.x'])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from plica.codegen.cuda.open_product import digits, product_launch, product_of
from plica.codegen.lower.flatten import flatten
from plica.codegen.lower.index_narrowing import narrow_indices
from plica.codegen.lower.loop_order import NEAR, replaced, stored
from plica.codegen.lower.nest import in_order, open_sizes
from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import MEANING, Each, Names, Stages, loads, scalar as sc, statement as st
from plica.ir.loop.reduction import exposed
from plica.ir.loop.stages import inlined, pairs, stages, with_element
from plica.ir.type import DType, bool_, f32, f64, known, product
from plica.schedule.default.lane import is_row

THREADS: Final = 256  # threads of a block
LONG: Final = 256  # elements of a row that a whole block is for
FEWEST: Final = 32  # threads of a shorter one
FEW: Final = 64  # terms that one thread sums in as little time as many threads take to meet


def open_kernel(of: Stages, free: bool) -> st.Kernel:
    """The launches of some stages; sums are made in any order if they are `free`."""
    if free and _is_row_work(found := _numbers_of_rows(of)):
        of, names = found, Names(found)
        body = _by_length(of, names)
    else:
        names = Names(of)
        body = st.seq(*_launches(of, names, free))
    written = {each.buffer for each in st.statements(body) if isinstance(each, st.Store)}
    kept = [buffer for buffer in of.made if buffer in written and buffer not in of.outputs]
    params = (*of.inputs, *kept, *of.outputs)
    whole = st.Kernel(open_sizes(params, body), params, len(of.inputs), body)
    return narrow_indices(flatten(whole, params=True), narrow_dims=True)


# --- an element is a thread's own -----------------------------------------------------------------


def _launches(of: Stages, names: Names, free: bool) -> list[st.Stmt]:
    """A launch per stage, including its elementwise epilogue."""
    statements: list[st.Stmt] = []
    for fold, epilogue in pairs(of):
        tiles = product_of(fold) if free else None
        if tiles is not None:
            out = fold.out if epilogue is None else epilogue.out
            statements.append(product_launch(tiles, epilogue, out, names))
            continue
        fold = in_order(fold)
        after = stored(fold, epilogue)
        if after is None:
            last = st.Store(fold.out, fold.axes, fold.value)
        else:
            filled = with_element(after.value, after.reduced, fold.value)
            assert epilogue is not None
            last = st.Store(epilogue.out, after.indices, filled)
        statements.append(by_elements(fold.axes, fold.out.shape, last, names))
    return statements


def by_elements(
    axes: Sequence[sc.ScalarVar], shape: Sequence[sc.Scalar], body: st.Stmt, names: Names
) -> st.Stmt:
    """A body at every point of a box, one thread each."""
    block, thread, place = names.var("b"), names.var("t"), names.var("at")
    count = product(shape)
    inside = st.Branch(sc.Lt(place, count), at_digits(axes, shape, place, body), st.NOTHING)
    whole = st.Bind(place, block * THREADS + thread, inside)
    return _launched(whole, (block, (count + (THREADS - 1)) // THREADS), thread)


def at_digits(
    axes: Sequence[sc.ScalarVar], shape: Sequence[sc.Scalar], place: sc.Scalar, body: st.Stmt
) -> st.Stmt:
    """A statement where each axis is its digit of a place."""
    for axis, digit in digits(tuple(zip(axes, shape, strict=True)), place).items():
        assert isinstance(axis, sc.ScalarVar)
        body = st.Bind(axis, digit, body)
    return body


def _launched(
    body: st.Stmt, blocks: tuple[sc.ScalarVar, sc.Scalar], thread: sc.ScalarVar
) -> st.Stmt:
    block, count = blocks
    return st.For(
        block, count, "blockIdx.x", st.For(thread, sc.index(THREADS), "threadIdx.x", body)
    )


# --- a row is a block's own -----------------------------------------------------------------------


def _numbers_of_rows(of: Stages) -> Stages:
    """The stages without those that are inlined: elementwise ones with more than one number per
    row."""
    every = [each for each in of.stages if isinstance(each, Each)]
    if len(every) < len(of.stages):
        return of
    inside: dict[sc.Buffer, Each] = {}
    kept: list[Each] = []
    for each in every:
        value = inlined(each.value, inside)
        stage = Each(each.out, each.axes, value)
        plain = not exposed(value) and each.out not in of.outputs
        if plain and not all(known(size) == 1 for size in each.out.shape[-1:]):
            inside[each.out] = stage
        else:
            kept.append(stage)
    return stages(of.inputs, kept, of.outputs)


def _rows(of: Stages) -> int:
    """How many of the first axes say which row it is: all else is one number for each row."""
    shape, count = of.result.shape, len(of.result.shape)
    for stage in of.stages[:-1]:
        assert isinstance(stage, Each)
        sizes = stage.out.shape
        while count and (sizes[:count] != shape[:count]):
            count -= 1
        while any(known(size) != 1 for size in sizes[count:]):
            return 0
    return count


def _is_row_work(of: Stages) -> bool:
    """Whether stages are sums along contiguous rows, with row-wise operations on them."""
    if not all(isinstance(each, Each) for each in of.stages):
        return False
    every = [each for each in of.stages if isinstance(each, Each)]
    sums = [reduction for stage in every for reduction in exposed(stage.value)]
    rows = _rows(of)
    if not sums or not rows:
        return False
    for each in sums:
        count = known(product(each.extents))
        if (count is not None and count < FEW) or not is_row(each.body, each.axes[-1], (), NEAR):
            return False
        if each.axes[-1] not in free_vars(each.body) or each.combiner not in MEANING:
            return False
    buffers = {each.out for each in every[:-1]}
    return all(
        load.indices[:rows] == stage.axes[:rows]
        for stage in every
        for load in loads(stage.value)
        if load.buffer in buffers
    )


def _by_length(of: Stages, names: Names) -> st.Stmt:
    """A launch for long rows and one for short ones, of which one has no blocks."""
    (sum_, *_) = [
        one for stage in of.stages if isinstance(stage, Each) for one in exposed(stage.value)
    ]
    length = product(sum_.extents)
    if (count := known(length)) is not None:
        return _row_launch(of, names, THREADS if count >= LONG else FEWEST, sc.index(1))
    is_long = sc.Min(sc.Max(length - (LONG - 1), sc.index(0)), sc.index(1))
    return st.seq(
        _row_launch(of, names, THREADS, is_long),
        _row_launch(of, names, FEWEST, sc.index(1) - is_long),
    )


def _row_launch(of: Stages, names: Names, along: int, asked: sc.Scalar) -> st.Stmt:
    """One launch with a number of threads per row, or none unless `asked` for."""
    rows = _rows(of)
    *before, last = [stage for stage in of.stages if isinstance(stage, Each)]
    writer = _RowBlock(names, tuple([names.var("row") for _ in range(rows)]), along)
    steps: list[st.Stmt] = []
    for stage in before:
        steps.append(writer.number(stage, rows))
    rest, sizes = last.axes[rows:], last.out.shape[rows:]
    if all(known(size) == 1 for size in sizes):
        steps += [writer.number(last, rows)]
        place = (*writer.row, *[sc.index(0)] * len(rest))
        store = st.Store(last.out, place, writer.held(last.out))
        steps.append(
            st.Branch(sc.And(writer.there, sc.Eq(writer.lane, sc.index(0))), store, st.NOTHING)
        )
    else:
        value, statements = writer.totals(writer.of_row(last, rows))
        steps += statements
        store = st.Store(last.out, (*writer.row, *rest), value)
        every = writer.along(sizes, lambda at: at_digits(rest, sizes, at, store))
        steps.append(st.Branch(writer.there, every, st.NOTHING))
    for buffer in [*of.outputs[:-1]]:
        assert buffer in writer.numbers
    body = st.seq(*steps)
    body = st.allocated(body, writer.memory)
    block, shape = names.var("b"), last.out.shape[:rows]
    count, beside = product(shape), THREADS // along
    body = at_digits(writer.row, shape, writer.number_of_row, body)
    body = st.Bind(writer.number_of_row, sc.Min(writer.place, sc.Max(count - 1, sc.index(0))), body)
    body = st.Bind(writer.there, sc.Lt(writer.place, count), body)
    body = st.Bind(writer.place, block * beside + writer.thread // along, body)
    body = st.Bind(writer.lane, writer.thread % along, body)
    return _launched(body, (block, (count + (beside - 1)) // beside * asked), writer.thread)


class _RowBlock:
    """The work of a block's threads on a row, and the elements each of them holds."""

    def __init__(self, names: Names, row: tuple[sc.ScalarVar, ...], along: int) -> None:
        self.names, self.row, self.threads = names, row, along
        self.thread, self.lane, self.place = (names.var(each) for each in ("t", "l", "r"))
        self.number_of_row = names.var("n")
        self.there = sc.ScalarVar(names.name("there"), bool_)
        self.numbers: dict[sc.Buffer, sc.Buffer] = {}
        self.memory: list[sc.Buffer] = []

    def own(self, like: str, dtype: DType) -> sc.Buffer:
        """A register."""
        self.memory.append(sc.Buffer(self.names.name(like), (sc.index(1),), dtype, "local"))
        return self.memory[-1]

    def held(self, of: sc.Buffer) -> sc.Scalar:
        """The number of a row that a stage made."""
        return sc.Load(self.numbers[of], (sc.index(0),))

    def of_row(self, of: Each, rows: int) -> sc.Scalar:
        """The value of a stage for the row of this block."""
        value = substitute(of.value, dict(zip(of.axes[:rows], self.row, strict=True)))

        def put(node: Term) -> Term:
            if isinstance(node, sc.Load) and node.buffer in self.numbers:
                return self.held(node.buffer)
            return node

        return map_bottom_up(put, value)

    def number(self, of: Each, rows: int) -> st.Stmt:
        """The number that a stage has for a row, in a register of each thread."""
        value = substitute(self.of_row(of, rows), dict.fromkeys(of.axes[rows:], sc.index(0)))
        scalar, steps = self.totals(value)
        own = self.numbers[of.out] = self.own("row", of.out.dtype)
        return st.seq(*steps, st.Store(own, (sc.index(0),), scalar))

    def along(self, sizes: Sequence[sc.Scalar], body: Callable[[sc.Scalar], st.Stmt]) -> st.Stmt:
        """A body at every point of a box, distributed over the threads of the block."""
        turn, place = self.names.var("s"), self.names.var("at")
        count = product(sizes)
        inside = st.Branch(sc.Lt(place, count), body(place), st.NOTHING)
        bind = st.Bind(place, turn * self.threads + self.lane, inside)
        return st.For(turn, (count + (self.threads - 1)) // self.threads, "serial", bind)

    def totals(self, value: sc.Scalar) -> tuple[sc.Scalar, list[st.Stmt]]:
        """A value in which sums are numbers that each thread has, and how these are made."""
        found: dict[Term, sc.Scalar] = {}
        steps: list[st.Stmt] = []
        for reduction in exposed(value):
            own = self.own("total", sc.dtype_of(reduction))
            steps += self.total(reduction, own)
            found[reduction] = sc.Load(own, (sc.index(0),))
        return replaced(value, found), steps

    def total(self, of: sc.Reduce, into: sc.Buffer) -> list[st.Stmt]:
        """All terms of a sum: each thread has some, then halves of the threads meet."""
        dtype, zero = sc.dtype_of(of), (sc.index(0),)
        start, join = MEANING[of.combiner]
        wide = f64 if of.combiner == "sum" and dtype is f32 else dtype
        part = sc.Buffer(self.names.name("part"), (sc.index(THREADS),), wide, "shared")
        self.memory.append(part)
        more = st.Store(into, zero, join(sc.Load(into, zero), of.body))
        mine: sc.Scalar = sc.Load(into, zero)
        steps = [
            st.Store(into, zero, start(dtype)),
            self.along(of.extents, lambda at: at_digits(of.axes, of.extents, at, more)),
            st.Store(part, (self.thread,), mine if wide is dtype else sc.Cast(mine, wide)),
        ]
        half = self.threads // 2
        while half:
            other = sc.Load(part, (self.thread + half,))
            both = st.Store(part, (self.thread,), join(sc.Load(part, (self.thread,)), other))
            steps += [
                st.Barrier("shared"),
                st.Branch(sc.Lt(self.lane, sc.index(half)), both, st.NOTHING),
            ]
            half //= 2
        whole: sc.Scalar = sc.Load(part, (self.thread - self.lane,))
        whole = whole if wide is dtype else sc.Cast(whole, dtype)
        return [*steps, st.Barrier("shared"), st.Store(into, zero, whole)]
