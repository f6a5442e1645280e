"""A rule writer's hour: rules, a wrong one found, a computed right side, a compiled program."""

from __future__ import annotations

import numpy as np

import plica
from plica import op
from plica.op import nn
from plica.rewrite import approx, holes, pack, rule
from plica.script import Tensor, f32

x, p, q = holes("x p q")


def composed(m):
    """Two transpositions as one."""
    first, second = m.value(p), m.value(q)
    if first is None or second is None:  # they reverse the axes
        return None
    return op.transpose(m.x, tuple(first[axis] for axis in second))


silu = rule("user-silu", x * nn.sigmoid(x), nn.silu(x), float=approx(1e-5))
twice = rule("user-transpose-twice", op.transpose(op.transpose(x, p), q), composed)
wrong = rule("user-exp-log", op.exp(op.log(x)), x)


@plica.function
def model(v: Tensor[(2, 3), f32]) -> Tensor[(2, 3), f32]:
    return op.transpose(op.transpose(v * nn.sigmoid(v), (1, 0)), (1, 0))


def main() -> None:
    """Check the rules, use those that are right, and ask what they did."""
    for each in (silu, twice, wrong):
        print(plica.check(each, examples=10))
    assert "refuted" in str(plica.check(wrong, examples=20)).lower()
    exe = plica.compile(model, packs=[pack("user", silu, twice, version="1")], cache=False)
    v = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    assert np.allclose(exe(v), plica.interpret(model, v), atol=1e-5)
    print(exe.derivation)
    assert "user-silu" in str(exe.derivation)


if __name__ == "__main__":
    main()
