"""Errors: the root of the family of exceptions that the public API raises.

An error consists of diagnostics, so that independent mistakes are reported together. Each
diagnostic is data: a stable code, a full sentence, a place, the expected and the given value.

>>> error = InputError(
...     Diagnostic(
...         "input-shape",
...         "Input 'x' has the wrong shape.",
...         Place(node="x"),
...         expected="(n, 784)",
...         found="(3, 28)",
...     )
... )
>>> print(error)
x: Input 'x' has the wrong shape. [input-shape]
  expected: (n, 784)
  found: (3, 28)
>>> error.code
'input-shape'

Not here: the table of codes and the coloured rendering (`plica.core.diagnostic`). This file needs
only the standard library, so that a deployed artefact can raise the compiler's errors.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, TypeVar


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was said: a position in a text, a node of a model, or both.

    Lines and columns count from 1, as editors do.
    """

    file: str | None = None
    line: int | None = None
    column: int | None = None
    node: str | None = None

    def __str__(self) -> str:
        file = "<text>" if self.file is None and self.line is not None else self.file
        parts = (file, self.line, self.column)
        if not (position := ":".join(str(part) for part in parts if part is not None)):
            return self.node or "<unknown place>"
        return position if self.node is None else f"{position} ({self.node})"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing that is wrong, said so that a person can act and a program can sort.

    `code` is stable and kebab-case; `message` is a full sentence without the other fields.
    """

    code: str
    message: str
    place: Place | None = None
    expected: str | None = None
    found: str | None = None
    suggestion: str | None = None

    def __str__(self) -> str:
        head = f"{self.message} [{self.code}]"
        lines = [head if self.is_placed() else f"{self.place}: {head}"]
        lines += [f"  {label}: {value}" for label, value in self.details()]
        return "\n".join(lines)

    def is_placed(self) -> bool:
        """Whether the message needs no place prefix: there is no place, or it starts with it."""
        if self.place is None:
            return True
        return self.message.startswith((f"{self.place}: ", f"{self.place} "))

    def details(self) -> tuple[tuple[str, str], ...]:
        """The labelled parts below the message, those that were given."""
        labelled = (
            ("expected", self.expected),
            ("found", self.found),
            ("suggestion", self.suggestion),
        )
        return tuple((label, value) for label, value in labelled if value is not None)

    def to_data(self) -> dict[str, object]:
        """Plain data (strings, integers, None, one inner dict): what JSON can hold."""
        return asdict(self)


E = TypeVar("E", bound="PlicaError")


class PlicaError(Exception):
    """The user's request cannot be fulfilled, for one or more reasons, each a diagnostic."""

    def __init__(self, first: Diagnostic, *rest: Diagnostic) -> None:
        super().__init__(first, *rest)
        self.diagnostics = (first, *rest)

    @classmethod
    def of(  # noqa: PLR0917  # the fields of a diagnostic
        cls: type[E], code: str, message: str, place: Place | None = None,
        expected: str | None = None, found: str | None = None, suggestion: str | None = None,
    ) -> E:  # fmt: skip
        """The error of one diagnostic."""
        return cls(Diagnostic(code, message, place, expected, found, suggestion))

    @property
    def code(self) -> str:
        """The code of the first diagnostic."""
        return self.diagnostics[0].code

    def placed(self: E, place: Place) -> E:
        """The same error, at a place where a diagnostic has none."""
        return type(self)(
            *[each if each.place else replace(each, place=place) for each in self.diagnostics]
        )

    def __str__(self) -> str:
        shown = [str(diagnostic) for diagnostic in self.diagnostics]
        return shown[0] if len(shown) == 1 else "\n".join((f"{len(shown)} errors:", *shown))

    def to_data(self) -> dict[str, object]:
        """Plain data: the kind of error and its diagnostics."""
        return {
            "error": type(self).__name__,
            "diagnostics": [diagnostic.to_data() for diagnostic in self.diagnostics],
        }


class InputError(PlicaError):
    """A value given to a compiled or interpreted function does not fit its interface."""


class ArgumentError(InputError, TypeError):
    """An argument of one of Plica's functions is of the wrong kind."""


def wrong_argument(
    message: str, expected: str, found: object, suggestion: str | None = None
) -> ArgumentError:
    """The error for an argument of the wrong kind, which is shown with its type.

    >>> print(wrong_argument("This is no trace.", "a Trace", 5))
    This is no trace. [input-type]
      expected: a Trace
      found: 5 of type int
    """
    text = repr(found)
    shown = f"{text[:77]}..." if len(text) > 80 else text
    kind = type(found).__name__
    return ArgumentError(
        Diagnostic("input-type", message, None, expected, f"{shown} of type {kind}", suggestion)
    )


class EvaluationError(PlicaError):
    """The program is well typed, but its evaluation on these values has no result."""


class UnsupportedError(PlicaError):
    """The model is well formed, but uses what Plica or the target does not have."""


def setting(name: str, form: str, meaning: str, expected: str) -> str:
    """The value of an environment variable, which must have the given form; empty if unset.

    What means nothing is refused: who wrote it would believe that it is so.
    """
    said = os.environ.get(name, "")
    if said and not re.fullmatch(form, said):
        message, found = f"{name} is {meaning}.", repr(said)
        shown = f"{found[:77]}..." if len(found) > 80 else found
        hint = f"Set {name} so, or unset it."
        raise UnsupportedError(Diagnostic("unsupported", message, None, expected, shown, hint))
    return said


class OutputError(PlicaError):
    """A file cannot be written where it was asked for."""


class ArtefactError(PlicaError):
    """A saved artefact is damaged, newer than this runtime, or made for another machine."""


ARTEFACT: Final = "a file that plica compile -o or exe.save wrote"


def damaged(message: str, found: str | None = None, expected: str | None = None) -> ArtefactError:
    """The refusal of an artefact, or of a part of one, that is not as it was written."""
    expected = expected or ARTEFACT
    hint = "Copy the file again from where it was written, or compile the model again."
    return ArtefactError(Diagnostic("bad-artefact", message, None, expected, found, hint))


NO_FOLDER: Final = "Give the path of a file: this is a folder."


def neighbour(path: Path, *suffixes: str) -> str | None:
    """Which file of these kinds may be meant by a path that names none: one in a folder, or one
    of a similar name."""
    folder = path if path.is_dir() else path.parent
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    names = sorted([name for name in names if not suffixes or name.endswith(suffixes)])
    if path.is_dir():
        return f"Give a file in it, such as {str(path / names[0])!r}." if names else NO_FOLDER
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"Did you mean {near[0]!r}?" if near else None


def unreadable(path: Path, expected: str, why: Exception | str, *suffixes: str) -> Diagnostic:
    """The diagnostic for a file that cannot be read, and one of these kinds with a similar name."""
    found = getattr(why, "strerror", None) or str(why)
    place, hint = Place(file=str(path)), neighbour(path, *suffixes)
    return Diagnostic("cannot-read", "The file cannot be read.", place, expected, found, hint)


_NODE: Final = " of node "
_ALONG: Final = " along "
_BY: Final = " by "


def of_node(operator: str, node: str, whole: str, inputs: Sequence[str] = ()) -> str:
    """The name of a launch that is a node of a model and indexes by data, with the inputs that the
    indices depend on.

    >>> of_node("take", "lookup", "axis 0 of Tensor[(5, 8), f32]", ["ids"])
    "take of node lookup along axis 0 of Tensor[(5, 8), f32] by 'ids'"
    """
    told = f"{operator}{_NODE}{node}{_ALONG if whole else ''}{whole}"
    return told + (_BY + ", ".join(map(repr, inputs)) if whole and inputs else "")


def index_outside(source: str) -> Diagnostic:
    """The diagnostic of a launch with an index out of bounds.

    >>> print(index_outside("take of node lookup along axis 0 of Tensor[(5, 8), f32] by 'ids'"))
    lookup: An index is outside the tensor that it selects from. [index-out-of-bounds]
      expected: indices inside axis 0 of Tensor[(5, 8), f32]
      found: one that is outside, which depends on 'ids'
    >>> print(index_outside("take"))
    take: An index that take was given is outside the tensor it selects from. [index-out-of-bounds]
      expected: indices inside the tensor

    The place is the node itself; nodes fused with it are not the user's.
    """
    operator, _, rest = source.partition(_NODE)
    node, _, rest = rest.partition(_ALONG)
    whole, _, inputs = rest.partition(_BY)
    message = "An index is outside the tensor that it selects from."
    if not node:
        message = f"An index that {operator} was given is outside the tensor it selects from."
    expected = f"indices inside {whole or 'the tensor'}"
    found = f"one that is outside, which depends on {inputs}" if inputs else None
    return Diagnostic("index-out-of-bounds", message, Place(node=node or operator), expected, found)
