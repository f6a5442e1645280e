"""Arrays on a GPU: the results of a model whose inputs were there already.

    np.asarray(y), y.numpy()                   copied to the processor
    torch.from_dlpack(y), cupy.asarray(y)      the same memory

The work that fills an array may still be under way: whoever takes it says in which stream it will
be read, and that stream waits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from plica.runtime.cuda.dlpack import CUDA, LEGACY, capsule_of
from plica.runtime.cuda.driver import CudaMemory, CudaStream
from plica.runtime.element import ELEMENTS
from plica.runtime.port import Array, Port


class DeviceArray:
    """A tensor on a GPU; its memory is its own."""

    def __init__(self, port: Port, memory: CudaMemory, stream: CudaStream) -> None:
        self._port, self._memory, self._stream = port, memory, stream

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
        found = self._port.empty()
        self._stream.device.enter()
        self._stream.to_host(found.ctypes.data, self.address, found.nbytes)
        self._stream.wait()
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # as numpy asks
        if copy is False:
            raise ValueError("An array on a GPU is copied to be read by numpy.")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype)

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
        if stream != -1:
            self._stream.before(LEGACY if stream is None else stream)
        return capsule_of(self, self.address, self._port, self._stream.device.number)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:  # Any: as the protocol has it
        if ELEMENTS[self._port.dtype].extended:
            message = f"The interface has no word for {self._port.dtype}: use DLPack."
            raise AttributeError(message)
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": self._stream.handle,
            "version": 3,
        }

    def __repr__(self) -> str:
        return f"<DeviceArray {self._port.type} on GPU {self._stream.device.number}>"
