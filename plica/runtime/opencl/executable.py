"""Programs of OpenCL: the launches of a compiled model on a device."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from plica.runtime.artefact import Artefact
from plica.runtime.cuda.step import DeviceCopy, DeviceProgram
from plica.runtime.device_executable import DeviceExecutable, DeviceKind, Sources, step_loader
from plica.runtime.error import ArtefactError, Diagnostic, EvaluationError, UnsupportedError
from plica.runtime.opencl.device import device
from plica.runtime.port import Array


class OpenclProgram:
    """The launches of a model on a device; calls wait for one another, since they share memory."""

    def __init__(
        self, code: bytes, program: DeviceProgram, constants: Sequence[Array], sizes: Sequence[int],
        features: Sequence[str] = (),
    ) -> None:  # fmt: skip
        import pyopencl as cl

        found = device()
        if "+fp64" in features and "cl_khr_fp64" not in found.extensions:
            message = "The model computes in f64, which the device does not have."
            raise ArtefactError(
                Diagnostic("other-machine", message, None, "cl_khr_fp64", found.name)
            )
        _check_memory(found, program.layout.size, [constant.nbytes for constant in constants])
        self._cl, self._lock = cl, threading.Lock()
        self._program, self._sizes = program, tuple(sizes)
        self._context = cl.Context([found])
        self._queue = cl.CommandQueue(self._context)
        try:
            built = self._built(code, found)
            self._held = [self._reserved(max(constant.nbytes, 1)) for constant in constants]
            self._memory = self._reserved(program.layout.size)
        except cl.MemoryError as error:
            raise _too_large(str(error)) from error
        except cl.RuntimeError as error:
            message = "The driver of OpenCL refuses a program."
            said = " / ".join(str(error).strip().splitlines()[:6])
            wrong = Diagnostic("toolchain", message, None, "a program", said)
            raise UnsupportedError(wrong) from error
        for constant, room in zip(constants, self._held, strict=True):
            cl.enqueue_copy(self._queue, room, np.ascontiguousarray(constant))
        self._queue.finish()
        self._kernels = {name: cl.Kernel(built, name) for name in program.functions}
        self._failed = np.zeros(max(len(program.steps), 1), np.int32)
        self._flags = self._reserved(self._failed.nbytes)
        cl.enqueue_copy(self._queue, self._flags, self._failed)
        layout = program.layout
        self._places: list[tuple[Any, int]] = [(self._memory, at) for at in layout.places]
        for slot, number in layout.constants:
            self._places[slot] = self._held[number], 0
        self._steps = [self._step(number) for number in range(len(program.steps))]

    def _built(self, code: bytes, found: Any) -> Any:  # Any: of pyopencl, as they are
        """The program that the driver of a device makes of code."""
        return self._cl.Program(self._context, code.decode()).build(["-w"])

    def call(self, addresses: Sequence[int]) -> int:
        """Run the model on arrays of this process; 0, or the number of the launch that failed."""
        try:
            return self._call(addresses)
        except self._cl.MemoryError as error:
            raise _too_large(str(error)) from error
        except self._cl.Error as error:
            message = "The device of OpenCL was lost, or gave up."
            hint = "Load the model again: it takes the device that is there then."
            wrong = Diagnostic("device-fault", message, None, "a result", str(error), hint)
            raise EvaluationError(wrong) from error

    def _call(self, addresses: Sequence[int]) -> int:
        cl, layout = self._cl, self._program.layout
        slots = (*layout.inputs, *layout.outputs)
        moves = [
            (np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)), slot)
            for address, size, slot in zip(addresses, self._sizes, slots, strict=True)
        ]
        inputs = len(layout.inputs)
        with self._lock:
            for array, slot in moves[:inputs]:
                if array.size:
                    self._copy(self._memory, array, dst_offset=layout.places[slot])
            for step in self._steps:
                step()
            self._copy(self._failed, self._flags)
            for array, slot in moves[inputs:]:
                if array.size:
                    self._copy(array, self._memory, src_offset=layout.places[slot])
            self._queue.finish()
            code = int(self._failed.argmax()) + 1 if self._failed.any() else 0
            if code:
                self._failed[:] = 0
                cl.enqueue_copy(self._queue, self._flags, self._failed)
        return code

    def _copy(self, to: Any, source: Any, **at: int) -> None:
        self._cl.enqueue_copy(self._queue, to, source, is_blocking=False, **at)

    def _reserved(self, size: int) -> Any:
        return self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, size)

    def _step(self, number: int) -> Callable[[], object]:
        """One step, with all that it is given."""
        cl, queue, step = self._cl, self._queue, self._program.steps[number]
        if isinstance(step, DeviceCopy):
            (source, begin), (target, place) = self._places[step.source], self._places[step.target]
            size = step.size

            def copy() -> object:
                return cl.enqueue_copy(
                    queue, target, source, byte_count=size, src_offset=begin, dst_offset=place
                )

            return copy if size else lambda: None
        scratch = self._program.layout.scratch[: step.scratch]
        pairs = [self._places[slot] for slot in step.slots]
        pairs += [(self._memory, at) for at in scratch]
        args = [word for buffer, at in pairs for word in (buffer, np.uint64(at))]
        # Kernels keep their arguments: one kernel per step is set up once.
        kernel = cl.Kernel(self._kernels[step.function].program, step.function)
        kernel.set_args(*args, self._flags, np.int32(number))
        items = (step.grid[0],)
        return lambda: cl.enqueue_nd_range_kernel(queue, kernel, items, (1,))


def _check_memory(found: Any, work: int, constants: Sequence[int]) -> None:
    """Refuses programs that exceed the device's memory, before allocating."""
    largest, whole = max([work, *constants]), work + sum(constants)
    if largest > found.max_mem_alloc_size or whole > found.global_mem_size:
        has = f"at most {found.global_mem_size} bytes, {found.max_mem_alloc_size} in one piece"
        raise _too_large(f"{whole} bytes, {largest} of them in one piece", has)


def _too_large(found: str, expected: str = "less") -> EvaluationError:
    message = "There is not enough memory on the device for the model."
    hint = "Compile the model for smaller sizes, or a smaller batch."
    return EvaluationError(Diagnostic("no-memory", message, None, expected, found, hint))


def opencl(artefact: Artefact, texts: Sources | None = None) -> DeviceExecutable:
    """A compiled model on a device; calls from several threads are serialised."""
    return DeviceExecutable(artefact, texts, _KIND)


_KIND: Final = DeviceKind(step_loader(OpenclProgram), "opencl", is_text=True)
