"""Winograd weights by whole arrays: the bits of the definition, in any order."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
from hypothesis import given, strategies as st

from plica.core.digest import digest
from plica.ir.graph.expression import Const, const
from plica.ir.graph.provenance import made_later
from plica.ir.graph.weight_array import ColumnwiseArray
from plica.ir.interpret.graph_machine import computed
from plica.ir.op.winograd import TILES, winograd_weight

Array = np.ndarray[Any, Any]


def drawn(seed: int, shape: tuple[int, int], kind: str, scale: str) -> Array:
    """Numbers with zeros of both signs among them, small, usual, near the greatest, or none."""
    rng = np.random.default_rng(seed)
    of = np.dtype(kind)
    limits = np.finfo(of)
    whole = rng.standard_normal((*shape, 3, 3)).astype(of)
    whole[rng.random(whole.shape) < 0.2] *= 0
    factor = {"tiny": limits.smallest_subnormal * 4, "usual": 1, "huge": limits.max / 4}.get(scale)
    if factor is None:
        whole[rng.random(whole.shape) < 0.1] = np.inf
        whole[rng.random(whole.shape) < 0.1] = np.nan
        return whole
    with np.errstate(all="ignore"):
        whole *= of.type(factor)
    return whole


def bits(of: Array) -> bytes:
    """Those of numbers; of what is no number a processor decides the sign."""
    return np.where(np.isnan(of), of.dtype.type(np.nan), of).tobytes()


@given(
    st.integers(0, 2**32),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from(("f4", "f8")),
    st.sampled_from(("tiny", "usual", "huge", "none")),
    st.sampled_from([*TILES]),
)
def test_it_has_the_bits_of_the_definition(
    seed: int, shape: tuple[int, int], kind: str, scale: str, tile: int
) -> None:
    assert winograd_weight.decompose is not None
    weight = const(drawn(seed, shape, kind, scale))
    wanted = computed(winograd_weight.decompose({"tile": tile}, weight))
    found = computed(winograd_weight(weight, tile))
    assert isinstance(wanted, np.ndarray)
    assert isinstance(found, np.ndarray)
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert bits(found) == bits(wanted)


def test_many_pairs_of_channels_are_made_in_pieces_and_are_the_same() -> None:
    assert winograd_weight.decompose is not None
    weight = const(drawn(1, (230, 170), "f4", "usual"))
    wanted = computed(winograd_weight.decompose({"tile": 2}, weight))
    assert isinstance(wanted, np.ndarray)
    assert np.array_equal(np.asarray(computed(winograd_weight(weight, 2))), wanted)


def test_a_weight_that_is_made_later_is_the_constant_it_will_be() -> None:
    folded = winograd_weight(const(drawn(2, (32, 40), "f4", "usual")), 4)
    later, again = made_later(folded), made_later(folded)
    assert later is not None
    assert later is again
    assert isinstance(later.data, ColumnwiseArray)
    assert later.elements is later.data
    assert len(later.data) == 36 * 40 * 32 * 4
    now = const(np.asarray(computed(folded)))
    assert digest(later) == digest(now)
    assert later.data.is_read
    assert isinstance(later.elements, np.ndarray)
    there = pickle.loads(pickle.dumps(later))
    assert isinstance(there, Const)
    assert there is now


def test_what_is_no_constant_is_not_made_later() -> None:
    weight = const(drawn(3, (4, 4), "f4", "usual"))
    assert made_later(weight + weight) is None
    assert made_later(winograd_weight(weight + weight, 4)) is None
