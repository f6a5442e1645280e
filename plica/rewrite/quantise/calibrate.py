"""Calibrate: from the numbers that were seen at a point to its scale and zero point.

Numbers are seen twice: first their extremes, then how many lie where between zero and the farthest
of them.  A method chooses a threshold beyond which numbers are cut off:

    max          the farthest number: nothing is cut off
    percentile   so that 99.99 % of the numbers are kept, or as many as one says
    mse          so that the squares of the errors are least
    kl           so that the distribution of the steps tells most of that of the numbers

>>> seen = Seen().extended(np.array([-1.0, 2.0], np.float32))
>>> spec = Spec()
>>> point = chosen(seen.counted(np.array([-1.0, 2.0], np.float32)), spec)
>>> round(point.scale * 127, 3), point.zero, str(point.dtype)
(2.0, 0, 'i8')
>>> chosen(seen, Spec(symmetric=False)).zero, chosen(seen, Spec(power_of_two=True)).scale
(85, 0.03125)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
from attrs import evolve, field, frozen

from plica.ir.type import DType, i8, u8
from plica.runtime.error import Diagnostic, InputError, UnsupportedError

Array: TypeAlias = np.ndarray[Any, Any]
Method: TypeAlias = Literal["max", "percentile", "mse", "kl"]
METHODS: Final[tuple[str, ...]] = get_args(Method)

BINS: Final = 2048
LEVELS: Final = 128  # steps of a byte on one side of zero
STRIDE: Final = 16  # thresholds are tried at every this many bins
TOP: Final = 127


@frozen
class Spec:
    """How numbers become integers."""

    symmetric: bool = True  # signed bytes around zero; else unsigned ones with a zero point
    power_of_two: bool = False
    per_channel: bool = True  # a scale for each output of a layer's weight
    method: Method = "max"
    percentile: float = 99.99

    def __attrs_post_init__(self) -> None:
        if self.method not in METHODS:
            message = "There is no such method of calibration."
            expected = f"one of {', '.join(METHODS)}"
            raise UnsupportedError(
                Diagnostic("unsupported", message, None, expected, repr(self.method))
            )
        if not 0 < self.percentile <= 100:  # per cent
            message, found = "A percentile is above 0 and at most 100.", repr(self.percentile)
            raise UnsupportedError(Diagnostic("unsupported", message, None, "0 … 100", found))


@frozen(eq=False)
class Seen:
    """The statistics of a point: extremes, and a histogram of magnitudes."""

    low: float = 0.0
    high: float = 0.0
    counts: Array = field(factory=lambda: np.zeros(BINS, np.int64))

    @property
    def far(self) -> float:
        """How far from zero the farthest number is."""
        return max(-self.low, self.high)

    def extended(self, values: Array, name: str = "a point") -> Seen:
        """After more numbers, for their extremes."""
        if not np.all(np.isfinite(values)):
            bad = int(values.size - np.count_nonzero(np.isfinite(values)))
            message = f"A sample makes numbers at {name} that are not finite."
            hint = "Look at the samples, and at the model in floats, first."
            found = f"{bad} of {values.size} are nan or infinite"
            raise InputError(Diagnostic("not-finite", message, None, "finite", found, hint))
        if values.size == 0:
            return self
        low, high = float(values.min()), float(values.max())
        return evolve(self, low=min(self.low, low), high=max(self.high, high))

    def counted(self, values: Array) -> Seen:
        """The statistics extended by values within the known extremes."""
        if self.far == 0:
            return self
        places = np.abs(values, dtype=np.float64).ravel() * (BINS / self.far)
        where = np.minimum(places.astype(np.int64), BINS - 1)
        return evolve(self, counts=self.counts + np.bincount(where, minlength=BINS))


@frozen
class QuantisationPoint:
    """The scale and the zero point of a value; they fit its dtype."""

    scale: float
    zero: int
    dtype: DType


def chosen(seen: Seen, spec: Spec) -> QuantisationPoint:
    """The scale of a point at which such numbers were seen."""
    limit = seen.far if spec.method == "max" else THRESHOLDS[spec.method](seen, spec)
    if spec.symmetric:
        return QuantisationPoint(step(limit / TOP, spec), 0, i8)
    low, high = max(seen.low, -limit), min(seen.high, limit)
    scale = step((high - low) / 255, spec)
    return QuantisationPoint(scale, int(np.clip(np.rint(-low / scale), 0, 255)), u8)


def step(size: float, spec: Spec) -> float:
    """A step size representable in f32; rounded up to a power of two on request.

    >>> step(0.3, Spec(power_of_two=True)), step(0.5, Spec(power_of_two=True)), step(0, Spec())
    (0.5, 0.5, 1.0)
    """
    # Below, products of two scales would leave the normal numbers of f32.
    if size < 2.0**-60:
        return 1.0
    if spec.power_of_two:
        part, exponent = np.frexp(size)
        return float(2.0 ** (int(exponent) - (part == 0.5)))  # a power itself
    return float(np.float32(size))


def weights(values: Array, axis: int, spec: Spec) -> tuple[Array, Array]:
    """A weight as signed bytes, and its scales as they broadcast against it.

    >>> weights(np.array([[1.0, -0.5], [127.0, 0.0]]), 0, Spec())[0].tolist()
    [[127, -64], [127, 0]]
    """
    wide = values.astype(np.float64)
    if not np.all(np.isfinite(wide)):
        message = "A weight is not finite."
        raise UnsupportedError(Diagnostic("not-finite", message, None, "finite numbers"))
    rest = tuple(n for n in range(wide.ndim) if n != axis % wide.ndim)
    far = np.abs(wide).max(axis=rest if spec.per_channel else None, keepdims=True, initial=0.0)
    scale = np.array([step(float(each) / TOP, spec) for each in far.flat], np.float32)
    scale = scale.reshape(far.shape)
    array = np.clip(np.rint(wide / scale), -TOP, TOP).astype(np.int8)
    return array, scale if spec.per_channel else scale.reshape(())


# --- thresholds ----------------------------------------------------------------------------------


def by_percentile(seen: Seen, spec: Spec) -> float:
    """The end of the bin up to which a given number of numbers lie."""
    if not (total := int(seen.counts.sum())):
        return seen.far
    wanted = spec.percentile / 100 * total
    bin_ = int(np.searchsorted(np.cumsum(seen.counts), wanted))
    return seen.far * min(bin_ + 1, BINS) / BINS


def by_error(seen: Seen, spec: Spec) -> float:
    """Where the squares of the errors, of rounding and of cutting off, are least."""
    middles = (np.arange(BINS) + 0.5) * (seen.far / BINS)
    best, least = seen.far, np.inf
    for end in range(LEVELS, BINS + 1, STRIDE):
        limit = seen.far * end / BINS
        size = step(limit / TOP, spec)
        errors = middles - np.minimum(np.rint(middles / size), TOP) * size
        total = float(seen.counts @ (errors * errors))
        if total < least:
            best, least = limit, total
    return best


def by_entropy(seen: Seen, spec: Spec) -> float:
    """Where the divergence of the numbers from their steps is least."""
    best, least = seen.far, np.inf
    whole = seen.counts.astype(np.float64)
    whole[0] = 0  # zeros are kept by any threshold, and would hide everything else
    for end in range(LEVELS, BINS + 1, STRIDE):
        kept = whole[:end].copy()
        cut = float(whole[end:].sum())
        level = np.arange(end) * LEVELS // end
        totals = np.bincount(level, weights=kept, minlength=LEVELS)
        filled = np.bincount(level, weights=kept > 0, minlength=LEVELS)
        spread = np.divide(totals, filled, out=np.zeros(LEVELS), where=filled > 0)[level]
        spread = np.where(kept > 0, spread, 0.0)
        kept[-1] += cut
        if not kept.sum() or not spread.sum():
            continue
        p, q = kept / kept.sum(), spread / spread.sum()
        # Values outside of all steps cost as much as the smallest counted share.
        q = np.maximum(q, 1e-12)
        total = float(np.sum(np.where(p > 0, p * np.log(np.maximum(p, 1e-300) / q), 0.0)))
        if total < least:
            best, least = seen.far * end / BINS, total
    return best


THRESHOLDS: Final[dict[str, Callable[[Seen, Spec], float]]] = {
    "percentile": by_percentile,
    "mse": by_error,
    "kl": by_entropy,
}
