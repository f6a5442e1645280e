"""Evaluation: the numpy meaning of a tensor expression.

`prepare` compiles an expression of known sizes to a list of steps over whole arrays; running it
costs little more than numpy. An axis is a range along its own dimension, so every term has only the
dimensions it depends on, and numpy broadcasts the rest.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.tensor import buffer, compute, reduce
>>> x = buffer("x", (2, 3), f32)
>>> rows = compute((x,), (2,), lambda i: reduce("sum", (3,), lambda k: x[i, k]))
>>> evaluate(rows, [np.float32([[1, 2, 3], [4, 5, 6]])])
array([ 6., 15.], dtype=float32)

Laws: integers are exact; a float reduction visits its box in row-major order from the combiner's
identity, one rounding at a time, like a plain loop; one in runs follows `plica.ir.loop.summation`.
A load behind a false guard does not happen, and a load out of bounds is an error (see Note [Guards]
in `plica.ir.interpret.lane`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np

from plica.core import CompilerBug, EvaluationError, Term, free_vars, post_order, substitute
from plica.core.diagnostic import MAX_TENSOR_BYTES, spanned_bytes, too_large
from plica.ir.graph.weight_array import chunks
from plica.ir.interpret.array_arithmetic import Array
from plica.ir.interpret.lane import laid
from plica.ir.interpret.tape import Tape, number, play
from plica.ir.loop.scalar import Lit, Load, Reduce, ScalarVar
from plica.ir.loop.tensor import Compute, Prefix, as_reductions
from plica.ir.op.shape import regroup
from plica.ir.type import TensorType, i64, product, same_dim

Run: TypeAlias = Callable[[Sequence[Array]], Array]
Box: TypeAlias = tuple[tuple[int, int], ...]  # where each axis begins and ends

MAX_PIECE_ELEMENTS: Final = 1 << 17
"""How many elements of a result are made at once, where it has more."""


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


def sizes_of(of: TensorType) -> tuple[int, ...]:
    """The shape of a result with known sizes; refuses shapes that exceed memory."""
    shape = tuple([number(size) for size in of.shape])
    if spanned_bytes(shape, of.dtype.bytes) > MAX_TENSOR_BYTES:
        raise EvaluationError(too_large(str(of)))
    return shape


@lru_cache(maxsize=1024)
def prepare(compute: Compute) -> Run:
    """The function from arrays to the result of an expression whose sizes are all known."""
    body = as_reductions(compute.body)
    if body is not compute.body:
        compute = Compute(compute.inputs, compute.axes, compute.shape, body)
    shape = sizes_of(TensorType(compute.shape, compute.dtype))
    shapes = [tuple(number(size) for size in each.shape) for each in compute.inputs]
    dtypes = [each.dtype.numpy for each in compute.inputs]
    dtype = compute.dtype.numpy
    if 0 in shape:
        return lambda arrays: np.empty(shape, dtype)
    if keeps_order(compute):
        run = _reshaped(shape)
    elif (pieces := _pieces(compute, shape)) is not None:
        run = in_pieces(compute, shape, pieces)
    else:
        run = at_once(compute, shape)

    def checked(arrays: Sequence[Array]) -> Array:
        given = []
        for array, wanted, kind in zip(arrays, shapes, dtypes, strict=True):
            if array.shape != wanted or array.dtype != kind:
                raise CompilerBug(
                    f"A tensor expression on {wanted} {kind} is given {array.shape} {array.dtype}."
                )
            given.append(array if array.flags.c_contiguous else array.copy())
        with np.errstate(all="ignore"):
            return run(given)

    return checked


def _reshaped(shape: tuple[int, ...]) -> Run:
    """A view: values are immutable, and `interpret` returns a copy."""
    return lambda arrays: arrays[0].reshape(shape)


def at_each_place(compute: Compute) -> Callable[[Sequence[Array], tuple[int, ...]], Array] | None:
    """A function of scalars, applied to arrays that broadcast to one shape; None for reductions,
    whose axes numpy would confuse with those of the arrays."""
    if any(isinstance(node, Reduce | Prefix) for node in post_order(compute.body)):
        return None
    root = Tape(None, {})
    slots = [root.buffer(buffer) for buffer in compute.inputs]
    value, marks = root.place(compute.body)
    template, steps = root.template, root.released(value, marks)
    dtype = compute.dtype.numpy

    def run(arrays: Sequence[Array], shape: tuple[int, ...]) -> Array:
        values = template.copy()
        for slot, array in zip(slots, arrays, strict=True):
            values[slot] = array
        with np.errstate(all="ignore"):
            play(steps, values)
        return _whole(values[value], shape, arrays, dtype)

    return run


def at_once(compute: Compute, shape: tuple[int, ...]) -> Run:
    """Every step over the whole result."""
    root = Tape(None, dict(zip(compute.axes, shape, strict=True)))
    slots = [root.buffer(buffer) for buffer in compute.inputs]
    value, marks = root.place(compute.body)
    template, steps, guards = root.template, root.released(value, marks), root.loads
    dtype = compute.dtype.numpy

    def run(arrays: Sequence[Array]) -> Array:
        values = template.copy()
        for slot, array in zip(slots, arrays, strict=True):
            values[slot] = array
        play(steps, values)
        if values[marks] is not None:
            raise _outside(values[marks], shape, guards)
        return _whole(values[value], shape, arrays, dtype)

    return run


def _whole(result: Any, shape: tuple[int, ...], arrays: Sequence[Array], dtype: Any) -> Array:
    """A result in its shape, as a new array. Any: an array or a number; numpy's dtype."""
    if np.shape(result) != shape or any(result is array for array in arrays):
        return np.array(np.broadcast_to(result, shape), dtype)
    return np.ascontiguousarray(result) if shape else np.asarray(result)


def in_pieces(compute: Compute, shape: tuple[int, ...], pieces: Sequence[Box]) -> Run:
    """Runs all steps on one piece of the result after another, so that intermediates stay in cache.

    The axes that are cut lie in front, so they are a scope inside of the one of the others: what
    does not depend on them is made once.
    """
    count = _cut(shape, pieces[0])
    sizes = dict(zip(compute.axes, shape, strict=True))
    cut, whole = compute.axes[:count], compute.axes[count:]
    root = Tape(None, {axis: sizes[axis] for axis in whole})
    slots = [root.buffer(buffer) for buffer in compute.inputs]
    widths = tuple([high - low for low, high in pieces[0][:count]])
    inner = Tape(root, {axis: sizes[axis] for axis in cut}, widths)
    value, marks = inner.place(compute.body)
    brought = inner.brought
    before = root.released(*[outside for outside, _ in brought])
    steps, places = inner.released(value, marks), [inner.placed[axis][0] for axis in cut]
    dtype = compute.dtype.numpy

    def run(arrays: Sequence[Array]) -> Array:
        around = root.template.copy()
        for slot, array in zip(slots, arrays, strict=True):
            around[slot] = array
        play(before, around)
        base = inner.template.copy()
        for outside, here in brought:
            base[here] = around[outside]
        result = np.empty(shape, dtype)
        for piece in pieces:
            values = base.copy()
            for position, (slot, (low, high)) in enumerate(zip(places, piece, strict=False)):
                values[slot] = laid(low, high, inner.rank - position)
            play(steps, values)
            if values[marks] is not None:  # which element it is, all of them together tell
                return at_once(compute, shape)(arrays)
            result[tuple([slice(low, high) for low, high in piece])] = values[value]
        return result

    return run


def _pieces(compute: Compute, shape: tuple[int, ...]) -> Sequence[Box] | None:
    """The pieces in which a result is computed, or None if it is computed at once.

    Pieces pay off for reductions, which revisit their intermediates; not if a reduction would be
    recomputed for several pieces, nor for buffers read across their rows.
    """
    if prod(shape) <= MAX_PIECE_ELEMENTS:
        return None
    pieces = list(chunks([*shape], MAX_PIECE_ELEMENTS))
    cut, last = frozenset(compute.axes[: _cut(shape, pieces[0])]), compute.axes[-1]
    reduces = False
    for node in post_order(compute.body):
        if isinstance(node, Reduce):
            reduces = True
            if 0 < len(cut & free_vars(node)) < len(cut):
                return None
        elif isinstance(node, Load) and any(last in free_vars(at) for at in node.indices[:-1]):
            return None
    return pieces if reduces else None


def _cut(shape: tuple[int, ...], piece: Box) -> int:
    """How many axes of a result are not whole in its pieces: the first ones."""
    return max(at for at, size in enumerate(shape, 1) if piece[at - 1] != (0, size))


def keeps_order(compute: Compute) -> bool:
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
    name, size = load.buffer.name, tuple(number(dim) for dim in load.buffer.shape)
    place = tuple(map(int, where))
    return EvaluationError.of(
        "index-out-of-bounds",
        f"Element {place} of the result reads {name} outside of its shape.",
        expected=f"an index inside {size}",
    )
