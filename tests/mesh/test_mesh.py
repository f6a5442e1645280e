"""Meshes and placements: texts round-trip, blocks tile a tensor, nonsense is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.mesh.exchange import exchanges
from plica.mesh.execute import SimulatedDevices, blocks
from plica.mesh.mesh import (
    REPLICATED,
    Layout,
    Mesh,
    parse_layout,
    parse_placement,
    partial,
    show_layout,
    split,
)
from plica.runtime.error import InputError

MESHES = st.lists(st.integers(1, 3), min_size=1, max_size=3).map(
    lambda sizes: Mesh(tuple((f"a{at}", size) for at, size in enumerate(sizes)))
)


@st.composite
def layouts(draw: st.DrawFn, mesh: Mesh, rank: int = 2, partials: bool = False) -> Layout:
    options = [REPLICATED, *map(split, range(rank)), *([partial("sum")] if partials else [])]
    return tuple(draw(st.sampled_from(options)) for _ in mesh.axes)


@given(MESHES)
def test_a_mesh_reads_back(mesh: Mesh) -> None:
    assert Mesh.parse(str(mesh)) == mesh
    assert len({mesh.coordinates(device) for device in range(mesh.devices)}) == mesh.devices
    for axis, size in enumerate(mesh.sizes):
        assert all(len(mesh.group(d, axis)) == size and d in mesh.group(d, axis)
                   for d in range(mesh.devices))  # fmt: skip


@given(st.data(), MESHES)
def test_layouts_read_back_and_blocks_tile(data: st.DataObject, mesh: Mesh) -> None:
    layout = data.draw(layouts(mesh))
    assert parse_layout(show_layout(layout, mesh), mesh) == layout
    size = math.prod(mesh.sizes)
    array = np.arange(size * size).reshape(size, size)
    found = np.empty_like(array)
    for device, part in blocks(mesh, array, layout, range(mesh.devices)).items():
        found[mesh.block(array.shape, layout, device)] = part
    np.testing.assert_array_equal(found, array)


@given(st.data(), MESHES)
def test_exchanges_lead_from_any_layout_to_any_other(data: st.DataObject, mesh: Mesh) -> None:
    held = data.draw(layouts(mesh, partials=True))
    wanted = data.draw(layouts(mesh))
    size = mesh.devices
    array = np.arange(size * size, dtype=np.float64).reshape(size, size)
    plain = tuple(REPLICATED if p.kind == "partial" else p for p in held)
    values = dict(blocks(mesh, array, plain, range(size)))
    for axis, placement in enumerate(held):
        if placement.kind == "partial":  # the term of device 0 is all, those of others are zeros
            values = {d: v * (mesh.coordinates(d)[axis] == 0) for d, v in values.items()}
    medium = SimulatedDevices(tuple(range(size)))
    for collective in exchanges(held, wanted):
        values = medium.exchange(mesh, collective, values)
    for device, expected in blocks(mesh, array, wanted, range(size)).items():
        np.testing.assert_array_equal(values[device], expected)


@pytest.mark.parametrize("text", ["", "data", "data=0", "data=2,data=2", "a b=2", "x=99999999"])
def test_what_is_no_mesh_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="bad-mesh"):
        Mesh.parse(text)


@pytest.mark.parametrize("text", ["split", "split x", "partial mean", "whole"])
def test_what_is_no_placement_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="bad-placement"):
        parse_placement(text)


def test_an_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="no axis 'model'"):
        parse_layout("model: split 0", Mesh.parse("data=2"))
