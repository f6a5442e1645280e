"""Repetition and turning: the same elements again, backwards, or moved around the end.

>>> from plica.ir.type.term import tensor
>>> [size.value for size in tile.relation({"reps": (2, 1)}, tensor((3,), "f32")).shape]
[2, 3]
"""

from __future__ import annotations

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Operator, Values
from plica.ir.loop.scalar import Buffer, FloorDiv, FloorMod, Scalar, index
from plica.ir.loop.tensor import Compute, compute
from plica.ir.op.attribute import AXES, attribute, axis, dims, integers, natural, naturals
from plica.ir.op.cotangent import reshape, sum_, unbroadcast, zeros
from plica.ir.op.record import plus, primitive, read, tensor_of
from plica.ir.op.relation import Shape, axes_of, axis_of, broadcast, refuse, shown
from plica.ir.type import TensorType, normal_dim, product, same_dim


def _broadcast_rule(attrs: Values, x: TensorType) -> TensorType:
    wanted = tuple(map(normal_dim, attrs["shape"]))
    scalars = broadcast("broadcast_to", (wanted, x.shape))
    if len(scalars) != len(wanted) or not all(map(same_dim, scalars, wanted)):
        message = "broadcast_to cannot make this shape."
        refuse("shape-conflict", message, shown(wanted), shown(x.shape))
    return TensorType(wanted, x.dtype)


def _broadcast_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    return compute((x,), out.shape, lambda *i: read(x, i, out.shape))


broadcast_to = primitive(
    "broadcast_to", ("x",), _broadcast_rule, _broadcast_body,
    "x repeated along new axes and axes of size 1.", attributes=(attribute("shape", dims),),
    onnx=("Expand",), gradient=lambda attrs, d, y, x: [unbroadcast(d, tensor_of(y), tensor_of(x))],
)  # fmt: skip


def _tile_rule(attrs: Values, x: TensorType) -> TensorType:
    shape, reps = _aligned(x.shape, attrs["reps"])
    return TensorType(
        tuple(product((s, index(r))) for s, r in zip(shape, reps, strict=True)), x.dtype
    )


def _aligned(shape: Shape, reps: tuple[int, ...]) -> tuple[Shape, tuple[int, ...]]:
    rank = max(len(shape), len(reps))
    ones = (index(1),) * (rank - len(shape))
    return (*ones, *shape), (1,) * (rank - len(reps)) + reps


def _tile_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    _, reps = _aligned(x.shape, attrs["reps"])
    skip = len(reps) - len(x.shape)

    def element(*i: Scalar) -> Scalar:
        own = zip(i[skip:], x.shape, reps[skip:], strict=True)
        return x[tuple(at if rep == 1 else FloorMod(at, extent) for at, extent, rep in own)]

    return compute((x,), out.shape, element)


def _tile_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    of = tensor_of(x)
    shape, reps = _aligned(of.shape, attrs["reps"])
    if 0 in reps:
        return [zeros(of.shape, of.dtype)]
    parts = [scalar for pair in zip(map(index, reps), shape, strict=True) for scalar in pair]
    total = sum_(reshape(d, tuple(parts)), axis=tuple(range(0, len(parts), 2)))
    return [total if len(shape) == len(of.shape) else reshape(total, of.shape)]


tile = primitive(
    "tile", ("x",), _tile_rule, _tile_body,
    "Repeat x along each axis; extra repetitions add leading axes.",
    attributes=(attribute("reps", naturals),), onnx=("Tile",), gradient=_tile_pullback,
)  # fmt: skip


def _repeat_rule(attrs: Values, x: TensorType) -> TensorType:
    at = axis_of("repeat", attrs["axis"], len(x.shape))
    longer = product((x.shape[at], index(attrs["repeats"])))
    return TensorType((*x.shape[:at], longer, *x.shape[at + 1 :]), x.dtype)


def _repeat_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    at = axis_of("repeat", attrs["axis"], len(x.shape))
    times_ = index(attrs["repeats"])
    return compute((x,), out.shape, lambda *i: x[(*i[:at], FloorDiv(i[at], times_), *i[at + 1 :])])


def _repeat_pullback(attrs: Values, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
    of, times_ = tensor_of(x), attrs["repeats"]
    if times_ == 0:
        return [zeros(of.shape, of.dtype)]
    at = axis_of("repeat", attrs["axis"], len(of.shape))
    parts = (*of.shape[: at + 1], index(times_), *of.shape[at + 1 :])
    return [sum_(reshape(d, parts), axis=(at + 1,))]


repeat = primitive(
    "repeat", ("x",), _repeat_rule, _repeat_body,
    "Repeat each element along an axis.",
    attributes=(attribute("repeats", natural), attribute("axis", axis)), gradient=_repeat_pullback,
)  # fmt: skip

# --- turning -------------------------------------------------------------------------------------


def _flip_rule(attrs: Values, x: TensorType) -> TensorType:
    axes_of("flip", attrs["axis"], len(x.shape))
    return x


def _flip_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    turned = axes_of("flip", attrs["axis"], len(x.shape))

    def element(*i: Scalar) -> Scalar:
        return x[tuple(x.shape[n] - 1 - a if n in turned else a for n, a in enumerate(i))]

    return compute((x,), out.shape, element)


flip: Operator = primitive(
    "flip", ("x",), _flip_rule, _flip_body,
    "Reverse x along axes (default: all).", attributes=(AXES,),
    gradient=lambda attrs, d, y, x: [flip(d, axis=attrs["axis"])],
)  # fmt: skip


def _rolled(attrs: Values, rank: int) -> dict[int, int]:
    shifts, given = attrs["shift"], attrs["axis"]
    if len(shifts) == 1:
        shifts = shifts * len(given)
    if len(shifts) != len(given):
        message = "roll takes one shift for each axis."
        refuse("bad-attribute", message, f"{len(given)} shifts", str(len(shifts)))
    total: dict[int, int] = {}
    for shift, at in zip(shifts, given, strict=True):
        at = axis_of("roll", at, rank)
        total[at] = total.get(at, 0) + shift
    return total


def _roll_rule(attrs: Values, x: TensorType) -> TensorType:
    _rolled(attrs, len(x.shape))
    return x


def _roll_body(attrs: Values, out: TensorType, x: Buffer) -> Compute:
    shifts = _rolled(attrs, len(x.shape))

    def element(*i: Scalar) -> Scalar:
        return x[
            tuple(
                FloorMod(plus(a, -shifts[n]), x.shape[n]) if shifts.get(n) else a
                for n, a in enumerate(i)
            )
        ]

    return compute((x,), out.shape, element)


roll: Operator = primitive(
    "roll", ("x",), _roll_rule, _roll_body, "Rotate x along axes.",
    attributes=(attribute("shift", integers), attribute("axis", integers)),
    gradient=lambda attrs, d, y, x: [
        roll(d, tuple(-each for each in attrs["shift"]), attrs["axis"])
    ],
)  # fmt: skip
