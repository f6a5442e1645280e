"""Binding: free variables and substitution against naive definitions, and their laws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, note, strategies as st

from plica.core.binding import (
    LIMIT,
    bound_by,
    fields_of_children,
    free_vars,
    name_of,
    rename,
    substitute,
    variables_of,
)  # fmt: skip
from plica.core.digest import alpha_equal
from plica.core.fold import post_order
from plica.core.name import Name
from plica.core.term import Term, children, rebuild
from plica.ir.graph.expression import Function, Tuple, Var
from plica.ir.loop.scalar import Lit
from plica.ir.type.dtype import f32
from plica.ir.type.term import TensorType, TypeVar, dim_var, tensor
from tests.core.test_term import chain, doubling
from tests.strategies import modules, terms, toys
from tests.strategies.term import Bind, Fix, Leaf, Many, Mixed, Pair, Ref, Toy, toy_vars

X, Y, X1 = Ref(Name("x")), Ref(Name("y")), Ref(Name("x", 1))


def naive_free(term: Term) -> frozenset[Term]:
    """The definition, by recursion."""
    found: set[Term] = {term} if type(term).variable else set()
    for name, kid in fields_of_children(term):
        hidden = {
            variable
            for own, scope, variables in bound_by(term)
            for variable in variables
            if name in (own, *scope)
        }
        found |= naive_free(kid) - hidden
    return frozenset(found)


@given(terms())
def test_free_variables_are_those_of_the_definition(term: Term) -> None:
    for node in post_order(term):
        assert free_vars(node) == naive_free(node)


@given(modules())
def test_modules_are_closed(module: Term) -> None:
    assert free_vars(module) == frozenset()


def test_scopes_are_those_declared() -> None:
    assert free_vars(Bind((X,), (X,), X)) == {X}
    assert free_vars(Bind((X,), (Y,), X)) == {Y}
    assert free_vars(Fix(X, X, X)) == frozenset()
    assert free_vars(Mixed((("k", (X, 1)),), Fix(X, Y, X))) == {X, Y}


# --- substitution --------------------------------------------------------------------------------


def naive_substitute(term: Term, mapping: Mapping[Any, Term], supply: list[int]) -> Term:
    """The definition, by recursion: every binder gets a name nobody else has."""
    if term in mapping:
        return mapping[term]
    if not type(term).binds:
        return rebuild(term, tuple(naive_substitute(k, mapping, supply) for k in children(term)))
    new: dict[Term, Term] = {}
    for own, _, variables in bound_by(term):
        hidden = {v for name, scope, vs in bound_by(term) if own in (name, *scope) for v in vs}
        for variable in variables:
            if variable not in new:
                supply[0] += 1
                # A variable's own type may mention one that the same field binds before it.
                inner = {v: e for v, e in mapping.items() if v not in hidden} | new
                kids = tuple(naive_substitute(k, inner, supply) for k in children(variable))
                moved = rebuild(variable, kids)
                new[variable] = rename(moved, Name("naive", supply[0]))
    parts = []
    for name, kid in fields_of_children(term):
        inner = dict(mapping)
        for own, scope, variables in bound_by(term):
            if name in (own, *scope):
                inner.update((v, new[v]) for v in variables)
        parts.append(naive_substitute(kid, inner, supply))
    return rebuild(term, tuple(parts))


def mappings() -> st.SearchStrategy[dict[Ref, Toy]]:
    return st.dictionaries(toy_vars(), toys(depth=2), max_size=2)


@given(toys(), mappings())
def test_substitution_is_that_of_the_definition(term: Toy, mapping: dict[Ref, Toy]) -> None:
    found = substitute(term, mapping)
    note(f"{found!r}")
    assert alpha_equal(found, naive_substitute(term, mapping, [0]))


@given(toys(), mappings())
def test_what_is_free_after_substitution(term: Toy, mapping: dict[Ref, Toy]) -> None:
    before = free_vars(term)
    expected = (before - mapping.keys()).union(
        *(free_vars(mapping[v]) for v in mapping if v in before)
    )
    assert free_vars(substitute(term, mapping)) == expected


@given(toys(), mappings())
def test_substituting_what_is_not_free_changes_nothing(term: Toy, mapping: dict[Ref, Toy]) -> None:
    assert substitute(term, {}) is term
    away = {v: e for v, e in mapping.items() if v not in free_vars(term)}
    assert substitute(term, away) is term
    assert substitute(term, {v: v for v in mapping}) is term or alpha_equal(
        substitute(term, {v: v for v in mapping}), term
    )


@given(toys(), toys(depth=2), toys(depth=2), toy_vars(), toy_vars())
def test_the_substitution_lemma(term: Toy, a: Toy, b: Toy, x: Ref, y: Ref) -> None:
    """t[x := a][y := b] is t[y := b][x := a[y := b]] where x is not y and not free in b."""
    if x is y or x in free_vars(b):
        return
    left = substitute(substitute(term, {x: a}), {y: b})
    right = substitute(substitute(term, {y: b}), {x: substitute(a, {y: b})})
    assert alpha_equal(left, right)


@given(toys(), mappings())
def test_substitution_does_not_depend_on_bound_names(term: Toy, mapping: dict[Ref, Toy]) -> None:
    renamed = naive_substitute(term, {}, [0])
    assert alpha_equal(substitute(renamed, mapping), substitute(term, mapping))


def test_substitution_is_simultaneous() -> None:
    assert substitute(Pair(X, Y), {X: Y, Y: X}) is Pair(Y, X)


def test_bound_variables_make_way() -> None:
    assert substitute(Fix(X, Y, Pair(X, Y)), {Y: X}) is Fix(X1, X, Pair(X1, X))
    # the first name that offers itself is that of the other bound variable
    both = Bind((X, X1), (Leaf(1), Leaf(2)), Many("l", (X, X1, Y)))
    found = substitute(both, {Y: X})
    assert alpha_equal(found, naive_substitute(both, {Y: X}, [0]))
    assert len(set(found.vars)) == 2


def test_a_variable_that_changes_with_its_type_captures_nothing() -> None:
    """`x: A` becomes `x: f32`, and another `x: f32` was there already."""
    a = TypeVar(Name("A"))
    here, there = Var(Name("x"), a), Var(Name("x"), tensor((), f32))
    function = Function((), (), (here,), None, Tuple((here, there)))
    found = substitute(function, {a: tensor((), f32)})
    assert isinstance(found, Function)
    assert free_vars(found) == {there}
    assert found.params[0].type is tensor((), f32)
    assert isinstance(found.body, Tuple)
    assert found.body.items == (found.params[0], there)


def test_dims_inside_types_are_substituted_and_shadowed() -> None:
    n, m = dim_var("n"), dim_var("m")
    x = Var(Name("x"), TensorType((n, m), f32))
    function = Function((n,), (), (x,), None, x)
    assert free_vars(function) == {m}
    assert substitute(function, {n: Lit(3, n.dtype)}) is function
    found = substitute(function, {m: n})
    assert alpha_equal(found, naive_substitute(function, {m: n}, [0]))
    assert free_vars(found) == {n}


@given(toys())
def test_rename_changes_the_name_alone(term: Toy) -> None:
    for variable in variables_of(term):
        other = rename(variable, Name("other"))
        assert name_of(other) == Name("other")
        assert rename(other, name_of(variable)) is variable


# --- depth, sharing, many variables --------------------------------------------------------------


def lets(count: int, use_all: bool) -> Any:
    """`x1 = ..; ..; xn = ..; body`, where the body uses the last variable or all of them."""
    variables = [Ref(Name("v", i)) for i in range(count)]
    term: Toy = Many("all", tuple(variables)) if use_all else variables[-1]
    for i in range(count - 1, 0, -1):
        term = Fix(variables[i], Pair(variables[i - 1], X), term)
    return term


@pytest.mark.parametrize(("count", "use_all"), [(4_000, False), (4_000, True)])
def test_a_long_chain_of_lets(count: int, use_all: bool) -> None:
    term = lets(count, use_all)
    first = Ref(Name("v", 0))
    assert free_vars(term) == {first, X}
    found = substitute(term, {first: Leaf(1)})
    assert free_vars(found) == {X}
    assert substitute(found, {first: Leaf(1)}) is found
    middle = Ref(Name("v", count // 2))
    assert free_vars(substitute(term, {X: middle})) == {first, middle}


@pytest.mark.parametrize("count", [LIMIT - 1, LIMIT, LIMIT + 1, 3 * LIMIT])
def test_large_sets_are_as_exact_as_small_ones(count: int) -> None:
    variables = [Ref(Name("w", i)) for i in range(count)]
    body = Many("all", tuple(variables))
    shared = Pair(body, Pair(body, Leaf(count)))
    term: Toy = shared
    for variable in variables[: count // 2]:
        term = Bind((variable,), (shared,), Pair(term, shared))
    assert free_vars(term) == frozenset(variables)
    whole = Fix(variables[0], Leaf(1), Bind(tuple(variables[1:]), (), Pair(shared, variables[0])))
    assert free_vars(whole) == frozenset()
    assert free_vars(body) == frozenset(variables)
    for node in post_order(term):
        assert free_vars(node) >= {variables[-1]} or type(node).variable or not children(node)
    found = substitute(term, {variables[-1]: Leaf("gone")})
    assert free_vars(found) == free_vars(term) - {variables[-1]}


def test_deep_and_shared_terms() -> None:
    for term in (chain(20_000), doubling(60)):
        around: Any = Fix(X, X, Pair(term, Y))  # type: ignore[arg-type]  # toys of the toy language
        assert free_vars(around) == {Y}
        found = substitute(around, {Y: X})
        assert found.body.left is term
        assert free_vars(found) == {X}
