"""Open programs on a device: one code, launched for the sizes of each call."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from plica.runtime.artefact import Artefact, Launched
from plica.runtime.cuda.dlpack import memory_of
from plica.runtime.cuda.open_step import NoValue, OpenProgram, TooLarge
from plica.runtime.cuda.step import DeviceProgram
from plica.runtime.error import Diagnostic
from plica.runtime.executable import Executable, Shape, refuse_library
from plica.runtime.open_executable import NEGATIVE, TOO_LARGE, OpenExecutable, Shapes, Sized, holds
from plica.runtime.port import Array, Port
from plica.runtime.size_text import NoSize, number_of
from plica.runtime.stats import Stats

MAX_PROGRAMS: Final = 16  # the number of sizes for which launches, memory and graphs are cached

OnDevice = Callable[[Artefact], Executable]
"""Makes an artefact of known sizes callable, with the code that is loaded already."""


class OpenDeviceExecutable(OpenExecutable):
    """A compiled model on a device that serves every size of its dims."""

    def __init__(
        self,
        artefact: Artefact,
        on_device: OnDevice,
        texts: Mapping[str, Callable[[], str]] | None = None,
    ) -> None:
        assert isinstance(artefact.device, OpenProgram)  # or it would be another kind
        super().__init__(
            0,
            artefact.interface,
            sources=artefact.sources,
            texts=texts
            or {"kernel": lambda: artefact.record().kernels, "cuda": lambda: artefact.text},
            shown="cuda",
            target=str(artefact.machine),
            artefact=artefact,
            export=refuse_library,
        )
        self._program, self._on_device = artefact.device, on_device
        self._made: OrderedDict[Shapes, Executable] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, /, *args: object, **named: object) -> Any:
        """Run the model; inputs by position or by name, and where it is a GPU a `stream`."""
        self._calls.add()
        more = {}
        if "stream" in named and "stream" not in [name for name, _ in self._interface.params]:
            more["stream"] = named.pop("stream")
        shapes = tuple([tuple(_array.shape) for _array in self._arrays(args, named)])
        wanted = self._eager and len(self._special) < MAX_PROGRAMS
        if shapes not in self._special and (wanted or self._is_beyond(shapes)):
            self.at(*args, **named)
            self._late += 1
        executable = self._special.get(shapes) or self.program_for(shapes)
        return executable(*args, **named, **more)

    def at(self, /, *args: object, **named: object) -> Executable:
        """The executable for the sizes of these inputs; of device arrays only the sizes are
        read."""
        shapes = tuple([tuple(_array.shape) for _array in self._arrays(args, named)])
        places = [np.empty(shape, port.numpy)
                  for shape, port in zip(shapes, self._interface.inputs, strict=True)]  # fmt: skip
        executable = self._special[shapes] = self.others().at(*self._given(places))
        while len(self._special) > MAX_PROGRAMS:
            self._special.popitem(last=False)
        return executable

    def _given(self, arrays: Sequence[Array]) -> list[Any]:
        """Arrays as the parameters take them."""

        def taken(shape: Shape) -> Any:  # Any: an array, or a tuple of such
            return arrays[shape] if isinstance(shape, int) else tuple([taken(e) for e in shape])

        return [taken(shape) for _, shape in self._interface.params]

    def _is_beyond(self, shapes: Shapes) -> bool:
        """Whether sizes are too large for this code, and the compiler is at hand for them."""
        if self._others is None or shapes in self._made:
            return False
        dims = [shapes[dim.port][dim.axis] for dim in self._dims]
        try:
            self._program.at(dict(zip(self.dims, dims, strict=True)))
        except TooLarge:
            return True
        except (NoValue, NoSize):
            pass  # which is told when it is run
        return False

    def program_for(self, shapes: Shapes) -> Executable:
        """The program for inputs of some shapes: nothing is compiled for it."""
        with self._lock:
            if (executable := self._made.get(shapes)) is None:
                executable = self._made[shapes] = self._on_device(self._artefact_at(shapes))
                while len(self._made) > MAX_PROGRAMS:
                    self._made.popitem(last=False)
            else:
                self._made.move_to_end(shapes)
        return executable

    def profile(self, /, *args: object, **named: Any) -> Any:  # Any: as `Executable` takes them
        """The time of a call with these inputs, by launch."""
        return self._for(args, named, ("runs", "peak", "bandwidth")).profile(*args, **named)

    def seconds(self, /, *args: object, **named: Any) -> list[float]:  # Any: as above
        """How long a GPU works on a call, without copies to and from it, run by run."""
        found: Any = self._for(args, named, ("runs", "before"))
        times: list[float] = found.seconds(*args, **named)
        return times

    def _for(
        self, args: Sequence[object], named: Mapping[str, object], options: Sequence[str]
    ) -> Executable:
        given = {name: value for name, value in named.items() if name not in options}
        return self.program_for(tuple([tuple(e.shape) for e in self._arrays(args, given)]))

    @property
    def stats(self) -> Stats:
        """The number of calls, and the memory of cached programs and code."""
        own = super().stats
        held = sum(each.workspace for each in tuple(self._made.values()))
        return replace(own, bytes=own.bytes + held)

    def run_sized(self, sized: Sized, addresses: Sequence[int]) -> None:
        """Run the code on memory of this process, of sizes that lead to `sized`."""
        names = dict(zip(self.dims, sized.dims, strict=True))
        shapes = tuple([_shape(port, names) for port in self._interface.inputs])
        self.program_for(shapes).run(addresses)

    def _take(
        self, name: str, shape: Shape, value: Any, found: list[Any], wrong: list[Diagnostic]
    ) -> None:
        """The tensors of a parameter; device arrays unchanged, because only their sizes are
        needed."""
        if isinstance(shape, int) and is_on_device(value):
            found.append(_Shaped(_shape_of(value)))
            return
        super()._take(name, shape, value, found, wrong)

    def _asked(self, dims: array[int]) -> array[int]:
        """The sizes computed by the program's steps."""
        names = dict(zip(self.dims, dims, strict=True))
        interface = self._interface
        if not self._program.numbers(names) or any(
            holds(e, names) is False for e in interface.needs
        ):
            workspace = NEGATIVE  # which sizes ask for, and says more than that a step has no value
        else:
            try:
                workspace = self._program.at(names).layout.size
            except NoValue as said:
                raise self.failure(-1 - int(str(said))) from None
            except TooLarge:
                workspace = TOO_LARGE
        sizes = [
            size for port in (*interface.inputs, *interface.outputs) for size in _shape(port, names)
        ]
        return array("q", [workspace, *sizes])

    def _artefact_at(self, shapes: Shapes) -> Artefact:
        """The artefact as it were if the sizes of a call had been known."""
        sized, interface = self.sized(shapes), self._interface
        program = self._program.at(dict(zip(self.dims, sized.dims, strict=True)))
        inputs = [Port(port.name, shape, port.dtype, port.numpy)
                  for port, shape in zip(interface.inputs, shapes, strict=True)]  # fmt: skip
        known = replace(interface, inputs=tuple(inputs), outputs=sized.outputs, ranges=(), needs=())
        launched = tuple([Launched(name, 0, 0) for name in _names(program)])
        return replace(self.artefact, interface=known, device=program, launches=launched)


class _Shaped(NamedTuple):
    """An array of which the shape alone is known."""

    shape: tuple[int, ...]


def _shape_of(value: Any) -> tuple[int, ...]:  # Any: an array of any library
    if (found := getattr(value, "shape", None)) is None:
        found = value.__cuda_array_interface__["shape"]
    return tuple([int(size) for size in found])


def is_on_device(value: object) -> bool:
    """Whether a value may lie on a GPU: then it is no array of this process."""
    if hasattr(value, "__cuda_array_interface__"):
        return True
    where = memory_of(value)
    return where is not None and where[0] not in HERE


HERE: Final = (1,)  # DLPack's number of memory of this process


def _names(of: DeviceProgram) -> list[str]:
    return [getattr(step, "function", "copy") for step in of.steps]


def _shape(port: Port, sizes: Mapping[str, int]) -> tuple[int, ...]:
    shape: tuple[Any, ...] = port.shape  # Any: numbers, and texts of those that are open
    return tuple([number_of(each, sizes) if isinstance(each, str) else each for each in shape])
