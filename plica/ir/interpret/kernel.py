"""The reference meaning of the loop language: a kernel run one element at a time.

Every load and store is checked: indices must be in bounds, elements must be written before they are
read, and two iterations of a parallel or vectorized loop, or two threads not ordered by a barrier,
must not access one element if one of them writes it (`plica.ir.interpret.race`). A kernel takes its
input arrays and returns the buffers it wrote, whole.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import For
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i = buffer("x", (3,), f32), buffer("y", (3,), f32), axis("i")
>>> double = Kernel((), (x, y), 1, For(i, x.shape[0], "parallel", Store(y, (i,), x[i] * 2)))
>>> run_kernel(double, (np.array([1, 2, 3], np.float32),))
(array([2., 4., 6.], dtype=float32),)

# Note [Sweeps]
Loops that do one store are run at once over arrays where that gives the same bits
(`plica.ir.interpret.vectorised`).  Whenever a run with sweeps is refused, the kernel runs again
without: what is
wrong is always said by the plain machine.  Only a while loop that does not end is not waited for
twice.

Not here: the compilation of scalar terms (`plica.ir.interpret.scalar_program`) and their operations
(`plica.ir.interpret.number`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from plica.core import EvaluationError, Term
from plica.ir.interpret.loop_machine import LoopMachine
from plica.ir.interpret.value import Array
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.specialise import specialise
from plica.ir.loop.statement import Invoke, Kernel, Store, statements
from plica.ir.loop.verify import trespasses
from plica.ir.type import DType, Sizes, shape_of, solve
from plica.runtime.element import wrong_element
from plica.runtime.error import Diagnostic, InputError, Place

MAX_TURNS: Final = 500_000
"""The maximum number of iterations of all while loops of a kernel together."""


def run_kernel(
    kernel: Kernel,
    arrays: Sequence[Any],
    sizes: Sizes | None = None,
    *,
    sweeping: bool = True,
    turns: int = MAX_TURNS,
) -> tuple[Array, ...]:
    """The buffers a kernel writes, given the arrays it reads; dims come from their shapes.

    Without `sweeping` every element is computed on its own; the result is the same.
    """
    known = _measured(kernel.params[: kernel.inputs], arrays, sizes or {})
    blank = [_shape(param, known) for param in kernel.params[kernel.inputs :]]
    return _run(kernel, known, [*arrays, *[None] * len(blank)], sweeping, turns)[kernel.inputs :]


def run_in_place(
    kernel: Kernel,
    arrays: Sequence[Any],
    sizes: Sizes | None = None,
    *,
    sweeping: bool = True,
    turns: int = MAX_TURNS,
) -> tuple[Array, ...]:
    """All of a kernel's buffers after it ran, given what all of them hold before."""
    known = _measured(kernel.params, arrays, sizes or {})
    return _run(kernel, known, list(arrays), sweeping, turns)


def _run(
    kernel: Kernel, sizes: Sizes, arrays: list[Any], sweeping: bool, turns: int
) -> tuple[Array, ...]:
    for trespass in trespasses(kernel):
        raise EvaluationError(trespass)
    sized = specialise(kernel, sizes)
    if sweeping:
        try:
            return _run_once(sized, sizes, arrays, True, turns)
        except EvaluationError as error:
            if error.code == "endless-loop":  # sweeps take no turns: it would only be so again
                raise
    return _run_once(sized, sizes, arrays, False, turns)


def _run_once(
    kernel: Kernel, sizes: Sizes, arrays: list[Any], sweeping: bool, turns: int
) -> tuple[Array, ...]:
    machine = LoopMachine(dict(sizes), sweeping, turns)
    touched = _stored(kernel)
    held = []
    with np.errstate(all="ignore"):
        for buffer, array in zip(kernel.params, arrays, strict=True):
            storage = machine.allocate(buffer)
            if array is not None:
                storage.whole()[...] = array
                storage.marks()[...] = 1
            storage.constant = touched is not None and buffer not in touched
            machine.env[buffer] = storage
            held.append(storage)
        machine.run(kernel.body)
        return tuple([each.array() for each in held])


@lru_cache(maxsize=256)
def _stored(kernel: Kernel) -> frozenset[Buffer] | None:
    """The buffers a kernel stores to; None if it invokes an intrinsic that may store to any."""
    found = set()
    for stmt in statements(kernel.body):
        if isinstance(stmt, Store):
            found.add(stmt.buffer)
        elif isinstance(stmt, Invoke):
            return None
    return frozenset(found)


def _measured(inputs: Sequence[Buffer], arrays: Sequence[Any], sizes: Sizes) -> Mapping[Term, int]:
    """The dims the arrays determine; arrays that do not fit their buffers are refused."""
    if len(inputs) != len(arrays):
        message = "The kernel is given the wrong number of arrays."
        raise InputError.of("wrong-arity", message, None, str(len(inputs)), str(len(arrays)))
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
            what, found_dtype = f"The array for the buffer {name!r}", str(array.dtype)
            wrong.append(wrong_element(what, name, str(buffer.dtype), found_dtype))
    if wrong:
        raise InputError(*wrong)
    return found


def _has_dtype(array: Array, dtype: DType) -> bool:
    return bool(array.dtype.newbyteorder("=") == dtype.numpy)


def _shape(buffer: Buffer, sizes: Sizes) -> tuple[int, ...]:
    if (shape := shape_of(buffer.shape, sizes)) is None:
        raise EvaluationError.of(
            "cannot-infer",
            f"The size of the buffer {str(buffer.name)!r} follows from no input.",
            Place(node=str(buffer.name)),
            suggestion="Give the sizes of the kernel's dims.",
        )
    return shape
