"""The version that artefacts and records say they were made by."""

from __future__ import annotations

from importlib import import_module


def version() -> str:
    """The version of Plica, which the face of the package alone states."""
    return str(import_module(__name__.partition(".")[0]).__version__)
