"""Requests: what a compilation is asked for, given and checked, and what tells one from another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from attrs import frozen

from plica.codegen.backend import OWN, AnyTarget, Backend, backend_named
from plica.codegen.compilation import check_pipeline
from plica.ir.contract import Contract
from plica.ir.passes import PassError, Pipeline
from plica.rewrite.pack import Pack
from plica.runtime.error import Diagnostic, UnsupportedError, wrong_argument

if TYPE_CHECKING:
    from plica.codegen.given_trace import GivenSchedule
    from plica.pipeline.extern_source import GivenExtern
    from plica.runtime.machine import MachineDescription
    from plica.runtime.record import KernelTrace
    from plica.search.record import RecordSource


@frozen(eq=False, kw_only=True)
class CompileOptions:
    """The options of `plica.compile`, as they are given."""

    target: str | AnyTarget = "cpu"
    threads: int | None = None
    database: RecordSource | str | PathLike[str] | None = None
    cache: bool = True
    packs: str | Pack | Sequence[str | Pack] = ()
    contract: Contract | str | None = None
    passes: Pipeline | None = None
    disabled: str | Sequence[str] = ()
    effort: str = "default"
    validate: bool = False
    schedules: Mapping[str, GivenSchedule | KernelTrace] | None = None
    background: bool = False
    specialise: bool = False
    externs: Mapping[str, GivenExtern] | None = None
    machine: str | MachineDescription | None = None
    donate: str | Sequence[str] = ()

    def pipeline(self, backend: Backend) -> Pipeline:
        """The pipeline of passes that they choose."""
        return chosen_pipeline(backend, self.passes, self.disabled, self.effort)


@frozen(eq=False)
class Request:
    """What is asked for, checked, whatever the module is."""

    backend: Backend
    target: AnyTarget
    threads: int
    contract: Contract
    packs: tuple[Pack, ...]
    wanted: tuple[str | Pack, ...]
    """The packs as they were asked for."""
    database: RecordSource | str | PathLike[str] | None
    cache: bool
    pipeline: Pipeline
    validate: bool = False
    """Whether each kernel is held to its stages, and everything out of the store made again."""
    schedules: tuple[tuple[str, GivenSchedule], ...] = ()
    """What kernels are to be scheduled by, by name."""
    externs: tuple[tuple[str, GivenExtern], ...] = ()
    """Who serves the externs of a program, by symbol."""
    tier: str = "default"
    """The effort that the pipeline is of."""

    @property
    def spelled(self) -> str | None:
        """The pipeline as a text, the same in every process; None if somebody else's pass is in it,
        or the backend is another library's: what these are made of has no digest."""
        if self.backend.name not in OWN or backend_named(self.backend.name) is not self.backend:
            return None
        own = {}
        for effort, pipeline in reversed([*self.backend.pipelines.items()]):
            own.update({each: f"{effort}/{each.name}" for each in pipeline})
        words = [own.get(each) for each in self.pipeline]
        return None if None in words else " ".join(word for word in words if word is not None)


def chosen_pipeline(
    backend: Backend, passes: Pipeline | None, disabled: str | Sequence[str], effort: str
) -> Pipeline:
    """The pipeline that is asked for: one's own or that of an effort, less what is disabled."""
    given: object = passes
    if given is not None and not isinstance(given, Pipeline):
        message = "This is no pipeline of passes."
        expected, hint = "a Pipeline", "Edit plica.pipeline.pipeline_of('cpu')."
        raise PassError(Diagnostic("unknown-pass", message, None, expected, repr(given), hint))
    if passes is not None and effort != "default":
        message = "A pipeline of one's own has no effort: the effort chooses a pipeline."
        raise UnsupportedError(
            Diagnostic("unsupported", message, None, "passes or effort", f"both, {effort!r}")
        )
    pipeline = backend.pipeline(effort) if passes is None else passes
    named: object = (disabled,) if isinstance(disabled, str) else disabled
    if not isinstance(named, Sequence) or not all(isinstance(each, str) for each in named):
        raise wrong_argument("Passes are disabled by name.", "names of passes", disabled)
    names = tuple(named)
    if passes is None and not names:
        return pipeline
    pipeline = pipeline.without(*names) if names else pipeline
    check_pipeline(pipeline)
    return pipeline
