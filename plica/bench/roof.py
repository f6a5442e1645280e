"""The roof: how many operations on floats and how many bytes a second the machine does at best.

>>> roof = Roof(100.0, ((1000, 50.0), (None, 10.0)))
>>> roof.gbytes(1000), roof.gbytes(1001)
(50.0, 10.0)
>>> roof.least(operations=100_000, bytes=500) == 1e-6
True
"""

from __future__ import annotations

from dataclasses import dataclass

from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.profile import Profile


@dataclass(frozen=True, slots=True)
class Roof:
    """What all threads together do at best: GFLOP/s, and GB/s while a given number of bytes are
    touched.

    The levels go from the nearest memory on; the last holds anything.
    """

    gflops: float
    levels: tuple[tuple[int | None, float], ...]

    def gbytes(self, touched: int) -> float:
        """Bytes a second, 10^9, of work that touches this many in all."""
        return next(speed for holds, speed in self.levels if holds is None or touched <= holds)

    def least(self, operations: int, bytes: int) -> float:
        """The seconds that some work takes at best."""
        return max(operations / self.gflops, bytes / self.gbytes(bytes)) / 1e9

    def share(self, operations: int, bytes: int, seconds: float) -> float:
        """The part of the roof that work reaches which takes a given number of seconds, 1 at
        most."""
        return min(1.0, self.least(operations, bytes) / seconds) if seconds else 0.0


def roof_of(profile: Profile) -> Roof:
    """The roof that a profile was held to."""
    if profile.peak is None or profile.bandwidth is None:
        message = "The peak of this machine is unknown."
        raise UnsupportedError(Diagnostic("unsupported", message))
    if not isinstance(profile.bandwidth, tuple):
        return Roof(profile.peak, ((None, profile.bandwidth),))
    *near, (_, far) = profile.bandwidth
    return Roof(profile.peak, (*near, (None, far)))
