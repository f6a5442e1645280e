"""Features of code: conditions, index arithmetic, and what LLVM may vectorise by itself.

plain        whether nothing is a vector; then the innermost extent in vectors, its remainder,
             the part of accesses that would be gathered, whether sums go along it
bytes        of an element that is written, and of all that the store touches
made         accesses that read what another store wrote
conditions   guards, quotients and choices of the whole kernel, as in the sketch's default
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from plica.search.feature.layout import Nests
from plica.search.feature.numbers import Array, StoreNumbers, at_loop, innermost, log_of, of_kind

CONDITIONS: Final = ("conditions", "place-quotients", "place-choices")
NO_CONDITIONS: Final = (0.0,) * len(CONDITIONS)

OF_CODE: Final = (
    "plain", "plain-vectors", "plain-left-over", "plain-gathered", "plain-sums", "element-bytes",
    "bytes-in-all", "reads-of-made", *CONDITIONS,
)  # fmt: skip
"""What each column is."""


def conditions_of(nests: Nests) -> tuple[float, ...]:
    """The number of conditions, divisions and selects in a kernel."""
    around = max([nest.guards for nest in nests], default=0)
    counts = [around, *[sum([nest.places[at] for nest in nests]) for at in (0, 1)]]
    return tuple([float(log_of(count)) for count in counts])


def code_columns(of: StoreNumbers, conditions: Sequence[float] | Array) -> list[Array]:
    """The features of the code, in the order of `OF_CODE`; conditions are those of all schedules,
    or of each."""
    count = of.count
    size = of.bytes[0] if len(of.bytes) else 4.0
    lanes = max(1.0, of.machine.vector / 8 / size)
    serial = innermost(of.many & ~of_kind(of, ("unrolled",)))
    plain = ~of_kind(of, ("vectorized",)).any(axis=0)
    length = at_loop(of.extents, serial, 1.0)
    gathered, touched = np.zeros(count), np.zeros(count)
    for number in range(len(of.place.touches)):
        along = np.abs(at_loop(of.distances[number], serial, 0.0))
        gathered = gathered + (along > 1)
        touched = touched + of.unique[number][0] * of.bytes[number]
    made = sum(
        shared and not touch.written
        for touch, shared in zip(of.place.touches, of.place.shared, strict=True)
    )
    return [
        plain.astype(float),
        np.where(plain, log_of(length / lanes), 0.0),
        np.where(plain, length % lanes / length, 0.0),
        np.where(plain, gathered / max(1, len(of.place.touches)), 0.0),
        np.where(plain, at_loop(of.reduces, serial, 0.0) > 0, False).astype(float),
        np.full(count, size),
        log_of(touched),
        np.full(count, float(made)),
        *[np.full(count, condition) for condition in conditions],
    ]
