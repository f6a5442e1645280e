"""Small kernels to schedule, and what it means that two kernels are the same function."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from plica.core.term import Term
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Buffer, Max, Scalar, ScalarVar, lit
from plica.ir.loop.statement import Alloc, For, Kernel, Stmt, Store, block, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import DimLike, dim
from plica.ir.type.dtype import f32
from plica.ir.type.size import shape_of


def matmul(m: DimLike = 6, n: DimLike = 5, k: DimLike = 4) -> Kernel:
    """C = A @ B, one block of two spatial variables and one that reduces."""
    a, b, c = buffer("A", (m, k), f32), buffer("B", (k, n), f32), buffer("C", (m, n), f32)
    i, j, p = axis("i"), axis("j"), axis("k")
    vi, vj, vp = axis("vi"), axis("vj"), axis("vk")
    body = Store(c, (vi, vj), c[vi, vj] + a[vi, vp] * b[vp, vj])
    inside = block(
        "C", (vi, vj, vp), (m, n, k), "ssr", (i, j, p), body, Store(c, (vi, vj), lit(0, f32))
    )
    nest = For(i, dim(m), "serial", For(j, dim(n), "serial", For(p, dim(k), "serial", inside)))
    dims = tuple(each for each in (m, n, k) if isinstance(each, ScalarVar))
    return Kernel(dims, (a, b, c), 2, nest)


def chain(size: DimLike, *bodies: Callable[[Buffer, ScalarVar], Scalar]) -> Kernel:
    """A chain of blocks B1, B2, … over one dimension, each a function of the one before."""
    first = buffer("A", (size,), f32)
    last, nests, made = first, [], []
    for number, body in enumerate(bodies, 1):
        target = buffer(f"B{number}", (size,), f32)
        i, v = axis("i", number), axis("v", number)
        store = Store(target, (v,), body(last, v))
        inside = block(f"B{number}", (v,), (size,), "s", (i,), store)
        nests.append(For(i, dim(size), "serial", inside))
        made.append(target)
        last = target
    body_: Stmt = seq(*nests)
    for each in made[:-1]:
        body_ = Alloc(each, body_)
    dims = (size,) if isinstance(size, ScalarVar) else ()
    return Kernel(dims, (first, last), 1, body_)


def stencil(size: DimLike = 10, width: int = 3) -> Kernel:
    """B = A + 1 over size + width - 1 elements; C[i] = B[i] + … + B[i + width - 1]."""
    wide = dim(size) + (width - 1)
    a, b, c = buffer("A", (wide,), f32), buffer("B", (wide,), f32), buffer("C", (size,), f32)
    i, j, v, w = axis("i"), axis("j"), axis("v"), axis("w")
    total: Scalar = b[w]
    for offset in range(1, width):
        total = total + b[w + offset]
    first = block("B", (v,), (wide,), "s", (i,), Store(b, (v,), a[v] + 1))
    then = block("C", (w,), (size,), "s", (j,), Store(c, (w,), total))
    nests = seq(For(i, dim(wide), "serial", first), For(j, dim(size), "serial", then))
    dims = (size,) if isinstance(size, ScalarVar) else ()
    return Kernel(dims, (a, c), 1, Alloc(b, nests))


def product_and_relu(m: DimLike = 6, n: DimLike = 5, k: DimLike = 4) -> Kernel:
    """D = max(A1 @ B, 0), where A1 = A * 2: an elementwise block, a reduction, another one."""
    a, a1 = buffer("A", (m, k), f32), buffer("A1", (m, k), f32)
    b, c, d = buffer("B", (k, n), f32), buffer("C", (m, n), f32), buffer("D", (m, n), f32)
    names = ["i0", "p0", "vi0", "vp0", "i", "j", "p", "vi", "vj", "vp", "i2", "j2", "vi2", "vj2"]
    i0, p0, vi0, vp0, i, j, p, vi, vj, vp, i2, j2, vi2, vj2 = (axis(each) for each in names)
    double = block("A1", (vi0, vp0), (m, k), "ss", (i0, p0), Store(a1, (vi0, vp0), a[vi0, vp0] * 2))
    body = Store(c, (vi, vj), c[vi, vj] + a1[vi, vp] * b[vp, vj])
    start = Store(c, (vi, vj), lit(0, f32))
    total = block("C", (vi, vj, vp), (m, n, k), "ssr", (i, j, p), body, start)
    relu = Store(d, (vi2, vj2), Max(c[vi2, vj2], lit(0, f32)))
    above = block("D", (vi2, vj2), (m, n), "ss", (i2, j2), relu)
    nests = seq(
        _grid((i0, p0), (m, k), double),
        _grid((i, j, p), (m, n, k), total),
        _grid((i2, j2), (m, n), above),
    )
    dims = tuple(each for each in (m, n, k) if isinstance(each, ScalarVar))
    return Kernel(dims, (a, b, d), 2, Alloc(a1, Alloc(c, nests)))


def _grid(variables: tuple[ScalarVar, ...], sizes: tuple[DimLike, ...], body: Stmt) -> Stmt:
    for var, size in zip(reversed(variables), reversed(sizes), strict=True):
        body = For(var, dim(size), "serial", body)
    return body


def same_function(before: Kernel, after: Kernel, seed: int = 0, **sizes: int) -> bool:
    """Whether both write the same, bit by bit, on small whole numbers."""
    known: dict[Term, int] = {var: sizes[str(var.name)] for var in before.dims}
    random = np.random.default_rng(seed)
    arrays = []
    for each in before.params[: before.inputs]:
        shape = shape_of(each.shape, known)
        assert shape is not None
        arrays.append(random.integers(-4, 5, shape).astype(each.dtype.numpy))
    left, right = run_kernel(before, arrays, known), run_kernel(after, arrays, known)
    return all(np.array_equal(x, y) for x, y in zip(left, right, strict=True))
