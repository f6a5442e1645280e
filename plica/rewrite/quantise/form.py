"""The integer form of a layer: bytes in, sums of 32 bits, a shift that rounds, bytes out.

Under scales that are powers of two a convolution, its bias, its relu and the change of scale are

    sums   = nn.conv(cast(x, i32), cast(w, i32), …)      x of i8, w a constant of i8
             or a product of matrices
    biased = add(sums, b)                                b a constant of i32, one for each output
    moved  = right_shift(biased, n)                      n a constant of i32, 0 <= n < 32
    y      = cast(clip(moved, min=low, max=high), i8)    -128 <= low < high <= 127

The shift rounds down, so `b` contains the half that makes it round to nearest, ties up: `(s + 2**(n
- 1)) >> n`. Layers are recognised in stages, by what is computed: operators may be different, have
their operands swapped or, but for the clip, be absent
(`plica.rewrite.quantise.integer_contraction`). `low = 0` is a relu. One shift per output is the
same form with `shift` a tuple; an accelerator with a single immediate shift accepts equal ones.

>>> import numpy as np
>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Function, Var, const
>>> from plica.ir.graph.module import module
>>> from plica.ir.op.convolution import conv
>>> from plica.ir.type.term import tensor
>>> x, main = Var(Name("x"), tensor((1, 2, 4, 4), "i8")), Var(Name("main"), None)
>>> w, b = np.ones((3, 2, 3, 3), np.int8), np.full((3, 1, 1), 8, np.int32)
>>> y = integer_layer(conv(cast(x, i32), cast(const(w), i32), padding=1), b, 4, 0, 127)
>>> (found,) = integer_convolutions(module({main: Function((), (), (x,), None, y)}, main))
>>> found.shift, found.relu, found.padding, found.data is x, found.bias.tolist()
(4, True, ((1, 1), (1, 1)), True, [8, 8, 8])
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np
from attrs import frozen

from plica.core import post_order
from plica.ir.graph import Apply, Expr, Module, const
from plica.ir.op.comparison import right_shift
from plica.ir.op.elementwise import add, cast, clip
from plica.ir.type import i8, i32, infer
from plica.rewrite.quantise.integer_contraction import integer_contraction

Array: TypeAlias = np.ndarray[Any, Any]
Pair: TypeAlias = tuple[int, int]


@frozen(eq=False)
class IntegerConvolution:
    """A layer in the integer form; `root` is the term that it is, `data` what it reads."""

    root: Expr
    data: Expr
    layer: Apply  # the convolution, or the product, of i32
    kind: Literal["conv", "dense"]
    weight: Array  # int8 `[outputs, channels / groups, …]`
    bias: Array | None  # int32 `[outputs]`, including the rounding half; or None
    shifts: tuple[int, ...]  # one, or one for each output
    low: int
    high: int
    strides: tuple[int, ...]
    padding: tuple[Pair, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def shift(self) -> int | None:
        """The common shift of all outputs, or None if they differ."""
        return self.shifts[0] if len(set(self.shifts)) == 1 else None

    @property
    def relu(self) -> bool:
        """Whether negative results become zero."""
        return self.low == 0

    @property
    def outputs(self) -> int:
        """The number of output channels."""
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
    """The integer layer of an inferred term, or None."""
    if (found := integer_contraction(root)) is None:
        return None
    assert isinstance(found.node, Apply)  # an operator joins data and weights
    outputs = found.weight.shape[0]
    bias = None if found.bias is None else np.broadcast_to(np.array(found.bias, np.int32), outputs)
    return IntegerConvolution(
        root, found.data, found.node, "conv" if found.weight.ndim > 2 else "dense", found.weight,
        bias, found.shifts, found.low, found.high, found.strides, found.padding, found.dilation,
        found.groups,
    )  # fmt: skip


def _found(nodes: Iterator[Apply]) -> Iterator[IntegerConvolution]:
    for node in nodes:
        if (convolution := integer_convolution(node)) is not None:
            yield convolution
