"""Executables: compiled models one can call with arrays.

The native code is one function `i64 main(void **table)`: the table holds the addresses of the
inputs, the outputs, the constants and one workspace. Every call has its own table and workspace,
and releases Python's lock, so calls from several threads are allowed.

Not here: how native code is made.  This file needs numpy, ctypes and the standard library.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Self, TypeAlias

import numpy as np

from plica.runtime import archive
from plica.runtime.artefact import Artefact, NotedCode, to_members
from plica.runtime.error import (
    Diagnostic,
    EvaluationError,
    InputError,
    Place,
    PlicaError,
    UnsupportedError,
    index_outside,
)
from plica.runtime.extern import NONE, Externs
from plica.runtime.interface import Interface, Shape
from plica.runtime.late import late, lazy_imports
from plica.runtime.port import MISSING, Array, Port, Workspace, address_of, entering, with_table
from plica.runtime.stats import CallCounter, Stats

with lazy_imports(__name__):
    from plica.runtime.given import check_donated, contradicted_dims, in_order
    from plica.runtime.notebook import table
    from plica.runtime.profile import (
        Profile,
        check_runs,
        measured_peak,
        measured_speeds,
        noted_profile,
    )
    from plica.runtime.record import KernelTrace, trace_named

__all__ = ["Executable", "Interface", "Shape", "address_of"]

_MAIN: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_NOTE: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_WORK: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
_ALIGNMENT: Final = 64
SAVED: Final = "saved"
Exporter: TypeAlias = "Callable[[Executable, str | os.PathLike[str], str | None], None]"
"""Writes an executable to a path, for programs that want a function of some name."""
_exported = late("plica.runtime.export:exported")  # what it writes runs executables of its own


class Executable:
    """A compiled model: `exe(x, y)` or `exe(name=x)` gives an array, or a tuple of arrays."""

    _externs: Externs = NONE
    _separate: Callable[[Collection[str]], Executable] | None = None
    _separated: Executable | None = None
    _warned = False
    kept = ""  # the artefact's key in the store, if it is stored

    def __init__(
        self,
        address: int,
        interface: Interface,
        *,
        constants: Sequence[Array] = (),
        workspace: int = 0,
        sources: Sequence[str] = (),
        texts: Mapping[str, Callable[[], str]] | None = None,
        shown: str = "llvm",
        target: str = "cpu",
        keep: object = None,
        artefact: Artefact | None = None,
        profile: int = 0,
        peak: int = 0,
        threads: int = 1,
        externs: Externs = NONE,
        export: Exporter | None = None,
    ) -> None:
        self._interface = interface
        self._main: Callable[[int], int] = externs.guarded(_MAIN(address))
        self._externs = externs
        self.native_entry = 0 if externs.callbacks else address
        """Where its native function is, where that can be called without this object."""
        self._calls = CallCounter()
        self._tier, self._compilations = SAVED, 0
        self._origin: Callable[[], object] | None = None
        self._constants = tuple(constants)
        self._size = workspace
        self._sources = tuple(sources)
        self._texts, self._shown = dict(texts or {}), shown
        self._exporter = export or export_library
        self._target = target
        self._artefact = artefact
        self._profile: Callable[[int], None] | None = _NOTE(profile) if profile else None
        self._peak: Callable[[int], int] | None = _WORK(peak) if peak else None
        self._threads = threads
        self._keep = keep  # the machine code lives as long as this object
        self._free: list[Workspace] = []  # no call is using them
        self._addresses = [address_of(constant) for constant in self._constants]
        count = len(interface.inputs) + len(interface.outputs)
        self._enter = entering(count)
        self._with_table = partial(with_table, count, self._addresses)
        self._placing = tuple([port.placing() for port in interface.outputs])

    def separating(self, separate: Callable[[Collection[str]], Executable] | None) -> Self:
        """This executable, which asks `separate` for another one if inputs contradict dims of some
        names: there, each axis with such a name is a separate dim."""
        self._separate = separate
        return self

    def separated(self, names: Collection[str]) -> Executable:
        """The executable in which each axis with one of these dim names is a separate dim."""
        if self._separate is None:
            message = "No two axes of its inputs have one dim."
            raise UnsupportedError(Diagnostic("unsupported", message, found=", ".join(names)))
        return self._separate(names)

    def _run_separated(
        self, error: InputError, arrays: Sequence[Array]
    ) -> Array | tuple[Array, ...]:
        """The result for inputs that contradict the names of dims; raises `error` if there is no
        such executable."""
        names = contradicted_dims(self.inputs, arrays)
        if not names or self._separate is None:
            raise error
        try:
            if self._separated is None:
                self._separated = self.separated(names)
        except PlicaError as reason:
            self._separate = None  # it is not tried again
            raise error from reason
        try:
            found = self._separated(*arrays)
        except PlicaError as reason:
            raise error from reason
        if not self._warned:
            self._warned = True
            listed = "; ".join(f"{name} is {sizes}" for name, sizes in names.items())
            message = f"Inputs contradict dims, so each axis is its own dim now: {listed}."
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        return found

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The tensors the model takes, in order."""
        return self._interface.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The tensors the model gives, in order."""
        return self._interface.outputs

    @property
    def donated(self) -> tuple[tuple[int, int], ...]:
        """Inputs and the results that are written over them, by their numbers."""
        return self._interface.donated

    @property
    def externs(self) -> Externs:
        """What it calls that is not its own."""
        return self._externs

    @property
    def constants(self) -> list[int]:
        """Where the constants begin that its function is given."""
        return self._addresses

    @property
    def workspace(self) -> int:
        """The bytes a call needs besides inputs, outputs and constants."""
        return self._size

    @property
    def target(self) -> str:
        """The target of the code."""
        return self._target

    @property
    def stats(self) -> Stats:
        """The number of calls and compilations, and the memory held."""
        code = 0 if self._artefact is None else sum(map(len, self._artefact.objects))
        held = [*self._constants, *[each.memory for each in tuple(self._free)]]
        size = code + sum(each.nbytes for each in held)
        return Stats(self._calls.count, self._compilations, size)

    @property
    def tier(self) -> str:
        """The effort of the code: fast, default or max; `own` for a custom pipeline, `saved` for
        loaded code."""
        return self._tier

    @property
    def derivation(self) -> object:
        """How the code came about: it prints as a list of steps.

        If compiled in this process, it is a `plica.rewrite.Derivation`, with `why`, `became` and
        `first_bad`; loaded code has the artefact's record of it.
        """
        return self.artefact.record() if self._origin is None else self._origin()

    def wait(self, timeout: float | None = None) -> Self:
        """This executable, once its best code answers: at once, where no better is made."""
        return self

    def with_tier(
        self, tier: str, compilations: int = 0, origin: Callable[[], object] | None = None
    ) -> Self:
        """This executable, labelled with its effort."""
        self._tier, self._compilations, self._origin = tier, compilations, origin
        return self

    def source(self, kind: str | None = None) -> str:
        """The code at one stage: the kernels, LLVM or target text, or assembly; `joined` lists each
        join of tensors and what it writes in place, `passed-over` each schedule that promised more
        and was refused."""
        kind = self._shown if kind is None else kind
        if kind not in self._texts:
            raise InputError(
                Diagnostic(
                    "input-unknown",
                    f"There is no source of kind {kind!r}.",
                    expected=", ".join(self._texts),
                    found=kind,
                )
            )
        return self._texts[kind]()

    @property
    def tuning(self) -> str:
        """Which kernels have a tuned schedule and which the default, and why; a table."""
        if "tuning" in self._texts:
            return self.source("tuning")
        counts = Counter(launch.kernel for launch in self.artefact.launches)
        wide = max([6, *map(len, counts)])
        lines = [f"{'kernel':{wide}}  times  schedule  why"]
        for name, times in counts.items():
            lines.append(f"{name:{wide}}  {times:5}  default   no tuning database was given")
        return "\n".join(lines)

    def trace(self, kernel: str) -> KernelTrace:
        """How a kernel was scheduled, by its name as a profile shows it; it prints as Python.

        Where only one kernel is meant, the name may lack the digits at its end.
        """
        return trace_named(kernel, self.artefact.record().traces)

    @property
    def artefact(self) -> Artefact:
        """All that this executable is made of, as data."""
        if self._artefact is None:
            message = "This executable has no object code that could be written down."
            hint = "Artefacts are made on Linux, for x86-64 and aarch64."
            raise UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))
        return self._artefact

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the artefact, as a whole or not at all; `plica.load` reads it."""
        archive.write(path, archive.pack(self.members()))

    def members(self) -> dict[str, bytes]:
        """The members of the archive that this is written as."""
        self._externs.check_written("saved")
        return to_members(self.artefact)

    def export(self, path: str | os.PathLike[str], name: str | None = None) -> None:
        """Exports a shared library with a plain C function, its header and an example.

        A path that ends with `.c` is given the model itself as C, where it was compiled to C; one
        that ends as files of another language do, how that calls the library.
        """
        archive.check_path(path)
        self._externs.check_written("exported")
        self._exporter(self, path, name)

    def profile(
        self,
        *args: object,
        runs: int = 10,
        peak: float | None = None,
        bandwidth: float | None = None,
        **named: object,
    ) -> Profile:
        """The time of a call by launch, after one warm-up call.

        How near each launch is to the limit of the machine is said, too: `peak` (GFLOP/s) and
        `bandwidth` (GB/s) are measured unless they are given, the latter by copies.
        """
        check_runs(runs)
        noted = noted_profile(partial(self, *args, **named), self._noting(), runs)
        if peak is None and self._peak is not None:
            peak = measured_peak(self._peak, self._threads)
        speeds = measured_speeds() if bandwidth is None else bandwidth
        return replace(noted, peak=peak, bandwidth=speeds)

    def seconds(self, /, *args: object, **named: Any) -> Any:  # Any: what devices measure
        """How long a device works on a call, without copies to and from it, run by run;
        refused where nothing measures that."""
        message = "How long a device works on a call is known of GPUs."
        hint = "Ask exe.profile(…), or time calls: plica.time(exe, …)."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "cuda", self.target, hint))

    def _noting(self) -> tuple[NotedCode, ...]:
        """Each code that it runs."""
        launches = self.artefact.launches
        if self._profile is None:
            message = "This executable does not note how long its kernels take."
            raise UnsupportedError(Diagnostic("unsupported", message))
        return ((launches, self._profile),)

    def __call__(self, /, *args: object, **named: object) -> Array | tuple[Array, ...]:
        """Run the model; inputs by position or by name."""
        self._calls.add()
        arrays = self._arrays(args, named)
        addresses = [address_of(array) for array in arrays]
        outputs = self._outputs_for(self._placing, arrays, addresses, args, named)
        self.run(addresses)
        return outputs[0] if self._interface.single else tuple(outputs)

    def run(self, addresses: Sequence[int]) -> None:
        """Run the code on memory of the types of the inputs, then of the outputs, in order.

        Nothing is checked: arrays must match the ports, be contiguous and aligned, and outputs must
        not overlap other arrays.
        """
        try:
            workspace = self._free.pop()  # in one step for all threads
        except IndexError:
            workspace = self._new_workspace()
        try:
            self._enter(workspace.table, 0, *addresses)
            code = self._main(workspace.address)
        finally:
            self._free.append(workspace)
        if code:
            raise self.failure(code)

    def at(self, /, *args: object, **named: object) -> Executable:
        """The executable for inputs like these: itself, since its sizes are numbers already."""
        self._arrays(args, named)
        return self

    def __repr__(self) -> str:
        takes = ", ".join(map(str, self.inputs))
        gives = ", ".join(port.type for port in self.outputs)
        gives = gives if self._interface.single else f"({gives})"
        return f"<Executable ({takes}) -> {gives} on {self.target}>"

    def _repr_html_(self) -> str:
        """Inputs, outputs and kernels, as a notebook shows them."""
        rows = [["input", str(port)] for port in self.inputs]
        rows += [["output", str(port)] for port in self.outputs]
        rows += [["target", self.target], ["effort", self.tier]]
        rows += [[f"launch {at}", source] for at, source in enumerate(self._sources)]
        return table(["", repr(self)], rows)

    def __copy__(self) -> Executable:
        return self  # it never changes

    def __deepcopy__(self, memo: object) -> Executable:
        return self

    def __reduce__(self) -> str | tuple[Any, ...]:
        message = "An executable is machine code that belongs to its process: it cannot be pickled."
        hint = "Send the module (its text, or as JSON) and compile it in the other process."
        raise UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))

    def _new_workspace(self) -> Workspace:
        try:
            array = np.empty(self._size + _ALIGNMENT, np.uint8)
        except MemoryError:
            message = "There is not enough memory for what the model computes on the way."
            hint = "Compile the model for smaller sizes, or a smaller batch."
            need = f"{self._size} bytes"
            wrong = Diagnostic("no-memory", message, None, need, repr(self), hint)
            raise EvaluationError(wrong) from None
        start = -(-address_of(array) // _ALIGNMENT) * _ALIGNMENT
        return self._with_table(array, start)

    def _arrays(self, args: Sequence[object], named: Mapping[str, object]) -> list[Array]:
        interface = self._interface
        arrays: list[Array] = []
        wrong: list[Diagnostic] = []
        if named or len(args) != len(interface.params):
            args = self._in_order(args, named, wrong)
        ports = interface.inputs
        for (name, shape), value in zip(interface.params, args, strict=True):
            taken = None
            if isinstance(shape, int) and type(value) is np.ndarray:
                taken = ports[shape].take(value)  # the usual case: what lies elsewhere is not read
            if type(taken) is np.ndarray:
                arrays.append(taken)
            elif value is not MISSING:
                self._take(name, shape, value, arrays, wrong)
        if wrong:
            raise InputError(wrong[0], *wrong[1:])
        return arrays

    def _outputs_for(
        self,
        placing: Sequence[Callable[[], tuple[Array, int]]],
        arrays: Sequence[Array],
        addresses: list[int],
        args: Sequence[object],
        named: Mapping[str, object],
    ) -> list[Array]:
        """Memory for the results: new, or that of the donated inputs.

        Where each begins is added to the addresses of the inputs.
        """
        if not (donated := self._interface.donated):
            outputs = []
            for place in placing:
                array, address = place()
                outputs.append(array)
                addresses.append(address)
            return outputs
        names = [name for name, _ in self._interface.params]
        values = [*dict(zip(names, args, strict=False), **named).values()]
        check_donated(self._interface, arrays, values)
        over = {new: arrays[old] for old, new in donated}
        outputs = [over[at] if at in over else place()[0] for at, place in enumerate(placing)]
        addresses += [address_of(output) for output in outputs]
        return outputs

    def _take(
        self, name: str, shape: Shape, value: Any, found: list[Array], wrong: list[Diagnostic]
    ) -> None:
        """The tensors of a parameter."""
        if isinstance(shape, int):
            if isinstance(taken := self._interface.inputs[shape].take(value), Diagnostic):
                wrong.append(taken)
            else:
                found.append(taken)
        elif isinstance(value, tuple) and len(value) == len(shape):
            for number, (inside, item) in enumerate(zip(shape, value, strict=True)):
                self._take(f"{name}[{number}]", inside, item, found, wrong)
        else:
            kind = f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__
            wrong.append(
                Diagnostic(
                    "input-type",
                    f"Input {name!r} is not the tuple it must be.",
                    Place(node=name),
                    f"a tuple of {len(shape)}",
                    kind,
                )
            )

    def _in_order(
        self, args: Sequence[object], named: Mapping[str, object], wrong: list[Diagnostic]
    ) -> list[object]:
        """The values of the parameters, those given by name in their places."""
        params, ports = self._interface.params, self._interface.inputs
        names = [name for name, _ in params]

        def type_of(name: str) -> str:
            shape = params[names.index(name)][1]
            return ports[shape].type if isinstance(shape, int) else f"a tuple of {len(shape)}"

        return in_order(names, args, named, wrong, type_of)

    def failure(self, code: int) -> EvaluationError:
        source = self._sources[abs(code) - 1]
        if code < 0:
            message = f"{source} has no value at these sizes."
            return EvaluationError(Diagnostic("shape-conflict", message, Place(node=source)))
        return EvaluationError(index_outside(source))


def export_library(of: Executable, path: str | os.PathLike[str], name: str | None) -> None:
    """Exports in the format of the file name: a library, C, or a language binding."""
    _exported(of.artefact, path, name, tuple(of.externs.libraries.values()))


def refuse_library(of: Executable, path: str | os.PathLike[str], name: str | None) -> None:
    """Refuse to export a model that no processor runs."""
    message, hint = "Libraries for C are made for processors.", "Save the artefact instead."
    raise UnsupportedError(Diagnostic("unsupported", message, None, "cpu", of.target, hint))
