"""Front ends of libraries: readers of other formats of models, found by entry point.

A library names a `FrontEnd` under the entry-point group `plica.frontends`.  Then `plica.compile`
and every command read files that end in one of its suffixes.

>>> FrontEnd("acme", "Models of acme.", ("acme",), lambda path: None)
Traceback (most recent call last):
plica.runtime.error.UnsupportedError: A suffix begins with a dot. [broken-extension]
  expected: such as .acme
  found: 'acme'
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Final

from attrs import frozen

from plica.core.extension import ExtensionGroup
from plica.ir.graph.module import Module
from plica.runtime.error import Diagnostic, UnsupportedError

OWN_SUFFIXES: Final = (".onnx", ".py")  # what Plica reads itself


@frozen
class FrontEnd:
    """A name, a line about it, the suffixes of its files, and what reads one as a module."""

    name: str
    about: str
    suffixes: tuple[str, ...]
    read: Callable[[Path], Module]

    def __attrs_post_init__(self) -> None:
        for suffix in self.suffixes:
            if not suffix.startswith("."):
                message = "A suffix begins with a dot."
                told = Diagnostic("broken-extension", message, None, "such as .acme", repr(suffix))
                raise UnsupportedError(told)


def _stablehlo(path: Path) -> Module:
    from plica.frontend.stablehlo import from_stablehlo  # a program that is read has one format

    return from_stablehlo(path)


def _tflite(path: Path) -> Module:
    from plica.frontend.tflite import from_tflite  # as above

    return from_tflite(path)


OWN: Final = (
    FrontEnd("stablehlo", "StableHLO, text or bytecode.", (".mlir", ".mlirbc"), _stablehlo),
    FrontEnd("tflite", "TFLite flatbuffers.", (".tflite",), _tflite),
)
"""Plica's own front ends that only files tell apart."""

FRONT_ENDS: Final = ExtensionGroup(
    "plica.frontends", "front end", FrontEnd, named=lambda each: each.name, error=UnsupportedError
)
"""The front ends that libraries offer, by name."""


def front_end_of(path: object) -> FrontEnd | None:
    """The front end that reads a file, by its suffix; two for one suffix are refused.

    What Plica reads by other means no library reads.
    """
    if not isinstance(path, str | PathLike):
        return None
    suffix = Path(path).suffix
    if suffix in OWN_SUFFIXES or not suffix:
        return None
    fit = [front_end for front_end in (*OWN, *FRONT_ENDS.all()) if suffix in front_end.suffixes]
    if len(fit) > 1:
        message = f"Two front ends read files that end in {suffix}."
        points = FRONT_ENDS.points()
        found = " and ".join(f"{end.name} of {points.get(end.name, 'Plica')}" for end in fit)
        raise UnsupportedError.of("name-clash", message, None, "one", found)
    return fit[0] if fit else None
