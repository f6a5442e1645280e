"""Hostile files are refused, quickly and without memory; damaged ones are refused or read."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from hypothesis import settings
from onnx import ModelProto, helper

from plica.frontend.onnx import from_onnx
from plica.runtime.error import PlicaError
from tests.frontend.onnx.build import f32_like, model, one
from tests.frontend.onnx.hostile import CASES, loop

ROOT: Final = Path(__file__).parents[3]
CHANGED: Final = min(2_000, 12 * settings().max_examples)


@cache
def outcomes() -> dict[str, str]:
    """What becomes of each model, in a process whose memory and time are limited."""
    command = [sys.executable, "-m", "tests.frontend.onnx.hostile"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout[-200:], done.stderr[-2000:])
    return dict(line.split(" ", maxsplit=1) for line in done.stdout.splitlines())


@pytest.mark.skipif(sys.platform != "linux", reason="limits of a process are read as on Linux")
@pytest.mark.parametrize("name", CASES)
def test_a_hostile_model_is_refused(name: str) -> None:
    assert outcomes()[name] != "read"


def valid() -> list[bytes]:
    """Five models of different kinds."""
    image, weight = f32_like(1, 2, 5, 5), f32_like(3, 2, 3, 3)
    scale = np.asarray(1.5, np.float32), np.asarray(7, np.uint8)
    shaped = model(
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Gather", ["s", "at"], ["n"]),
            helper.make_node("Concat", ["n", "rest"], ["t"], axis=0),
            helper.make_node("Reshape", ["x", "t"], ["y"]),
        ],
        {"x": ("float32", ["n", 4, 6])},
        ["y"],
        {"at": np.asarray([0]), "rest": np.asarray([-1])},
    )
    made: list[ModelProto] = [
        one("Conv", [image, weight], stored=1, pads=[1, 1, 1, 1]),
        one("Gemm", [f32_like(2, 3), f32_like(3, 4), f32_like(4)], stored=2, alpha=0.5),
        shaped,
        loop([helper.make_node("Relu", ["a"], ["b"])], 3),
        one("QuantizeLinear", [f32_like(2, 6), *scale], stored=2),
    ]
    return [each.SerializeToString() for each in made]


def test_changed_bytes_are_refused_or_read_and_nothing_else() -> None:
    draw = random.Random(7)
    models = valid()
    for turn in range(CHANGED):
        data = bytearray(models[turn % len(models)])
        for _ in range(draw.randrange(1, 5)):
            at = draw.randrange(len(data))
            match draw.randrange(4):
                case 0:
                    del data[at : at + draw.randrange(1, 9)]
                case 1:
                    data[at:at] = draw.randbytes(draw.randrange(1, 9))
                case 2:
                    data[at] ^= 1 << draw.randrange(8)
                case _:
                    data[at] = draw.choice((0, 1, 127, 128, 255))
        with suppress(PlicaError):
            from_onnx(bytes(data))


def test_truncated_files_are_refused_or_read_and_nothing_else() -> None:
    for data in valid():
        for end in range(0, len(data), max(1, len(data) // 40)):
            with suppress(PlicaError):
                from_onnx(data[:end])


def test_files_with_every_length_of_one_field_are_no_surprise() -> None:
    whole = one("Relu", [f32_like(2, 3)]).SerializeToString()
    for at in range(len(whole)):
        for length in (0, 127, 255):
            with suppress(PlicaError):
                from_onnx(whole[:at] + bytes([length]) + whole[at + 1 :])
