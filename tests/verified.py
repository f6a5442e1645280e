"""Every artefact that a test saves is verified: right artefacts must raise no alarm."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from plica.cli.verify import retraced_file
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
