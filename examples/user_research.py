"""A researcher's hour: a wrong rule is found by bisection, and a wrong step of a trace."""

from __future__ import annotations

import numpy as np

import plica
from plica import op
from plica.op import nn
from plica.rewrite import first_bad, holes, pack, rewrite, rule
from plica.schedule import bisect, block, do, fuse, loops, minimise, split, trace_of
from plica.script import Tensor, f32

x, y = holes("x y")
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


KERNEL = plica.from_text("""
@plica.kernel
def doubled(A: Buffer[(8, 8), f32], C: Buffer[(8, 8), f32]):
    for i, j in grid(8, 8):
        with block("C", spatial=(i, j)):
            C[i, j] = A[i, j] * 2.0
""")


@do
def schedule():
    """Some steps, of which one is to blame."""
    i, j = yield loops((yield block("C")))
    yield split(i, (None, 4))
    yield split(j, (None, 2))
    i, j = (yield loops((yield block("C"))))[:2]
    yield fuse(i, j)


def is_bad(module) -> bool:
    """What the researcher does not want to see: columns in pairs."""
    return "4, 2)" in str(module)


def main() -> None:
    """Find who is to blame, in a derivation and in a trace."""
    v, w = np.array([1, -1, 2, -2], "f4"), np.array([-3, 3, 1, 1], "f4")
    wanted = plica.interpret(model, v, w)
    _, derivation = rewrite(model.module, RULES)
    found = first_bad(derivation, lambda term: np.allclose(plica.interpret(term, v, w), wanted))
    print(found)
    assert found.step.rule.name == "user-planted"
    print(plica.check(RULES.rules[1], examples=50))

    trace = trace_of(schedule, KERNEL)
    culprit = bisect(trace, KERNEL, is_bad)
    print(culprit)
    assert culprit is not None
    shorter = minimise(trace, KERNEL, is_bad)
    assert len(shorter) < len(trace)
    print(shorter)


if __name__ == "__main__":
    main()
