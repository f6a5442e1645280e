"""Spills: what innermost loops keep fits the registers of processors that need not be this one."""

from __future__ import annotations

import re

import numpy as np

from plica.codegen.backend import find_target
from plica.codegen.llvm import toolchain
from plica.codegen.llvm.fold import fold
from plica.codegen.target import Target
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.op.convolution import conv
from plica.ir.type.term import tensor
from plica.pipeline import lower

SPILLED = re.compile(
    r"^\s+(vmov\w+\s+%[xyz]mm\d+, -?\d*\(%rsp\)|st[rp]\s+q\d+,.*\[sp)", re.MULTILINE
)
"""A vector that is written to the stack."""

LANE_BY_LANE = re.compile(r"^\s+tbn?z\s", re.MULTILINE)
"""A bit of a mask that is looked at by itself."""


def text_and_assembly(name: str, params: tuple[Var, ...], body: Expr) -> tuple[str, str]:
    target, main = find_target(name), Var(Name("main"), None)
    assert isinstance(target, Target)
    of: Module = module({main: Function((), (), params, None, body)}, main)
    made = lower(of, target=target)
    text = fold(made.program, made.plan, target, made.fused, made.signless)
    return text, toolchain.assembly(text, target)


def window(channels: int, side: int, size: int, strides: int = 1) -> tuple[tuple[Var, ...], Expr]:
    x = Var(Name("x"), tensor((1, channels, side, side), "f32"))
    attrs = (
        ("dilation", 1), ("groups", channels), ("padding", size // 2), ("strides", strides),
    )  # fmt: skip
    weight = const(np.ones((channels, 1, size, size), np.float32))
    return (x,), Apply("nn.conv", (x, weight), attrs)


def test_tiles_in_a_row_keep_nothing_for_one_another() -> None:
    _, code = text_and_assembly("cpu:x86-64-v3", *window(6, 20, 3))
    _, begun, loops = code.partition(".LBB")  # zeros of rows outside are written before
    assert begun
    assert not SPILLED.search(loops)


def test_columns_of_a_window_in_strides_take_their_lanes_of_a_vector_together() -> None:
    _, code = text_and_assembly("cpu:neoverse-n1", *window(9, 21, 3, strides=2))
    assert not SPILLED.search(code)


def test_short_vectors_ask_no_lane_whether_it_takes_part() -> None:
    text, code = text_and_assembly("cpu:neoverse-n1", *window(6, 18, 3))
    assert "masked.load" not in text
    assert not LANE_BY_LANE.search(code)


def test_vectors_of_neighbours_leave_sums_where_they_are() -> None:
    x = Var(Name("x"), tensor((128, 256), "f32"))  # four neighbours of 13 rows, beside 26 sums
    body = Apply("matmul", (x, const(np.ones((256, 256), np.float32))))
    _, code = text_and_assembly("cpu:neoverse-n1", (x,), body)
    assert len(SPILLED.findall(code)) <= 1  # an element on its way, not the sums


def test_elements_that_wait_for_terms_that_are_written_out_leave_sums_where_they_are() -> None:
    x, y = (Var(Name("xy"[n]), tensor(s, "f32")) for n, s in enumerate([(5, 57, 4), (5, 4, 5)]))
    _, code = text_and_assembly("cpu:neoverse-n1", (x, y), Apply("matmul", (x, y)))
    assert not SPILLED.search(code)


def test_tiles_that_fill_no_pass_are_in_the_last_one() -> None:
    x = Var(Name("x"), tensor((1, 96, 52, 52), "f32"))  # 169 tiles of Winograd, 8 in a pass
    body = conv(x, const(np.ones((96, 96, 3, 3), np.float32)), padding=1)
    text, _ = text_and_assembly("cpu:neoverse-n1", (x,), body)
    assert "conv_winograd" in text  # every store was seen to be inside


def test_short_vectors_leave_room_for_elements_on_their_way() -> None:
    x = Var(Name("x"), tensor((39, 64), "f32"))
    body = Apply("matmul", (x, const(np.ones((64, 24), np.float32))))
    _, code = text_and_assembly("cpu:neoverse-n1", (x,), body)
    assert not SPILLED.search(code)


def test_products_take_lanes_of_elements_that_are_read_together() -> None:
    x = Var(Name("x"), tensor((1, 64, 15, 15), "f32"))
    attrs = (("dilation", 1), ("groups", 1), ("padding", 0), ("strides", 2))
    weight = const(np.ones((64, 64, 3, 3), np.float32))
    text, code = text_and_assembly("cpu:neoverse-n1", (x,), Apply("nn.conv", (x, weight), attrs))
    assert "extractelement <4 x float>" in text
    assert re.search(r"fmla\s+v\d+\.4s, v\d+\.4s, v\d+\.s\[2\]", code)
    assert "ld1r" not in code
    text, _ = text_and_assembly("cpu:x86-64-v3", (x,), Apply("nn.conv", (x, weight), attrs))
    assert "extractelement <8 x float>" not in text  # it broadcasts what it reads
