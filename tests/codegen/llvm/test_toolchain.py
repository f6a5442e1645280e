"""The toolchain gives back what it takes: compiling again and again needs no more memory."""

from __future__ import annotations

import gc
import os
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import plica
from plica.codegen.llvm import aside
from plica.codegen.llvm.toolchain import apart, cross, emit, host, optimised
from plica.codegen.llvm.writer import PLAIN
from plica.codegen.native import run_native
from plica.codegen.target import Target
from plica.ir.loop.scalar import Max, index
from plica.ir.loop.statement import For, Kernel, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32
from plica.runtime.error import UnsupportedError
from plica.runtime.process import apart as parted

TEXT = f"define i32 @f(i32 %x) {PLAIN} {{\n  %y = add i32 %x, 1\n  ret i32 %y\n}}\n"
PAGE = 4096


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


@pytest.mark.usefixtures("young")
@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for the memory of the process")
@pytest.mark.parametrize("text", [TEXT, TEXT.replace(PLAIN, "")], ids=["plain", "scheduled"])
def test_optimising_leaks_nothing(text: str) -> None:
    for _ in range(30):  # what is kept for good is made first
        optimised(text, host())
    gc.collect()
    before = resident()
    for _ in range(200):
        optimised(text, host())
    gc.collect()
    assert (resident() - before) / 200 <= 3_000


SOURCE = """
import plica
from plica import op

@plica.function
def main(x: Tensor[(4, 3), f32]):
    return op.tanh(x) * {factor}.0 + op.sum(x)
"""


@pytest.mark.usefixtures("young")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_compilation_leaves_no_rings(threads: int) -> None:
    def compiled(factor: int) -> None:
        program = plica.from_text(SOURCE.format(factor=factor))
        plica.compile(program, cache=False, threads=threads)

    compiled(2)
    gc.collect()
    gc.disable()
    try:
        compiled(3)
        assert gc.collect() < 30  # hundreds where what writes code holds itself
    finally:
        gc.enable()


def test_a_thread_optimises_after_another(capfd: pytest.CaptureFixture[str]) -> None:
    text = "define i32 @f(i32 %x) noinline optnone {\n  ret i32 %x\n}\n"
    optimised(text, host())
    for _ in range(3):
        thread = threading.Thread(target=optimised, args=(text, host()))
        thread.start()
        thread.join()
    found = capfd.readouterr()
    assert (found.out, found.err) == ("", "")  # LLVM tells of passes where its settings are torn


def test_plain_loops_whose_places_are_quotients_are_built() -> None:
    """LLVM's vectoriser ends the process at such a loop: it is not asked."""
    x, y, i = buffer("x", (5, 5), f32), buffer("y", (5, 6), f32), axis("i")
    row = i // 6
    value = Max(x[row, row], x[4 - row, row])
    kernel = Kernel((), (x, y), 1, For(i, index(30), "serial", Store(y, (row, i % 6), value)))
    given = np.arange(25, dtype=np.float32).reshape(5, 5)
    (found,) = run_native(kernel, [given], fused=False)
    rows = np.maximum(np.diag(given), given[::-1].diagonal())
    np.testing.assert_array_equal(found, np.repeat(rows[:, None], 6, axis=1))


LOOP = """define void @f(ptr %x, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %p = getelementptr float, ptr %x, i64 %i
  %v = load volatile float, ptr %p
  %q = fmul float %v, 0x3FF3C0CA40000000
  store volatile float %q, ptr %p
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %out
out:
  ret void
}
"""
"""The factor is loaded before the loop on any machine, where that pass is not left out."""


def test_code_that_is_wanted_soon_leaves_no_switch_turned() -> None:
    usual, soon = emit(LOOP, host(), 2), emit(LOOP, host(), 1)
    assert emit(LOOP, host(), 2) == usual
    assert emit(LOOP, host(), 1) == soon != usual


OTHER = Target("cpu", "riscv64-unknown-linux-gnu", "generic", ("+m", "+a", "+f", "+d", "+c"))


def test_one_process_aside_makes_the_same_again_and_another_follows_one_that_died() -> None:
    made = cross(TEXT, OTHER)
    helper = aside._PROCESSES[os.getpid()]
    assert cross(TEXT.replace("1\n", "2\n"), OTHER) != made
    assert cross(TEXT, OTHER) == made
    assert aside._PROCESSES[os.getpid()] is helper
    with pytest.raises(UnsupportedError, match="LLVM makes no code"):
        cross("this is no text of LLVM's", OTHER)
    assert cross(TEXT, OTHER) == made
    assert aside._PROCESSES[os.getpid()] is not helper


def test_what_is_said_of_a_machine_is_said_again() -> None:
    strange = Target("cpu", OTHER.triple, "generic", ("+nothing-of-that-name",))
    for of, is_strange in ((strange, True), (OTHER, False), (strange, True)):
        assert ("nothing-of-that-name" in apart(TEXT, of, "optimise").said) == is_strange


def test_a_fork_has_a_process_aside_of_its_own() -> None:
    made = cross(TEXT, OTHER)
    assert parted(lambda: cross(TEXT, OTHER)) == made
    assert cross(TEXT, OTHER) == made
