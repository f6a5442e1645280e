"""Kernels with blocks: every statement and every part of one, for what must hold of all texts.

>>> from hypothesis import Phase, find, settings
>>> from plica.ir.loop.statement import Block, statements
>>> found = find(
...     block_kernels(),
...     lambda kernel: any(isinstance(each, Block) for each in statements(kernel.body)),
...     settings=settings(derandomize=True, database=None, phases=[Phase.generate]),
... )
>>> found.inputs <= len(found.params)
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.core import Name, free_vars, rename
from plica.ir.generate.choice import between, pick
from plica.ir.generate.scalar import index_terms, scalars
from plica.ir.generate.value import dtypes
from plica.ir.loop import statement as stmts
from plica.ir.loop.scalar import Add, Broadcast, Buffer, Lit, Load, Ramp, Scalar, ScalarVar, Shuffle
from plica.ir.loop.tensor import axis
from plica.ir.type import bool_, dim_var, i64

STATEMENTS: Final = (
    "store", "update", "block", "for", "seq", "branch", "alloc", "bind", "while", "invoke",
    "barrier", "vector", "nest",
)  # fmt: skip
KINDS: Final[tuple[stmts.LoopKind, ...]] = (
    "serial", "parallel", "vectorized", "unrolled", "virtual", "blockIdx.x", "threadIdx.y",
)  # fmt: skip
NOTES: Final[tuple[stmts.Annotations, ...]] = (
    (), (), (("pipeline", (0, 1)),), (("a b", "x"), ("unroll", True)), (("scale", -0.5),),
)  # fmt: skip


@attrs.frozen
class _Scope:
    """The variables and buffers a statement may use."""

    buffers: tuple[Buffer, ...]
    writable: tuple[Buffer, ...]
    vars: tuple[ScalarVar, ...]
    dims: tuple[ScalarVar, ...]
    loops: tuple[tuple[ScalarVar, Scalar], ...] = ()

    def apart(self, var: ScalarVar) -> ScalarVar:
        """The variable, or one like it that no shape of a buffer here mentions."""
        while any(var in free_vars(buffer) for buffer in self.buffers):
            var = rename(var, Name(var.name.hint, var.name.index + 2))
        return var


@st.composite
def block_kernels(draw: DrawFn, depth: int = 3) -> stmts.Kernel:
    """Kernels over symbolic dims with every kind of statement."""
    n, m = dim_var("n"), dim_var("m")
    sizes: tuple[Scalar, ...] = (Lit(4, i64), n, m, n * 2 + 1)
    params = tuple(_buffer(draw, name, sizes) for name in ("x", "y", "out"))
    used = [v for v in (n, m) if any(v in free_vars(param) for param in params)]
    dims = tuple(used if draw(between(0, 3)) else used[::-1])
    inputs = draw(between(1, 2))
    scope = _Scope(params, params[inputs:], dims, dims)
    body = draw(_stmts(scope, depth))
    return stmts.Kernel(dims, params, inputs, body, pick(draw, NOTES))


def _buffer(draw: DrawFn, name: str, sizes: tuple[Scalar, ...], number: int = 0) -> Buffer:
    shape = tuple(pick(draw, sizes) for _ in range(draw(between(0, 2))))
    strides = tuple(pick(draw, sizes) for _ in shape) if draw(between(0, 4)) == 4 else ()
    scope = pick(draw, ("global", "shared", "local"))
    align = pick(draw, (0, 0, 64))
    return Buffer(Name(name, number), shape, draw(dtypes()), scope, strides, align)


@st.composite
def _stmts(draw: DrawFn, scope: _Scope, depth: int) -> stmts.Stmt:
    def inner(of: _Scope = scope) -> stmts.Stmt:
        return draw(_stmts(of, depth - 1))

    def index() -> Scalar:
        return draw(index_terms(scope.vars, depth=1))

    def region(of: Sequence[Buffer] = scope.buffers) -> stmts.Region:
        buffer = pick(draw, of)
        extents = (Lit(1, i64), Lit(4, i64), index())
        return stmts.Region(
            buffer,
            tuple(index() for _ in buffer.shape),
            tuple(pick(draw, extents) for _ in buffer.shape),
        )

    match pick(draw, STATEMENTS) if depth else pick(draw, ("store", "update", "barrier")):
        case "for" | "nest":
            var = scope.apart(axis(pick(draw, "ijn"), draw(between(0, 1))))
            extent = pick(draw, (Lit(4, i64), index()))
            within = attrs.evolve(
                scope, vars=(*scope.vars, var), loops=(*scope.loops, (var, extent))
            )
            plain = draw(between(0, 1)) == 0
            how: stmts.LoopKind = "serial" if plain else pick(draw, KINDS)
            return stmts.For(var, extent, how, inner(within), () if plain else pick(draw, NOTES))
        case "block":
            return _block(draw, scope, inner, index, region)
        case "seq":
            return stmts.Seq(tuple(inner() for _ in range(draw(between(0, 3)))))
        case "branch":
            orelse = inner() if draw(between(0, 1)) else stmts.Seq(())
            return stmts.Branch(draw(scalars(bool_, scope.vars, scope.buffers, 1)), inner(), orelse)
        case "alloc":
            sizes = (Lit(2, i64), *[each for each in scope.vars if each.dtype is i64])
            local = _buffer(draw, pick(draw, ("t", "x")), sizes, draw(between(0, 1)))
            both = (*scope.buffers, local), (*scope.writable, local)
            return stmts.Alloc(local, inner(attrs.evolve(scope, buffers=both[0], writable=both[1])))
        case "bind":
            of = draw(dtypes())
            var = scope.apart(ScalarVar(Name(pick(draw, "ti")), of))
            value = draw(scalars(of, scope.vars, scope.buffers, 2))
            return stmts.Bind(var, value, inner(attrs.evolve(scope, vars=(*scope.vars, var))))
        case "while":
            return stmts.While(draw(scalars(bool_, scope.vars, scope.buffers, 1)), inner())
        case "invoke":
            operands = [region() if draw(between(0, 2)) else index() for _ in range(2)]
            return stmts.Invoke(pick(draw, ("gemm", "a b")), tuple(operands))
        case "barrier":
            return stmts.Barrier(pick(draw, ("shared", "global")))
        case "vector":
            return _vector(draw, scope, index)
        case kind:
            target = pick(draw, scope.writable)
            where = tuple(index() for _ in target.shape)
            value = draw(scalars(target.dtype, scope.vars, scope.buffers, 2))
            value = Add(Load(target, where), value) if kind == "update" else value
            return stmts.Store(target, where, value)


def _block(
    draw: DrawFn, scope: _Scope, inner: Callable[..., stmts.Stmt], index: Callable[[], Scalar],
    region: Callable[..., stmts.Region],
) -> stmts.Block:  # fmt: skip
    """A block over loops around it, or over any expressions of them."""
    count = draw(between(0, 2))
    options = tuple(stmts.ITER_KINDS)
    letters = [pick(draw, options) for _ in range(count)]
    names = tuple(scope.apart(axis(f"v{each}", i)) for i, each in enumerate(letters))
    plain = scope.loops[-len(letters) :] if draw(between(0, 2)) and count else ()
    extents: tuple[Scalar, ...] = tuple(e for _, e in plain)
    bindings: tuple[Scalar, ...] = tuple(v for v, _ in plain)
    if len(plain) != len(letters):
        extents, bindings = tuple(index() for _ in letters), tuple(index() for _ in letters)
    outer = scope.vars if draw(between(0, 3)) == 3 else tuple(scope.dims)
    pairs = tuple(zip(names, extents, strict=True))
    own = attrs.evolve(scope, vars=(*outer, *names), loops=pairs)
    init = inner(own) if draw(between(0, 1)) else None
    init = None if isinstance(init, stmts.While | stmts.Invoke | stmts.Barrier) else init
    declared = draw(between(0, 2)) == 2
    return stmts.Block(
        Name(pick(draw, "CD"), draw(between(0, 1))),
        names,
        extents,
        tuple(stmts.ITER_KINDS[letter] for letter in letters),
        bindings,
        stmts.TRUE if draw(between(0, 1)) else draw(scalars(bool_, scope.vars, (), 1)),
        init,
        inner(own),
        tuple(region() for _ in range(2)) if declared else (),
        (region(scope.writable),) if declared else (),
        pick(draw, NOTES),
    )


def _vector(draw: DrawFn, scope: _Scope, index: Callable[[], Scalar]) -> stmts.Stmt:
    """A store of lanes; where no buffer has rank 1 it is one of an element."""
    rows = [buffer for buffer in scope.writable if len(buffer.shape) == 1]
    target = pick(draw, rows or scope.writable)
    value = draw(scalars(target.dtype, scope.vars, scope.buffers, 1))
    if len(target.shape) != 1:
        return stmts.Store(target, tuple(index() for _ in target.shape), value)
    lanes: Scalar = Broadcast(value, 4)
    if draw(between(0, 1)):
        lanes = Shuffle((lanes, lanes), (0, 5, 2, 7))
    return stmts.Store(target, (Ramp(index(), Lit(1, i64), 4),), lanes)
