"""Building a candidate: object files of one kernel and of a loop that calls it repeatedly.

i64 plica_repeat(void **table, i64 count)       0, or 1 where an index was outside its tensor
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from time import perf_counter
from typing import Final, Literal

import numpy as np
from attrs import evolve, field, frozen

import plica.codegen.dot_product  # noqa: F401  # declares the intrinsics that traces name
from plica.codegen.llvm import pool, toolchain
from plica.codegen.llvm.fold import alone, kernel_text
from plica.codegen.lower.passes import lower
from plica.codegen.target import Target, parse
from plica.core.collector import paused
from plica.ir.loop.statement import Kernel
from plica.runtime.error import Diagnostic, EvaluationError, UnsupportedError
from plica.runtime.link import link, use_threads
from plica.runtime.port import Array
from plica.schedule.replay import scheduled
from plica.search.measure.job import MeasureJob

KERNEL: Final = "plica.candidate"
REPEAT: Final = "plica_repeat"

MAX_LLVM_TEXT_CHARACTERS: Final = 4 << 20  # longer texts compile for minutes


@frozen(eq=False)
class Built:
    """Object files, with the loop that calls the kernel, and the seconds of each build stage."""

    objects: tuple[bytes, ...]
    stages: dict[str, float] = field(factory=dict[str, float])


def target_of(job: MeasureJob) -> Target:
    """The target of a job, which must be this machine."""
    # A description without a number of cores means one.
    target = parse(job.target, evolve(toolchain.host(), cores=1))
    toolchain.check_host(target)
    return target


def built(job: MeasureJob, known: Kernel | None = None) -> Built:
    """The code of a candidate, from its lowered kernel if `known`; raises `PlicaError` if
    refused."""
    target = target_of(job)
    return built_in_stages(
        job, known, "cpu", lambda kernel: objects_of(kernel, target, job.reassociates)
    )


def built_in_stages(
    job: MeasureJob,
    known: Kernel | None,
    kind: Literal["cpu", "gpu"],
    objects: Callable[[Kernel], tuple[bytes, ...]],
) -> Built:
    """Replays, lowers and compiles a schedule, timing each step."""
    start = perf_counter()
    with paused():
        kernel = known or scheduled(job.trace, job.kernel)
        replayed = perf_counter()
        kernel = known or lower(kernel, kind)
        lowered = perf_counter()
        made = objects(kernel)
    done = perf_counter()
    stages = {"replay": replayed - start, "lower": lowered - replayed, "compile": done - lowered}
    return Built(made, stages)


def objects_of(kernel: Kernel, target: Target, fused: bool) -> tuple[bytes, ...]:
    """The object files of a lowered kernel."""
    text = kernel_text(kernel, None, KERNEL, target, fused, fused)
    whole = alone(text, KERNEL, target)
    if len(whole) > MAX_LLVM_TEXT_CHARACTERS:
        message = "The code of the kernel is too long to be compiled in reasonable time."
        expected = f"at most {MAX_LLVM_TEXT_CHARACTERS} characters"
        raise UnsupportedError(Diagnostic("target-limit", message, None, expected, str(len(whole))))
    made = [toolchain.emit(whole, target), _loop(len(kernel.params), text.can_fail, target)]
    if text.shares:
        made.append(_pool(target))
    return tuple(made)


@lru_cache(maxsize=64)
def _loop(params: int, can_fail: bool, target: Target) -> bytes:
    """The function that calls a kernel a given number of times."""
    result, types = "i1" if can_fail else "void", ", ".join(["ptr"] * params)
    given = ", ".join([f"ptr %b{number}" for number in range(params)])
    call = f"call {result} @{KERNEL}({given})"
    lines = [
        f'target triple = "{target.triple}"',
        f"declare hidden {result} @{KERNEL}({types})",
        f"define i64 @{REPEAT}(ptr %table, i64 %count) nounwind {{",
        "entry:",
    ]
    for number in range(params):
        lines.append(f"  %p{number} = getelementptr inbounds ptr, ptr %table, i64 {number}")
        lines.append(f"  %b{number} = load ptr, ptr %p{number}, align 8")
    lines += ["  br label %again", "again:", "  %i = phi i64 [ 0, %entry ], [ %next, %on ]"]
    if can_fail:
        lines += [f"  %failed = {call}", "  br i1 %failed, label %fail, label %on"]
    else:
        lines += [f"  {call}", "  br label %on"]
    lines += [
        "on:",
        "  %next = add i64 %i, 1",
        "  %more = icmp slt i64 %next, %count",
        "  br i1 %more, label %again, label %done",
        *(["fail:", "  ret i64 1"] if can_fail else []),
        "done:",
        "  ret i64 0",
        "}",
        "",
    ]
    return toolchain.emit("\n".join(lines), target)


@lru_cache(maxsize=4)
def _pool(target: Target) -> bytes:
    head = f'target triple = "{target.triple}"\n'
    return toolchain.emit(head + pool.text(target.triple), target)


class Loaded:
    """A candidate that is machine code in this process."""

    def __init__(self, objects: Sequence[bytes], threads: int = 1) -> None:
        self._code = link(objects)
        use_threads(self._code, threads)
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
        self._repeat = kind(self._code.address(REPEAT))

    def run(self, arrays: Sequence[Array], count: int = 1) -> None:
        """Call the kernel on its parameters, a given number of times."""
        self.run_table(table_of(arrays), count)

    def run_table(self, table: Array, count: int) -> None:
        """Call the kernel on the addresses of its parameters."""
        if self._repeat(table.ctypes.data, count):
            message = "The kernel says that an index is outside the buffer it selects from."
            raise EvaluationError(Diagnostic("index-out-of-bounds", message))


def table_of(arrays: Sequence[Array]) -> Array:
    """The addresses of arrays."""
    return np.array([array.__array_interface__["data"][0] for array in arrays], np.uintp)
