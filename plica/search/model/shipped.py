"""The shipped model, pretrained on generated work.

`benchmarks/tables.py ship` writes it from tables of measured candidates and says how well such a
model orders the candidates of work it has never seen.  Searches on processors stand on it.

>>> model = shipped()
>>> bool(model.stores.booster), len(shipped_digest())
(True, 12)

Saved models: reading back what `saved` gave, of any kind.

>>> loaded(Analytical(0.25).saved())
Analytical(part=0.25)
"""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from typing import Final

from plica.core import Malformed, did_you_mean
from plica.runtime.error import Diagnostic, Place
from plica.search.model.baseline import Analytical
from plica.search.model.blended import Blended
from plica.search.model.file import File, malformed, read
from plica.search.model.model import Model
from plica.search.model.summed_time import SummedTime

NAME: Final = "shipped.json.xz"  # the file beside this one


@lru_cache(maxsize=1)
def _data() -> bytes:
    try:
        return (files("plica.search.model") / NAME).read_bytes()
    except OSError as error:
        raise _unusable("The model of cost that comes with Plica cannot be read.", error) from error


@lru_cache(maxsize=1)
def shipped() -> Blended:
    """The model."""
    try:
        text = lzma.decompress(_data())
    except lzma.LZMAError as error:
        raise _unusable("The model of cost that comes with Plica is damaged.", error) from error
    return Blended.from_file(read(text))


def _unusable(message: str, why: Exception) -> Malformed:
    """The refusal of an installation whose model is not as it was packed."""
    hint = "Install Plica again, or search without a model: --policy genetic."
    return Malformed(Diagnostic("bad-model", message, Place(NAME), "the file", str(why), hint))


@lru_cache(maxsize=1)
def shipped_digest() -> str:
    """What tells it from other versions of it: searches that stand on another are others."""
    return hashlib.sha256(_data()).hexdigest()[:12]


# --- saved models ------------------------------------------------------------------------------


# fmt: off
KINDS: Final[dict[str, Callable[[File], Model]]] = {
    SummedTime.kind: SummedTime.from_file,
    Blended.kind:    Blended.from_file,
    Analytical.kind: Analytical.from_file,
}
# fmt: on
"""What reads each kind."""


def loaded(data: bytes) -> Model:
    """The model that was saved as these bytes; raises `Malformed`."""
    file = read(data)
    if file.kind not in KINDS:
        hint = did_you_mean(file.kind, tuple(KINDS)) or ""
        expected = f"one of {', '.join(KINDS)}"
        raise malformed("There is no such kind of model.", expected, f"{file.kind!r} {hint}")
    return KINDS[file.kind](file)
