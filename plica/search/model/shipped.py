"""The shipped model: what was learned of random work before anybody tuned anything.

`benchmarks/tables.py` measured candidates of operators that a seed drew, and fitted it;
`docs/search.md` says how well it orders candidates of work it had not seen.  A search begins with
it and learns from its own trials as they come (`plica.search.model.transfer`).  The file is named
by the features it reads: once they are others it is no longer found, and searches begin without.

>>> shipped_path().name.startswith("shipped-")
True
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from zlib import decompress

from plica.search.feature.store import NAMES
from plica.search.model.boosted import PackSum
from plica.search.model.model import Model
from plica.search.model.saved import loaded
from plica.search.model.transfer import Transferred


def shipped_path() -> Path:
    """Where the model of today's features is kept."""
    digest = hashlib.sha256("\n".join(NAMES).encode()).hexdigest()[:12]
    return Path(__file__).with_name(f"shipped-{digest}.model")


@lru_cache(maxsize=1)
def shipped() -> Model | None:
    """The model of work that was drawn at random; None where its features are others."""
    path = shipped_path()
    return loaded(decompress(path.read_bytes())) if path.exists() else None


def beginning() -> Model:
    """The model that a search begins with, and that learns from its trials."""
    known = shipped()
    return PackSum() if known is None else Transferred(known, PackSum())
