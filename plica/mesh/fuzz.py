"""Fuzzing of meshes: random programs under random plans, simulated and held to the interpreter.

    a program of two operators that are drawn, and what follows them (`plica.rewrite.fuzz.gradient`)
    a mesh of up to three axes, and steps that split values of the program, inputs or not
    the program of a device, run on simulated devices  =  the program, interpreted

>>> fuzz(3).finding is None
True
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import attrs
import numpy as np

from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.mesh.exchange import STACK
from plica.mesh.execute import CollectiveStep, simulate, steps_of
from plica.mesh.mesh import Mesh, sizes_of
from plica.mesh.plan import MeshPlan, PlanStep, replay
from plica.mesh.program import FlatProgram, flat_program, leaves
from plica.rewrite.check.report import HEAD, failing_test
from plica.rewrite.fuzz.driver import ByNumber, Campaign, Say, Skipped, Tally, least
from plica.rewrite.fuzz.gradient.case import differentiable, gradient_case, operators_of
from plica.rewrite.fuzz.judge import CRASHES, crash
from plica.rewrite.fuzz.report import CASES, Finding, FuzzReport
from plica.runtime.error import InputError, UnsupportedError

MESHES: Final = ("a=2", "a=4", "a=2,b=2", "a=2,b=4", "a=4,b=2", "a=2,b=2,c=2")
MAX_STEPS: Final = 5
MAX_SIZE: Final = 8  # the largest free size of a dim: half of the sizes are even
TOLERANCE: Final = 1e-9  # in f64, of the largest number: sums are cut and joined in another order
MAX_DRAWS: Final = 3


@attrs.frozen(eq=False)
class MeshCase:
    """A program with its inputs, a mesh and a plan."""

    program: Module
    inputs: tuple[Any, ...]  # Any: arrays
    mesh: Mesh
    plan: MeshPlan

    def smaller(self) -> list[MeshCase]:
        """The cases with a step less."""
        steps = self.plan.steps
        return [attrs.evolve(self, plan=MeshPlan(steps[:at] + steps[at + 1 :]))
                for at in range(len(steps))]  # fmt: skip


def mesh_case(seed: int, number: int, ops: tuple[str, ...]) -> MeshCase | Skipped:
    """The case of a number."""
    drawn = attrs.evolve(gradient_case(seed, number, ops), max_size=MAX_SIZE)
    slope = drawn.slope()
    if slope is None:
        return Skipped(f"no program: {', '.join(drawn.ops)}")
    random = Random(f"{seed}/{number} mesh")
    mesh = Mesh.parse(random.choice(MESHES))
    try:
        program = flat_program(slope.program)
    except UnsupportedError as error:
        return Skipped(error.diagnostics[0].message)
    plan = drawn_plan(program, mesh, random)
    return MeshCase(slope.program, tuple(slope.args), mesh, plan)


def drawn_plan(program: FlatProgram, mesh: Mesh, random: Random, most: int = MAX_STEPS) -> MeshPlan:
    """Steps that split values at dims which the devices divide, each legal after those before."""
    choices = [
        PlanStep(name, axis, dim)
        for name, of in zip(program.names, program.types, strict=True)
        for dim, extent in enumerate(sizes_of(of))
        for axis, size in mesh.axes
        if extent and extent % size == 0
    ]
    plan = MeshPlan()
    for step in random.sample(choices, min(len(choices), random.randint(1, most))):
        longer = plan.append(step)
        try:
            replay(longer, program.module, mesh)
        except InputError:  # another step has split the dim already
            continue
        plan = longer
    return plan


def judged(case: MeshCase, tally: Tally | None = None) -> Finding | None:
    """What is wrong with a case; the collectives and operators of a good one are counted."""
    names = " ".join(operators_of(case.program))
    try:
        with np.errstate(all="ignore"):
            sharded = replay(case.plan, case.program, case.mesh)
            expected = leaves(interpret(case.program, *case.inputs))
            found = leaves(simulate(sharded, *case.inputs))
    except CRASHES as error:
        return Finding("mesh", names, crash(error), as_pytest(case, crash(error)))
    for at, (mine, other) in enumerate(zip(found, expected, strict=True)):
        scale = float(np.max(np.abs(other), initial=1.0, where=np.isfinite(other)))
        if not np.allclose(mine, other, TOLERANCE, TOLERANCE * scale, equal_nan=True):
            reason = f"result {at} is {np.ravel(mine)[:4]} instead of {np.ravel(other)[:4]}"
            return Finding("mesh", names, reason, as_pytest(case, reason))
    if tally is not None:
        sent = [s.collective.op for s in steps_of(sharded) if isinstance(s, CollectiveStep)]
        tally["collectives"].update(sent)
        tally["operators"].update(set(operators_of(case.program)) - {STACK})
        tally[CASES].update(split=any("split" in str(p) for h in sharded.held for p in h.layout))
    return None


def fuzz(
    examples: int = 200, seed: int = 0, *, first: int = 0, ops: tuple[str, ...] = (),
    say: Say | None = None,
) -> FuzzReport[Finding]:  # fmt: skip
    """A given number of programs, the operators in turn, until the first finding."""
    turn = ops or differentiable()

    def smaller(case: MeshCase, fails: Any) -> MeshCase:
        return least(case, MeshCase.smaller, fails)

    generator = ByNumber(lambda number: mesh_case(seed, number, turn), smaller)
    campaign = Campaign(
        Finding, generator, lambda case, number, tally: judged(case, tally), MAX_DRAWS,
        counters={CASES: ("split",), "collectives": (), "operators": ()},
    )  # fmt: skip
    return campaign.run(examples, seed, first=first, say=say)


def as_pytest(case: MeshCase, reason: str) -> str:
    """The case as a test."""
    steps = "; ".join(map(str, case.plan.steps))
    body = f"""
    module = plica.from_text(SOURCE)
    plan = mesh.MeshPlan.from_text("{steps}")
    sharded = mesh.replay(plan, module, mesh.Mesh.parse("{case.mesh}"))
    expected = plica.interpret(module, *inputs)
    np.testing.assert_allclose(mesh.simulate(sharded, *inputs), expected, rtol=1e-8, atol=1e-9)
"""
    sources, arrays = {"SOURCE": case.program}, {"inputs": case.inputs}
    head = f"{HEAD}\nfrom plica import mesh"
    return failing_test("mesh", reason, sources, arrays, body, head=head)
