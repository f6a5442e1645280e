"""The integer form of a layer: bytes in, sums of 32 bits, a shift that rounds, bytes out.

Under scales that are powers of two a convolution, its bias, its relu and the change of scale are

    sums   = nn.conv(cast(x, i32), cast(w, i32), …)      x of i8, w a constant of i8
             or nn.dense(cast(x, i32), cast(w, i32))
    biased = add(sums, b)                                b a constant of i32, one for each output
    moved  = right_shift(biased, n)                      n a constant of i32, 0 <= n < 32
    y      = cast(clip(moved, min=low, max=high), i8)    -128 <= low < high <= 127

The shift rounds down, so `b` holds the half that makes it round to the nearest, ties up:
`(s + 2**(n - 1)) >> n`.  `add` may have its sides changed, and it and `right_shift` may be absent.
A constant `cast(w, i32)` may have been computed: then it is a constant of i32 that holds bytes.
`low = 0` is a relu.  Several shifts, one for each output, are the same form with `shift` a tuple;
an accelerator that knows one immediate shift takes those where they agree.

>>> import numpy as np
>>> from plica.core.name import Name
>>> from plica.ir.graph import Function, Var, const
>>> from plica.ir.module import module
>>> from plica.ir.op.convolution import conv
>>> from plica.ir.type import tensor
>>> x, main = Var(Name("x"), tensor((1, 2, 4, 4), "i8")), Var(Name("main"), None)
>>> w, b = np.ones((3, 2, 3, 3), np.int8), np.full((3, 1, 1), 8, np.int32)
>>> y = integer_layer(conv(cast(x, i32), cast(const(w), i32), padding=1), b, 4, 0, 127)
>>> (found,) = integer_convolutions(module({main: Function((), (), (x,), None, y)}, main))
>>> found.shift, found.relu, found.padding, found.data is x, found.bias.tolist()
(4, True, ((1, 1), (1, 1)), True, [8, 8, 8])
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from attrs import frozen

from plica.core.fold import post_order
from plica.ir.dtype import i8, i32
from plica.ir.graph import Apply, Const, Expr, attr, const
from plica.ir.infer import infer, type_of
from plica.ir.module import Module
from plica.ir.op.comparison import right_shift
from plica.ir.op.elementwise import add, cast, clip
from plica.ir.op.relation import per_axis
from plica.ir.op.window import sides
from plica.ir.type import TensorType

Array: TypeAlias = np.ndarray[Any, Any]
Pair: TypeAlias = tuple[int, int]

LAYERS: Final = {"nn.conv": "conv", "nn.dense": "dense"}
BITS: Final = 32


@frozen(eq=False)
class IntegerConvolution:
    """A layer in the integer form; `root` is the term that it is, `data` what it reads."""

    root: Expr
    data: Expr
    layer: Apply
    """The convolution, or the product, of i32."""
    kind: Literal["conv", "dense"]
    weight: Array
    """int8 `[outputs, channels / groups, …]`."""
    bias: Array | None
    """int32 `[outputs]`, with the half of the rounding in it; None where there is none."""
    shifts: tuple[int, ...]
    """One, or one for each output."""
    low: int
    high: int
    strides: tuple[int, ...]
    padding: tuple[Pair, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def shift(self) -> int | None:
        """The shift of all outputs, None where they differ."""
        return self.shifts[0] if len(set(self.shifts)) == 1 else None

    @property
    def relu(self) -> bool:
        """Whether what is below zero becomes zero."""
        return self.low == 0

    @property
    def outputs(self) -> int:
        """How many channels there are in the end."""
        return int(self.weight.shape[0])


def integer_layer(sums: Expr, bias: Array | None, shift: int | Array, low: int, high: int) -> Expr:
    """The integer form of sums of i32; `bias` and `shift` broadcast against them."""
    whole = sums if bias is None else add(sums, const(bias, i32))
    if np.any(shift):
        whole = right_shift(whole, const(shift, i32))
    return cast(clip(whole, min=low, max=high), i8)


def integer_convolutions(module: Module) -> tuple[IntegerConvolution, ...]:
    """Every layer of a module that is in the integer form, in the order of the data."""
    known_ = infer(module)
    roots = [function for _, function in known_.functions()]
    return tuple(_found(node for node in post_order(*roots) if isinstance(node, Apply)))


def integer_convolution(root: Expr) -> IntegerConvolution | None:
    """The layer that an inferred term is, None where it is no integer form."""
    if not isinstance(root, Apply) or root.op != "cast" or attr(root, "dtype") is not i8:
        return None
    cut = root.args[0]
    if not isinstance(cut, Apply) or cut.op != "clip":
        return None
    low, high = attr(cut, "min"), attr(cut, "max")
    if low is None or high is None or not i8.bounds[0] <= low < high <= i8.bounds[1]:
        return None
    rest: Expr = cut.args[0]
    shift: Array = np.zeros((), np.int32)
    if isinstance(rest, Apply) and rest.op == "right_shift":
        rest, by = rest.args
        if not isinstance(by, Const):
            return None
        shift = by.numpy()
    bias: Array | None = None
    if isinstance(rest, Apply) and rest.op == "add":
        left, right = rest.args
        given, other = (right, left) if isinstance(right, Const) else (left, right)
        if not isinstance(given, Const):
            return None
        rest, bias = other, given.numpy()
    if not isinstance(rest, Apply) or rest.op not in LAYERS:
        return None
    data, weight = _bytes(rest.args[0]), _weight(rest.args[1])
    if data is None or weight is None:
        return None
    rank = weight.ndim
    axis = 1 if rest.op == "nn.conv" else -1
    shifts = _each(shift, axis, rank, weight.shape[0])
    biases = None if bias is None else _each(bias, axis, rank, weight.shape[0])
    if shifts is None or (bias is not None and biases is None) or not _are_shifts(shifts):
        return None
    spatial = rank - 2
    is_conv = rest.op == "nn.conv"
    return IntegerConvolution(
        root,
        data,
        rest,
        "conv" if is_conv else "dense",
        weight,
        None if biases is None else np.array(biases, np.int32).repeat(_repeat(biases, weight)),
        shifts,
        int(low),
        int(high),
        per_axis("nn.conv", "stride", attr(rest, "strides"), spatial) if is_conv else (),
        sides("nn.conv", attr(rest, "padding"), spatial) if is_conv else (),
        per_axis("nn.conv", "dilation", attr(rest, "dilation"), spatial) if is_conv else (),
        attr(rest, "groups", 1),
    )


def _found(nodes: Iterator[Apply]) -> Iterator[IntegerConvolution]:
    for node in nodes:
        found = integer_convolution(node)
        if found is not None:
            yield found


def _bytes(of: Expr) -> Expr | None:
    """What is cast from i8."""
    if not isinstance(of, Apply) or of.op != "cast" or attr(of, "dtype") is not i32:
        return None
    inside = of.args[0]
    kind = type_of(inside)
    return inside if isinstance(kind, TensorType) and kind.dtype is i8 else None


def _weight(of: Expr) -> Array | None:
    """A constant of bytes, as it is or cast to i32."""
    inside = _bytes(of)
    if isinstance(inside, Const):
        return inside.numpy()
    if not isinstance(of, Const) or of.dtype is not i32 or not of.data:
        return None
    found = of.numpy()
    low, high = i8.bounds
    return found.astype(np.int8) if low <= found.min() and found.max() <= high else None


def _each(of: Array, axis: int, rank: int, outputs: int) -> tuple[int, ...] | None:
    """A constant that differs along the outputs only: one number, or one for each of them."""
    if of.ndim > rank or of.size not in (1, outputs):
        return None
    shape = (1,) * (rank - of.ndim) + of.shape
    if of.size > 1 and shape[axis] != of.size:
        return None
    return tuple(int(each) for each in of.ravel())


def _repeat(of: tuple[int, ...], weight: Array) -> int:
    return 1 if len(of) == weight.shape[0] else int(weight.shape[0])


def _are_shifts(of: tuple[int, ...]) -> bool:
    return all(0 <= each < BITS for each in of)
