"""Buffers: where they live, how large they are, what they share; and the width of indices."""

from __future__ import annotations

import numpy as np
import pytest

from plica.analysis.race import races
from plica.analysis.statement import LoweringRefused
from plica.analysis.statement_coverage import covered
from plica.codegen.lower.blocks import blocks_to_loops
from plica.codegen.lower.buffer_sinking import sink_buffers
from plica.codegen.lower.compact import compact
from plica.codegen.lower.flatten import flatten
from plica.codegen.lower.hoist import hoist
from plica.codegen.lower.index_narrowing import narrow_indices
from plica.codegen.lower.kernel_call import all_written
from plica.codegen.lower.passes import lower
from plica.codegen.lower.reuse import arranged, clashes, reuse
from plica.codegen.lower.tidy import tidy
from plica.codegen.native import run_native
from plica.core.fold import post_order
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Cast, FloorDiv, Lit, Load, Max, Scalar, ScalarVar, dtype_of, index
from plica.ir.loop.statement import NOTHING, Alloc, Bind, For, Kernel, Seq, Store, seq, statements
from plica.ir.loop.tensor import axis, buffer
from plica.ir.loop.verify import peak_bytes
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var, known
from plica.ir.type.dtype import DType, i32, i64
from tests.codegen.lower.kernels import assert_same, read
from tests.conftest import Golden

TILES = """
def tiles(x: Buffer[("n", 16), i32], y: Buffer[("n", 16), i32]):
    t = alloc(Buffer[(n, 16), i32])
    u = alloc(Buffer[(16,), i32])
    for i in range(n):
        for j in range(4):
            for j1 in range(4):
                with block("t", vi=spatial(n, i), vj=spatial(16, j * 4 + j1)):
                    t[vi, vj] = x[vi, vj] * 2
            for j2, r in grid(4, 4):
                with block("u", vi=spatial(n, i), vj=spatial(16, j * 4 + j2), vr=reduce(4, r)):
                    with init():
                        u[vj] = 0
                    u[vj] += t[vi, vj] + i32(vr)
            for j3 in range(4):
                with block("y", vi=spatial(n, i), vj=spatial(16, j * 4 + j3)):
                    y[vi, vj] = t[vi, vj] + u[vj]
"""

STENCIL = """
def stencil(x: Buffer[("n",), i32], y: Buffer[("n",), i32]):
    t = alloc(Buffer[("n + 2",), i32])
    for i in range((n + 3) // 4):
        for j in range(6):
            with block("t", v=spatial(n + 2, i * 4 + j), where=i * 4 + j < n + 2):
                t[v] = x[v - 1] if 1 <= v and v < n + 1 else 0
        for j1, r in grid(4, 3):
            with block("y", v=spatial(n, i * 4 + j1), w=reduce(3, r), where=i * 4 + j1 < n):
                with init():
                    y[v] = 0
                y[v] += t[v + w]
"""

CARRIED = """
def carried(x: Buffer[("n",), i32], y: Buffer[("n",), i32]):
    t = alloc(Buffer[(1,), i32])
    with block("first"):
        t[0] = 0
    for i in range(n):
        with block("more", v=ordered(n, i)):
            t[0] = t[0] + x[v]
        with block("y", v=spatial(n, i)):
            y[v] = t[0]
"""


def allocations(kernel: Kernel) -> list[tuple[str, list[Scalar]]]:
    return [
        (str(each.buffer.name), list(each.buffer.shape))
        for each in statements(kernel.body)
        if isinstance(each, Alloc)
    ]


def lowered(kernel: Kernel) -> Kernel:
    return tidy(compact(tidy(hoist(blocks_to_loops(sink_buffers(kernel))))))


@pytest.mark.parametrize("text", [TILES, STENCIL, CARRIED], ids=["tiles", "stencil", "carried"])
def test_buffers_move_in_and_shrink(
    text: str, golden: Golden, request: pytest.FixtureRequest
) -> None:
    kernel = read(text)
    for size in (1, 3, 8):
        assert_same(kernel, sink_buffers(kernel), n=size)
        assert_same(kernel, lowered(kernel), n=size)
    golden(show_kernel(lowered(kernel)), f"compact_{request.node.callspec.id}")


def test_a_buffer_that_carries_values_stays_outside() -> None:
    kernel = sink_buffers(read(CARRIED))
    assert isinstance(kernel.body, Alloc)
    assert isinstance(kernel.body.body, Seq)


def test_a_tile_is_as_large_as_what_is_touched() -> None:
    found = allocations(lowered(read(TILES)))
    assert found == [("u", [index(4)]), ("t", [index(1), index(4)])]


PARTLY = """
def partly(x: Buffer[("n", 4), i32], y: Buffer[("n", 4), i32]):
    t = alloc(Buffer[(4,), i32])
    for i in range(n):
        for j in range(4):
            with block("t", vi=spatial(n, i), vj=spatial(4, j), where={where}):
                t[vj] = x[vi, vj]
        for j1 in range(4):
            with block("y", vi=spatial(n, i), vj=spatial(4, j1)):
                y[vi, vj] = t[{read}]
"""


@pytest.mark.parametrize(
    ("where", "at", "inside"),
    [
        ("j < 4", "vj", True),
        ("j < 4", "3 - vj", True),
        ("i < 1", "vj", False),  # later iterations read what the first wrote
        ("j < 3", "vj", False),
        ("j < 3 or i < 1", "vj", False),
        ("j < 3", "vj // 2", True),
        ("j < 3", "vj] if vj < 3 else t[0", True),  # what is not taken is not read
        ("j < 3", "vj] if 0 < vj else t[0", False),
        ("j < 3", "0] if 0 < vj else t[vj", True),
    ],
)
def test_a_buffer_moves_in_only_if_all_that_is_read_was_written(
    where: str, at: str, inside: bool
) -> None:
    kernel = read(PARTLY.format(where=where, read=at))
    moved = sink_buffers(kernel)
    assert isinstance(moved.body, For) == inside
    arrays = [np.arange(8, dtype=np.int32).reshape(2, 4)]
    if inside:
        np.testing.assert_array_equal(run_kernel(moved, arrays)[0], run_kernel(kernel, arrays)[0])


SEVERAL = """
def several(x: Buffer[("n", 16), i32], y: Buffer[("n", 16), i32]):
    t = alloc(Buffer[(n, 16), i32])
    for i in range(n):
        for j in range(4):
            with block("t", vi=spatial(n, i), vj=spatial(4, j)):
                {stores}
        for j1 in range(16):
            with block("y", vi=spatial(n, i), vj=spatial(16, j1)):
                y[vi, vj] = t[vi, vj] + t[vi, 15 - vj]
"""


@pytest.mark.parametrize(("count", "inside"), [(4, True), (3, False)])
def test_several_stores_of_a_block_cover_what_is_read(count: int, inside: bool) -> None:
    stores = [f"t[vi, 4 * vj + {at}] = x[vi, 4 * vj + {at}]" for at in range(count)]
    kernel = read(SEVERAL.format(stores=("\n" + 16 * " ").join(stores)))
    assert isinstance(sink_buffers(kernel).body, For) == inside
    if inside:
        assert allocations(lowered(kernel)) == [("t", [index(1), index(16)])]
        assert_same(kernel, lowered(kernel), n=3)


def test_parts_of_a_row_cover_what_is_read() -> None:
    kernel = read("""
def parts(x: Buffer[("n", 16), i32], y: Buffer[("n", 16), i32]):
    t = alloc(Buffer[(n, 16), i32])
    for i in range(n):
        for j in range(5):
            t[i, j] = x[i, j]
        for j1 in range(11):
            if j1 < 4:
                t[i, j1 + 5] = 0
            else:
                t[i, j1 + 5] = x[i, j1 + 5]
        for j2 in range(16):
            y[i, j2] = t[i, 15 - j2]
""")
    assert allocations(lowered(kernel)) == [("t", [index(1), index(16)])]
    assert_same(kernel, lowered(kernel), n=3)


def test_what_stages_write_is_not_asked_of_the_scheduled_kernel() -> None:
    text = "def k(x: Buffer[(7,), i32], y: Buffer[(7,), i32]):\n    for i in range(7):\n        "
    stages = read(text + "y[i] = x[i]")
    turned = read(text + "y[3 * i % 7] = x[3 * i % 7]")
    assert all_written(stages) is stages
    assert all_written(turned, stages) is turned
    few = read(text.replace("range(7)", "range(6)") + "y[i] = x[i]")
    assert isinstance(all_written(turned, few).body, Seq)


def test_a_reduction_over_the_loop_keeps_its_buffer_outside() -> None:
    kernel = read("""
def sums(x: Buffer[(3, 4), i32], y: Buffer[(4,), i32]):
    t = alloc(Buffer[(4,), i32])
    for r in range(3):
        for j in range(4):
            with block("t", vj=spatial(4, j), vr=reduce(3, r)):
                with init():
                    t[vj] = 0
                t[vj] += x[vr, vj]
        for j1 in range(4):
            with block("y", vj=spatial(4, j1)):
                y[vj] = t[vj]
""")
    moved = sink_buffers(kernel)
    assert isinstance(moved.body, Alloc)
    assert_same(kernel, moved)
    inner = next(each for each in statements(kernel.body) if isinstance(each, For))
    assert not covered(inner.body, kernel.body.buffer)  # type: ignore[union-attr]
    assert covered(inner, kernel.body.buffer)  # type: ignore[union-attr]


LANES = """
def lanes(x: Buffer[(8, 4), i32], y: Buffer[(8, 4), i32]):
    t = alloc(Buffer[(8, 4), i32])
    for i in vectorized(8):
        for j in range(4):
            with block("t", vi=spatial(8, i), vj=spatial(4, j)):
                t[{at}, vj] = x[vi, vj] * 2
        for j1 in range(4):
            with block("y", vi=spatial(8, i), vj=spatial(4, j1)):
                y[vi, vj] = t[{at}, 3 - vj]
"""


@pytest.mark.parametrize(("at", "inside"), [("vi", False), ("0", True), ("vi // 2", True)])
def test_lanes_that_would_meet_in_a_buffer_have_one_each(at: str, inside: bool) -> None:
    kernel = read(LANES.format(at=at))
    loop = next(each for each in statements(sink_buffers(kernel).body) if isinstance(each, For))
    assert loop.kind == "vectorized"
    assert any(isinstance(each, Alloc) for each in statements(loop)) == inside
    array = np.arange(32, dtype=np.int32).reshape(8, 4)
    (found,) = run_native(lower(kernel), [array])
    np.testing.assert_array_equal(found, 2 * array[:, ::-1])


def test_a_loop_at_once_inside_of_lanes_has_its_buffers_inside() -> None:
    kernel = read("""
def lanes(x: Buffer[(8,), i32], y: Buffer[(8, 4), i32]):
    t = alloc(Buffer[(8,), i32])
    for i in vectorized(8):
        for j in parallel(4):
            with block("t", vi=spatial(8, i), vj=spatial(4, j)):
                t[vi] = x[vi] * 2
            with block("y", vi=spatial(8, i), vj=spatial(4, j)):
                y[vi, vj] = t[vi]
""")
    inner = [each for each in statements(sink_buffers(kernel).body) if isinstance(each, For)][1]
    assert inner.kind == "parallel"
    assert isinstance(inner.body, Alloc)


GATHERED = """
def gathered(x: Buffer[(4,), i32], p: Buffer[(3,), {place}], y: Buffer[(3,), i32]):
    t = alloc(Buffer[({size},), i32])
    for i in parallel(3):
        for j in range(4):
            with block("t", vj=spatial(4, j)):
                t[vj] = x[vj] * 2
        with block("y", vi=spatial(3, i)):
            y[vi] = t[{at}] + t[vi]
"""


@pytest.mark.parametrize(
    ("place", "size", "at"),
    [
        ("i64", 4, "p[vi]"),
        ("i64", 4, "p[vi] % 4"),
        ("i64", 8, "p[vi] % 4"),
        ("i64", 8, "(p[vi] + p[0]) % 4"),
        ("i32", 4, "i64(p[vi])"),
    ],
)
def test_an_index_that_is_read_may_be_any_inside(place: str, size: int, at: str) -> None:
    """Iterations that share the buffer write and read it at once: each has its own."""
    kernel = read(GATHERED.format(place=place, size=size, at=at))
    moved = sink_buffers(kernel)
    assert isinstance(moved.body, For)
    assert isinstance(moved.body.body, Alloc)
    assert not races(lower(kernel))
    x, p = np.array([5, 6, 7, 8], np.int32), np.array([3, 0, 2], place.replace("i", "int"))
    expected = 2 * x[(p + p[0]) % 4 if "p[0]" in at else p] + 2 * x[:3]
    for found in (run_kernel(moved, [x, p]), run_native(lower(kernel), [x, p])):
        np.testing.assert_array_equal(found[0], expected)


@pytest.mark.parametrize("at", ["p[vi]", "p[vi] % 5"])
def test_iterations_at_once_that_would_share_a_buffer_are_refused(at: str) -> None:
    kernel = read(GATHERED.format(place="i64", size=8, at=at))
    with pytest.raises(LoweringRefused) as caught:
        sink_buffers(kernel)
    assert "meet at t[0]" in str(caught.value)
    serial = read(GATHERED.format(place="i64", size=8, at=at).replace("parallel", "range"))
    assert isinstance(sink_buffers(serial).body, Alloc)


def test_conditions_on_memory_prove_nothing() -> None:
    kernel = read(PARTLY.format(where="x[0, j] < 9", read="vj"))
    assert isinstance(sink_buffers(kernel).body, Alloc)


def test_what_is_longer_in_one_iteration_than_in_another_stays_as_long_as_it_was() -> None:
    kernel = read("""
def ends(x: Buffer[(8,), i32], y: Buffer[(8,), i32]):
    for i in range(8):
        t = alloc(Buffer[(8,), i32])
        for j in range(8 - i % 4):
            t[i % 4 + j] = x[i % 4 + j] * 2
        for j1 in range(8 - i % 4):
            y[i] = t[i % 4 + j1]
""")
    small = compact(kernel)
    (found,) = [each for each in statements(small.body) if isinstance(each, Alloc)]
    assert [known(each) for each in found.buffer.shape] == [8]
    array = np.arange(3, 11, dtype=np.int32)
    (made,) = run_native(lower(kernel), [array])
    np.testing.assert_array_equal(made, np.full(8, 2 * array[7]))


# --- flat buffers --------------------------------------------------------------------------------


def test_flat_buffers_have_the_same_elements() -> None:
    kernel = read("""
def turned(x: Buffer[("n", 3), i32], y: Buffer[(3, "n"), i32]):
    t = alloc(Buffer[(3, n), i32])
    for i, j in grid(n, 3):
        t[j, i] = x[i, j]
    for i, j in grid(n, 3):
        y[j, i] = t[j, i] + 1
""")
    flat = flatten(kernel)
    assert_same(kernel, flat, n=4)
    whole = flatten(kernel, params=True)
    given_ = np.arange(12, dtype=np.int32)
    (found,) = run_kernel(whole, (given_,), {dim_var("n"): 4})
    np.testing.assert_array_equal(found.reshape(3, 4), given_.reshape(4, 3).T + 1)


def test_strides_become_part_of_the_place() -> None:
    kernel = read("""
def padded(x: Buffer[(3, 4), i32], y: Buffer[(3, 4), i32]):
    t = alloc(Buffer[(3, 4), i32, strides(5, 1)])
    for i, j in grid(3, 4):
        t[i, j] = x[i, j]
    for i, j in grid(3, 4):
        y[i, j] = t[i, 3 - j]
""")
    flat = flatten(kernel)
    assert_same(kernel, flat)
    assert allocations(flat) == [("t", [index(14)])]


def test_digits_of_a_place_are_put_together() -> None:
    """`x // 4 * 64 + x % 4 * 16` is `16 * x`, or lanes that are neighbours would be gathered."""
    kernel = read("""
def turned(x: Buffer[(16, 32), i32], y: Buffer[(32, 16), i32]):
    t = alloc(Buffer[(8, 4, 16), i32])
    for i, j in grid(16, 32):
        t[j // 4, j % 4, i] = x[i, j]
    for i, j in grid(32, 16):
        y[i, j] = t[i // 4, i % 4, j]
""")
    flat = flatten(kernel)
    assert_same(kernel, flat)
    assert not [each for each in post_order(flat) if isinstance(each, FloorDiv)]


def test_digits_of_different_places_stay_apart() -> None:
    kernel = read("""
def apart(x: Buffer[(32, 32), i32], y: Buffer[(32, 32), i32]):
    t = alloc(Buffer[(8, 4, 16), i32])
    for i, j in grid(32, 32):
        t[i // 4, j % 4, i // 2] = x[i, j]
        y[i, j] = t[i // 4, j % 4, i // 2]
""")
    flat = flatten(kernel)
    assert_same(kernel, flat)
    assert len({each for each in post_order(flat) if isinstance(each, FloorDiv)}) == 2


# --- memory that is shared -----------------------------------------------------------------------


def steps(count: int) -> Kernel:
    """`y = x + count`, one step after the other, each into a buffer of its own."""
    x, y, i = buffer("x", (6,), i32), buffer("y", (6,), i32), axis("i")
    held = [buffer(f"t{at}", (6 + at % 2,), i32) for at in range(count)]
    stmts = []
    for source, target in zip((x, *held), (*held, y), strict=True):
        stmts.append(For(i, index(6), "serial", Store(target, (i,), source[i] + 1)))
    body = seq(*stmts)
    for each in reversed(held):
        body = Alloc(each, body)
    return Kernel((), (x, y), 1, body)


def test_a_chain_needs_two_buffers() -> None:
    kernel = steps(6)
    shared = reuse(kernel)
    assert_same(kernel, shared)
    assert len(allocations(shared)) == 2
    assert peak_bytes(shared, ("global",)) < peak_bytes(kernel, ("global",))


def test_what_is_needed_together_shares_nothing() -> None:
    t, u, y, i = (*[buffer(name, (2,), i32) for name in "tuy"], axis("i"))
    make = [For(i, index(2), "serial", Store(each, (i,), Cast(i, i32))) for each in (t, u)]
    use = For(i, index(2), "serial", Store(y, (i,), t[i] + u[i]))
    kernel = Kernel((), (y,), 0, Alloc(t, Alloc(u, seq(*make, use))))
    assert len(allocations(reuse(kernel))) == 2
    assert arranged((t, u), (*make, use)) == [[t], [u]]
    assert clashes([[t, u]], (*make, use))  # the checker sees what the planner avoids
    assert clashes([[t, u]], (make[0], make[1], Store(y, (index(0),), t[0]))) == [t]


# --- narrow indices ------------------------------------------------------------------------------


def test_indices_become_narrow_where_that_is_proved() -> None:
    x, y, i, j = buffer("x", (4, 8), i32), buffer("y", (32,), i32), axis("i"), axis("j")
    inner = Store(y, (i * 8 + j,), x[i, j] + Cast(i, i32))
    kernel = Kernel((), (x, y), 1, For(i, index(4), "serial", For(j, index(8), "serial", inner)))
    small = narrow_indices(kernel)
    assert_same(kernel, small)
    (store,) = [each for each in statements(small.body) if isinstance(each, Store)]
    assert [dtype_of(each) for each in store.indices] == [i32]
    loads = [node for node in post_order(store.value) if isinstance(node, Load)]
    assert all(dtype_of(each) is i32 for load in loads for each in load.indices)


def test_what_may_overflow_stays_wide() -> None:
    x, y, i = buffer("x", (64,), i32), buffer("y", (64,), i32), axis("i")
    far = FloorDiv(i * (1 << 30), index(1 << 30))
    kernel = Kernel((), (x, y), 1, For(i, index(64), "serial", Store(y, (far,), x[i])))
    small = narrow_indices(kernel)
    assert_same(kernel, small)
    (store,) = [each for each in statements(small.body) if isinstance(each, Store)]
    assert [dtype_of(each) for each in store.indices] == [i64]


@pytest.mark.parametrize(("rows", "wanted"), [(1 << 18, i32), ((1 << 18) + 6, i64)])
def test_places_far_from_the_first_are_wide(rows: int, wanted: DType) -> None:
    """Each index fits in 32 bits, and where the element is may not."""
    x, y = buffer("x", (rows, 8192), i32), buffer("y", (rows,), i32)
    i, j = axis("i"), axis("j")
    inner = Store(y, (i,), x[i, j])
    kernel = Kernel(
        (), (x, y), 1, For(i, index(rows), "serial", For(j, index(8192), "serial", inner))
    )
    (store,) = [each for each in statements(narrow_indices(kernel).body) if isinstance(each, Store)]
    assert [dtype_of(each) for each in store.indices] == [i32]
    (load,) = [node for node in post_order(store.value) if isinstance(node, Load)]
    assert [dtype_of(each) for each in load.indices] == [wanted, wanted]


def test_loops_of_unknown_length_stay_wide() -> None:
    n, y, i = dim_var("n"), buffer("y", (dim_var("n"),), i32), axis("i")
    kernel = Kernel((n,), (y,), 0, For(i, n, "serial", Store(y, (i,), Cast(i, i32))))
    assert narrow_indices(kernel) is kernel
    assert narrow_indices(Kernel((n,), (y,), 0, NOTHING)).body is NOTHING
    assert isinstance(i, ScalarVar)


def test_loops_of_unknown_length_are_narrow_where_dims_are() -> None:
    n, y, i = dim_var("n"), buffer("y", (dim_var("n"),), i32), axis("i")
    at = Bind(axis("j"), i // Max(n, index(1)), Store(y, (axis("j"),), Lit(1, i32)))
    blocks = For(i, (n + 255) // 256, "blockIdx.x", at)
    kernel = Kernel((n,), (y,), 0, blocks)
    made = [*statements(narrow_indices(kernel, narrow_dims=True).body)]
    narrow = [dtype_of(each.var) for each in made if isinstance(each, For | Bind)]
    assert narrow == [i32, i32]
    (loop,) = [each for each in made if isinstance(each, For)]
    assert loop.extent is blocks.extent  # whoever launches it reads that


FIRST_LANE = """
def first(x: Buffer[(17,), i32], y: Buffer[(17,), u8]):
    for j in vectorized(16):
        y[j] = u8(x[j])
    for k in vectorized(16):
        if k + 16 < 17:
            y[k + 16] = u8(x[k + 16])
"""


def test_what_only_the_first_lane_does_is_no_vector() -> None:
    """LLVM 20 would store the lane as wide as it was before it was cast: past the end."""
    kernel = tidy(read(FIRST_LANE))
    loops = [each for each in statements(kernel.body) if isinstance(each, For)]
    assert [known(each.extent) for each in loops] == [16]
    assert_same(read(FIRST_LANE), kernel)
