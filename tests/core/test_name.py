"""Names: printing them, and finding new ones."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.core.name import Name, fresh
from tests.strategies import names


@given(names(), st.sets(names(), max_size=8))
def test_a_fresh_name_is_new_and_alike(like: Name, used: set[Name]) -> None:
    found = fresh(like, used)
    assert found not in used
    assert found.hint == like.hint
    assert found.index >= like.index
    assert (like not in used) == (found == like)


@given(names(), st.sets(names(), max_size=8))
def test_a_fresh_name_is_the_first_that_will_do(like: Name, used: set[Name]) -> None:
    found = fresh(like, used)
    assert all(Name(like.hint, i) in used for i in range(like.index, found.index))


def test_names_read_as_people_write_them() -> None:
    assert (str(Name("x")), str(Name("x", 2))) == ("x", "x_2")
