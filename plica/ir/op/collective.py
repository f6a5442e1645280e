"""Collectives: what devices exchange along an axis of a mesh.

The values that the devices hold are stacked: row `i` is that of device `i`.  So a collective is a
tensor expression as any other, with a gradient and a numpy meaning.

    all_reduce        every row is the sum (or another combination) of the rows
    all_gather        every row is the rows side by side along a dim
    reduce_scatter    row i is block i of the sum of the rows
    all_to_all        row i is block i of each row, side by side
    ring_shift        row i is row i - shift
    own_block         row i is block i of row i: nothing moves

In a program that all devices run, a value corresponds to one row of a collective's operand.
`stack_devices` converts the value to rows, `own_device` back. On one device, such a program has the
meaning of all devices receiving equal inputs; `plica.mesh` runs it with separate inputs.

>>> from plica.ir.type.term import tensor
>>> str(all_gather.relation({"dim": 0}, tensor((4, 2, 3), "f32")))
'Tensor[(4, 8, 3), f32]'
>>> str(reduce_scatter.relation({"dim": 0, "combiner": "sum"}, tensor((2, 6, 3), "f32")))
'Tensor[(2, 3, 3), f32]'
"""

from __future__ import annotations

from typing import Final

from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import Mismatch, Values, find
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op import relation as rel
from plica.ir.op.attribute import attribute, choice, integer, natural, positive, text
from plica.ir.op.cotangent import broadcast_to, reshape, transpose, word
from plica.ir.op.record import composite, tensor_of
from plica.ir.type import TensorType, known, product, quotient

take, roll, expand_dims = word("take"), word("roll"), word("expand_dims")

COMBINERS: Final = ("sum", "prod", "max", "min", "all", "any")
_COMBINER = attribute("combiner", choice(*COMBINERS), "sum")
_DIM = attribute("dim", natural, 0)
_AXIS = attribute("axis", text, "devices")


def _rows(name: str, x: TensorType, *dims: int) -> Scalar:
    """The number of devices; their values have these dims."""
    rel.rank_at_least(name, x, 1 + max(dims, default=-1) + 1 if dims else 1)
    if known(x.shape[0]) == 0:
        message = f"{name} has a row for each device."
        rel.refuse("shape-conflict", message, "1 device or more", str(x))
    return x.shape[0]


def _combinable(attrs: Values, x: TensorType) -> TensorType:
    """The type of the rows; refuses elements that the combiner's reduction does not take."""
    reduction = find(attrs["combiner"])
    assert reduction is not None
    found = reduction.relation({"axis": (), "keepdims": False}, x)
    if isinstance(found, Mismatch):
        raise rel.Unfit(found)
    return x


def _scaled(x: TensorType, dim: int, size: Scalar) -> TensorType:
    """The type with another size of a dim of each row."""
    return TensorType((*x.shape[: dim + 1], size, *x.shape[dim + 2 :]), x.dtype)


def _part(name: str, x: TensorType, dim: int) -> Scalar:
    """The size of a block of a dim of each row, one for each device."""
    rows = _rows(name, x, dim)
    whole = x.shape[dim + 1]
    part = quotient(whole, rows)
    if part is None:
        rel.refuse(
            "shape-conflict", f"{name} cuts a dim into a block for each device.",
            f"a multiple of {rel.shown((rows,))}", rel.shown((whole,)),
        )  # fmt: skip
    assert part is not None
    return part


def _combined(attrs: Values, x: Expr) -> Expr:
    return word(attrs["combiner"])(x, axis=(0,))


def _all_reduce(attrs: Values, x: Expr) -> Expr:
    return broadcast_to(expand_dims(_combined(attrs, x), (0,)), tensor_of(x).shape)


def _gathered(x: Expr, dim: int) -> Expr:
    """The rows side by side along a dim of them."""
    of = tensor_of(x)
    rank = len(of.shape)
    order = (*range(1, dim + 1), 0, *range(dim + 1, rank))
    rows = of.shape[1:]
    return reshape(
        transpose(x, order), (*rows[:dim], product((of.shape[0], rows[dim])), *rows[dim + 1 :])
    )


def _scattered(x: Expr, dim: int, rows: Scalar) -> Expr:
    """The blocks of a dim as rows."""
    shape = tensor_of(x).shape
    part = quotient(shape[dim], rows)
    assert part is not None
    cut = reshape(x, (*shape[:dim], rows, part, *shape[dim + 1 :]))
    rank = len(shape) + 1
    return transpose(cut, (dim, *[at for at in range(rank) if at != dim]))


def _all_gather(attrs: Values, x: Expr) -> Expr:
    whole = _gathered(x, attrs["dim"])
    shape = (tensor_of(x).shape[0], *tensor_of(whole).shape)
    return broadcast_to(expand_dims(whole, (0,)), shape)


def _exchanged(x: Expr, source: int, target: int) -> Expr:
    """Row i is block i of `target` of each row, side by side along `source`."""
    of = tensor_of(x)
    rows, part = of.shape[0], quotient(of.shape[target + 1], of.shape[0])
    assert part is not None
    at = target + 1
    cut = reshape(x, (*of.shape[:at], rows, part, *of.shape[at + 1 :]))
    rank = len(of.shape) + 1
    # cut: (sender, …, receiver, part, …) -> (receiver, sender, …)
    turned = transpose(cut, (at, 0, *[i for i in range(1, rank) if i != at]))
    shape = tensor_of(turned).shape
    order = (0, *range(2, source + 2), 1, *range(source + 2, rank))
    joined = (*shape[2 : source + 2], product((shape[1], shape[source + 2])), *shape[source + 3 :])
    return reshape(transpose(turned, order), (shape[0], *joined))


def _all_to_all_rule(attrs: Values, x: TensorType) -> TensorType:
    source, target = attrs["source"], attrs["target"]
    if source == target:
        message = "all_to_all joins one dim and cuts another."
        rel.refuse("bad-attribute", message, "two dims", f"{source} twice")
    rows = _rows("all_to_all", x, source, target)
    cut = _scaled(x, target, _part("all_to_all", x, target))
    return _scaled(cut, source, product((rows, x.shape[source + 1])))


def _all_gather_rule(attrs: Values, x: TensorType) -> TensorType:
    rows = _rows("all_gather", x, attrs["dim"])
    return _scaled(x, attrs["dim"], product((rows, x.shape[attrs["dim"] + 1])))


def _own_block(attrs: Values, x: Expr) -> Expr:
    """Block i of row i, as the diagonal of blocks by rows."""
    rows = tensor_of(x).shape[0]
    dim = attrs["dim"]
    blocks = _scattered(x, dim + 1, rows)
    diagonal = word("diagonal")(blocks, offset=0, axis1=0, axis2=1)
    rank = len(tensor_of(diagonal).shape)
    return transpose(diagonal, (rank - 1, *range(rank - 1)))


all_reduce = composite(
    "all_reduce", ("x",), lambda attrs, x: (_rows("all_reduce", x), _combinable(attrs, x))[1],
    _all_reduce,
    "Every row of the result is the rows of x combined.", attributes=(_COMBINER,),
)  # fmt: skip
all_gather = composite(
    "all_gather", ("x",), _all_gather_rule, _all_gather,
    "Every row of the result is the concatenation of all rows of x along a dim.",
    attributes=(_DIM,),
)  # fmt: skip
reduce_scatter = composite(
    "reduce_scatter", ("x",),
    lambda attrs, x: _scaled(
        _combinable(attrs, x), attrs["dim"], _part("reduce_scatter", x, attrs["dim"])
    ),
    lambda attrs, x: _scattered(_combined(attrs, x), attrs["dim"], tensor_of(x).shape[0]),
    "Row i of the result is block i, along a dim, of the rows of x combined.",
    attributes=(_DIM, _COMBINER),
)  # fmt: skip
all_to_all = composite(
    "all_to_all", ("x",), _all_to_all_rule,
    lambda attrs, x: _exchanged(x, attrs["source"], attrs["target"]),
    "Row i of the result concatenates, along `source`, block i (along `target`) of each row of x.",
    attributes=(attribute("source", natural), attribute("target", natural)),
)  # fmt: skip
ring_shift = composite(
    "ring_shift", ("x",), lambda attrs, x: (_rows("ring_shift", x), x)[1],
    lambda attrs, x: roll(x, (attrs["shift"],), (0,)),
    "Row i of the result is row i - shift of x; the last rows come first.",
    attributes=(attribute("shift", integer, 1),),
)  # fmt: skip
own_block = composite(
    "own_block", ("x",),
    lambda attrs, x: _scaled(x, attrs["dim"], _part("own_block", x, attrs["dim"])),
    _own_block, "Row i of the result is block i, along a dim, of row i of x.",
    attributes=(_DIM,),
)  # fmt: skip
stack_devices = composite(
    "stack_devices", ("x",),
    lambda attrs, x: TensorType((index(attrs["devices"]), *x.shape), x.dtype),
    lambda attrs, x: broadcast_to(
        expand_dims(x, (0,)), (index(attrs["devices"]), *tensor_of(x).shape)
    ),
    "The values of x on the devices of a mesh axis, a row for each.",
    attributes=(_AXIS, attribute("devices", positive, 1)),
)  # fmt: skip
own_device = composite(
    "own_device", ("x",),
    lambda attrs, x: (_rows("own_device", x), TensorType(x.shape[1:], x.dtype))[1],
    lambda attrs, x: take(x, word("zeros")((), dtype="i64"), axis=0),
    "The row of x that belongs to this device on a mesh axis.", attributes=(_AXIS,),
)  # fmt: skip
