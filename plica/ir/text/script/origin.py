"""Origins: the source of a text, its errors, and the place of each term.

>>> import ast
>>> origin = Origin("f.py", "x = 1\\ny = z\\n")
>>> str(origin.place(ast.parse(origin.text).body[1].value))
'f.py:2:5'
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from plica.core import ScriptError, Term, did_you_mean
from plica.ir.text.word import DTYPE_WORDS
from plica.runtime.error import Diagnostic, Place

Node: TypeAlias = ast.expr | ast.stmt | ast.arg | ast.pattern | ast.keyword | ast.alias


class Origin:
    """A piece of text: its file, and the line of the file it begins on."""

    def __init__(self, file: str, text: str, first_line: int = 1) -> None:
        self.file = file
        self.text = text
        self.shift = first_line - 1
        self._lines: list[str] | None = None

    def place(self, node: Node) -> Place:
        """Where a node of the syntax tree begins."""
        return self.at(node.lineno, node.col_offset)

    def excerpt(self, node: Node) -> str:
        """The beginning of a node's text."""
        source = self._line(node.lineno).encode()
        end = node.end_col_offset if node.end_lineno == node.lineno else None
        text = source[node.col_offset : end].decode()
        return text if len(text) <= 60 else f"{text[:56]} ..."

    def at(self, line: int, offset: int) -> Place:
        """The place of a line of the text and an offset in bytes; columns count characters."""
        source = self._line(line)
        column = offset if source.isascii() else len(source.encode()[:offset].decode())
        return Place(self.file, line + self.shift, column + 1)

    def _line(self, number: int) -> str:
        if self._lines is None:
            self._lines = self.text.split("\n")
        return self._lines[number - 1] if number <= len(self._lines) else ""


MAX_PROBLEMS: Final = 100
"""This many problems are reported together; a text with more is not read further."""

MAX_SUGGESTIONS: Final = 10
"""Suggestions are computed for up to this many errors, because comparing many names is slow."""


class Problems:
    """The errors in order of detection, reported together."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []

    def suggest(self, word: str, names: Iterable[str]) -> str | None:
        """The name that may be meant."""
        return did_you_mean(word, names) if len(self.found) < MAX_SUGGESTIONS else None

    def add(
        self,
        place: Place,
        code: str,
        message: str,
        *,
        expected: str | None = None,
        found: str | None = None,
        suggestion: str | None = None,
    ) -> None:
        """Note one thing that is wrong; the same thing at the same place is noted once."""
        problem = Diagnostic(code, message, place, expected, found, suggestion)
        if problem not in self.found[-8:]:
            self.found.append(problem)
            if len(self.found) >= MAX_PROBLEMS:
                self.refuse()

    def refuse(self) -> None:
        """Raises all errors in text order, if there are any."""
        if self.found:
            raise ScriptError(*sorted(self.found, key=_position))


class SourceReader:
    """What reads a part of a text: it notes what is wrong and continues."""

    origin: Origin
    problems: Problems

    def error(
        self, node: Node, code: str, message: str, *, expected: str | None = None,
        found: str | None = None, suggestion: str | None = None,
    ) -> None:  # fmt: skip
        """Note something wrong at a node."""
        place = self.origin.place(node)
        self.problems.add(
            place, code, message, expected=expected, found=found, suggestion=suggestion
        )

    def unsupported(self, node: Node, message: str, **more: str | None) -> None:
        """Note that something valid in Python is not part of the language."""
        self.error(node, "unsupported-syntax", message, **more)

    def bad(
        self, node: Node, expected: str, message: str = "This is not what stands here."
    ) -> None:
        """Note that something else is expected than what stands here."""
        self.unsupported(node, message, expected=expected, found=self.origin.excerpt(node))

    def no_dtype(self, node: Node) -> None:
        """Note that a word is no dtype."""
        shown, words = self.origin.excerpt(node), ", ".join(DTYPE_WORDS)
        hint = self.problems.suggest(shown, DTYPE_WORDS)
        message = "This is no dtype."
        self.error(node, "unbound-name", message, expected=words, found=shown, suggestion=hint)

    def plain_parameters(self, args: ast.arguments, message: str, expected: str) -> list[ast.arg]:
        """The parameters of a function, which has no others than plain ones."""
        extra = [*args.posonlyargs, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
        for arg in extra:
            self.unsupported(arg, message, expected=expected)
        for default in [*args.defaults, *filter(None, args.kw_defaults)]:
            self.unsupported(default, "Parameters have no default values.")
        return args.args


def is_docstring(node: ast.stmt) -> bool:
    """Whether a statement is a text that nothing uses."""
    text = node.value if isinstance(node, ast.Expr) else None
    return isinstance(text, ast.Constant) and isinstance(text.value, str)


def _position(problem: Diagnostic) -> tuple[str, int, int]:
    place = problem.place or Place()
    return place.file or "", place.line or 0, place.column or 0


class PlaceTable(Mapping[Term, Place]):
    """From terms to where they were first written; places are made when asked for."""

    def __init__(self) -> None:
        self.table: dict[Term, tuple[Origin, int, int]] = {}

    def note(self, term: Term, origin: Origin, node: Node) -> None:
        """The term was written here; the first place counts."""
        if term not in self.table:
            self.table[term] = origin, node.lineno, node.col_offset

    def __getitem__(self, term: Term) -> Place:
        origin, line, offset = self.table[term]
        return origin.at(line, offset)

    def __contains__(self, term: object) -> bool:
        return term in self.table

    def __iter__(self) -> Iterator[Term]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)
