"""Planted mistakes in lowering and in the emitter, which fuzzing must find and blame by name.

>>> print(*[each.name for each in PASSES["bound"]][9:12])
partition remainder-tiles unroll
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import evolve

from plica.codegen.llvm import toolchain
from plica.codegen.llvm.fold import fold
from plica.codegen.memory_plan import WorkspacePlan
from plica.codegen.program import Program
from plica.codegen.subject import CPU, Passes
from plica.core import Term, map_bottom_up
from plica.ir.loop.scalar import Add, Sub, index
from plica.ir.loop.statement import For, Kernel, statements


def with_a_longer_loop(kernel: Kernel) -> Kernel:
    """The kernel whose last loop runs once too often."""
    if not (loops := [each for each in statements(kernel.body) if isinstance(each, For)]):
        return kernel
    last = loops[-1]
    longer = For(last.var, last.extent + index(1), last.kind, last.body, last.annotations)
    return _mapped(kernel, lambda node: longer if node is last else node)


def with_a_shorter_loop(kernel: Kernel) -> Kernel:
    """The kernel whose first loop leaves out its last iteration."""
    if not (loops := [each for each in statements(kernel.body) if isinstance(each, For)]):
        return kernel
    first = loops[0]
    shorter = For(first.var, first.extent - index(1), first.kind, first.body, first.annotations)
    return _mapped(kernel, lambda node: shorter if node is first else node)


def with_another_order(kernel: Kernel) -> Kernel:
    """The kernel with `(x - y) + z` for `x + (y - z)`."""

    def regrouped(node: Term) -> Term:
        if isinstance(node, Add) and isinstance(node.right, Sub):
            return Add(Sub(node.left, node.right.left), node.right.right)
        return node

    return _mapped(kernel, regrouped)


def with_parallel_loops(kernel: Kernel) -> Kernel:
    """The kernel all of whose serial loops run at once, sums among them."""

    def at_once(node: Term) -> Term:
        if isinstance(node, For) and node.kind == "serial":
            return For(node.var, node.extent, "parallel", node.body, node.annotations)
        return node

    return _mapped(kernel, at_once)


def planted(name: str, mistake: Callable[[Kernel], Kernel], passes: Passes = CPU) -> Passes:
    """The passes, one of which makes a mistake after its work."""
    return tuple(
        [
            evolve(pass_, run=_then(pass_.run, mistake)) if pass_.name == name else pass_
            for pass_ in passes
        ]
    )


def wrong_entry(program: Program, plan: WorkspacePlan, fused: bool) -> tuple[int, object]:
    """Native code by an emitter that adds where it should subtract floats."""
    machine = toolchain.host()
    text = fold(program, plan, machine, fused)
    native_code = toolchain.build(text.replace(" fsub ", " fadd "), machine)
    return native_code.address, native_code.engine


def _then(
    run: Callable[[Kernel], Kernel], mistake: Callable[[Kernel], Kernel]
) -> Callable[[Kernel], Kernel]:
    return lambda kernel: mistake(run(kernel))


def _mapped(kernel: Kernel, change: Callable[[Term], Term]) -> Kernel:
    return map_bottom_up(change, kernel)


PASSES: Final[dict[str, Passes]] = {
    "bound": planted("partition", with_a_longer_loop),
    "order": planted("tidy-again", with_another_order),
    "race": planted("compact", with_parallel_loops),
}
"""Lowering with a mistake in one of its passes."""
