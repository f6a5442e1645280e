"""Arrays on a GPU: the results of a model whose inputs were there already.

np.asarray(y), y.numpy()                   copied to the processor
torch.from_dlpack(y), cupy.asarray(y)      the same memory
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from plica.runtime.cuda.dlpack import CUDA, LEGACY, capsule_of
from plica.runtime.cuda.driver import CudaMemory, CudaStream
from plica.runtime.element import ELEMENTS
from plica.runtime.port import Array, Port

MAX_FREE_BLOCKS_PER_SIZE: Final = 8
"""The maximum number of free memory blocks kept per size for later results."""

SMALL: Final = 1 << 24
"""Bytes of such a block, at most: for more, making memory is little of the work."""

LASTING: Final = frozenset({0, LEGACY})
"""Handles of the stream that everybody has, which is always there: two names of one."""


UNKNOWN_STREAM: Final = -1  # the stream handle for an unknown stream


NOBODY: Final = frozenset[int]()  # of an array, that no other stream reads it


def is_same(one: int, other: int) -> bool:
    """Whether two handles are of one stream."""
    return one == other or (one in LASTING and other in LASTING)


class SpareMemory:
    """Memory of released arrays, reused for the next arrays of the same model.

    Writes to the next array are ordered after writes to the last. Other streams may still read from
    a lent array: the stream that reuses the memory waits for them.
    """

    def __init__(self, stream: CudaStream) -> None:
        self._stream = stream
        self._free: dict[int, list[tuple[CudaMemory, frozenset[int]]]] = {}

    def array(self, port: Port, stream: int) -> DeviceArray:
        """A new array that a stream will fill, by its handle."""
        size = port.nbytes
        try:
            memory, readers = self._free[size].pop()  # in one step for all threads
        except (IndexError, KeyError):
            memory, readers = self._stream.device.reserve(size), NOBODY
        for reader in readers:
            if not is_same(reader, stream):
                self._stream.device._order(reader, stream)
        return DeviceArray(port, memory, self._stream, self, stream)

    def take(self, memory: CudaMemory, readers: frozenset[int]) -> None:
        """Keeps the memory of a released array that some streams may still read."""
        kept = self._free.setdefault(memory.size, [])
        others = readers - {self._stream.handle}
        if memory.size <= SMALL and len(kept) < MAX_FREE_BLOCKS_PER_SIZE and others <= LASTING:
            kept.append((memory, others))


class DeviceArray:
    """A tensor on a GPU; its memory is its own, and afterwards that of `spare`.

    `filled_in` is the stream that fills it, None once it is complete.
    """

    def __init__(
        self,
        port: Port,
        memory: CudaMemory,
        stream: CudaStream,
        spare: SpareMemory,
        filled_in: int | None,
    ) -> None:
        self._port, self._memory, self._stream = port, memory, stream
        self._spare, self._readers = spare, NOBODY
        self.filled_in = filled_in

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():  # Note [Globals at exit] in `plica.runtime.cuda.driver`
            self._spare.take(self._memory, self._readers)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._port.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._port.numpy

    @property
    def address(self) -> int:
        """Where its elements begin, on the GPU."""
        return self._memory.address

    @property
    def nbytes(self) -> int:
        return self._memory.size

    def numpy(self) -> Array:
        """A copy on the processor."""
        array = self._port.empty()
        self._stream.device.enter()
        self._complete_for(self._stream.handle)
        self._stream.to_host(array.ctypes.data, self.address, array.nbytes)
        self._stream.wait()
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # as numpy asks
        if copy is False:
            raise ValueError("An array on a GPU is copied to be read by numpy.")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def _complete_for(self, reader: int) -> None:
        """Let a stream wait until the array is complete."""
        if self.filled_in is not None and not is_same(self.filled_in, reader):
            self._stream.device._order(self.filled_in, reader)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self._stream.device.number

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """The array for another library, whose stream waits until the array is complete."""
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError("An array on a GPU is shared there: y.numpy() is a copy elsewhere.")
        if copy:
            raise BufferError("The array is shared, not copied.")
        self._stream.device.enter()
        reader = LEGACY if stream is None else stream
        if reader != -1:
            self._complete_for(reader)
        self._readers |= {reader}
        return capsule_of(self, self.address, self._port, self._stream.device.number)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:  # Any: as the protocol has it
        if ELEMENTS[self._port.dtype].extended:
            message = f"The interface has no word for {self._port.dtype}: use DLPack."
            raise AttributeError(message)
        self._readers |= {UNKNOWN_STREAM}
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": LEGACY if self.filled_in == 0 else self.filled_in,
            "version": 3,
        }

    def __repr__(self) -> str:
        return f"<DeviceArray {self._port.type} on GPU {self._stream.device.number}>"
