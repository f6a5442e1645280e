"""Invocations: the table of tensor intrinsics, and how their operands fit their meaning.

A tensor intrinsic has a name, and a kernel over its operand regions as its meaning: one region per
buffer of the kernel, then one number per dim, unless the sizes of the regions determine them.
Buffers that the kernel writes may have contents before.

A region may have more dimensions than its buffer: leading dimensions of extent 1 are dropped.

>>> [intrinsic.name for intrinsic in intrinsics() if intrinsic.name == "no such thing"]
[]

Not here: declaring an intrinsic, which runs it (`plica.ir.loop.intrinsic`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from attrs import frozen

from plica.core import EvaluationError, Term, did_you_mean
from plica.ir.loop.scalar import Scalar
from plica.ir.loop.statement import Annotations, Invoke, Kernel, Region, statements_of
from plica.runtime.error import Diagnostic, Place
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.type.size import shape_of, solve


@frozen(eq=False)
class TensorIntrinsic(Term):
    """A name, the kernel it means, the kernel that does it on a target, and hints for targets."""

    name: str
    meaning: Kernel
    implementation: Kernel | None
    hints: Annotations


_TABLE: Final[dict[str, TensorIntrinsic]] = {}
_FAMILIES: Final[list[Callable[[str], TensorIntrinsic | None]]] = []


def intrinsics() -> tuple[TensorIntrinsic, ...]:
    """All that were declared, in that order."""
    return tuple(_TABLE.values())


def register(new: TensorIntrinsic) -> TensorIntrinsic:
    """Registers an intrinsic; registering an equal one again is allowed."""
    old = _TABLE.setdefault(new.name, new)
    same = (old.meaning, old.implementation, old.hints)
    if same != (new.meaning, new.implementation, new.hints):
        message = f"The tensor intrinsic {new.name!r} is declared already, and differently."
        parts = ("meaning", "implementation", "hints")
        other = [part for part in parts if getattr(old, part) != getattr(new, part)]
        expected, hint = "what it is already", "Give it, or its machine, a name of its own."
        found, place = f"another {' and '.join(other)}", Place(node=new.name)
        raise EvaluationError.of("bad-intrinsic", message, place, expected, found, hint)
    return old


def register_family(declare: Callable[[str], TensorIntrinsic | None]) -> None:
    """Registers intrinsics of any size: what declares the one of a name, or gives None."""
    _FAMILIES.append(declare)


def find_intrinsic(name: str) -> TensorIntrinsic | None:
    """The intrinsic of a name, or None if neither it nor its family is declared."""
    if name in _TABLE:
        return _TABLE[name]
    found = (declare(name) for declare in _FAMILIES)
    return next((intrinsic for intrinsic in found if intrinsic is not None), None)


def intrinsics_of(kernel: Kernel) -> tuple[TensorIntrinsic, ...]:
    """The distinct intrinsics that a kernel invokes, so that they can be sent along with it."""
    names = [each.name for each in statements_of(Invoke, kernel.body)]
    found = [find_intrinsic(each) for each in dict.fromkeys(names)]
    return tuple([intrinsic for intrinsic in found if intrinsic is not None])


def unknown_intrinsic(name: str) -> Diagnostic:
    """The diagnostic for an undeclared intrinsic."""
    return Diagnostic(
        "unknown-intrinsic",
        f"No tensor intrinsic is called {name!r}.",
        Place(node=name),
        suggestion=did_you_mean(name, _TABLE)
        or "Declare it with plica.ir.loop.intrinsic.intrinsic.",
    )


def misfit(call: Invoke, meaning: Kernel) -> Diagnostic | None:
    """Why the number or kinds of an invocation's operands are wrong, or None."""
    regions = [operand for operand in call.operands if isinstance(operand, Region)]
    scalars = [operand for operand in call.operands if isinstance(operand, Scalar)]
    wanted = f"{len(meaning.params)} regions, then no scalars or {len(meaning.dims)}"
    found = f"{len(regions)} regions and {len(scalars)} scalars"
    in_order = all(isinstance(operand, Region) for operand in call.operands[: len(regions)])
    if (
        len(regions) != len(meaning.params)
        or len(scalars) not in (0, len(meaning.dims))
        or not in_order
    ):
        return _wrong(call, "wrong-arity", "operands", wanted, found)
    for region, param in zip(regions, meaning.params, strict=True):
        if region.buffer.dtype is not param.dtype:
            return _wrong(
                call, "dtype-conflict", f"element type for {str(param.name)!r}",
                str(param.dtype), str(region.buffer.dtype),
            )  # fmt: skip
        if len(region.extents) < len(param.shape):
            return _wrong(
                call, "shape-conflict", f"rank for {str(param.name)!r}",
                f"at least {len(param.shape)}", str(len(region.extents)),
            )  # fmt: skip
    return None


def kept(extents: Sequence[int], rank: int) -> tuple[int, ...]:
    """The dimensions of a box that remain at a given rank after dropping those of extent 1."""
    surplus = len(extents) - rank
    found = []
    for position, extent in enumerate(extents):
        if surplus > 0 and extent == 1:
            surplus -= 1
        else:
            found.append(position)
    return tuple(found)


def sizes_for(
    call: Invoke, meaning: Kernel, shapes: Sequence[tuple[int, ...]], scalars: Sequence[int]
) -> dict[Term, int]:
    """The dims of the meaning for regions of these shapes; regions that do not fit are refused."""
    known: dict[Term, int] = dict(zip(meaning.dims, scalars, strict=True)) if scalars else {}
    pairs: list[tuple[Scalar, int]] = []
    for param, shape in zip(meaning.params, shapes, strict=True):
        if len(param.shape) == len(shape):
            pairs += zip(param.shape, shape, strict=True)
    found = solve(pairs, known)
    for param, shape in zip(meaning.params, shapes, strict=True):
        expected = shape_of(param.shape, found)
        if expected != shape:
            raise EvaluationError(
                _wrong(
                    call,
                    "shape-conflict",
                    f"region for {str(param.name)!r}",
                    str(expected),
                    str(shape),
                )
            )
    return found


def _wrong(call: Invoke, code: str, what: str, expected: str, found: str) -> Diagnostic:
    message = f"The invocation of {call.name!r} has the wrong {what}."
    return Diagnostic(code, message, Place(node=call.name), expected, found)
