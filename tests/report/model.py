"""Small models, read from ONNX and compiled, for the tests of reports."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import onnx

from plica.codegen.llvm.processor import find_target
from plica.frontend.onnx.origin import OnnxReading, read_onnx
from plica.frontend.onnx.writer import to_onnx
from plica.report import StudiedModel, Study, compiled, examine
from tests.frontend.zoo.small import SMALL


def model_file(name: str, folder: Path) -> Path:
    """A network as a file."""
    path = folder / f"{name}.onnx"
    onnx.save(to_onnx(SMALL[name]()), path)
    return path


@cache
def read_small(name: str) -> OnnxReading:
    """A network as it is read back."""
    return read_onnx(to_onnx(SMALL[name]()))


@cache
def compiled_small(name: str) -> StudiedModel:
    """A network compiled for one thread of this machine."""
    return compiled(name, read_small(name), find_target("cpu"))


@cache
def studied(name: str) -> Study:
    """All there is to say of a network."""
    return examine(compiled_small(name))
