"""SMT-LIB: a claim about index terms as a script that any solver of integer arithmetic reads.

The script asserts the negation of the claim in its context: `unsat` means that the claim holds for
all integers, and a model is a counterexample. Shared subterms are named once, so the text is linear
in the size of the DAG.

>>> from plica.ir.loop.scalar import Le
>>> from plica.ir.type.dim import dim_var
>>> x = dim_var("x")
>>> print(to_smtlib(Le(x + 4, x)))
(set-logic ALL)
(declare-const x0 Int) ; x
(define-fun t0 () Int (+ x0 4))
(define-fun t1 () Bool (<= t0 x0))
(assert (not t1))
(check-sat)
(get-model)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plica.analysis.index.context import EMPTY, Context
from plica.analysis.index.point import atoms, is_structure
from plica.core import post_order
from plica.ir.loop import scalar as sc
from plica.ir.text.show.scalar import show_scalar
from plica.ir.type import bool_

# fmt: off
WORDS: Final[dict[type[sc.Scalar], str]] = {
    sc.Add: "+", sc.Sub: "-", sc.Mul: "*", sc.FloorDiv: "floordiv", sc.FloorMod: "floormod",
    sc.Min: "least", sc.Max: "greatest", sc.Select: "ite",
    sc.Eq: "=", sc.Ne: "distinct", sc.Lt: "<", sc.Le: "<=", sc.And: "and", sc.Or: "or",
    sc.Not: "not",
}
# fmt: on

DEFINED: Final = {
    # Rounded down, and 0 by zero; the standard's own leaves a remainder that is never negative.
    "floordiv": "(define-fun floordiv ((a Int) (b Int)) Int "
    "(ite (> b 0) (div a b) (ite (< b 0) (div (- a) (- b)) 0)))",
    "floormod": "(define-fun floormod ((a Int) (b Int)) Int "
    "(ite (= b 0) 0 (- a (* b (floordiv a b)))))",
    "least": "(define-fun least ((a Int) (b Int)) Int (ite (<= a b) a b))",
    "greatest": "(define-fun greatest ((a Int) (b Int)) Int (ite (>= a b) a b))",
}


def to_smtlib(claim: sc.Scalar, context: Context = EMPTY) -> str:
    """The script that asks whether the claim can fail in the context."""
    known = context.conditions()
    names: dict[sc.Scalar, str] = {}
    lines = ["(set-logic ALL)"]
    for number, atom in enumerate(atoms(*known, claim)):
        sort, letter = ("Bool", "b") if sc.dtype_of(atom) is bool_ else ("Int", "x")
        names[atom] = f"{letter}{number}"
        said = " ".join(show_scalar(atom).split())
        lines.append(f"(declare-const {names[atom]} {sort}) ; {said}")
    body = _definitions([*known, claim], names)
    used = [word for word in DEFINED if any(f"({word} " in line for line in body)]
    if "floormod" in used and "floordiv" not in used:
        used.insert(0, "floordiv")
    lines += [DEFINED[word] for word in used]
    lines += body
    lines += [f"(assert {names[each]})" for each in known]
    return "\n".join([*lines, f"(assert (not {names[claim]}))", "(check-sat)", "(get-model)"])


def _definitions(roots: Sequence[sc.Scalar], names: dict[sc.Scalar, str]) -> list[str]:
    """A definition for every subterm of the roots; numbers are written inline."""
    found: list[str] = []
    for node in post_order(*roots):
        if not isinstance(node, sc.Scalar) or node in names or not is_structure(node):
            continue
        if isinstance(node, sc.Lit):
            names[node] = _number(node)
            continue
        kids = " ".join([names[kid] for kid in node._children if isinstance(kid, sc.Scalar)])
        name = f"t{len(found)}"
        sort = "Bool" if sc.dtype_of(node) is bool_ else "Int"
        found.append(f"(define-fun {name} () {sort} ({WORDS[type(node)]} {kids}))")
        names[node] = name
    return found


def _number(of: sc.Lit) -> str:
    if of.dtype is bool_:
        return "true" if of.value else "false"
    value = int(of.value)
    return str(value) if value >= 0 else f"(- {-value})"
