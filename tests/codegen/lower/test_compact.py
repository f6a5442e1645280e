"""Compact: rows that were put further apart still are, in a smaller buffer."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.lower.compact import compact
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Buffer, index
from plica.ir.loop.statement import Alloc, For, Kernel, Seq, Store, statements
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import known
from plica.ir.type.dtype import f32


def padded(stride: int) -> Kernel:
    """Tiles of 4 x 4 of a matrix through a buffer as large as all of it."""
    x, y = buffer("x", (8, 40), f32), buffer("y", (8, 40), f32)
    name = buffer("held", (8, 40), f32).name
    held = Buffer(name, (index(8), index(40)), f32, "global", (index(stride), index(1)))
    a, b, i, j = (axis(each) for each in "abij")
    place = a * 4 + i, b * 4 + j

    def each(store: Store) -> For:
        return For(i, index(4), "serial", For(j, index(4), "serial", store))

    inside = Seq((each(Store(held, place, x[place])), each(Store(y, place, held[place]))))
    tiles = For(a, index(2), "serial", For(b, index(10), "serial", Alloc(held, inside)))
    return Kernel((), (x, y), 1, tiles)


@pytest.mark.parametrize(("stride", "new"), [(40, 4), (41, 9), (65, 33), (97, 33)])
def test_strides_of_a_smaller_buffer(stride: int, new: int) -> None:
    """Rows are as near as they can be where they were, and else meet in the same banks."""
    made = compact(padded(stride))
    (alloc,) = [each for each in statements(made.body) if isinstance(each, Alloc)]
    assert alloc.buffer.shape == (index(4), index(4))
    assert [known(each) for each in alloc.buffer.strides] == [new, 1]
    x = np.arange(320, dtype=np.float32).reshape(8, 40)
    (found,) = run_kernel(made, [x])
    np.testing.assert_array_equal(found, x)
