"""Digests: the same for what differs in bound names alone, different for all else, everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import pytest
from hypothesis import assume, given, strategies as st

from plica.core import summary
from plica.core.binding import substitute
from plica.core.digest import Path, alpha_equal, at, digest, first_difference, steps
from plica.core.fold import post_order
from plica.core.name import Name
from plica.core.summary import MIN_DIGESTED_BYTES, plain
from plica.core.term import Term, rebuild
from plica.ir.graph.expression import Function, Let, Tuple, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.loop.scalar import Buffer, Lit
from plica.ir.loop.tensor import compute
from plica.ir.type.dtype import f32
from plica.ir.type.term import FuncType, TypeVar, dim_var, tensor
from tests.core.test_binding import X1, X, Y, lets, naive_substitute
from tests.core.test_term import chain, doubling
from tests.strategies import modules, terms, toys
from tests.strategies.term import Bind, Fix, Leaf, Many, Mixed, Pair, Ref, Toy, toy_vars


@given(terms())
def test_bound_names_do_not_matter(term: Term) -> None:
    renamed = naive_substitute(term, {}, [0])
    assert digest(renamed) == digest(term)
    assert alpha_equal(renamed, term)
    if not isinstance(term, Module):
        assert first_difference(term, renamed) is None


@given(terms(), st.randoms(use_true_random=False))
def test_what_is_remembered_of_parts_makes_no_difference(term: Term, random: Random) -> None:
    parts = post_order(term)
    for each in random.sample(parts, min(len(parts), 3)):
        summary.summary(each)
    assert summary.summary(term) == summary.summaries(term)[term]
    assert summary.summary(term) == summary.summary(term)


@given(modules())
def test_names_of_definitions_do_not_matter(whole: Module) -> None:
    mapping: dict[Term, Term] = {}
    for i, name in enumerate(whole.names):
        new = Name("renamed", len(whole.names) - i)
        mapping[name] = Var(new, name.type) if isinstance(name, Var) else type(name)(new)
    # A data type's name occurs in the types of other names, so those are renamed in two rounds.
    renamed: Any = _everywhere(whole, mapping)
    assert digest(renamed) == digest(whole)


def _everywhere(whole: Module, mapping: Mapping[Term, Term]) -> Module:
    data = {a: b for a, b in mapping.items() if not isinstance(a, Var)}
    rest = {substitute(a, data): substitute(b, data) for a, b in mapping.items() if a not in data}

    def moved(term: Any) -> Any:
        return substitute(substitute(term, data), rest)

    names = tuple(map(moved, whole.names))
    return Module(names, tuple(map(moved, whole.values)), moved(whole.main))


@st.composite
def edits(draw: st.DrawFn, term: Term) -> tuple[Term, Path]:
    """The term with one occurrence of one subterm replaced, and where that is."""
    path: list[str | int] = []
    trail: list[tuple[Term, int]] = []
    node = term
    while True:
        own = {name for name, _ in type(node).binds}
        ways = [(i, s, kid) for i, (s, kid) in enumerate(steps(node)) if s[0] not in own]
        if not ways or draw(st.integers(0, 3)) == 0:
            break
        i, step, kid = draw(st.sampled_from(ways))
        trail.append((node, i))
        path.extend(step)
        node = kid
    new: Term = Leaf("edited")
    assume(new is not node)
    for parent, i in reversed(trail):
        kids = parent._children
        new = rebuild(parent, (*kids[:i], new, *kids[i + 1 :]))
    return new, tuple(path)


@given(st.data())
def test_the_first_difference_is_the_only_one(data: st.DataObject) -> None:
    term = data.draw(toys())
    edited, path = data.draw(edits(term))
    assert not alpha_equal(edited, term)
    assert first_difference(term, edited) == path == first_difference(edited, term)
    assert at(edited, path) is Leaf("edited")
    renamed = naive_substitute(edited, {}, [0])
    assert first_difference(term, renamed) == path


@given(toys(), toys())
def test_equal_digests_no_difference_and_alpha_equality_are_one(a: Toy, b: Toy) -> None:
    same = digest(a) == digest(b)
    assert alpha_equal(a, b) == same
    assert (first_difference(a, b) is None) == same
    assert same == naive_alpha(a, b, {}, {})


def naive_alpha(a: Any, b: Any, there: dict[Term, Term], back: dict[Term, Term]) -> bool:
    """The definition for the toy language, by recursion."""
    if type(a) is not type(b):
        return False
    match a, b:
        case Ref(), Ref():
            if a in there or b in back:
                return there.get(a) is b and back.get(b) is a
            return a is b
        case Bind(), Bind():
            outside = naive_all(a.values, b.values, there, back)
            bodies = ((a.body,), (b.body,))
            return outside and naive_scope((a.vars, b.vars), bodies, there, back)
        case Fix(), Fix():
            inside = ((a.value, a.body), (b.value, b.body))
            return naive_scope(((a.var,), (b.var,)), inside, there, back)
        case Leaf(), Leaf():
            return a is b
        case Mixed(), Mixed():
            if summary.own_data(a) != summary.own_data(b):
                return False
            return naive_all(a._children, b._children, there, back)
        case Many(), Many():
            return a.label == b.label and naive_all(a.items, b.items, there, back)
        case _:
            return naive_all(a._children, b._children, there, back)


def naive_all(a: Any, b: Any, there: dict[Term, Term], back: dict[Term, Term]) -> bool:
    pairs = zip(a, b, strict=False)
    return len(a) == len(b) and all(naive_alpha(x, y, there, back) for x, y in pairs)


def naive_scope(bound: Any, inside: Any, there: dict[Term, Term], back: dict[Term, Term]) -> bool:
    a, b = bound
    if [each.kind for each in a] != [each.kind for each in b]:
        return False
    pairs = list(zip(a, b, strict=True))
    there = {k: v for k, v in there.items() if k not in a} | dict(pairs)
    back = {k: v for k, v in back.items() if k not in b} | {y: x for x, y in pairs}
    return naive_all(inside[0], inside[1], there, back)


@given(toys(), toy_vars(), toy_vars())
def test_free_names_do_matter(term: Toy, x: Ref, y: Ref) -> None:
    whole = Many("both are free", (x, y, term))
    swapped = substitute(whole, {x: y, y: x})
    assert alpha_equal(swapped, whole) == (x is y)


def test_what_differs() -> None:
    different = [
        Pair(X, Y), Pair(Y, X), Pair(X, X), Pair(X, X1), Fix(X, X, X), Fix(X, X, Y), Fix(X, Y, X),
        Fix(X, X, Fix(Y, X, X)), Fix(X, X, Fix(Y, Y, X)), Fix(X, X, Fix(Y, X, Y)),
        Bind((X,), (X,), X), Bind((X, Y), (X, X), X), Bind((X, Y), (X, X), Y), Leaf(1), Leaf(True),
        Leaf(1.0), Leaf(0.0), Leaf(-0.0), Leaf("1"), Leaf(b"1"), Leaf(("1",)), Leaf(()), Leaf(None),
        Many("a", ()), Many("a", (X,)), Many("b", (X,)), Many("a", (X, X)), Ref(Name("x"), 1), X,
        Mixed((("k", X),)), Mixed((("k", (X,)),)), Mixed((), X), Leaf(10), Leaf(-16), Leaf("10"),
    ]  # fmt: skip
    assert len({digest(each) for each in different}) == len(different)


def test_an_order_that_equals_another_by_chance_is_written_alike() -> None:
    """The digest of a subterm must not depend on what was digested before it."""
    inner = Fix(Ref(Name("u")), X, Pair(X, Y))
    for first in (Pair(inner, inner), Pair(Pair(X, Y), X1), Pair(inner, X1), Leaf(0)):
        before = summary.summaries(Many("m", (first, Pair(inner, X1))))
        assert before[Pair(inner, X1)][0] == summary.summaries(Pair(inner, X1))[Pair(inner, X1)][0]


# --- modules -------------------------------------------------------------------------------------


def defined(name: str, calls: tuple[Var, ...] = ()) -> tuple[Var, Function]:
    scalar = tensor((), f32)
    body = Tuple((const(1.0, f32), *calls))
    function = Function((), (), (), None, body)
    return Var(Name(name), FuncType((), (), (), scalar)), function


def test_definitions_that_main_does_not_reach_count_but_have_no_order() -> None:
    h1, h2 = defined("h1"), defined("h2")
    main = defined("main")
    users = [defined("a", (h1[0],)), defined("b", (h1[0],)), defined("c", (h2[0],))]
    others = [defined("a", (h2[0],)), defined("b", (h1[0],)), defined("c", (h1[0],))]
    one = module(dict([main, h1, h2, *users]), main[0])
    two = module(dict([main, h1, h2, *others]), main[0])
    assert digest(one) == digest(two)
    fewer = module(dict([main, h1, *users[:2]]), main[0])
    assert len({digest(one), digest(fewer), digest(module(dict([main]), main[0]))}) == 3
    assert digest(one) != digest(module(dict([main, h1, h2, *users]), users[0][0]))
    assert digest(one) != digest(module(dict([main, h1, h2, *users])))


def test_two_modules_are_compared_definition_by_definition() -> None:
    h, main = defined("h"), defined("main")
    changed = defined("h", (h[0],))
    a, b = module(dict([main, h]), main[0]), module(dict([main, changed]), main[0])
    assert first_difference(a, b) == ("values", 0, "body")
    assert at(a, ("values", 0, "body")) is h[1].body


# --- everywhere the same -------------------------------------------------------------------------


def golden_terms() -> dict[str, Term]:
    a, n = TypeVar(Name("A")), dim_var("n")
    x = Var(Name("x"), tensor((n, 4), f32))
    y = Var(Name("y"), a)
    buffer = Buffer(Name("b"), (Lit(3, n.dtype),), f32)
    pair = Function((n,), (a,), (x, y), None, Let(y, x, Tuple((x, y, const([1.5], "bf16")))))
    many = [Ref(Name("v", i)) for i in range(summary.LIMIT + 1)]
    large: Any = Many("large", (*many, *many))
    return {
        "leaf": Leaf(0.1),
        "free": Pair(X, Pair(Y, X)),
        "scopes": Bind((X, Y), (Y, X), Fix(X1, X, Pair(X1, Pair(X, Y)))),
        "mixed": Mixed((("é", (-1, True, None, 2**70, b"\0", X)),), None),
        "function": pair,
        "module": module({Var(Name("main"), None): pair}, Var(Name("main"), None)),
        "compute": compute((buffer,), (3,), lambda i: buffer[i] * 2),
        "large": large,
        "large bound": Bind(tuple(many[:-1]), (), large),
        "large again": Fix(many[0], large, Pair(large, Fix(many[1], large, large))),
    }


GOLDEN: Final[dict[str, str]] = {
    "leaf": "210ae1ee6afa36cc851590316bf689a6",
    "free": "f943a29173b2425e90d1f0ad5108207c",
    "scopes": "758a7bf4ba65f22b01b01580e159f99e",
    "mixed": "89ac0040aed46224f91be2d94135bd2b",
    "function": "7ed5b49e04d4b891ebd6af6e5e8f5be5",
    "module": "c2ec023addb6b2531ef270364df5eb96",
    "compute": "9624bb394c8993c8f0fcfdd745114f0b",
    "large": "25c2b4af877be3c8f0900841ddc68acc",
    "large bound": "415456541ea372dc5b3c55287c8159f4",
    "large again": "3438161f86d1831d5da0dcc0fc788ee3",
}


@pytest.mark.parametrize("name", golden_terms())
def test_digests_of_old_are_kept(name: str) -> None:
    """They are part of file formats: a change here needs a new version of every one of them."""
    assert digest(golden_terms()[name]) == GOLDEN[name]


def test_digests_do_not_depend_on_the_hash_seed() -> None:
    code = (
        "from tests.core.test_digest import *\n"
        "print({name: digest(term) for name, term in golden_terms().items()} == GOLDEN)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}  # here it is another
    shown = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == "True"


# --- depth, sharing, many variables --------------------------------------------------------------


@pytest.mark.parametrize(("build", "depth"), [(chain, 20_000), (doubling, 60)])
def test_deep_and_shared_terms(build: Callable[[int], Any], depth: int) -> None:
    term = build(depth)
    around = Fix(X, X, Pair(term, X))
    assert alpha_equal(around, Fix(Y, Y, Pair(term, Y)))
    assert first_difference(around, Fix(Y, Y, Pair(term, X))) == ("body", "right")
    other = build(depth - 1)
    assert first_difference(term, other) is not None


@pytest.mark.parametrize(("count", "use_all"), [(2_000, False), (2_000, True)])
def test_a_long_chain_of_lets(count: int, use_all: bool) -> None:
    term = lets(count, use_all)
    moved = substitute(term, {X: Ref(Name("v", count // 2))})
    back = substitute(moved, {Ref(Name("v", count // 2)): X})
    assert digest(moved) != digest(term) == digest(back)


@pytest.mark.parametrize("use_all", [False, True])
def test_the_difference_in_a_chain_of_lets(use_all: bool) -> None:
    term = lets(1_000, use_all)
    assert first_difference(term, substitute(term, {X: Ref(Name("v", 500))})) == ("value", "right")
    other = lets(1_000, not use_all)
    assert first_difference(term, other) == ("body",) * 999


def closed(count: int, extra: int, order: Callable[[int], int]) -> Toy:
    """Many variables, all bound, the names of which come from `order`."""
    variables = [Ref(Name("c", order(i))) for i in range(count)]
    term: Toy = Many("all", tuple(variables))
    shared = Pair(term, Pair(term, variables[extra]))
    term = Pair(shared, Pair(shared, Mixed((("k", variables[0]),), term)))
    for variable in variables[:8]:
        term = Fix(variable, Pair(term, shared), Pair(shared, term))
    return Bind(tuple(variables), (), term)


@pytest.mark.parametrize("count", [summary.LIMIT + each for each in (-1, 0, 1, 40)])
def test_many_variables_are_told_apart_as_few_are(count: int) -> None:
    term = closed(count, 3, lambda i: i)
    assert digest(term) == digest(closed(count, 3, lambda i: count - i))
    assert digest(term) != digest(closed(count, 4, lambda i: i))
    path = first_difference(term, closed(count, 4, lambda i: count - i))
    assert path is not None
    assert at(term, path) is Ref(Name("c", 3))
    renamed = naive_substitute(closed(20, 3, lambda i: i), {}, [0])
    assert alpha_equal(renamed, closed(20, 3, lambda i: i))


@given(st.binary(min_size=1, max_size=3), st.integers(0, 2), st.integers(0, 255))
def test_bytes_have_a_digest_of_their_own(start: bytes, more: int, changed: int) -> None:
    """Few and many bytes are told from others, whatever holds them."""
    data = start * MIN_DIGESTED_BYTES + bytes(more)
    other = bytes([*data[:-1], data[-1] ^ changed])
    assert plain(memoryview(data)) == plain(data)
    assert (plain(other) == plain(data)) == (other == data)
    assert (
        len(
            {
                plain(data[:size])
                for size in (MIN_DIGESTED_BYTES - 1, MIN_DIGESTED_BYTES, len(data) + 1)
            }
        )
        >= 2
    )
