"""Schedule rules: from work and a machine to schedules with open decisions.

    Rule ::= Rule(name, forms, traces)

A rule first says which kernels do the work (`forms`, by name), then how each of them may be
scheduled (`traces`, by name): ordinary traces, whose decisions are by rule of thumb and open.  Both
are pure functions.  A record of tuning names the rule and the form, so that its kernel is found
again without making the whole space.

Installed libraries add rules under the entry-point group `plica.schedule_rules`.

>>> Rule("two words", lambda of, machine: (), lambda of, machine: ())
Traceback (most recent call last):
plica.core.diagnostic.RuleRefused: The name of a schedule rule is a word. [bad-rule]
  expected: a name
  found: 'two words'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from importlib import metadata
from typing import Final, TypeAlias

from attrs import frozen

from plica.codegen.lower.fused import Fused, fused
from plica.codegen.lower.scheduled import chain_of, work_of
from plica.core.diagnostic import RuleRefused
from plica.ir.graph import Function
from plica.runtime.error import Diagnostic
from plica.schedule.default import Formed, Machine, Work
from plica.schedule.default.row import Chain
from plica.schedule.trace import Trace

GROUP: Final = "plica.schedule_rules"


@frozen(slots=False)
class Asked:
    """What is to be scheduled, as `plica.codegen.lower.scheduled` is asked."""

    function: Function
    constant: tuple[bool, ...]
    reassociates: bool
    bytes_: tuple[int, ...] = ()
    approximates: bool = False

    @cached_property
    def fused(self) -> Fused:
        """The plain kernel, and what it was made of."""
        return fused(self.function)

    @cached_property
    def work(self) -> Work | None:
        """The work, None where it is done in several stages."""
        return None if self.fused.stages else work_of(self.fused)

    @cached_property
    def chain(self) -> Chain | None:
        """The stages, None where there is one."""
        return chain_of(self.fused) if self.fused.stages else None


Forms: TypeAlias = Callable[[Asked, Machine], Iterable[tuple[str, Formed]]]
Traces: TypeAlias = Callable[[Formed, Machine], Iterable[tuple[str, Trace]]]


@frozen
class Rule:
    """Kernels for some work, and schedules of each."""

    name: str
    forms: Forms
    traces: Traces

    def __attrs_post_init__(self) -> None:
        if not self.name.isidentifier():
            message = "The name of a schedule rule is a word."
            raise RuleRefused(Diagnostic("bad-rule", message, None, "a name", repr(self.name)))


def installed() -> tuple[Rule, ...]:
    """The rules that installed libraries offer, in the order of their names."""
    points = sorted(metadata.entry_points(group=GROUP), key=lambda each: each.name)
    found = [(each.name, each.load()) for each in points]
    for name, rule in found:
        if not isinstance(rule, Rule):
            message = f"The entry point {name} of {GROUP} is no schedule rule but {rule!r}."
            raise RuleRefused(Diagnostic("bad-rule", message))
    return tuple([rule for _, rule in found])
