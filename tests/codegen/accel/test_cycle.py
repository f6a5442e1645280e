"""The cycle simulator: laws of time, exact small cases, and what can be looked at."""

from __future__ import annotations

import json

import pytest
from attrs import evolve
from hypothesis import given, settings, strategies as st

from plica.codegen.accel.cycle import chrome_trace, peak, roofline, simulate
from plica.codegen.accel.declaration import Accelerator, Timing
from plica.codegen.accel.encode import read_stream
from plica.codegen.accel.order import matched
from plica.codegen.accel.token import insert
from plica.codegen.accel.vta import osdi, vta
from tests.codegen.accel.machines import FEW, MACHINES, NAMES, streams


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
@settings(max_examples=FEW)
@given(data=st.data())
def test_time_keeps_the_order_of_units_and_tokens(
    machine: Accelerator, data: st.DataObject
) -> None:
    stream = insert(machine, data.draw(streams(machine)))
    timed = simulate(machine, stream)
    last = dict.fromkeys(range(len(machine.units)), 0)
    for unit, start, end in zip(timed.units, timed.starts, timed.ends, strict=True):
        assert last[unit] <= start <= end
        last[unit] = end
    for token in matched(machine, stream.code):
        assert token.push is not None
        assert token.pop is not None
        assert timed.ends[token.push] <= timed.starts[token.pop]
    for name in machine.units:
        waited = sum(cycles for why, cycles in timed.stalled[name].items() if why != "port")
        assert timed.busy[name] + waited == timed.cycles


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
@settings(max_examples=FEW)
@given(data=st.data())
def test_without_tokens_it_is_not_slower(machine: Accelerator, data: st.DataObject) -> None:
    """With a port for each unit nothing but tokens makes one wait for another."""
    wide = evolve(machine, timing=evolve(machine.timing, ports=len(machine.units)))
    bare = data.draw(streams(machine))
    free, kept = simulate(wide, bare), simulate(wide, insert(wide, bare))
    assert free.cycles <= kept.cycles
    assert max(free.busy.values()) <= free.cycles


def test_rows_of_two_units_take_turns() -> None:
    text = "load.inp y_size=2 x_size=4\nstore.out dram=64 y_size=2 x_size=4"
    timed = simulate(vta(), read_stream(vta(), text))
    # 4 + 64 to the first beat, then rows of 16 cycles: load, store, load, store.
    assert timed.ends == (68 + 48, 68 + 64)
    assert timed.stalled["store"]["port"] + timed.stalled["load"]["port"] == 16 + 16 + 16
    twice = evolve(vta(), timing=Timing(ports=2))
    assert simulate(twice, read_stream(twice, text)).ends == (68 + 32, 68 + 32)


def test_sweeps_and_pads() -> None:
    text = ".tensor micro uop 0 1\n.micro\nload.uop y_size=1 x_size=1\n"
    text += "gemm uop_end=1 iter_out=10 iter_in=3 dst_out=3 dst_in=1\n"
    text += "alu.add uop_end=1 iter_out=10 iter_in=3 dst_out=3 dst_in=1"
    timed = simulate(vta(), read_stream(vta(), text))
    lengths = [end - start for start, end in zip(timed.starts, timed.ends, strict=True)]
    assert lengths[1:] == [4 + 30 + 8, 4 + 60 + 8]
    assert (timed.turns, timed.operations) == (30, 30 * 512)
    padded = "load.inp y_size=1 x_size=4 y_pad_0=1 x_pad_1=1"
    assert simulate(vta(), read_stream(vta(), padded)).cycles == 68 + 16 + 6


def test_stalls_have_reasons() -> None:
    text = "load.inp y_size=1 x_size=1 !push_next\nload.uop !pop_prev"
    timed = simulate(vta(), read_stream(vta(), text))
    assert timed.stalled["compute"]["token"] == timed.ends[0]
    many = "\n".join(["load.inp !push_next"] * 10 + ["load.acc y_size=9 x_size=9"])
    full = simulate(vta(), read_stream(vta(), many + "\nload.uop !pop_prev" * 10))
    assert full.stalled["load"]["queue-full"] > 0


def test_a_trace_has_every_instruction() -> None:
    stream = read_stream(vta(), "load.inp y_size=1 x_size=1 !push_next\nload.uop !pop_prev")
    events = json.loads(chrome_trace(vta(), stream, simulate(vta(), stream)))["traceEvents"]
    spans = [each for each in events if each["ph"] == "X"]
    assert [each["name"] for each in spans] == ["load.inp", "load.uop"]
    assert spans[1]["ts"] == spans[0]["dur"]


def test_the_roofline_is_a_page_of_its_own() -> None:
    assert peak(osdi()) == 512
    stream = read_stream(osdi(), "load.inp y_size=1 x_size=1")
    text = ".tensor micro uop 0 1\n.micro\nload.uop y_size=1 x_size=1\n"
    both = read_stream(osdi(), text + "gemm uop_end=1 iter_out=100 iter_in=1 dst_out=1")
    page = roofline(osdi(), [("a<b", simulate(osdi(), stream)), ("c", simulate(osdi(), both))])
    assert "102.4 GOP/s, 1.60 GB/s" in page
    assert "a&lt;b" in page
    assert page.count("<circle") == 1
    assert "http" not in page
