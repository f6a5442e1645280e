"""Jobs: all that is needed to measure one candidate somewhere else, as one text.

A job names the work (a function and which of what it reads is constant, or a kernel that somebody
wrote), the kernel that the schedule begins with and how it wants its constants packed, the
schedule, and the machine.  It is pure data: the same job means the same code in any process, so it
may be done again.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Final, NoReturn, Protocol

from attrs import frozen

from plica.codegen.backend import AnyTarget
from plica.core import encode
from plica.core.diagnostic import Malformed
from plica.core.term import Term
from plica.ir.dtype import i8
from plica.ir.graph import Function
from plica.ir.loop import Kernel
from plica.runtime.error import Diagnostic
from plica.schedule.default import Packing
from plica.schedule.default.constant import Cut, Derived, Sums
from plica.schedule.default.grouped import Viewed
from plica.schedule.trace import Trace
from plica.search.space import Point, Space

LONGEST: Final = 1 << 26
"""Characters of a job."""

MOST_PACKINGS: Final = 64


class Work(Protocol):
    """What is to be computed: a task, as far as measuring goes."""

    @property
    def function(self) -> Function | Kernel: ...

    @property
    def constant(self) -> tuple[bool, ...]: ...

    @property
    def reassociates(self) -> bool: ...


@frozen(eq=False)
class Job:
    """One candidate."""

    function: Function | Kernel
    constant: tuple[bool, ...]
    reassociates: bool
    kernel: Kernel
    packings: tuple[Packing, ...]
    trace: Trace
    target: str
    """The machine, as `Target.describe` says it."""
    derived: tuple[Derived, ...] = ()
    """What the kernel reads that is made of constants."""

    @property
    def work(self) -> str:
        """What tells the work from other work: all its candidates have one reference."""
        return f"{self.constant} {self.reassociates} {_text(self.function)}"

    def to_json(self) -> str:
        """The job as text."""
        return json.dumps(
            {
                "function": _text(self.function),
                "constant": list(self.constant),
                "reassociates": self.reassociates,
                "kernel": _text(self.kernel),
                "packings": [_plain(each) for each in self.packings],
                "trace": self.trace.to_json(),
                "target": self.target,
                "derived": [_plain_derived(each) for each in self.derived],
            }
        )

    @property
    def identity(self) -> str:
        """A digest of the whole job."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @staticmethod
    def from_json(text: str) -> Job:
        """The job that a text holds; raises `Malformed`."""
        if len(text) > LONGEST:
            _refuse(f"It has more than {LONGEST} characters.")
        try:
            given = json.loads(text)
        except (ValueError, RecursionError) as reason:
            _refuse(f"It is not JSON: {reason}.")
        match given:
            case {
                "function": str(function),
                "constant": [*constant],
                "reassociates": bool(reassociates),
                "kernel": str(kernel),
                "packings": [*packings],
                "trace": str(trace),
                "target": str(target),
                "derived": [*derived],
            } if max(len(packings), len(derived)) <= MOST_PACKINGS and all(
                isinstance(each, bool) for each in constant
            ):
                pass
            case _:
                _refuse("It does not have the parts of one.")
        whole, begun = _term(function), _term(kernel)
        if not isinstance(whole, Function | Kernel) or not isinstance(begun, Kernel):
            _refuse("Its function or its kernel is another term.")
        packed = tuple([_packing(each) for each in packings])
        steps = Trace.from_json(trace)
        more = tuple([_derived(each) for each in derived])
        return Job(whole, tuple(constant), reassociates, begun, packed, steps, target, more)


def job_of(work: Work, space: Space, point: Point, target: AnyTarget) -> Job:
    """The job of a point of a space."""
    sketch = space.sketches[point.sketch]
    form = sketch.form
    packings = () if form is None else form.packings
    return Job(
        work.function,
        work.constant,
        work.reassociates,
        sketch.kernel,
        packings,
        space.trace(point),
        target.describe(),
        () if form is None else form.derived,
    )


def _plain(of: Packing) -> list[object]:
    shape = [list(of.shape)] if isinstance(of, Viewed) else []
    return [of.input, of.axis, of.lanes, list(of.order), *shape]


def _packing(given: object) -> Packing:
    match given:
        case [int(number), int(axis), int(lanes), [*order], *rest] if (
            min(number, axis) >= 0
            and 0 < lanes < 1 << 16
            and (places := [e for e in order if type(e) is int])
            and sorted(places) == list(range(len(order)))
        ):
            if not rest:
                return Packing(number, axis, lanes, tuple(places))
            match rest:
                case [[*sizes]] if (shape := [e for e in sizes if type(e) is int]) == sizes:
                    return Viewed(number, axis, lanes, tuple(places), tuple(shape))
                case _:
                    pass
        case _:
            pass
    _refuse("It packs a constant in a way that does not exist.")


def _plain_derived(of: Derived) -> list[object]:
    if isinstance(of, Sums):
        return ["sums", of.input, of.axis, of.lanes]
    return ["cut", of.input, [list(each) for each in of.cuts], list(of.order), of.dtype.name]


def _derived(given: object) -> Derived:
    match given:
        case ["sums", int(number), int(axis), int(lanes)] if (
            min(number, axis) >= 0 and 0 < lanes < 1 << 16
        ):
            return Sums(number, axis, lanes)
        case ["cut", int(number), [*cuts], [*order], "i8"] if (
            number >= 0
            and (pairs := [pair for each in cuts if (pair := _pair(each)) is not None])
            and len(pairs) == len(cuts)
            and (places := [e for e in order if type(e) is int])
            and sorted(places) == list(range(len(order)))
        ):
            return Cut(number, tuple(pairs), tuple(places), i8)
        case _:
            _refuse("It derives from a constant what does not exist.")


def _pair(given: object) -> tuple[int, int] | None:
    """An axis and in how many it is cut, if it is that."""
    match given:
        case [int(axis), int(size)] if 0 <= axis < MOST_PACKINGS and 0 < size < 1 << 16:
            return axis, size
        case _:
            return None


@lru_cache(maxsize=256)
def _text(of: Term) -> str:
    return encode.to_json(of)


@lru_cache(maxsize=256)
def _term(text: str) -> Term:
    return encode.from_json(text)


def _refuse(message: str) -> NoReturn:
    raise Malformed(Diagnostic("bad-record", f"This is no job to measure.  {message}"))
