"""Staged executables: a compiled program that learns sizes while it runs."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from plica.runtime.artefact import Artefact, NotedCode
from plica.runtime.error import Diagnostic, EvaluationError, InputError, Place, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.interface import Interface, dims_of
from plica.runtime.link import link
from plica.runtime.open_executable import MAX_KNOWN_SIZES, Shapes
from plica.runtime.port import Array, out_of_range, spoken_dim, spoken_dims
from plica.runtime.staged.artefact import to_members
from plica.runtime.staged.loop_code import REPEAT
from plica.runtime.staged.plan import Plan
from plica.runtime.staged.plan_frame import Sizes
from plica.runtime.staged.program import MeasureDim, StepBlock, all_steps
from plica.runtime.stats import Stats

_DRIVER: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


class StagedExecutable(Executable):
    """A compiled program in segments: `exe(x, y)` or `exe(name=x)` gives an array, or several."""

    def __init__(
        self,
        interface: Interface,
        program: StepBlock,
        segments: Sequence[Executable],
        driver: bytes = b"",
        written_out: Callable[[], Executable] | None = None,
    ) -> None:
        target = segments[0].target if segments else "cpu"
        super().__init__(0, interface, target=target)
        self._program, self._segments = program, tuple(segments)
        self._dims = dims_of(interface)
        self._known: OrderedDict[Shapes, Sizes] = OrderedDict()
        self._ranges = {name: (least, most) for name, least, most in interface.ranges}
        measures = [step for step in all_steps(program) if isinstance(step, MeasureDim)]
        self._measured = {step.dim: step.told for step in measures}
        self._written_out = written_out
        self._driver = driver  # object code, empty where the host runs loops
        self._linked = link((driver,)) if driver else None
        run = None if self._linked is None else _DRIVER(self._linked.address(REPEAT))
        self._plan = Plan(program, interface.inputs, self._segments, self._told, run)

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the sizes that come with the inputs."""
        return tuple([dim.name for dim in self._dims])

    @property
    def measured(self) -> tuple[str, ...]:
        """The names of the sizes that become known while it runs."""
        return tuple(self._measured)

    def __call__(self, /, *args: object, **named: object) -> Array | tuple[Array, ...]:
        """Run the program; inputs by position or by name."""
        self._calls.add()
        arrays = self._arrays(args, named)
        try:
            sizes = self._sizes(arrays)
        except InputError as error:
            return self._run_separated(error, arrays)
        registers = self._plan.run(arrays, sizes).arrays
        outputs = [registers[result] for result in self._program.results]
        if not self._plan.fresh:
            # Results are fresh arrays: neither inputs nor aliases of each other.
            seen = {id(array) for array in arrays}
            for at, output in enumerate(outputs):
                if id(output) in seen:
                    outputs[at] = output.copy()
                seen.add(id(outputs[at]))
        return outputs[0] if self._interface.single else tuple(outputs)

    def _sizes(self, arrays: Sequence[Array]) -> Sizes:
        """The sizes determined by the inputs, extended during a call; cached by shapes."""
        shapes = tuple([array.shape for array in arrays])
        if (known := self._known.get(shapes)) is None:
            known = self._known[shapes] = self._asked(arrays)
            while len(self._known) > MAX_KNOWN_SIZES:
                self._known.popitem(last=False)
        return known.copy()

    def _asked(self, arrays: Sequence[Array]) -> Sizes:
        """The sizes that the inputs say; those that do not agree are refused before anything."""
        found: Sizes = {}
        if not self._dims:
            return found
        said: dict[str, str] = {}
        wrong: list[Diagnostic] = []
        for port, array in zip(self._interface.inputs, arrays, strict=True):
            dims: tuple[Any, ...] = port.shape  # int or str
            for dim, size in zip(dims, array.shape, strict=True):
                if not (isinstance(dim, str) and dim.isidentifier()):
                    continue
                known = found.setdefault(dim, size)
                said.setdefault(dim, port.name)
                if known != size:
                    message = f"Input {port.name!r} has the wrong shape."
                    expected = f"{dim} = {known}, as in {said[dim]!r}"
                    place = Place(node=port.name)
                    shape = str(array.shape)
                    wrong.append(Diagnostic("input-shape", message, place, expected, shape))
        for name, size in found.items():
            reason = out_of_range(name, size, *self._ranges.get(name, (0, None)))
            wrong += [] if reason is None else [reason]
        if wrong:
            raise InputError(wrong[0], *wrong[1:])
        return found

    def _told(
        self, error: InputError | EvaluationError, sizes: Mapping[str, int]
    ) -> InputError | EvaluationError:
        """The same error, said of the sizes of this program and the inputs that decide them."""
        said = ", ".join(
            f"{spoken_dim(name)} is {size}{self._origin_of(name)}" for name, size in sizes.items()
        )
        listed = [
            Diagnostic(
                diagnostic.code,
                diagnostic.message,
                None,
                spoken_dims(diagnostic.expected or "") or None,
                said,
                spoken_dims(diagnostic.suggestion or "") or None,
            )
            if diagnostic.code in ("input-shape", "no-memory")
            else diagnostic
            for diagnostic in error.diagnostics
        ]
        return type(error)(*listed)

    def _origin_of(self, dim: str) -> str:
        if told := self._measured.get(dim):
            return f" (from {', '.join(map(repr, told))})"
        places = [_dim for _dim in self._dims if _dim.name == dim]
        names = [self._interface.inputs[place.port].name for place in places]
        return "".join(
            f" (axis {place.axis} of {name!r})" for place, name in zip(places, names, strict=True)
        )

    @property
    def stats(self) -> Stats:
        """Calls of it; of its segments, how often they were compiled and what they hold."""
        parts = [segment.stats for segment in self._segments]
        return Stats(
            self._calls.count,
            sum(part.compilations for part in parts),
            sum(part.bytes for part in parts) + self._plan.bytes,
            sum(part.at_call for part in parts),
        )

    @property
    def segments(self) -> tuple[Executable, ...]:
        """The executables that it is made of, in the order of the program."""
        return self._segments

    def source(self, kind: str | None = None) -> str:
        """The code of all segments at one stage, one after the other."""
        return "\n\n".join(segment.source(kind) for segment in self._segments)

    @property
    def artefact(self) -> Artefact:
        """That of the program written out, where loops alone made segments of it; else refuse: it
        is made of several."""
        if self._written_out is not None:
            return self._written_out().artefact
        message = "A program whose sizes become known while it runs has a code for each segment."
        hint = "It can be saved, and loaded again; exe.segments are the executables it is made of."
        raise UnsupportedError(Diagnostic("unsupported", message, suggestion=hint))

    def _noting(self) -> tuple[NotedCode, ...]:
        """The launch records of all segments; host work is not recorded."""
        return tuple([each for segment in self._segments for each in segment._noting()])

    def members(self) -> dict[str, bytes]:
        """The members of the archive that this is written as."""
        return to_members(self._interface, self._program, self._segments, self._driver)

    def at(self, /, *args: object, **named: object) -> Executable:
        """The executable for inputs like these: itself, since it knows sizes when it runs."""
        self._arrays(args, named)
        return self

    def __repr__(self) -> str:
        whole = super().__repr__()
        measured = f"<Staged, {len(self._segments)} segments,"
        return whole.replace("<Executable", measured, 1)
