"""The reference meaning of the loop language: a kernel run one element at a time.

Every load and store is checked: indices within the buffer, no element read before it was written,
no two iterations of a parallel or vectorized loop at one element when one of them writes it.  A
kernel is given its input arrays and returns the buffers it wrote, whole.

>>> from plica.ir.dtype import f32
>>> from plica.ir.tensor import axis, buffer
>>> x, y, i = buffer("x", (3,), f32), buffer("y", (3,), f32), axis("i")
>>> double = Kernel((), (x, y), 1, For(i, x.shape[0], "parallel", Store(y, (i,), x[i] * 2)))
>>> run_kernel(double, (np.array([1, 2, 3], np.float32),))
(array([2., 4., 6.], dtype=float32),)

Not here: how scalar terms are put into order (`plica.ir.line`), what they do (`plica.ir.number`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plica.core.diagnostic import CompilerBug, EvaluationError
from plica.core.term import Term
from plica.ir.dtype import DType
from plica.ir.line import Line, line, run_line
from plica.ir.loop import Alloc, Branch, For, Kernel, Seq, Stmt, Store
from plica.ir.scalar import Buffer, Scalar
from plica.ir.size import Sizes, shape_of, solve
from plica.ir.storage import Storage, Strand
from plica.ir.value import Array
from plica.runtime.error import Diagnostic, InputError, Place


def run_kernel(
    kernel: Kernel, arrays: Sequence[Any], sizes: Sizes | None = None
) -> tuple[Array, ...]:
    """What a kernel writes, given the arrays it reads; dims are found from their shapes."""
    inputs, outputs = kernel.params[: kernel.inputs], kernel.params[kernel.inputs :]
    known = _measured(inputs, arrays, sizes or {})
    env: dict[Term, Any] = dict(known)
    strands: list[Strand] = []
    for buffer, array in zip(inputs, arrays, strict=True):
        env[buffer] = Storage.of(buffer, array, strands)
    written = [Storage.blank(each, _shape(each, known), strands) for each in outputs]
    env.update(zip(outputs, written, strict=True))
    with np.errstate(all="ignore"):
        _execute(kernel.body, env, strands)
    return tuple([each.array() for each in written])


def _execute(body: Stmt, env: dict[Term, Any], strands: list[Strand]) -> None:
    """Run a statement.  The stack holds statements, loops under way, and scopes to leave."""
    lines: dict[Term, Line] = {}
    stack: list[Any] = [body]
    push, pop = stack.append, stack.pop
    while stack:
        item = pop()
        kind = item.__class__
        if kind is _Loop:
            if item.next == item.extent:
                env[item.var] = item.hidden
                if item.strand is not None:
                    strands.pop()
                continue
            env[item.var] = item.next
            if item.strand is not None:
                item.strand.iteration = item.next
            item.next += 1
            push(item)
            push(item.body)
        elif kind is Store:
            known = lines.get(item)
            if known is None:
                known = lines[item] = line((*item.indices, item.value), env)
            *indices, value = run_line(known)
            env[item.buffer].store(indices, value)
        elif kind is Seq:
            stack.extend(item.stmts[::-1])
        elif kind is For:
            (extent,) = _values(item, (item.extent,), lines, env)
            strand = Strand() if item.kind in ("parallel", "vectorized") else None
            if strand is not None:
                strands.append(strand)
            push(_Loop(item.var, max(0, extent), item.body, env.get(item.var), strand))
        elif kind is Branch:
            (condition,) = _values(item, (item.condition,), lines, env)
            push(item.then if condition else item.orelse)
        elif kind is Alloc:
            buffer = item.buffer
            shape = tuple(_values(item, buffer.shape, lines, env))
            push(_Leave(buffer, env.get(buffer)))
            env[buffer] = Storage.blank(buffer, shape, strands)
            push(item.body)
        elif kind is _Leave:
            env[item.buffer] = item.hidden
        else:
            raise CompilerBug(f"The loop interpreter meets a {kind.__name__} it cannot run.")


def _values(
    owner: Term, scalars: tuple[Scalar, ...], lines: dict[Term, Line], env: dict[Term, Any]
) -> list[Any]:
    known = lines.get(owner)
    if known is None:
        known = lines[owner] = line(scalars, env)
    return run_line(known)


class _Loop:
    """A loop under way: the next iteration, and what its variable was outside."""

    __slots__ = ("body", "extent", "hidden", "next", "strand", "var")

    def __init__(
        self, var: Term, extent: int, body: Stmt, hidden: Any, strand: Strand | None
    ) -> None:
        self.var = var
        self.extent = extent
        self.body = body
        self.hidden = hidden
        self.strand = strand
        self.next = 0


class _Leave:
    """The end of an allocation: the buffer is again what it was outside."""

    __slots__ = ("buffer", "hidden")

    def __init__(self, buffer: Buffer, hidden: Any) -> None:
        self.buffer = buffer
        self.hidden = hidden


def _measured(inputs: Sequence[Buffer], arrays: Sequence[Any], sizes: Sizes) -> Mapping[Term, int]:
    """The dims the arrays determine; arrays that do not fit their buffers are refused."""
    if len(inputs) != len(arrays):
        message = "The kernel is given the wrong number of arrays."
        raise InputError(
            Diagnostic("wrong-arity", message, None, str(len(inputs)), str(len(arrays)))
        )
    wrong: list[Diagnostic] = []
    found = dict(sizes)
    for buffer, array in zip(inputs, arrays, strict=True):
        if array.ndim == len(buffer.shape):
            found = solve(zip(buffer.shape, array.shape, strict=True), found)
    for buffer, array in zip(inputs, arrays, strict=True):
        name, place = str(buffer.name), Place(node=str(buffer.name))
        expected = shape_of(buffer.shape, found)
        if array.shape != expected:
            message = f"The array for the buffer {name!r} has the wrong shape."
            wrong.append(Diagnostic("input-shape", message, place, str(expected), str(array.shape)))
        if not _has_dtype(array, buffer.dtype):
            message = f"The array for the buffer {name!r} has the wrong element type."
            wrong.append(
                Diagnostic("input-dtype", message, place, str(buffer.dtype), str(array.dtype))
            )
    if wrong:
        raise InputError(*wrong)
    return found


def _has_dtype(array: Array, dtype: DType) -> bool:
    return bool(array.dtype.newbyteorder("=") == dtype.numpy)


def _shape(buffer: Buffer, sizes: Sizes) -> tuple[int, ...]:
    shape = shape_of(buffer.shape, sizes)
    if shape is None:
        raise EvaluationError(
            Diagnostic(
                "cannot-infer",
                f"The size of the buffer {str(buffer.name)!r} follows from no input.",
                Place(node=str(buffer.name)),
                suggestion="Give the sizes of the kernel's dims.",
            )
        )
    return shape
