"""Kernels in LLVM's text: one internal function each, over the addresses of its buffers.

A kernel with a load that had to be checked gives back whether some index was outside its buffer;
any other gives nothing back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import evolve, frozen

from plica.analysis.constant_bound import Interval, open_range
from plica.codegen.llvm.buffer_address import parameter_facts, place_of
from plica.codegen.llvm.lane import LaneValue
from plica.codegen.llvm.statement import StatementEmitter
from plica.codegen.llvm.value import LlvmValues
from plica.codegen.llvm.writer import ANYWHERE, CodeTraits, LlvmWriter
from plica.core import post_order
from plica.ir.loop import Intrinsic, Kernel
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.codegen.llvm.common_nest import NestCall
    from plica.codegen.llvm.plain_share import plain_share
    from plica.codegen.llvm.rounded_quotient import by_inverse

WORTH: Final = 0.1
"""The part of an open kernel's steps that plain loops do, from which on LLVM's passes over loops
are worth their time."""


@frozen
class Text:
    """A function: its lines, whether it can fail, and what it refers to."""

    lines: tuple[str, ...]
    can_fail: bool
    helpers: frozenset[tuple[str, int]]
    functions: tuple[tuple[str, tuple[str, tuple[str, ...]]], ...]
    shares: bool = False  # whether it calls the pool
    calls: tuple[str, ...] = ()  # declarations of nests that it calls


def emit(  # noqa: PLR0917  # a kernel, and what is known of where it stands
    kernel: Kernel,
    name: str,
    over: int | None = None,
    traits: CodeTraits = ANYWHERE,
    bounds: Sequence[Interval] = (),
    nests: Sequence[NestCall] = (),
) -> Text:
    """The function of a kernel: it takes the dims that are open, then its buffers.

    `over` is the input whose memory the result is written to, so that both have one address: LLVM
    is told that no two parameters overlap, so the body may use only one of them.  Dims are within
    `bounds` where there are any; `nests` are functions of their own.
    """
    if traits.corrects and _rounds(kernel):
        kernel = by_inverse(kernel)
    w = LlvmWriter(traits=traits)
    values = LlvmValues(w)
    places = values.access.places
    params = []
    sizes = [size for buffer in kernel.params for size in buffer.shape]
    for number, dim in enumerate(kernel.dims):
        params.append(f"i64 %d{number}")
        within = bounds[number] if bounds else open_range(dim, sizes)
        values.around.bind(dim, LaneValue(f"%d{number}"), within)
    for number, buffer in enumerate(kernel.params):
        pointer = f"%b{number}"
        read_only = number < kernel.inputs
        places[buffer] = evolve(place_of(buffer, pointer), is_constant=read_only)
        size = buffer.dtype.bytes * places[buffer].span
        params.append(f"{parameter_facts(buffer, size, read_only)} {pointer}")
    if over is not None:
        last = places[kernel.params[-1]].pointer
        places[kernel.params[over]] = place_of(kernel.params[over], last)
    values.begin()
    gains = not kernel.dims or plain_share(kernel) >= WORTH
    statements = StatementEmitter(values, name if traits.shared else None, nests, gains)
    statements.write(kernel.body)
    if values.fails is not None:
        w.do(f"ret i1 {w.let(f'load i1, ptr {values.fails}')}")
    else:
        w.do("ret void")
    result = "void" if values.fails is None else "i1"
    facts = statements.told()
    statements.stores.close()
    values.close()
    return Text(
        lines=(
            *statements.bodies,
            f"define internal {result} @{name}({', '.join(params)}) {facts} {{",
            "entry:",
            *values.registers,
            *w.lines,
            "}",
        ),
        can_fail=values.fails is not None,
        helpers=frozenset(w.helpers),
        functions=tuple(sorted(w.functions.items())),
        shares=bool(statements.bodies),
        calls=tuple([each.declaration for each in nests]),
    )


def _rounds(kernel: Kernel) -> bool:
    """Whether something is made whole: no other kernel has quotients that are rounded."""
    nodes = post_order(kernel.body)
    return any(isinstance(node, Intrinsic) and node.name == "round" for node in nodes)
