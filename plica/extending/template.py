"""Templates: the texts of a new package, one row for each kind of extension."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import frozen


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
