"""Buffer addresses: what instructions name beside a base is in their reach."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.codegen.llvm.buffer_address import REGISTER_BYTES, UNALIGNED, base_element

STEPS = 4096


@given(st.integers(-(10**6), 10**6), st.sampled_from((1, 2, 4, 8)), st.sampled_from((1, 4, 16, 64)))
def test_an_instruction_reaches_what_it_reads(plus: int, element: int, lanes: int) -> None:
    size = min(element * lanes, REGISTER_BYTES)
    offset = (plus - base_element(plus, element, element * lanes, STEPS)) * element
    near = -UNALIGNED <= offset < UNALIGNED
    assert near or (offset % size == 0 and 0 <= offset < size * STEPS)


@given(st.integers(0, 10**5), st.sampled_from((4, 8)))
def test_neighbours_share_a_base(plus: int, element: int) -> None:
    bases = {base_element(plus + each, element, element, STEPS) for each in range(8)}
    assert len(bases) <= 2  # one of them ends there
