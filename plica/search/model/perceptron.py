"""Perceptron: a small network over stores, whose sum is the speed of a candidate.

Two hidden layers, in numpy.  Weights begin from a seed and follow Adam for so many rounds over all
examples at once, so that the same examples give the same weights.

>>> rows = np.arange(8.0)[:, None]
>>> packs = Packs(rows, np.arange(8), 8)
>>> model = Perceptron().fitted(packs, 1.0 + rows[::-1, 0])
>>> int(model.scores(packs).argmax())
7
"""

from __future__ import annotations

import itertools
from typing import ClassVar, Final

import numpy as np
from attrs import asdict, evolve, field, frozen

from plica.search.feature.featuriser import Integers
from plica.search.feature.layout import Floats
from plica.search.feature.packs import Packs
from plica.search.model.boosted import settings_of
from plica.search.model.file import File, malformed, written
from plica.search.model.model import speeds

NAMES: Final = ("middle", "spread", "w0", "b0", "w1", "b1", "w2", "b2")
FIRST, SECOND, TINY = 0.9, 0.999, 1e-8
"""How long Adam remembers gradients and their squares, and what keeps it from dividing by 0."""

FAINT: Final = 0.1
"""The least weight of an example: what failed should be told from what is slow."""


@frozen(eq=False)
class Perceptron:
    """Weights by name, none before it has learned."""

    kind: ClassVar[str] = "perceptron"

    hidden: int = 32
    rounds: int = 200
    rate: float = 3e-3
    hold: float = 1e-4
    seed: int = 0
    weights: dict[str, Floats] = field(factory=dict)

    def fitted(
        self,
        packs: Packs,
        costs: Floats,
        groups: Integers | None = None,
    ) -> Perceptron:
        """As `Model.fitted` says."""
        if not len(packs.rows):
            return evolve(self, weights={})
        wanted = speeds(costs, groups)
        weight = np.maximum(wanted, FAINT)
        middle, spread = packs.rows.mean(axis=0), packs.rows.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        inputs = (packs.rows - middle) / spread
        learned = self._begun(inputs.shape[1])
        first = {name: np.zeros_like(each) for name, each in learned.items()}
        second = {name: np.zeros_like(each) for name, each in learned.items()}
        for number in range(1, self.rounds + 1):
            change = self._gradients(learned, inputs, packs, wanted, weight)
            # Slower towards the end, to settle.
            rate = self.rate * 0.5 * (1 + np.cos(np.pi * number / (self.rounds + 1)))
            for name, each in change.items():
                first[name] = FIRST * first[name] + (1 - FIRST) * each
                second[name] = SECOND * second[name] + (1 - SECOND) * each**2
                mean = first[name] / (1 - FIRST**number)
                square = second[name] / (1 - SECOND**number)
                step = rate * mean / (np.sqrt(square) + TINY)
                learned[name] = learned[name] - step - rate * self.hold * learned[name]
        return evolve(self, weights={"middle": middle, "spread": spread, **learned})

    def _begun(self, width: int) -> dict[str, Floats]:
        random = np.random.default_rng(self.seed)
        sizes = (width, self.hidden, self.hidden, 1)
        found: dict[str, Floats] = {}
        for number, (rows, columns) in enumerate(itertools.pairwise(sizes)):
            found[f"w{number}"] = random.normal(0, np.sqrt(2 / rows), (rows, columns))
            found[f"b{number}"] = np.zeros(columns)
        found["w2"][:] = 0  # it begins by adding nothing to what is known
        return found

    @staticmethod
    def _gradients(
        w: dict[str, Floats], inputs: Floats, packs: Packs, wanted: Floats, weight: Floats
    ) -> dict[str, Floats]:
        one = np.maximum(_times(inputs, w["w0"]) + w["b0"], 0)
        two = np.maximum(_times(one, w["w1"]) + w["b1"], 0)
        last = _times(two, w["w2"]) + w["b2"]
        off = weight * (packs.summed(last[:, 0]) - wanted) / weight.sum()
        down = off[packs.owner][:, None]
        down_two = _times(down, w["w2"].T) * (two > 0)
        down_one = _times(down_two, w["w1"].T) * (one > 0)
        return {
            "w2": _times(two.T, down),
            "b2": down.sum(axis=0),
            "w1": _times(one.T, down_two),
            "b1": down_two.sum(axis=0),
            "w0": _times(inputs.T, down_one),
            "b0": down_one.sum(axis=0),
        }

    def scores(self, packs: Packs) -> Floats:
        """Higher is faster; all alike before it has learned, nothing is worse than no rows."""
        w = self.weights
        if not w or not len(packs.rows):
            return np.where(packs.is_legal, 0.0, -np.inf)
        inputs = (packs.rows - w["middle"]) / w["spread"]
        one = np.maximum(_times(inputs, w["w0"]) + w["b0"], 0)
        two = np.maximum(_times(one, w["w1"]) + w["b1"], 0)
        found = packs.summed((_times(two, w["w2"]) + w["b2"])[:, 0])
        return np.where(packs.is_legal, found, -np.inf)

    def saved(self) -> bytes:
        """As `Model.saved` says."""
        fields = asdict(self)
        return written(self.kind, fields, fields.pop("weights"))

    @staticmethod
    def from_file(of: File) -> Perceptron:
        """The model of a file; raises `Malformed`."""
        model = Perceptron(**settings_of(of, Perceptron()))
        if of.arrays and tuple(of.arrays) != tuple(sorted(NAMES)):
            raise malformed("A network has other weights.", ", ".join(NAMES), ", ".join(of.arrays))
        if of.arrays:
            width, hidden = of.arrays["middle"].size, model.hidden
            shapes = dict(
                zip(
                    NAMES,
                    [(width,), (width,), (width, hidden), (hidden,), (hidden, hidden), (hidden,),
                     (hidden, 1), (1,)],
                    strict=True,
                )
            )  # fmt: skip
            for name, shape in shapes.items():
                if of.arrays[name].shape != shape:
                    found = str(of.arrays[name].shape)
                    raise malformed(f"The weights {name} have another shape.", str(shape), found)
        return evolve(model, weights=dict(of.arrays))


def _times(one: Floats, other: Floats) -> Floats:
    """The product of small matrices, by one thread: a library that shares it out would wait for
    other cores longer than it takes, and add in another order where there are more of them."""
    found: Floats = np.einsum("ij,jk->ik", one, other)
    return found
