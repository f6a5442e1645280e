"""Perceptron: small neural networks that correct the estimates of stores, using the whole
candidate.

Unknown columns are replaced by their mean; their number is another column.

>>> rows = np.arange(8.0)[:, None]
>>> packs = Packs(rows, np.arange(8), 8)
>>> model = Perceptron(rate=0.01).fitted(packs, 1.0 + rows[::-1, 0])
>>> int(model.scores(packs).argmax())
7
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from attrs import asdict, evolve, field, frozen

from plica.search.feature.featuriser import Integers
from plica.search.feature.layout import Floats
from plica.search.feature.packs import Packs
from plica.search.model.boosted import settings_of
from plica.search.model.file import File, malformed, written
from plica.search.model.summed_time import log_estimates, logarithms

Singles: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]
Weights: TypeAlias = dict[str, Singles]

SCALES: Final = ("middle", "spread")
LAYERS: Final = ("w0", "b0", "w1", "b1", "own", "shares", "sums", "b2", "w3", "b3")
FIRST, SECOND, TINY = 0.9, 0.999, 1e-8  # decay rates of Adam's moments; no division by 0
WARM: Final = 0.15  # the part of all steps in which the rate grows; then it falls
STEEPEST: Final = 1.0  # the longest gradient that is followed as it is
GROUPS: Final = 12  # groups of a step, at most
MAX_CANDIDATES_PER_STEP: Final = 32  # candidates of a group in a step, at most
SHARP: Final = 2.0  # how sure an order is by how far logarithms are apart
NOISE: Final = 0.05  # pairs whose logarithms are nearer say nothing
MATTERS: Final = 0.5  # pairs that are farther apart matter no more
ANCHOR: Final = 0.1  # how much the times themselves count, beside the order of pairs
FARTHEST: Final = 5.0  # a store that is more deviations off in a column is no farther
MIN_COLUMN_VARIATION: Final = 1e-3  # columns that vary less are left as they are
BLOCK: Final = 8  # rows multiplied at once: so few that libraries use one thread


@frozen(eq=False)
class Perceptron:
    """Weights by name, those of all networks together, none before it has learned."""

    kind: ClassVar[str] = "perceptron"

    hidden: int = 32
    members: int = 1  # networks, whose mean counts
    rounds: int = 100  # how often all groups are gone through
    rate: float = 2e-3
    hold: float = 1e-2  # how much weights shrink of themselves
    drop: float = 0.0  # the part of hidden numbers that is left out of each step
    seed: int = 0
    weights: dict[str, Floats] = field(factory=dict)

    def fitted(self, packs: Packs, costs: Floats, groups: Integers | None = None) -> Perceptron:
        """As `Model.fitted` says."""
        which = np.zeros(packs.count, np.int64) if groups is None else groups
        wanted = logarithms(costs, which)
        known = np.flatnonzero(np.isfinite(wanted) & packs.is_legal)
        if not len(known) or not self.rounds:
            return evolve(self, weights={})
        packs, wanted, which = packs[known], wanted[known], which[known]
        unknown = np.isnan(packs.rows)
        count = np.maximum((~unknown).sum(axis=0), 1)
        middle = np.where(unknown, 0.0, packs.rows).sum(axis=0) / count
        square = np.where(unknown, 0.0, packs.rows - middle) ** 2
        spread = np.sqrt(square.sum(axis=0) / count)
        scales = {"middle": middle, "spread": np.where(spread > MIN_COLUMN_VARIATION, spread, 1.0)}
        examples = _Examples.of(packs, wanted, which, _inputs(packs.rows, scales))
        learned = [self._learned(examples, number) for number in range(self.members)]
        # Half of the digits tell candidates apart as well, and take half of the room.
        every = {
            name: np.stack([each[name] for each in learned]).astype(np.float16).astype(np.float64)
            for name in LAYERS
        }
        return evolve(self, weights={**scales, **every})

    def _begun(self, width: int, random: np.random.Generator) -> Weights:
        def drawn(rows: int, columns: int, parts: int = 1) -> Singles:
            most = 1 / np.sqrt(rows * parts)
            return random.uniform(-most, most, (rows, columns)).astype(np.float32)

        hidden, none = self.hidden, np.zeros(self.hidden, np.float32)
        return {
            "w0": drawn(width, hidden), "b0": none,
            "w1": drawn(hidden, hidden), "b1": none,
            "own": drawn(hidden, hidden, 3), "shares": drawn(hidden, hidden, 3),
            "sums": drawn(hidden, hidden, 3), "b2": none,
            # Initially it adds nothing to the estimate.
            "w3": np.zeros((hidden, 1), np.float32), "b3": np.zeros(1, np.float32),
        }  # fmt: skip

    def _learned(self, examples: _Examples, number: int) -> Weights:
        """The weights of one network."""
        random = np.random.default_rng((self.seed, number))
        learned = self._begun(examples.inputs.shape[1], random)
        first = {name: np.zeros_like(array) for name, array in learned.items()}
        second = {name: np.zeros_like(array) for name, array in learned.items()}
        a_round = -(-len(examples.groups) // GROUPS)
        steps = self.rounds * a_round
        for step in range(steps):
            if step % a_round == 0:
                order = random.permutation(len(examples.groups))
            at = step % a_round
            chosen = [
                random.permutation(examples.groups[group])[:MAX_CANDIDATES_PER_STEP]
                for group in order[at * GROUPS : (at + 1) * GROUPS]
            ]
            change = self._gradients(learned, examples, chosen, random)
            length = np.sqrt(sum([float((array**2).sum()) for array in change.values()]))
            rate = self.rate * _pace((step + 1) / steps)
            for name, array in change.items():
                slope = array * min(1.0, STEEPEST / (length + TINY))
                first[name] = FIRST * first[name] + (1 - FIRST) * slope
                second[name] = SECOND * second[name] + (1 - SECOND) * slope**2
                mean = first[name] / (1 - FIRST ** (step + 1))
                square = second[name] / (1 - SECOND ** (step + 1))
                moved = mean / (np.sqrt(square) + TINY) + self.hold * learned[name]
                learned[name] = (learned[name] - rate * moved).astype(np.float32)
        return learned

    def _gradients(
        self, w: Weights, of: _Examples, chosen: list[Integers], random: np.random.Generator
    ) -> Weights:
        """The slopes of the loss of some candidates of some groups."""
        rows, firsts = of.rows_of(np.concatenate(chosen))
        inputs, estimate = of.inputs[rows], of.estimate[rows]
        owner = np.repeat(np.arange(len(firsts)), np.diff([*firsts, len(rows)]))

        def kept(*shape: int) -> Singles:
            array: Singles = (random.random(shape, np.float32) >= self.drop).astype(np.float32)
            return array / np.float32(1 - self.drop)

        count, many = len(rows), len(firsts)
        keep = [kept(count, self.hidden) for _ in range(3)]
        keep_whole = [kept(many, self.hidden) for _ in range(2)]
        share = _shares(estimate, owner, firsts)[:, None]
        one, slope_one = _bent(inputs @ w["w0"] + w["b0"])
        seen_one: Singles = one * keep[0]
        two, slope_two = _bent(seen_one @ w["w1"] + w["b1"])
        hidden: Singles = one + two
        seen_hidden: Singles = hidden * keep[1]
        shares = np.add.reduceat(share * hidden, firsts) * keep_whole[0]
        sums = np.add.reduceat(hidden, firsts) * keep_whole[1]
        whole = shares @ w["shares"] + sums @ w["sums"] + w["b2"]
        three, slope_three = _bent(seen_hidden @ w["own"] + whole[owner])
        seen_three: Singles = three * keep[2]
        last = estimate + (seen_three @ w["w3"] + w["b3"])[:, 0]
        times = _summed(last, owner, firsts)

        pull = _pulls(times, of.wanted[np.concatenate(chosen)], [len(array) for array in chosen])
        down = (pull[owner] * np.exp(last - times[owner]))[:, None]
        down_three = (down @ w["w3"].T) * keep[2] * slope_three
        down_whole = np.add.reduceat(down_three, firsts)
        of_shares = (down_whole @ w["shares"].T) * keep_whole[0]
        of_sums = (down_whole @ w["sums"].T) * keep_whole[1]
        up = (down_three @ w["own"].T) * keep[1] + share * of_shares[owner] + of_sums[owner]
        down_two = up * slope_two
        down_one = (up + (down_two @ w["w1"].T) * keep[0]) * slope_one
        return {
            "w0": inputs.T @ down_one, "b0": down_one.sum(axis=0),
            "w1": seen_one.T @ down_two, "b1": down_two.sum(axis=0),
            "own": seen_hidden.T @ down_three,
            "shares": shares.T @ down_whole, "sums": sums.T @ down_whole,
            "b2": down_whole.sum(axis=0),
            "w3": seen_three.T @ down, "b3": down.sum(axis=0),
        }  # fmt: skip

    def scores(self, packs: Packs) -> Floats:
        """Higher is faster; all alike before it has learned, nothing is worse than no rows."""
        if not self.weights or not len(packs.rows):
            return np.where(packs.is_legal, 0.0, -np.inf)
        array = np.full(packs.count, -np.inf)
        array[packs.is_legal] = -self.times(packs)
        return array

    def times(self, packs: Packs) -> Floats:
        """Log times of candidates that have rows, up to a constant: the mean of the networks."""
        rows, place = packs.distinct
        _, owner = np.unique(packs.owner, return_inverse=True)
        firsts = np.flatnonzero(np.diff(owner, prepend=-1))
        estimate = log_estimates(rows).astype(np.float32)[place]
        share = _shares(estimate, owner, firsts)[:, None]
        inputs = _inputs(rows, self.weights)
        array = np.zeros(len(firsts))
        for w in self._networks:
            hidden = _likely(_times(inputs, w["w0"]) + w["b0"])
            hidden += _likely(_times(hidden, w["w1"]) + w["b1"])
            shares = np.zeros((len(firsts), self.hidden), np.float32)
            sums = np.zeros_like(shares)
            for candidates, stores in packs.turns:
                theirs = hidden[place[stores]]
                sums[candidates] += theirs
                shares[candidates] += theirs * share[stores]
            whole = _times(shares, w["shares"]) + _times(sums, w["sums"]) + w["b2"]
            three = _likely(_times(hidden, w["own"])[place] + whole[owner])
            last = estimate + np.einsum("rh,h->r", three, w["w3"][:, 0]) + w["b3"]
            array += _summed(last, owner, firsts) / self.members
        return array

    @cached_property
    def _networks(self) -> list[Weights]:
        """The weights of each network."""
        every = [(name, self.weights[name].astype(np.float32)) for name in LAYERS]
        return [{name: each[number] for name, each in every} for number in range(self.members)]

    def saved(self) -> bytes:
        """As `Model.saved` says."""
        fields = asdict(self)
        return written(self.kind, fields, fields.pop("weights"))

    @staticmethod
    def from_file(of: File) -> Perceptron:
        """The model of a file; raises `Malformed`."""
        model = Perceptron(**settings_of(of, Perceptron()))
        names = (*SCALES, *LAYERS)
        if not of.arrays:
            return model
        if of.arrays.keys() != set(names):
            raise malformed("A network has other weights.", ", ".join(names), ", ".join(of.arrays))
        width, hidden = of.arrays["middle"].size, model.hidden
        square, line = (hidden, hidden), (hidden,)
        shapes = [(width + 1, hidden), line, square, line, square, square, square, line]
        layers = [(model.members, *each) for each in (*shapes, (hidden, 1), (1,))]
        for name, shape in zip(names, [(width,), (width,), *layers], strict=True):
            if of.arrays[name].shape != shape:
                other = str(of.arrays[name].shape)
                raise malformed(f"The weights {name} have another shape.", str(shape), other)
        return evolve(model, weights=dict(of.arrays))


@frozen(eq=False)
class _Examples:
    """The stores of all candidates, interleaved, and the candidates of each group."""

    inputs: Singles
    estimate: Singles
    starts: Integers
    wanted: Floats
    groups: tuple[Integers, ...]

    @staticmethod
    def of(packs: Packs, wanted: Floats, which: Integers, inputs: Singles) -> _Examples:
        starts = np.searchsorted(packs.owner, np.arange(packs.count + 1))
        groups = tuple([np.flatnonzero(which == each) for each in np.unique(which)])
        return _Examples(
            inputs,
            log_estimates(packs.rows).astype(np.float32),
            starts.astype(np.int64),
            wanted,
            groups,
        )

    def rows_of(self, candidates: Integers) -> tuple[Integers, Integers]:
        """The numbers of the rows of some candidates, and which is the first of each."""
        counts = self.starts[candidates + 1] - self.starts[candidates]
        firsts = np.cumsum(counts) - counts
        return np.arange(counts.sum()) + np.repeat(self.starts[candidates] - firsts, counts), firsts


def _inputs(rows: Floats, scales: dict[str, Floats]) -> Singles:
    """Columns in deviations, and how many of them are not known."""
    array = np.empty((len(rows), rows.shape[1] + 1), np.float32)
    placed = array[:, :-1]
    np.subtract(rows, scales["middle"], out=placed, casting="same_kind")
    placed /= scales["spread"].astype(np.float32)
    unknown = np.isnan(placed)
    np.clip(placed, -FARTHEST, FARTHEST, out=placed)
    array[:, -1] = unknown.mean(axis=1)
    if unknown.any():
        placed[unknown] = 0.0
    return array


def _bent(of: Singles) -> tuple[Singles, Singles]:
    """`x` times how likely `x` is, and the slope of that."""
    likely = (1 / (1 + np.exp(-np.clip(of, -30, 30)))).astype(np.float32)
    array: Singles = of * likely
    return array, likely * (1 + of * (1 - likely))


def _likely(of: Singles) -> Singles:
    """The first of these that is finite."""
    scale = np.maximum(of, np.float32(-80.0))
    np.negative(scale, out=scale)
    np.exp(scale, out=scale)
    scale += 1
    of /= scale
    return of


def _summed(each: Singles, owner: Integers, firsts: Integers) -> Singles:
    """Logarithms of sums by candidate, of logarithms by store."""
    most = np.maximum.reduceat(each, firsts)
    array: Singles = most + np.log(np.add.reduceat(np.exp(each - most[owner]), firsts))
    return array


def _shares(estimate: Singles, owner: Integers, firsts: Integers) -> Singles:
    array: Singles = np.exp(estimate - _summed(estimate, owner, firsts)[owner])
    return array


def _pulls(times: Singles, wanted: Floats, sizes: list[int]) -> Singles:
    """The gradient of the loss by each time: pairs in the wrong order, and errors of times."""
    array, at = np.zeros(len(times), np.float32), 0
    for size in sizes:
        mine = slice(at, at + size)
        said, asked, at = times[mine], wanted[mine], at + size
        apart = asked[:, None] - asked[None]
        weight = np.where(apart > NOISE, np.minimum(apart / MATTERS, 1.0), 0.0)
        sure = np.clip(SHARP * (said[:, None] - said[None]), -30.0, 30.0)
        pull = (
            SHARP * weight / (1.0 + np.exp(sure)) / max(float(weight.sum()), MIN_COLUMN_VARIATION)
        )
        off = said - said.mean() - asked + asked.mean()
        off = np.clip(off, -1.0, 1.0)
        anchor = ANCHOR * (off - off.mean()) / size
        array[mine] = (pull.sum(axis=0) - pull.sum(axis=1) + anchor) / len(sizes)
    return array


def _pace(part: float) -> float:
    """The rate by the part of all steps that are done."""
    if part < WARM:
        return float(0.04 + 0.96 * 0.5 * (1 - np.cos(np.pi * part / WARM)))
    return float(0.5 * (1 + np.cos(np.pi * (part - WARM) / (1 - WARM))))


def _times(one: Singles, other: Singles) -> Singles:
    """A product of matrices, a few rows at once."""
    blocks = -(-len(one) // BLOCK)
    whole = np.zeros((blocks * BLOCK, one.shape[1]), np.float32)
    whole[: len(one)] = one
    array: Singles = (whole.reshape(blocks, BLOCK, -1) @ other).reshape(len(whole), -1)
    return array[: len(one)]
