"""Jobs: all that is needed to measure one candidate somewhere else, as one text."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property, lru_cache
from typing import Final, NoReturn

from attrs import evolve, frozen

from plica.codegen.backend import AnyTarget
from plica.core import Malformed, Term, encode, free_vars
from plica.ir.loop import Buffer, Kernel, Stages
from plica.ir.type import known
from plica.runtime.error import Diagnostic
from plica.schedule.hoist import Hoisted
from plica.schedule.trace import Trace
from plica.search.sketch_rule import SpaceWork, hoisted_kernel
from plica.search.space import Point, Space

__all__ = ["MeasureJob", "SpaceWork", "job_of"]

LONGEST: Final = 1 << 26  # characters of a job

MAX_STAGES: Final = 1024

MAX_ELEMENTS: Final = 1 << 40  # elements of a tensor that anybody could have


@frozen(eq=False, slots=False)
class MeasureJob:
    """One candidate."""

    work: Stages
    form: Stages
    constant: tuple[bool, ...]
    reassociates: bool
    trace: Trace
    target: str  # the machine, as `Target.describe` says it.

    @property
    def unscheduled(self) -> MeasureJob:
        """The job without its schedule, for a lowered kernel: one text for all candidates."""
        return evolve(self, trace=Trace(()))

    @cached_property
    def about(self) -> str:
        """What tells the work from other work: all its candidates have one reference."""
        return f"{self.constant} {self.reassociates} {_text(self.work)}"

    @cached_property
    def hoisted(self) -> Hoisted:
        """The form, separated from the constants computed in advance."""
        return hoisted_kernel(self.form, self.constant).hoisted

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel that the schedule starts from."""
        return hoisted_kernel(self.form, self.constant).kernel

    def to_json(self) -> str:
        """The job as text."""
        return json.dumps(
            {
                "work": _text(self.work),
                "form": _text(self.form),
                "constant": list(self.constant),
                "reassociates": self.reassociates,
                "trace": self.trace.to_json(),
                "target": self.target,
            }
        )

    @cached_property
    def identity(self) -> str:
        """A digest of the whole job."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @staticmethod
    def from_json(text: str) -> MeasureJob:
        """The job of a text; raises `Malformed`."""
        if len(text) > LONGEST:
            _refuse(f"It has more than {LONGEST} characters.")
        try:
            given = json.loads(text)
        except (ValueError, RecursionError) as reason:
            _refuse(f"It is not JSON: {reason}.")
        match given:
            case {
                "work": str(work),
                "form": str(form),
                "constant": [*constant],
                "reassociates": bool(reassociates),
                "trace": str(trace),
                "target": str(target),
            } if all(isinstance(each, bool) for each in constant):
                pass
            case _:
                _refuse("It does not have the parts of one.")
        whole, begins = _stages(work), _stages(form)
        _check(whole, begins, len(constant))
        steps = Trace.from_json(trace)
        return MeasureJob(whole, begins, tuple(constant), reassociates, steps, target)


def job_of(work: SpaceWork, space: Space, point: Point, target: AnyTarget) -> MeasureJob:
    """The job of a point of a space."""
    return MeasureJob(
        work.stages,
        space.sketches[point.sketch].form,
        work.facts.constant,
        work.facts.reassociates,
        space.trace(point),
        target.describe(),
    )


def _stages(text: str) -> Stages:
    """Stages of known size that speak of nothing but what they declare."""
    found = _term(text)
    if not isinstance(found, Stages):
        _refuse("Its work or its form is another term.")
    if free_vars(found):
        _refuse("Its work or its form reads what it does not declare.")
    if not found.outputs or len(found.stages) > MAX_STAGES:
        _refuse(f"Its work or its form has no result, or more than {MAX_STAGES} stages.")
    for buffer in (*found.inputs, *found.made):
        if not 0 <= _elements(buffer) <= MAX_ELEMENTS:
            _refuse(f"The size of {buffer.name} is not known, or beyond {MAX_ELEMENTS}.")
    return found


def _check(work: Stages, form: Stages, constants: int) -> None:
    """A form has the inputs of the work, possibly reshaped, and as many results."""
    if not len(work.inputs) == len(form.inputs) == constants:
        _refuse("Its work and its form do not read as many tensors as it says of.")
    pairs = (*zip(work.inputs, form.inputs, strict=True), (work.result, form.result))
    for meant, read in pairs:
        if meant.dtype is not read.dtype or _elements(meant) != _elements(read):
            _refuse(f"Its form has another {read.name} than its work.")


def _elements(of: Buffer) -> int:
    """How many elements a buffer has, -1 where that is not known."""
    count = 1
    for dim in of.shape:
        size = known(dim)
        if size is None or size < 0:
            return -1
        count *= size
    return count


@lru_cache(maxsize=256)
def _text(of: Term) -> str:
    return encode.to_json(of)


@lru_cache(maxsize=256)
def _term(text: str) -> Term:
    return encode.from_json(text)


def _refuse(message: str) -> NoReturn:
    raise Malformed(Diagnostic("bad-record", f"This is no job to measure.  {message}"))
