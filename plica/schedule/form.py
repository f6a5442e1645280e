"""Forms: rules `Stages -> Stages` that restructure a computation.

    Form ::= Form(name, why, contract, apply, rank, templates)

Padding an axis, packing an operand of a product, splitting a sum: a form preserves results within
its float contract. It inspects the stages, facts about their inputs, and the machine, and returns
all its alternatives, each with its estimated cycles; nothing if it does not apply. Forms are tested
as a population, like all rules; installed libraries add theirs under the entry-point group
`plica.forms`. Their results need no templates of their own: plain loops fit everything, and supply
the cost estimate if the form has none.

>>> Form("Two words", "An example.", exact, lambda of, facts, machine: ())
Traceback (most recent call last):
plica.core.diagnostic.RuleRefused: The name of a form is in small letters with dashes. [bad-rule]
  expected: a name such as pad-axis
  found: 'Two words'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, TypeAlias

from attrs import evolve, field, frozen

from plica.core import ExtensionGroup, RuleRefused
from plica.ir.contract import Contract, exact, reassociates
from plica.ir.loop.stages import Stages
from plica.runtime.error import Diagnostic

__all__ = [
    "AS_WRITTEN", "BY_COST", "FORM_RULES", "GENERAL", "UNCHANGED", "Facts", "Form", "Formed",
    "exact", "installed", "itself", "reach",
]  # fmt: skip

BY_COST: Final = 8  # the rank of forms that compete by their cycles alone
GENERAL: Final = "general"  # the template that fits every kernel
UNCHANGED: Final = "unchanged"  # the form of unchanged stages
AS_WRITTEN: Final = "as-written"  # the template name if a form wrote the loops
WORD: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@frozen
class Facts:
    """Compile-time facts about the inputs of stages, and the user's permissions.

    `constant` says which inputs are known, `fits_i8` which of these are of i32 and hold nothing but
    numbers from -128 to 127.
    """

    constant: tuple[bool, ...]
    fits_i8: tuple[int, ...] = ()
    contract: Contract = exact
    parts: int = 1
    """The number of parts the machine runs in parallel, of which this is one, if known."""

    @property
    def reassociates(self) -> bool:
        """Whether sums may be reordered."""
        return self.contract >= reassociates

    @property
    def approximates(self) -> bool:
        """Whether larger rounding differences are allowed."""
        return self.contract > reassociates


@frozen(eq=False, slots=False)
class Formed:
    """A form's result, computed on demand, and its estimated cycles."""

    form: str
    make: Callable[[], Stages]
    cycles: float = 0.0
    templates: tuple[str, ...] = ()

    @cached_property
    def stages(self) -> Stages:
        """The stages it makes."""
        return self.make()


Made: TypeAlias = "Stages | tuple[float, Callable[[], Stages]]"
"""A form's result: stages, or cycles with a function that builds the stages if they are
cheapest."""

Apply: TypeAlias = Callable[[Stages, Facts, Any], Iterable[Made]]
"""From stages, facts and a machine, which is whatever a target describes itself by."""


@frozen
class Form:
    """A rule over stages. Of the applicable forms of the lowest rank the first that states no
    cycles is taken, else that with the fewest."""

    name: str
    why: str
    contract: Contract
    apply: Apply = field(eq=False)
    rank: int = BY_COST
    templates: tuple[str, ...] = ()
    """What schedules the kernels it makes: the first that knows one.  Any may, where none is named;
    the general template is there for what none of them knows."""

    def __attrs_post_init__(self) -> None:
        if not WORD.fullmatch(self.name):
            message = "The name of a form is in small letters with dashes."
            expected = "a name such as pad-axis"
            raise RuleRefused(Diagnostic("bad-rule", message, None, expected, repr(self.name)))

    def reach(self, of: Stages, facts: Facts, machine: object) -> list[Formed]:
        """Everything the form makes of some stages."""
        found = []
        for each in self.apply(of, facts, machine):
            cycles, make = each if isinstance(each, tuple) else (0.0, partial(itself, each))
            found.append(Formed(self.name, make, cycles, self.templates))
        return found


@frozen(eq=False)
class ScheduleTables:
    """The tables behind a target's default schedules: its form pack and its trace templates.

    A template is whatever the target's scheduler asks; it is found by its name.
    """

    forms: tuple[Form, ...]
    templates: Mapping[str, Any]  # Any: as the target's own scheduler takes them


def priced(of: Form, cycles: Callable[[Stages, Any], float]) -> Form:
    """The form with a cost estimate for results that lack one."""

    def apply(stages: Stages, facts: Facts, machine: Any) -> Iterator[Made]:  # as `Apply` says
        for each in of.apply(stages, facts, machine):
            if isinstance(each, Stages):
                yield cycles(each, machine), partial(itself, each)
            else:
                yield each

    return evolve(of, apply=apply)


def itself(of: Stages) -> Stages:
    """Stages that are made already."""
    return of


def reach(
    forms: Sequence[Form], of: Stages, facts: Facts, machine: object, only: str | None = None
) -> list[Formed]:
    """The best alternatives: all of the first form that states no cycles, else all, cheapest first.

    With `only` a name, that form alone is tried.
    """
    return next(_by_rank(forms, of, facts, machine, only), [])


def in_order(forms: Sequence[Form], of: Stages, facts: Facts, machine: object) -> Iterator[Formed]:
    """What all forms that apply make of some stages: by rank, then the cheapest first.

    A form is evaluated only after all earlier ones were rejected.
    """
    for found in _by_rank(forms, of, facts, machine, None):
        yield from found


def _by_rank(
    forms: Sequence[Form], of: Stages, facts: Facts, machine: object, only: str | None
) -> Iterator[list[Formed]]:
    """The alternatives by rank: those that state no cycles in the order of their forms, then the
    others, cheapest first. No form is asked before those in front of it were."""
    usable = [
        form for form in forms if form.contract <= facts.contract and only in (None, form.name)
    ]
    for rank in sorted({form.rank for form in usable}):
        priced: list[Formed] = []
        for form in [each for each in usable if each.rank == rank]:
            made = form.reach(of, facts, machine)
            if free := [one for one in made if not one.cycles]:
                yield free
            priced += [one for one in made if one.cycles]
        if priced:
            yield sorted(priced, key=lambda each: each.cycles)


FORM_RULES: Final = ExtensionGroup(
    "plica.forms", "form", Form, named=lambda each: each.name, several=True, error=RuleRefused
)
"""The forms that libraries offer."""


def installed() -> tuple[Form, ...]:
    """The forms that installed libraries offer, in the order of their names."""
    return FORM_RULES.all()
