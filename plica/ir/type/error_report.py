"""Reports: the errors found in one definition, each with its place.

Terms carry no places (equal terms are one object), so a place is looked up beside them: that of the
node, or of the nearest node around it that has one, or the name of the definition.

>>> from plica.ir.graph.expression import Literal, Tuple
>>> inner = Tuple(())
>>> outer = Tuple((inner,))
>>> report = ErrorReport("f", (outer,), {outer: Place("f.py", 3, 5)})
>>> report.error("cannot-infer", "Nothing says what this is.", inner)
>>> print(report.errors[0])
f.py:3:5: Nothing says what this is. [cannot-infer]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from plica.core import Term, did_you_mean, post_order
from plica.ir.graph.expression import Apply, Const, Constructor, Literal, Var
from plica.ir.graph.operator import Mismatch
from plica.ir.op import names
from plica.ir.type.term import TypeTerm
from plica.ir.type.unknown import blanked
from plica.runtime.error import Diagnostic, Place

Places: TypeAlias = Mapping[Term, Place]

# A leaf may stand in many places and is one term, so the place of its user says more.
_LEAVES: Final = (Var, Const, Literal, Constructor)
_LARGE: Final = 200


class ErrorReport:
    """Errors of one definition; the same error is reported once."""

    def __init__(self, name: str, roots: Iterable[Term] = (), places: Places | None = None) -> None:
        self.name = name
        self.roots = tuple(roots)
        self.places: Places = {} if places is None else places
        self._found: dict[Diagnostic, None] = {}
        self._around: dict[Term, Term] | None = None

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """What was found, in the order in which it was."""
        return tuple(self._found)

    def error(
        self,
        code: str,
        message: str,
        node: Term,
        user: Term | None = None,
        *,
        expected: object = None,
        found: object = None,
        suggestion: str | None = None,
        other: Term | None = None,
    ) -> None:
        """Report an error at `node`, a part of `user`; `other` is the second place it concerns."""
        place = self.place(node, user)
        if other is not None:
            beside = self.place(other, user)
            if beside != place and beside.line is not None:
                message += f" The other place is {beside}."
        self._found[
            Diagnostic(code, message, place, described(expected), described(found), suggestion)
        ] = None

    def mismatch(self, mismatch: Mismatch, node: Term) -> None:
        """Report that an operator does not fit its arguments."""
        self.error(
            mismatch.code,
            mismatch.message,
            node,
            expected=mismatch.expected,
            found=mismatch.found,
            suggestion=mismatch.suggestion,
        )

    def unknown_operator(self, apply: Apply, node: Term) -> None:
        """Report a name that no operator has."""
        message = f"There is no operator {apply.op!r}."
        self.error("unknown-operator", message, node, suggestion=did_you_mean(apply.op, names()))

    def place(self, node: Term, user: Term | None = None) -> Place:
        """Where a node was written."""
        if user is not None and (isinstance(node, _LEAVES) or node not in self.places):
            node = user
        if not self.places:
            return Place(node=self.name)
        seen: set[Term] = set()
        while node not in self.places:
            if self._around is None:
                self._around = {}
                for each in post_order(*self.roots):
                    for kid in each._children:
                        self._around.setdefault(kid, each)
            seen.add(node)
            around = self._around.get(node)
            if around is None or around in seen:
                return Place(node=self.name)
            node = around
        return self.places[node]


def described(what: object) -> str | None:
    """A type or any other value in words; what is not known yet is `unknown`."""
    if what is None:
        return None
    if not isinstance(what, TypeTerm):
        return str(what)
    size: dict[Term, int] = {}
    for node in post_order(what):
        size[node] = 1 + sum([size[kid] for kid in node._children])
    if size[what] > _LARGE:
        return f"{type(what).__name__} of {size[what]} parts"
    return str(blanked(what))  # type: ignore[arg-type]  # every type term is a type
