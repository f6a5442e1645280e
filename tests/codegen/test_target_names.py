"""Names of targets: every way to say one knows all that are registered, and what comes near."""

from __future__ import annotations

from argparse import Namespace

import pytest

import plica
from plica.cli.compile_ import find_machine
from plica.codegen.backend import TARGETS, backend_named, find_target
from plica.codegen.target import Target
from plica.demo.cnn_script import cnn
from plica.runtime.error import UnsupportedError


def asked(target: str) -> object:
    return find_machine(Namespace(target=target, cpu=None, features=None))


@pytest.mark.parametrize("name", sorted(TARGETS.own))
def test_the_command_knows_every_target_as_it_is_written(name: str) -> None:
    for each in (name, *backend_named(name).spellings):
        assert asked(each) == each
        assert find_target(each).backend == name


def test_triples_are_processors() -> None:
    for each in ("aarch64-unknown-linux-gnu", "x86_64-linux", "wasm32-unknown-unknown"):
        found = asked(each)
        assert isinstance(found, Target)
        assert found.triple == each


@pytest.mark.parametrize(
    ("typo", "near"),
    [
        ("cuda-emulatr", "cuda-emulator"),
        ("cuda-emulatr:sm_80", "cuda-emulator"),
        ("micor", "micro"),
    ],
)
def test_a_slip_of_the_pen_gets_the_list(typo: str, near: str) -> None:
    name = asked(typo)
    assert name == typo
    with pytest.raises(UnsupportedError) as raised:
        find_target(typo)
    (said,) = raised.value.diagnostics
    assert said.expected == ", ".join(TARGETS.points())
    assert said.suggestion == f"Did you mean {near!r}?"


@pytest.mark.parametrize(
    ("text", "near"),
    [("CUDA", "cuda"), ("micro:", "micro"), ("c:99", "c"), ("webgpu:1", "webgpu"), ("cpu:", "cpu")],
)
def test_compile_tells_all_targets_and_the_nearest(text: str, near: str) -> None:
    with pytest.raises(UnsupportedError) as raised:
        plica.compile(cnn, target=text)
    (said,) = raised.value.diagnostics
    assert said.expected == ", ".join(TARGETS.points())
    assert said.suggestion == f"Did you mean {near!r}?"


@pytest.mark.parametrize(
    "target", ["c", "micro:cortex-m3", "wasm", "cuda:sm_80", "opencl", "metal"]
)
def test_options_of_processors_are_for_processors(target: str) -> None:
    with pytest.raises(UnsupportedError, match="is for the target 'cpu'") as raised:
        find_machine(Namespace(target=target, cpu="cortex-m4", features=None))
    assert target.partition(":")[0] in raised.value.diagnostics[0].message
