"""Small kernels to schedule, and what it means that two kernels are the same function."""

from __future__ import annotations

import numpy as np

from plica.core.term import Term
from plica.ir.dim import DimLike, dim
from plica.ir.dtype import f32
from plica.ir.loop import For, Kernel, Store, block
from plica.ir.run import run_kernel
from plica.ir.scalar import ScalarVar, lit
from plica.ir.size import shape_of
from plica.ir.tensor import axis, buffer


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
