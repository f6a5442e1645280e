"""`benchmarks/tables.xz`: measured candidates, and that the shipped model is judged by them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import table_archive, tables
from benchmarks.table_archive import StoredTable
from plica.search.model import pairwise_accuracy, shipped as shipped_model

MAX_BYTES = 3_000_000


def stored(seed: int, rows: int, width: int, kinds: int) -> StoredTable:
    """A table of drawn features, of which many are equal."""
    random = np.random.default_rng(seed)
    features = random.standard_normal(kinds).astype(np.float16)[
        random.integers(0, kinds, (rows, width))
    ]
    features[:, ::3] = features[:, :1]
    features[0, 0] = np.nan
    owner = np.sort(random.integers(0, 5, rows)).astype(np.int16)
    return StoredTable(f"work {seed}", features, owner, np.ones(5, np.float32), ("[0]", "[1]"))


@pytest.mark.parametrize("shape", [(1, 1, 1), (40, 227, 3), (700, 9, 600)])
def test_what_is_written_is_read_again(shape: tuple[int, int, int], tmp_path: Path) -> None:
    groups = {"a": [stored(0, *shape), stored(1, *shape)], "b": [], "c": [stored(2, *shape)]}
    table_archive.write(groups, tmp_path / "tables.xz")
    again = table_archive.read(tmp_path / "tables.xz")
    assert list(again) == ["a", "b", "c"]
    for group, expected in groups.items():
        for one, other in zip(expected, again[group], strict=True):
            assert (one.name, one.points) == (other.name, other.points)
            for field in ("rows", "owner", "costs"):
                assert getattr(one, field).tobytes() == getattr(other, field).tobytes()


def test_the_archive_is_small_and_has_all_groups() -> None:
    assert table_archive.PATH.stat().st_size < MAX_BYTES
    found = {group: len(each) for group, each in table_archive.read().items()}
    assert found == {"judge": 26, "judge-neon": 37, "unseen": 20, "unseen-neon": 20, "replayed": 10}


def test_the_shipped_model_orders_unseen_work_as_documented() -> None:
    model = shipped_model.shipped()
    pairs = [
        pairwise_accuracy(model.scores(each.packs), each.costs, tables.NOISE)
        for each in tables.read(["judge"])
    ]
    assert round(float(np.mean(pairs)), 3) == 0.832


def test_an_unknown_group_names_those_that_there_are() -> None:
    with pytest.raises(SystemExit, match=r"no group 'juge'.*judge, judge-neon"):
        tables.read(["juge"])
