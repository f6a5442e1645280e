"""Modules with one planted mistake, and the code of the diagnostic it must give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from plica.core.fold import map_bottom_up, post_order
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.generate.definition import modules
from plica.ir.graph.expression import (
    Apply,
    Call,
    Clause,
    Expr,
    Function,
    If,
    Let,
    Match,
    PAny,
    PConstructor,
    Project,
    PTuple,
    PVar,
    Tuple,
    Var,
    const,
)  # fmt: skip
from plica.ir.graph.module import ConstructorDef, DataDef, Module, constructors, module
from plica.ir.type.dtype import f32, i32
from plica.ir.type.term import DataName, DataType, FuncType, TensorType, Type, tensor

SCALAR: Final[TensorType] = tensor((), f32)
TREE: Final = DataName(Name("Planted"))
TREE_DEF: Final = DataDef(
    (),
    (
        ConstructorDef(Name("PlantedLeaf"), (SCALAR,)),
        ConstructorDef(Name("PlantedNode"), (DataType(TREE, ()), DataType(TREE, ()))),
    ),
)
LEAF, NODE = constructors(TREE, TREE_DEF)
ONE: Final = const(1.0, f32)
VALUE: Final = Call(LEAF, (ONE,))


def _var(name: str, type: Type | None = None) -> Var:
    return Var(Name(f"planted_{name}"), type)


def _identity() -> Function:
    x = _var("x", SCALAR)
    return Function((), (), (x,), SCALAR, x)


def _matching(*clauses: Clause) -> Expr:
    return Match(VALUE, clauses)


Mistake: TypeAlias = Callable[[], Expr]

MISTAKES: Final[dict[str, tuple[Mistake, ...]]] = {
    "shape-conflict": (
        lambda: Apply("add", (const([1.0, 2.0], f32), const([1.0, 2.0, 3.0], f32))),
        lambda: Call(_identity(), (const([1.0, 2.0], f32),)),
        lambda: If(const(True), ONE, const([1.0], f32)),
    ),
    "dtype-conflict": (
        lambda: Apply("add", (ONE, const(1, i32))),
        lambda: Call(_identity(), (const(1, i32),)),
        lambda: If(const(True), ONE, const(1, i32)),
    ),
    "type-conflict": (
        lambda: If(const(True), ONE, Tuple((ONE,))),
        lambda: Call(ONE, ()),
        lambda: Call(_identity(), (Tuple(()),)),
        lambda: Project(ONE, 0),
        lambda: Function((), (), (), tensor((), f32), Tuple(())),
    ),
    "unbound-name": (
        lambda: _var("ghost", SCALAR),
        lambda: Call(_var("ghost", FuncType((), (), (), SCALAR)), ()),
    ),
    "wrong-arity": (
        lambda: Call(_identity(), ()),
        lambda: Call(_identity(), (ONE, ONE)),
        lambda: Call(LEAF, (ONE, ONE)),
        lambda: Apply("add", (ONE,)),
    ),
    "unknown-operator": (lambda: Apply("no_such_operator", (ONE,)),),
    "unknown-attribute": (lambda: Apply("add", (ONE, ONE), (("no_such_attribute", 1),)),),
    "non-exhaustive-match": (
        lambda: _matching(Clause(PConstructor(LEAF, (PAny(),)), ONE)),
        lambda: _matching(
            Clause(PConstructor(LEAF, (PAny(),)), ONE),
            Clause(PConstructor(NODE, (PConstructor(LEAF, (PAny(),)), PAny())), ONE),
        ),
    ),
    "redundant-clause": (
        lambda: _matching(Clause(PAny(), ONE), Clause(PConstructor(LEAF, (PAny(),)), ONE)),
        lambda: _matching(
            Clause(PConstructor(NODE, (PAny(), PAny())), ONE),
            Clause(PConstructor(LEAF, (PVar(_var("v", SCALAR)),)), ONE),
            Clause(PVar(_var("w", DataType(TREE, ()))), ONE),
        ),
    ),
    "bad-pattern": (
        lambda: _matching(Clause(PTuple((PAny(),)), ONE)),
        lambda: _matching(Clause(PConstructor(LEAF, ()), ONE), Clause(PAny(), ONE)),
    ),
    "cannot-infer": (lambda: Function((), (), (_var("u"),), None, ONE),),
}
"""For each code the smallest mistakes that must give it."""


SPOTS: Final = (Apply, Tuple, Project, If, Match, Call, Let)
"""What a let may stand around wherever it occurs; a variable may be a binder."""


@st.composite
def ill_typed(draw: DrawFn, codes: tuple[str, ...] = tuple(MISTAKES)) -> tuple[Module, str]:
    """A well-typed module with one mistake somewhere in it, and the code expected."""
    whole = draw(modules())
    code = draw(st.sampled_from(codes))
    bad = draw(st.sampled_from(MISTAKES[code]))()
    functions = whole.functions()
    name, function = draw(st.sampled_from(functions))
    spots = [node for node in post_order(function.body) if isinstance(node, SPOTS)]
    spot = draw(st.sampled_from((function.body, *spots)))
    planted = Let(_var("let"), bad, spot)

    def plant(node: Term) -> Term:
        return planted if node is spot else node

    broken = planted if spot is function.body else map_bottom_up(plant, function.body)
    assert isinstance(broken, Expr)
    changed = Function(
        function.dims, function.types, function.params, function.ret, broken, function.attrs
    )
    table = dict(whole.items())
    table[name] = changed
    table[TREE] = TREE_DEF
    return module(table, whole.main), code
