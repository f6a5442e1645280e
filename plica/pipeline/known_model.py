"""Known models: a model file that was compiled before is loaded without the compiler.

A model that differs from a compiled one only in the values of large tensors is found by the digest
of its remaining bytes; its artefact is derived from the other's (`plica.pipeline.edited_model`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final
from weakref import WeakValueDictionary

from plica.pipeline.model_query import ModelQuery, bytes_state, is_path, is_whole, model_bytes
from plica.runtime import archive
from plica.runtime.artefact import from_members
from plica.runtime.error import ArtefactError, Diagnostic, Place, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.extern import NONE
from plica.runtime.late import lazy_imports
from plica.runtime.load import executable
from plica.runtime.open_executable import OpenExecutable
from plica.runtime.record import CompilationRecord
from plica.runtime.store import is_key

with lazy_imports(__name__):  # which brings the compiler
    from plica.pipeline.compiled import kept_pieces
    from plica.pipeline.edited_model import keep_structure, made_of_another

Compile = Callable[..., Executable]

_SHARED: Final[WeakValueDictionary[str, Executable]] = WeakValueDictionary()
"""Executables of model files that are still in use in this process."""


def known(of: ModelQuery, anew: Compile) -> Executable | None:
    """The executable of a model that was compiled before; `anew` recompiles for queries the
    artefact cannot answer."""
    if (shared := _SHARED.get(of.key)) is not None:
        return shared
    told = of.store.get(of.key)
    if told is None and made_of_another(of):
        told = of.store.get(of.key)
    note = None if told is None else _noted(told)
    if note is None:
        return None  # it is made anew, and noted again
    again = partial(_again, of, anew)
    whole = lru_cache(maxsize=1)(again)
    stored = of.store.found_apart(note["entry"], lambda: _packed_again(of, anew), "the model")
    if note["entry"] in of.store.wrong:  # or the note is, and the entry was right for another model
        of.store.drop(note["entry"])
        of.store.drop(of.key)
    if stored is None:
        return None
    try:
        members = archive.member_views(stored)
        artefact = from_members(members, partial(_record, whole), checked=True)
    except ArtefactError:
        return None
    texts = {kind: partial(_text, whole, kind) for kind in note["texts"]}
    found = executable(artefact, texts=texts)
    found.with_tier(note["tier"], 0, lambda: whole().derivation)
    found.kept = note["entry"]
    if isinstance(found, OpenExecutable):
        found.beside(lambda: _beside(whole()), eager=note["eager"])
        found.separating(lambda names: whole().separated(names))
    _SHARED[of.key] = found
    return found


def _noted(told: bytes) -> dict[str, Any] | None:
    """A note as `keep` writes it; None for anything else: digests tell damage, not mistakes."""
    try:
        note = json.loads(told)
    except (ValueError, RecursionError):
        return None
    match note:
        case {"entry": str(entry), "texts": [*texts], "tier": str(), "eager": bool()}:
            good = is_key(entry) and all(isinstance(text, str) for text in texts)
            return note if good else None
    return None


def keep(of: ModelQuery, made: Executable) -> None:
    """Records the artefact's key for a query, if the artefact is stored."""
    if type(made) not in (Executable, OpenExecutable) or made._externs is not NONE:
        return
    if not made.kept or not is_whole(of.model.source):
        return
    if bytes_state(of.model.source) != of.model.state:
        return
    eager = bool(of.options["specialise"])
    note = {"entry": made.kept, "texts": [*made._texts], "tier": made.tier, "eager": eager}
    of.store.put(of.key, json.dumps(note).encode())
    keep_structure(of, note)
    _SHARED[of.key] = made


def _again(of: ModelQuery, anew: Compile) -> Executable:
    """Recompiles the model from scratch, for texts and records that the artefact does not hold."""
    model = model_bytes(of.model.source)
    if model is None or model.digest != of.model.digest:
        message = "The model is another than it was when this executable was made."
        place = Place(file=os.fspath(of.model.source)) if is_path(of.model.source) else None
        hint = "Compile it again, or ask for this before the model changes."
        found = "no file" if model is None else model.digest[:16]
        told = Diagnostic("no-source", message, place, of.model.digest[:16], found, hint)
        raise UnsupportedError(told)
    return anew(of.model.source, **of.options)


def _packed_again(of: ModelQuery, anew: Compile) -> list[archive.Piece]:
    """The pieces of the artefact, recomputed from the model alone."""
    made = anew(of.model.source, **{**of.options, "cache": False})
    return kept_pieces(made.artefact)


def _record(of: Callable[[], Executable]) -> CompilationRecord:
    return of().artefact.record()


def _text(of: Callable[[], Executable], kind: str) -> str:
    return of().source(kind)


def _beside(of: Executable) -> Executable:
    """What makes code for one size only."""
    assert isinstance(of, OpenExecutable)
    return of.others()
