"""The functional simulator: the same as one element after the other; nothing outside is touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.accel.declaration import Accelerator, Move, Sweep
from plica.codegen.accel.device import run
from plica.codegen.accel.encode import decode_micro, read_stream
from plica.codegen.accel.instruction import MICRO, Stream, values
from plica.codegen.accel.meaning import apply
from plica.codegen.accel.vta import vta
from plica.core.diagnostic import EvaluationError
from plica.runtime.error import InputError
from tests.codegen.accel.machines import FEW, MACHINES, NAMES, filled, streams

Array = np.ndarray[Any, Any]


def slowly(machine: Accelerator, stream: Stream, given: dict[str, Array]) -> dict[str, Array]:
    """The meaning, an element at a time."""
    held = {
        each.name: np.zeros((each.depth, *each.shape), each.dtype.numpy) for each in machine.scopes
    }
    memory = bytearray(1 << 16)

    def span(name: str, at: int) -> slice:
        size = machine.scope(name).bytes
        return slice(at * size, (at + 1) * size)

    for tensor in stream.tensors:
        source = np.array(stream.micro, np.uint32) if tensor.name == MICRO else given[tensor.name]
        for at in range(tensor.elements):
            memory[span(tensor.scope, tensor.at + at)] = source[at].tobytes()
    for each in stream.code:
        value, does = values(machine, each), machine.operation(each.name).does
        if isinstance(does, Move):
            scope = machine.scope(does.scope)
            rows = value[does.rows] if does.rows else 1
            width = value[does.width]
            stride = value[does.stride] if does.stride else width
            pads = [value[word] for word in does.pads] or [0] * 4
            at = value[does.sram]
            for row in range(-pads[0], rows + pads[1]):
                for column in range(-pads[2], width + pads[3]):
                    there = span(does.memory, value[does.dram] + row * stride + column)
                    if does.way == "out":
                        memory[there] = held[does.scope][at].tobytes()
                    elif 0 <= row < rows and 0 <= column < width:
                        kind = machine.scope(does.memory).dtype.numpy
                        element = np.frombuffer(bytes(memory[there]), kind)
                        held[does.scope][at] = element.reshape(scope.shape)
                    else:
                        held[does.scope][at] = 0
                    at += 1
        elif isinstance(does, Sweep):
            outer = value[does.loops[0]]
            inner = value[does.loops[1]] if len(does.loops) > 1 else 1
            words = [value]
            if does.micro and machine.micro is not None:
                first, last = (value[word] for word in does.micro)
                uops = held[machine.micro.scope][first:last]
                words = [decode_micro(machine, int(word)) for word in uops]
            for i in range(outer):
                for j in range(inner):
                    for word in words:
                        turn = (i, j)[: len(does.loops)]

                        def place(
                            reach: Any, word: Any = word, turn: Any = turn, value: Any = value
                        ) -> int:
                            steps = zip(reach.strides, turn, strict=True)
                            return int(word[reach.base] + sum(value[s] * t for s, t in steps))

                        inputs = [held[r.scopes[0]][[place(r)]] for r in does.reads]
                        result = apply(does.meaning, inputs, value)[0]
                        for name in does.writes.scopes:
                            held[name][place(does.writes)] = result.astype(held[name].dtype)
    found: dict[str, Array] = {}
    for tensor in stream.tensors:
        scope = machine.scope(tensor.scope)
        whole = memory[tensor.at * scope.bytes : (tensor.at + tensor.elements) * scope.bytes]
        shape = (tensor.elements, *scope.shape)
        found[tensor.name] = np.frombuffer(bytes(whole), scope.dtype.numpy).reshape(shape)
    return found


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
@settings(max_examples=FEW)
@given(data=st.data())
def test_at_once_is_one_after_the_other(machine: Accelerator, data: st.DataObject) -> None:
    stream = data.draw(streams(machine))
    given_values = filled(machine, stream)
    found, expected = run(machine, stream, given_values), slowly(machine, stream, given_values)
    for name in expected:
        assert np.array_equal(found[name], expected[name]), name


HEAD = ".tensor x acc 0 2\n.tensor y out 8 2\n.tensor micro uop 256 1\n.micro\n"
HEAD += "load.uop dram=256 y_size=1 x_size=1\nload.acc y_size=1 x_size=2\n"
TAIL = "store.out dram=8 y_size=1 x_size=2\nfinish"
SWEEP = "uop_end=1 iter_out=2 iter_in=1 dst_out=1 src_out=1"


@pytest.mark.parametrize(
    ("name", "imm", "meaning"),
    [
        ("min", 5, lambda x: np.minimum(x, 5)),
        ("max", -5, lambda x: np.maximum(x, -5)),
        ("add", 7, lambda x: x + 7),
        ("mul", -3, lambda x: x * -3),
        ("shr", 2, lambda x: x >> 2),
        ("shr", -2, lambda x: x << 2),
        ("shr", 40, lambda x: x >> 31),
    ],
)
def test_vector_operations(name: str, imm: int, meaning: Any) -> None:
    x = np.arange(-16, 16, dtype=np.int32).reshape(2, 1, 16) * 1000003
    stream = read_stream(vta(), HEAD + f"alu.{name}.imm {SWEEP} imm={imm}\n" + TAIL)
    with np.errstate(over="ignore"):
        expected = meaning(x).astype(np.int8)
    assert np.array_equal(run(vta(), stream, {"x": x})["y"], expected)


def test_sums_are_loaded_from_eight_bits_with_strides_and_pads() -> None:
    x = np.random.default_rng(3).integers(-128, 128, (12, 1, 16)).astype(np.int8)
    code = """
.tensor x out 0 12
.tensor y out 16 20
.tensor micro uop 256 1
.micro
load.uop dram=256 y_size=1 x_size=1
load.acc.out dram=1 y_size=2 x_size=3 x_stride=4 y_pad_0=1 y_pad_1=1 x_pad_0=1 x_pad_1=1
alu.add.imm uop_end=1 iter_out=20 iter_in=1 dst_out=1 src_out=1 imm=1
store.out dram=16 y_size=1 x_size=20
finish"""
    rows = x.reshape(3, 4, 16)[:2, 1:4]
    padded = np.pad(rows, ((1, 1), (1, 1), (0, 0))).astype(np.int32) + 1
    found = run(vta(), read_stream(vta(), code), {"x": x})["y"]
    assert np.array_equal(found, padded.astype(np.int8).reshape(20, 1, 16))


def test_an_access_outside_of_a_scope_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="outside of inp"):
        run(
            vta(), read_stream(vta(), ".tensor x inp 0 9\nload.inp sram=2047 y_size=1 x_size=2"), {}
        )
    with pytest.raises(EvaluationError, match="outside of acc"):
        run(
            vta(),
            read_stream(vta(), HEAD + "alu.add uop_end=1 iter_out=3 iter_in=1 dst_out=1024"),
            {},
        )


def test_an_access_outside_of_memory_is_an_error() -> None:
    with pytest.raises(EvaluationError, match="outside of memory"):
        run(vta(), read_stream(vta(), ".tensor x inp 0 1\nload.inp y_size=1 x_size=2"), {})


def test_tensors_are_known_and_have_their_size() -> None:
    stream = read_stream(vta(), ".tensor x inp 0 1\nfinish")
    with pytest.raises(InputError, match="no tensor 'z'"):
        run(vta(), stream, {"z": np.zeros(16)})
    with pytest.raises(InputError, match="wrong size"):
        run(vta(), stream, {"x": np.zeros(15)})
    with pytest.raises(InputError, match="wrong element type") as refused:
        run(vta(), stream, {"x": np.full(16, 300.7)})
    assert refused.value.code == "input-dtype"
