"""Limits: saturation may not terminate, so it is bounded.

A rule that matches too often is banned for some rounds, twice as many each time, so that one rule
that makes everything larger does not starve the others.

>>> ban = Backoff(SaturationLimits(matches=10, rest=2))
>>> ban.allows(0, round=0), ban.count(0, 11, round=0), ban.allows(0, round=1)
(True, False, False)
>>> ban.allows(0, round=3), ban.count(0, 11, round=3)
(True, True)
"""

from __future__ import annotations

import attrs


@attrs.frozen
class SaturationLimits:
    """Where to stop: nodes of the e-graph, rounds, matches of a rule in a round, steps of proof.

    The result keeps every law whatever the limits are; larger limits can only reduce its cost.
    """

    nodes: int = 5_000
    rounds: int = 12
    matches: int = 400
    rest: int = 3
    steps: int = 20_000


class Backoff:
    """Which rules rest, as numbers of a pack."""

    def __init__(self, limits: SaturationLimits) -> None:
        self.limits = limits
        self._until: dict[int, int] = {}
        self._times: dict[int, int] = {}

    def allows(self, rule: int, round: int) -> bool:
        """Whether a rule may be used in this round."""
        return round >= self._until.get(rule, 0)

    def count(self, rule: int, matches: int, round: int) -> bool:
        """Note how often a rule matched; False: too often, it rests and the matches are dropped."""
        times = self._times.get(rule, 0)
        if matches <= self.limits.matches << times:
            return True
        self._times[rule] = times + 1
        self._until[rule] = round + 1 + (self.limits.rest << times)
        return False

    def resting(self, round: int) -> bool:
        """Whether some rule rests after this round."""
        return any(until > round + 1 for until in self._until.values())

    def wake(self) -> None:
        """No rule rests any more."""
        self._until.clear()
