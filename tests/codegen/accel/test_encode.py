"""Encoding and assembly: both round trips on any machine, exact widths, and corrupt words."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.codegen.accel.declaration import Accelerator
from plica.codegen.accel.encode import (
    decode,
    encode,
    from_bytes,
    read,
    read_stream,
    show,
    show_stream,
    to_bytes,
)
from plica.codegen.accel.instruction import AccelInstruction, BadInstruction, instruction
from plica.codegen.accel.vta import vta
from tests.codegen.accel.machines import MACHINES, NAMES, instructions, streams


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
@given(data=st.data())
def test_encoding_and_text_read_back(machine: Accelerator, data: st.DataObject) -> None:
    each = data.draw(instructions(machine))
    word = encode(machine, each)
    assert decode(machine, word) is each
    assert read(machine, show(machine, each)) is each


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
@given(data=st.data())
def test_a_word_is_refused_or_means_itself(machine: Accelerator, data: st.DataObject) -> None:
    word = data.draw(st.integers(0, (1 << machine.bits) - 1))
    try:
        each = decode(machine, word)
    except BadInstruction:
        return
    assert encode(machine, each) == word


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
@given(data=st.data())
def test_a_changed_bit_is_another_word(machine: Accelerator, data: st.DataObject) -> None:
    each = data.draw(instructions(machine))
    word = encode(machine, each) ^ 1 << data.draw(st.integers(0, machine.bits - 1))
    try:
        found = decode(machine, word)
    except BadInstruction:
        return
    assert found is not each


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
@given(data=st.data())
def test_streams_read_back(machine: Accelerator, data: st.DataObject) -> None:
    stream = data.draw(streams(machine))
    assert read_stream(machine, show_stream(machine, stream)) is stream
    assert from_bytes(machine, to_bytes(machine, stream.code)) == stream.code


def test_fields_lie_where_the_specification_says() -> None:
    machine = vta()
    places = {
        each.name: {field.name: (field.at, field.bits) for field in each.fields}
        for each in machine.operations
    }
    memory = {"memory": (7, 3), "sram": (10, 16), "dram": (26, 32), "y_size": (64, 16)}
    memory |= {"x_size": (80, 16), "x_stride": (96, 16), "y_pad_0": (112, 4), "x_pad_1": (124, 4)}
    assert memory.items() <= places["load.inp"].items()
    gemm = {"reset": (7, 1), "uop_bgn": (8, 13), "uop_end": (21, 14), "iter_out": (35, 14)}
    gemm |= {"iter_in": (49, 14), "dst_out": (64, 11), "dst_in": (75, 11), "src_out": (86, 11)}
    gemm |= {"src_in": (97, 11), "wgt_out": (108, 10), "wgt_in": (118, 10)}
    assert gemm.items() <= places["gemm"].items()
    alu = {"op": (108, 3), "use_imm": (111, 1), "imm": (112, 16)}
    assert alu.items() <= places["alu.min.imm"].items()
    assert machine.micro is not None
    micro = [(field.name, field.at, field.bits) for field in machine.micro.fields]
    assert micro == [("dst", 0, 11), ("src", 11, 11), ("wgt", 22, 10)]


def test_a_negative_immediate_is_kept() -> None:
    each = instruction(vta(), "alu.max.imm", imm=-128)
    assert encode(vta(), each) >> 112 == 0xFF80
    assert decode(vta(), encode(vta(), each)) is each


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (1 << 128, "has 128 bits"),
        (5, "no operation"),
        (3 | 1 << 100, "does not use"),
        (1 | 4 << 7 | 1 << 6, "no such queue"),
    ],
)
def test_a_corrupt_word_is_refused(word: int, message: str) -> None:
    with pytest.raises(BadInstruction, match=message):
        decode(vta(), word)


def test_half_a_word_is_refused() -> None:
    with pytest.raises(BadInstruction, match="whole number of words"):
        from_bytes(vta(), bytes(15))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lod.inp", "Did you mean 'load.inp'"),
        ("load.inp x=1", "no operand 'x'"),
        ("load.inp sram=a", "is no number"),
        ("load.inp sram=1 sram=1", "twice"),
        ("load.inp sram=65536", "does not fit"),
        ("load.inp !push", "no flag"),
        ("load.inp !push_prev", "no such queue"),
        (".tensor x", "a name, a scope"),
    ],
)
def test_a_wrong_line_is_refused(line: str, message: str) -> None:
    with pytest.raises(BadInstruction, match=message):
        read_stream(vta(), line)


def test_micro_operations_are_for_machines_that_have_them() -> None:
    with pytest.raises(BadInstruction, match="no micro-operations"):
        read_stream(MACHINES[3], ".micro dst=1")


def test_wrong_operands_are_refused() -> None:
    with pytest.raises(BadInstruction, match="no operand 'widht'"):
        instruction(vta(), "load.inp", widht=1)
    with pytest.raises(BadInstruction, match="other operands"):
        encode(vta(), AccelInstruction("load.inp", (1,)))
