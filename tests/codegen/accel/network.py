"""Little integer networks: chains of layers with residual sums, to be offloaded."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Tuple, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.op.comparison import right_shift
from plica.ir.op.convolution import conv
from plica.ir.op.elementwise import add, cast, clip
from plica.ir.op.linear import dense
from plica.ir.type.dtype import i8, i32
from plica.ir.type.infer import type_of
from plica.ir.type.size import shape_of
from plica.ir.type.term import TensorType, tensor
from plica.rewrite.quantise.form import integer_layer

Array = np.ndarray[Any, Any]
MAIN: Final = Var(Name("main"), None)


class Layers:
    """Layers with random weights, all from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def conv(
        self,
        x: Expr,
        outputs: int,
        kernel: int = 3,
        *,
        stride: int = 1,
        pad: int | None = None,
        each: bool = False,
        bias: bool = True,
        low: int = 0,
        groups: int = 1,
        dilation: int = 1,
    ) -> Expr:
        """A convolution in the integer form."""
        channels = sizes(x)[1] // groups
        w = self.random.integers(-30, 30, (outputs, channels, kernel, kernel)).astype(np.int8)
        padding = kernel // 2 if pad is None else pad
        sums = conv(
            cast(x, i32), cast(const(w), i32), strides=stride, padding=padding, groups=groups,
            dilation=dilation,
        )  # fmt: skip
        return self._finished(sums, (outputs, 1, 1), each, bias, low)

    def dense(self, x: Expr, outputs: int, low: int = -128) -> Expr:
        """A product of matrices in the integer form."""
        w = self.random.integers(-30, 30, (outputs, sizes(x)[1])).astype(np.int8)
        sums = dense(cast(x, i32), cast(const(w), i32))
        return self._finished(sums, (outputs,), False, True, low)

    def _finished(
        self, sums: Expr, shape: tuple[int, ...], each: bool, bias: bool, low: int
    ) -> Expr:
        b = self.random.integers(-2000, 2000, shape).astype(np.int32) if bias else None
        shift: int | Array = 6
        if each:
            shift = self.random.integers(0, 10, shape).astype(np.int32)
        return integer_layer(sums, b, shift, low, 127)


def residual(x: Expr, y: Expr) -> Expr:
    """Half the sum of two, in bytes."""
    whole = add(cast(x, i32), cast(y, i32))
    return cast(clip(right_shift(whole, const(np.int32(1))), min=-128, max=127), i8)


def sizes(of: Expr) -> tuple[int, ...]:
    """The shape of an expression, in numbers."""
    kind = type_of(of)
    assert isinstance(kind, TensorType)
    found = shape_of(kind.shape, {})
    assert found is not None
    return found


def given(shape: tuple[int, ...], name: str = "x") -> Var:
    """An input of bytes."""
    return Var(Name(name), tensor(shape, "i8"))


def network(params: tuple[Var, ...], *outputs: Expr) -> Module:
    """A module that gives some expressions."""
    body = outputs[0] if len(outputs) == 1 else Tuple(outputs)
    return module({MAIN: Function((), (), params, None, body)}, MAIN)


@st.composite
def networks(draw: st.DrawFn) -> Module:
    """A chain of layers, now and then with a residual sum; two results at times."""
    layers = Layers(draw(st.integers(0, 99)))
    shape = (draw(st.integers(1, 2)), draw(st.sampled_from([8, 16, 24])),
             draw(st.integers(3, 5)), draw(st.integers(3, 5)))  # fmt: skip
    x = given(shape)
    values: list[Expr] = [x]
    for _ in range(draw(st.integers(1, 3))):
        before = values[-1]
        outputs = draw(st.sampled_from([16, 16, 20, 32]))
        made = layers.conv(
            before,
            outputs,
            draw(st.sampled_from([1, 3])),
            stride=draw(st.integers(1, 2)),
            each=draw(st.booleans()),
            bias=draw(st.booleans()),
            low=draw(st.sampled_from([-128, 0])),
        )
        same = [each for each in values if sizes(each) == sizes(made)]
        if len(same) > 0 and draw(st.booleans()):
            made = residual(draw(st.sampled_from(same)), made)
        values.append(made)
    outputs_of = (values[-1], values[draw(st.integers(0, len(values) - 1))])
    return network((x,), *outputs_of[: draw(st.integers(1, 2))])
