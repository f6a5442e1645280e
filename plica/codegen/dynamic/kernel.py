"""Kernels of a dynamic program: how a fused function is computed where it is called.

As in static programs a scheduler chooses, and constants may be packed beforehand
(`plica.codegen.lower.scheduled`).

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((3,), "f32"))
>>> chosen = choose(Function((), (), (x,), x.type, x + x), (x,), PLAIN)
>>> chosen.source, chosen.reads == (x,), chosen.bytes
('add', True, 12)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from attrs import frozen

from plica.codegen.lower.kernel_call import all_written, called_kernel
from plica.codegen.lower.linearise import PLAIN
from plica.codegen.lower.passes import LoweredKernel
from plica.codegen.lower.scheduled import Scheduler, read_by
from plica.codegen.program import KernelOrigin
from plica.core import digest
from plica.ir.graph.expression import Const, Expr, Function, Var
from plica.ir.loop import Buffer, Kernel
from plica.ir.type import TensorType, known, type_of
from plica.rewrite.fuse.reading import parts, reading
from plica.schedule.trace import Trace

__all__ = ["PLAIN", "Launchable", "choose", "choose_written", "viewed"]


@frozen(eq=False)
class Launchable:
    """A kernel, the digest of it, what it reads, its scratch memory, and what it writes."""

    kernel: Kernel
    digest: str
    reads: tuple[Expr, ...]
    scratch: tuple[int, ...]
    bytes: int
    source: str
    origin: KernelOrigin | None = None
    lowered: LoweredKernel | None = None


def viewed(function: Function) -> int | Const | None:
    """Which parameter a function shows under another shape, or which constant; None if it works."""
    of = reading(function.body)
    if of is None or not of.is_view:
        return None
    args = parts(function.body)
    assert args is not None
    if isinstance(shown := args[of.viewed], Const):
        out = function.ret
        assert isinstance(out, TensorType)
        return Const(shown.dtype, tuple([known(size) or 0 for size in out.shape]), shown.data)
    for number, param in enumerate(function.params):
        if param is shown:
            return number
    return None  # several operators, of which only the last is a view


def choose(function: Function, args: Sequence[Expr], by: Scheduler) -> Launchable:
    """The kernel of a fused function on names and constants."""
    out = function.ret
    assert isinstance(out, TensorType)
    size = prod([known(dim) or 0 for dim in out.shape]) * out.dtype.bytes
    made = by(function, args)
    scratch = tuple([_bytes(buffer) for buffer in made.scratch])
    reads = tuple(read_by(made, args))
    return Launchable(
        made.kernel, made.digest, reads, scratch, size, made.source, made.origin, made.lowered
    )


def choose_written(of: Kernel, name: Var, args: Sequence[Expr]) -> Launchable:
    """A user-written kernel, unchanged, on names and constants."""
    label = str(name.name)
    before = called_kernel(of, label, tuple([type_of(arg) for arg in args]))
    kernel = all_written(before)
    origin = KernelOrigin(before, Trace(()))
    size = _bytes(kernel.params[-1])
    return Launchable(kernel, digest(kernel), tuple(args), (), size, label, origin)


def _bytes(of: Buffer) -> int:
    return prod([known(size) or 0 for size in of.shape]) * of.dtype.bytes
