"""Scalar terms, index terms, tensor expressions and kernels: the grammars inside loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.core import Name
from plica.ir.generate.choice import between, pick
from plica.ir.generate.value import every_dtype, numbers
from plica.ir.loop import scalar as sc
from plica.ir.loop.scalar_table import INTRINSIC_ROWS
from plica.ir.loop.statement import Alloc, Branch, For, Kernel, LoopKind, Seq, Stmt, Store
from plica.ir.loop.tensor import Compute, axis
from plica.ir.type import DType, bool_, dim_var, f32, i64, normal_dim

ARITHMETIC: Final = (sc.Add, sc.Sub, sc.Mul, sc.Min, sc.Max)
INTEGER_ONLY: Final = (
    sc.FloorDiv, sc.FloorMod, sc.BitAnd, sc.BitOr, sc.BitXor, sc.ShiftLeft, sc.ShiftRight,
)  # fmt: skip


def literals(dtype: DType) -> st.SearchStrategy[sc.Scalar]:
    """Literals of a dtype."""
    return numbers(dtype).map(lambda value: sc.Lit(value, dtype))


@st.composite
def scalars(
    draw: DrawFn,
    dtype: DType = f32,
    vars: Sequence[sc.Scalar] = (),
    buffers: Sequence[sc.Buffer] = (),
    depth: int = 3,
) -> sc.Scalar:
    """Well-typed scalar terms of a dtype over variables and buffers; all node kinds occur."""
    leaves = [var for var in vars if _dtype(var) is dtype]
    if depth == 0 or draw(between(0, 3)) == 0:
        if leaves and draw(between(0, 1)) == 1:
            return pick(draw, leaves)
        return draw(literals(dtype))

    def sub(of: DType, more: Sequence[sc.Scalar] = ()) -> sc.Scalar:
        return draw(scalars(of, (*vars, *more), buffers, depth - 1))

    kinds = ["binary", "binary", "binary", "select", "cast", "reduce"]
    if dtype.is_storage:
        kinds = ["select", "cast"]
    if loadable := [each for each in buffers if each.dtype is dtype]:
        kinds.append("load")
    known = [row for row in INTRINSIC_ROWS if dtype.kind in row.takes and not row.gives]
    if known and not dtype.is_storage:
        kinds.append("intrinsic")
    match draw(st.sampled_from(kinds)):
        case "select":
            return sc.Select(sub(bool_), sub(dtype), sub(dtype))
        case "cast":
            return sc.Cast(sub(draw(every_dtype())), dtype)
        case "load":
            buffer = draw(st.sampled_from(loadable))
            return sc.Load(buffer, tuple(draw(_indices(size, vars)) for size in buffer.shape))
        case "reduce":
            k = axis(draw(st.sampled_from("kl")), depth)
            words = ("all", "any") if dtype is bool_ else ("sum", "prod", "max", "min")
            extent = sc.Lit(draw(st.integers(1, 3)), i64)
            return sc.Reduce(draw(st.sampled_from(words)), (k,), (extent,), sub(dtype, (k,)))
        case "intrinsic":
            row = draw(st.sampled_from(known))
            return sc.Intrinsic(row.name, tuple(sub(dtype) for _ in range(row.arity)))
        case _:
            return _binary(draw, dtype, sub)


def _binary(draw: DrawFn, dtype: DType, sub: st.SearchStrategy[sc.Scalar] | object) -> sc.Scalar:
    assert callable(sub)
    if dtype is bool_:
        kind = draw(between(0, 5))
        if kind == 1:
            return sc.Not(sub(bool_))
        if kind in (2, 3):
            return draw(st.sampled_from((sc.And, sc.Or, sc.BitAnd, sc.BitOr, sc.BitXor)))(
                sub(bool_), sub(bool_)
            )
        other = draw(every_dtype())
        if other.is_float and kind == 4:
            return sc.Intrinsic(draw(st.sampled_from(sorted(sc.BOOL_INTRINSICS))), (sub(other),))
        return draw(st.sampled_from(sc.COMPARISON))(sub(other), sub(other))
    classes = (*ARITHMETIC, sc.Div, sc.Pow) if dtype.is_float else (*ARITHMETIC, *INTEGER_ONLY)
    return draw(st.sampled_from(classes))(sub(dtype), sub(dtype))


def _dtype(leaf: sc.Scalar) -> DType | None:
    return leaf.dtype if isinstance(leaf, sc.ScalarVar | sc.Lit) else None


@st.composite
def _indices(draw: DrawFn, size: sc.Scalar, vars: Sequence[sc.Scalar]) -> sc.Scalar:
    """An index that is inside `size` where that is a positive number: a remainder."""
    inner = draw(index_terms(vars, depth=1))
    return sc.FloorMod(inner, size)


@st.composite
def index_terms(draw: DrawFn, vars: Sequence[sc.Scalar] | None = None, depth: int = 3) -> sc.Scalar:
    """Index terms (i64) over the variables; over `n`, `m`, `k` where none are given."""
    known = (dim_var("n"), dim_var("m"), dim_var("k")) if vars is None else vars
    indices = [each for each in known if _dtype(each) is i64]
    if depth == 0 or draw(between(0, 1)):
        if indices and draw(between(0, 1)) == 1:
            return pick(draw, indices)
        return sc.Lit(draw(st.integers(-4, 9)), i64)
    left, right = (draw(index_terms(known, depth - 1)) for _ in range(2))
    return draw(
        st.sampled_from((sc.Add, sc.Mul, sc.Sub, sc.FloorDiv, sc.FloorMod, sc.Min, sc.Max))
    )(left, right)


def dims(vars: Sequence[sc.ScalarVar] = (), depth: int = 2) -> st.SearchStrategy[sc.Scalar]:
    """Dims in normal form: numbers, variables, and small polynomials of them."""
    sizes: st.SearchStrategy[sc.Scalar] = st.sampled_from((2, 3, 1, 0, 5)).map(
        lambda n: sc.Lit(n, i64)
    )
    if not vars:
        return sizes
    linear = st.builds(
        lambda v, a, b: normal_dim(v * a + b),
        st.sampled_from(list(vars)), st.integers(1, 3), st.integers(0, 2),
    )  # fmt: skip
    return st.one_of(sizes, st.sampled_from(list(vars)), linear)


@st.composite
def computes(draw: DrawFn) -> Compute:
    """Tensor expressions over one or two inputs with static shapes; loads are in bounds."""
    shape = draw(st.lists(st.integers(1, 3), max_size=2))
    inputs = tuple(_buffer(draw, f"x{i}") for i in range(draw(st.integers(1, 2))))
    axes = tuple(axis("i", number) for number in range(len(shape)))
    of = bool_ if draw(between(0, 4)) == 4 else draw(every_dtype())
    body = draw(scalars(of, axes, inputs))
    return Compute(inputs, axes, tuple(sc.Lit(size, i64) for size in shape), body)


def _buffer(draw: DrawFn, name: str) -> sc.Buffer:
    shape = draw(st.lists(st.integers(1, 3), max_size=2))
    return sc.Buffer(Name(name), tuple(sc.Lit(size, i64) for size in shape), draw(every_dtype()))


@st.composite
def kernels(draw: DrawFn) -> Kernel:
    """Loop programs: every statement kind occurs; indices are in bounds, outputs may be partial."""
    inputs = tuple(_buffer(draw, f"x{i}") for i in range(draw(st.integers(1, 2))))
    outputs = (_buffer(draw, "out"),)
    body = draw(_stmts(inputs, outputs, (), 3))
    return Kernel((), (*inputs, *outputs), len(inputs), body)


@st.composite
def _stmts(
    draw: DrawFn,
    readable: tuple[sc.Buffer, ...],
    writable: tuple[sc.Buffer, ...],
    vars: tuple[sc.ScalarVar, ...],
    depth: int,
) -> Stmt:
    def inner(more: tuple[sc.ScalarVar, ...] = (), local: tuple[sc.Buffer, ...] = ()) -> Stmt:
        return draw(_stmts(readable, (*writable, *local), (*vars, *more), depth - 1))

    kind = draw(st.sampled_from(("store", "for", "seq", "branch", "alloc"))) if depth else "store"
    match kind:
        case "for":
            var = axis(draw(st.sampled_from("ij")), depth)
            extent = sc.Lit(draw(st.integers(1, 3)), i64)
            kinds: tuple[LoopKind, ...] = ("serial", "vectorized", "unrolled")
            word = pick(draw, kinds)
            return For(var, extent, word, inner((var,)))
        case "seq":
            return Seq(tuple(inner() for _ in range(draw(st.integers(0, 2)))))
        case "branch":
            return Branch(draw(scalars(bool_, vars, readable, 1)), inner(), inner())
        case "alloc":
            local = sc.Buffer(Name("t", depth), (sc.Lit(2, i64),), draw(every_dtype()))
            return Alloc(local, inner(local=(local,)))
        case _:
            target = draw(st.sampled_from(writable))
            where = tuple(draw(_indices(size, vars)) for size in target.shape)
            return Store(target, where, draw(scalars(target.dtype, vars, readable, 2)))
