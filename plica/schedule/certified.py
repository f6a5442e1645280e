"""Certified bounds: proves each access of a kernel to be in bounds, and each block variable in its
range, with certificates that are rechecked.

The prover searches for a certificate; an independent checker
(`plica.analysis.index.certificate.holds`) rechecks it. Claims neither proved nor refuted are listed
as open, and so are those that fail only for some data, which the program checks at run time.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import For, Store
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i = buffer("x", (3,), f32), buffer("y", (3,), f32), axis("i")
>>> good = Kernel((), (x, y), 1, For(i, x.shape[0], "serial", Store(y, (i,), x[i])))
>>> certified(good)
CertifiedBounds(proved=2, open=(), wrong=())
>>> off = Kernel((), (x, y), 1, For(i, x.shape[0], "serial", Store(y, (i,), x[i + 1])))
>>> certified(off).wrong
("'x' is read outside its bounds: dimension 0 where i = 2",)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from attrs import frozen

from plica.analysis.index import Fails, Holds, decide
from plica.analysis.index.certificate import holds
from plica.analysis.index.context import Context
from plica.analysis.index.prove import Answer
from plica.core import post_order
from plica.ir.loop.scalar import Load, Scalar, dtype_of, index
from plica.ir.loop.statement import Bind, For, Kernel, statements
from plica.ir.type import i32
from plica.schedule.verify import VerifiedAccess, accesses, bindings, point_text


@frozen
class CertifiedBounds:
    """How many claims were proved and rechecked, those that are open, and those that are false."""

    proved: int
    open: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


@lru_cache(maxsize=256)
def certified(kernel: Kernel, given: tuple[Scalar, ...] = ()) -> CertifiedBounds:
    """The proofs about a kernel's accesses before lowering, given run-time checks of its dims."""
    proved, unsettled, wrong = 0, dict[str, None](), dict[str, None]()
    answers: dict[tuple[Scalar, Context], tuple[bool, Answer]] = {}
    data = {
        each.var
        for each in statements(kernel.body)
        if isinstance(each, Bind) and any(isinstance(node, Load) for node in post_order(each.value))
    }

    def decided(stays: Scalar, context: Context) -> tuple[bool, Answer]:
        claim = stays, context.where(*given)
        if claim not in answers:
            answer = decide(*claim)
            answers[claim] = (
                isinstance(answer, Holds) and holds(*claim, answer.certificate), answer
            )  # fmt: skip
        return answers[claim]

    for where, stays, contexts in _claims(kernel):
        shown, answer = False, None
        for context in contexts:
            shown, answer = decided(stays, context)
            if shown:
                break
        proved += shown
        point = point_text(answer.point, data) if isinstance(answer, Fails) else None
        if point is not None:
            wrong[f"{where} where {point}"] = None
        elif not shown:
            unsettled[f"{where}, perhaps"] = None
    return CertifiedBounds(proved, tuple(unsettled), tuple(wrong))


def _claims(kernel: Kernel) -> Iterator[tuple[str, Scalar, Iterable[Context]]]:
    """The claims with their messages and contexts, minimal index first."""
    for label, var, stays, context in bindings(kernel):
        yield (
            f"the variable {str(var.name)!r} of the block {label!r} leaves its range",
            stays,
            (context,),
        )
    for access in accesses(kernel):
        how = "written" if access.written else "read"
        for at, size in enumerate(access.buffer.shape):
            where = f"{str(access.buffer.name)!r} is {how} outside its bounds: dimension {at}"
            yield where, access.stays(at, index(0), size), _contexts(access)


def _contexts(access: VerifiedAccess) -> Iterator[Context]:
    yield access.context
    if access.blocks:
        yield access.bound()


def counts_narrowly(kernel: Kernel) -> bool:
    """Whether loops count in 32 bits: of such terms nothing is proved."""
    loops = [statement for statement in statements(kernel.body) if isinstance(statement, For)]
    return any(dtype_of(loop.var) is i32 for loop in loops)
