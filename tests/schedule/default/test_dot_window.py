"""Windows of bytes over channels that are neighbours are dot products, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.loop import scalar as sc
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import stages
from plica.ir.loop.tensor import buffer, reduce
from plica.ir.op.elementwise import cast, subtract
from plica.ir.type.dtype import f32, i8, i32, u8
from plica.ir.type.term import tensor
from plica.schedule.default import Machine, formed
from plica.schedule.default.dot_window import columns_of
from plica.schedule.default.machine import Dot
from plica.schedule.form import Facts

NEON = Machine(128, 32, dot=Dot("arm.dot_i8i8_4", 4, i8, windows="arm.dot_i8i8_4_window"))
VNNI = Machine(512, 32, dot=Dot("x86.dot_u8i8_16", 16, u8, windows="x86.dot_u8i8_16_window"))
LAYOUTS = ("NHWC", "HWIO", "NHWC")
FEW = settings(max_examples=max(4, settings().max_examples // 6))


def window_of(
    channels: int,
    size: int,
    taps: tuple[int, int],
    zero: int | None,
    *,
    dtype: str = "u8",
    **how: Any,
) -> Module:
    """A depthwise convolution of bytes less a zero point, which is given where it is no number."""
    x, z = (
        Var(Name("x"), tensor((1, size, size + 1, channels), dtype)),
        Var(Name("z"), tensor((), dtype)),
    )
    rng = np.random.default_rng(size)
    weight = rng.choice(np.array([-128, -3, 0, 127], np.int32), (*taps, 1, channels))
    moved: Expr = subtract(cast(x, i32), cast(z, i32) if zero is None else const(zero, i32))
    conv = op.nn.conv_laid(moved, const(weight, i32), layouts=LAYOUTS, groups=channels, **how)
    scale = const(rng.random(channels).astype(np.float32), f32)
    main = Var(Name("main"), None)
    params = (x, z) if zero is None else (x,)
    return module({main: Function((), (), params, None, cast(conv, f32) * scale)}, main)


@FEW
@given(st.data())
def test_windows_are_those_of_the_interpreter(data: st.DataObject) -> None:
    channels, size = data.draw(st.sampled_from((8, 16, 48))), data.draw(st.integers(5, 12))
    taps = data.draw(st.sampled_from(((3, 3), (5, 5), (2, 3), (1, 3), (3, 1), (4, 2))))
    zero = data.draw(st.sampled_from((None, 0, 7, 127)))
    dtype = data.draw(st.sampled_from(("u8", "i8")))
    border, stride = data.draw(st.integers(0, 2)), data.draw(st.integers(1, 3))
    of = window_of(channels, size, taps, zero, dtype=dtype, strides=(stride, stride),
                   padding=(border, border))  # fmt: skip
    low, high = (0, 255) if dtype == "u8" else (-128, 127)
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    held = rng.choice(
        np.array([low, -1 % 256 if low == 0 else -1, 3, high]), (1, size, size + 1, channels)
    )
    values = [held.astype(np.uint8 if dtype == "u8" else np.int8)]
    values += [np.asarray(high, values[0].dtype)] if zero is None else []
    found = plica.compile(of, cache=False, threads=1)(*values)
    np.testing.assert_array_equal(found, plica.interpret(of, *values))


@pytest.mark.parametrize("machine", [NEON, VNNI])
@pytest.mark.parametrize(
    ("channels", "taps", "apart", "dotted"),
    [
        (32, 3, 1, True),
        (24, 3, 1, False),  # of the last vector some lanes
        (32, 3, 2, False),  # terms that lie apart
        (32, 7, 1, False),  # more than are written out
    ],
)
def test_what_is_a_window_of_dots(
    machine: Machine, channels: int, taps: int, apart: int, dotted: bool
) -> None:
    x, w = buffer("x", (15, 15, channels), u8), buffer("w", (taps, taps, channels), i8)

    def term(i: sc.Scalar, j: sc.Scalar, c: sc.Scalar) -> sc.Scalar:
        def product(k: sc.Scalar, m: sc.Scalar) -> sc.Scalar:
            return sc.Cast(x[i + k * apart, j + m * apart, c], i32) * sc.Cast(w[k, m, c], i32)

        return reduce("sum", (taps, taps), product)

    conv = stage("y", (3, 3, channels), term)
    made = formed(stages((x, w), (conv,)), Facts((False, True)), machine)
    assert (made is not None and made.form == "dot-by-four") is dotted


def test_columns_fill_tiles() -> None:
    assert NEON.dot is not None
    assert VNNI.dot is not None
    assert columns_of(7, NEON, NEON.dot) == 4
    assert columns_of(112, VNNI, VNNI.dot) == 8


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cpu:cascadelake"])
def test_machines_that_have_it_invoke_it(target: str) -> None:
    source = plica.compile(
        window_of(32, 9, (3, 3), 3, padding=(1, 1)), target=target, cache=False, threads=1
    ).source("kernel")
    assert ('_window"' in source) is (target == "cpu:cascadelake")
