"""Devices in artefacts: they read back, words decode to what was encoded, damage is told."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.accel.device import coded, device_of, run
from plica.codegen.accel.encode import to_bytes
from plica.codegen.accel.instruction import AccelInstruction
from plica.codegen.accel.vta import vta
from plica.runtime.accel.device import AccelDevice, decoded
from plica.runtime.accel.functional import AccelProgram, MemorySpan, Simulator
from plica.runtime.error import ArtefactError, PlicaError
from plica.runtime.typed_json import plain, read
from tests.codegen.accel.machines import FEW, MACHINES, NAMES, filled, instructions, streams


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
def test_a_device_reads_back(machine: Any) -> None:
    device = device_of(machine)
    assert read(AccelDevice, json.loads(json.dumps(plain(device)))) == device


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
def test_words_decode_to_their_operands(machine: Any) -> None:
    @settings(max_examples=FEW)
    @given(code=st.lists(instructions(machine), max_size=4))
    def holds(code: list[AccelInstruction]) -> None:
        words = to_bytes(machine, code)
        assert tuple(decoded(device_of(machine), words)) == coded(machine, code)

    holds()


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
def test_a_device_that_was_read_runs_the_same(machine: Any) -> None:
    again = read(AccelDevice, json.loads(json.dumps(plain(device_of(machine)))))

    @settings(max_examples=FEW)
    @given(data=st.data())
    def holds(data: st.DataObject) -> None:
        stream = data.draw(streams(machine))
        tensors = filled(machine, stream)
        rooms = tuple([MemorySpan(e.name, e.scope, e.at, e.elements) for e in stream.tensors])
        code = decoded(again, to_bytes(machine, stream.code))
        simulator = Simulator(AccelProgram(again, code, stream.micro, rooms))
        wanted = run(machine, stream, tensors)
        for _ in range(2):  # what is remembered changes nothing
            found = simulator.run(tensors)
            assert all(np.array_equal(found[name], wanted[name]) for name in wanted)

    holds()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x00" * 15, "no whole number of words"),
        (b"\xff" * 16, "no operation of the machine"),
        (b"\x83" + b"\x00" * 15, "Bits that finish does not use"),
    ],
)
def test_a_corrupt_word_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ArtefactError, match=message) as refused:
        decoded(device_of(vta()), data)
    assert refused.value.code == "bad-instruction"


def paths(of: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of a value of JSON; its depth is that of a device."""
    items = of.items() if isinstance(of, dict) else enumerate(of) if isinstance(of, list) else ()
    found = [at]
    for key, inside in items:
        found += paths(inside, (*at, key))
    return found


PLAIN = json.loads(json.dumps(plain(device_of(vta()))))
PLACES = paths(PLAIN)[1:]


@settings(max_examples=4 * FEW)
@given(
    place=st.sampled_from(PLACES),
    value=st.sampled_from([None, -1, 1 << 40, 3, "x", [], {}, [[]], True, 0.5]),
)
def test_a_changed_device_is_refused_or_runs_within_its_bounds(
    place: tuple[Any, ...], value: object
) -> None:
    changed = json.loads(json.dumps(PLAIN))
    inside = changed
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    try:
        device = read(AccelDevice, changed)
    except ArtefactError:
        return
    copies = [n for n, each in enumerate(device.kinds) if each.name in ("load.inp", "gemm")]
    code = tuple([(n, (1,) * len(device.kinds[n].operands)) for n in copies])
    rooms = tuple([MemorySpan("x", each.name, 0, 4) for each in device.memories[:1]])
    try:
        Simulator(AccelProgram(device, code, (), rooms)).run({})
    except PlicaError:
        return
