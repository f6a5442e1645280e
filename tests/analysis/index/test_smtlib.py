"""Claims as SMT-LIB: a reader of the standard's own meaning gives the value of the claim."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hypothesis import given, strategies as st

from plica.analysis.index import EMPTY
from plica.analysis.index.solver import to_smtlib
from plica.ir.loop.scalar import Le, Lt, Scalar
from tests.analysis.index.box import NUMBERS, VARIABLES, X, terms, value


def read(text: str) -> list[Any]:
    """The commands of a script as lists of words."""
    stack: list[list[Any]] = [[]]
    for word in re.findall(r"[()]|[^\s()]+", re.sub(r";.*", "", text)):
        if word == "(":
            stack.append([])
        elif word == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(word)
    (commands,) = stack
    return commands


def euclidean(a: int, b: int) -> int:
    """`div` of the standard: the remainder is never negative."""
    return a // b if b > 0 else -(a // -b)


def meaning(of: Any, names: dict[str, Any]) -> Any:
    if isinstance(of, str):
        return names[of] if of in names else of == "true" if of in ("true", "false") else int(of)
    word, *rest = of
    if word == "ite":
        return meaning(rest[1] if meaning(rest[0], names) else rest[2], names)
    given_ = [meaning(each, names) for each in rest]
    if word in names:
        params, body = names[word]
        return meaning(body, {**names, **dict(zip(params, given_, strict=True))})
    a, b = (*given_, None)[:2]
    plain: dict[str, Callable[[], Any]] = {
        "+": lambda: a + b, "-": lambda: -a if b is None else a - b, "*": lambda: a * b,
        "div": lambda: euclidean(a, b), "=": lambda: a == b, "distinct": lambda: a != b,
        "<": lambda: a < b, "<=": lambda: a <= b, ">": lambda: a > b, ">=": lambda: a >= b,
        "and": lambda: a and b, "or": lambda: a or b, "not": lambda: not a,
    }  # fmt: skip
    return plain[word]()


def satisfied(text: str, point: dict[str, int]) -> bool:
    """Whether all that a script asserts holds at a point, by the names in its comments."""
    names: dict[str, Any] = {}
    said = dict(re.findall(r"\(declare-const (\S+) Int\) ; (\S+)", text))
    holds = True
    for command in read(text):
        match command:
            case ["declare-const", name, _]:
                names[name] = point[said[name]]
            case ["define-fun", name, [], _, body]:
                names[name] = meaning(body, names)
            case ["define-fun", name, params, _, body]:
                names[name] = [each[0] for each in params], body
            case ["assert", body]:
                holds = holds and bool(meaning(body, names))
    return holds


@given(terms(), terms(), st.lists(st.sampled_from(NUMBERS), min_size=3, max_size=3))
def test_a_model_is_a_point_where_the_claim_fails(a: Scalar, b: Scalar, at: list[int]) -> None:
    claim = Le(a, b)
    context = EMPTY.within(X, 0, 5).where(Lt(X, b))
    point: dict[Scalar, int] = dict(zip(VARIABLES, at, strict=True))
    inside = all(value(each, point) for each in context.conditions())
    text = to_smtlib(claim, context)
    named = {str(each.name): point[each] for each in VARIABLES}
    assert satisfied(text, named) == (inside and not value(claim, point))


def test_what_is_shared_is_written_once() -> None:
    term: Scalar = X
    for _ in range(60):
        term = term + term
    assert len(to_smtlib(Le(term, X)).splitlines()) < 70
