"""The roof: nearer memory comes first, and more work takes no less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plica.bench.roof import Roof, roof_of
from plica.runtime.error import UnsupportedError
from plica.runtime.profile import Profile

ROOF = Roof(100.0, ((1000, 50.0), (10_000, 20.0), (None, 10.0)))


@given(st.integers(0, 10**12), st.integers(0, 10**9))
def test_more_work_takes_no_less(operations: int, touched: int) -> None:
    least = ROOF.least(operations, touched)
    assert least <= ROOF.least(operations + 1, touched)
    assert least <= ROOF.least(operations, 2 * touched)


def test_the_last_memory_of_a_profile_holds_anything() -> None:
    assert roof_of(Profile((), 1, 0.0, 5.0, ((10, 3.0), (20, 2.0)))) == Roof(
        5.0, ((10, 3.0), (None, 2.0))
    )
    assert roof_of(Profile((), 1, 0.0, 5.0, 2.0)) == Roof(5.0, ((None, 2.0),))


def test_a_profile_that_knows_no_roof_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="not known"):
        roof_of(Profile((), 1, 0.0))
