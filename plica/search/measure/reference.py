"""References: the expected results of a candidate on small integers, in guarded memory.

>>> far(np.array([1.0, 2.0], np.float32), np.array([1.0, np.nan], np.float32)).tolist()
[False, True]

>>> made = transformed(TILES[2], np.ones((16, 1, 1), np.float32))
>>> made.reshape(4, 4)[0].tolist()
[1.0, 1.5, 0.5, 1.0]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from attrs import evolve, frozen

from plica.codegen.lower.nest import nest
from plica.codegen.lower.passes import lower
from plica.codegen.native import shape_of
from plica.core import CompilerBug
from plica.ir.loop import Alloc, Buffer, Each, Kernel, Stages
from plica.ir.op.winograd import TILES, WinogradMatrices
from plica.ir.type import DType
from plica.runtime.artefact import aligned_array
from plica.runtime.guard import Guarded
from plica.runtime.port import Array
from plica.schedule.default.winograd_plan import found_open
from plica.schedule.hoist import constants
from plica.search.measure.build import Loaded, objects_of, target_of
from plica.search.measure.job import MeasureJob

POISON: Final = 0xFF  # bytes that are no number as a float, and an unlikely one as an integer
DRAWS: Final = ((-3, 3), (1, 4), (0, 1))  # ranges of inputs; later ones if few results are finite
FORMS: Final = 8  # of how many forms the inputs are kept
MIN_FINITE_FRACTION: Final = 0.9  # how many of the results of a reference should be finite

# The least and the most by which floats may differ, as a part of the greatest of all results.
_EPSILON: Final = {8: 2.0**-52, 4: 2.0**-23, 2: 2.0**-7, 1: 2.0**-2}
UNITS: Final = 800


@frozen(eq=False)
class Reference:
    """The inputs and expected results of the work."""

    inputs: tuple[Array, ...]
    expected: Array


_kept: dict[str, Reference] = {}


def reference_of(job: MeasureJob) -> Reference:
    """The reference of a job's work; the latest two are cached."""
    if job.about not in _kept:
        while len(_kept) > 1:
            del _kept[next(iter(_kept))]
        _kept[job.about] = _reference(job)
    return _kept[job.about]


def plain_nest(of: Stages) -> Kernel:
    """Work as plain loops; outer allocations become parameters, too large for a stack."""
    kernel = nest(of)
    kept: list[Buffer] = []
    body = kernel.body
    while isinstance(body, Alloc):
        kept.append(body.buffer)
        body = body.body
    inputs, result = kernel.params[: kernel.inputs], kernel.params[kernel.inputs :]
    return evolve(kernel, params=(*inputs, *kept, *result), body=body)


def _reference(job: MeasureJob) -> Reference:
    kernel = lower(plain_nest(job.work), "cpu")
    code = Loaded(objects_of(kernel, target_of(job), job.reassociates))
    return drawn_reference(job.work, code, kernel, lambda inputs: inputs)


def drawn_reference(
    work: Stages, code: Loaded, kernel: Kernel, read: Callable[[Sequence[Array]], Sequence[Array]]
) -> Reference:
    """The results of a kernel's code on drawn inputs (`read` adapts them), most of them finite."""
    best: tuple[float, Reference] | None = None
    for draw in DRAWS:
        random = np.random.default_rng(0)
        numbers = [drawn(random, shape_of(buffer), buffer.dtype, draw) for buffer in work.inputs]
        inputs = tuple(admitted(work, numbers))
        outputs = kernel.params[kernel.inputs :]
        arrays = [poisoned(shape_of(output), output.dtype.numpy) for output in outputs]
        code.run([*[np.ascontiguousarray(array) for array in read(inputs)], *arrays])
        share = finite(arrays[-1])
        if best is None or share > best[0]:
            best = share, Reference(inputs, arrays[-1].reshape(shape_of(work.result)))
        if share >= MIN_FINITE_FRACTION:
            break
    assert best is not None
    return best[1]


def drawn(
    random: np.random.Generator, shape: tuple[int, ...], dtype: DType, draw: tuple[int, int]
) -> Array:
    """Small integers of a dtype; what may be an index is 0 or 1."""
    kind = dtype.numpy
    low, high = draw if dtype.is_float or kind.itemsize == 1 else (0, 1)
    if kind.kind in "ub":
        low, high = 0, 1 if kind.kind == "b" else max(1, high)
    room = random.integers(low, high, size=shape, endpoint=True, dtype=np.int8).astype(kind)
    array: Array = np.ascontiguousarray(room)
    return array


def poisoned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array of which nothing was written."""
    room = aligned_array(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
    room[:] = POISON
    return room.view(dtype).reshape(shape)


def prepared(inputs: Sequence[Array], job: MeasureJob) -> tuple[Array, ...]:
    """A candidate's inputs: those of its work, reshaped, and the constants it computes in
    advance."""
    of = job.hoisted
    made: Mapping[Buffer, Array] = {}
    if of.before:
        made = constants(of, {n: inputs[n] for n, told in enumerate(job.constant) if told})
    found = []
    for read, buffer in zip(of.reads, of.rest.inputs, strict=True):
        array = inputs[read] if isinstance(read, int) else made[read]
        if array.size != elements(buffer) or array.dtype != buffer.dtype.numpy:
            raise CompilerBug(f"The kernel reads {buffer.name} in another shape than its work.")
        found.append(array.reshape(shape_of(buffer)))
    return tuple(found)


def written(of: Reference, kernel: Kernel) -> tuple[Buffer, ...]:
    """The scratch memory and the result of a candidate, which has the elements of the work's."""
    buffers = kernel.params[kernel.inputs :]
    if elements(buffers[-1]) != of.expected.size:
        raise CompilerBug("The kernel writes a result of another size than its work.")
    return buffers


def elements(of: Buffer) -> int:
    """How many elements a buffer has."""
    return int(np.prod(shape_of(of), dtype=np.int64))


_frozen: dict[tuple[str, Stages], tuple[Guarded, ...]] = {}


def read_by(job: MeasureJob) -> tuple[Array, ...]:
    """A candidate's read-only inputs; cached for a few forms."""
    key = (job.about, job.form)
    if key not in _frozen:
        while len(_frozen) >= FORMS:
            del _frozen[next(iter(_frozen))]
        rooms = []
        for array in prepared(reference_of(job).inputs, job):
            room = Guarded(array.shape, array.dtype, "end", array.dtype.itemsize)
            room.array[...] = array
            room.freeze()
            rooms.append(room)
        _frozen[key] = tuple(rooms)
    return tuple([room.array for room in _frozen[key]])


def difference(job: MeasureJob, code: Loaded) -> str:
    """Runs a candidate once; returns an error in its output, or an empty text."""
    reference = reference_of(job)
    inputs = read_by(job)
    rooms = [
        Guarded(shape_of(each), each.dtype.numpy, "end", each.dtype.numpy.itemsize)
        for each in written(reference, job.kernel)
    ]
    for room in rooms:
        room.array.reshape(-1).view(np.uint8)[:] = POISON
    code.run([*inputs, *[guarded.array for guarded in rooms]])
    for room, buffer in zip(rooms, job.kernel.params[job.kernel.inputs :], strict=True):
        if not room.is_intact():
            return f"It writes beside {buffer.name}."
    return disagreement(rooms[-1].array, reference.expected)


def disagreement(found: Array, expected: Array) -> str:
    """Where a result first differs from the expected one, or nothing."""
    ours, meant = found.reshape(-1), expected.reshape(-1)
    if ours.tobytes() == meant.tobytes():
        return ""
    wrong = far(ours, meant)
    if not wrong.any():
        return ""
    at = int(np.argmax(wrong))
    place = [int(each) for each in np.unravel_index(at, expected.shape)]
    share = f"{int(wrong.sum())} of {wrong.size} elements differ"
    return f"Element {place} is {ours[at].item()!r} instead of {meant[at].item()!r}; {share}."


def far(found: Array, expected: Array) -> Array:
    """Which elements differ by more than rounding in another order can explain."""
    if expected.dtype.kind in "iub":
        return np.asarray(found != expected)
    ours, meant = found.astype(np.float64), expected.astype(np.float64)
    size = _EPSILON[expected.dtype.itemsize]
    share = max(8 * size, min(UNITS * size, 1e-4))
    whole = np.isfinite(meant)
    greatest = float(np.abs(meant[whole]).max()) if whole.any() else 0.0
    with np.errstate(invalid="ignore"):
        near = (ours == meant) | (np.abs(ours - meant) <= share * greatest)
    return np.asarray(~(near | (np.isnan(ours) & np.isnan(meant))))


def finite(of: Array) -> float:
    """What share of the elements is finite."""
    if of.dtype.kind in "iub" or not of.size:
        return 1.0
    return float(np.isfinite(of.astype(np.float64)).mean())


__all__ = ["TILES", "admitted", "transformed"]


def admitted(work: Stages, inputs: Sequence[Array]) -> list[Array]:
    """Inputs that some work may be given, made of drawn ones."""
    arrays = list(inputs)
    for stage in work.stages:
        if not isinstance(stage, Each) or (of := found_open(stage)) is None:
            continue
        if of.weight in work.inputs:
            at = work.inputs.index(of.weight)
            arrays[at] = transformed(of.of, arrays[at])
    return arrays


def transformed(of: WinogradMatrices, drawn: Array) -> Array:
    """The first nine numbers of each pair of channels as a weight, transformed."""
    table = np.array([[float(fraction) for fraction in row] for row in of.weight])
    weight = drawn[:9].astype(np.float64).reshape(3, 3, *drawn.shape[1:])
    whole = np.einsum("ak,klco,bl->abco", table, weight, table, optimize=True)
    array: Array = np.ascontiguousarray(whole.reshape(drawn.shape).astype(drawn.dtype))
    return array
