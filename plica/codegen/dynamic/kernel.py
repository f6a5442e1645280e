"""Kernels of a dynamic program: how a fused function is computed where it is called.

As in static programs, rules of thumb or tuning give a schedule, for which constants may be packed
beforehand, and otherwise loops are plain (`plica.codegen.lower.scheduled`).

>>> from plica.core.name import Name
>>> from plica.ir.graph import Var
>>> from plica.ir.type import tensor
>>> x = Var(Name("x"), tensor((3,), "f32"))
>>> chosen = choose(Function((), (), (x,), x.type, x + x), (x,), Choice())
>>> chosen.source, chosen.reads == (x,), chosen.bytes
('add', True, 12)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from attrs import field, frozen

from plica.codegen.lower.fused import fused
from plica.codegen.lower.scheduled import Chosen, derived, facts, packed, scheduled
from plica.codegen.lower.sequence import NOTHING
from plica.codegen.lower.workload import workload
from plica.codegen.program import Origin
from plica.core.diagnostic import CompilerBug
from plica.ir.dim import known
from plica.ir.graph import Const, Expr, Function
from plica.ir.loop import Kernel
from plica.ir.scalar import Buffer
from plica.ir.type import TensorType
from plica.rewrite.fuse.reading import parts, reading
from plica.schedule.default import Machine
from plica.schedule.default.constant import Cut


@frozen(eq=False)
class Choice:
    """What kernels are chosen by: the machine, what the contract allows, and tuned schedules."""

    machine: Machine | None = None
    reassociates: bool = False
    approximates: bool = False
    tuned: Mapping[str, Chosen] = field(factory=lambda: NOTHING)


@frozen(eq=False)
class Launchable:
    """A kernel, the digest of it, what it reads, its scratch memory, and what it writes."""

    kernel: Kernel
    digest: str
    reads: tuple[Expr, ...]
    scratch: tuple[int, ...]
    bytes: int
    source: str
    origin: Origin | None = None


def viewed(function: Function) -> int | Const | None:
    """Which parameter a function shows under another shape, or which constant; None if it works."""
    of = reading(function.body)
    if of is None or not of.is_view:
        return None
    args = parts(function.body)
    assert args is not None
    shown = args[of.viewed]
    if isinstance(shown, Const):
        out = function.ret
        assert isinstance(out, TensorType)
        return Const(shown.dtype, tuple([known(size) or 0 for size in out.shape]), shown.data)
    for number, param in enumerate(function.params):
        if param is shown:
            return number
    return None  # several operators, of which only the last is a view


def choose(function: Function, args: Sequence[Expr], by: Choice) -> Launchable:
    """The kernel of a fused function on names and constants."""
    whole = fused(function)
    out = function.ret
    assert isinstance(out, TensorType)
    size = prod([known(each) or 0 for each in out.shape]) * out.dtype.bytes
    reads = [args[read] for read in whole.reads]
    made = None
    if by.machine is not None:
        constant, small = facts(reads, by.machine)
        free, loose = by.reassociates, by.approximates
        tuned = None
        if by.tuned:
            tuned = by.tuned.get(workload(function, constant, free, small, loose))
        made = scheduled(function, constant, by.machine, free, small, loose, tuned)
    if made is None:
        return Launchable(whole.kernel, whole.digest, tuple(reads), (), size, whole.source)
    for each in made.packings:
        reads[each.input] = packed(_constant(reads[each.input]), each)
    more = [derived(_constant(reads[each.input]), each) for each in made.derived]
    for how, new in zip(made.derived, more, strict=True):
        if isinstance(how, Cut):
            reads[how.input] = new
        else:
            reads.append(new)
    scratch = tuple([_bytes(each) for each in made.scratch])
    return Launchable(
        made.kernel, made.digest, tuple(reads), scratch, size, whole.source, made.origin
    )


def _constant(of: Expr) -> Const:
    if not isinstance(of, Const):
        raise CompilerBug("A schedule packs what is not known before the program runs.")
    return of


def _bytes(of: Buffer) -> int:
    return prod([known(size) or 0 for size in of.shape]) * of.dtype.bytes
