"""Private buffers: what iterations need not share they can make themselves."""

from __future__ import annotations

import numpy as np

from plica.analysis.dependence import conflicts
from plica.analysis.site import distinct, map_of
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Lit, Scalar, index
from plica.ir.loop.statement import Alloc, For, Kernel, LoopKind, Stmt, Store, block, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32
from plica.schedule.instruction import Scene
from plica.schedule.order import private, with_private
from plica.schedule.precondition import independent_iterations

o, i, j, k, v, w, r = (axis(name) for name in "oijkvwr")
x, y, t = buffer("x", (14,), f32), buffer("y", (12,), f32), buffer("t", (14,), f32)
ZERO = Lit(0.0, f32)


def staged(read: Scalar, kind: LoopKind = "serial", width: int = 6) -> Kernel:
    """Each tile of y from a window of t, which the tile computes itself."""
    first = For(i, index(width), "serial", block(
        "t", (v,), (14,), "s", (o * 4 + i,), Store(t, (v,), x[v] * 2)))  # fmt: skip
    then = For(j, index(4), "serial", block(
        "y", (w,), (12,), "s", (o * 4 + j,), Store(y, (w,), t[read])))  # fmt: skip
    return kernel(For(o, index(3), kind, seq(first, then)))


def kernel(stmt: Stmt, *, made: bool = True) -> Kernel:
    body = Alloc(t, stmt) if made else stmt
    return distinct(Kernel((), (x, y) if made else (x, t, y), 1, body))


def found(of: Kernel) -> list[str]:
    return [str(each.name) for each in private(Scene(of, {}), map_of(of).loops[o])]


def test_a_window_that_each_iteration_computes_is_private() -> None:
    of = staged(w + 2)
    site = map_of(of).loops[o]
    here = Scene(of, {})
    assert independent_iterations(here, site) is not None
    assert private(here, site) == conflicts(site.node)
    own = with_private(of, site, private(here, site))
    data = np.arange(14, dtype=np.float32)
    (before,), (after,) = run_kernel(of, [data]), run_kernel(own, [data])
    np.testing.assert_array_equal(before, after)
    new = map_of(own).loops[o]
    assert independent_iterations(Scene(own, {}), new) is None
    loop = new.node
    at_once = Kernel((), own.params, 1, For(o, loop.extent, "parallel", loop.body))
    (racing,) = run_kernel(at_once, [data])  # a race would be an error
    np.testing.assert_array_equal(before, racing)


def test_what_an_iteration_does_not_compute_is_not_private() -> None:
    assert found(staged(w + 2)) == ["t"]
    assert found(staged(w + 2, width=5)) == []
    assert found(staged(index(0))) == []


def test_what_others_see_is_not_private() -> None:
    inside = staged(w).body
    assert isinstance(inside, Alloc)
    assert found(kernel(inside.body, made=False)) == []
    outside = For(k, index(12), "serial", block(
        "z", (r,), (12,), "s", (k,), Store(y, (r,), t[r])))  # fmt: skip
    assert found(kernel(seq(inside.body, outside))) == []


def test_a_sum_is_private_where_it_ends_in_the_iteration() -> None:
    def summed(row: Scalar, place: Scalar) -> Kernel:
        at = v * 0
        total = block(
            "t", (v, r), (3, 4), "sr", (row, place),
            Store(t, (at,), t[at] + x[v * 4 + r]), Store(t, (at,), ZERO),
        )  # fmt: skip
        use = block("y", (w,), (3,), "s", (o,), Store(y, (w,), t[w * 0]))
        return kernel(For(o, index(3), "serial", seq(For(i, index(4), "serial", total), use)))

    assert found(summed(o, i)) == []  # several elements of v share one of t: no reduction
    inside = block(
        "t", (v, r), (14, 4), "sr", (j, i),
        Store(t, (v,), t[v] + x[r]), Store(t, (v,), ZERO),
    )  # fmt: skip
    nest = For(j, index(14), "serial", For(i, index(4), "serial", inside))
    use = block("y", (w,), (3,), "s", (o,), Store(y, (w,), t[w]))
    assert found(kernel(For(o, index(3), "serial", seq(nest, use)))) == ["t"]
