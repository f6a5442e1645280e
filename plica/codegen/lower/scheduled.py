"""Scheduled: the kernel of a primitive function by rules of thumb, if there is one for it.

Such a kernel may want some of its inputs packed, which is done once if they are constants, and may
need scratch memory.  Where no rule applies there is none, and the plain nest of `fused` is used.

>>> from plica.core.name import Name
>>> from plica.ir.graph import Apply, Var
>>> from plica.ir.type import tensor
>>> x, w = Var(Name("x"), tensor((8, 32), "f32")), Var(Name("w"), tensor((32, 64), "f32"))
>>> function = Function((), (), (x, w), tensor((8, 64), "f32"), Apply("matmul", (x, w)))
>>> scheduled(function, (False, True), Machine(512, 32), False).packings
(Packing(input=1, axis=1, lanes=16, order=(1, 0, 2)),)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from attrs import frozen

from plica.codegen.dot import dot_of
from plica.codegen.lower.fused import Fused, fused
from plica.codegen.lower.nest import Finish
from plica.codegen.program import Origin
from plica.codegen.target import Target
from plica.core.digest import digest
from plica.ir.dtype import i8, i32
from plica.ir.graph import Const, Expr, Function, const
from plica.ir.loop import Kernel
from plica.ir.scalar import Buffer
from plica.ir.tensor import Compute
from plica.schedule.default import Formed, Machine, Packing, Work, default_schedule, formed
from plica.schedule.default.constant import Derived
from plica.schedule.default.row import Chain, chain_form
from plica.schedule.trace import Trace


@frozen(eq=False)
class Scheduled:
    """A scheduled kernel, the digest of it, which inputs it wants packed, its scratch memory, and
    what it was before.
    """

    kernel: Kernel
    digest: str
    packings: tuple[Packing, ...]
    scratch: tuple[Buffer, ...]
    origin: Origin
    derived: tuple[Derived, ...] = ()


def machine_of(target: Target) -> Machine:
    """What rules of thumb ask of a target."""
    caches = tuple([target.cache(level) for level in (1, 2)])
    dot = dot_of(target)
    return Machine(target.vector_bits, target.vector_registers, caches, target.cores, dot)


@frozen(eq=False)
class Chosen:
    """A schedule that was found elsewhere, by tuning: the form it begins with, and what it makes
    of that."""

    form: Formed
    trace: Trace
    kernel: Kernel


@lru_cache(maxsize=1024)
def scheduled(  # noqa: PLR0917  # what is known of where it runs
    function: Function,
    constant: tuple[bool, ...],
    machine: Machine,
    reassociates: bool,
    bytes_: tuple[int, ...] = (),
    approximates: bool = False,
    chosen: Chosen | None = None,
) -> Scheduled | None:
    """The kernel of a primitive function; `constant` says which of what it reads is known now.

    `bytes_` are those of i32 that hold nothing but numbers of 8 bits.  What was `chosen` takes the
    place of what rules of thumb would give.
    """
    if chosen is not None:
        kernel, form = chosen.kernel, chosen.form
        origin = Origin(form.kernel, chosen.trace)
        return Scheduled(kernel, digest(kernel), form.packings, form.scratch, origin, form.derived)
    whole = fused(function)
    if whole.stages:
        chain = chain_of(whole)
        found = chain_form(chain, machine, approximates=approximates) if reassociates else None
    else:
        found = formed(work_of(whole), constant, machine, reassociates=reassociates, bytes_=bytes_)
    made = None if found is None else default_schedule(found.kernel, machine)
    if found is None or made is None:
        return None
    kernel = made[1]
    origin = Origin(found.kernel, made[0])
    whole_digest = digest(kernel)
    return Scheduled(kernel, whole_digest, found.packings, found.scratch, origin, found.derived)


def work_of(of: Fused) -> Work:
    """What a fused kernel does, as schedules begin with it."""
    return _work(of.compute, of.finish)


def chain_of(of: Fused) -> Chain:
    """The stages of a fused kernel that has several."""
    stages = [(_work(each.compute, each.finish), each.result) for each in of.stages]
    return Chain(tuple(stages), of.rows, of.kernel.params[: of.kernel.inputs])


def _work(compute: Compute, end: Finish | None) -> Work:
    if end is None:
        return Work(compute)
    return Work(compute, end.reduced, end.shape, end.indices, end.value)


def packed(of: Const, packing: Packing) -> Const:
    """A constant as a kernel wants it."""
    return const(packing.apply(of.numpy()), of.dtype)


def facts(reads: Sequence[Expr], machine: Machine) -> tuple[tuple[bool, ...], tuple[int, ...]]:
    """What is known of what a kernel reads: which are constants, and which of these hold numbers
    of 8 bits, where that matters."""
    # A view of a constant has another shape than the kernel would be told.
    constant = tuple([isinstance(each, Const) for each in reads])
    if machine.dot is None:
        return constant, ()
    small = [n for n, e in enumerate(reads) if isinstance(e, Const) and holds_bytes(e)]
    return constant, tuple(small)


def holds_bytes(of: Const) -> bool:
    """Whether a constant of i32 holds nothing but numbers of 8 bits."""
    if of.dtype is not i32:
        return False
    found = of.numpy()
    low, high = i8.bounds
    return bool(found.size and low <= found.min() and found.max() <= high)


def derived(of: Const, how: Derived) -> Const:
    """What a kernel reads that is made of a constant."""
    return const(how.apply(of.numpy()), how.dtype)
