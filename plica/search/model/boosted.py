"""Pack sums: boosted trees over stores, whose sum is the speed of a candidate.

Each row of a pack gets a number from the trees; the sum over a candidate's rows is to be its speed,
as a part of the best.  Many flat trees, each from some of the rows and features: there are few
examples, and what they have in common is plain.

>>> rows = np.arange(8.0)[:, None]
>>> packs = Packs(rows, np.arange(8), 8)
>>> model = PackSum().fitted(packs, 1.0 + rows[::-1, 0])
>>> int(model.scores(packs).argmax())
7
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import asdict, evolve, frozen

from plica.search.feature.featuriser import Integers
from plica.search.feature.layout import Floats
from plica.search.feature.packs import Packs
from plica.search.model.file import File, malformed, written
from plica.search.model.model import speeds

if TYPE_CHECKING:
    from xgboost import Booster, DMatrix


@frozen
class Trees:
    """How trees are grown; fixed threads and seed, so that the same comes out every time."""

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


@frozen(eq=False)
class PackSum:
    """Trees, none before it has learned."""

    kind: ClassVar[str] = "pack-sum"

    rounds: int = 400
    depth: int = 4
    rate: float = 0.05
    threads: int = 1
    seed: int = 0
    booster: bytes = b""

    @property
    def _trees(self) -> Trees:
        return Trees(self.rounds, self.depth, self.rate, threads=self.threads, seed=self.seed)

    def fitted(
        self,
        packs: Packs,
        costs: Floats,
        groups: Integers | None = None,
        margin: Floats | None = None,
    ) -> PackSum:
        """As `Model.fitted` says."""
        if not len(packs.rows):
            return evolve(self, booster=b"")
        from xgboost import QuantileDMatrix, train  # heavy

        wanted = speeds(costs, groups)
        owner = packs.owner
        own = np.bincount(owner, minlength=packs.count)[owner].astype(np.float64)
        data = QuantileDMatrix(packs.rows, max_bin=64, nthread=self.threads)
        if margin is not None:
            data.set_base_margin(margin[owner] / own)

        def gradients(predicted: Floats, _: DMatrix) -> tuple[Floats, Floats]:
            off = packs.summed(predicted)[owner] - wanted[owner]
            # All rows of a pack move at once, so each goes its share of the way.
            return off, own

        trees = self._trees
        found = train(trees.parameters(), data, trees.rounds, obj=gradients)
        return evolve(self, booster=bytes(found.save_raw("ubj")))

    def scores(self, packs: Packs) -> Floats:
        """Higher is faster; all alike before it has learned, nothing is worse than no rows."""
        if not self.booster or not len(packs.rows):
            return np.where(packs.is_legal, 0.0, -np.inf)
        found = predicted(self.booster, packs.rows, self.threads)
        return np.where(packs.is_legal, packs.summed(found), -np.inf)

    def saved(self) -> bytes:
        """As `Model.saved` says."""
        fields = asdict(self)
        blob = fields.pop("booster")
        return written(self.kind, fields, {}, blob)

    @staticmethod
    def from_file(of: File) -> PackSum:
        """The model of a file; raises `Malformed`."""
        return PackSum(**settings_of(of, PackSum()), booster=checked(of.blob))


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


@lru_cache(maxsize=16)
def booster_of(raw: bytes) -> Booster:
    """Trees that can be asked; raises `Malformed`."""
    from xgboost import Booster  # heavy
    from xgboost.core import XGBoostError

    found = Booster()
    try:
        found.load_model(bytearray(raw))
    except XGBoostError as error:
        raise malformed("The trees of a model are damaged.", "trees", str(error)[:80]) from error
    return found


def predicted(raw: bytes, rows: Floats, threads: int) -> Floats:
    """What trees say of rows."""
    booster = booster_of(raw)
    booster.set_param({"nthread": threads})
    found = booster.inplace_predict(rows, predict_type="margin")
    return np.asarray(found, dtype=np.float64)
