"""Programs of WebGPU: the launches of a compiled model on a device."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from plica.runtime.artefact import Artefact
from plica.runtime.cuda.step import DeviceCopy, DeviceProgram
from plica.runtime.device_executable import DeviceExecutable, DeviceKind, Sources, step_loader
from plica.runtime.error import ArtefactError, Diagnostic, EvaluationError, UnsupportedError
from plica.runtime.port import Array
from plica.runtime.wasm.executable import export_page
from plica.runtime.webgpu.device import ACROSS, GROUP, SHADER_MARK, device, has_int64

_WORD: Final = 4
_ALIGNMENT: Final = 256
_LOST: Final = "is lost"  # what drivers say of a device that was there before


class WebgpuProgram:
    """The launches of a model on a device; calls wait for one another, since they share memory."""

    def __init__(
        self, code: bytes, program: DeviceProgram, constants: Sequence[Array], sizes: Sequence[int],
        features: Sequence[str] = (),
    ) -> None:  # fmt: skip
        import wgpu

        self._device = found = device()
        if "+int64" in features and not has_int64():
            message = "The model computes with integers of 64 bits, which the device has not."
            raise ArtefactError(Diagnostic("other-machine", message, None, "shader-int64", "none"))
        self._lock = threading.Lock()
        self._program, self._sizes = program, tuple(sizes)
        self._places = list(program.layout.places)
        end = _padded(program.layout.size)
        starts: list[int] = []
        for constant in constants:
            starts.append(end)
            end += _padded(constant.nbytes)
        for slot, number in program.layout.constants:
            self._places[slot] = starts[number]
        self._flags, count = end, max(len(program.steps), 1)
        size = end + _padded(_WORD * count)
        self._failed = np.zeros(count, np.int32)
        self._check_size(size)
        usage = wgpu.BufferUsage
        try:
            every = usage.STORAGE | usage.COPY_DST | usage.COPY_SRC
            self._memory = found.create_buffer(size=size, usage=every)
            largest = max([s.size for s in program.steps if isinstance(s, DeviceCopy)], default=0)
            self._between = found.create_buffer(size=max(_padded(largest), 4), usage=every)
            shaders = dict(_shaders(code.decode()))
            self._modules = {
                name: found.create_compute_pipeline(
                    layout="auto",
                    compute={
                        "module": found.create_shader_module(code=shaders[name]),
                        "entry_point": name,
                    },
                )
                for name in program.functions
            }
        except (wgpu.GPUValidationError, wgpu.GPUPipelineError) as error:
            if _LOST in str(error):
                raise _lost(error) from error
            message = "The driver of WebGPU refuses a shader."
            said = " / ".join(str(error).strip().splitlines()[:8])
            wrong = Diagnostic("toolchain", message, None, "a shader", said)
            raise UnsupportedError(wrong) from error
        except wgpu.GPUOutOfMemoryError as error:
            raise _too_large(size) from error
        for constant, start in zip(constants, starts, strict=True):
            self._send(np.ascontiguousarray(constant).view(np.uint8).reshape(-1), start)
        self._groups = [self._group(number) for number in range(len(program.steps))]

    def call(self, addresses: Sequence[int]) -> int:
        """Run the model on arrays of this process; 0, or the number of the launch that failed."""
        import wgpu

        try:
            return self._call(addresses)
        except wgpu.GPUOutOfMemoryError as error:
            raise _too_large(self._memory.size) from error
        except wgpu.GPUError as error:
            raise _lost(error) from error

    def _call(self, addresses: Sequence[int]) -> int:
        layout = self._program.layout
        slots = (*layout.inputs, *layout.outputs)
        moves = [
            (np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)), slot)
            for address, size, slot in zip(addresses, self._sizes, slots, strict=True)
            if size
        ]
        taken = set(layout.inputs)
        with self._lock:
            self._send(self._failed.view(np.uint8), self._flags)
            for array, slot in moves:
                if slot in taken:
                    self._send(array, self._places[slot])
            encoder = self._device.create_command_encoder()
            for number in range(len(self._program.steps)):
                self._encode(encoder, number)
            self._device.queue.submit([encoder.finish()])
            for array, slot in moves:
                if slot not in taken:
                    array[:] = self._fetch(self._places[slot], array.size)
            said = self._fetch(self._flags, self._failed.nbytes).view(np.int32)
        return int(said.argmax()) + 1 if said.any() else 0

    def _encode(self, encoder: Any, number: int) -> None:
        step = self._program.steps[number]
        if isinstance(step, DeviceCopy):
            source, target = self._places[step.source], self._places[step.target]
            size = -(-step.size // _WORD) * _WORD
            if size:  # a buffer is not copied into itself
                encoder.copy_buffer_to_buffer(self._memory, source, self._between, 0, size)
                encoder.copy_buffer_to_buffer(self._between, 0, self._memory, target, size)
            return
        work = encoder.begin_compute_pass()
        work.set_pipeline(self._modules[step.function])
        work.set_bind_group(0, self._groups[number])
        count = -(-step.grid[0] // GROUP) if step.grid[0] > 1 else 1
        work.dispatch_workgroups(min(count, ACROSS), -(-count // ACROSS), 1)
        work.end()

    def _group(self, number: int) -> Any:
        """The bindings of a launch: the memory, and the offsets of its tensors in words."""
        step = self._program.steps[number]
        if isinstance(step, DeviceCopy):
            return None
        import wgpu

        places = [self._places[slot] for slot in step.slots]
        places += self._program.layout.scratch[: step.scratch]
        words = [*[at // _WORD for at in places], self._flags // _WORD + number, 0]
        params = self._device.create_buffer_with_data(
            data=np.array(words, np.uint32), usage=wgpu.BufferUsage.STORAGE
        )
        entries = [
            {"binding": at, "resource": {"buffer": buffer, "offset": 0, "size": buffer.size}}
            for at, buffer in enumerate((self._memory, params))
        ]
        layout = self._modules[step.function].get_bind_group_layout(0)
        return self._device.create_bind_group(layout=layout, entries=entries)

    def _send(self, array: Array, at: int) -> None:
        """Writes bytes to device memory in whole words: padding behind a tensor is unused."""
        whole = np.pad(array, (0, -array.size % _WORD)) if array.size % _WORD else array
        if whole.size:
            self._device.queue.write_buffer(self._memory, at, whole)

    def _fetch(self, at: int, size: int) -> Array:
        whole = -(-size // _WORD) * _WORD
        data = self._device.queue.read_buffer(self._memory, at, whole)
        return np.frombuffer(data, np.uint8)[:size]

    def _check_size(self, size: int) -> None:
        limits = self._device.limits
        most = min(limits["max-buffer-size"], limits["max-storage-buffer-binding-size"])
        if size > most:
            raise _too_large(size, f"at most {most} bytes")


def _lost(error: Exception) -> EvaluationError:
    """The error of a device that is no longer there; the next model looks for one again."""
    device.cache_clear()
    message = "The device of WebGPU was lost, or gave up."
    said = " / ".join(str(error).split("\n\n")[-1].strip().splitlines()[:4])
    hint = "Load the model again: it takes the device that is there then."
    return EvaluationError(Diagnostic("device-fault", message, None, "a result", said, hint))


def _too_large(size: int, expected: str = "less") -> EvaluationError:
    message = "There is not enough memory on the device for the model."
    hint = "Compile the model for smaller sizes, or a smaller batch."
    found = f"{size} bytes"
    return EvaluationError(Diagnostic("no-memory", message, None, expected, found, hint))


def _padded(size: int) -> int:
    return -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT


def _shaders(text: str) -> list[tuple[str, str]]:
    """The shaders in a text, by name."""
    found = []
    for part in text.split(SHADER_MARK)[1:]:
        name, _, body = part.partition("\n")
        found.append((name, body))
    return found


def webgpu(artefact: Artefact, texts: Sources | None = None) -> DeviceExecutable:
    """A compiled model on a device; calls from several threads are serialised."""
    return DeviceExecutable(artefact, texts, _KIND)


_KIND: Final = DeviceKind(step_loader(WebgpuProgram), "wgsl", is_text=True, export=export_page)
