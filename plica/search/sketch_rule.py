"""Schedule rules: from stages and a machine to schedules with open decisions.

    Rule ::= Rule(name, forms, traces)

>>> SketchRule("two words", lambda of, machine: (), lambda of, machine: ())
Traceback (most recent call last):
plica.core.diagnostic.RuleRefused: The name of a schedule rule is a word. [bad-rule]
  expected: a name
  found: 'two words'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias

from attrs import frozen

from plica.core import ExtensionGroup, RuleRefused
from plica.ir.loop import Kernel, Stages, kernel_of
from plica.runtime.error import Diagnostic
from plica.schedule.form import Facts
from plica.schedule.hoist import Hoisted, hoist
from plica.schedule.trace import Trace


class SpaceWork(Protocol):
    """What is to be computed: a task, as seen by spaces and measurement."""

    @property
    def stages(self) -> Stages: ...

    @property
    def facts(self) -> Facts: ...


@frozen
class Query:
    """The work to schedule: stages, and facts about their inputs."""

    stages: Stages
    facts: Facts


@frozen(eq=False)
class HoistedKernel:
    """The start of a trace: a form without its constant parts, and its kernel."""

    hoisted: Hoisted
    kernel: Kernel


@lru_cache(maxsize=256)
def hoisted_kernel(form: Stages, constant: tuple[bool, ...]) -> HoistedKernel:
    """The kernel a schedule starts from, given which inputs are constant."""
    hoisted = hoist(form, constant)
    return HoistedKernel(hoisted, kernel_of(hoisted.rest))


Forms: TypeAlias = Callable[[Query, Any], Iterable[tuple[str, Stages]]]  # Any: a machine
Traces: TypeAlias = Callable[[Kernel, Any], Iterable[tuple[str, Trace]]]  # Any: as above


@frozen
class SketchRule:
    """Forms of some work, and schedules of each."""

    name: str
    forms: Forms
    traces: Traces
    machines: tuple[type, ...] = (object,)  # kinds of machines it knows, all by default

    def __attrs_post_init__(self) -> None:
        if not self.name.isidentifier():
            message = "The name of a schedule rule is a word."
            raise RuleRefused(Diagnostic("bad-rule", message, None, "a name", repr(self.name)))


SCHEDULE_RULES: Final = ExtensionGroup(
    "plica.schedule_rules", "schedule rule", SketchRule, error=RuleRefused
)
"""The rules of search that libraries offer."""


def installed(machine: object) -> tuple[SketchRule, ...]:
    """The rules that installed libraries offer for a machine, in the order of their names."""
    return tuple([rule for rule in SCHEDULE_RULES.all() if isinstance(machine, rule.machines)])


def drafts_of(
    rule: SketchRule, query: Query, machine: object
) -> Iterator[tuple[str, Stages, Trace]]:
    """The name, the form and the trace of each sketch that a rule proposes."""
    for form, stages in rule.forms(query, machine):
        kernel = hoisted_kernel(stages, query.facts.constant).kernel
        for word, trace in rule.traces(kernel, machine):
            yield f"{rule.name}/{form}/{word}", stages, trace


def form_of_rules(
    rules: Iterable[SketchRule], name: str, query: Query, machine: object
) -> Stages | None:
    """The form of a sketch name, or None if no rule generates it any more."""
    word, _, rest = name.partition("/")
    wanted = rest.partition("/")[0]
    for rule in rules:
        if rule.name == word:
            for form, stages in rule.forms(query, machine):
                if form == wanted:
                    return stages
    return None
