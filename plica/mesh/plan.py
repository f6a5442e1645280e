"""Plans: how a program is laid out on a mesh, as a trace of steps.

    split x 0 on data
    split layers.*.up 1 on model
    replicate y on model

A step names values: an input, a result (`result.0`), the value of an operator (`matmul.3`), or
several by a pattern, so that equal layers take one step.  Replaying a plan annotates these values
in order and infers all others (`plica.mesh.infer`).

>>> plan = MeshPlan.from_text("split x 0 on data; split w? 1 on model")
>>> MeshPlan.from_json(plan.to_json()) == plan, len(plan.prefix(1).steps)
(True, 1)
>>> print(diff(plan, MeshPlan.from_text("split x 0 on data")))
  split x 0 on data
- split w? 1 on model
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from difflib import SequenceMatcher
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import sha256
from typing import Final

from attrs import frozen

from plica.core import Malformed, did_you_mean, digest
from plica.ir.graph.module import Module
from plica.mesh.infer import Annotation, layout_of, propagated
from plica.mesh.mesh import Layout, Mesh, refusal
from plica.mesh.program import FlatProgram, flat_program
from plica.mesh.sharded import ShardedProgram, laid_out
from plica.runtime.error import Diagnostic

FORMAT: Final = 1
_STEP: Final = re.compile(r"split (\S+) (\d{1,3}) on (\w+)|replicate (\S+) on (\w+)")


@frozen
class PlanStep:
    """Split the values of a pattern at a dim along an axis, or hold them in full (None)."""

    values: str
    axis: str
    dim: int | None

    def __str__(self) -> str:
        if self.dim is None:
            return f"replicate {self.values} on {self.axis}"
        return f"split {self.values} {self.dim} on {self.axis}"


@frozen
class MeshPlan:
    """Steps, each of which lays out some values."""

    steps: tuple[PlanStep, ...] = ()

    @staticmethod
    def from_text(text: str) -> MeshPlan:
        """The plan that a text says, a step on each line or between semicolons."""
        steps = []
        for line in re.split(r"[;\n]", text):
            words = " ".join(line.partition("#")[0].split())
            if not words:
                continue
            if (match := _STEP.fullmatch(words)) is None:
                expected = "split VALUE DIM on AXIS, or replicate VALUE on AXIS"
                raise refusal("bad-plan", f"{words!r} is no step of a plan.", expected, words)
            values, dim, axis, whole, on = match.groups()
            steps.append(PlanStep(whole, on, None) if whole else PlanStep(values, axis, int(dim)))
        return MeshPlan(tuple(steps))

    def to_json(self) -> str:
        """The plan as versioned JSON."""
        return json.dumps({"plica-plan": FORMAT, "steps": list(map(str, self.steps))}, indent=1)

    @staticmethod
    def from_json(text: str) -> MeshPlan:
        """The plan that a JSON text holds; raises `Malformed`."""
        message, expected, found = "This is no plan in JSON.", "an object with steps", text[:60]
        with suppress(ValueError, RecursionError):
            match json.loads(text):
                case {"plica-plan": version, "steps": [*steps]} if version != FORMAT:
                    message, expected = "The plan is of another version.", str(FORMAT)
                    found = str(version)
                case {"steps": [*steps]} if all(isinstance(step, str) for step in steps):
                    return MeshPlan.from_text("\n".join(steps))
        raise Malformed(Diagnostic("bad-plan", message, None, expected, found))

    def append(self, *steps: PlanStep) -> MeshPlan:
        """The plan with more steps at its end."""
        return MeshPlan((*self.steps, *steps))

    def prefix(self, length: int) -> MeshPlan:
        """The first steps alone."""
        return MeshPlan(self.steps[:length])

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


def replay(plan: MeshPlan, module: Module, mesh: Mesh, *, strict: bool = False) -> ShardedProgram:
    """The program of a device; with `strict` what cannot run on blocks is refused.

    Law: the same plan of the same module gives the same digest in any process.
    """
    program = flat_program(module)
    notes = annotated(plan, program, mesh)
    splits = propagated(program, mesh, notes)
    said = {value for value, _, _ in notes}
    results: dict[int, Layout] = {
        place: layout_of(splits, value)
        for place, value in enumerate(program.results)
        if value in said
    }
    return laid_out(program, mesh, splits, results, strict=strict)


def annotated(plan: MeshPlan, program: FlatProgram, mesh: Mesh) -> list[Annotation]:
    """What the steps of a plan say of which values, in order."""
    return [
        Annotation(value, mesh.axis(step.axis), step.dim)
        for step in plan.steps
        for value in matching(program, step.values)
    ]


def matching(program: FlatProgram, pattern: str) -> tuple[int, ...]:
    """The values that a pattern names; refused if there is none."""
    names = _named(program)
    if pattern in names:
        return (names[pattern],)
    found = {value: None for name, value in names.items() if fnmatchcase(name, pattern)}
    if not found:
        hint = did_you_mean(pattern, names)
        message = f"The program has no value {pattern!r}."
        raise refusal("bad-plan", message, "an input, result.N or OPERATOR.N", pattern, hint)
    return tuple(found)


@lru_cache(maxsize=8)
def _named(program: FlatProgram) -> dict[str, int]:
    names = {name: value for value, name in enumerate(program.names)}
    names.update({f"result.{at}": value for at, value in enumerate(program.results)})
    return names


def plan_digest(sharded: ShardedProgram) -> str:
    """What all ranks must agree on: the mesh, and the program of a device with its layouts."""
    layouts = [list(map(str, held_value.layout)) for held_value in sharded.held]
    said = json.dumps([str(sharded.mesh), layouts, [list(map(str, r)) for r in sharded.results]])
    return f"{digest(sharded.module)}-{sha256(said.encode()).hexdigest()[:16]}"


# --- plans side by side ---------------------------------------------------------------------------


def diff(old: MeshPlan, new: MeshPlan) -> str:
    """The steps of both, aligned: `-` what only the old has, `+` what only the new has."""
    lines: list[str] = []
    matcher = SequenceMatcher(None, old.steps, new.steps, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        lines += [f"{' ' if kind == 'equal' else '-'} {step}" for step in old.steps[a:b]]
        lines += [f"+ {step}" for step in new.steps[c:d] if kind != "equal"]
    return "\n".join(lines)


def bisect(plan: MeshPlan, is_bad: Callable[[MeshPlan], bool]) -> int | None:
    """The number of the first step with which a plan is bad; None if it is not.

    The empty plan must be good; each prefix is asked at most once, about log2(n) of them.
    """
    if not is_bad(plan):
        return None
    lengths = range(1, len(plan.steps))
    return bisect_left(lengths, True, key=lambda length: is_bad(plan.prefix(length)))
