"""Live ranges: from when to when the values of a straight sequence of steps are needed.

A step declares the values it reads and writes, which results are views of inputs, and which inputs
a result may overwrite. A result does so if neither the input nor an alias of it is needed
afterwards.

>>> steps = (MemoryStep((1,), (0,)), MemoryStep((2,), (1,), over=((2, 1),)))
>>> for each in allocations_of(steps, (8, 8, 8), given=(0,), kept=(2,)):
...     print(each.born, each.last, each.in_place_of)
-1 0 None
0 1 None
1 2 1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from attrs import evolve, frozen

from plica.analysis.memory.packing import Allocation, MemoryPlan
from plica.core import CompilerBug

BEFORE = -1  # the step at which values are born that are given


@frozen
class MemoryStep:
    """What one step does to values, which are numbers."""

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    views: tuple[tuple[int, int], ...] = ()  # pairs: an output, and the input it shows
    over: tuple[tuple[int, int], ...] = ()
    """Pairs: an output, and an input of the same size that it may be written over."""


def allocations_of(
    steps: Sequence[MemoryStep],
    sizes: Sequence[int],
    given: Sequence[int] = (),
    kept: Sequence[int] = (),
) -> tuple[Allocation, ...]:
    """The values of a sequence as allocations; `given` ones are live before it, `kept` ones after
    it.

    Each value is written once, and a value shares memory only with one of a lower number.
    """
    born: dict[int, int] = dict.fromkeys(given, BEFORE)
    last = dict(born)
    for at, step in enumerate(steps):
        for each in step.inputs:
            if each not in born:
                raise CompilerBug(f"The value {each} is read before it is written.")
            last[each] = at
        for each in step.outputs:
            if each in born:
                raise CompilerBug(f"The value {each} is written twice.")
            born[each] = last[each] = at
    last.update(dict.fromkeys(kept, len(steps)))
    missing = next((each for each in range(len(sizes)) if each not in born), None)
    if missing is not None:
        raise CompilerBug(f"The value {missing} is never written.")
    tenants = [Allocation(size, born[each], last[each]) for each, size in enumerate(sizes)]
    views = {output: of for step in steps for output, of in step.views}
    for output in sorted(views):
        tenants[output] = evolve(tenants[output], view_of=views[output])
    contents = _contents(views, len(sizes))
    until: dict[int, int] = {}  # the last step that needs a content under any name
    for tenant, content in zip(tenants, contents, strict=True):
        until[content] = max(until.get(content, tenant.last), tenant.last)
    taken: set[int] = set(given)  # what is given is not ours to write over
    for at, step in enumerate(steps):
        for output, of in step.over:
            content = contents[of]
            dies = until[content] == at and content not in taken
            if dies and sizes[output] <= sizes[content] and _only(step, output, content, contents):
                tenants[output] = evolve(tenants[output], in_place_of=of)
                taken.add(content)
                break
    return tuple(tenants)


def _contents(views: dict[int, int], count: int) -> list[int]:
    """For each value the one whose elements it shows."""
    found: list[int] = []
    for value in range(count):
        of = views.get(value, value)
        if of > value:
            raise CompilerBug(f"The value {value} is a view of a later one, {of}.")
        found.append(value if of == value else found[of])
    return found


def _only(step: MemoryStep, output: int, content: int, contents: list[int]) -> bool:
    """Whether a step reads a content only as what it may write the output over."""
    if any(output == each for each, _ in step.views):
        return False
    same = [each for each in step.inputs if contents[each] == content]
    return all((output, each) in step.over and each < output for each in same)


@frozen
class LiveRangeEvent:
    """An allocation before a step, or a release after it."""

    step: int
    what: Literal["take", "free"]
    tenant: int


def timeline(plan: MemoryPlan) -> Iterator[LiveRangeEvent]:
    """Allocations and releases in order: those of a step come before its releases."""
    events = [(allocation.born, 0, n) for n, allocation in enumerate(plan.tenants)]
    events += [(allocation.last, 1, n) for n, allocation in enumerate(plan.tenants)]
    for step, freed, number in sorted(events):
        yield LiveRangeEvent(step, "free" if freed else "take", number)
