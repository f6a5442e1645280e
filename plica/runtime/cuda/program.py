"""Programs on a GPU: a compiled model whose kernels follow one another without the processor.

An input on the device is read in place, and then results stay on the device, too
(`plica.runtime.cuda.array`). Recurring addresses get graphs of their own. If all inputs are torch
tensors, the work is enqueued in torch's current stream without synchronisation.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_void_p
from typing import Any, Final, TypeAlias

from plica.runtime.artefact import Artefact
from plica.runtime.cuda import code, driver
from plica.runtime.cuda.array import LASTING, DeviceArray, SpareMemory, is_same
from plica.runtime.cuda.dlpack import Lent, TensorPorts, borrowed
from plica.runtime.cuda.gather import FUNCTION, THREADS, blocks, text
from plica.runtime.cuda.open_program import OpenDeviceExecutable
from plica.runtime.cuda.prepared import PreparedSteps
from plica.runtime.cuda.step import DeviceProgram
from plica.runtime.error import Diagnostic, InputError, UnsupportedError, damaged
from plica.runtime.executable import Executable, Shape, refuse_library
from plica.runtime.port import Array
from plica.runtime.profile import Profile, ProfileRow, check_runs

Given: TypeAlias = "Array | Lent"

MAX_GRAPHS: Final = 64  # the number of cached graphs for other addresses
NOBODY: Final = -1
"""In place of the handle of a stream, that none has work left on a model's memory."""


class LoadedCode:
    """The functions of an artefact and its constants, on a GPU."""

    def __init__(
        self, gpu: driver.CudaDevice, artefact: Artefact, wanted: Mapping[str, int]
    ) -> None:
        self.held = [_uploaded(gpu, constant) for constant in artefact.constants]
        self._modules = [gpu.load(each) for each in artefact.objects]
        parts = zip(self._modules, map(code.functions, artefact.objects), strict=True)
        where = {name: module for module, names in parts for name in names}
        missing = next((name for name in wanted if name not in where), None)
        if missing is not None:
            raise damaged(f"The code of the artefact does not define {missing}.", missing)
        self.functions = {
            name: where[name].function(name, shared) for name, shared in wanted.items()
        }


class CudaExecutable(Executable):
    """A compiled model on a GPU; calls from several threads wait for one another."""

    def __init__(
        self,
        artefact: Artefact,
        *,
        texts: Mapping[str, Callable[[], str]] | None = None,
        graph: bool = True,
        loaded: LoadedCode | None = None,
    ) -> None:
        if not isinstance(program := artefact.device, DeviceProgram):
            message = "This artefact is not for a GPU."
            raise UnsupportedError(
                Diagnostic("unsupported", message, None, "cuda", str(artefact.machine))
            )
        gpu = driver.device()
        code.check(artefact.machine.cpu, gpu.architecture)
        layout = program.layout
        super().__init__(
            0,
            artefact.interface,
            workspace=layout.size,
            sources=artefact.sources,
            texts=texts
            or {"kernel": lambda: artefact.record().kernels, "cuda": lambda: artefact.text},
            shown="cuda",
            target=str(artefact.machine),
            artefact=artefact,
            export=refuse_library,
        )
        self._device = gpu
        self._lock = threading.Lock()
        self._layout, self._after = layout, program.after
        self._stream = gpu.stream()
        self._memory = gpu.reserve(layout.size)
        self._loaded = loaded or LoadedCode(gpu, artefact, program.functions)
        places = [self._memory.address + at for at in layout.places]
        for slot, number in layout.constants:
            places[slot] = self._loaded.held[number].address
        self._own = tuple([places[slot] for slot in (*layout.inputs, *layout.outputs)])
        """Where this model's own inputs and outputs are."""
        functions, memory = self._loaded.functions, self._memory.address
        self._count = len(program.steps)
        self._prepared = PreparedSteps(gpu, program, functions, places, memory)
        self._gathers: dict[str, tuple[driver.CudaModule, c_void_p]] = {}
        self._has_graphs = graph  # which even one step takes the host less time than its launch
        self._graph = self._captured(self._own) if self._has_graphs else None
        self._others: OrderedDict[tuple[int, ...], driver.CudaGraph | None] = OrderedDict()
        self._pending: Sequence[object] = ()
        self._spare = SpareMemory(self._stream)
        self._followed: set[int] = set()
        """The streams that the stream of this model waits for in a call."""
        self._turn = self._stream.handle
        """The stream that has the last work on the memory of this model."""
        ports = artefact.interface.inputs
        names = [name for name, _ in artefact.interface.params]
        is_flat = [shape for _, shape in artefact.interface.params] == [*range(len(ports))]
        self._tensors = TensorPorts(ports if is_flat else (), gpu.number)
        self._takes_stream = "stream" in names

    def __call__(self, /, *args: object, stream: object = None, **named: object) -> Any:
        """Run the model; inputs by position or by name.

        If an input is on the GPU, results are too, otherwise they are numpy arrays. With the
        `stream` of another library, the work is ordered after its current work, and its later work
        after the results; without one, results are complete when the call returns.
        """
        if stream is not None and self._takes_stream:
            named["stream"], stream = stream, None
        self._calls.add()
        other = None if stream is None else handle_of(stream)
        with self._lock:
            places = None if named else self._tensors.addresses(args)
            if places is not None:
                current = self._tensors.stream()
                # The lifetime of another library's stream handle is unknown.
                if other is None or (other in LASTING and current in LASTING):
                    device_arrays = self._among_tensors(places, current, waits=other is None)
                    self._pending = () if other is None else args
                    return device_arrays[0] if self._interface.single else tuple(device_arrays)
            self._take_turn()
            if other is not None:
                self._follow(other)
            given = self._arrays(args, named)
            stays = any(isinstance(array, Lent) for array in given)
            inputs = self._send(given)
            if stays:
                results = self._on_device(self._stream.handle)
                self._run((*inputs, *[result.address for result in results]), self._stream.handle)
            else:
                self._run(self._own, self._stream.handle)
                results = self._on_host()
            if stays and other is not None:
                self._stream.before(other)
                self._pending = given  # until the next call, which is after this one
            else:
                self._stream.wait()
                self._pending = ()
                for device_array in results if stays else ():
                    device_array.filled_in = None
        return results[0] if self._interface.single else tuple(results)

    def _among_tensors(self, inputs: list[int], stream: int, waits: bool) -> list[DeviceArray]:
        """The results of dense tensors, as a part of the stream that fills those."""
        self._device.enter()
        self._put_into(stream)
        results = self._on_device(stream)
        self._run((*inputs, *[result.address for result in results]), stream)
        if waits:
            self._device.ask("cuStreamSynchronize", c_void_p(stream))
            self._turn = NOBODY
            for result in results:
                result.filled_in = None
        return results

    def run_at(self, inputs: Sequence[int], outputs: Sequence[int], stream: int) -> None:
        """Runs the model on given addresses, as part of another library's stream.

        Nothing is checked: each address must be that of a dense tensor of its port on this device,
        a multiple of 16, and stay valid until the stream has finished.
        """
        self._calls.add()
        with self._lock:
            self._device.enter()
            self._put_into(stream)
            self._run((*inputs, *outputs), stream)

    def _put_into(self, stream: int) -> None:
        """Orders work in this stream after that of another one, because they share the
        workspace."""
        if not is_same(stream, self._turn):
            if self._turn != NOBODY:
                self._device._order(self._turn, stream)
            self._turn = stream

    def _take_turn(self) -> None:
        """Orders work in this model's own stream after that of another one."""
        self._device.enter()
        self._followed.clear()
        self._put_into(self._stream.handle)

    def _follow(self, other: int) -> None:
        """Let the stream of this model wait for another one, once in a call."""
        if other not in self._followed:
            self._stream.after(other)
            self._followed.add(other)

    def seconds(
        self,
        *args: object,
        runs: int = 20,
        before: Callable[[int], object] | None = None,
        **named: object,
    ) -> list[float]:
        """How long the device works on a call, without copies to and from it, run by run.

        On an idle device this includes the host's launch time. `before` is called with the stream
        handle before each run: work it enqueues keeps the device busy meanwhile.
        """
        found = []
        with self._lock:
            self._take_turn()
            places = self._with_own_outputs(self._send(self._arrays(args, named)))
            for _ in range(runs + 3):
                if before is not None:
                    before(self._stream.handle)
                begin = self._stream.mark()
                self._run(places, self._stream.handle)
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
        """The time of a call, by launch."""
        check_runs(runs)
        times: list[list[float]] = [[] for _ in range(self._count)]
        with self._lock:
            self._take_turn()
            self._prepared.place(self._with_own_outputs(self._send(self._arrays(args, named))))
            for run in range(runs + 1):
                marks: list[driver.CudaEvent] = [self._stream.mark()]
                for number in range(self._count):
                    self._prepared.put(number, self._stream.handle)
                    marks.append(self._stream.mark())
                self._stream.wait()
                if run:
                    for into, one, two in zip(times, marks, marks[1:], strict=False):
                        into.append(two.since(one))
        rows = [
            ProfileRow(known.kernel, runs, sum(time), known.operations, known.bytes, tuple(time))
            for time, known in zip(times, self.artefact.launches, strict=True)
        ]
        whole = tuple([sum(run) for run in zip(*times, strict=True)]) or (0.0,) * runs
        return Profile(tuple(rows), runs, sum(whole), peak, bandwidth, whole)

    def _take(
        self, name: str, shape: Shape, value: Any, found: list[Any], wrong: list[Diagnostic]
    ) -> None:
        """The tensors of a parameter, device arrays unchanged."""
        if isinstance(shape, int):
            lent = borrowed(self._interface.inputs[shape], value, self._stream, self._follow)
            if lent is not None:
                (wrong if isinstance(lent, Diagnostic) else found).append(lent)  # type: ignore[arg-type]  # each to its own
                return
        super()._take(name, shape, value, found, wrong)

    def _send(self, given: Sequence[Given]) -> list[int]:
        """Where the inputs of a call are; those from elsewhere are copied."""
        inputs = []
        for own, each in zip(self._own, given, strict=False):
            if isinstance(each, Lent) and each.is_dense:
                inputs.append(each.address)
                continue
            if isinstance(each, Lent):
                self._gather(each, own)
            else:
                self._stream.to_device(own, each.ctypes.data, each.nbytes)
            inputs.append(own)
        return inputs

    def _with_own_outputs(self, inputs: Sequence[int]) -> tuple[int, ...]:
        return (*inputs, *self._own[len(inputs) :])

    def _gather(self, of: Lent, target: int) -> None:
        """Copy an array whose elements do not lie as kernels want them."""
        wanted = text(of.shape, of.steps, of.size)
        if wanted not in self._gathers:
            module = self._device.load(wanted.encode() + b"\0")
            self._gathers[wanted] = module, module.function(FUNCTION)
        _, function = self._gathers[wanted]
        threads = (THREADS, 1, 1)
        grid = (blocks(of.shape), 1, 1)
        self._stream.launch(function, grid, threads, 0, [of.address, target])

    def _on_device(self, stream: int) -> list[DeviceArray]:
        """New arrays on the device for the outputs, which a stream fills."""
        return [self._spare.array(port, stream) for port in self._interface.outputs]

    def _on_host(self) -> list[Any]:
        """The outputs, copied when the work is done."""
        outputs = [port.empty() for port in self._interface.outputs]
        own = self._own[len(self._layout.inputs) :]
        for address, output in zip(own, outputs, strict=True):
            self._stream.to_host(output.ctypes.data, address, output.nbytes)
        return outputs

    def _run(self, places: tuple[int, ...], stream: int) -> None:
        """Enqueues all work in a stream, for inputs and then outputs at given addresses."""
        if self._has_graphs:
            graph = self._graph if places == self._own else self._other_graph(places)
            if graph is not None:
                graph.run(stream)
                return
        self._prepared.place(places)
        self._prepared.put_all(stream)

    def _other_graph(self, places: tuple[int, ...]) -> driver.CudaGraph | None:
        """The graph for other addresses, captured when they occur a second time."""
        others = self._others
        if places not in others:
            others[places] = None
            while len(others) > MAX_GRAPHS:
                others.popitem(last=False)
            return None
        others.move_to_end(places)
        if (graph := others[places]) is None:
            graph = others[places] = self._captured(places)
        return graph

    def _captured(self, places: tuple[int, ...]) -> driver.CudaGraph:
        """All steps on some addresses, as one thing to run."""
        self._prepared.place(places)
        return self._stream.noted(self._put_noted)

    def _put_noted(self) -> None:
        """All steps, which are noted: each after those that it waits for."""
        stream, nodes = self._stream, list[list[int]]()
        if not self._after:
            self._prepared.put_all(stream.handle)
            return
        for number, after in enumerate(self._after):
            stream.follow([node for one in after for node in nodes[one]])
            self._prepared.put(number, stream.handle)
            nodes.append(stream.last())
        inner = {one for each in self._after for one in each}
        ends = [each for number, each in enumerate(nodes) if number not in inner]
        stream.follow([node for end in ends for node in end])


def _uploaded(gpu: driver.CudaDevice, array: Array) -> driver.CudaMemory:
    """A constant on the device."""
    memory = gpu.reserve(array.nbytes)
    stream = gpu.stream()
    stream.to_device(memory.address, array.ctypes.data, array.nbytes)
    stream.wait()
    return memory


def open_on_gpu(
    artefact: Artefact, texts: Mapping[str, Callable[[], str]] | None = None
) -> OpenDeviceExecutable:
    """A compiled model with open sizes on a GPU; its code and constants are loaded once."""
    gpu = driver.device()
    code.check(artefact.machine.cpu, gpu.architecture)
    wanted = {} if artefact.device is None else artefact.device.functions
    loaded = LoadedCode(gpu, artefact, wanted)

    def on_device(of: Artefact) -> CudaExecutable:
        return CudaExecutable(of, texts=texts, loaded=loaded)

    return OpenDeviceExecutable(artefact, on_device, texts)


def handle_of(stream: object) -> int:
    """The handle of a stream: a number, or what torch, cupy and others have for it."""
    for word in ("cuda_stream", "ptr"):
        if isinstance(found := getattr(stream, word, None), int):
            return found
    said = getattr(stream, "__cuda_stream__", None)
    if callable(said):
        return int(said()[1])
    if isinstance(stream, int) and not isinstance(stream, bool):
        return stream
    message = "This is no stream of a GPU."
    expected = "a handle, or a stream of torch or cupy"
    raise InputError(Diagnostic("input-type", message, None, expected, repr(stream)))
