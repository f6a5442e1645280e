"""Transposed convolutions of int8: by phases, to the bit, without products of inserted zeros."""

from __future__ import annotations

import numpy as np
import pytest

import plica
from plica.codegen.accel.transposed import skip_zeros
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Function, Var, const
from plica.ir.graph.module import Module, main_module
from plica.ir.op.convolution import conv_transpose
from plica.ir.op.elementwise import cast
from plica.ir.type import i32, infer
from plica.ir.type.term import tensor
from plica.rewrite.graph.walk import expressions
from plica.rewrite.quantise.form import integer_convolutions, integer_layer
from plica.runtime.port import Array


def layer(
    channels: int, outputs: int, size: int, kernel: int, stride: int, *, bias: bool, groups: int = 1
) -> tuple[Module, Array]:
    random = np.random.default_rng(kernel * 10 + stride)
    x = Var(Name("x"), tensor((1, channels, size, size), "i8"))
    shape = (channels, outputs // groups, kernel, kernel)
    w = cast(const(random.integers(-4, 5, shape).astype(np.int8)), i32)
    sums = conv_transpose(cast(x, i32), w, strides=stride, padding=kernel // 4, groups=groups)
    more = random.integers(-50, 50, (outputs, 1, 1)).astype(np.int32) if bias else None
    body = integer_layer(sums, more, 4, -128, 127)
    given = random.integers(-50, 50, (1, channels, size, size)).astype(np.int8)
    return infer(main_module(Function((), (), (x,), None, body))), given


@pytest.mark.parametrize(
    ("kernel", "stride", "bias", "groups"),
    [(4, 2, False, 1), (4, 2, True, 1), (3, 2, True, 1), (2, 3, True, 1), (4, 2, True, 2)],
)
def test_phases_mean_the_layer(kernel: int, stride: int, bias: bool, groups: int) -> None:
    module, given = layer(4, 6, 5, kernel, stride, bias=bias, groups=groups)
    made = skip_zeros(module)
    assert not any(
        isinstance(each, Apply) and each.op == "nn.conv_transpose"
        for each in expressions(made.main_function())
    )
    np.testing.assert_array_equal(plica.interpret(made, given), plica.interpret(module, given))


def test_a_machine_runs_a_transposed_convolution_without_its_zeros() -> None:
    module, given = layer(16, 16, 6, 4, 2, bias=True)
    exe = plica.compile(module, target="accel")
    np.testing.assert_array_equal(exe(given), plica.interpret(module, given))
    layers = integer_convolutions(skip_zeros(module))
    products = sum(each.weight[0].size * each.outputs * 36 for each in layers)
    dilated = 16 * 16 * 4 * 4 * 144  # an ordinary one over data with zeros between
    assert 4 * products == dilated


def test_other_layers_stay() -> None:
    module, _ = layer(4, 4, 5, 3, 1, bias=False)
    assert skip_zeros(module) is infer(module)
