"""Float contracts: how far a rule or a pass may move a floating-point result.

Ordered from strict to free:

    exact < signless_zero < fused < reassociates < approx(rel)

`exact` is bit-equal up to the payload of nans; `signless_zero` may also change the sign of a zero;
`fused` may also keep more precision between a multiplication and an addition; `reassociates` may
also change the order of sums and products; `approx(rel)` may be off by `rel` in max-norm.
Integers and bools are always exact.

>>> join([exact, reassociates, signless_zero]) is reassociates
True
>>> signless_zero <= approx(1e-4), approx(1e-3) <= approx(1e-4)
(True, False)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from attrs import frozen

from plica.core import Term, did_you_mean
from plica.runtime.error import Diagnostic, Place, wrong_argument


@frozen(eq=False)
class Contract(Term):
    """A level, and for the last one a relative bound."""

    level: int
    rel: float = 0.0

    def __le__(self, other: Contract) -> bool:
        return (self.level, self.rel) <= (other.level, other.rel)

    def __lt__(self, other: Contract) -> bool:
        return (self.level, self.rel) < (other.level, other.rel)

    def __str__(self) -> str:
        return _NAMES[self.level] if self.level < APPROX else f"approx({self.rel:g})"


_NAMES: Final = ("exact", "signless_zero", "fused", "reassociates")
APPROX: Final = len(_NAMES)
_APPROX: Final = re.compile(r"approx\(\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*\)")
_KNOWN: Final = "exact, signless_zero, fused, reassociates or approx(rel), as approx(0.001)"

exact, signless_zero, fused, reassociates = map(Contract, range(APPROX))


def approx(rel: float) -> Contract:
    """Results may differ by `rel` times the largest magnitude."""
    given: object = rel  # whatever a user gives
    if not isinstance(given, int | float) or not 0 < given < 1:
        message = "An approximation is relative: above 0 and below 1."
        raise wrong_argument(message, "a number between 0 and 1, as 1e-3", rel)
    return Contract(APPROX, float(rel))


DEFAULT_CONTRACT: Final = approx(1e-4)
"""What `compile` keeps unless another contract is asked for, and what a pass that declares none is
taken to keep."""


def named(word: str) -> Contract | None:
    """The contract written so, None where none is.

    >>> named("exact") is exact, named("approx(0.02)") is approx(0.02), named("approx(2)")
    (True, True, None)
    """
    if word in _NAMES:
        return Contract(_NAMES.index(word))
    match = _APPROX.fullmatch(word.strip())
    return approx(rel) if match and 0 < (rel := float(match[1])) < 1 else None


def unknown_contract(
    given: object, code: str = "unsupported", place: Place | None = None
) -> Diagnostic:
    """The diagnostic of anything that is no contract.

    >>> unknown_contract("exat").suggestion
    "Did you mean 'exact'?"
    """
    near = did_you_mean(given, _NAMES) if isinstance(given, str) else None
    return Diagnostic(code, "Unknown float contract.", place, _KNOWN, repr(given), near)


def join(contracts: Iterable[Contract]) -> Contract:
    """The strictest contract that all of them keep."""
    worst = exact
    for contract in contracts:
        worst = max(worst, contract)
    return worst
