"""Features: the same names for all streams of a machine, and cycles that bound the time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.accel.cycle import simulate
from plica.codegen.accel.declaration import Accelerator
from plica.codegen.accel.feature import features
from plica.codegen.accel.instruction import Stream
from plica.codegen.accel.token import insert
from tests.codegen.accel.machines import FEW, MACHINES, NAMES, streams


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
@settings(max_examples=FEW)
@given(data=st.data())
def test_cycles_of_units_bound_the_time(machine: Accelerator, data: st.DataObject) -> None:
    stream = insert(machine, data.draw(streams(machine)))
    found = features(machine, stream)
    assert list(found) == list(features(machine, Stream(())))
    timed = simulate(machine, stream)
    each = [found[f"{unit} cycles"] for unit in machine.units]
    assert max(each) <= timed.cycles <= sum(each)
