"""Vectorized and unrolled loops: a kernel computes what it means, whatever kinds its loops are."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from plica.analysis.statement import LoweringRefused
from plica.codegen.llvm.fold import emit
from plica.codegen.llvm.writer import PLAIN, CodeTraits
from plica.core.binding import free_vars
from plica.core.diagnostic import CompilerBug
from plica.core.fold import map_bottom_up
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.interpret.array_arithmetic import cast as meant_cast
from plica.ir.interpret.evaluate import evaluate
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import (
    BINARY,
    COMPARISON,
    And,
    Buffer,
    Cast,
    FloorDiv,
    FloorMod,
    Intrinsic,
    Le,
    Lit,
    Load,
    Lt,
    Max,
    Min,
    Not,
    Or,
    Pow,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    index,
)
from plica.ir.loop.statement import (
    Alloc,
    Bind,
    Branch,
    For,
    Kernel,
    LoopKind,
    Seq,
    Store,
    seq,
    statements,
)
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import (
    COMPUTED,
    DTYPES,
    DType,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from tests.codegen.native import assert_close, assert_same, native_kernel, native_kernels, shape_of
from tests.codegen.nests import nest
from tests.codegen.test_kernel import STORED, admits, edges, is_exact
from tests.deep import spread
from tests.strategies import arrays, computes

Array = np.ndarray[Any, Any]

EXAMPLES = max(10, settings.get_profile(settings.get_current_profile_name()).max_examples // 2)


def separate(loop: For) -> bool:
    """Whether the iterations of a loop write different elements, for loops made by `nest`."""
    inside = {stmt.buffer for stmt in statements(loop.body) if isinstance(stmt, Alloc)}
    return all(
        any(loop.var in free_vars(each) for each in stmt.indices)
        for stmt in statements(loop.body)
        if isinstance(stmt, Store) and stmt.buffer not in inside
    )


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_every_kind_of_loop_computes_what_it_means(data: st.DataObject) -> None:
    of = data.draw(computes())
    assume(is_exact(of) and not free_vars(of))

    def other(node: Term) -> Term:
        if not isinstance(node, For):
            return node
        kinds: list[LoopKind] = ["serial", "unrolled"]
        kinds += ["vectorized", "parallel"] if separate(node) else []
        return For(node.var, node.extent, data.draw(st.sampled_from(kinds)), node.body)

    kernel = map_bottom_up(other, nest(of))
    assert isinstance(kernel, Kernel)
    given_ = [data.draw(arrays(each.dtype, shape_of(each))) for each in of.inputs]
    code, (found,) = native_kernel(kernel, given_)
    assert code == 0
    assert_same(found, np.asarray(evaluate(of, given_)))


def elementwise(inputs: tuple[Buffer, ...], value: Any, of: DType, lanes: int = 8) -> Kernel:
    """`out[i] = value(i)` for as many as the first input has, a given number of lanes at once."""
    (count,) = shape_of(inputs[0])
    out, i, j = buffer("out", (count,), of), axis("i"), axis("j")
    at = i * lanes + j
    body = For(j, index(lanes), "vectorized", Store(out, (at,), value(at)))
    return Kernel((), (*inputs, out), len(inputs), For(i, index(count // lanes), "serial", body))


@pytest.mark.parametrize("of", [*COMPUTED, *spread(STORED, 2)], ids=str)
def test_operations_at_the_edges_in_lanes(of: DType) -> None:
    values = edges(of)
    left, right = map(np.array, zip(*itertools.product(values, values), strict=True))
    room = -len(left) % 8
    left = np.append(left, left[:room]).astype(of.numpy)
    right = np.append(right, right[:room]).astype(of.numpy)
    x, y = buffer("x", (len(left),), of), buffer("y", (len(left),), of)
    logical = (And, Or) if of is bool_ else ()
    kinds = [kind for kind in (*BINARY, *COMPARISON, *logical) if admits(kind, of)]
    kinds = [kind for kind in kinds if kind is not Pow]
    kernels = []
    for kind in kinds:
        to = bool_ if kind in (*COMPARISON, *logical) else of
        kernels.append(elementwise((x, y), lambda at, kind=kind: kind(x[at], y[at]), to))
    for name in ("sign", "abs", "isnan") if of is not bool_ else ():
        to = bool_ if name == "isnan" else of
        kernels.append(elementwise((x, y), lambda at, n=name: Intrinsic(n, (x[at],)), to))
    code, found = native_kernels(kernels, [left, right])
    assert code == 0
    for kernel, made in zip(kernels, found, strict=True):
        assert_same(made, run_kernel(kernel, [left, right])[0])


@pytest.mark.parametrize("of", [*COMPUTED, *spread(STORED, 2)], ids=str)
def test_casts_at_the_edges_in_lanes(of: DType) -> None:
    values = edges(of)
    values = np.resize(values, -(-len(values) // 8) * 8)
    x = buffer("x", (len(values),), of)
    kernels = [elementwise((x,), lambda at, to=to: Cast(x[at], to), to) for to in DTYPES]
    _, found = native_kernels(kernels, [values])
    for to, made in zip(DTYPES, found, strict=True):
        with np.errstate(all="ignore"):
            assert_same(made, meant_cast(values, to))


def test_functions_of_the_library_in_lanes() -> None:
    values = np.linspace(-3, 3, 64).astype(np.float32)
    x = buffer("x", (64,), f32)
    names = ("sqrt", "rsqrt", "floor", "round", "tan", "atan", "asinh", "exp", "erf", "sin")
    kernels = [elementwise((x,), lambda at, n=name: Intrinsic(n, (x[at],)), f32) for name in names]
    kernels.append(elementwise((x,), lambda at: Pow(x[at], Lit(3.0, f32)), f32))
    kernels.append(elementwise((x,), lambda at: FloorMod(x[at], Lit(0.7, f32)), f32))
    _, found = native_kernels(kernels, [values])
    for kernel, made in zip(kernels, found, strict=True):
        with np.errstate(all="ignore"):
            assert_close(made, run_kernel(kernel, [values])[0])


@pytest.mark.parametrize("lanes", [2, 3, 7, 16, 48, 65, 100])
@pytest.mark.parametrize("of", [f32, f16, bool_, f64], ids=str)
def test_any_number_of_lanes(lanes: int, of: DType) -> None:
    x, y, j = buffer("x", (lanes,), of), buffer("y", (lanes,), of), axis("j")
    value = Or(x[j], Lt(j, Lit(5, i64))) if of is bool_ else x[j] + Cast(j, of)
    kernel = Kernel((), (x, y), 1, For(j, index(lanes), "vectorized", Store(y, (j,), value)))
    values = (np.arange(lanes) % 7 - 3).astype(of.numpy)
    code, (found,) = native_kernel(kernel, [values])
    assert code == 0
    assert_same(found, run_kernel(kernel, [values])[0])


@pytest.mark.parametrize("step", [-9, -4, -2, -1, 0, 1, 2, 3, 4, 5, 9])
def test_lanes_apart(step: int) -> None:
    """Loads and stores with any distance between the lanes."""
    count = 8 * 9 + 1
    x, y, j = buffer("x", (count,), f32), buffer("y", (count,), f32), axis("j")
    start = -step * 7 if step < 0 else 0
    from_, to = j * step + start, j * (step or 1) + start
    body = For(j, index(8), "vectorized", Store(y, (to,), x[from_] * 2.0))
    k = axis("k")
    clear = For(k, index(count), "serial", Store(y, (k,), Lit(0, f32)))
    kernel = Kernel((), (x, y), 1, seq(clear, body))
    values = np.arange(count, dtype=np.float32)
    _, (found,) = native_kernel(kernel, [values])
    assert_same(found, run_kernel(kernel, [values])[0])


def test_strides_of_buffers() -> None:
    x = Buffer(Name("x"), (index(3), index(8)), f32, strides=(index(1), index(3)))
    y, i, j = buffer("y", (3, 8), f32), axis("i"), axis("j")
    store = Store(y, (i, j), x[i, j])
    kernel = Kernel(
        (), (x, y), 1, For(i, index(3), "serial", For(j, index(8), "vectorized", store))
    )
    lines = "\n".join(emit(kernel, "k").lines)
    assert "dereferenceable(96)" in lines
    values = np.arange(24, dtype=np.float32).reshape(8, 3).T
    _, (found,) = native_kernel(kernel, [values.T.reshape(3, 8)])
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize(("picked", "code"), [((0, 2, 1, 0), 0), ((0, 3, 1, 0), 1)])
def test_indices_from_data_are_checked_in_lanes(picked: tuple[int, ...], code: int) -> None:
    x, at = buffer("x", (3,), f32), buffer("at", (4,), i64)
    kernel = elementwise((at, x), lambda i: x[at[i]], f32, lanes=4)
    values = np.array([5, 6, 7], np.float32)
    found, (made,) = native_kernel(kernel, [np.array(picked), values])
    assert found == code
    if code == 0:
        assert made.tolist() == [5, 7, 6, 5]


def test_guards_in_lanes() -> None:
    """A guarded load reads nothing it must not, and a check behind a false guard does not count."""
    x, at, on = buffer("x", (3,), f32), buffer("at", (8,), i64), buffer("on", (8,), bool_)
    zero = Lit(0, f32)
    near = np.array([5, 6, 7], np.float32)

    def padded(i: Scalar) -> Scalar:
        inside = And(Le(Lit(0, i64), i - 2), Lt(i - 2, Lit(3, i64)))
        return Select(inside, x[i - 2], Lit(-1.0, f32))

    lazy = [
        padded,
        lambda i: Select(on[i], x[at[i]], zero),
        lambda i: Select(Not(on[i]), zero, x[at[i]] * x[at[i]]),
        lambda i: Cast(And(on[i], Lt(zero, x[at[i]])), f32),
        lambda i: Reduce(
            "sum", (axis("k"),), (index(2),), Select(on[i], x[at[i] + axis("k")], zero)
        ),
    ]
    fine = [np.array([0, 9, 1, -5, 0, 1, 77, 0]), np.array([True, False] * 4)]
    fine[1][5] = True
    fine[1][6] = False
    bad = [fine[0], np.ones(8, bool)]
    for number, body in enumerate(lazy):
        kernel = elementwise((at, on, x), body, f32)
        code, (made,) = native_kernel(kernel, [*fine, near])
        assert code == 0
        assert_same(made, run_kernel(kernel, [*fine, near])[0])
        assert native_kernel(kernel, [*bad, near])[0] == (0 if number == 0 else 1)
    assert not emit(elementwise((at, on, x), padded, f32), "k").can_fail


def test_all_lanes_writing_one_element_is_a_bug() -> None:
    x, y, j = buffer("x", (8,), f32), buffer("y", (), f32), axis("j")
    body = For(j, index(8), "vectorized", Store(y, (), Load(y, ()) + x[j]))
    with pytest.raises(CompilerBug, match="All lanes of a vectorized loop write one element of y"):
        emit(Kernel((), (x, y), 1, body), "k")


def test_lanes_that_part_ways_go_one_by_one() -> None:
    x, y, j, k = buffer("x", (8,), f32), buffer("y", (8, 4), f32), axis("j"), axis("k")
    own = Buffer(Name("own"), (index(4),), f32, "local")
    branch = Branch(Lt(x[j], Lit(3, f32)), Store(y, (j, k), x[j]), Store(y, (j, k), Lit(0, f32)))
    fill = For(k, index(4), "vectorized", Store(own, (k,), x[j] * Cast(k, f32)))
    copy = For(k, index(4), "unrolled", Store(y, (j, k), own[k]))
    values = np.arange(8, dtype=np.float32)
    for body in (For(k, index(4), "vectorized", branch), Alloc(own, seq(fill, copy))):
        kernel = Kernel((), (x, y), 1, For(j, index(8), "vectorized", body))
        _, (found,) = native_kernel(kernel, [values])
        assert_same(found, run_kernel(kernel, [values])[0])


def test_a_binding_is_evaluated_once() -> None:
    x, y, j = buffer("x", (8,), f32), buffer("y", (8,), f32), axis("j")
    t, u = ScalarVar(Name("t"), f32), ScalarVar(Name("u"), i64)
    inside = Store(y, (u,), t * t + t)
    body = For(
        j, index(8), "vectorized", Bind(u, j + 0, Bind(t, Intrinsic("exp", (x[j],)), inside))
    )
    kernel = Kernel((), (x, y), 1, body)
    lines = emit(kernel, "k").lines
    assert len([line for line in lines if "@plica.exp" in line]) == 1
    values = np.linspace(-1, 1, 8).astype(np.float32)
    _, (found,) = native_kernel(kernel, [values])
    assert_close(found, run_kernel(kernel, [values])[0])


def test_unrolled_loops_leave_constants() -> None:
    """The copies of a body share what they have in common, so that the text is linear in them."""
    x, y = buffer("x", (9, 6, 4), f32), buffer("y", (9, 6, 4), f32)
    i, j, k = axis("i"), axis("j"), axis("k")

    def text(rows: int) -> list[str]:
        at = (i, (j * 2 + k) % 6, FloorDiv(j, Lit(2, i64)))
        body = For(k, index(2), "unrolled", Store(y, at, x[at] + 1.0))
        unrolled = For(j, index(rows), "unrolled", body)
        return list(emit(Kernel((), (x, y), 1, For(i, index(9), "serial", unrolled)), "k").lines)

    small, large = text(2), text(6)
    assert len(large) - len(small) <= 4 * 2 * 6  # two geps each, a load, a sum, a store
    assert len([line for line in large if " mul " in line]) == 1
    assert not any("rem" in line or "div" in line for line in large)


def test_products_are_fused_only_where_that_is_allowed() -> None:
    x, y = buffer("x", (64,), f32), buffer("y", (64,), f64)
    i = axis("i")
    product = x[i] * x[i]
    sums: list[Scalar] = [product - product, x[i] - product, product - x[i], x[i] + product]
    total = Reduce("sum", (axis("k"),), (index(4),), x[axis("k")] * x[i])
    values = np.linspace(0.1, 7, 64).astype(np.float32)
    out = buffer("out", (64,), f32)
    running = Load(out, (i,)) + x[i] * x[0]
    for body in [*sums, total, running]:
        kernel = Kernel((), (x, out), 1, For(i, index(64), "vectorized", Store(out, (i,), body)))
        assert not any("fmuladd" in line for line in emit(kernel, "k").lines)
        rounded_once = any(
            "llvm.fmuladd" in line
            for line in emit(kernel, "k", traits=CodeTraits(fused=True)).lines
        )
        assert rounded_once == (body in {total, running})
        if body is running:
            continue  # it adds to what is there before
        _, (found,) = native_kernel(kernel, [values])
        _, (fused,) = native_kernel(kernel, [values], contract=True)
        np.testing.assert_allclose(fused, found, rtol=1e-5, atol=1e-5)
    narrow = buffer("n", (64,), f16)
    half = Store(narrow, (i,), Load(narrow, (i,)) * narrow[0] + Load(narrow, (i,)))
    lines = emit(
        Kernel((), (narrow,), 0, For(i, index(64), "vectorized", half)),
        "k",
        traits=CodeTraits(fused=True),
    )
    assert not any("llvm.fmuladd" in line for line in lines.lines)
    wide = Store(y, (i,), Load(y, (i,)) * y[0] + Load(y, (i,)))
    lines = emit(
        Kernel((), (y,), 0, For(i, index(64), "vectorized", wide)),
        "k",
        traits=CodeTraits(fused=True),
    )
    assert any("llvm.fmuladd.v16f64" in line for line in lines.lines)


def test_what_llvm_should_look_at_is_said() -> None:
    x, y, i = buffer("x", (64,), i32), buffer("y", (64,), i32), axis("i")
    kinds: dict[LoopKind, bool] = {"serial": True, "vectorized": False, "unrolled": False}
    for kind, plain in kinds.items():
        loop = For(i, index(64), kind, Store(y, (i,), x[i] + 1))
        assert (PLAIN in emit(Kernel((), (x, y), 1, loop), "k").lines[0]) == plain
    again = For(i, index(64), "vectorized", Store(y, (i,), Load(y, (i,)) + x[i]))
    assert PLAIN in emit(Kernel((), (x, y), 1, again), "k").lines[0]


def test_loops_of_other_machines_are_refused() -> None:
    x, i = buffer("x", (4,), f32), axis("i")
    kinds: tuple[LoopKind, ...] = ("virtual", "threadIdx.x")
    for kind in kinds:
        loop = For(i, index(4), kind, Store(x, (i,), Lit(0, f32)))
        with pytest.raises(LoweringRefused, match=f"(?s)no such threads.*found: {kind}"):
            emit(Kernel((), (x,), 0, loop), "k")


def test_memory_of_a_kernel_has_a_size_that_is_known() -> None:
    n, i = ScalarVar(Name("n"), i64), axis("i")
    x, own = buffer("x", (n,), f32), buffer("own", (n,), f32)
    fill = For(i, n, "serial", Store(own, (i,), Lit(0, f32)))
    with pytest.raises(LoweringRefused, match="own: The size of a buffer is not known"):
        emit(Kernel((n,), (x,), 0, Alloc(own, fill)), "k")


@pytest.mark.parametrize("source", [f16, f32, f64], ids=str)
@pytest.mark.parametrize("to", [i8, u8, i16, u16, i32, u32, i64, u64], ids=str)
def test_integers_of_floats_saturate_in_every_lane(source: DType, to: DType) -> None:
    low, high = to.bounds
    edges = [0.0, -0.0, 0.5, -0.5, 0.99, -0.99, 1.5, -1.5, np.nan, np.inf, -np.inf, 3e38, -3e38]
    for bound in (low, high):
        near = np.float64(bound)
        edges += [near, np.nextafter(near, -np.inf), np.nextafter(near, np.inf), near / 2]
        near32 = np.float32(bound)
        edges += [np.nextafter(near32, -np.inf, dtype=np.float32)]
        edges += [np.nextafter(near32, np.inf, dtype=np.float32)]
    with np.errstate(over="ignore"):
        values = np.array(edges + [7.0] * (-len(edges) % 16)).astype(source.numpy)
    x, y, j = buffer("x", (len(values),), source), buffer("y", (len(values),), to), axis("j")
    store = Store(y, (j,), Cast(x[j], to))
    kernel = Kernel((), (x, y), 1, For(j, index(len(values)), "vectorized", store))
    code, (found,) = native_kernel(kernel, [values])
    assert code == 0
    wide = values.astype(np.float64)
    for number, made in zip(wide.tolist(), found.tolist(), strict=True):
        wanted = 0 if np.isnan(number) else max(low, min(high, int(np.clip(number, -1e300, 1e300))))
        assert made == wanted, (number, made, wanted)


@settings(max_examples=max(6, EXAMPLES // 4))
@given(
    st.sampled_from([i8, u8, i16, u16]),
    st.integers(-(1 << 16), 1 << 16),
    st.tuples(st.integers(-(1 << 16), 1 << 16), st.integers(-(1 << 16), 1 << 16)),
    st.booleans(),
    st.tuples(st.booleans(), st.integers(-300, 300)),
)
def test_floats_become_the_nearest_integers(
    to: DType, zero: int, bounds: tuple[int, int], whole: bool, how: tuple[bool, int]
) -> None:
    rounds, more = how
    low, high = to.bounds if whole else bounds
    halves = np.arange(-600, 600, dtype=np.float32) / 2
    far = [np.nan, np.inf, -np.inf, 3e38, -3e38, 2**31, -(2**31), 2**23 + 1, 0.49999997, -0.0]
    near = np.asarray([b - zero + h for b in (low, high) for h in (-1, -0.5, 0, 0.5, 1)])
    given_ = np.concatenate([halves, halves - zero, far, near]).astype(np.float32)
    x, y = buffer("x", given_.shape, f32), buffer("y", given_.shape, to)
    at = axis("at")
    moved = (Intrinsic("round", (x[at],)) if rounds else x[at]) + Lit(float(zero), f32)
    held = Min(Max(moved, Lit(float(low), f32)), Lit(float(high), f32))
    again, small = buffer("again", given_.shape, f32), Cast(held, to)  # floats of them, too
    restored = Cast(Cast(small, i32) + Lit(more, i32), f32)
    body = Seq((Store(y, (at,), small), Store(again, (at,), restored)))
    kernels = [
        Kernel((), (x, y, again), 1, For(at, index(len(given_)), kind, body))
        for kind in ("serial", "vectorized")
    ]
    with np.errstate(over="ignore"):
        whole_ = (np.rint(given_) if rounds else given_) + np.float32(zero)
    wanted = meant_cast(np.minimum(np.maximum(whole_, np.float32(low)), np.float32(high)), to)
    code, results = native_kernels(kernels, [given_])
    assert code == 0
    for found, floats in (results[:2], results[2:]):
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(floats, (wanted.astype(np.int32) + more).astype(np.float32))


def test_formulas_have_more_vectors_side_by_side_where_registers_are_many() -> None:
    x, y, at = buffer("x", (1024,), f32), buffer("y", (1024,), f32), axis("at")

    def lanes(value: Scalar, registers: int) -> str:
        kernel = Kernel((), (x, y), 1, For(at, index(1024), "vectorized", Store(y, (at,), value)))
        text = "\n".join(emit(kernel, "k", None, CodeTraits(width=128, picks=registers)).lines)
        return text.split("load <")[1].split(" x")[0]

    exp = Intrinsic("exp", (x[at],))
    assert [lanes(exp, 32), lanes(exp, 0), lanes(x[at] + x[at], 32)] == ["16", "8", "8"]
