"""The side of a target that the search for schedules needs, as one record a backend names.

    tuning_of(target).space(task, target)         what can be decided of a kernel
    tuning_of(target).measurer(target, limits)    who tries it out

A backend names its record (`plica.codegen.backend.Backend.tuning`): compiling does not import it.

>>> from plica.codegen.backend import find_target
>>> tuning_of(find_target("cuda:sm_80")).fingerprint(find_target("cuda:sm_80"))[:11]
'cuda-sm_80-'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from attrs import frozen

from plica.codegen.backend import AnyTarget, backend_of, find_target
from plica.core import CompilerBug
from plica.ir.graph.module import Module
from plica.ir.loop import Kernel, Stages
from plica.runtime.artefact import version
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.schedule.trace import Trace

if TYPE_CHECKING:  # rooms that ask for this record
    from plica.search.course import TuningSubject
    from plica.search.measure import Measurer, TrialLimits
    from plica.search.policy.fold import Policy
    from plica.search.record.database import Database
    from plica.search.record.source import RecordSource
    from plica.search.space import Space
    from plica.search.task import Task
    from plica.search.tuned import Tuned, TuneOptions


@frozen(eq=False)
class Tuning:
    """How schedules for one kind of target are searched for; targets are of that kind.

    Where a target is not searched kernel by kernel, `whole` does it for a model, and `known` gives
    what compiling wants of a database.
    """

    fingerprint: Callable[[Any], str]  # a machine as a short text that tells it from others
    compilers: Callable[[], tuple[tuple[str, str], ...]]  # the versions of what makes the code
    space: Callable[[Task, Any], Space] | None = None
    first_space: Callable[[Task, Any], Space] | None = None
    """The sketch of the default alone, where that is sooner made than the whole space."""
    untuned: Callable[[Task, Any], tuple[Stages, Trace] | None] | None = None
    """The form and trace of an untuned build, or None if it has no trace."""
    space_of_kernel: Callable[[Kernel, Any], Space] | None = None
    form: Callable[[str, Task, Any], Stages | None] | None = None
    """The form that a record begins with, by its name."""
    measurer: Callable[[Any, TrialLimits | None], AbstractContextManager[Measurer]] | None = None
    policy: Callable[[str, Sequence[TuningSubject], Any, Database], Policy[Any]] | None = None
    pools: bool = False  # whether candidates can be measured on the devices of a pool
    in_place: bool = False  # whether programs time their launches, to compare kernels in them
    whole: Callable[[Module, Any, Database, TuneOptions], Tuned] | None = None
    known: Callable[[RecordSource, Any], Any] = lambda database, target: None


def tuning_of(target: AnyTarget) -> Tuning:
    """The record of a target's kind; one for which nothing is searched is refused."""
    if not (where := backend_of(target).tuning):
        message = f"Schedules are not searched for the target {target.describe()!r}."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "cpu, cuda or accel"))
    found = resolve_name(where)
    if not isinstance(found, Tuning):
        raise CompilerBug(f"{where} is no tuning record but {found!r}.")
    return found


def fingerprint(target: AnyTarget) -> str:
    """A machine as a short text: two have the same if the same code runs on both and schedules are
    chosen alike.

    >>> fingerprint(find_target("cpu triple=x86_64-unknown-linux-gnu")).startswith("cpu-x86_64-")
    True
    """
    return tuning_of(target).fingerprint(target)


def versions(target: AnyTarget | None = None) -> tuple[tuple[str, str], ...]:
    """What made the code that was measured."""
    return (*tuning_of(target or find_target("cpu")).compilers(), ("plica", version()))
