"""Terms: interning, children and rebuild, copies, pickles, threads, and dying."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import struct
import subprocess
import sys
import threading
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from plica.core.name import Name
from plica.core.term import LARGE_BYTES, Term, children, class_of, field_kinds, field_names, rebuild
from plica.ir.loop.scalar import Add, Lit, Scalar
from plica.ir.type.dtype import f32
from tests.strategies import terms, toys
from tests.strategies.term import PLAIN, Bind, Leaf, Many, Mixed, Pair, Ref, Toy


@given(terms())
def test_rebuilding_from_the_same_children_gives_the_same_term(term: Term) -> None:
    assert rebuild(term, children(term)) is term


@given(terms())
def test_building_from_the_same_fields_gives_the_same_term(term: Term) -> None:
    names = field_names(type(term))
    fields = {name: getattr(term, name) for name in names}
    build: Any = type(term)
    assert build(*fields.values()) is term
    assert build(**fields) is term
    assert attrs.evolve(build(**fields)) is term


@given(toys(), toys(), toys())
def test_rebuild_puts_children_where_they_were(a: Toy, b: Toy, c: Toy) -> None:
    assert rebuild(Pair(a, b), (b, c)) is Pair(b, c)
    assert rebuild(Many("l", (a, b)), (c, a)) is Many("l", (c, a))
    mixed = Mixed((("k", (a, 1, ("deep", b))), ("l", "plain")), c)
    assert children(mixed) == (a, b, c)
    assert rebuild(mixed, (c, a, b)) is Mixed((("k", (c, 1, ("deep", a))), ("l", "plain")), b)
    assert rebuild(Mixed((), None), ()) is Mixed((), None)


@given(PLAIN, PLAIN)
def test_leaves_are_one_object_just_when_they_are_the_same_bits_of_the_same_type(
    a: Any, b: Any
) -> None:
    assert (Leaf(a) is Leaf(b)) == (_exactly(a) == _exactly(b))


def _exactly(value: object) -> object:
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    if isinstance(value, tuple):
        return "tuple", tuple(map(_exactly, value))
    return type(value).__name__, value


def test_what_python_conflates_stays_apart() -> None:
    one: tuple[Any, ...] = (1, True, 1.0)
    assert len({Leaf(each) for each in one}) == 3
    assert len({Leaf((each,)) for each in one}) == 3
    nan = struct.unpack("<d", bytes.fromhex("010000000000f87f"))[0]
    assert len({Leaf(0.0), Leaf(-0.0), Leaf(math.nan), Leaf(nan)}) == 4
    assert Leaf(math.nan) is Leaf(math.nan)
    assert len({Leaf("a"), Leaf(b"a"), Leaf(("a",)), Leaf(None)}) == 4


def test_keywords_defaults_and_evolve_come_to_the_same_term() -> None:
    x = Ref(Name("x"))
    assert x is Ref(name=Name("x")) is Ref(Name("x"), 0) is Ref(Name("x"), kind=0)
    assert attrs.evolve(x, kind=1) is Ref(Name("x"), 1)
    assert attrs.evolve(Pair(x, x), right=Leaf(1)) is Pair(x, Leaf(1))


@pytest.mark.parametrize(
    ("args", "named"),
    [((), {}), ((1, 2, 3), {}), ((Name("x"),), {"name": 1}), ((Name("x"),), {"other": 1})],
)
def test_wrong_arguments_are_type_errors(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="Ref"):
        Ref(*args, **named)


def test_fields_that_hold_terms_take_nothing_else() -> None:
    wrong: Any = 1
    with pytest.raises(TypeError, match="expects terms"):
        Pair(Leaf(1), wrong)
    with pytest.raises(TypeError, match="expects a tuple of terms"):
        Many("a", wrong)
    with pytest.raises(TypeError, match="expects terms"):
        Many("a", (wrong,))


def test_a_class_without_a_declaration_cannot_be_built() -> None:
    with pytest.raises(TypeError, match="Scalar is not a term one can build"):
        Scalar()
    assert class_of("ir.scalar.Scalar") is None
    assert class_of("ir.scalar.Add") is Add


def test_terms_do_not_change() -> None:
    pair: Any = Pair(Leaf(1), Leaf(2))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        pair.left = Leaf(3)


def test_the_kinds_of_fields_follow_the_declaration() -> None:
    assert field_kinds(Pair) == ("one", "one")
    assert field_kinds(Many) == ("plain", "many")
    assert field_kinds(Mixed) == ("mixed", "mixed")
    assert field_kinds(Bind) == ("many", "many", "one")


@given(terms())
def test_copies_and_pickles_are_the_term_itself(term: Term) -> None:
    assert copy.copy(term) is term
    assert copy.deepcopy(term) is term
    assert pickle.loads(pickle.dumps(term)) is term
    assert pickle.loads(pickle.dumps([term, (term,)])) == [term, (term,)]


def test_a_pickle_brings_the_classes_it_needs() -> None:
    text = pickle.dumps(Lit(1.5, f32)).hex()
    code = f"import pickle; print(pickle.loads(bytes.fromhex({text!r})))"
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() == "Lit(1.5, DType('f32'))"


@given(terms())
def test_repr_is_bounded(term: Term) -> None:
    assert len(repr(term)) <= 400


def doubling(depth: int) -> Term:
    term: Term = Leaf("bottom")
    for _ in range(depth):
        term = Pair(term, term)  # type: ignore[arg-type]  # toys of the toy language
    return term


def chain(depth: int, end: str = "end of the chain") -> Term:
    term: Term = Leaf(end)
    for _ in range(depth):
        term = Pair(term, Leaf(0))  # type: ignore[arg-type]  # toys of the toy language
    return term


def test_deep_and_shared_terms_print_copy_pickle_and_die() -> None:
    for term in (chain(20_000), doubling(60)):
        assert len(repr(term)) <= 400
        assert copy.deepcopy(term) is term
        assert pickle.loads(pickle.dumps(term)) is term
    del term


def table_size(cls: Any) -> int:
    return len(cls._table)


@pytest.mark.usefixtures("young")
def test_the_table_holds_no_term_alive() -> None:
    gc.collect()
    before = table_size(Pair)
    term: Term | None = chain(1_000, "short lived")
    assert table_size(Pair) == before + 1_000
    del term
    assert table_size(Pair) == before, "reference counting alone must free terms"


@pytest.mark.usefixtures("young")
def test_variables_die_with_their_free_sets() -> None:
    from plica.core.binding import free_vars

    gc.collect()
    gc.disable()
    try:
        before = table_size(Ref)
        x = Ref(Name("short lived"))
        assert free_vars(Pair(x, Leaf(1))) == {x}
        assert table_size(Ref) == before + 1
        del x
        assert table_size(Ref) == before, "a variable must not refer to itself"
    finally:
        gc.enable()


def test_threads_that_build_the_same_terms_get_the_same_terms() -> None:
    """Terms are born and die all the while, so that dead entries are met as well."""
    sides: list[list[int]] = [[] for _ in range(4)]
    gate = threading.Barrier(4)
    rounds, width = 60, 40
    kept: list[list[Any]] = [[None] * width for _ in range(4)]
    wrong: list[str] = []

    def build(me: int) -> None:
        for turn in range(rounds):
            gate.wait()
            kept[me] = [Pair(Leaf(turn), Many("t", (Leaf(i),))) for i in range(width)]
            gate.wait()
            if me == 0 and any(kept[0] != each for each in kept[1:]):
                wrong.append(f"twins in round {turn}")
            gate.wait()
            kept[me] = []
            for i in range(width):  # die and come back at once, against the other threads
                sides[me].append(id(Pair(Leaf(turn), Leaf(i))) & 1)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=build, args=(i,)) for i in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


@given(st.data())
def test_equality_is_identity(data: st.DataObject) -> None:
    a, b = data.draw(toys()), data.draw(toys())
    assert (a == b) == (a is b)
    assert (hash(a) == hash(b)) or a is not b


def test_a_renamed_class_is_written_down_as_before() -> None:
    @attrs.frozen(eq=False)
    class Renamed(Term):
        written = "ir.old.Before"

    assert Renamed.tag() == "ir.old.Before"


def test_a_class_in_a_moved_file_is_written_down_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "WRITTEN", "ir.old", raising=False)

    @attrs.frozen(eq=False)
    class Moved(Term):
        pass

    assert Moved.tag() == f"ir.old.{Moved.__qualname__}"


@attrs.frozen(eq=False)
class Bulk(Term):
    """A node of much data."""

    data: bytes


@given(st.integers(0, 3 * LARGE_BYTES), st.integers(0, 255))
def test_large_data_is_told_apart_by_every_byte(at: int, value: int) -> None:
    zeros = Bulk(bytes(3 * LARGE_BYTES + 1))
    changed = bytearray(3 * LARGE_BYTES + 1)
    changed[at] = value
    assert (Bulk(bytes(changed)) is zeros) == (value == 0)
    assert Bulk(bytes(changed)) is Bulk(bytes(changed))
