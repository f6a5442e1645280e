"""Verifies the artefacts of tests: those that are saved, and on request all that are compiled."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import plica
from plica.cli.verify import retraced_file
from plica.runtime import archive
from plica.runtime.error import PlicaError
from plica.runtime.executable import Executable
from plica.runtime.verify import verify


@contextmanager
def saved_artefacts_are_verified(in_full: bool) -> Iterator[None]:
    """Verifies what `Executable.save` writes; `in_full` proves all accesses and makes all code
    again, too."""
    save = Executable.save

    def saved(self: Executable, path: str | os.PathLike[str]) -> None:
        save(self, path)
        verify(path)
        retraced_file(path, prove=in_full, rebuild=in_full)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Executable, "save", saved)
        yield


@contextmanager
def compiled_artefacts_are_verified() -> Iterator[None]:
    """Saves and verifies, by every mode, what `plica.compile` returns.

    Programs that cannot be saved, such as those with functions of Python in them, are passed over:
    `save` refuses them.
    """
    compile_ = plica.compile

    # Any: the arguments are those of `plica.compile`.
    def compiled(*arguments: Any, **options: Any) -> Any:
        executable = compile_(*arguments, **options)
        if not isinstance(executable, Executable):
            return executable
        with TemporaryDirectory() as folder:
            path = Path(folder) / "compiled.plica"
            try:
                archive.write(path, archive.pack(executable.members()))
            except PlicaError:
                return executable
            verify(path)
            retraced_file(path, prove=True, rebuild=True)
        return executable

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plica, "compile", compiled)
        yield
