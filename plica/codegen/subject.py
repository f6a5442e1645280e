"""Subjects of fuzzing: a kernel, a trace and data, and whether native code does what they mean.

>>> drawn = subject(seed=0, number=1)
>>> drawn.kernel.dims, len(drawn.trace) > 0
((), True)
>>> judge(drawn)
Passed()
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Final, Literal, TypeAlias

import numpy as np
from attrs import frozen

from plica.analysis.race import races
from plica.codegen.lower.passes import LOWERING
from plica.codegen.native import Entry, NativeKernel, llvm_entry, run_together
from plica.core import CompilerBug, Term, map_bottom_up
from plica.ir.interpret.kernel import run_kernel
from plica.ir.interpret.value import Array
from plica.ir.loop.scalar import Add, Sub, dtype_of
from plica.ir.loop.specialise import specialise
from plica.ir.loop.statement import THREADS, Alloc, For, Invoke, Kernel, Stmt, While, statements
from plica.ir.loop.verify import well_formed
from plica.ir.passes import Pass
from plica.rewrite.fuzz.judge import CRASHES, crash
from plica.runtime.error import EvaluationError, PlicaError
from plica.runtime.guard import SIDES, Side
from plica.runtime.process import Died, apart, can_part
from plica.schedule.generate.kernel import random_case
from plica.schedule.generate.step import walk
from plica.schedule.problem import Problem
from plica.schedule.replay import begin, taken
from plica.schedule.smaller import ScheduledCase
from plica.schedule.trace import Trace
from plica.schedule.unlowered import run_unlowered

FOCUS: Final = ("split", "vectorize", "unroll", "parallel", "fuse", "reorder")
"""Steps that matter most to code for processors."""

UNITS: Final = 1024
"""How many units of the last place of all magnitudes together a sum in another order may differ
by: a kernel adds up a few hundred numbers, and three stages follow one another at most."""

THREADS_USED: Final = 2

Passes: TypeAlias = Sequence[Pass]  # passes over kernels, in order

CPU: Final[Passes] = tuple(LOWERING["cpu"])


@frozen(eq=False)
class FuzzSubject(ScheduledCase):
    """A kernel without symbolic dims, what it reads, a schedule, and whether fma is allowed."""

    fused: bool = False


@frozen
class Passed:
    """Native code gives what the kernel means."""


@frozen
class Elsewhere:
    """Nothing can be said here: why."""

    reason: str


@frozen
class WrongCode:
    """Native code gives something else, does not come to an end, or cannot be made.

    Where a pass cannot go on, or lets iterations meet that run at once, it is named.
    """

    kind: Literal["meaning", "bounds", "crash", "race"]
    reason: str
    broken: str | None = None


Verdict: TypeAlias = Passed | Elsewhere | WrongCode


def subject(seed: int, number: int, length: int = 6) -> FuzzSubject | None:
    """The same numbers, the same subject; None where the kernel drawn is ill formed."""
    random = Random(f"{seed}/{number}")
    case = random_case(random)
    sizes: dict[Term, int] = dict(case.sizes.items())
    kernel = specialise(case.kernel, sizes)
    if well_formed(kernel):  # the sides of an operation may have different dtypes
        return None
    steps, _ = walk(kernel, random, length, FOCUS)
    arrays = case.arrays
    if random.random() < 0.5:
        arrays = tuple([_fractions(array, random) for array in arrays])
    return FuzzSubject(kernel, arrays, Trace(steps), random.random() < 0.5)


def _fractions(of: Array, random: Random) -> Array:
    """Floats whose sums are rounded; integers stay as they are."""
    if of.dtype.kind != "f":
        return of
    parts = np.array([random.random() for _ in range(of.size)], of.dtype).reshape(of.shape)
    return np.asarray(of + parts, of.dtype)


@frozen(eq=False)
class ReadySubject:
    """A subject whose kernel is scheduled and lowered, what it means, and how far results may be
    from that."""

    of: FuzzSubject
    code: Kernel
    expected: tuple[Array, ...]
    margins: tuple[Array, ...]


def ready(of: FuzzSubject, passes: Passes = CPU) -> ReadySubject | Elsewhere | WrongCode:
    """A subject of which code can be made; else a verdict."""
    if (kernel := scheduled(of)) is None:
        return Elsewhere("the schedule is refused")
    try:
        expected = meaning(of.kernel, of.arrays)
    except EvaluationError as error:
        return Elsewhere(f"the kernel has no value: {error.code}")
    code = kernel
    for pass_ in passes:
        try:
            code = pass_.run(code)
        except PlicaError as error:  # the trace asks for what no pass can make
            return Elsewhere(f"lowering refuses it: {error.code}")
        except CRASHES as error:
            return WrongCode("crash", f"it fails: {crash(error)}", pass_.name)
        for race in races(code):
            return WrongCode("race", str(race), pass_.name)
    if not all(is_for_cpu(stmt) for stmt in statements(code.body)):
        return Elsewhere("it is for another kind of machine")
    return ReadySubject(of, code, expected, margins(of, expected))


def judge(
    of: FuzzSubject,
    passes: Passes = CPU,
    *,
    guard: bool = False,
    isolated: bool = True,
    entry: Entry = llvm_entry,
) -> Verdict:
    """Whether native code of the scheduled kernel computes what the kernel means.

    With `guard` it runs twice, its arrays at one side and then at the other next to memory that is
    not there.  Code is made and run in a process of its own if `isolated`.
    """
    found = ready(of, passes)
    if not isinstance(found, ReadySubject):
        return found
    return judge_ready(found, guard=guard, isolated=isolated, entry=entry)


def judge_ready(of: ReadySubject, *, guard: bool, isolated: bool, entry: Entry) -> Verdict:
    """The verdict on code of a subject that is ready."""
    sides: Sequence[Side | None] = SIDES if guard else (None,)

    def work() -> bytes:
        wrong_code = compared(of, sides, entry)
        return b"" if wrong_code is None else f"{wrong_code.kind}:{wrong_code.reason}".encode()

    if not isolated or not can_part():
        return compared(of, sides, entry) or Passed()
    if isinstance(said := apart(work), Died):
        last = str(said).strip().splitlines()[-1:] or ["it says nothing"]
        return WrongCode("bounds" if said.how in ("SIGSEGV", "SIGBUS") else "crash", last[0])
    kind, _, reason = said.decode().partition(":")
    return Passed() if not kind else WrongCode("bounds" if kind == "bounds" else "meaning", reason)


def judge_together(of: Sequence[ReadySubject], entry: Entry) -> list[Verdict]:
    """The verdict on each subject, whose code is one program as far as that is right: who makes
    and starts a program for each waits for linkers and emulators.  Where a program is not right
    each kernel has one of its own, so that what is told of it is its own doing."""
    found: dict[int, Verdict] = {}
    for fused in (False, True):
        numbers = [at for at, each in enumerate(of) if each.of.fused == fused]
        group = [of[at] for at in numbers]
        if len(group) > 1 and _right_together(group, fused, entry):
            found |= dict.fromkeys(numbers, Passed())
    return [
        found.get(at) or judge_ready(each, guard=False, isolated=False, entry=entry)
        for at, each in enumerate(of)
    ]


def _right_together(of: Sequence[ReadySubject], fused: bool, entry: Entry) -> bool:
    try:
        results = run_together(
            [each.code for each in of], [each.of.arrays for each in of], fused=fused, entry=entry
        )
    except (PlicaError, CompilerBug):
        return False
    return all(
        differs(each.code, arrays, each.expected, each.margins) is None
        for each, arrays in zip(of, results, strict=True)
    )


def compared(
    of: ReadySubject, sides: Sequence[Side | None], entry: Entry = llvm_entry
) -> WrongCode | None:
    """What is wrong with native code, which runs in this process."""
    kernel = NativeKernel(of.code, of.of.fused, THREADS_USED, entry)
    for side in sides:
        where = "" if side is None else f" (the {side} of each array is guarded)"
        try:
            results = kernel(of.of.arrays, side)
        except EvaluationError as error:
            return WrongCode("bounds", f"{error.diagnostics[0].message}{where}")
        except CompilerBug as error:
            return WrongCode("bounds", f"{error}{where}")
        if (wrong := differs(of.code, results, of.expected, of.margins)) is not None:
            return WrongCode("meaning", f"{wrong}{where}")
    return None


def differs(
    code: Kernel, results: Sequence[Array], expected: Sequence[Array], margins: Sequence[Array]
) -> str | None:
    """Where what a kernel wrote is further from what was meant than it may be."""
    writes = code.params[code.inputs :]
    for param, array, meant, margin in zip(writes, results, expected, margins, strict=True):
        with np.errstate(invalid="ignore"):
            far = ~((array == meant) | (abs(array - meant) <= margin))
        far &= ~(np.isnan(array) & np.isnan(meant))
        if far.any():
            at = tuple(int(each) for each in np.argwhere(far)[0])
            return f"{param.name}{list(at)} is {array[at].item()} instead of {meant[at].item()}"
    return None


def guilty_pass(of: FuzzSubject, passes: Passes = CPU) -> tuple[str, str] | None:
    """The first pass after which the interpreter gives something else, and what; None where the
    kernel means the same after all of them, so that whoever makes its code is to blame."""
    kernel = scheduled(of)
    assert kernel is not None  # it was lowered
    expected = meaning(of.kernel, of.arrays)
    room = margins(of, expected)
    for pass_ in passes:
        kernel = pass_.run(kernel)
        try:
            wrong = differs(kernel, run_unlowered(kernel, of.arrays), expected, room)
        except EvaluationError as error:
            wrong = error.diagnostics[0].message
        if wrong is not None:
            return pass_.name, wrong
    return None


def margins(of: FuzzSubject, expected: Sequence[Array]) -> tuple[Array, ...]:
    """By how much each result may differ: nothing, unless fractions are added up."""
    if all(array.dtype.kind != "f" or bool((array == np.rint(array)).all()) for array in of.arrays):
        return tuple([np.zeros_like(array) for array in expected])
    sizes = tuple([abs(array) if array.dtype.kind == "f" else array for array in of.arrays])
    greatest = meaning(without_differences(of.kernel), sizes)
    return tuple(
        [
            array * (UNITS * np.finfo(array.dtype).eps) if array.dtype.kind == "f" else array * 0
            for array in map(abs, greatest)
        ]
    )


@lru_cache(maxsize=64)
def without_differences(kernel: Kernel) -> Kernel:
    """The kernel with sums of floats for differences: what it gives bounds what is added up."""

    def added(node: Term) -> Term:
        if isinstance(node, Sub) and dtype_of(node).is_float:
            return Add(node.left, node.right)
        return node

    return map_bottom_up(added, kernel)


def meaning(kernel: Kernel, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """What a kernel writes, by its interpreter."""
    return run_kernel(kernel, arrays)


def scheduled(of: FuzzSubject) -> Kernel | None:
    """The kernel after its trace; None where a step is refused."""
    state = begin(of.kernel)
    for step in of.trace.steps:
        if isinstance(after := taken(state, step), Problem):
            return None
        state = after
    return state.kernel


def is_for_cpu(stmt: Stmt) -> bool:
    """Whether a statement has a place on this machine."""
    if isinstance(stmt, For):
        return stmt.kind not in (*THREADS, "virtual")
    if isinstance(stmt, Alloc):
        return stmt.buffer.scope in ("global", "local")
    return not isinstance(stmt, While | Invoke)
