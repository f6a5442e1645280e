"""Shares: which part of what this machine can do default schedules reach, on one core.

    python benchmarks/shares.py [--seed S] [--n N] [--rounds R] [names …]

    gemm         multiply-adds beside those that wait for nothing; both sides are inputs, so that
                 packing counts; 512, 1024 and 2048, and sizes that are drawn
    depthwise    beside the slower of its multiply-adds at the peak and a copy of as many bytes
    move         transposes, concats and elementwise chains beside a copy of as many bytes

The peak and copies are the probes of `plica doctor --measure`, timed in turns with each case, by
processor time; the least of all rounds counts.  Of copies the faster one is the roof: numpy's,
which may use instructions that copy and do nothing else, or a loop of vectors.  What that loop
reaches of the roof is told beside each move; beside an elementwise chain, what a loop of its very
instructions does, with nothing around it.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from random import Random
from time import thread_time_ns
from typing import Any, Final

import numpy as np
from attrs import evolve, frozen

import plica
from plica.codegen.llvm import probe, toolchain
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.type.term import tensor
from plica.runtime.artefact import aligned_array
from plica.runtime.link import link

Array = np.ndarray[Any, Any]

FAMILIES: Final = ("gemm", "depthwise", "move")
FLOORS: Final = {"gemm": 0.85, "depthwise": 0.75, "move": 0.85}
_TURNS: Final = 200_000
"""Turns of a probe: long beside what it takes to call it."""
_WARM: Final = 2_000
"""Turns before it: what ran last left nothing of it in caches."""
_MOVED: Final = 1 << 23
"""Bytes that are copied at once, at least, for the same reason."""
_PROBE: Final = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
)


@frozen
class ShareCase:
    """A module, its inputs, and the multiply-adds and bytes that it needs at least."""

    family: str
    name: str
    module: Module
    inputs: tuple[Array, ...]
    products: int
    bytes: int
    chain: bool = False


def _case(  # noqa: PLR0917  # as the record
    family: str, name: str, body: Expr, params: Sequence[Var], shapes: Sequence[tuple[int, ...]],
    products: int, moved: int,
) -> ShareCase:  # fmt: skip
    main = Var(Name("main"), None)
    random = np.random.default_rng(1)
    given = tuple([random.standard_normal(each).astype(np.float32) for each in shapes])
    whole = module({main: Function((), (), tuple(params), None, body)}, main)
    return ShareCase(family, name, whole, given, products, 4 * moved)


def _var(name: str, shape: tuple[int, ...]) -> Var:
    return Var(Name(name), tensor(shape, "f32"))


def gemms(random: Random, count: int) -> Iterator[ShareCase]:
    """Square products, then drawn ones."""
    sizes = [(n, n, n) for n in (512, 1024, 2048)]
    drawn = random.randint
    sizes += [(drawn(300, 1400), drawn(300, 1400), drawn(300, 1400)) for _ in range(count)]
    for m, k, n in sizes:
        x, w = _var("x", (m, k)), _var("w", (k, n))
        yield _case(
            "gemm", f"{m} x {k} x {n}", Apply("matmul", (x, w)), (x, w), ((m, k), (k, n)),
            m * k * n, m * k + k * n + m * n,
        )  # fmt: skip


def depthwise(random: Random, count: int) -> Iterator[ShareCase]:
    """Depthwise convolutions as they are drawn."""
    for _ in range(count):
        c, side = random.randint(16, 512), random.randint(7, 112)
        window, stride = random.choice((3, 3, 5, 7)), random.choice((1, 1, 2))
        out = (side - 1) // stride + 1
        x = _var("x", (1, c, side, side))
        weight = const(np.ones((c, 1, window, window), np.float32))
        attrs = (("dilation", 1), ("groups", c), ("padding", window // 2), ("strides", stride))
        yield _case(
            "depthwise", f"{c} x {side}^2, window {window}, stride {stride}",
            Apply("nn.conv", (x, weight), attrs), (x,), ((1, c, side, side),),
            c * out * out * window * window, c * (side * side + out * out),
        )  # fmt: skip


def moves(random: Random, count: int) -> Iterator[ShareCase]:
    """Transposes, concats and elementwise chains of drawn sizes."""
    for _ in range(count):
        kind = random.choice(("transpose", "transpose-inner", "concat", "elementwise"))
        a, b, c = random.randint(8, 400), random.randint(8, 400), random.randint(1, 40)
        shape = (c, a, b)
        x, y = _var("x", shape), _var("y", shape)
        size, name = a * b * c, f"{kind} {c} x {a} x {b}"
        if kind == "transpose":
            body: Expr = Apply("transpose", (x,), (("axes", (0, 2, 1)),))
            yield _case("move", name, body, (x,), (shape,), 0, 2 * size)
        elif kind == "transpose-inner":
            body = Apply("transpose", (x,), (("axes", (1, 0, 2)),))
            yield _case("move", name, body, (x,), (shape,), 0, 2 * size)
        elif kind == "concat":
            body = Apply("concat", (x, y), (("axis", random.choice((0, 1, 2))),))
            yield _case("move", name, body, (x, y), (shape, shape), 0, 4 * size)
        else:
            body = Apply("nn.relu", (x * 2.0 + 1.0,))
            yield evolve(_case("move", name, body, (x,), (shape,), 0, 2 * size), chain=True)


def chain_text(bits: int, arm: bool) -> str:
    """A loop that multiplies by two, adds one and takes what is above zero, four vectors at a time;
    as the probes are called."""
    kind, greater = f"<{bits // 32} x float>", f"@llvm.maximum.v{bits // 32}f32"
    lines = []
    for number in range(4):
        size = number * bits // 8
        above = f"fcmp ogt {kind} %b{number}, zeroinitializer"
        taken = f"select <{bits // 32} x i1> %m{number}, {kind} %b{number}, {kind} zeroinitializer"
        if arm:
            above = "add i64 0, 0"
            taken = f"call {kind} {greater}({kind} %b{number}, {kind} zeroinitializer)"
        lines += [
            f"  %o{number} = add i64 %at, {size}",
            f"  %p{number} = getelementptr i8, ptr %from, i64 %o{number}",
            f"  %q{number} = getelementptr i8, ptr %to, i64 %o{number}",
            f"  %v{number} = load {kind}, ptr %p{number}, align 4",
            f"  %a{number} = fmul {kind} %v{number}, splat (float 2.0)",
            f"  %b{number} = fadd {kind} %a{number}, splat (float 1.0)",
            f"  %m{number} = {above}",
            f"  %y{number} = {taken}",
            f"  store {kind} %y{number}, ptr %q{number}, align 4",
        ]
    body = "\n".join(lines)
    return f"""
define i64 @steps_{bits}(i64 %turns, ptr noalias %to, ptr noalias %from, i64 %bytes) {{
entry:
  br label %again
again:
  %i = phi i64 [ 0, %entry ], [ %next, %done ]
  br label %inner
inner:
  %at = phi i64 [ 0, %again ], [ %then, %inner ]
{body}
  %then = add i64 %at, {bits // 2}
  %more = icmp ult i64 %then, %bytes
  br i1 %more, label %inner, label %done
done:
  %next = add i64 %i, 1
  %ends = icmp eq i64 %next, %turns
  br i1 %ends, label %end, label %again
end:
  ret i64 %turns
}}
declare {kind} {greater}({kind}, {kind})
"""


DRAWN: Final[dict[str, Callable[[Random, int], Iterator[ShareCase]]]] = {
    "gemm": gemms, "depthwise": depthwise, "move": moves,
}  # fmt: skip


class Roofs:
    """The probes of this machine."""

    def __init__(self) -> None:
        host = toolchain.host()
        self.bits = host.vector_bits
        chain = chain_text(self.bits, host.triple.startswith("aarch64"))
        self.code = link((toolchain.emit(probe.text(host, self.bits) + chain, host),))
        self.fma = _PROBE(self.code.address(f"fma_{self.bits}"))
        self.copy = _PROBE(self.code.address(f"copy_{self.bits}"))
        self.chain = _PROBE(self.code.address(f"steps_{self.bits}"))
        self.room = aligned_array(1 << 13)
        self.best = float("inf")

    def peak(self) -> float:
        """Nanoseconds of a multiply-add of one lane."""
        self.fma(_WARM, self.room.ctypes.data, self.room.ctypes.data, 1)
        start = thread_time_ns()
        self.fma(_TURNS, self.room.ctypes.data, self.room.ctypes.data, 1)
        taken = (thread_time_ns() - start) / (_TURNS * probe.WORK * self.bits // 32)
        self.best = min(self.best, taken)  # of all cases: it is the machine's, not a case's
        return self.best

    def sides(self, moved: int) -> tuple[Array, Array]:
        """Where a copy that moves a given number of bytes in all goes to, and where it comes
        from."""
        step = self.bits // 2
        size = max(step, moved // 2 // step * step)
        to, given = aligned_array(size), aligned_array(size)
        to[:], given[:] = 1, 2
        return to, given

    def looped(self, loop: Callable[[int, int, int, int], int], to: Array, given: Array) -> float:
        """Nanoseconds of a byte that is read or written by a loop of vectors."""
        turns = max(1, _MOVED // to.size)
        loop(1, to.ctypes.data, given.ctypes.data, to.size)
        start = thread_time_ns()
        loop(turns, to.ctypes.data, given.ctypes.data, to.size)
        return (thread_time_ns() - start) / (2 * to.size * turns)

    def copied(self, to: Array, given: Array) -> float:
        """As much of numpy's copy."""
        turns = max(1, _MOVED // to.size)
        np.copyto(to, given)
        start = thread_time_ns()
        for _ in range(turns):
            np.copyto(to, given)
        return (thread_time_ns() - start) / (2 * to.size * turns)


def share_of(case: ShareCase, roofs: Roofs, rounds: int) -> tuple[float, float, float, float]:
    """The share that is reached, its two bounds in microseconds: products, bytes; and the share
    that a plain loop of vectors reaches."""
    exe = plica.compile(case.module, threads=1, cache=False)
    peak = copied = looped = straight = best = float("inf")
    given = [_laid(each) for each in case.inputs]
    held = [aligned_array(each.nbytes) for each in exe.outputs]  # as those of a copy are
    addresses = [each.ctypes.data for each in (*given, *held)]
    exe.run(addresses)
    calls = 1
    while True:  # calls of a sample: long beside what the clock takes
        start = thread_time_ns()
        for _ in range(calls):
            exe.run(addresses)
        if thread_time_ns() - start > 2_000_000:
            break
        calls *= 2
    empty, sides = overhead(), roofs.sides(case.bytes)
    for _ in range(rounds):
        peak, copied = min(peak, roofs.peak()), min(copied, roofs.copied(*sides))
        looped = min(looped, roofs.looped(roofs.copy, *sides))
        if case.chain:
            straight = min(straight, roofs.looped(roofs.chain, *sides))
        start = thread_time_ns()
        for _ in range(calls):
            exe.run(addresses)
        best = min(best, (thread_time_ns() - start) / calls - empty)
    straight, copied = straight if case.chain else looped, min(copied, looped)
    products, moved = case.products * peak, case.bytes * copied
    return max(products, moved) / best, products / 1e3, moved / 1e3, copied / straight


def _laid(of: Array) -> Array:
    """An array where code expects it."""
    room = aligned_array(of.nbytes)
    room[:] = np.ascontiguousarray(of).view(np.uint8).reshape(-1)
    return room


@lru_cache(maxsize=1)
def overhead() -> float:
    """Nanoseconds of a call that computes one number."""
    x = _var("x", (1,))
    main = Var(Name("main"), None)
    exe = plica.compile(module({main: Function((), (), (x,), None, x + 1.0)}, main), threads=1)
    held = [aligned_array(4) for _ in range(2)]
    addresses = [each.ctypes.data for each in held]
    least = float("inf")
    for _ in range(50):
        start = thread_time_ns()
        for _ in range(100):
            exe.run(addresses)
        least = min(least, (thread_time_ns() - start) / 100)
    return least


def main(arguments: Sequence[str]) -> int:
    """Print the share of every case, and of each family how many reach the floor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=FAMILIES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=9)
    asked = parser.parse_args(arguments)
    roofs = Roofs()
    for family in asked.names:
        reached = []
        for case in DRAWN[family](Random(asked.seed), asked.n):
            share, products, moved, straight = share_of(case, roofs, asked.rounds)
            reached.append(share)
            bound = f"{products:9.1f} us of products, {moved:9.1f} us of bytes"
            if family == "move":
                bound += f"; a loop {straight:6.1%}"
            print(f"{family:10} {case.name:36} {share:6.1%}   {bound}", flush=True)
        floor = FLOORS[family]
        many = sum(each >= floor for each in reached)
        print(f"{family:10} {many} of {len(reached)} reach {floor:.0%}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
