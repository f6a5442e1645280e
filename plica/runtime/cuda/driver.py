"""The CUDA driver through ctypes: one GPU, its memory, code, streams, events and graphs.

Not here: how code is made (`plica.codegen.cuda`), and which kernels a model launches.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from typing import Any, Final

from plica.runtime.cuda.tile import TileMap
from plica.runtime.error import Diagnostic, PlicaError

OUT_OF_MEMORY: Final = 2
MULTIPROCESSORS: Final = 16
MAJOR: Final = 75
MINOR: Final = 76
DYNAMIC_SHARED: Final = 8
EVENT_DISABLE_TIMING: Final = 2  # the flag of an event without timing
RELAXED: Final = 2  # of a capture, that other threads may meanwhile do what they want
REPLACE_DEPENDENCIES: Final = 1  # the flag that replaces the dependencies of captured work
FAULTS: Final = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719})
"""Results that end a context: bad addresses, time-outs, traps."""

Three = tuple[int, int, int]


class DeviceError(PlicaError):
    """A GPU is not there, has not enough memory, or has failed."""


class CudaDevice:
    """One GPU, with its context; `device()` gives the one of this process."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self._driver = _driver()
        self._lost: Diagnostic | None = None
        self._ordering, self._event = threading.Lock(), c_void_p()
        handle = c_int()
        self.ask("cuDeviceGet", byref(handle), number)
        self._handle = handle.value
        context = c_void_p()
        self.ask("cuDevicePrimaryCtxRetain", byref(context), self._handle)
        self._context = context
        self.enter()

    def enter(self) -> None:
        """Make the device the one of this thread."""
        self.ask("cuCtxSetCurrent", self._context)

    def ask(self, name: str, *args: Any) -> None:  # Any: what ctypes passes on
        """Calls the driver; raises `DeviceError` with its message."""
        if self._lost is not None:
            raise DeviceError(self._lost)
        if status := getattr(self._driver, name)(*args):
            wrong = _wrong(self._driver, name, status)
            if status in FAULTS:
                self._lost = Diagnostic(
                    "device-fault",
                    "The GPU failed before: nothing can run on it in this process any more.",
                    None,
                    "a GPU that works",
                    str(wrong.found),
                    "Start a new process.",
                )
            raise DeviceError(wrong)

    def attribute(self, number: int) -> int:
        """One of the numbers the driver knows of the device."""
        found = c_int()
        self.ask("cuDeviceGetAttribute", byref(found), number, self._handle)
        return found.value

    @property
    def name(self) -> str:
        found = ctypes.create_string_buffer(256)
        self.ask("cuDeviceGetName", found, 256, self._handle)
        return found.value.decode()

    @property
    def architecture(self) -> str:
        """Such as sm_90."""
        return f"sm_{self.attribute(MAJOR)}{self.attribute(MINOR)}"

    @property
    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = c_size_t(), c_size_t()
        self.ask("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def _order(self, first: int, second: int) -> None:
        """Orders one stream's later work after another's current work."""
        with self._ordering:  # one event for all: who waits means the record before it
            if not self._event.value:
                self.ask("cuEventCreate", byref(self._event), c_uint(EVENT_DISABLE_TIMING))
            self.ask("cuEventRecord", self._event, c_void_p(first))
            self.ask("cuStreamWaitEvent", c_void_p(second), self._event, c_uint(0))

    def reserve(self, size: int) -> CudaMemory:
        """Memory on the device."""
        return CudaMemory(self, size)

    def load(self, cubin: bytes) -> CudaModule:
        """Code on the device."""
        return CudaModule(self, cubin)

    def stream(self) -> CudaStream:
        """A queue of work."""
        return CudaStream(self)


# Note [Globals at exit]
# When the interpreter ends, names of modules are None while objects are still deleted.  The process
# gives all memory of the GPU back then, so `__del__` does nothing; it holds the function that says
# so as a default, since `sys` may be None, too.


WORD_BYTES: Final = 16
"""The widest load of a GPU. Kernels read aligned words and use a part of the last one."""


class CudaMemory:
    """Bytes on a device, whole words of them, given back when nothing refers to them."""

    def __init__(self, of: CudaDevice, size: int) -> None:
        self._device = of
        self.size = size
        self.address = 0
        reserved = max(1, -(-size // WORD_BYTES)) * WORD_BYTES
        found = c_void_p()
        try:
            of.ask("cuMemAlloc_v2", byref(found), c_size_t(reserved))
        except DeviceError as error:
            if error.code == "device-memory":
                said = error.diagnostics[0]
                free, total = of.memory
                left = f"{free} of {total} bytes are free"
                hint = "Run smaller batches, or let go of other arrays and models on the GPU."
                wrong = Diagnostic(said.code, said.message, None, f"{size} bytes", left, hint)
                raise DeviceError(wrong) from None
            raise
        self.address = found.value or 0

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if self.address and not ending():  # Note [Globals at exit]
            self._device._driver.cuMemFree_v2(c_void_p(self.address))


class CudaModule:
    """Loaded code; lives as long as this object."""

    def __init__(self, of: CudaDevice, cubin: bytes) -> None:
        self._device = of
        self._handle = c_void_p()
        of.ask("cuModuleLoadData", byref(self._handle), cubin)

    def function(self, name: str, shared: int = 0) -> c_void_p:
        """A function by name, allowed a given number of bytes of shared memory."""
        found = c_void_p()
        self._device.ask("cuModuleGetFunction", byref(found), self._handle, name.encode())
        if shared > 48 * 1024:
            self._device.ask("cuFuncSetAttribute", found, DYNAMIC_SHARED, shared)
        return found

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._handle.value and not ending():  # Note [Globals at exit]
            self._device._driver.cuModuleUnload(self._handle)


class CudaStream:
    """A queue of work on a device: copies, launches and graphs, one after the other."""

    def __init__(self, of: CudaDevice) -> None:
        self.device = of
        self._handle = c_void_p()
        of.ask("cuStreamCreate", byref(self._handle), 1)

    @property
    def handle(self) -> int:
        return self._handle.value or 0

    def launch(  # noqa: PLR0917  # as the driver has them
        self,
        function: c_void_p,
        grid: Three,
        block: Three,
        shared: int,
        addresses: list[int],
        maps: Sequence[TileMap] = (),
    ) -> None:
        """Run a function over buffers, then maps of some of them."""
        values = (c_void_p * len(addresses))(*addresses)
        step = ctypes.sizeof(c_void_p)
        found = [ctypes.addressof(values) + step * n for n in range(len(addresses))]
        held = []
        for tile_map in maps:
            memory, at, asked = tile_map.request(addresses[tile_map.argument])
            self.device.ask("cuTensorMapEncodeTiled", *asked)
            held.append(memory)
            found.append(at)
        places = (c_void_p * len(found))(*found)
        self.device.ask(
            "cuLaunchKernel", function, *grid, *block, shared, self._handle, places, None
        )

    def to_device(self, target: int, source: int, size: int) -> None:
        """Copies from host memory; complete when the stream reaches it."""
        self.device.ask(
            "cuMemcpyHtoDAsync_v2", c_void_p(target), c_void_p(source), c_size_t(size), self._handle
        )

    def to_host(self, target: int, source: int, size: int) -> None:
        """Copy to this machine's memory."""
        self.device.ask(
            "cuMemcpyDtoHAsync_v2", c_void_p(target), c_void_p(source), c_size_t(size), self._handle
        )

    def within(self, target: int, source: int, size: int) -> None:
        """Copy on the device."""
        self.device.ask(
            "cuMemcpyDtoDAsync_v2", c_void_p(target), c_void_p(source), c_size_t(size), self._handle
        )

    def fill(self, target: int, byte: int, size: int) -> None:
        """Set bytes on the device."""
        self.device.ask("cuMemsetD8Async", c_void_p(target), byte, c_size_t(size), self._handle)

    def wait(self) -> None:
        """Waits for all work; errors on the device are raised here."""
        self.device.ask("cuStreamSynchronize", self._handle)

    def after(self, other: int) -> None:
        """Makes this stream wait for the current work of another library's stream, by handle."""
        self.device._order(other, self.handle)

    def before(self, other: int) -> None:
        """Makes another library's stream wait for the current work of this one."""
        self.device._order(self.handle, other)

    def noted(self, work: Callable[[], None]) -> CudaGraph:
        """Captures the work that a function issues as a graph instead of running it."""
        self.device.ask("cuStreamBeginCapture_v2", self._handle, RELAXED)
        work()
        return CudaGraph(self)

    def follow(self, nodes: Sequence[int]) -> None:
        """During capture: the next work depends only on the given nodes."""
        every = (c_void_p * max(1, len(nodes)))(*nodes)
        count = c_size_t(len(nodes))
        self.device.ask(
            "cuStreamUpdateCaptureDependencies", self._handle, every, count, REPLACE_DEPENDENCIES
        )

    def last(self) -> list[int]:
        """While work is noted: what the next piece of work would wait for."""
        status, number, graph = ctypes.c_int(), ctypes.c_ulonglong(), c_void_p()
        nodes, count = ctypes.POINTER(c_void_p)(), c_size_t()
        asked = (byref(status), byref(number), byref(graph), byref(nodes), byref(count))
        self.device.ask("cuStreamGetCaptureInfo_v2", self._handle, *asked)
        return [nodes[n] or 0 for n in range(count.value)]

    def mark(self) -> CudaEvent:
        """A point in the queue, to measure from or to."""
        return CudaEvent(self)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._handle.value and not ending():  # Note [Globals at exit]
            self.device._driver.cuStreamDestroy_v2(self._handle)


class CudaGraph:
    """Work that was captured: one call runs it all."""

    def __init__(self, of: CudaStream) -> None:
        self._device = of.device
        graph = c_void_p()
        self._handle = c_void_p()
        of.device.ask("cuStreamEndCapture", of._handle, byref(graph))
        of.device.ask(
            "cuGraphInstantiateWithFlags", byref(self._handle), graph, ctypes.c_ulonglong(0)
        )
        of.device.ask("cuGraphDestroy", graph)

    def run(self, stream: int) -> None:
        """Enqueues the work in a stream, by handle."""
        self._device.ask("cuGraphLaunch", self._handle, c_void_p(stream))

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._handle.value and not ending():  # Note [Globals at exit]
            self._device._driver.cuGraphExecDestroy(self._handle)


class CudaEvent:
    """A point in a stream."""

    def __init__(self, of: CudaStream) -> None:
        self._device = of.device
        self._handle = c_void_p()
        of.device.ask("cuEventCreate", byref(self._handle), c_uint(0))
        of.device.ask("cuEventRecord", self._handle, of._handle)

    def since(self, other: CudaEvent) -> float:
        """Seconds from another event to this one, once both are past."""
        self._device.ask("cuEventSynchronize", self._handle)
        found = c_float()
        self._device.ask("cuEventElapsedTime", byref(found), other._handle, self._handle)
        return found.value / 1e3

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._handle.value and not ending():  # Note [Globals at exit]
            self._device._driver.cuEventDestroy_v2(self._handle)


_FIRST: Final = threading.Lock()
_known: Final[dict[int, CudaDevice]] = {}


def device(number: int = 0) -> CudaDevice:
    """The GPU of this process; raises `DeviceError` if there is none."""
    with _FIRST:
        if number not in _known:
            _known[number] = CudaDevice(number)
        cuda_device = _known[number]
    cuda_device.enter()
    return cuda_device


def architecture_here() -> str | None:
    """The architecture of this machine's GPU, or None."""
    return None if why_not() is not None else device().architecture


def why_not() -> str | None:
    """Why no GPU is usable, or None."""
    try:
        device()
    except DeviceError as error:
        return error.diagnostics[0].message
    return None


def _driver() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        message = "There is no NVIDIA driver on this machine."
        hint = "Compile for 'cpu', or run where a GPU is."
        wrong = Diagnostic("no-cuda", message, None, "libcuda.so.1", str(error), hint)
        raise DeviceError(wrong) from None
    library.cuGetErrorName.argtypes = [c_int, ctypes.POINTER(c_char_p)]
    library.cuGetErrorString.argtypes = [c_int, ctypes.POINTER(c_char_p)]
    if status := library.cuInit(0):
        raise DeviceError(_wrong(library, "cuInit", status))
    return library


def _wrong(library: ctypes.CDLL, name: str, status: int) -> Diagnostic:
    """The driver's diagnostic for a status that is not success."""
    word, sentence = c_char_p(), c_char_p()
    library.cuGetErrorName(status, byref(word))
    library.cuGetErrorString(status, byref(sentence))
    found = f"{(word.value or b'').decode()}: {(sentence.value or b'').decode()} ({status})"
    if status == OUT_OF_MEMORY:
        message, code = "The GPU has not enough memory.", "device-memory"
    elif status == 100:
        message, code = "The driver finds no GPU.", "no-cuda"
    elif status in FAULTS:
        message, code = "A kernel failed on the GPU.", "device-fault"
    else:
        message, code = f"The CUDA driver refused {name}.", "device-error"
    return Diagnostic(code, message, None, "success", found)
