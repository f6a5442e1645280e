"""Planted mistakes in a form, a trace template and a lowering pass, which fuzzing must find.

>>> sorted(WAYS)
['form', 'pass', 'template']
"""

from __future__ import annotations

from typing import Final

from attrs import evolve

from plica.codegen.form_fuzz.judge import FormWay
from plica.codegen.plant import planted, with_a_longer_loop
from plica.core import Term, map_bottom_up
from plica.ir.loop import Kernel, Lit, Reduce, Stages, index
from plica.schedule.default import FORMS, Machine
from plica.schedule.default.choose import TEMPLATES
from plica.schedule.default.role import contraction_blocks
from plica.schedule.do import Body, DoBlock, do
from plica.schedule.form import Facts, Form
from plica.schedule.primitive import block, loops, parallel


def without_last_term(of: Stages) -> Stages:
    """The stages whose sums leave out the last place of their innermost axis."""

    def shorter(node: Term) -> Term:
        match node:
            case Reduce(combiner, axes, (*before, Lit(size)), body) if size > 1:
                return Reduce(combiner, axes, (*before, index(size - 1)), body)
            case _:
                return node

    return map_bottom_up(shorter, of)


def wrong_form(of: Form) -> Form:
    """The form with a mistake in whatever it makes."""

    def apply(stages: Stages, facts: Facts, machine: object) -> list[Stages]:
        return [without_last_term(each.stages) for each in of.reach(stages, facts, machine)]

    return evolve(of, apply=apply)


def tile_with_shared_lanes(kernel: Kernel, machine: Machine) -> DoBlock | None:
    """The template of register tiles, in which cores then share the lanes of vectors."""
    tile, stages = TEMPLATES["register-tile"](kernel, machine), contraction_blocks(kernel)
    if tile is None or stages is None:
        return None

    @do
    def whole() -> Body:
        yield tile
        around = yield loops((yield block(str(stages.reduction.label))))
        yield parallel(around[-1])

    return whole


WAYS: Final[dict[str, FormWay]] = {
    "form": FormWay(forms=[wrong_form(e) if e.name == "lanes-over-n" else e for e in FORMS]),
    "template": FormWay(templates={**TEMPLATES, "register-tile": tile_with_shared_lanes}),
    "pass": FormWay(passes=planted("partition", with_a_longer_loop)),
}
"""What stages go through, with a mistake in it."""
