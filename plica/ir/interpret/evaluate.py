"""Evaluation: the numpy meaning of a tensor expression.

`prepare` turns an expression of known sizes into a list of steps over whole arrays, once; running
it costs little more than numpy.  An axis is a range laid along its own dimension, so every term has
just the elements it depends on, and numpy broadcasts the rest.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import buffer, compute, reduce
>>> x = buffer("x", (2, 3), f32)
>>> rows = compute((x,), (2,), lambda i: reduce("sum", (3,), lambda k: x[i, k]))
>>> evaluate(rows, [np.float32([[1, 2, 3], [4, 5, 6]])])
array([ 6., 15.], dtype=float32)

Laws: integers are exact; a reduction of floats goes through its box in row-major order from the
combiner's identity, one rounding at a time, as a plain loop would; one in runs does what
`plica.ir.loop.summation` spells.
A load behind a false guard does not happen, and one outside of its buffer is an error (see Note
[Guards] in `plica.ir.interpret.lane`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import TypeAlias

import numpy as np

from plica.core.binding import substitute
from plica.core.diagnostic import MOST_BYTES, CompilerBug, EvaluationError, too_large
from plica.core.term import Term
from plica.ir.interpret.array_arithmetic import Array
from plica.ir.interpret.tape import Tape, number, play
from plica.ir.loop.scalar import Lit, Load, ScalarVar
from plica.ir.loop.tensor import Compute
from plica.ir.op.shape import regroup
from plica.ir.type.dim import product, same_dim
from plica.ir.type.dtype import i64
from plica.ir.type.term import TensorType
from plica.runtime.error import Diagnostic

Run: TypeAlias = Callable[[Sequence[Array]], Array]


def evaluate(
    compute: Compute, arrays: Sequence[Array], sizes: Mapping[Term, int] | None = None
) -> Array:
    """The result of a tensor expression on arrays; symbolic dims have the given sizes.

    A dim that is the size of an argument need not be given.
    """
    found: dict[Term, int] = {} if sizes is None else dict(sizes)
    for buffer, array in zip(compute.inputs, arrays, strict=True):
        for size, extent in zip(buffer.shape, np.shape(array), strict=False):
            if isinstance(size, ScalarVar):
                found.setdefault(size, extent)
    if found:
        numbers = {var: Lit(size, i64) for var, size in found.items()}
        sized = substitute(compute, numbers)
        compute = sized
    return prepare(compute)([np.asarray(each) for each in arrays])


@lru_cache(maxsize=1024)
def prepare(compute: Compute) -> Run:
    """The function from arrays to the result of an expression whose sizes are all known."""
    shape = tuple(number(size) for size in compute.shape)
    shapes = [tuple(number(size) for size in each.shape) for each in compute.inputs]
    dtypes = [each.dtype.numpy for each in compute.inputs]
    dtype = compute.dtype.numpy
    if prod(shape) * compute.dtype.bytes > MOST_BYTES:
        raise EvaluationError(too_large(str(TensorType(compute.shape, compute.dtype))))
    if 0 in shape:
        return lambda arrays: np.empty(shape, dtype)
    root = Tape(None, dict(zip(compute.axes, shape, strict=True)))
    slots = [root.buffer(each) for each in compute.inputs]
    value, marks = root.place(compute.body)
    template, steps, guards = root.template, root.released(value, marks), root.loads
    reshapes = _keeps_order(compute)

    def run(arrays: Sequence[Array]) -> Array:
        values = template.copy()
        for slot, array, wanted, kind in zip(slots, arrays, shapes, dtypes, strict=True):
            if array.shape != wanted or array.dtype != kind:
                raise CompilerBug(
                    f"A tensor expression on {wanted} {kind} is given {array.shape} {array.dtype}."
                )
            values[slot] = array if array.flags.c_contiguous else array.copy()
        if reshapes:
            return np.array(arrays[0], dtype, order="C").reshape(shape)
        with np.errstate(all="ignore"):
            play(steps, values)
        if values[marks] is not None:
            raise _outside(values[marks], shape, guards)
        result = values[value]
        if np.shape(result) != shape or any(result is each for each in arrays):
            return np.array(np.broadcast_to(result, shape), dtype)
        return np.ascontiguousarray(result) if shape else np.asarray(result)

    return run


def _keeps_order(compute: Compute) -> bool:
    """Whether the elements of the only input are the result, one after the other: a reshape."""
    load = compute.body
    if not isinstance(load, Load) or compute.inputs != (load.buffer,):
        return False
    into = load.buffer.shape
    if not same_dim(product(compute.shape), product(into)):
        return False
    return load.indices == tuple(regroup(compute.axes, compute.shape, into))


def _outside(marks: Array, shape: tuple[int, ...], loads: list[Load]) -> EvaluationError:
    where = np.unravel_index(int(np.argmax(np.broadcast_to(marks, shape))), shape)
    load = loads[int(marks.max()) - 1]
    name, size = load.buffer.name, tuple(number(each) for each in load.buffer.shape)
    place = tuple(map(int, where))
    return EvaluationError(
        Diagnostic(
            "index-out-of-bounds",
            f"Element {place} of the result reads {name} outside of its shape.",
            expected=f"an index inside {size}",
        )
    )
