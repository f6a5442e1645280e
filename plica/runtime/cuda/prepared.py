"""Prepared launches: the steps of a program as driver calls, built once.

Callers must be serialised: there is one table.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import c_size_t, c_void_p
from typing import Any, Final

from plica.runtime.cuda.driver import CudaDevice
from plica.runtime.cuda.step import DeviceCopy, DeviceLaunch, DeviceProgram
from plica.runtime.cuda.tile import TileMap

_WORD: Final = ctypes.sizeof(c_void_p)


class PreparedSteps:
    """The steps of a program on a device, over the addresses of its slots."""

    def __init__(
        self,
        gpu: CudaDevice,
        program: DeviceProgram,
        functions: Mapping[str, c_void_p],
        places: Sequence[int],
        memory: int,
    ) -> None:
        layout = program.layout
        self._given = (*layout.inputs, *layout.outputs)
        scratch = [memory + at for at in layout.scratch]
        self._table = (c_void_p * max(1, len(places) + len(scratch)))(*places, *scratch)
        slots = len(places)
        self._steps: list[_PreparedCopy | _PreparedLaunch] = [
            _PreparedCopy(gpu, step, self._table)
            if isinstance(step, DeviceCopy)
            else _PreparedLaunch(gpu, step, functions[step.function], self._table, slots)
            for step in program.steps
        ]

    def place(self, addresses: Sequence[int]) -> None:
        """Let inputs, then outputs, be at some addresses."""
        table = self._table
        for slot, address in zip(self._given, addresses, strict=True):
            table[slot] = address

    def put(self, number: int, stream: int) -> None:
        """Enqueues a step in a stream, by handle."""
        self._steps[number].put(stream)

    def put_all(self, stream: int) -> None:
        """Enqueues all steps in a stream, in order."""
        for step in self._steps:
            step.put(stream)


class _PreparedCopy:
    """Bytes of a slot to another."""

    def __init__(self, gpu: CudaDevice, of: DeviceCopy, table: ctypes.Array[c_void_p]) -> None:
        self._device, self._of, self._table = gpu, of, table
        self._size = c_size_t(of.size)

    def put(self, stream: int) -> None:
        target, source = self._table[self._of.target], self._table[self._of.source]
        self._device.ask("cuMemcpyDtoDAsync_v2", c_void_p(target), c_void_p(source), self._size,
                         c_void_p(stream))  # fmt: skip


class _PreparedLaunch:
    """A function, and where in the table its addresses are."""

    def __init__(
        self,
        gpu: CudaDevice,
        of: DeviceLaunch,
        function: c_void_p,
        table: ctypes.Array[c_void_p],
        slots: int,
    ) -> None:
        self._device = gpu
        self._held = table, (c_void_p * max(1, len(of.numbers)))(*of.numbers)
        args = [*of.slots, *range(slots, slots + of.scratch)]
        first, more = map(ctypes.addressof, self._held)
        self._maps = [_PreparedMap(gpu, each, table, args[each.argument]) for each in of.maps]
        found = [first + _WORD * at for at in args]
        found += [more + _WORD * at for at in range(len(of.numbers))]
        found += [_map.address for _map in self._maps]
        places = (c_void_p * len(found))(*found)
        self._shape = (function, *of.grid, *of.block, of.shared)
        self._last: tuple[Any, ...] = (places, None)  # Any: as ctypes passes them on

    def put(self, stream: int) -> None:
        for _map in self._maps:
            _map.renew()
        self._device.ask("cuLaunchKernel", *self._shape, c_void_p(stream), *self._last)


class _PreparedMap:
    """The map of a tensor for the copy engine, made for the address that the tensor has."""

    def __init__(
        self, gpu: CudaDevice, of: TileMap, table: ctypes.Array[c_void_p], slot: int
    ) -> None:
        self._device, self._of, self._table, self._slot = gpu, of, table, slot
        self._memory, self.address, self._request = of.request(0)
        self._made_for: int | None = None

    def renew(self) -> None:
        now = self._table[self._slot]
        if now != self._made_for:
            before, after = self._request[:3], self._request[4:]
            self._device.ask("cuTensorMapEncodeTiled", *before, c_void_p(now), *after)
            self._made_for = now
