"""Programs on a GPU: a compiled model whose kernels follow one another without the processor.

Inputs, outputs, temporaries and scratch lie in one block of memory, constants in another; where
each lies is known before the first call.  The steps are captured once as a graph; a call copies
its inputs to the device, runs the graph, and copies the results back.  An input that is on the
device already (`__cuda_array_interface__`) is copied there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, TypeAlias

from plica.runtime.cuda.driver import Device, Event, Stream, device
from plica.runtime.executable import Executable, Interface
from plica.runtime.port import Array
from plica.runtime.profile import Launched, Profile, Row

ALIGNMENT: Final = 256
"""Where tensors begin: a multiple of what the widest access needs."""

Three: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class DeviceLaunch:
    """A function over the tensors of some slots, then over so many scratch buffers."""

    function: str
    grid: Three
    block: Three
    shared: int
    slots: tuple[int, ...]
    scratch: int = 0


@dataclass(frozen=True, slots=True)
class DeviceCopy:
    """The bytes of a slot to another."""

    source: int
    target: int
    size: int


DeviceStep: TypeAlias = DeviceLaunch | DeviceCopy


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the slots are: each in the block of memory, or a constant by its number."""

    size: int
    places: tuple[int, ...]
    constants: tuple[tuple[int, int], ...]
    """Pairs: a slot, and the number of the constant it holds."""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    scratch: tuple[int, ...]


class CudaExecutable(Executable):
    """A compiled model on a GPU; calls from several threads wait for one another."""

    def __init__(
        self,
        cubin: bytes,
        interface: Interface,
        steps: Sequence[DeviceStep],
        layout: Layout,
        *,
        constants: Sequence[Array] = (),
        launched: Sequence[Launched] = (),
        texts: Mapping[str, Callable[[], str]] | None = None,
        target: str = "cuda",
        graph: bool = True,
    ) -> None:
        super().__init__(0, interface, texts=texts, target=target)
        self._device = gpu = device()
        self._lock = threading.Lock()
        self._steps, self._layout, self._launched = tuple(steps), layout, tuple(launched)
        self._stream = gpu.stream()
        self._memory = gpu.reserve(layout.size)
        self._held = [self._uploaded(gpu, each) for each in constants]
        places = [self._memory.address + at for at in layout.places]
        for slot, number in layout.constants:
            places[slot] = self._held[number].address
        self._places = places
        self._module = gpu.load(cubin)
        functions = {each.function: each.shared for each in steps if isinstance(each, DeviceLaunch)}
        self._functions = {
            name: self._module.function(name, shared) for name, shared in functions.items()
        }
        self._graph = None
        if graph:
            self._stream.capture()
            for each in self._steps:
                self._put(each)
            self._graph = self._stream.captured()

    def __call__(self, *args: object, **named: object) -> Array | tuple[Array, ...]:
        """Run the model; inputs by position or by name."""
        arrays = self._arrays(args, named)
        outputs = [port.empty() for port in self._interface.outputs]
        with self._lock:
            self._device.enter()
            self._send(arrays)
            self._run()
            for slot, each in zip(self._layout.outputs, outputs, strict=True):
                self._stream.to_host(each.ctypes.data, self._places[slot], each.nbytes)
            self._stream.wait()
        return outputs[0] if self._interface.single else tuple(outputs)

    def seconds(self, *args: object, runs: int = 20, **named: object) -> list[float]:
        """How long the device works on a call, without copies to and from it, run by run."""
        arrays = self._arrays(args, named)
        found = []
        with self._lock:
            self._device.enter()
            self._send(arrays)
            for _ in range(runs + 3):
                begin = self._stream.mark()
                self._run()
                found.append(self._stream.mark().since(begin))
        return found[3:]

    def profile(
        self,
        *args: object,
        runs: int = 10,
        peak: float | None = None,
        bandwidth: float | None = None,
        **named: object,
    ) -> Profile:
        """Where the time of a call goes, launch by launch."""
        arrays = self._arrays(args, named)
        times: list[list[float]] = [[] for _ in self._steps]
        with self._lock:
            self._device.enter()
            self._send(arrays)
            for run in range(runs + 1):
                marks: list[Event] = [self._stream.mark()]
                for each in self._steps:
                    self._put(each)
                    marks.append(self._stream.mark())
                self._stream.wait()
                if run:
                    for into, one, two in zip(times, marks, marks[1:], strict=False):
                        into.append(two.since(one))
        rows = [
            Row(known.kernel, runs, median(each) * runs, known.operations, known.bytes)
            for each, known in zip(times, self._launched, strict=True)
        ]
        whole = sum(median(each) for each in times) * runs
        return Profile(tuple(rows), runs, whole, peak, bandwidth)

    def _send(self, arrays: Sequence[Array]) -> None:
        for slot, each in zip(self._layout.inputs, arrays, strict=True):
            self._stream.to_device(self._places[slot], each.ctypes.data, each.nbytes)

    def _run(self) -> None:
        if self._graph is not None:
            self._graph.run(self._stream)
            return
        for each in self._steps:
            self._put(each)

    def _put(self, step: DeviceStep) -> None:
        places = self._places
        if isinstance(step, DeviceCopy):
            self._stream.within(places[step.target], places[step.source], step.size)
            return
        scratch = self._layout.scratch[: step.scratch]
        addresses = [places[slot] for slot in step.slots]
        addresses += [self._memory.address + at for at in scratch]
        function = self._functions[step.function]
        self._stream.launch(function, step.grid, step.block, step.shared, addresses)

    @staticmethod
    def _uploaded(gpu: Device, array: Array) -> Any:
        """A constant on the device."""
        memory = gpu.reserve(array.nbytes)
        stream: Stream = gpu.stream()
        stream.to_device(memory.address, array.ctypes.data, array.nbytes)
        stream.wait()
        return memory


def arranged(
    sizes: Sequence[int],
    spaces: Sequence[str],
    offsets: Mapping[int, int],
    arena: int,
    scratch: Sequence[int],
) -> Layout:
    """Where each slot lies: inputs and outputs, then the temporaries as planned, then scratch."""
    at = 0
    places = [0] * len(sizes)
    for slot, (size, space) in enumerate(zip(sizes, spaces, strict=True)):
        if space in ("input", "output"):
            places[slot] = at
            at += _padded(size)
    begin = at
    for slot, offset in offsets.items():
        places[slot] = begin + offset
    at += _padded(arena)
    extra = []
    for size in scratch:
        extra.append(at)
        at += _padded(size)
    held = [slot for slot, space in enumerate(spaces) if space == "constant"]
    return Layout(
        max(at, 1),
        tuple(places),
        tuple([(slot, number) for number, slot in enumerate(held)]),
        tuple([slot for slot, space in enumerate(spaces) if space == "input"]),
        tuple([slot for slot, space in enumerate(spaces) if space == "output"]),
        tuple(extra),
    )


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
