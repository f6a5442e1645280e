"""Probes: small functions that measure a processor's throughput per cycle.

    i64 NAME(i64 turns, ptr to, ptr from, i64 bytes)      whatever was computed

    fma_B        multiply-adds of vectors of B bits that wait for nothing
    chain_B      multiply-adds that wait for one another
    clock_B      32 additions of integers that wait for one another, a cycle each, beside
                 multiply-adds of vectors: what wide vectors do to the clock shows
    load_B       vectors that are read from the nearest cache
    store_B      vectors that are written to it
    copy_B       `bytes` that are copied, `turns` times
    chase        each read says where the next one is

>>> from plica.codegen.target import Target
>>> machine = Target("cpu", "x86_64-unknown-linux-gnu", "haswell", ("+avx", "+avx2", "+fma"))
>>> text(machine, 256).count("call <8 x float> @llvm.fmuladd")
56
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from plica.codegen.target import Target

WIDTHS: Final = (128, 256, 512)  # bits of the vectors that are tried, where a machine has them
SUMS: Final = 12
"""Sums that do not wait for one another: more than two units that take four cycles need."""

WORK: Final = 24  # reads, writes or multiply-adds in a turn
CYCLES: Final = 32  # cycles of a turn of the clock
CHAINED: Final = 8  # multiply-adds of a turn in which each waits for the one before it


def text(target: Target, bits: int) -> str:
    """A module of all probes for vectors of a given number of bits."""
    lanes = bits // 32
    kind = f"<{lanes} x float>"
    fma = f"@llvm.fmuladd.v{lanes}f32"
    parts = [
        f'target triple = "{target.triple}"',
        f"declare {kind} {fma}({kind}, {kind}, {kind})",
        _summing(f"fma_{bits}", lanes, SUMS, WORK),
        _summing(f"chain_{bits}", lanes, 1, CHAINED),
        _summing(f"clock_{bits}", lanes, SUMS, WORK, chained=CYCLES // 2),
        _loading(f"load_{bits}", lanes),
        _storing(f"store_{bits}", lanes),
        _copying(f"copy_{bits}", lanes),
        _chasing(),
    ]
    return "\n".join(parts) + "\n"


def _define(name: str, before: Sequence[str], body: Callable[[], Sequence[str]]) -> str:
    """A function that runs its body a given number of times."""
    return "\n".join([
        f"define i64 @{name}(i64 %turns, ptr %to, ptr %from, i64 %bytes) {{",
        "entry:", *before, "  br label %again", *body(), "}",
    ])  # fmt: skip


def _again(more: Sequence[str]) -> list[str]:
    """The end of a turn."""
    return [
        *more,
        "  %next = add i64 %i, 1",
        "  %ends = icmp eq i64 %next, %turns",
        "  br i1 %ends, label %end, label %again",
        "end:",
    ]


def _summing(name: str, lanes: int, sums: int, count: int, chained: int = 0) -> str:
    """A number of independent multiply-adds, with pairs of chained integer additions."""
    kind, fma = f"<{lanes} x float>", f"@llvm.fmuladd.v{lanes}f32"
    before = [
        "  %given = sitofp i64 %bytes to float",
        f"  %one = insertelement {kind} poison, float %given, i64 0",
        f"  %x = shufflevector {kind} %one, {kind} poison, <{lanes} x i32> zeroinitializer",
        *[f"  %s{n} = fadd {kind} %x, splat (float {float(n + 1)!r})" for n in range(sums)],
    ]
    last = {n: f"%a{n}" for n in range(sums)}
    lines = ["again:", "  %i = phi i64 [ 0, %entry ], [ %next, %again ]"]
    work, word = [], "%word"
    for number in range(count):
        at = number % sums
        work.append(f"  %b{number} = call {kind} {fma}({kind} %x, {kind} %x, {kind} {last[at]})")
        last[at] = f"%b{number}"
    for number in range(chained):  # what neither adding nor xor alone could be joined to
        work.append(f"  %c{number} = add i64 {word}, %bytes")
        work.append(f"  %d{number} = xor i64 %c{number}, %turns")
        word = f"%d{number}"
    lines += [f"  %a{n} = phi {kind} [ %s{n}, %entry ], [ {last[n]}, %again ]" for n in range(sums)]
    lines.append(f"  %word = phi i64 [ 1, %entry ], [ {word}, %again ]")
    whole = last[0]
    ends = []
    for n in range(1, sums):
        ends.append(f"  %t{n} = fadd {kind} {whole}, {last[n]}")
        whole = f"%t{n}"
    ends += [
        f"  %left = bitcast {kind} {whole} to i{32 * lanes}",
        f"  %low = trunc i{32 * lanes} %left to i64",
        f"  %both = add i64 %low, {word}",
        "  ret i64 %both",
    ]
    return _define(name, before, lambda: [*lines, *_again(work), *ends])


def _loading(name: str, lanes: int) -> str:
    """Loads consecutive vectors; xor takes them as memory operands."""
    kind = f"<{lanes} x i32>"
    lines = ["again:", "  %i = phi i64 [ 0, %entry ], [ %next, %again ]"]
    work = []
    last = {n: f"%a{n}" for n in range(SUMS)}
    for number in range(WORK):
        at = number % SUMS
        work += [
            f"  %p{number} = getelementptr i8, ptr %from, i64 {number * 4 * lanes}",
            f"  %v{number} = load volatile {kind}, ptr %p{number}, align {4 * lanes}",
            f"  %b{number} = xor {kind} {last[at]}, %v{number}",
        ]
        last[at] = f"%b{number}"
    lines += [
        f"  %a{n} = phi {kind} [ zeroinitializer, %entry ], [ {last[n]}, %again ]"
        for n in range(SUMS)
    ]
    whole, ends = last[0], []
    for n in range(1, SUMS):
        ends.append(f"  %t{n} = xor {kind} {whole}, {last[n]}")
        whole = f"%t{n}"
    ends += [
        f"  %left = bitcast {kind} {whole} to i{32 * lanes}",
        f"  %low = trunc i{32 * lanes} %left to i64",
        "  ret i64 %low",
    ]
    return _define(name, (), lambda: [*lines, *_again(work), *ends])


def _storing(name: str, lanes: int) -> str:
    kind = f"<{lanes} x i32>"
    work = []
    for number in range(WORK):
        work += [
            f"  %p{number} = getelementptr i8, ptr %to, i64 {number * 4 * lanes}",
            f"  store volatile {kind} zeroinitializer, ptr %p{number}, align {4 * lanes}",
        ]
    lines = ["again:", "  %i = phi i64 [ 0, %entry ], [ %next, %again ]"]
    return _define(name, (), lambda: [*lines, *_again(work), "  ret i64 %turns"])


def _copying(name: str, lanes: int) -> str:
    """Four vectors at a time, again and again."""
    kind, size = f"<{lanes} x i32>", 4 * lanes
    lines = [
        "again:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %done ]",
        "  br label %inner",
        "inner:",
        "  %at = phi i64 [ 0, %again ], [ %then, %inner ]",
    ]
    for number in range(4):
        lines += [
            f"  %o{number} = add i64 %at, {number * size}",
            f"  %p{number} = getelementptr i8, ptr %from, i64 %o{number}",
            f"  %q{number} = getelementptr i8, ptr %to, i64 %o{number}",
            f"  %v{number} = load {kind}, ptr %p{number}, align {size}",
            f"  store {kind} %v{number}, ptr %q{number}, align {size}",
        ]
    lines += [
        f"  %then = add i64 %at, {4 * size}",
        "  %more = icmp ult i64 %then, %bytes",
        "  br i1 %more, label %inner, label %done",
        "done:",
    ]
    return _define(name, (), lambda: [*lines, *_again(()), "  ret i64 %turns"])


def _chasing() -> str:
    lines = [
        "again:",
        "  %i = phi i64 [ 0, %entry ], [ %next, %again ]",
        "  %at = phi ptr [ %from, %entry ], [ %there, %again ]",
    ]
    work = ["  %there = load ptr, ptr %at, align 8"]
    ends = ["  %last = ptrtoint ptr %there to i64", "  ret i64 %last"]
    return _define("chase", (), lambda: [*lines, *_again(work), *ends])
