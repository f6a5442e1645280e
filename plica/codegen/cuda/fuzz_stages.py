"""Fused functions on a GPU, drawn at random: any form that its schedules reach, or random steps.

form    one of the first candidates of a GPU for the stages, whichever the default would take
fused   the plain loops of the stages, and random steps that bind them to threads
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from random import Random
from typing import Final

import numpy as np
from attrs import frozen

from plica.codegen.cuda.scheduled import refused
from plica.ir.interpret.value import Array
from plica.ir.loop.stages import evaluate_stages, kernel_of
from plica.ir.loop.statement import Kernel
from plica.rewrite.fuzz.driver import one_case
from plica.schedule.collapse import collapsed
from plica.schedule.default.gpu import Gpu, candidates
from plica.schedule.generate.stages import GPU_KINDS, KINDS, StagesCase, shape_of
from plica.schedule.hoist import constants
from plica.schedule.trace import Trace

CANDIDATES: Final = 12  # the maximum number of candidates considered, with equal probability
ROUNDING: Final = 1e-5
"""By how much of the largest number a GPU's own functions may be off, where anything may be."""


@frozen(eq=False)
class StagesOnGpu:
    """Stages that are scheduled, what they read, and what their last result must be."""

    drawn: StagesCase
    kernel: Kernel
    trace: Trace
    form: str
    arrays: tuple[Array, ...]

    @property
    def expected(self) -> tuple[Array, ...]:
        """The output; for all but the last only the size is known."""
        last = np.asarray(evaluate_stages(self.drawn.stages, self.drawn.arrays))
        made = self.kernel.params[self.kernel.inputs :]
        between = [np.zeros(shape_of(each), each.dtype.numpy) for each in made[:-1]]
        return (*between, last.reshape(shape_of(made[-1])))

    def margins(self, expected: Sequence[Array]) -> tuple[Array | None, ...]:
        """The tolerances of results; None where they do not matter."""
        last, near = expected[-1], self.drawn.near
        none = (None,) * (len(expected) - 1)
        if not near:
            return (*none, np.zeros(last.shape))
        about = float(np.abs(last[np.isfinite(last)].astype(np.float64)).max(initial=1.0))
        own = np.abs(np.nan_to_num(last.astype(np.float64), posinf=0.0, neginf=0.0))
        return (*none, (own + about) * max(near, ROUNDING))

    def __str__(self) -> str:
        return f"{self.form}\n{self.drawn!r}"


class _Never(Exception):
    """Nothing is made smaller here."""


NOTHING_DRAWN: Final = "nothing was drawn"


def stages_case(seed: int, number: int, random: Random) -> StagesCase | None:
    """Stages of a kind that forms look for; hypothesis may draw none."""
    every = [*KINDS.values(), *GPU_KINDS.values()]
    cases: list[StagesCase] = []
    one_case(lambda case, _: cases.append(case), random.choice(every)(), seed, number, _Never)
    return cases[0] if cases else None


def formed(seed: int, number: int, random: Random) -> StagesOnGpu | str:
    """Stages by one of the forms of a GPU, or why not."""
    if (of := stages_case(seed, number, random)) is None:
        return NOTHING_DRAWN
    gpu = random.choice((Gpu(groups=True), Gpu(groups=True), Gpu(), Gpu(4, threads=64)))
    whole = collapsed(of.stages, of.facts.reassociates)
    every = list(islice(candidates(whole, of.facts, gpu), 1 + random.randrange(CANDIDATES)))
    if not every:
        return "no form of a GPU is there for it"
    chosen = every[-1]
    if why_not := refused(chosen.kernel, gpu):
        return f"the form {chosen.form.form} is passed over: {why_not}"
    apart = chosen.hoisted
    told = {n: of.arrays[n] for n, known in enumerate(of.facts.constant) if known}
    before = constants(apart, told)
    arrays = tuple([
        np.reshape(of.arrays[n] if isinstance(n, int) else before[n], shape_of(buffer))
        for n, buffer in zip(apart.reads, apart.rest.inputs, strict=True)
    ])  # fmt: skip
    return StagesOnGpu(of, chosen.kernel, chosen.trace, chosen.form.form, arrays)


def plain_loops(seed: int, number: int, random: Random) -> tuple[StagesCase, Kernel] | str:
    """Stages, and their loops before anything is scheduled."""
    of = stages_case(seed, number, random)
    return NOTHING_DRAWN if of is None else (of, kernel_of(of.stages))
