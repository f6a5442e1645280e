"""Sweeps: over arrays at once, the bits and the refusals of one element at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.strategies import DrawFn

from plica.core.diagnostic import EvaluationError
from plica.ir.interpret import vectorised as sweep
from plica.ir.interpret.kernel import run_kernel
from plica.ir.interpret.loop_machine import LoopMachine
from plica.ir.interpret.store_nest import nest
from plica.ir.interpret.value import Array
from plica.ir.loop.scalar import (
    Add,
    Buffer,
    Cast,
    Div,
    Le,
    Lit,
    Load,
    Lt,
    Max,
    Min,
    Mul,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    Sub,
    index,
)
from plica.ir.loop.statement import (
    TRUE,
    Alloc,
    Bind,
    Branch,
    For,
    Kernel,
    LoopKind,
    Seq,
    Stmt,
    Store,
    block,
    seq,
)
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import DType, bf16, bool_, f16, f32, f64, i8, i32, i64, u8
from plica.ir.type.size import shape_of
from tests.strategies import arrays, kernels


@pytest.fixture(autouse=True)
def _sweep_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "MIN_POINTS", 1)


def outcome(kernel: Kernel, given_: Sequence[Array], sweeping: bool) -> Any:
    try:
        found = run_kernel(kernel, given_, sweeping=sweeping)
    except EvaluationError as error:
        return error.diagnostics
    return [(each.dtype, each.shape, each.tobytes()) for each in _plain(found)]


def _plain(found: Sequence[Array]) -> list[Array]:
    """Nans alike: which nan an operation gives is not said."""
    plain = []
    for each in found:
        if each.dtype.kind in "fV" or each.dtype.itemsize == 2:
            wide = each.astype(np.float64)
            each = np.where(np.isnan(wide), np.float64("nan"), wide)
        plain.append(each)
    return plain


def agree(kernel: Kernel, given_: Sequence[Array]) -> Any:
    one_by_one, at_once = outcome(kernel, given_, False), outcome(kernel, given_, True)
    assert at_once == one_by_one
    return at_once


KINDS: tuple[LoopKind, ...] = (
    "serial", "serial", "serial", "serial", "serial", "serial", "parallel", "vectorized",
    "unrolled", "virtual", "threadIdx.x", "blockIdx.y",
)  # fmt: skip


def affine(draw: DrawFn, variables: Sequence[ScalarVar]) -> Scalar:
    """A small index, often a variable, at times outside of what it indexes."""
    kind = draw(st.integers(0, 9))
    if kind < 6 and variables:
        return draw(st.sampled_from(variables))
    if kind == 6 and variables:
        return draw(st.sampled_from(variables)) + draw(st.integers(-1, 1))
    if kind == 7 and len(variables) > 1:
        one, two = draw(st.permutations(variables))[:2]
        return one * 2 + two
    if kind == 8 and variables:
        return draw(st.sampled_from(variables)) // 2
    return index(draw(st.integers(0, 1)))


def inside(draw: DrawFn, variables: Sequence[ScalarVar], size: Scalar) -> Scalar:
    """An index that most of the time is within a size."""
    place = affine(draw, variables)
    return place if draw(st.integers(0, 7)) == 0 else place % size


@st.composite
def nests(draw: DrawFn) -> Kernel:
    """Loops over a store or two, with guards, blocks, resets, updates and local buffers."""
    dtype: DType = draw(st.sampled_from((i32, f32, f32, i8, u8, f16, bf16, f64)))
    shapes = st.lists(st.integers(2, 4), min_size=1, max_size=2)
    x = buffer("x", draw(shapes), dtype)
    w = buffer("w", draw(shapes), dtype)
    y = buffer("y", draw(shapes), dtype)
    t = buffer("t", draw(shapes), dtype)
    first = _nest(draw, (x, w), t, "a")
    second = _nest(draw, (x, w, t), y, "b")
    body: Stmt = seq(_filled(t), first) if draw(st.integers(0, 3)) else first
    body = Alloc(t, seq(body, second))
    body = seq(_filled(y), body) if draw(st.integers(0, 5)) else body
    if draw(st.integers(0, 3)) == 0:
        body = For(axis("around"), index(2), draw(st.sampled_from(KINDS)), body)
    return Kernel((), (x, w, y), 2, body)


def _filled(target: Buffer) -> Stmt:
    axes = [axis("f", number) for number in range(len(target.shape))]
    body: Stmt = Store(target, tuple(axes), Lit(1, target.dtype))
    for var, size in zip(axes, target.shape, strict=True):
        body = For(var, size, "serial", body)
    return body


def _nest(draw: DrawFn, readable: Sequence[Buffer], target: Buffer, name: str) -> Stmt:
    loops = [axis(f"{name}{number}") for number in range(draw(st.integers(1, 3)))]
    extents = [index(draw(st.integers(1, 4))) for _ in loops]
    blocked = draw(st.booleans())
    inner = [axis(f"v{name}{number}") for number in range(len(loops))] if blocked else loops
    places = tuple(inside(draw, inner, size) for size in target.shape)
    own = Load(target, places)

    def load() -> Scalar:
        source = draw(st.sampled_from(readable))
        found: Scalar = Load(source, tuple(inside(draw, inner, size) for size in source.shape))
        if draw(st.integers(0, 3)) == 0:
            k = axis("k")
            found = Reduce("sum", (k,), (index(2),), found + Cast(k, target.dtype))
        if draw(st.integers(0, 3)) == 0:
            condition = Lt(affine(draw, inner), index(draw(st.integers(0, 3))))
            found = Select(condition, found, Lit(1, target.dtype))
        return found

    kinds = [Add, Add, Mul, Max, Min, Sub, *([Div] if target.dtype.is_float else [])]
    value: Scalar = draw(st.sampled_from(kinds))(load(), load())
    shape = draw(st.integers(0, 4))
    if shape in (1, 2):
        value = draw(st.sampled_from(kinds))(own, value)
    elif shape == 3:
        value = draw(st.sampled_from(kinds))(value, own)
    elif shape == 4:
        value = Select(Lt(own, value), value, own)
    body: Stmt = Store(target, places, value)
    guard = Le(affine(draw, loops), index(draw(st.integers(0, 3))))
    guarded = draw(st.booleans())
    if blocked:
        start = Store(target, places, Lit(0, target.dtype)) if draw(st.booleans()) else None
        letters = "".join(draw(st.sampled_from("sr")) for _ in loops)
        bindings = [each if draw(st.integers(0, 7)) else affine(draw, loops) for each in loops]
        body = block(
            name, inner, extents, letters, bindings, body, start, guard if guarded else TRUE
        )
    elif guarded:
        body = Branch(guard, body, Seq(()))
    if not blocked and draw(st.integers(0, 4)) == 0:
        body = Bind(axis("unused"), loops[0] + 1, body)
    for var, extent in zip(loops, extents, strict=True):
        body = For(var, extent, draw(st.sampled_from(KINDS)), body)
    return body


def given_to(draw: st.DataObject, kernel: Kernel) -> list[Array]:
    found = []
    for each in kernel.params[: kernel.inputs]:
        shape = shape_of(each.shape, {})
        assert shape is not None
        found.append(draw.draw(arrays(each.dtype, shape)))
    return found


@given(nests(), st.data())
def test_at_once_is_one_by_one(kernel: Kernel, data: st.DataObject) -> None:
    agree(kernel, given_to(data, kernel))


@given(kernels(), st.data())
def test_any_kernel_at_once_is_one_by_one(kernel: Kernel, data: st.DataObject) -> None:
    agree(kernel, given_to(data, kernel))


# --- what is swept -------------------------------------------------------------------------------

x, y = buffer("x", (4, 5), f32), buffer("y", (4, 5), f32)
i, j, k = axis("i"), axis("j"), axis("k")
vi, vj, vk = axis("vi"), axis("vj"), axis("vk")
GIVEN = np.arange(20, dtype=np.float32).reshape(4, 5) / 3


def over(body: Stmt, *kinds: LoopKind) -> For:
    inner = For(j, index(5), kinds[1] if len(kinds) > 1 else "serial", body)
    return For(i, index(4), kinds[0] if kinds else "serial", inner)


def is_swept(loop: For, target: Buffer = y, filled: bool = False) -> bool:
    machine = LoopMachine({}, sweeping=True, turns=0)
    for each in {x: None, target: None}:
        machine.env[each] = machine.allocate(each)
        if each is x or filled:
            machine.env[each].whole()[...] = 1
            machine.env[each].marks()[...] = 1
    extent = loop.extent
    assert isinstance(extent, Lit)
    return sweep.swept(loop, int(extent.value), machine)


row = buffer("row", (4,), f32)
SUM = block(
    "row", (vi, vj), (4, 5), "sr", (i, j),
    Store(row, (vi,), row[vi] + x[vi, vj]), Store(row, (vi,), Lit(0, f32)),
)  # fmt: skip


def test_what_is_swept() -> None:
    assert is_swept(over(Store(y, (i, j), x[i, j] * 2)))
    assert is_swept(over(Store(y, (i, j), x[i, j] * 2), "parallel", "vectorized"))
    assert is_swept(over(Store(y, (i, j), x[i, j] * 2), "blockIdx.x", "threadIdx.x"))
    assert is_swept(over(SUM), row)
    assert is_swept(over(SUM, "parallel"), row)
    assert is_swept(over(Store(y, (i, j), y[i, j] * 2)), y, filled=True)
    late = Select(Lt(j, index(4)), x[i, j + 1], Lit(0, f32))
    assert is_swept(over(Store(y, (i, j), late)))
    assert is_swept(over(Branch(Lt(j, index(4)), Store(y, (i, j), x[i, j + 1]), Seq(()))))


def test_what_is_not() -> None:
    assert not is_swept(over(SUM, "serial", "parallel"), row), "iterations race"
    assert not is_swept(over(SUM, "serial", "threadIdx.x"), row), "threads work together"
    assert not is_swept(over(Store(y, (i, j), y[i, j] * 2))), "undefined"
    assert not is_swept(over(Store(y, (i, j), x[i, j + 1]))), "outside"
    assert not is_swept(over(Store(y, (i, j + 1), x[i, j]))), "outside"
    assert not is_swept(over(Store(y, (i, index(0)), x[i, j]), "serial", "parallel")), "races"
    moved = Store(y, (i, j), y[i, (j + 4) % 5] + x[i, j])
    assert nest(over(moved)) is None, "one iteration reads what another writes"
    assert nest(For(i, index(4), "serial", For(j, i, "serial", Store(y, (i, j), x[i, j])))) is None


def test_two_at_one_place() -> None:
    """The last one stays."""
    column = buffer("column", (4,), f32)
    kernel = Kernel((), (x, column), 1, over(Store(column, (i,), x[i, j])))
    ((_, _, bits),) = agree(kernel, (GIVEN,))
    assert bits == GIVEN[:, -1].astype(np.float64).tobytes()


def test_sums_keep_their_order() -> None:
    values = np.array([[1e8, 1, -1e8, 1, 1], [1, 1e8, 1, -1e8, 1]] * 2, np.float32)
    agree(Kernel((), (x, row), 1, over(SUM)), (values,))


def test_a_loop_around_knows_what_a_sweep_touched() -> None:
    racing = For(k, index(2), "parallel", over(Store(y, (i, j), x[i, j])))
    (error,) = agree(Kernel((), (x, y), 1, racing), (GIVEN,))
    assert error.code == "data-race"
    reading = For(
        k, index(2), "parallel",
        seq(over(Store(y, (i, j), x[i, j])), over(Store(y, (i, j), y[i, j] + 1))),
    )  # fmt: skip
    (error,) = agree(Kernel((), (x, y), 1, reading), (GIVEN,))
    assert error.code == "data-race"


def test_many_points() -> None:
    size = 40
    a, b, c = (buffer(name, (size, size), f32) for name in "abc")
    update = Store(c, (vi, vj), c[vi, vj] + a[vi, vk] * b[vk, vj])
    start = Store(c, (vi, vj), Lit(0, f32))
    body: Stmt = block("c", (vi, vj, vk), (size,) * 3, "ssr", (i, j, k), update, start)
    for var in (k, j, i):
        body = For(var, index(size), "serial", body)
    random = np.random.default_rng(0)
    one, two = (random.integers(-9, 9, (size, size)).astype(np.float32) for _ in "ab")
    (found,) = run_kernel(Kernel((), (a, b, c), 2, body), (one, two))
    assert (found == one @ two).all()


def test_flags() -> None:
    flags = buffer("flags", (4, 5), bool_)
    kernel = Kernel((), (x, flags), 1, over(Store(flags, (i, j), Lt(x[i, j], Cast(i, f32)))))
    agree(kernel, (GIVEN,))
    counts = buffer("counts", (4,), i64)
    total = seq(
        For(i, index(4), "serial", Store(counts, (i,), index(0))),
        over(Store(counts, (i,), counts[i] + Cast(Lt(x[i, j], Lit(2, f32)), i64))),
    )
    agree(Kernel((), (x, counts), 1, total), (GIVEN,))
