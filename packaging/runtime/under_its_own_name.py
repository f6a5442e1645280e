"""Building `plica_runtime`: the files of `plica.runtime` under an import name of their own."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

RUNTIME: Final = Path(__file__).parents[2] / "plica" / "runtime"
NAME: Final = "plica_runtime"

FACE: Final = '''"""Loads and runs artefacts of Plica; needs numpy and the standard library.

    import plica_runtime

    model = plica_runtime.load("model.plica")
    y = model(x)
"""

from plica_runtime.error import ArtefactError, InputError, PlicaError, UnsupportedError
from plica_runtime.load import load
from plica_runtime.timing import time

__version__ = "{version}"
__all__ = ["ArtefactError", "InputError", "PlicaError", "UnsupportedError", "load", "time"]
'''


def write_package(folder: Path, version: str) -> None:
    """Write the package into a folder."""
    for path in sorted(RUNTIME.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"\bplica\.runtime\b", NAME, text)
        text = re.sub(r"\bplica\.(load|time)\(", rf"{NAME}.\1(", text)
        made = folder / path.relative_to(RUNTIME)
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(text, encoding="utf-8")
    (folder / "__init__.py").write_text(FACE.replace("{version}", version), encoding="utf-8")
    (folder / "py.typed").touch()


class RuntimeHook(BuildHookInterface[Any]):
    """Puts the package into the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the package to a folder that lives until the wheel is made."""
        self._folder = TemporaryDirectory()
        write_package(Path(self._folder.name), self.metadata.version)
        build_data["force_include"][self._folder.name] = NAME

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is made."""
        self._folder.cleanup()
