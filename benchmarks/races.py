"""Data races of compiled code on several threads: random programs under ThreadSanitizer.

    python benchmarks/races.py [--programs 200] [--seed 0] [--threads 4] [--batch 20]
    python benchmarks/races.py --only 17 --seed 0                    one program again

Programs are random kernels with random schedules (`plica fuzz kernel`) and random stages by the
default forms and templates (`plica fuzz form`), those with a parallel loop.  Their optimised LLVM
text is instrumented (`tests.codegen.llvm.thread_sanitizer`), linked with the library of gcc, and
run twice: by the pool of compiled code, and by threads that are started for each loop and take
iterations in turn, which no claim of a chunk orders.  Results are compared with the interpreter.
A report that is gone once choices read one side alone is named, and is no race of LLVM's.

It needs Linux, gcc and libtsan; where they are missing it says so, and the exit code is 2.  It is 1
where a race is reported or a result is wrong.
"""

from __future__ import annotations

import argparse
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from attrs import evolve, frozen

from plica.analysis.statement import reads_memory
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.fold import fold
from plica.codegen.llvm.pool import has_pool
from plica.codegen.lower.passes import lower
from plica.codegen.lower.processor import machine_of
from plica.codegen.memory_plan import workspace_plan
from plica.codegen.native import program_of, shape_of
from plica.codegen.subject import ReadySubject, differs, ready, subject
from plica.core.binding import free_vars
from plica.core.fold import map_bottom_up, post_order
from plica.core.term import Term
from plica.ir.interpret.value import Array
from plica.ir.loop.scalar import Select
from plica.ir.loop.stages import evaluate_stages, kernel_of
from plica.ir.loop.statement import Branch, For, Kernel, Stmt, Store, statements
from plica.rewrite.fuzz.driver import one_case
from plica.runtime.error import EvaluationError, PlicaError
from plica.runtime.link import MAKE, USE
from plica.schedule.default import Machine, formed
from plica.schedule.default.choose import by_template, recorded
from plica.schedule.generate.stages import KINDS, StagesCase
from plica.schedule.hoist import constants, hoist
from plica.schedule.problem import ScheduleRefused
from tests.codegen.llvm.thread_sanitizer import instrumented

REPORT: Final = "WARNING: ThreadSanitizer"
REPORTED: Final = 66
"""The exit code of a program of which ThreadSanitizer has reported something."""

RUN_SECONDS: Final = 120

HARNESS: Final = r"""
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
void __tsan_read_range(void *, unsigned long);
void __tsan_write_range(void *, unsigned long);
void plica_tsan_lanes(char *at, int64_t size, uint64_t mask, int64_t writes) {
  for (; mask; mask >>= 1, at += size)
    if (mask & 1) (writes ? __tsan_write_range : __tsan_read_range)(at, size);
}
int64_t plica_main(void **table);
#ifdef JOINED
typedef void (*body_t)(void *, int64_t, int64_t);
typedef struct { body_t body; void *env; int64_t first, count; } part_t;
static void *part(void *of) {
  part_t *p = of;
  for (int64_t i = p->first; i < p->count; i += THREADS) p->body(p->env, i, i + 1);
  return 0;
}
void plica_parallel(body_t body, void *env, int64_t count) {
  pthread_t threads[THREADS];
  part_t parts[THREADS];
  for (int64_t t = 0; t < THREADS; ++t) {
    parts[t] = (part_t){body, env, t, count};
    if (pthread_create(&threads[t], 0, part, &parts[t])) abort();
  }
  for (int64_t t = 0; t < THREADS; ++t) pthread_join(threads[t], 0);
}
#else
void *MAKE(int64_t threads);
void USE(void *pool);
#endif
int main(int argc, char **argv) {
  FILE *in = fopen(argv[1], "rb");
  int64_t count, head[2];
  if (!in || fread(&count, 8, 1, in) != 1) return 3;
  void **table = calloc(count + 1, 8);
  int64_t *sizes = calloc(count, 16);
  for (int64_t i = 0; i < count; ++i) {
    if (fread(head, 8, 2, in) != 2) return 3;
    sizes[2 * i] = head[0], sizes[2 * i + 1] = head[1];
    table[i] = aligned_alloc(64, (head[0] + 128) / 64 * 64);
    if (head[1] && fread(table[i], 1, head[0], in) != (size_t)head[0]) return 3;
    for (int64_t b = 0; !head[1] && b < head[0]; ++b) ((char *)table[i])[b] = 0;
  }
  int64_t work;
  if (fread(&work, 8, 1, in) != 1) return 3;
  table[count] = aligned_alloc(64, (work + 128) / 64 * 64);
#ifndef JOINED
  USE(MAKE(THREADS));
#endif
  int64_t failed = 0;
  for (int times = 0; times < 3; ++times) failed |= plica_main(table);
  FILE *out = fopen(argv[2], "wb");
  for (int64_t i = 0; i < count; ++i)
    if (!sizes[2 * i + 1]) fwrite(table[i], 1, sizes[2 * i], out);
  fclose(out);
  return failed ? 4 : 0;
}
"""


@frozen(eq=False)
class RaceCase:
    """A lowered kernel with a parallel loop, what it reads, what it must write, and how near."""

    number: int
    kind: str
    kernel: Kernel
    arrays: tuple[Array, ...]
    expected: tuple[Array, ...]
    margins: tuple[Array, ...]


def missing() -> str:
    """What is not on this machine that ThreadSanitizer needs, or nothing."""
    if not has_pool(toolchain.host().triple):
        return f"Compiled code has no threads on {toolchain.host().triple}."
    if shutil.which("gcc") is None:
        return "There is no gcc."
    found = subprocess.run(
        ["gcc", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    return "" if Path(found).is_absolute() else "gcc has no libtsan (of Debian's package libtsan2)."


def is_parallel(kernel: Kernel) -> bool:
    return any(
        isinstance(each, For) and each.kind == "parallel" for each in statements(kernel.body)
    )


def drawn(seed: int, number: int) -> RaceCase | None:
    """The program of a number: of even ones a kernel by random steps, of odd ones stages by their
    default schedule; None where that has no parallel loop, or there is none."""
    if number % 2:
        return _of_stages(seed, number)
    if (of := subject(seed, number)) is None or not isinstance(made := ready(of), ReadySubject):
        return None
    if not is_parallel(made.code):
        return None
    return RaceCase(number, "steps", made.code, of.arrays, made.expected, made.margins)


class _Never(Exception):
    """Nothing is made smaller here."""


def _of_stages(seed: int, number: int) -> RaceCase | None:
    names = sorted(KINDS)
    kind = names[number // 2 % len(names)]
    found: list[StagesCase] = []
    one_case(lambda case, first: found.append(case), KINDS[kind](), seed, number, _Never)
    # To call other cores takes no time there: whatever can be shared is.
    machine = machine_of(toolchain.host())
    machine = evolve(machine, cores=4, rates=replace(machine.rates, region=0))
    return scheduled(found[0], machine, number, kind) if found else None


def scheduled(of: StagesCase, machine: Machine, number: int, kind: str) -> RaceCase | None:
    """Stages by the form and the template of a machine."""
    if (form := formed(of.stages, of.facts, machine)) is None:
        return None
    apart = hoist(form.stages, of.facts.constant)
    before = constants(apart, {n: of.arrays[n] for n, told in enumerate(of.facts.constant) if told})
    arrays = tuple([
        np.reshape(of.arrays[n] if isinstance(n, int) else before[n], shape_of(buffer))
        for n, buffer in zip(apart.reads, apart.rest.inputs, strict=True)
    ])  # fmt: skip
    kernel = kernel_of(apart.rest)
    try:
        found = by_template(kernel, machine)
        kernel = lower(kernel if found is None else recorded(found[1], kernel)[1])
        with np.errstate(all="ignore"):
            expected = np.asarray(evaluate_stages(of.stages, of.arrays))
    except (PlicaError, ScheduleRefused, EvaluationError):
        return None
    if not is_parallel(kernel) or len(kernel.params) != kernel.inputs + 1:
        return None
    whole = expected.reshape(shape_of(kernel.params[-1]))
    near = np.abs(np.nan_to_num(whole.astype(np.float64), posinf=0.0, neginf=0.0))
    margin = (near + near.max(initial=1.0)) * max(of.near, 1e-5)
    return RaceCase(number, kind, kernel, arrays, (whole,), (margin,))


@frozen(eq=False)
class BuiltProgram:
    """Kernels as one program for ThreadSanitizer: a file to run, and what that reads."""

    cases: tuple[RaceCase, ...]
    file: Path
    given: Path


def built(cases: Sequence[RaceCase], folder: Path, threads: int, *, joined: bool) -> BuiltProgram:
    """Compiles kernels one after another as one program."""
    program = program_of(*[each.kernel for each in cases])
    plan, host = workspace_plan(program), toolchain.host()
    text = instrumented(toolchain.optimised(fold(program, plan, host), host), joined=joined)
    word = "joined" if joined else "pool"
    (folder / "harness.c").write_text(HARNESS)
    (folder / f"{word}.o").write_bytes(toolchain.emit(text, host, 0))
    flags = ["-DJOINED"] if joined else [f"-DMAKE={MAKE}", f"-DUSE={USE}"]
    subprocess.run(
        ["gcc", "-O1", "-g", "-fsanitize=thread", f"-DTHREADS={threads}", *flags, "-o", word,
         "harness.c", f"{word}.o", "-lpthread", "-lm"],
        cwd=folder, check=True,
    )  # fmt: skip
    given = iter([np.ascontiguousarray(each) for case in cases for each in case.arrays])
    inputs = [(slot, next(given)) for slot in program.space("input")]
    parts = [struct.pack("<q", len(program.slots))]
    parts += [struct.pack("<2q", array.nbytes, 1) + array.tobytes() for _, array in inputs]
    parts += [struct.pack("<2q", _bytes(slot.fixed, slot.dtype.bytes), 0)
              for slot in program.space("output")]  # fmt: skip
    (folder / "given.bin").write_bytes(b"".join([*parts, struct.pack("<q", plan.size)]))
    return BuiltProgram(tuple(cases), folder / word, folder / "given.bin")


def _bytes(shape: Sequence[int], size: int) -> int:
    return int(np.prod(shape, dtype=np.int64)) * size


def ran(of: BuiltProgram) -> str:
    """What is wrong with a program: a report of ThreadSanitizer, a result; or nothing."""
    written = of.file.with_suffix(".out")
    # Addresses are not random: the library has places of its own in memory.
    fixed = ["setarch", "-R"] if shutil.which("setarch") else []
    options = f"exitcode={REPORTED} halt_on_error=0 history_size=4"
    try:
        done = subprocess.run(
            [*fixed, str(of.file), str(of.given), str(written)], capture_output=True, text=True,
            timeout=RUN_SECONDS, env={"TSAN_OPTIONS": options}, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"It takes more than {RUN_SECONDS} seconds."
    if REPORT in done.stderr:
        return done.stderr
    if done.returncode:
        return f"It ends with the code {done.returncode}. {done.stderr}"
    data = written.read_bytes()
    for case in of.cases:
        results = []
        for buffer in case.kernel.params[case.kernel.inputs :]:
            size = _bytes(shape_of(buffer), buffer.dtype.bytes)
            results.append(np.frombuffer(data[:size], buffer.dtype.numpy).reshape(shape_of(buffer)))
            data = data[size:]
        if wrong := differs(case.kernel, tuple(results), case.expected, case.margins):
            return f"Program {case.number} ({case.kind}) is wrong: {wrong}"
    return ""


def with_term(store: Store, old: Term, new: Term) -> Store:
    """The store with one term of it for another."""
    changed = map_bottom_up(lambda term: new if term is old else term, store)
    assert isinstance(changed, Store)
    return changed


def without_speculation(kernel: Kernel) -> Kernel:
    """The kernel with a branch around each store of a choice, so that one side of it is read.

    # Note [Speculative reads]
    A choice reads both sides and drops one.  If another thread writes what is dropped at that time,
    the load gives undef by LLVM's memory model and the select drops it: the program is defined.
    ThreadSanitizer judges by the memory model of C, where that is a race.
    """

    def branched(store: Store) -> Stmt:
        for choice in post_order(store.value):
            if not isinstance(choice, Select) or not free_vars(choice) <= free_vars(store):
                continue
            if reads_memory(choice.then) or reads_memory(choice.orelse):
                then = with_term(store, choice, choice.then)
                orelse = with_term(store, choice, choice.orelse)
                return Branch(choice.condition, branched(then), branched(orelse))
        return store

    changed = map_bottom_up(
        lambda node: branched(node) if isinstance(node, Store) else node, kernel
    )
    assert isinstance(changed, Kernel)
    return changed


def judged(cases: Sequence[RaceCase], threads: int) -> Iterator[tuple[RaceCase, str]]:
    """Those of some programs that are wrong, each found by itself, and how."""
    wrong: dict[RaceCase, str] = {}

    def report(case: RaceCase, *, joined: bool) -> str:
        with tempfile.TemporaryDirectory() as folder:
            return ran(built([case], Path(folder), threads, joined=joined))

    for joined in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            if not ran(built(cases, Path(folder), threads, joined=joined)):
                continue
        for case in cases:
            if said := report(case, joined=joined):
                strict = evolve(case, kernel=without_speculation(case.kernel))
                if REPORT in said and not report(strict, joined=joined):
                    print(f"speculative reads alone: --only {case.number} ({case.kind})")
                else:
                    wrong[case] = said
    yield from wrong.items()


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--only", type=int, metavar="NUMBER")
    return parser


def main() -> int:
    given = options().parse_args()
    if lacks := missing():
        print(f"ThreadSanitizer cannot run here: {lacks}")
        return 2
    begin, count, wrong = time.monotonic(), 0, 0
    kinds: Counter[str] = Counter()
    waiting: list[RaceCase] = []
    number = 0 if given.only is None else given.only
    wanted = given.programs if given.only is None else 1
    while count + len(waiting) < wanted:
        if (case := drawn(given.seed, number)) is not None:
            waiting.append(case)
        elif given.only is not None:
            print(f"Number {number} of seed {given.seed} has no parallel loop.")
            return 2
        number += 1
        if len(waiting) == given.batch or count + len(waiting) == wanted:
            for found, said in judged(waiting, given.threads):
                wrong += 1
                print(f"WRONG: --only {found.number} --seed {given.seed} ({found.kind})\n{said}")
            count += len(waiting)
            kinds.update(each.kind for each in waiting)
            waiting = []
            print(
                f"{count} of {wanted}, {number} drawn, {time.monotonic() - begin:.0f} s", flush=True
            )
    print(f"{count} programs on {given.threads} threads: {dict(sorted(kinds.items()))}")
    print(f"{wrong} are wrong" if wrong else "no race is reported")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
