"""Writing a new package: `plica new KIND NAME`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template as Text
from typing import Final

from attrs import frozen

from plica.core import did_you_mean
from plica.extending.check import group_named
from plica.runtime.error import Diagnostic, Place, UnsupportedError

NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

EXAMPLES: Final = 40  # cases of each record in the tests of a new package


def new_package(kind: str, name: str, into: Path | str = ".") -> Path:
    """Write a package of that kind and name, and say where; nothing is ever written over."""
    if kind not in KINDS:
        message, near = f"There is no kind of extension {kind!r}.", did_you_mean(kind, KINDS)
        told = Diagnostic("unknown-extension", message, None, ", ".join(KINDS), kind, near)
        raise UnsupportedError(told)
    template = KINDS[kind]
    module = name.replace("-", "_")
    if not NAME.fullmatch(name):
        message = f"{name!r} is not a valid package name."
        expected = "lower-case letters, digits and dashes, as in acme-rules"
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, repr(name)))
    if module in sys.stdlib_module_names or module == "plica":
        message = f"A module {module!r} exists already."
        found = f"a module of Python or Plica, {module}"
        told = Diagnostic("name-clash", message, None, "another name", found)
        raise UnsupportedError(told)
    if {name, module} & set(group_named(template.group).own):
        message = f"Plica already has {name} in {template.group}."
        raise UnsupportedError(Diagnostic("name-clash", message, None, "another name", name))
    folder = Path(into) / name
    if folder.exists():
        message = "The folder exists already."
        raise UnsupportedError(Diagnostic("cannot-write", message, Place(file=str(folder))))
    words = {
        "name": name,
        "module": module,
        "kind": kind,
        "group": template.group,
        "file": template.file,
        "where": f"{module}.{template.file}" + (f":{template.record}" if template.record else ""),
        "examples": str(EXAMPLES),
    }
    words["point"] = Text(template.point).substitute(words)
    words["about"] = f"A {kind} for Plica."
    files = {
        "pyproject.toml": template_text("project"),
        "README.md": Text(template_text("readme")).safe_substitute(use=template.about),
        f"{module}/__init__.py": '"""$name: a $kind for Plica."""\n',
        f"{module}/{template.file}.py": template.source,
        f"tests/test_{module}.py": Text(template_text("tests")).safe_substitute(
            use=template.use.rstrip()
        ),
    }
    try:
        for path, text in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(Text(text).substitute(words), encoding="utf-8")
    except OSError as error:
        message = f"The package cannot be written: {error.strerror}."
        told = Diagnostic("cannot-write", message, Place(file=str(folder)))
        raise UnsupportedError(told) from error
    return folder


# --- templates ---------------------------------------------------------------------------------


@frozen
class Template:
    """A kind of extension: its group, the name of its entry point, its file, and the texts."""

    group: str
    point: str
    file: str
    record: str
    about: str

    @property
    def source(self) -> str:
        """What the package offers."""
        return template_text(self.file)

    @property
    def use(self) -> str:
        """A test that uses it."""
        return template_text(f"{self.file}_use")


def template_text(name: str) -> str:
    """A text of a new package, which is a file of its own."""
    return Path(__file__).with_name("text").joinpath(f"{name}.txt").read_text(encoding="utf-8")


# fmt: off
KINDS: Final[Mapping[str, Template]] = {
    "rule-pack":   Template("plica.packs", "$name", "rules", "PACK",
                            'plica.compile(model, packs=["$name"])'),
    "operator":    Template("plica.operators", "$module", "operators", "",
                            "op.$module.square_relu(x), in Python, scripts and texts"),
    "pass":        Template("plica.passes", "$name", "passes", "PASS",
                            'pipeline_of("cpu").insert("$name", before="fuse")'),
    "primitive":   Template("plica.instructions", "$module", "primitives", "",
                            "yield Unrolled(loop), in a do-block and in traces"),
    "form":        Template("plica.forms", "$name", "forms", "FORM",
                            "default schedules and search try it"),
    "target":      Template("plica.targets", "$name", "target", "BACKEND",
                            'plica.compile(model, target="$name")'),
    "accelerator": Template("plica.accelerators", "$module", "machine", "MACHINE",
                            'plica.compile(model, target="accel:$module")'),
}
# fmt: on
"""What `plica new KIND NAME` writes."""
