"""Scheduled kernels: the stream of a kernel does what the interpreter says it means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.accel.device import run
from plica.codegen.accel.encode import read_stream, show
from plica.codegen.accel.instruction import operand
from plica.codegen.accel.intrinsic import declare
from plica.codegen.accel.order import legal_order
from plica.codegen.accel.scheduled import flow_of
from plica.codegen.accel.stream import build
from plica.codegen.accel.vta import osdi, vta
from plica.codegen.backend import backend_of, find_target
from plica.codegen.lower.blocks import blocks_to_loops
from plica.codegen.lower.buffer_sinking import sink_buffers
from plica.codegen.lower.compact import compact
from plica.codegen.lower.tidy import tidy
from plica.core.name import Name
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import (
    And,
    Buffer,
    Cast,
    Le,
    Lt,
    Or,
    Scalar,
    ScalarVar,
    Select,
    index,
    lit,
)
from plica.ir.loop.statement import (
    Alloc,
    For,
    Invoke,
    Kernel,
    LoopKind,
    Region,
    Stmt,
    Store,
    block as make_block,
    seq,
)
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import DType, i8, i32, i64
from plica.runtime.error import UnsupportedError
from plica.schedule import (
    bind,
    block as find,
    cache_read,
    compute_at,
    decompose_reduction,
    do,
    loops,
    reorder,
    set_scope,
    split,
    tensorize,
    trace_of,
)
from plica.schedule.do import Body
from plica.schedule.replay import scheduled
from tests.codegen.accel.machines import FEW, filled_like

declare(vta())


def _at(name: str, shape: tuple[int, ...], dtype: DType, scope: str) -> Buffer:
    return Buffer(Name(name), tuple(index(each) for each in shape), dtype, f"vta.{scope}")


def _loops(loops: list[tuple[ScalarVar, int]], body: Stmt, kind: LoopKind = "serial") -> Stmt:
    for var, extent in reversed(loops):
        body = For(var, index(extent), kind, body)
    return body


def _element(of: Buffer, *at: Scalar) -> Region:
    rest = of.shape[len(at) :]
    starts = (*at, *(index(0) for _ in rest))
    return Region(of, starts, (*(index(1) for _ in at), *rest))


def dense(m: int, k: int, n: int, tile: int, threads: int) -> Kernel:
    """`y = clip(x w^T)` in blocks of 16, as caching and `tensorize` leave it."""
    x, w = buffer("x", (m, k, 1, 16), i8), buffer("w", (n, k, 16, 16), i8)
    y = buffer("y", (m, n, 1, 16), i8)
    xs, ws = _at("xs", (tile, k, 1, 16), i8, "inp"), _at("ws", (k, 16, 16), i8, "wgt")
    acc = _at("acc", (tile, 1, 16), i32, "acc")
    mo, no, t = axis("mo"), axis("no"), axis("t")
    i, j, a, b, c = (axis(word) for word in "ijabc")
    out = no * threads + t
    row = mo * tile + i
    clear = For(i, index(tile), "serial", Invoke("vta.gemm.reset", (_element(acc, i),)))
    load_x = _loops([(i, tile), (j, k), (b, 16)], Store(xs, (i, j, index(0), b), x[row, j, 0, b]))
    load_w = _loops([(j, k), (a, 16), (b, 16)], Store(ws, (j, a, b), w[out, j, a, b]))
    multiply = _loops(
        [(j, k), (i, tile)],
        Invoke("vta.gemm", (_element(xs, i, j), _element(ws, j), _element(acc, i))),
    )
    vectors = [
        For(
            i,
            index(tile),
            "serial",
            Invoke(f"vta.alu.{word}.imm", (_element(acc, i), lit(by, i64))),
        )
        for word, by in (("shr", 4), ("max", -128), ("min", 127))
    ]
    store = _loops([(i, tile), (c, 16)], Store(y, (row, out, index(0), c), Cast(acc[i, 0, c], i8)))
    inside: Stmt = seq(clear, load_x, load_w, multiply, *vectors, store)
    for each in (acc, ws, xs):
        inside = Alloc(each, inside)
    inside = For(t, index(threads), "virtual", inside)
    body = _loops([(mo, m // tile), (no, n // threads)], inside)
    return Kernel((), (x, w, y), 2, body)


@settings(max_examples=FEW)
@given(
    tile=st.integers(1, 3), outer=st.integers(1, 2), k=st.integers(1, 3), threads=st.integers(1, 2)
)
def test_the_stream_of_a_kernel_does_what_it_means(
    tile: int, outer: int, k: int, threads: int
) -> None:
    kernel = dense(tile * outer, k, 2, tile, threads)
    x, w = (filled_like(each, 0) for each in kernel.params[:2])
    stream = build(osdi(), flow_of(osdi(), kernel))
    found = run(osdi(), stream, {"x": x, "w": w})["y"]
    (expected,) = run_kernel(kernel, [x, w])
    assert np.array_equal(found.reshape(expected.shape), expected)


def test_what_is_no_copy_and_no_intrinsic_is_refused() -> None:
    x, y = buffer("x", (16,), i8), buffer("y", (16,), i8)
    near, i = _at("near", (16,), i8, "inp"), axis("i")

    def kernel(body: Stmt) -> Kernel:
        return Kernel((), (x, y), 1, Alloc(near, _loops([(i, 16)], body)))

    half = Store(near, (i * 2,), x[i])
    for body, message in (
        (Store(near, (i,), x[i] + x[i]), "A store copies"),
        (Store(y, (i,), near[i]), "No move goes out"),
        (half, "whole elements"),
        (Store(near, (i * i,), x[i]), "linear in the loops"),
        (Invoke("vta.gem", ()), "no intrinsic 'vta.gem'"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            flow_of(osdi(), kernel(body))
    with pytest.raises(UnsupportedError, match="serial, of known size"):
        flow_of(osdi(), Kernel((), (x, y), 1, For(i, index(16), "parallel", half)))


def blocked(m: int, n: int, k: int) -> Kernel:
    """`Y = i8(X W^T)` in blocks of 16 numbers, not scheduled."""
    x, w = buffer("X", (m, k, 16), i8), buffer("W", (n, k, 16, 16), i8)
    a, y = buffer("A", (m, n, 16), i32), buffer("Y", (m, n, 16), i8)
    loops_of = [axis(word) for word in "ijckd"]
    vi, vj, vc, vk, vd = (axis(f"v{word}") for word in "ijckd")
    product_of = Cast(x[vi, vk, vd], i32) * Cast(w[vj, vk, vc, vd], i32)
    body = Store(a, (vi, vj, vc), a[vi, vj, vc] + product_of)
    sizes, zero = (m, n, 16, k, 16), Store(a, (vi, vj, vc), lit(0, i32))
    summed = make_block("A", (vi, vj, vc, vk, vd), sizes, "sssrr", tuple(loops_of), body, zero)
    i, j, c = (axis(word, 1) for word in "ijc")
    wi, wj, wc = (axis(f"w{word}") for word in "ijc")
    cut = Store(y, (wi, wj, wc), Cast(a[wi, wj, wc], i8))
    stored = make_block("Y", (wi, wj, wc), (m, n, 16), "sss", (i, j, c), cut)
    first = _loops(list(zip(loops_of, sizes, strict=True)), summed)
    second = _loops([(i, m), (j, n), (c, 16)], stored)
    return Kernel((), (x, w, y), 2, Alloc(a, seq(first, second)))


@do
def accelerated(tile: int, threads: int) -> Body:
    """Tiles in the scopes, intrinsics inside, threads across the columns."""
    a = yield find("A")
    y = yield find("Y")
    yield set_scope(a, 0, "vta.acc")
    i, j, c = yield loops(y)
    i0, i1 = yield split(i, (None, tile))
    j0, j1 = yield split(j, (None, threads))
    yield reorder(i0, j0, j1, i1, c)
    yield compute_at(a, j1)
    around = yield loops(a)
    xs = yield cache_read(a, 0, "vta.inp")
    ws = yield cache_read(a, 1, "vta.wgt")
    yield compute_at(xs, j1)
    yield compute_at(ws, j1)
    rows, columns, depth, inner = around[3:]
    yield reorder(depth, rows, columns, inner)
    init = yield decompose_reduction(a, depth)
    yield tensorize(columns, "vta.gemm")
    cleared = yield loops(init)
    yield tensorize(cleared[-1], "vta.gemm.reset")
    if threads > 1:
        yield bind(j1, "virtual")


@pytest.mark.parametrize(("tile", "threads"), [(2, 1), (2, 2), (4, 2)])
def test_a_schedule_becomes_a_stream(tile: int, threads: int) -> None:
    kernel = blocked(4, 2, 3)
    kept = scheduled(trace_of(accelerated(tile, threads), kernel), kernel)
    target = find_target("accel:osdi")
    stream = read_stream(osdi(), backend_of(target).code_of(kept, target))
    x, w = (filled_like(each, 0) for each in kernel.params[:2])
    (expected,) = run_kernel(kernel, [x, w])
    for seed in (None, 0, 1):
        order = None if seed is None else legal_order(osdi(), stream.code, seed)
        found = run(osdi(), stream, {"X": x, "W": w}, order)["Y"]
        assert np.array_equal(found.reshape(expected.shape), expected)


def padded(channels: int, size: tuple[int, int], outputs: int, kernel: int, pad: int) -> Kernel:
    """A convolution in blocks of 16 whose input is padded by a block of its own."""
    (h, w), n = size, 16
    tall, wide = h + 2 * pad, w + 2 * pad
    oh, ow = tall - kernel + 1, wide - kernel + 1
    x, weight = (
        buffer("X", (channels, h, w, n), i8),
        buffer("W", (outputs, channels, kernel, kernel, n, n), i8),
    )
    p, a = buffer("P", (channels, tall, wide, n), i8), buffer("A", (outputs, oh, ow, n), i32)
    y = buffer("Y", (outputs, oh, ow, n), i8)

    def nest(name: str, sizes: tuple[int, ...], kinds: str, body: Any, zero: Any = None) -> Stmt:
        outer = [axis(f"{name}{at}") for at in range(len(sizes))]
        inner = [axis(f"v{name}{at}") for at in range(len(sizes))]
        first = None if zero is None else zero(*inner)
        made = make_block(name, tuple(inner), sizes, kinds, tuple(outer), body(*inner), first)
        return _loops(list(zip(outer, sizes, strict=True)), made)

    def within(at: Scalar, size: int) -> Scalar:
        return And(Le(index(pad), at), Lt(at, index(size + pad)))

    copied = nest(
        "P",
        (channels, tall, wide, n),
        "ssss",
        lambda c, i, j, b: Store(
            p,
            (c, i, j, b),
            Select(And(within(i, h), within(j, w)), x[c, i - pad, j - pad, b], lit(0, i8)),
        ),
    )
    summed = nest(
        "A",
        (outputs, oh, ow, n, channels, kernel, kernel, n),
        "ssssrrrr",
        lambda o, i, j, c, k, r, s, d: Store(
            a,
            (o, i, j, c),
            a[o, i, j, c] + Cast(p[k, i + r, j + s, d], i32) * Cast(weight[o, k, r, s, c, d], i32),
        ),
        lambda o, i, j, c, *_: Store(a, (o, i, j, c), lit(0, i32)),
    )
    cut = nest("Y", (outputs, oh, ow, n), "ssss", lambda *at: Store(y, at, Cast(a[at], i8)))
    return Kernel((), (x, weight, y), 2, Alloc(p, Alloc(a, seq(copied, summed, cut))))


@do
def convolved(tile: int, threads: int) -> Body:
    """Rows of the result in tiles, padding on the way in, threads across the outputs."""
    p, a, y = (yield find("P")), (yield find("A")), (yield find("Y"))
    yield set_scope(p, 0, "vta.inp")
    yield set_scope(a, 0, "vta.acc")
    o, i, j, c = yield loops(y)
    i0, i1 = yield split(i, (None, tile))
    o0, o1 = yield split(o, (None, threads))
    yield reorder(i0, o0, o1, i1, j, c)
    yield compute_at(a, o1)
    around = yield loops(a)
    ws = yield cache_read(a, 1, "vta.wgt")
    yield compute_at(p, o1)
    yield compute_at(ws, o1)
    rows, columns, blocks, *depth, inner = around[-7:]
    yield reorder(*depth, rows, columns, blocks, inner)
    init = yield decompose_reduction(a, depth[0])
    yield tensorize(blocks, "vta.gemm")
    cleared = yield loops(init)
    yield tensorize(cleared[-1], "vta.gemm.reset")
    if threads > 1:
        yield bind(o1, "virtual")


@pytest.mark.parametrize(
    ("size", "kernel", "pad", "tile", "threads"),
    [((6, 5), 3, 1, 2, 2), ((6, 6), 3, 1, 3, 1), ((8, 4), 5, 2, 4, 2), ((5, 5), 3, 0, 3, 2)],
)
def test_a_schedule_that_pads_becomes_a_stream_that_pads(
    size: tuple[int, int], kernel: int, pad: int, tile: int, threads: int
) -> None:
    whole = padded(2, size, 2, kernel, pad)
    kept = scheduled(trace_of(convolved(tile, threads), whole), whole)
    lowered = tidy(compact(blocks_to_loops(sink_buffers(kept))))
    stream = build(osdi(), flow_of(osdi(), lowered))
    pads = [operand(osdi(), e, "x_pad_0") for e in stream.code if e.name == "load.inp"]
    assert max(pads) == pad
    x, w = (filled_like(each, 0) for each in whole.params[:2])
    (expected,) = run_kernel(whole, [x, w])
    found = run(osdi(), stream, {"X": x, "W": w})["Y"]
    assert np.array_equal(found.reshape(expected.shape), expected)


def test_guards_that_no_move_has_are_refused() -> None:
    x, y = buffer("x", (8, 16), i8), buffer("y", (8, 16), i8)
    near, i, j, h = _at("near", (4, 16), i8, "inp"), axis("i"), axis("j"), axis("h")

    def kernel(guard: Scalar, orelse: Scalar | None = None, start: Scalar | None = None) -> Kernel:
        outside = lit(0, i8) if orelse is None else orelse
        row = i if start is None else i + start
        copy = Store(near, (i, j), Select(guard, x[row, j], outside))
        nest = _loops([(i, 4), (j, 16)], copy)
        twice = For(h, index(2), "serial", seq(nest, nest))
        return Kernel((), (x, y), 1, Alloc(near, twice))

    inside = Lt(i, index(3))
    for made, message in (
        (kernel(Or(inside, inside)), "made of comparisons"),
        (kernel(inside, lit(1, i8)), "filled with zeros"),
        (kernel(Lt(h, index(1))), "one loop of its copy"),
        (kernel(Lt(i + j, index(9))), "one loop of its copy"),
        (kernel(Lt(i * 2, index(5))), "one loop of its copy"),
        (kernel(Lt(j, index(9))), "Whole elements are padded"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            flow_of(osdi(), made)
    with pytest.raises(UnsupportedError, match="nothing but zeros"):
        build(osdi(), flow_of(osdi(), kernel(Lt(i + h * 8, index(3)), start=h * 4)))


def test_one_loop_over_many_elements_is_a_row() -> None:
    x, y = buffer("x", (4, 48), i8), buffer("y", (4, 48), i8)
    there, i, j = _at("there", (4, 48), i8, "inp"), axis("i"), axis("j")
    copy = _loops([(i, 4), (j, 48)], Store(there, (i, j), x[i, j]))
    flow = flow_of(osdi(), Kernel((), (x, y), 1, Alloc(there, copy)))
    stream = build(osdi(), flow)
    assert show(osdi(), stream.code[0]).startswith("load.inp y_size=1 x_size=12")
