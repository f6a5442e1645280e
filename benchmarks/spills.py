"""Spills: vectors that the innermost loops keep on the stack, on several kinds of machines.

    python benchmarks/spills.py [--seed S] [--n N] [--targets T …] [--show]

Contractions, convolutions, depthwise ones, softmax and norms are drawn, compiled for each target
(`cpu:x86-64-v3`, `cpu:neoverse-n1`, …; none need be this machine), and their assembly is looked at:
what an innermost loop with arithmetic of vectors reads from the stack or writes there was no longer
in a register.  A value that is read from the stack in each turn costs a read beside the others of
the loop; one that is written, too, is a sum that did not fit: the tile is too large.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from random import Random
from typing import Final

from attrs import frozen

from plica.codegen.backend import find_target
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.fold import fold
from plica.codegen.target import Target
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.type.term import tensor
from plica.pipeline import lower

TARGETS: Final = ("cpu", "cpu:x86-64-v3", "cpu:neoverse-n1")

_NAME: Final = re.compile(r"^[^.\s#][^\s]*:")
_LABEL: Final = re.compile(r"^(\.LBB\w+):")
_JUMP: Final = re.compile(r"^\s+(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)\s.*?(\.LBB\w+)\s*$")
_END: Final = re.compile(r"^\s+(?:ret\w*|jmp\w*|b|br|ud2|brk)(?:\s|$)")
_DIRECTIVE: Final = re.compile(r"^\s+[.#@/]")
_VECTOR: Final = re.compile(r"%[xyz]mm\d+|\b[qv]\d+\b")
_SCALAR: Final = re.compile(r"^\s+v\w+(?:ss|sd)\s|^\s+vmov[dq]\s")
_STACK: Final = re.compile(r"\(%rsp|\[sp\b")
_FRAME: Final = re.compile(r"\(%rsp|\(%rbp|\[sp\b|\[x29\b")
_FRAMED: Final = re.compile(r"^\s+(?:movq\s+%rsp, %rbp|mov\s+x29, sp|add\s+x29, sp)")
_WORK: Final = re.compile(
    r"\s(vf?n?m\w*p[sd]|vadd\w+|vfmadd\w+|fmla|fadd|fmul|vmul\w+|vmax\w+|fmax\w*)\s"
)
_WRITE: Final = re.compile(r"^\s+(?:st[rpu]\w*\s|v?mov\w+\s+%[xyz]mm\d+,\s*[-\d]*\(%r)")


@frozen
class LoopSpills:
    """An innermost loop: its function, how many instructions it has, those with arithmetic of
    vectors, and the vectors it reads from and writes to the stack."""

    function: str
    length: int
    work: int
    reads: int
    writes: int
    lines: tuple[str, ...]


@frozen
class Block:
    """Lines that run one after another, and the blocks that may follow them, by number."""

    function: str
    framed: bool
    lines: tuple[str, ...]
    next: tuple[int, ...]


def blocks(assembly: str) -> list[Block]:
    """The blocks of a text of assembly, in its order; what follows a block is in its function."""
    parts: list[tuple[str, bool, list[str]]] = []
    numbers: dict[str, int] = {}
    function, framed, fresh = "", False, True
    for line in assembly.splitlines():
        label = _LABEL.match(line)
        if _NAME.match(line):
            function, framed, fresh = line.partition(":")[0], False, True
        elif label:
            fresh = True
        elif line.startswith(("\t", " ")) and not _DIRECTIVE.match(line):
            framed = framed or bool(_FRAMED.match(line))
            if fresh:
                parts.append((function, framed, []))
            parts[-1][2].append(line)
            fresh = bool(_JUMP.match(line) or _END.match(line))
        if label:
            numbers[label[1]] = len(parts)

    def follow(at: int) -> tuple[int, ...]:
        last = parts[at][2][-1]
        jump = _JUMP.match(last)
        goes = [numbers[jump[1]]] if jump and jump[1] in numbers else []
        on = not _END.match(last) and at + 1 < len(parts) and parts[at + 1][0] == parts[at][0]
        return tuple(goes + [at + 1] * on)

    return [Block(f, frame, tuple(own), follow(at)) for at, (f, frame, own) in enumerate(parts)]


def loops(of: Sequence[Block]) -> list[frozenset[int]]:
    """The natural loop of each jump back: its head, and all from where the jump is reached
    without passing the head.  Where blocks lie in the text does not matter: what an outer loop does
    may well be written between the blocks of an inner one."""
    before: dict[int, list[int]] = {}
    for at, block in enumerate(of):
        for to in block.next:
            before.setdefault(to, []).append(at)
    found: dict[int, set[int]] = {}
    for at, block in enumerate(of):
        for head in block.next:
            if head > at:
                continue
            body, left = found.setdefault(head, {head}), [at]
            while left:
                each = left.pop()
                if each not in body:
                    body.add(each)
                    left.extend(before.get(each, ()))
    return [frozenset(each) for each in found.values()]


def innermost(assembly: str) -> list[LoopSpills]:
    """The innermost loops of a text of assembly that have arithmetic of vectors."""
    made = blocks(assembly)
    whole = loops(made)
    found = []
    for loop in whole:
        if any(other < loop for other in whole):
            continue
        first = made[min(loop)]
        body = [line for at in sorted(loop) for line in made[at].lines]
        work = sum(bool(_WORK.search(each)) for each in body)
        if work:
            place = _FRAME if first.framed else _STACK  # else it is a register like any
            stack = [
                each
                for each in body
                if place.search(each) and _VECTOR.search(each) and not _SCALAR.match(each)
            ]
            writes = sum(bool(_WRITE.match(each)) for each in stack)
            spilled = len(stack) - writes
            found.append(LoopSpills(first.function, len(body), work, spilled, writes, tuple(body)))
    return found


def assembly_of(of: Module, target: Target) -> str:
    """The machine code of a module for a target that need not be this machine."""
    made = lower(of, target=target)
    return toolchain.assembly(
        fold(made.program, made.plan, target, made.fused, made.signless), target
    )


def _main(params: Sequence[Var], body: Expr) -> Module:
    main = Var(Name("main"), None)
    return module({main: Function((), (), tuple(params), None, body)}, main)


def drawn(random: Random) -> tuple[str, Module]:
    """A name and a module of one operator."""
    import numpy as np

    def size(low: int, high: int) -> int:
        return int(low * float(high / low) ** random.random())

    def var(name: str, *shape: int) -> Var:
        return Var(Name(name), tensor(shape, "f32"))

    def held(*shape: int) -> Expr:
        return const(np.ones(shape, np.float32))

    kind = random.choice(
        (
            "matmul",
            "matmul-packed",
            "batched",
            "conv",
            "conv",
            "depthwise",
            "softmax",
            "norm",
            "pool",
        )
    )
    if kind in ("matmul", "matmul-packed"):
        m, k, n = size(4, 500), size(4, 500), size(4, 500)
        x, w = var("x", m, k), var("w", k, n)
        weight = held(k, n) if kind == "matmul-packed" else w
        return f"{kind} {m}x{k}x{n}", _main(
            (x,) if kind == "matmul-packed" else (x, w), Apply("matmul", (x, weight))
        )
    if kind == "batched":
        b, m, k, n = size(1, 12), size(4, 200), size(4, 100), size(4, 200)
        x, y = var("x", b, m, k), var("y", b, k, n)
        return f"batched {b}x{m}x{k}x{n}", _main((x, y), Apply("matmul", (x, y)))
    if kind == "softmax":
        rows, row = size(2, 200), size(5, 1000)
        x = var("x", rows, row)
        return f"softmax {rows}x{row}", _main((x,), Apply("nn.softmax", (x,), (("axis", -1),)))
    if kind == "norm":
        rows, row = size(2, 200), size(5, 1000)
        x = var("x", rows, row)
        total = Apply("sum", (x,), (("axis", (1,)), ("keepdims", True)))
        return f"norm {rows}x{row}", _main((x,), x / (total + 1.0))
    c, o, side, window = size(3, 200), size(4, 200), size(7, 60), random.choice((1, 3, 3, 5, 7))
    stride = random.choice((1, 1, 2))
    if kind == "pool":
        x = var("x", 1, c, side, side)
        pooled = (
            ("ceil_mode", False),
            ("dilation", 1),
            ("kernel", (3, 3)),
            ("padding", 1),
            ("strides", stride),
        )
        return f"pool {c}x{side} /{stride}", _main((x,), Apply("nn.max_pool", (x,), pooled))
    groups = c if kind == "depthwise" else 1
    o = c if groups > 1 else o
    x = var("x", 1, c, side, side)
    attrs = (("dilation", 1), ("groups", groups), ("padding", window // 2), ("strides", stride))
    weight = held(o, c // groups, window, window)
    name = f"{kind} {c}->{o} {side}x{side} w{window} /{stride}"
    return name, _main((x,), Apply("nn.relu", (Apply("nn.conv", (x, weight), attrs),)))


def main(arguments: Sequence[str]) -> int:
    """Look at every case for every target; 1 where a sum was spilled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n", type=int, default=12)
    parser.add_argument("--targets", nargs="+", default=TARGETS)
    parser.add_argument("--show", action="store_true", help="print the loops that spill")
    asked = parser.parse_args(arguments)
    wrong = 0
    for name in asked.targets:
        target = find_target(name)
        assert isinstance(target, Target)
        random = Random(asked.seed)
        print(f"{name}: {target.machine}")
        for _ in range(asked.n):
            what, made = drawn(random)
            loops = innermost(assembly_of(made, target))
            reads, writes = sum(e.reads for e in loops), sum(e.writes for e in loops)
            wrong += writes
            mark = "" if not reads + writes else f"   reads {reads}, writes {writes}"
            print(f"  {what:44} {len(loops):3} loops{mark}", flush=True)
            if asked.show:
                for each in loops:
                    if each.reads + each.writes:
                        print("\n".join([f"    {each.function}", *each.lines]))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
