"""The solver: z3, where it is installed (`pip install plica[prove]`) and nothing else decides.

The solver is asked whether the negation of a condition is satisfiable over the integers. Its
answers are not certificates: such proofs are marked, and counterexamples are checked before use.

SMT-LIB: a claim about index terms as a script that any solver of integer arithmetic reads.

The script asserts the negation of the claim in its context: `unsat` means that the claim holds for
all integers, and a model is a counterexample. Shared subterms are named once, so the text is linear
in the size of the DAG.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, Final

from plica.analysis.index.context import EMPTY, Context
from plica.analysis.index.point import atoms, is_structure, structure_parts
from plica.core import fold_into, post_order
from plica.ir.loop import scalar as sc
from plica.ir.text.show.scalar import show_scalar
from plica.ir.type import bool_

EFFORT: Final = 2_000_000
"""Steps of z3 (`rlimit`) for a condition: the same answer on every machine, however busy it is."""
MISSING: Final = "z3 is not installed (pip install plica[prove])"


def available() -> bool:
    """Whether the solver is installed."""
    return find_spec("z3") is not None


def possible(condition: sc.Scalar) -> dict[sc.Scalar, int] | bool | str:
    """A point where the condition holds, False if there is none, or why the solver cannot tell."""
    if not available():
        return MISSING
    import z3

    unknowns = atoms(condition)
    made: dict[sc.Scalar, Any] = {  # Any: z3 is not typed
        atom: z3.Bool(f"b{i}") if sc.dtype_of(atom) is bool_ else z3.Int(f"x{i}")
        for i, atom in enumerate(unknowns)
    }
    solver = z3.Solver()
    solver.set("rlimit", EFFORT)
    solver.set("random_seed", 0)
    solver.add(_translated(condition, made, z3))
    answer = solver.check()
    if answer == z3.unsat:
        return False
    if answer != z3.sat:
        return "z3 gave no answer within its steps"
    model = solver.model()
    point: dict[sc.Scalar, int] = {}
    for atom in unknowns:
        found = model.eval(made[atom], model_completion=True)
        point[atom] = int(z3.is_true(found)) if sc.dtype_of(atom) is bool_ else found.as_long()
    return point


def _translated(root: sc.Scalar, made: dict[sc.Scalar, Any], z3: Any) -> Any:
    def translated(node: sc.Scalar) -> Any:
        if isinstance(node, sc.Lit):
            return z3.BoolVal(node.value) if node.dtype is bool_ else z3.IntVal(int(node.value))
        return _WORDS[type(node)](z3, *[made[kid] for kid in structure_parts(node)])

    return fold_into(made, root, structure_parts, translated)


def _quotient(z3: Any, a: Any, b: Any) -> Any:
    """Rounded down, and 0 by zero; z3's own leaves a remainder that is never negative."""
    return z3.If(b > 0, a / b, z3.If(b < 0, (-a) / (-b), 0))


def _remainder(z3: Any, a: Any, b: Any) -> Any:
    return z3.If(b == 0, 0, a - b * _quotient(z3, a, b))


_WORDS: Final[dict[type[sc.Scalar], Callable[..., Any]]] = {
    sc.Add: lambda z3, a, b: a + b,
    sc.Sub: lambda z3, a, b: a - b,
    sc.Mul: lambda z3, a, b: a * b,
    sc.FloorDiv: _quotient,
    sc.FloorMod: _remainder,
    sc.Min: lambda z3, a, b: z3.If(a <= b, a, b),
    sc.Max: lambda z3, a, b: z3.If(a >= b, a, b),
    sc.Select: lambda z3, c, a, b: z3.If(c, a, b),
    sc.Eq: lambda z3, a, b: a == b,
    sc.Ne: lambda z3, a, b: a != b,
    sc.Lt: lambda z3, a, b: a < b,
    sc.Le: lambda z3, a, b: a <= b,
    sc.And: lambda z3, a, b: z3.And(a, b),
    sc.Or: lambda z3, a, b: z3.Or(a, b),
    sc.Not: lambda z3, a: z3.Not(a),
}


# --- sMT-LIB -----------------------------------------------------------------------------------


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
    lines += [f"(assert {names[scalar]})" for scalar in known]
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
