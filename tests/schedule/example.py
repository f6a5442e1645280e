"""Kernels that the tests of schedules share."""

from __future__ import annotations

from plica.ir.loop.scalar import Buffer, Lit, Load, Max, Scalar, ScalarVar, Select, index
from plica.ir.loop.statement import Alloc, For, Kernel, Stmt, Store, block, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import DimLike, dim, dim_var
from plica.ir.type.dtype import f32

n, m = dim_var("n"), dim_var("m")


def nest(loops: list[tuple[ScalarVar, DimLike]], inside: Stmt) -> Stmt:
    """Serial loops, outermost first."""
    for var, extent in reversed(loops):
        inside = For(var, dim(extent), "serial", inside)
    return inside


def over(
    name: str, extents: dict[str, DimLike], kinds: str, *, body: Store, init: object = None
) -> Stmt:
    """A block whose variables `v…` are loops of the names `…`, around it."""
    loops = [(axis(f"{each}_{name}"), size) for each, size in extents.items()]
    variables = [axis(f"v{each}_{name}") for each in extents]
    return nest(
        loops,
        block(name, variables, extents.values(), kinds, [var for var, _ in loops], body, init),
    )


def element(of: Buffer, name: str, letters: str) -> Load:
    """The element at the variables that `over` makes."""
    return Load(of, tuple(axis(f"v{each}_{name}") for each in letters))


def matmul(rows: DimLike = n, columns: DimLike = m, depth: DimLike = 6) -> Kernel:
    """A product of matrices, then its positive part."""
    a, b = buffer("A", (rows, depth), f32), buffer("B", (depth, columns), f32)
    c, d = buffer("C", (rows, columns), f32), buffer("D", (rows, columns), f32)
    at = element(c, "C", "ij")
    product = element(a, "C", "ik") * element(b, "C", "kj")
    update = Store(c, at.indices, at + product)
    init = Store(c, at.indices, Lit(0.0, f32))
    first = over("C", {"i": rows, "j": columns, "k": depth}, "ssr", body=update, init=init)
    here = element(d, "D", "ij")
    relu = Store(d, here.indices, Max(element(c, "D", "ij"), Lit(0.0, f32)))
    then = over("D", {"i": rows, "j": columns}, "ss", body=relu)
    dims = tuple(each for each in (rows, columns, depth) if isinstance(each, ScalarVar))
    return Kernel(dims, (a, b, d), 2, Alloc(c, seq(first, then)))


def conv2d(channels: int = 4, filters: int = 8, size: DimLike = 7) -> Kernel:
    """A padded convolution of three by three, then its positive part."""
    wide = dim(index(2) + dim(size))
    x = buffer("X", (channels, size, size), f32)
    w = buffer("W", (filters, channels, 3, 3), f32)
    p, c = buffer("P", (channels, wide, wide), f32), buffer("C", (filters, size, size), f32)
    y = buffer("Y", (filters, size, size), f32)
    at = element(p, "P", "chw")
    v, h, k = at.indices
    inside: Scalar = Load(x, (v, h - 1, k - 1))
    edge = dim(size)
    for place in (h, k):
        inside = Select(index(0) < place, inside, Lit(0.0, f32))
        inside = Select(place < edge + 1, inside, Lit(0.0, f32))
    pad = over("P", {"c": channels, "h": wide, "w": wide}, "sss", body=Store(p, at.indices, inside))
    out = element(c, "C", "fhw")
    f, h, k = out.indices
    r, s, q = (axis(f"v{each}_C") for each in "rsq")
    step = Load(p, (q, h + r, k + s)) * Load(w, (f, q, r, s))
    sizes: dict[str, DimLike] = {"f": filters, "h": size, "w": size, "q": channels, "r": 3, "s": 3}
    conv = over(
        "C", sizes, "sssrrr",
        body=Store(c, out.indices, out + step), init=Store(c, out.indices, Lit(0.0, f32)),
    )  # fmt: skip
    last = element(y, "Y", "fhw")
    relu = Store(y, last.indices, Max(element(c, "Y", "fhw"), Lit(0.0, f32)))
    then = over("Y", {"f": filters, "h": size, "w": size}, "sss", body=relu)
    dims = (size,) if isinstance(size, ScalarVar) else ()
    return Kernel(dims, (x, w, y), 2, Alloc(p, Alloc(c, seq(pad, conv, then))))
