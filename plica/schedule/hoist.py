"""Hoisting: what stages make of constants alone is computed once, before the program runs.

    packed[b, k, v] = w[k, 16 * b + v]          w a constant: done now
    sum[m, b, v] = sum over k of x[m, k] * packed[b, k, v]

So a packed weight is an ordinary stage, and whether it is packed at compile time or at run time is
no concern of the form that asked for it.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import placeholder, stage
>>> from plica.ir.loop.stages import stages
>>> x, w = placeholder("x", (2, 3), f32), placeholder("w", (3, 4), f32)
>>> turned = stage("t", (4, 3), lambda i, j: w[j, i])
>>> out = stage("y", (2, 4), lambda i, j: x[i, j % 3] + turned[j, i])
>>> found = hoist(stages((x, w), (turned, out)), (False, True))
>>> [str(each.name) for each in found.rest.inputs], found.reads[0]
(['x', 't'], 0)
>>> constants(found, {1: np.arange(12, dtype=np.float32).reshape(3, 4)})[turned.out][1]
array([1., 5., 9.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from typing import Protocol, TypeAlias

import numpy as np
from attrs import frozen

from plica.core import Term, free_vars
from plica.ir.graph.expression import Expr
from plica.ir.graph.weight_array import ColumnwiseArray, StridedCopy, put_in_columns, together
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import And, Buffer, Le, Lit, Load, Lt, Scalar, ScalarVar, Select
from plica.ir.loop.stage import Each, Stage
from plica.ir.loop.stages import Stages, compute_of, loads, stages
from plica.ir.type import known, polynomial
from plica.runtime.late import lazy_imports

Shape: TypeAlias = tuple[int, ...]

with lazy_imports(__name__):
    from plica.ir.interpret.array_arithmetic import Array
    from plica.ir.interpret.evaluate import evaluate


@frozen(eq=False)
class Hoisted:
    """The stages that are left, and those that are done before.

    `reads` gives for each input of the remaining stages the original input, or the buffer computed
    in advance.
    """

    rest: Stages
    before: tuple[Each, ...]
    reads: tuple[int | Buffer, ...]
    inputs: tuple[Buffer, ...]  # those of the whole


@lru_cache(maxsize=1024)
def hoist(of: Stages, constant: tuple[bool, ...]) -> Hoisted:
    """Splits off the stages that read only constants; never the result, nor a buffer in registers
    or shared memory, which does not outlive a launch."""
    told = {buffer for buffer, known_now in zip(of.inputs, constant, strict=True) if known_now}
    before: list[Each] = []
    left: list[Stage] = []
    for stage in of.stages:
        is_memory = isinstance(stage, Each) and scope(stage.out.scope).reach == "all"
        read = {e.buffer for e in loads(stage)} if is_memory else {None}
        if isinstance(stage, Each) and read and read <= told and stage.out is not of.result:
            before.append(stage)
            told.add(stage.out)
        else:
            left.append(stage)
    if not before:
        return Hoisted(of, (), tuple(range(len(of.inputs))), of.inputs)
    touched = {term for each in left for term in free_vars(each)}
    outputs = [output for output in of.outputs if output not in told]
    reads = _reads(of, before, touched)
    inputs = [of.inputs[each] if isinstance(each, int) else each for each in reads]
    return Hoisted(stages(inputs, left, outputs), tuple(before), tuple(reads), of.inputs)


def _reads(of: Stages, before: Sequence[Each], touched: Container[Term]) -> list[int | Buffer]:
    """The final inputs: a precomputed buffer replaces its input if nothing else reads it."""
    source: dict[Buffer, Buffer] = {
        each: each for each in of.inputs
    }  # the first that it is made of
    made: dict[Buffer, list[Buffer]] = {}
    for stage in before:
        source[stage.out] = source[loads(stage)[0].buffer]
        if stage.out in touched:
            made.setdefault(source[stage.out], []).append(stage.out)
    found: list[int | Buffer] = []
    later: list[int | Buffer] = []
    for number, buffer in enumerate(of.inputs):
        instead = made.get(buffer, [])
        if buffer in touched:
            found.append(number)
            later += instead
        else:
            found += instead[:1]
            later += instead[1:]
    return found + later


class DoneBefore(Protocol):
    """What is computed from constants before a program runs."""

    @property
    def before(self) -> tuple[Each, ...]:
        """The stages that make it."""

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        """What they may read."""


@frozen(eq=False)
class PackedConstants(Term):
    """The stages computed from numbered constant inputs."""

    before: tuple[Each, ...]
    inputs: tuple[Buffer, ...]
    numbers: tuple[int, ...]
    given: tuple[Expr, ...]


@frozen(eq=False)
class PackedConstant(Term):
    """A buffer among those that stages make of constants: the origin of a packed weight."""

    whole: PackedConstants
    out: Buffer


def constants(of: DoneBefore, given: Mapping[int, Array | ColumnwiseArray]) -> dict[Buffer, Array]:
    """The precomputed arrays, from the constant inputs by number."""
    held: dict[Buffer, Array] = {}
    later: dict[Buffer, ColumnwiseArray] = {}
    for number, array in given.items():
        shape = shape_of(of.inputs[number])
        if not isinstance(array, ColumnwiseArray):
            held[of.inputs[number]] = np.reshape(array, shape)
        elif array.shape == shape:
            later[of.inputs[number]] = array
        else:
            held[of.inputs[number]] = array.whole().reshape(shape)
    for stage in of.before:
        shapes = {buffer: array.source.shape for buffer, array in later.items()}
        if (put := put_by_columns(stage, shapes)) is not None:
            load, at, order = put
            held[stage.out] = put_in_columns(later[load.buffer], at, order)
            continue
        for read in [load.buffer for load in loads(stage)]:
            if read in later:
                held[read] = later.pop(read).whole()
        if (copy := copied(stage)) is not None:
            held[stage.out] = together(copy[1].of(held[copy[0].buffer]))
        else:
            compute = compute_of(stage)
            held[stage.out] = together(evaluate(compute, [held[read] for read in compute.inputs]))
    return held


def put_by_columns(of: Each, later: Mapping[Buffer, Shape]) -> tuple[Load, int, StridedCopy] | None:
    """A stage that puts whole columns in another order: what it reads, along which axis they lie,
    and the order of those that they are made of, whose shapes are given.

    None if it does something else.
    """
    if (found := _load(of.value)) is None or (source := later.get(found[0].buffer)) is None:
        return None
    row, *others = found[0].indices
    if row not in of.axes or any(row in free_vars(place) for place in others):
        return None
    at = of.axes.index(row)
    shape = shape_of(of.out)
    if shape[at] != known(found[0].buffer.shape[0]):
        return None
    told = (*shape[:at], source[0], *shape[at + 1 :])
    order = _strided(of.axes, told, found[0], None, source)
    return None if order is None else (found[0], at, order)


def copied(of: Each) -> tuple[Load, StridedCopy] | None:
    """A stage that permutes elements as one strided copy, or None.

    Where places are outside of the source, and a guard says so, it is padded first.
    """
    if (found := _load(of.value)) is None:
        return None
    order = _strided(of.axes, shape_of(of.out), *found, shape_of(found[0].buffer))
    return None if order is None else (found[0], order)


def shape_of(of: Buffer) -> Shape:
    """The sizes of a buffer."""
    return tuple([known(size) or 0 for size in of.shape])


def _strided(
    axes: Sequence[ScalarVar],
    shape: Shape,
    load: Load,
    fill: bool | int | float | None,
    source: Shape,
) -> StridedCopy | None:
    """The strides of a load from an array of this shape, for axes of these sizes."""
    sizes = dict(zip(axes, shape, strict=True))
    if not all(shape):
        return None
    pads: list[tuple[int, int]] = []
    starts: list[int] = []
    steps: list[tuple[int, ...]] = []
    for place, count in zip(load.indices, source, strict=True):
        start = low = high = 0
        mine = dict.fromkeys(axes, 0)
        for atoms, factor in polynomial(place).values():
            if not atoms:
                start += factor
            elif len(atoms) == 1 and isinstance(atoms[0], ScalarVar) and atoms[0] in sizes:
                mine[atoms[0]] = factor
                end = factor * (sizes[atoms[0]] - 1)
                low, high = low + min(0, end), high + max(0, end)
            else:
                return None
        pads.append((max(0, -(start + low)), max(0, start + high - count + 1)))
        starts.append(start + pads[-1][0])
        steps.append(tuple(mine.values()))
    if fill is None and any(pad != (0, 0) for pad in pads):
        return None
    return StridedCopy(shape, tuple(pads), fill, tuple(starts), tuple(steps))


def _load(of: Scalar) -> tuple[Load, bool | int | float | None] | None:
    """The load that a stage copies, and the padding value."""
    match of:
        case Load():
            return of, None
        case Select(condition, Load() as load, Lit(fill)) if _is_border(condition, load):
            return load, fill
        case Select(condition, Select() as inner, Lit(fill)):
            found = _load(inner)
            if found is None or found[1] != fill or not _is_border(condition, found[0]):
                return None
            return found
        case _:
            return None


def _is_border(condition: Scalar, of: Load) -> bool:
    """Whether a condition says where a load is inside, and nothing else."""
    places = dict(zip(of.indices, of.buffer.shape, strict=True))
    stack: list[Scalar] = [condition]
    while stack:
        match stack.pop():
            case And(left, right):
                stack += [left, right]
            case Lt(place, size) if places.get(place) is size:
                pass
            case Le(Lit(0), place) if place in places:
                pass
            case _:
                return False
    return True
