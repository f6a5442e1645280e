"""Attributes of a node by kind, and refusals at the node.

>>> from onnx import helper
>>> node = NodeAttributes(helper.make_node("Elu", ["x"], ["y"], name="e", alpha=0.5))
>>> node.place, node.real("alpha", 1.0), node.integer("axis", 3)
('e', 0.5, 3)
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from plica.core.diagnostic import Malformed
from plica.frontend.onnx.storage import Array, array_of
from plica.runtime.error import Place, UnsupportedError

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto, TypeProto

_KINDS: Final = {
    "float": 1, "int": 2, "string": 3, "tensor": 4, "graph": 5,
    "floats": 6, "ints": 7, "strings": 8, "type": 13,
}  # fmt: skip

_REQUIRED: Final = object()

LONGEST_NAME: Final = 200
"""So much of a name is said in messages; a file may hold names of any length."""


def name_of(proto: NodeProto) -> str:
    """The name of a node in messages; without a name, that of its output."""
    made = next((name for name in proto.output if name), "")
    found: str = proto.name or f"{proto.op_type}({made})"
    return found if len(found) <= LONGEST_NAME else f"{found[:LONGEST_NAME]}…"


class RefusedForGood(UnsupportedError):
    """The model has something that is refused whatever its sizes are."""


class NodeAttributes:
    """The attributes of an operator, and its place."""

    def __init__(self, proto: NodeProto, folder: Path | None = None, prefix: str = "") -> None:
        self.proto, self.folder = proto, folder
        self.place = prefix + name_of(proto)
        self._attributes: dict[str, AttributeProto] = {a.name: a for a in proto.attribute}
        self._asked: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether an attribute is given."""
        return name in self._attributes

    # Any: the value depends on the kind; the methods below tell the type checker.
    def _attribute(self, name: str, kind: str, default: Any) -> Any:
        self._asked.add(name)
        if (proto := self._attributes.get(name)) is None:
            if default is _REQUIRED:
                self.malformed(f"{self.proto.op_type} has no attribute {name!r}.", name, "nothing")
            return default
        if proto.type != _KINDS[kind]:
            message = f"The attribute {name!r} of {self.proto.op_type} is of the wrong kind."
            self.malformed(message, kind, str(proto.type))
        match kind:
            case "float":
                return float(np.float32(proto.f))
            case "int":
                return int(proto.i)
            case "string":
                return proto.s.decode("utf-8", "replace")
            case "tensor":
                return array_of(proto.t, self.folder, self.place)
            case "graph":
                return proto.g
            case "floats":
                return tuple(float(each) for each in proto.floats)
            case "type":
                return proto.tp
            case "ints":
                return tuple(int(each) for each in proto.ints)
            case _:
                return tuple(string.decode("utf-8", "replace") for string in proto.strings)

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer; required if there is no default."""
        value: int = self._attribute(name, "int", _REQUIRED if default is None else default)
        return value

    def real(self, name: str, default: float) -> float:
        """A number."""
        value: float = self._attribute(name, "float", default)
        return value

    def text(self, name: str, default: str) -> str:
        """A word."""
        value: str = self._attribute(name, "string", default)
        return value

    def texts(self, name: str) -> tuple[str, ...] | None:
        """Strings, or None if absent."""
        value: tuple[str, ...] | None = self._attribute(name, "strings", None)
        return value

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Integers, or None if absent."""
        value: tuple[int, ...] | None = self._attribute(name, "ints", None)
        return value

    def reals(self, name: str) -> tuple[float, ...] | None:
        """Floats, or None if absent."""
        value: tuple[float, ...] | None = self._attribute(name, "floats", None)
        return value

    def tensor(self, name: str) -> Array | None:
        """A stored tensor, or None if absent."""
        value: Array | None = self._attribute(name, "tensor", None)
        return value

    def type_given(self, name: str) -> TypeProto | None:
        """A type, or None if absent."""
        value: TypeProto | None = self._attribute(name, "type", None)
        return value

    def ignore(self, *names: str) -> None:
        """Attributes that change nothing here."""
        self._asked.update(names)

    def flag(self, name: str, default: bool = False) -> bool:
        """An integer that says yes or no."""
        return bool(self.integer(name, int(default)))

    def graph(self, name: str) -> GraphProto:
        """A graph inside the node."""
        graph_proto: GraphProto = self._attribute(name, "graph", _REQUIRED)
        return graph_proto

    def all_asked(self) -> None:
        """Refuse attributes that were given and not looked at."""
        for name in self._attributes:
            if name not in self._asked:
                message = f"The attribute {name!r} of {self.proto.op_type} is not supported."
                self.unsupported(message)

    # --- refusals --------------------------------------------------------------------------------

    def malformed(self, message: str, expected: str, found: str) -> NoReturn:
        """The model breaks the format."""
        raise Malformed.of("bad-model", message, Place(node=self.place), expected, found)

    def unsupported(
        self, message: str, expected: str | None = None, found: str | None = None,
        suggestion: str | None = None, *, kind: type[UnsupportedError] = UnsupportedError,
    ) -> NoReturn:  # fmt: skip
        """Refuses a valid model that needs an unsupported feature."""
        place = Place(node=self.place)
        raise kind.of("unsupported", message, place, expected, found, suggestion)

    def refused_for_good(self, message: str, *words: str | None) -> NoReturn:
        """As `unsupported`, by attributes alone: no size and no value would mend it."""
        self.unsupported(message, *words, kind=RefusedForGood)
