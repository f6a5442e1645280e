"""Partition: a loop that asks for it is cut where choices between values begin to be, or cease."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.codegen.lower.partition import partition, partition_unrolled
from plica.codegen.lower.tidy import tidy
from plica.core.fold import post_order
from plica.ir.loop.scalar import Select
from plica.ir.loop.statement import Branch, For, Kernel, Seq, statements
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import known
from plica.ir.type.dtype import i32
from tests.codegen.lower.kernels import assert_same, read
from tests.conftest import Golden

WINDOWS = """
def windows(x: Buffer[({size},), i32], y: Buffer[({count}, 4), i32]):
    for i in range({count}{note}):
        for j in vectorized(4):
            y[i, j] = x[{at}] if 0 <= {at} and {at} < {size} else 7
"""


SHARED = """
def shared(x: Buffer[({size},), i32], y: Buffer[({size},), i32]):
    for i in parallel({count}):
        for j in range(4):
            if i * 4 + j < {size}:
                y[i * 4 + j] = x[i * 4 + j] + 1
"""


def windows(size: int, count: int, before: int, *, asks: bool = True) -> Kernel:
    """Elements of a row that begins before the data and ends behind it."""
    note = ", cut_choices=True" if asks else ""
    at = f"i * 4 + j - {before}"
    return read(WINDOWS.format(size=size, count=count, at=at, note=note))


def choices(kernel: Kernel) -> int:
    return sum(isinstance(node, Select) for node in post_order(kernel.body))


@given(st.integers(1, 30), st.integers(1, 9), st.integers(0, 9))
def test_it_means_the_same(size: int, count: int, before: int) -> None:
    kernel = windows(size, count, before)
    assert kernel.params[0].dtype is i32
    assert_same(kernel, partition(kernel))
    assert_same(kernel, tidy(partition(kernel)))


def test_the_middle_has_no_choice(golden: Golden) -> None:
    kernel = tidy(partition(windows(18, 5, 1)))
    assert choices(kernel) == 2
    loops = [each for each in statements(kernel.body) if isinstance(each, For)]
    assert not any(each.annotations for each in loops)
    golden(show_kernel(kernel), "cut_choices")


def test_the_last_ones_know_their_choices() -> None:
    """Two windows end behind the data, the first of them by one place: neither asks at run time."""
    kernel = tidy(partition(windows(27, 8, 0)))
    loops = [each for each in statements(kernel.body) if isinstance(each, For)]
    assert [known(each.extent) for each in loops if each.kind == "serial"] == [6]
    assert choices(kernel) == 1  # of the lanes of one window; behind it all is outside


def test_who_does_not_ask_keeps_the_loop() -> None:
    kernel = windows(18, 5, 1, asks=False)
    assert choices(partition(kernel)) == choices(kernel) == 1


@given(st.integers(5, 30))
def test_what_cores_share_stays_one_loop(size: int) -> None:
    kernel = read(SHARED.format(size=size, count=-(-size // 4)))
    cut = tidy(partition(kernel))
    assert_same(kernel, cut)
    every = [*statements(cut.body)]
    loops = [each for each in every if isinstance(each, For) and each.kind == "parallel"]
    assert len(loops) == 1
    guards = [each for each in every if isinstance(each, Branch)]
    assert len(guards) == (size % 4 != 0)  # which part it is


INSIDE = """
def inside(x: Buffer[({size},), i32], y: Buffer[({count}, {room}), i32]):
    for i in range({count}):
        for k in range({room}):
            y[i, k] = 0
        for j in vectorized({room}):
            if {before} <= j and j - {before} < {size} and j + i < {room}:
                y[i, j] = x[j - {before}]
"""


@given(st.integers(1, 20), st.integers(1, 4), st.integers(0, 5), st.integers(0, 9))
def test_vectors_go_as_far_as_their_guard(size: int, count: int, before: int, more: int) -> None:
    room = size + before + more
    kernel = read(INSIDE.format(size=size, count=count, before=before, room=room))
    made = partition(kernel)
    assert_same(kernel, made)
    loops = [each for each in statements(made.body) if isinstance(each, For)]
    wide = [known(each.extent) or 0 for each in loops if each.kind == "vectorized"]
    assert max(wide) == size  # less where it is known for a row that it ends before


PADDED = """
def padded(x: Buffer[({size},), i32], y: Buffer[({count}, {room}), i32]):
    for i in range({count}):
        for j in vectorized({room}, cut_choices=True):
            y[i, j] = x[j - {before}] if {before} <= j and j - {before} < {size} else 7
"""


@given(st.integers(1, 20), st.integers(0, 5), st.integers(0, 9))
def test_vectors_that_ask_for_it_choose_nothing(size: int, before: int, more: int) -> None:
    room = size + before + more
    kernel = read(PADDED.format(size=size, count=3, before=before, room=room))
    made = tidy(partition(kernel))
    assert_same(kernel, made)
    assert choices(made) == 0
    loops = [each for each in statements(made.body) if isinstance(each, For)]
    vectors = [known(each.extent) for each in loops if each.kind == "vectorized"]
    assert sorted(map(int, filter(None, vectors))) == sorted(
        filter((1).__lt__, (before, size, more))
    )


STRIDED = """
def strided(x: Buffer[({size},), i32], y: Buffer[({apart}, {length}), i32]):
    for i in range({apart}):
        for k in range({length}):
            y[i, k] = 0
        for j in vectorized({length}):
            if {before} <= i + j * {apart} and i + j * {apart} < {size} + {before}:
                y[i, j] = x[i + j * {apart} - {before}]
"""


@given(st.integers(9, 30), st.integers(2, 4), st.integers(0, 3))
def test_elements_in_strides_are_copied_without_guards(size: int, apart: int, before: int) -> None:
    length = -(-(size + 2 * before) // apart)
    kernel = read(STRIDED.format(size=size, apart=apart, before=before, length=length))
    cut = tidy(partition(kernel))
    assert_same(kernel, cut)
    assert not any(isinstance(each, Branch) for each in statements(cut.body))


CHOSEN = """
def chosen(x: Buffer[({size},), i32], y: Buffer[({apart}, {length}), i32]):
    for i in range({apart}):
        for j in vectorized({length}, cut_choices=True):
            y[i, j] = x[{at}] if 0 <= {at} and {at} < {size} else 7
"""


@given(st.integers(9, 30), st.integers(2, 4), st.integers(0, 3))
def test_elements_in_strides_are_chosen_by_no_lane(size: int, apart: int, before: int) -> None:
    length, at = -(-(size + 2 * before) // apart), f"i + j * {apart} - {before}"
    kernel = read(CHOSEN.format(size=size, apart=apart, at=at, length=length))
    cut = tidy(partition(kernel))
    assert_same(kernel, cut)
    assert choices(cut) == 0


TILES = """
def tiles(x: Buffer[({count}, 4), i32], z: Buffer[({size},), i32], y: Buffer[({size},), i32]):
    for i in range({count}):
        total = alloc(Buffer[(4,), i32, "local"])
        for k in unrolled(4):
            total[k] = 1
        for n in range({work}):
            for k in unrolled(4):
                total[k] = total[k] * 3 + {value}
        for j in unrolled(4):
            if i * 4 + j < {size}:
                y[i * 4 + j] = total[j] + z[i * 4 + j]
"""


def tiles(size: int, work: int = 8, value: str = "x[i, k]") -> Kernel:
    """Tiles that are made whole, of which the last is written as far as there is room."""
    return read(TILES.format(size=size, count=-(-size // 4), work=work, value=value))


def nests(kernel: Kernel) -> list[int | None]:
    """How often the outermost loops run."""
    found = kernel.body.stmts if isinstance(kernel.body, Seq) else (kernel.body,)
    return [known(each.extent) for each in found if isinstance(each, For)]


@given(st.integers(1, 30), st.integers(1, 12))
def test_what_asks_beside_much_work_is_chosen(size: int, work: int) -> None:
    kernel = tiles(size, work)
    assert_same(kernel, partition(kernel))
    assert_same(kernel, tidy(partition(kernel)))


def test_a_loop_that_does_much_stays_one(golden: Golden) -> None:
    kernel = tidy(partition(tiles(18)))
    assert nests(kernel) == [5]
    golden(show_kernel(kernel), "chosen_within")


def test_a_loop_that_does_little_is_cut() -> None:
    assert nests(partition(tiles(18, work=2))) == [4, 1]


def test_work_that_chooses_by_the_loop_is_cut_with_it() -> None:
    """It would have to ask in every iteration of the middle, too."""
    chooses = "(x[i, k] if i * 4 + k < 18 else 0)"
    assert nests(partition(tiles(18, value=chooses))) == [4, 1]


IN_THREADS = """
def taken(x: Buffer[({size},), i32], y: Buffer[(2, 8), i32]):
    for b in thread("blockIdx.x", 2):
        for t in thread("threadIdx.x", 8):
            y[b, t] = 0
            for k in range({count}):
                if k * 8 + t < {length} and b * {length} + k * 8 + t < {size}:
                    y[b, t] += x[b * {length} + k * 8 + t]
"""


@given(st.integers(9, 90), st.integers(0, 20))
def test_threads_have_parts_of_one_length(length: int, less: int) -> None:
    """Two guards, neither of which alone says what is beyond the cut: it is the same for all."""
    size = max(length + 1, 2 * length - less)
    kernel = read(IN_THREADS.format(size=size, length=length, count=-(-length // 8)))
    made = tidy(partition(kernel))
    assert_same(kernel, made)
    serial = [each for each in statements(made.body)
              if isinstance(each, For) and each.kind == "serial"]  # fmt: skip
    assert all(known(each.extent) is not None for each in serial)


WRITTEN_OUT = """
def kept(x: Buffer[({size},), i32], y: Buffer[(8,), i32]):
    for t in thread("threadIdx.x", 8):
        y[t] = 0
        for k in unrolled({count}):
            if k * 8 + t < {size}:
                y[t] += x[k * 8 + t]
"""


@given(st.integers(1, 60))
def test_written_out_loops_of_threads_ask_no_guard_that_all_pass(size: int) -> None:
    kernel = read(WRITTEN_OUT.format(size=size, count=-(-size // 8)))
    made = tidy(partition_unrolled(kernel))
    assert_same(kernel, made)
    loops = [each for each in statements(made.body) if isinstance(each, For)]
    guards = [each for each in statements(made.body) if isinstance(each, Branch)]
    assert len(guards) == (size % 8 > 0)
    assert size < 8 or any(known(each.extent) == size // 8 for each in loops)
