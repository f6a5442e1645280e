"""Boosted trees: how they are grown, read from files, and asked.

>>> Trees(rounds=5).parameters(eta=0.5)["eta"]
0.5
"""

from __future__ import annotations

import threading
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import asdict, frozen

from plica.runtime.error import Diagnostic, UnsupportedError
from plica.search.feature.layout import Floats
from plica.search.model.file import File, malformed

if TYPE_CHECKING:
    from xgboost import Booster


@frozen
class Trees:
    """The parameters of tree growing; fixed threads and seed make it deterministic."""

    rounds: int = 400
    depth: int = 4
    rate: float = 0.05
    gamma: float = 1e-4
    threads: int = 1
    seed: int = 0

    def parameters(self, **more: Any) -> dict[str, Any]:
        """As xgboost wants them."""
        return {
            "max_depth": self.depth,
            "eta": self.rate,
            "gamma": self.gamma,
            "lambda": 1.0,
            "min_child_weight": 0.0,
            "subsample": 0.7,
            "colsample_bytree": 0.3,
            "tree_method": "hist",
            "max_bin": 64,
            "nthread": self.threads,
            "seed": self.seed,
            "base_score": 0.0,
            "disable_default_eval_metric": 1,
            "verbosity": 0,
            **more,
        }


def settings_of(of: File, like: Any) -> dict[str, Any]:  # any of the models with numbers as fields
    """The settings of a model, which must be those of its kind, of the same types."""
    known = {name: each for name, each in asdict(like).items() if type(each) in (int, float)}
    if known.keys() != of.fields.keys():
        raise malformed("A model has other settings.", ", ".join(known), ", ".join(of.fields))
    for name, each in of.fields.items():
        if not np.isfinite(each) or (type(known[name]) is int and type(each) is not int):
            raise malformed(
                "A setting of a model is wrong.", type(known[name]).__name__, repr(each)
            )
    return dict(of.fields)


def checked(blob: bytes) -> bytes:
    """The trees of a file, if they are some."""
    if blob:
        booster_of(blob)
    return blob


def tree_library() -> ModuleType:
    """The package that grows trees, which is heavy; raises `UnsupportedError` where it is not."""
    try:
        import xgboost
    except ImportError as error:
        message = "Models of cost need the package xgboost, which is not installed."
        hint = "pip install xgboost-cpu, or search without a model: --policy genetic."
        told = Diagnostic("missing-tool", message, None, "xgboost", str(error), hint)
        raise UnsupportedError(told) from None
    return xgboost


@lru_cache(maxsize=16)
def booster_of(raw: bytes) -> Booster:
    """Trees that can be asked; raises `Malformed`."""
    library = tree_library()
    found: Booster = library.Booster()
    try:
        found.load_model(bytearray(raw))
    except library.core.XGBoostError as error:
        raise malformed("The trees of a model are damaged.", "trees", str(error)[:80]) from error
    return found


_ASKED: Final = threading.Lock()  # predicting mutates boosters: two threads may not share one


def predicted(raw: bytes, rows: Floats, threads: int) -> Floats:
    """What trees say of rows."""
    with _ASKED:
        booster = booster_of(raw)
        booster.set_param({"nthread": threads})
        found = booster.inplace_predict(rows, predict_type="margin")
    return np.asarray(found, dtype=np.float64)
