"""Narrow reads: sums whose terms are read from narrow inputs and cast, as if those were wide.

    sum over k of cast(x[m, k], f32) * cast(w[k, n], f32)    x and w of f16
      -->  sum over k of wide[m, k] * wide_1[k, n]           each stands for what it is read from

Contractions see loads, and tensor cores take data in its storage type.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x = buffer("x", (5, 8), f16)
>>> total = stage("y", (5,), lambda m: reduce("sum", (8,), lambda k: Cast(x[m, k], f32)))
>>> wide, stand = widened(stages((x,), (total,)))
>>> [str(each.name) for each in wide.inputs], [each.dtype.name for each in stand.values()]
(['x', 'wide'], ['f16'])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from plica.core import Name, Term, map_bottom_up
from plica.ir.loop.scalar import Buffer, Cast, Lit, Load, Select
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, Stages, reductions, stages
from plica.ir.type import DType, bf16, f16, f32, i8, i32, u8

NARROW: Final = (f16, bf16)  # what tensor cores multiply and sum in f32
BYTES: Final = (i8, u8)  # types multiplied by tensor cores with i32 sums


def widened(of: Stages) -> tuple[Stages, dict[Name, Buffer]]:
    """Stages whose sums read f32 inputs instead of cast narrow ones, and the original buffer of
    each, by name."""
    names = Names(of)
    twins: dict[Load, Buffer] = {}

    def change(node: Term) -> Term:
        match node:
            case Cast(Load() as load, dtype) if _is_read_as(load.buffer.dtype, dtype):
                return Load(_twin(load, twins, names, dtype), load.indices)
            case Cast(Select(condition, Load() as load, Lit(fill)), dtype) if _is_read_as(
                load.buffer.dtype, dtype
            ):
                inside = Load(_twin(load, twins, names, dtype), load.indices)
                return Select(condition, inside, Lit(fill, dtype))
            case _:
                return node

    made: list[Each] = []
    for stage in of.stages:
        assert isinstance(stage, Each)
        value = map_bottom_up(change, stage.value) if reductions(stage.value) else stage.value
        made.append(Each(stage.out, stage.axes, value))
    if not twins:
        return of, {}
    inputs = (*of.inputs, *twins.values())
    return stages(inputs, made, of.outputs), {
        twin.name: load.buffer for load, twin in twins.items()
    }


def _is_read_as(narrow: DType, wide: DType) -> bool:
    """Whether a storage type is multiplied directly in sums of another type."""
    return (wide is f32 and narrow in NARROW) or (wide is i32 and narrow in BYTES)


def _twin(of: Load, twins: dict[Load, Buffer], names: Names, dtype: DType) -> Buffer:
    if of not in twins:
        twins[of] = Buffer(names.name("wide"), of.buffer.shape, dtype)
    return twins[of]


def narrowed(of: Load, narrow: Mapping[Name, Buffer]) -> Load:
    """The load from a wide buffer's original, in its current shape."""
    if (real := narrow.get(of.buffer.name)) is None:
        return of
    return Load(Buffer(real.name, of.buffer.shape, real.dtype), of.indices)
