"""Backends: all that the compiler knows of a kind of target, as one record, found by name.

A *target* is a value that says what code is generated for: a processor, a GPU architecture, an
accelerator. Its *backend* says how: parsing of target texts, pass pipelines, machine parameters for
schedules, form packs and trace templates, kernel passes, dialect or encoder, loading of artefacts,
and schedule search. Nothing else inspects the kind of a target.

>>> backend_named("cuda").name, backend_named("accel").pipelines["default"].kinds
('cuda', ('graph', 'schedule', 'emit'))
>>> backend_of(find_target("cpu")).name
'cpu'

Plica's own are in `OWN`; a library ships one under the entry-point group `plica.targets`, and then
`plica.compile(model, target="its name")` works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from pkgutil import resolve_name
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Protocol,
    TypeAlias,
    get_args,
    runtime_checkable,
)

from attrs import field, frozen

from plica.codegen.compilation import Arranged, Job
from plica.codegen.lower.passes import LOWERING, lowered
from plica.codegen.lower.processor import processor
from plica.codegen.lower.scheduled import Scheduler, TunedBy
from plica.codegen.target import unknown_target
from plica.core import ExtensionGroup, did_you_mean
from plica.ir.contract import Contract
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pipeline
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.machine import MachineDescription
from plica.schedule.form import ScheduleTables

if TYPE_CHECKING:
    from plica.codegen.emit.dialect import Dialect
    from plica.codegen.native import Entry

OWN: Final[dict[str, str]] = {
    "cpu": "plica.codegen.llvm.backend:CPU",
    "cuda": "plica.codegen.cuda.backend:CUDA",
    "accel": "plica.codegen.accel.backend:ACCEL",
    "cuda-emulator": "plica.codegen.emulator.backend:BACKEND",
}
"""The modules of Plica's own backends, as pyproject.toml registers them: scanning installed
packages takes longer than compiling a small model."""

Effort: TypeAlias = Literal["fast", "default", "max"]
EFFORTS: Final[tuple[Effort, ...]] = get_args(Effort)

Schedules: TypeAlias = Callable[[Any, Contract, TunedBy, ScheduleTables | None], Scheduler]
"""A scheduler for a machine: by a contract, what tuning found, forms and templates (None are those
of processors)."""

Texts: TypeAlias = Mapping[str, Callable[[], str]]  # the code at each stage, computed on demand


@runtime_checkable
class AnyTarget(Protocol):
    """A code generation target: a hashable value that knows the name of its backend."""

    @property
    def backend(self) -> str:
        """The name of its backend."""

    def describe(self) -> str:
        """A line that reads back to it."""

    def __hash__(self) -> int:
        """Targets tell compiled code apart."""


def _any_threads(target: Any, threads: int) -> Any:  # Any: a target is its backend's own
    return target


def _anywhere(target: Any) -> None:  # as above
    return None


def _no_machine(target: Any) -> None:  # as above
    return None


@frozen(eq=False)
class CodeAhead:
    """The code of one kernel, made before the program that it is part of is whole."""

    make: Callable[[Kernel, str, str, Any, bool], bytes]  # Any: a target of its own kind
    """Of a lowered kernel, its function's name and what it does, for a target; products may be
    fused.  Nothing where it is made with others."""
    keep: Callable[[Kernel, bytes], None]
    """Have that ready for the last pass, whichever process made it."""


@frozen(eq=False)
class Backend:
    """How code is made for one kind of target; the target of each function is its own kind.

    `parse` reads a text that begins with the name. `pipelines` lead from a module to an artefact,
    one per effort level. `build` makes an executable from lowered code, by the last passes of a
    pipeline.
    """

    name: str
    about: str
    parse: Callable[[str], AnyTarget]
    pipelines: Mapping[str, Pipeline]
    build: Callable[
        [Pipeline, Arranged[Any, Any], Job], Executable
    ]  # Any: as the pipeline makes it
    texts: Callable[[Callable[[], Arranged[Any, Any]], Job, Any], Texts]  # as above; an artefact
    machine: Callable[[Any], Any] = _no_machine  # Any: of its own kind
    """The parameters of a target for default schedules and form costs."""
    own_tables: ScheduleTables | None = field(default=None, alias="tables")
    """Its form pack and its trace templates, where they are not those of processors."""
    schedules: Schedules = processor
    """How the kernels for such a machine are chosen: by these tables, or as tuning found."""
    lowering: Pipeline = field(factory=lambda: LOWERING["cpu"])
    """The kernel passes: from scheduled blocks to the emitter's input."""
    dialect: Dialect[Any] | None = None  # Any: of its own places
    """How it writes types, operators, memory and loops, where that is a table of words."""
    encode: Callable[[Kernel, Any], str] | None = None  # Any: of its own kind
    """The code of one lowered kernel as text: by its dialect, or of its instructions."""
    ahead: CodeAhead | None = None
    """How workers compile a kernel as soon as it is lowered."""
    settled: Callable[[Any], Any] = lambda target: target
    """Completes a described target; refuses unknown ones."""
    described: Callable[[Any, MachineDescription], Any] | None = None
    """The target with a machine description, if the backend supports these."""
    with_threads: Callable[[Any, int], Any] = _any_threads
    """The target as this many threads see it."""
    check_here: Callable[[Any], None] = _anywhere
    """Refuses a target whose code cannot run on this machine."""
    check_tools: Callable[[Any], object] = _anywhere
    """Refuses a target whose code cannot be made here, for want of a compiler or a linker."""
    missing: Callable[[], str] = lambda: ""
    """What its code needs to run and this machine lacks, with the command that installs it."""
    loads: bool = False
    """Whether compiled code is loaded at once by something that may be missing: an engine or the
    driver of a device."""
    why_not: Callable[[Any], str] = lambda target: ""
    """Why code for one of its targets cannot run here, where that is not for want of the above."""
    here: Callable[[Any], bool] = lambda target: False
    """Whether code for a target is loaded into this process where it is made."""
    facts: Callable[[], str] = lambda: ""
    """What else the code depends on: versions of tools."""
    keeps: Callable[[], bool] = lambda: True
    """Whether artefacts of whole models are stored."""
    opens: Callable[[Any], bool] = lambda target: False
    """Whether one code is made for every size that a model leaves open."""
    driver: Callable[[Any], bytes] = lambda target: b""
    """Object code that runs the loops of staged programs; empty where the host does."""
    chooses: bool = True
    """Whether its code chooses inside of a program; else the host does, between segments."""
    updates: bool = False
    """Whether its code writes results over inputs that are donated."""
    threaded: bool = True
    """Whether a number of threads means something."""
    externs: bool = False
    """Whether its code calls functions of other libraries."""
    shifts: bool = False
    """Whether integers change scale by powers of two alone."""
    native: bool = False
    """Whether the rest of a model is compiled for this processor."""
    library: str = ""
    """Why no library for C is made, where none is."""
    tuning: str = ""
    """Where its side of the search is: `module:name` of a `plica.search.target.Tuning`."""
    entry: Callable[[Any], Entry] | None = None
    """Makes code of a program for a target, called from this process: what fuzzing runs."""
    objects: str = ""
    """The backend for its programs with data and recursion, if any."""
    spellings: tuple[str, ...] = field(default=())
    """Texts that name its targets."""

    def with_objects(self) -> Backend | None:
        """The backend of programs with data and recursion, loaded on demand."""
        if not self.objects:
            return None
        found = resolve_name(self.objects)
        assert isinstance(found, Backend)
        return found

    def check_before(self, target: Any, *, runs: bool) -> None:  # Any: of its own kind
        """Refuses, before any work, a target whose tools are not here, or what `runs` its code."""
        self.check_tools(target)
        if runs and self.loads and (why := self.missing()):
            message = f"Code for the target {self.name} cannot run here."
            raise UnsupportedError(Diagnostic("no-toolchain", message, suggestion=why))

    def scheduler(
        self, machine: Any, contract: Contract, tuned: TunedBy
    ) -> Scheduler:  # Any: of its own kind
        """What chooses the kernels for a machine."""
        return self.schedules(machine, contract, tuned, self.own_tables)

    @property
    def tables(self) -> ScheduleTables:
        """Its form pack and its trace templates."""
        if self.own_tables is not None:
            return self.own_tables
        found = resolve_name("plica.schedule.default.choose:PROCESSOR")
        assert isinstance(found, ScheduleTables)
        return found

    def code_of(self, kernel: Kernel, target: Any) -> str:  # Any: of its own kind
        """The code of a scheduled kernel, through its kernel passes."""
        if self.encode is None:
            message = f"The target {self.name!r} has no code for one kernel."
            raise UnsupportedError(Diagnostic("unsupported", message))
        if kernel.dims:
            message = "Code of one kernel is made for sizes that are known; some of these are open."
            named, hint = ", ".join(str(dim.name) for dim in kernel.dims), "Give it its sizes."
            raise UnsupportedError(Diagnostic("unsupported", message, None, "numbers", named, hint))
        return self.encode(lowered(kernel, self.lowering.passes), target)

    def pipeline(self, effort: str = "default") -> Pipeline:
        """The pipeline of an effort."""
        if effort not in self.pipelines:
            message, expected = f"There is no effort {effort!r}.", ", ".join(self.pipelines)
            hint = did_you_mean(str(effort), tuple(self.pipelines))
            raise UnsupportedError(
                Diagnostic("unsupported", message, None, expected, repr(effort), hint)
            )
        return self.pipelines[effort]


@lru_cache(maxsize=1)
def own() -> dict[str, str]:
    """Plica's own backends: a folder here with a `backend` that is called `BACKEND` is one, too."""
    taken = {where.split(".")[2] for where in OWN.values()}
    folders = sorted(each.parent.name for each in Path(__file__).parent.glob("*/backend.py"))
    found = {folder: f"plica.codegen.{folder}.backend:BACKEND" for folder in folders}
    return {**OWN, **{name: where for name, where in found.items() if name not in taken}}


TARGETS: Final = ExtensionGroup(
    "plica.targets", "backend", Backend, own(), lambda each: each.name,
    error=UnsupportedError, unknown="unsupported",
)  # fmt: skip
"""The backends by name, Plica's own and those of libraries."""


def backend_named(name: str) -> Backend:
    """The backend of that name; a wrong name is refused with the nearest right one."""
    if name not in TARGETS.own and name not in TARGETS.points():
        raise unknown_target(name)
    return TARGETS.load(name)


def registered() -> tuple[Backend, ...]:
    """Every backend that can be loaded, Plica's own first."""
    return (*[TARGETS.load(name) for name in sorted(TARGETS.own)], *TARGETS.all())


def backend_of(target: AnyTarget) -> Backend:
    """The backend of a target."""
    return backend_named(target.backend)


def find_target(of: str | AnyTarget) -> AnyTarget:
    """The target that a text means, or the one given."""
    given: object = of
    if isinstance(given, str):
        name = _name(given)
        return backend_named(name).parse(given)
    if not isinstance(given, AnyTarget):
        raise unknown_target(given)
    return given


def _name(text: str) -> str:
    """The backend name of a text; the backend refuses similar names."""
    words = text.replace(":", " ").split()
    name = words[0] if words else ""
    near = [each for each in OWN if name != each and text.lower().startswith(each)]
    return near[0] if near and name not in TARGETS.points() else name


def is_triple(text: str) -> bool:
    """Whether a text is the triple of a processor, not the name of a target or nearly one.

    >>> [is_triple(each) for each in ("aarch64-unknown-linux-gnu", "cuda-emulator", "micro:rv-32")]
    [True, False, False]
    """
    if "-" not in text or set(text) & set(" :"):
        return False
    known = TARGETS.points()
    if text in known or text.split("-", maxsplit=1)[0] in known:
        return False
    return text.count("-") > 1 or did_you_mean(text, tuple(known)) is None


def machine_of(target: AnyTarget) -> Any:  # as the backend describes it
    """The parameters of a target for default schedules."""
    return backend_of(target).machine(target)
