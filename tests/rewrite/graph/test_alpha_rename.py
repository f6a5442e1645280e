from __future__ import annotations

from collections import Counter

from hypothesis import given

from plica.core.binding import variables_of
from plica.core.digest import alpha_equal
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.graph.expression import Clause, Function, Let, Match, PTuple, PVar, Var
from plica.ir.graph.module import Module
from plica.ir.type.term import TupleType, tensor
from plica.rewrite.graph.alpha_rename import alpha_renamed, with_selves
from plica.rewrite.graph.walk import expressions
from tests.rewrite.graph.law import WHOLE, text
from tests.strategies import modules


def binders(function: Function) -> Counter[Term]:
    found: Counter[Term] = Counter()
    for node in expressions(function):
        if isinstance(node, Function):
            found.update((*node.dims, *node.types, *node.params))
        elif isinstance(node, Let):
            found.update((node.var,))
        elif isinstance(node, Match):
            for clause in node.clauses:
                found.update(variables_of(clause.pattern))
    return found


@WHOLE
@given(modules())
def test_every_variable_has_one_binder(module: Module) -> None:
    for _, function in module.functions():
        made = alpha_renamed(function, module.names)
        assert set(binders(made).values()) <= {1}
        assert not set(binders(made)) & set(module.names)
        assert alpha_equal(made, function)
        assert alpha_renamed(made, module.names) is made


def test_a_recursive_function_has_another_name_inside() -> None:
    source = """
@plica.function
def main(n: Tensor[(), i64]) -> Tensor[(), i64]:
    def loop(k: Tensor[(), i64]) -> Tensor[(), i64]:
        return k if k <= 0 else loop(i64(0))
    return loop(i64(0)) + loop(n)
"""
    module = text(source)
    made, selves = with_selves(module.main_function(), module.names)
    ((itself, name),) = selves.items()
    assert itself is not name
    let = made.body
    assert isinstance(let, Let)
    assert let.var is name
    assert not set(expressions(let.value)) & {name}


def test_a_let_that_two_clauses_share_becomes_two() -> None:
    scalar = tensor((), "f32")
    x, y, p = (Var(Name(name), scalar) for name in "xyp")
    pair = Var(Name("pair"), TupleType((scalar, scalar)))
    body = Let(y, x + 1.0, y * y)
    one, two = (Clause(PTuple(items), body) for items in ((PVar(x), PVar(p)), (PVar(p), PVar(x))))
    made = alpha_renamed(Function((), (), (pair,), None, Match(pair, (one, two))), ())
    assert set(binders(made).values()) == {1}
    assert len(binders(made)) == 7
