"""What an edit of a model leaves as it was comes from the store, and is what it would be anew."""

from __future__ import annotations

import itertools
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import plica
from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.type.term import tensor
from plica.pipeline.compiled import kept_pieces
from plica.runtime.archive import Piece
from plica.runtime.artefact import ALIGNMENT
from plica.runtime.link import can_link
from plica.runtime.store import ArtefactStore, key_of
from tests.runtime.test_store import LONG, entries

pytestmark = pytest.mark.skipif(not can_link(), reason="objects are not loaded here")

Layer = tuple[int, str, float]
"""How wide a layer is, what comes behind its product, and what its weights are multiplied with."""

AFTER = {"relu": op.nn.relu, "tanh": op.tanh, "abs": op.abs}
LAYERS = st.lists(
    st.tuples(
        st.sampled_from((4, 24, 130)),
        st.sampled_from(sorted(AFTER)),
        st.sampled_from((0.0, 1.0, 2.0)),
    ),
    min_size=1,
    max_size=3,
)


def chain(layers: list[Layer]) -> Module:
    """Products with constants, some of which are long pieces."""
    random = np.random.default_rng(5)
    x = Var(Name("x"), tensor((3, 130), "f32"))
    y: Expr = x
    rows = 130
    for width, after, factor in layers:
        weight = random.standard_normal((rows, width)).astype(np.float32) * np.float32(factor)
        y, rows = AFTER[after](op.matmul(y, const(weight))), width
    main = Var(Name("main"), None)
    return module({main: Function((), (), (x,), None, y)}, main)


def whole(layers: list[Layer], *, cache: bool = True) -> bytes:
    """The artefact; nobody keeps the executable, so that it is not shared within this process."""
    made = plica.compile(chain(layers), threads=1, cache=cache)
    return b"".join(kept_pieces(made.artefact))


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LAYERS, st.data())
def test_an_edited_model_is_what_it_would_be_anew(
    tmp_path_factory: pytest.TempPathFactory, layers: list[Layer], data: st.DataObject
) -> None:
    """Whatever layer is edited in whatever way: its artefact has the same bytes."""
    at = data.draw(st.integers(0, len(layers) - 1))
    edited = [*layers[:at], data.draw(LAYERS)[0], *layers[at + 1 :]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLICA_CACHE", str(tmp_path_factory.mktemp("store")))
        patch.setenv("PLICA_CACHE_AUDIT", "0")
        whole(layers)
        assert whole(edited) == whole(edited) == whole(edited, cache=False)


@given(st.lists(st.integers(0, len(LONG)), max_size=6), st.data())
def test_pieces_apart_read_back_or_are_as_none(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], data: st.DataObject
) -> None:
    """Long pieces are entries of their own; where one is damaged or gone, all is made again."""
    store = ArtefactStore(tmp_path_factory.mktemp("store"), audited=0)
    edges = [0, *sorted(cuts), len(LONG)]
    key, pieces = key_of("a"), [LONG[a:b] for a, b in itertools.pairwise(edges)]
    made: list[Piece] = [*pieces]
    store.put_apart(key, *made)
    found = store.found_apart(key, lambda: made, "it")
    assert found == LONG
    assert np.frombuffer(found, np.uint8).ctypes.data % ALIGNMENT == 0
    path = data.draw(st.sampled_from(sorted(entries(store.folder))))
    whole = path.read_bytes()
    changed = {
        "cut": whole[:-1],
        "longer": whole + b"x",
        "another": whole[:-1] + bytes([whole[-1] ^ 1]),
    }
    how = data.draw(st.sampled_from(("gone", *changed)))
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(changed[how])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert store.found_apart(key, lambda: made, "it") is None
    store.put_apart(key, *made)
    assert store.found_apart(key, lambda: made, "it") == LONG


def test_what_two_entries_have_is_written_once(tmp_path: Path) -> None:
    store = ArtefactStore(tmp_path, audited=1)
    half = len(LONG) // 2
    store.put_apart(key_of("a"), LONG[:half], b"one", LONG[half:])
    before = store.size()[1]
    pieces: list[Piece] = [LONG[:half], b"two", LONG[:half]]
    store.put_apart(key_of("b"), *pieces)
    assert store.size()[1] - before < 1000
    assert store.found_apart(key_of("b"), lambda: pieces, "it") == b"".join(pieces)
    with pytest.warns(RuntimeWarning, match="wrong-entry"):
        assert store.found_apart(key_of("b"), lambda: [LONG], "it") == LONG
    store.audited = 0
    assert store.found_apart(key_of("b"), list, "it") == LONG


def test_two_pieces_of_one_crc_are_two_entries(tmp_path: Path) -> None:
    """A model's author can choose weights with the CRC-32 of other weights."""
    one = LONG[: 1 << 20]
    generator = (1 | 0xEDB88320 << 1).to_bytes(5, "little")  # a multiple of it keeps a CRC-32
    two = bytes(a ^ b for a, b in zip(one, generator, strict=False)) + one[len(generator) :]
    assert one != two
    assert zlib.crc32(one) == zlib.crc32(two)
    store = ArtefactStore(tmp_path, audited=0)
    for key, piece in ("a", one), ("b", two), ("c", one), ("d", two):
        store.put_apart(key_of(key), piece)
    for key, piece in ("a", one), ("b", two), ("c", one), ("d", two):
        assert store.found_apart(key_of(key), list, "it") == piece


@pytest.mark.parametrize(
    "rows", ["", "{}", "[1]", '[[-1, ""]]', '[[1, "../x"]]', '[[9, ""]]', "[[1, 2]]"]
)
def test_a_table_that_is_none_is_as_none(tmp_path: Path, rows: str) -> None:
    store = ArtefactStore(tmp_path)
    store.put(key_of("a"), len(rows).to_bytes(8, "little"), rows.encode(), b"abc")
    assert store.found_apart(key_of("a"), list, "it") is None
    store.put(key_of("a"), b"short")
    assert store.found_apart(key_of("a"), list, "it") is None
