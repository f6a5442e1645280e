"""Frames: the registers of one call of a plan.

>>> import numpy as np
>>> frame = PlanFrame([np.zeros(2)], [0], {})
>>> frame.put(0, np.ones(3))
>>> frame.arrays[0].shape
(3,)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from plica.runtime.executable import address_of
from plica.runtime.port import Array

Sizes: TypeAlias = dict[str, int]


class PlanFrame:
    """The registers of one call: arrays, where each begins, and the sizes that are known."""

    __slots__ = ("addresses", "arrays", "sizes")

    def __init__(self, arrays: list[Array], addresses: list[int], sizes: Sizes) -> None:
        self.arrays, self.addresses, self.sizes = arrays, addresses, sizes

    def put(self, register: int, array: Array) -> None:
        """Write a register."""
        self.arrays[register] = array
        self.addresses[register] = address_of(array)

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Assigns registers in parallel from others."""
        held = [(self.arrays[source], self.addresses[source]) for source in sources]
        for target, (array, address) in zip(targets, held, strict=True):
            self.arrays[target], self.addresses[target] = array, address
