"""Artefacts with layers on an accelerator: what is written reads back, what is damaged is told."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica.ir.type.infer import infer
from plica.runtime.accel.artefact import NAME, from_members, to_members
from plica.runtime.accel.executable import AccelExecutable, executable
from plica.runtime.error import ArtefactError, PlicaError
from plica.runtime.link import can_link
from plica.runtime.load import executable as native
from tests.codegen.accel.machines import FEW
from tests.codegen.accel.network import Layers, given as an_input, network

pytestmark = pytest.mark.skipif(not can_link(), reason="object files are not loaded here")


@pytest.fixture(scope="module")
def made() -> AccelExecutable:
    x = an_input((1, 16, 3, 3))
    found = plica.compile(network((x,), Layers(0).conv(x, 16)), target="accel")
    assert isinstance(found, AccelExecutable)
    return found


def image() -> np.ndarray[Any, Any]:
    return np.arange(144, dtype=np.int8).reshape(1, 16, 3, 3)


def sealed(members: dict[str, bytes], manifest: Any) -> dict[str, bytes]:
    """The members with a manifest whose digests are right: what a careful forger writes."""
    rest = {name: data for name, data in members.items() if name != NAME}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in rest.items()}
    manifest = {**manifest, "members": digests}
    return {NAME: json.dumps(manifest).encode(), **rest}


def test_what_is_written_reads_back(made: AccelExecutable) -> None:
    members = to_members(made.whole)
    again = from_members(members)
    assert to_members(again) == members
    assert again.module == plica.digest(infer(made_of()))
    assert np.array_equal(executable(again, native)(image()), made(image()))


def made_of() -> Any:
    x = an_input((1, 16, 3, 3))
    return network((x,), Layers(0).conv(x, 16))


def test_a_newer_format_is_told(made: AccelExecutable) -> None:
    members = to_members(made.whole)
    manifest = json.loads(members[NAME])
    with pytest.raises(ArtefactError, match="newer version") as refused:
        from_members(sealed(members, {**manifest, "format": 99}))
    assert refused.value.code == "newer-version"


@pytest.mark.parametrize("name", ["code/0.words", "accel.bin", "part/0/manifest.json"])
def test_a_changed_member_is_told(made: AccelExecutable, name: str) -> None:
    members = to_members(made.whole)
    changed = {**members, name: members[name][:-1] + bytes([members[name][-1] ^ 1])}
    with pytest.raises(ArtefactError, match="not those its manifest lists"):
        from_members(changed)
    missing = {each: data for each, data in members.items() if each != name}
    with pytest.raises(ArtefactError):
        from_members(missing)


def test_a_corrupt_word_is_told_when_it_is_loaded(made: AccelExecutable) -> None:
    members = to_members(made.whole)
    words = members["code/0.words"]
    changed = {**members, "code/0.words": words[:-16] + b"\xff" * 16}
    read = from_members(sealed(changed, json.loads(members[NAME])))
    with pytest.raises(ArtefactError, match="no operation of the machine"):
        executable(read, native)


KEYS = ("programs", "steps", "outputs", "constants", "parts", "interface", "megahertz", "target")


@settings(max_examples=4 * FEW)
@given(data=st.data())
def test_a_forged_manifest_is_refused_or_runs_within_its_bounds(
    made: AccelExecutable, data: st.DataObject
) -> None:
    members = to_members(made.whole)
    manifest = json.loads(members[NAME])
    inside, key = manifest, data.draw(st.sampled_from(KEYS))
    while isinstance(inside[key], list | dict) and inside[key] and data.draw(st.integers(0, 5)):
        inside = inside[key]
        keys = list(inside) if isinstance(inside, dict) else range(len(inside))
        key = data.draw(st.sampled_from(list(keys)))
    inside[key] = data.draw(st.sampled_from([None, -1, 1, 1 << 50, "x", [], [1, 2], {}, True]))
    try:
        executable(from_members(sealed(members, manifest)), native)(image())
    except PlicaError:
        return
