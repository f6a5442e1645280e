"""Exhaustiveness against brute force: every value of a small depth, matched one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from hypothesis import given, strategies as st

from plica.core.name import Name
from plica.ir.graph.exhaustiveness import match_errors, missing, redundant, show_pattern
from plica.ir.graph.expression import (
    Clause,
    Constructor,
    Function,
    Literal,
    Match,
    PAny,
    Pattern,
    PConstructor,
    PTuple,
    PVar,
    Var,
)
from plica.ir.graph.module import (
    ConstructorDef,
    DataDef,
    Defined,
    Definition,
    Module,
    constructors,
    module,
)
from plica.ir.type.term import DataName, DataType, TupleType, Type, tensor

TREE, COLOUR = DataName(Name("Tree")), DataName(Name("Colour"))
OF_TREE, OF_COLOUR = DataType(TREE, ()), DataType(COLOUR, ())
COLOURS = DataDef((), tuple(ConstructorDef(Name(c), ()) for c in ("Red", "Green", "Blue")))
TREES = DataDef(
    (),
    (
        ConstructorDef(Name("Leaf"), (OF_COLOUR,)),
        ConstructorDef(Name("Node"), (OF_TREE, OF_TREE)),
        ConstructorDef(Name("Both"), (TupleType((OF_COLOUR, OF_TREE)),)),
    ),
)
DATA: dict[Defined, DataDef] = {TREE: TREES, COLOUR: COLOURS}
RED, GREEN, BLUE = constructors(COLOUR, COLOURS)
LEAF, NODE, BOTH = constructors(TREE, TREES)
Value = tuple[object, ...]  # a head (a constructor or "tuple") and parts

x = Var(Name("x"), None)


def values(of: Type, depth: int) -> Iterator[Value]:
    """Every value of a type down to a depth; below it, one opaque value."""
    if isinstance(of, TupleType):
        for parts in product(*(list(values(each, depth)) for each in of.items)):
            yield ("tuple", *parts)
    elif isinstance(of, DataType):
        if depth == 0:
            yield ("deep",)
            return
        data = DATA[of.data]
        for made, definition in zip(constructors(of.data, data), data.constructors, strict=True):
            for parts in product(*(list(values(each, depth - 1)) for each in definition.fields)):
                yield (made, *parts)


def fits(pattern: Pattern, value: Value) -> bool:
    match pattern:
        case PConstructor(constructor, items):
            return value[0] is constructor and all(map(fits, items, value[1:]))  # type: ignore[arg-type]  # parts are values
        case PTuple(items):
            return all(map(fits, items, value[1:]))  # type: ignore[arg-type]  # as above
        case _:
            return True


def patterns(of: Type, depth: int) -> st.SearchStrategy[Pattern]:
    any_: st.SearchStrategy[Pattern] = st.sampled_from([PAny(), PVar(x)])
    if depth == 0:
        return any_
    if isinstance(of, TupleType):
        items = st.tuples(*(patterns(each, depth) for each in of.items))
        return st.one_of(any_, items.map(PTuple))
    assert isinstance(of, DataType)
    data = DATA[of.data]
    options: list[st.SearchStrategy[Pattern]] = [any_]
    for made, definition in zip(constructors(of.data, data), data.constructors, strict=True):
        options.append(_built(made, definition, depth))
    return st.one_of(options)


def _built(made: Constructor, definition: ConstructorDef, depth: int) -> st.SearchStrategy[Pattern]:
    parts = st.tuples(*(patterns(each, depth - 1) for each in definition.fields))
    return parts.map(lambda items: PConstructor(made, items))


WHOLE = TupleType((OF_TREE, OF_COLOUR))
rows = st.lists(patterns(WHOLE, 2), min_size=1, max_size=6)


@given(rows)
def test_missing_patterns_are_exactly_what_is_left(clauses: list[Pattern]) -> None:
    left = list(missing(clauses, DATA))
    for value in values(WHOLE, 3):
        covered = any(fits(each, value) for each in clauses)
        among = [each for each in left if fits(each, value)]
        assert len(among) == (0 if covered else 1), value  # disjoint as well


@given(rows)
def test_a_redundant_clause_matches_nothing_new(clauses: list[Pattern]) -> None:
    found = redundant(clauses, DATA)
    every = list(values(WHOLE, 3))
    for position, pattern in enumerate(clauses):
        before = clauses[:position]
        new = any(fits(pattern, v) and not any(fits(p, v) for p in before) for v in every)
        assert (position in found) == (not new)


@given(rows)
def test_an_exhaustive_match_is_never_reported(clauses: list[Pattern]) -> None:
    complete = [*clauses, *missing(clauses, DATA)]
    assert list(missing(complete, DATA)) == []


def with_match(*clauses: Pattern, total: bool = True) -> Module:
    main, t = Var(Name("main"), None), Var(Name("t"), OF_TREE)
    body = Match(t, tuple(Clause(each, Literal(1)) for each in clauses), total)
    parts: dict[Defined, Definition] = {**DATA}
    parts[main] = Function((), (), (t,), None, body)
    return module(parts, main)


def test_nested_patterns_are_named() -> None:
    (error,) = match_errors(with_match(PConstructor(NODE, (PConstructor(LEAF, (PAny(),)), PAny()))))
    assert error.code == "non-exhaustive-match"
    assert error.found == "no clause for Leaf(_), Node(Node(_, _), _), Node(Both(_), _), Both(_)"


def test_a_partial_match_may_leave_values_out() -> None:
    assert match_errors(with_match(PConstructor(LEAF, (PAny(),)), total=False)) == ()


def test_a_clause_after_all_is_redundant() -> None:
    (error,) = match_errors(with_match(PAny(), PConstructor(LEAF, (PVar(x),))))
    assert error.code == "redundant-clause"
    assert "Leaf(x)" in error.message


def test_long_lists_of_missing_patterns_are_cut() -> None:
    many = PConstructor(NODE, (PConstructor(NODE, (PConstructor(LEAF, (PConstructor(RED, ()),)),
                                                   PConstructor(LEAF, (PConstructor(RED, ()),)))),
                               PConstructor(LEAF, (PConstructor(RED, ()),))))  # fmt: skip
    (error,) = match_errors(with_match(many))
    assert error.found is not None
    assert error.found.endswith("…")


def test_wide_tuples_and_hard_matches() -> None:
    t = Var(Name("t"), TupleType((tensor((), "f32"),) * 2_000))
    main = Var(Name("main"), None)
    wide = PTuple(tuple(PVar(Var(Name("v", i), None)) for i in range(2_000)))
    body = Match(t, (Clause(wide, Literal(1)),))
    assert match_errors(module({main: Function((), (), (t,), None, body)}, main)) == ()

    width = 40  # each clause looks at one column: exponential for the matrix algorithm
    of = TupleType((OF_COLOUR,) * width)
    clauses = tuple(
        Clause(
            PTuple(tuple(PConstructor((RED, GREEN)[j % 2], ()) if j in (i, (i * 7 + 3) % width)
                         else PAny() for j in range(width))),
            Literal(1),
        )
        for i in range(width)
    )  # fmt: skip
    hard = Match(Var(Name("t"), of), clauses, True)
    parts: dict[Defined, Definition] = {**DATA}
    found = match_errors(
        module(parts | {main: Function((), (), (Var(Name("t"), of),), None, hard)}, main)
    )
    assert {each.code for each in found} <= {
        "unsupported",
        "non-exhaustive-match",
        "redundant-clause",
    }


def test_patterns_print_as_scripts_write_them() -> None:
    assert show_pattern(PTuple((PAny(),))) == "(_,)"
    assert show_pattern(PTuple(())) == "()"
    assert show_pattern(PConstructor(BOTH, (PTuple((PConstructor(BLUE, ()), PVar(x))),))) == (
        "Both((Blue(), x))"
    )
