"""Features: names do not matter, nor do loops of one step; counts are what they should be."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings, strategies as st

from plica.codegen.lower.passes import lower
from plica.core.fold import map_bottom_up
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop.scalar import Buffer, FloorDiv, FloorMod, Scalar, ScalarVar, index
from plica.ir.loop.statement import For, Kernel, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32
from plica.schedule.default.machine import Machine
from plica.schedule.replay import scheduled
from plica.search.feature import NAMES, WIDTH, features
from plica.search.feature.nest import Stride, nests_of, reaches_of
from plica.search.feature.operation import KINDS, operations
from plica.search.space import Space
from tests.schedule.kernel import matmul, product_and_relu
from tests.search.feature.sketches import tiled_sketch

MACHINE = Machine(512, 32, cores=2)
FEW = settings(max_examples=max(5, settings().max_examples // 5))


def renamed(kernel: Kernel, salt: str) -> Kernel:
    """The kernel with other names everywhere."""

    def other(node: Term) -> Term:
        if isinstance(node, ScalarVar):
            return ScalarVar(Name(salt + str(node.name), node.name.index), node.dtype)
        if isinstance(node, Buffer):
            name = Name(salt + str(node.name), node.name.index)
            return Buffer(name, node.shape, node.dtype, node.scope, node.strides, node.align)
        return node

    found = map_bottom_up(other, kernel)
    assert isinstance(found, Kernel)
    return found


@FEW
@given(st.integers(0, 2**32), st.sampled_from(["a", "z", "zz_"]))
def test_names_do_not_matter(seed: int, salt: str) -> None:
    sketch = tiled_sketch()
    space = Space((sketch,))
    kernel = lower(scheduled(space.trace(space.drawn(Random(seed))), sketch.kernel), "cpu")
    one, other = features(kernel, MACHINE), features(renamed(kernel, salt), MACHINE)
    assert np.array_equal(one, other)
    assert np.isfinite(one).all()


def test_there_are_at_least_as_many_as_ansor_has() -> None:
    assert len(set(NAMES)) == len(NAMES) == WIDTH == 164 + 16 + 18 + 11 + 13 + 5


def test_a_loop_of_one_step_changes_nothing() -> None:
    plain = matmul(6, 5, 4)
    wrapped = Kernel(
        plain.dims, plain.params, plain.inputs, For(axis("u"), index(1), "unrolled", plain.body)
    )
    assert np.array_equal(features(plain, MACHINE), features(wrapped, MACHINE))


def test_blocks_and_loops_are_alike() -> None:
    """The lowered kernel of a plain product has the features of its blocks."""
    plain = product_and_relu(8, 16, 4)
    assert features(plain, MACHINE).shape == (4, WIDTH)


def column(of: Kernel, name: str) -> list[float]:
    found: list[float] = features(of, MACHINE)[:, NAMES.index(name)].tolist()
    return found


def copy(kind: str, step: int = 1) -> Kernel:
    x, y, i = buffer("x", (16 * step,), f32), buffer("y", (16,), f32), axis("i")
    body = For(i, index(16), kind, Store(y, (i,), x[i * step]))  # type: ignore[arg-type]  # a kind
    return Kernel((), (x, y), 1, body)


def test_what_is_counted() -> None:
    kernel = copy("vectorized")
    assert column(kernel, "vectorized-length") == [np.log2(17)]
    assert column(kernel, "vectorized-inner-spatial") == [1.0]
    assert column(kernel, "parallel-none") == [1.0]
    assert column(kernel, "lanes-used") == [1.0]
    assert column(kernel, "buffer-0-unique-bytes") == [np.log2(1 + 64)]
    assert column(kernel, "buffer-0-unique-lines") == [np.log2(1 + 1)]
    assert column(copy("serial", 16), "buffer-1-unique-lines") == [np.log2(1 + 16)]
    assert column(copy("serial", 16), "buffer-1-stride") == [np.log2(1 + 16)]
    assert column(copy("serial"), "lanes-used") == [1 / 16]


def lanes(count: int, machine: Machine, name: str) -> float:
    """A feature of a vectorized loop of a given number of lanes."""
    x, y, i = buffer("x", (count,), f32), buffer("y", (count,), f32), axis("i")
    kernel = Kernel((), (x, y), 1, For(i, index(count), "vectorized", Store(y, (i,), x[i])))
    return float(features(kernel, machine)[0, NAMES.index(name)])


def test_lanes_are_cut_into_vectors_as_the_emitter_does() -> None:
    masks, none = Machine(512, 32), Machine(128, 32)
    assert [lanes(each, masks, "pieces") for each in (16, 14, 30)] == np.log2([2, 2, 3]).tolist()
    assert [lanes(each, none, "pieces") for each in (4, 3, 7)] == np.log2([2, 3, 4]).tolist()
    assert [lanes(each, none, "strips") for each in (16, 17)] == [0.0, 1.0]
    assert lanes(14, masks, "lanes-idle") == 1 - 14 / 16


def test_a_plain_loop_asks_for_all_passes() -> None:
    assert column(copy("serial"), "passes") == [1.0]
    assert column(copy("vectorized"), "passes") == [0.0]
    # One plain store is enough for all: sums along a loop are in registers then.
    assert column(matmul(6, 5, 400), "passes") == [1.0, 1.0]
    assert column(matmul(6, 5, 400), "in-memory") == [0.0, 0.0]


def test_short_loops_of_plain_code_are_written_out() -> None:
    """The sum over 4 is written out, and the loop of 5 around it is what is left."""
    assert column(matmul(6, 5, 4), "written-out")[1] == np.log2(1 + 4)
    assert column(matmul(6, 5, 4), "left-extent")[1] == np.log2(1 + 5)
    assert column(matmul(6, 5, 400), "left-reduces")[1] == 1.0


def test_reuse_of_a_product() -> None:
    """C[i, j] += A[i, k] * B[k, j]: along k, C is used again at once."""
    start, total = nests_of(matmul(6, 5, 4))
    assert [each.extent for each in total.loops] == [6, 5, 4]
    assert dict(zip(KINDS, total.operations, strict=True))["float-multiply-add"] == 1
    assert sum(start.operations) == 0
    names = [name for name in NAMES if name.startswith("buffer-") and name.endswith("reuse-steps")]
    found = {name: column(matmul(6, 5, 4), name)[1] for name in names}
    assert sorted(found.values())[-3:] == [np.log2(1 + 1), np.log2(1 + 4), np.log2(1 + 20)]


def test_quotients_and_remainders_move_less() -> None:
    i, j = axis("i"), axis("j")
    sizes = {i: 64.0, j: 3.0}
    assert reaches_of(FloorDiv(i, index(16)) * 8 + j, sizes, {}) == {
        i: Stride(8.0, 4.0),
        j: Stride(1.0, 3.0),
    }
    assert reaches_of(FloorMod(FloorDiv(i, index(4)), index(4)), sizes, {}) == {i: Stride(1.0, 4.0)}
    whole = FloorDiv(i, index(16)) * 16 + FloorMod(i, index(16))
    assert reaches_of(whole, sizes, {}) == {i: Stride(1.0, 64.0)}


def test_deep_terms_are_walked_without_recursion() -> None:
    i, x = axis("i"), buffer("x", (64,), f32)
    place: Scalar = i
    value: Scalar = x[i]
    for number in range(3_000):
        place = FloorDiv(place + number, index(2))
        value = value * value
    y = buffer("y", (64,), f32)
    kernel = Kernel((), (x, y), 1, For(i, index(64), "serial", Store(y, (place,), value)))
    assert features(kernel, MACHINE).shape == (1, WIDTH)
    assert sum(operations(value)) == 3_000
