"""The pool: every iteration runs once, from many threads, in nested regions and after a fork."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.codegen.llvm import pool, toolchain
from plica.runtime.link import POOL_LAYOUT, LinkedCode, can_link, link, use_threads

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")

# body: count[i] += 1 for begin <= i < end; outer: the same from a region inside each iteration;
# length: how long a chunk is, where it begins
PROGRAM = """
define internal void @body(ptr %env, i64 %begin, i64 %end) {
entry:
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %more = icmp slt i64 %i, %end
  br i1 %more, label %loop, label %done
loop:
  %at = getelementptr i64, ptr %env, i64 %i
  %old = atomicrmw add ptr %at, i64 1 monotonic
  %next = add i64 %i, 1
  br label %check
done:
  ret void
}
define internal void @outer(ptr %env, i64 %begin, i64 %end) {
  %size = sub i64 %end, %begin
  %at = getelementptr i64, ptr %env, i64 %begin
  call void @plica_parallel(ptr @body, ptr %at, i64 %size)
  ret void
}
define internal void @length(ptr %env, i64 %begin, i64 %end) {
  %size = sub i64 %end, %begin
  %at = getelementptr i64, ptr %env, i64 %begin
  store i64 %size, ptr %at
  ret void
}
define void @lengths(ptr %env, i64 %count) {
  call void @plica_parallel(ptr @length, ptr %env, i64 %count)
  ret void
}
define void @flat(ptr %env, i64 %count) {
  call void @plica_parallel(ptr @body, ptr %env, i64 %count)
  ret void
}
define void @nested(ptr %env, i64 %count) {
  call void @plica_parallel(ptr @outer, ptr %env, i64 %count)
  ret void
}
"""


def program(threads: int) -> tuple[LinkedCode, Callable[[str, int], list[int]]]:
    here = toolchain.host()
    head = f'target triple = "{here.triple}"\n'
    code = link((toolchain.emit(head + PROGRAM + pool.text(here.triple), here),))
    use_threads(code, threads)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)

    def run(name: str, count: int) -> list[int]:
        counts = np.zeros(count + 1, np.int64)
        kind(code.address(name))(counts.ctypes.data, count)
        assert counts[count] == 0
        found: list[int] = counts[:count].tolist()
        return found

    return code, run


@lru_cache(maxsize=1)
def three() -> Callable[[str, int], list[int]]:
    return program(3)[1]


@given(st.sampled_from(["flat", "nested"]), st.integers(0, 300))
def test_every_iteration_runs_once(name: str, count: int) -> None:
    run = three()
    assert run(name, count) == [1] * count


@given(st.integers(2, 300))
def test_chunks_are_of_one_length_but_for_an_iteration(count: int) -> None:
    lengths = [each for each in three()("lengths", count) if each]
    assert sum(lengths) == count
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)
    assert len(lengths) == min(count, 3 * pool.CHUNKS)


def test_memory_that_means_something_else_is_another_layout() -> None:
    # Code of one layout shares pools: programs that were saved before are in the same process.
    places = {name: at for name, at in vars(pool).items() if name[0] == "_" and type(at) is int}
    shared = {
        "_TICKET": 0, "_BODY": 64, "_ENV": 72, "_LONGER": 80, "_SIZE": 88, "_CHUNKS": 96,
        "_DONE": 128, "_SLEEPERS": 192, "_BUSY": 256, "_STARTED": 264,
    }  # fmt: skip
    assert (POOL_LAYOUT, places) == (4, shared)


def test_many_regions_in_a_row() -> None:
    run = three()
    assert all(run("flat", 7) == [1] * 7 for _ in range(3000))


def test_many_callers_at_once() -> None:
    run = three()
    wrong: list[int] = []

    def work() -> None:
        for _ in range(300):
            if run("flat", 50) != [1] * 50:
                wrong.append(1)

    callers = [threading.Thread(target=work) for _ in range(8)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert wrong == []


def test_code_shares_the_threads_of_a_count() -> None:
    before = threads_of_this_process()
    others = [program(3) for _ in range(3)]
    assert all(run("flat", 100) == [1] * 100 for _, run in others)
    assert threads_of_this_process() <= max(before, 1) + 2


def test_a_child_has_threads_of_its_own() -> None:
    run = three()
    assert run("flat", 40) == [1] * 40
    child = os.fork()
    if child == 0:
        good = run("flat", 40) == [1] * 40 and threads_of_this_process() == 3
        os._exit(0 if good else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_one_thread_starts_none() -> None:
    before = threads_of_this_process()
    _, run = program(1)
    assert run("flat", 40) == [1] * 40
    assert threads_of_this_process() == before


def threads_of_this_process() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.mark.parametrize(
    "triple", ["aarch64-unknown-linux-gnu", "riscv64-unknown-linux-gnu", "arm64-apple-macosx"]
)
def test_the_pool_is_written_for_other_machines(triple: str) -> None:
    assert pool.has_pool(triple) == ("linux" in triple)
    assert f"@{pool.PARALLEL}(" in pool.text(triple)
    assert "<" not in pool.text(triple)


@pytest.mark.usefixtures("young")
def test_code_that_starts_the_threads_may_go() -> None:
    """They run in the code that made the pool; what ran first may be gone while they sleep."""
    threads = 5
    keeper, first = program(threads)  # makes the pool, and does not run
    other, run = program(threads)
    assert run("flat", 64) == [1] * 64
    place = other.address("flat")
    del other, run
    gc.collect()
    assert place  # its memory is given back here
    time.sleep(0.05)  # the workers look around, and sleep
    assert first("flat", 64) == [1] * 64
    assert keeper.address("flat")
