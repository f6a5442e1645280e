"""A researcher's hour: a rule, a pass and a primitive that are wrong, each found and made small."""

from __future__ import annotations

import numpy as np
from attrs import frozen

import plica
from plica import op
from plica.analysis.site import replace
from plica.core.binding import substitute
from plica.core.fold import map_bottom_up
from plica.ir.graph.expression import Apply
from plica.ir.loop.statement import For
from plica.ir.passes import Pass
from plica.ir.type.infer import infer
from plica.op import nn
from plica.pipeline import pipeline_of
from plica.rewrite import first_bad, holes, pack, rewrite, rule
from plica.rewrite.fuzz import fuzz
from plica.schedule import bisect, block, do, loops, minimise, split, trace_of
from plica.schedule.fuzz import fuzz as fuzz_schedules
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.problem import Problem
from plica.script import Tensor, f32

x, y, a, b, c, d = holes("x y a b c d")

# --- a rule: which step of a derivation is to blame? --------------------------------------------

RULES = pack(
    "user-research",
    rule("user-relu-relu", nn.relu(nn.relu(x)), nn.relu(x)),
    rule("user-planted", nn.relu(x) + nn.relu(y), nn.relu(x + y)),  # the mistake
    rule("user-times-one", x * 1, x),
    version="1",
)


@plica.function
def model(v: Tensor[(4,), f32], w: Tensor[(4,), f32]) -> Tensor[(4,), f32]:
    return op.exp(nn.relu(nn.relu(v)) * 1.0 + nn.relu(w))


def blame_a_rule() -> None:
    """By bisection over the derivation; then without any model."""
    v, w = np.array([1, -1, 2, -2], "f4"), np.array([-3, 3, 1, 1], "f4")
    wanted = plica.interpret(model, v, w)
    _, derivation = rewrite(model.module, RULES)
    found = first_bad(derivation, lambda term: np.allclose(plica.interpret(term, v, w), wanted))
    print(found)
    assert found.step.rule.name == "user-planted"
    print(plica.check(RULES.rules[1], examples=50))


# --- a pass: two clips are one, which is wrong where their ranges do not meet -------------------


def joined(node):
    """clip(clip(x, a, b), c, d) as clip(x, max(a, c), min(b, d))."""
    match node:
        case Apply("clip", (Apply("clip", (inner,)) as first,)):
            one, two = dict(first.attrs), dict(node.attrs)
            if None not in (*one.values(), *two.values()):
                low, high = max(one["min"], two["min"]), min(one["max"], two["max"])
                return op.clip(inner, min=low, max=high)
    return node


JOIN = Pass(
    "user-join-clips",
    "Two clips are one.",
    lambda module: infer(map_bottom_up(joined, module)),
    looks_for=(op.clip(op.clip(x, a, b), c, d),),
)


@plica.function
def clipped(v: Tensor[(4,), f32]) -> Tensor[(4,), f32]:
    return op.clip(op.clip(v, min=-2, max=2), min=-1, max=3)


def fuzz_a_pass() -> None:
    """It runs inside of `compile`, where it is right; the fuzzer finds where it is not."""
    pipeline = pipeline_of("cpu").insert(JOIN, before="fuse")
    v = np.array([-5, -1.5, 1, 5], "f4")
    assert plica.compile(clipped, passes=pipeline, cache=False)(v).tolist() == [-1, -1, 1, 2]
    report = fuzz([JOIN], examples=300)
    print(f"found at module {report.examples}:\n{report.finding}")
    assert report.finding.stage == "user-join-clips"


# --- a primitive: iterations in the other order, whatever they do to each other -----------------


@primitive("user.flipped")
@frozen(eq=False)
class Flipped(Instruction):
    """A loop, last iteration first; that iterations may depend on each other was forgotten."""

    loop: Handle

    def check(self, scene: Scene) -> Problem | None:
        loop = scene.loop(self.loop).node
        if loop.kind != "serial":
            return Problem("plain-loop", f"the loop {loop.var.name}", "a serial loop", loop.kind)
        return None

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.loop)
        loop = site.node
        body = substitute(loop.body, {loop.var: loop.extent - 1 - loop.var})
        new = For(loop.var, loop.extent, loop.kind, body, loop.annotations)
        return Edited(replace(scene.kernel, site, new))


SUMS = plica.from_text("""
@plica.kernel
def sums(A: Buffer[(8, 8), f32], C: Buffer[(8,), f32]):
    for i, j in grid(8, 8):
        with block("C", spatial=(i,), reduce=(j,)):
            with init():
                C[i] = 0.0
            C[i] += A[i, j]
""")


@do
def schedule():
    """Some steps, of which one is to blame: the reduction is flipped, and begins at its end."""
    i, j = yield loops((yield block("C")))
    yield split(i, (None, 4))
    yield Flipped(j)
    yield split(j, (None, 2))


def is_wrong(module) -> bool:
    """Whether a kernel no longer gives sums, or reads what nobody wrote."""
    numbers = np.arange(64, dtype="f4").reshape(8, 8)
    try:
        return not np.array_equal(plica.interpret(module, numbers), numbers.sum(1))
    except plica.PlicaError as error:
        print(error)
        return True


def fuzz_a_primitive() -> None:
    """A trace in which it is wrong is bisected and made small; the fuzzer needs no trace."""
    trace = trace_of(schedule, SUMS)
    culprit = bisect(trace, SUMS)
    print(culprit)
    assert culprit.step.instruction.kind == "user.flipped"
    short = minimise(trace, SUMS, is_wrong)
    print(short)
    assert len(short) < len(trace)
    found = fuzz_schedules(100, focus=("user.flipped",)).finding
    print(found)
    assert found.step == "user.flipped"


def main() -> None:
    """Three mistakes, in three languages."""
    blame_a_rule()
    fuzz_a_pass()
    fuzz_a_primitive()


if __name__ == "__main__":
    main()
