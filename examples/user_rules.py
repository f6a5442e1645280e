"""A rule writer's hour: rules of one term, of many turns and of several outputs; a wrong one is
found; a program is compiled with the others."""

from __future__ import annotations

import numpy as np

import plica
from plica import op
from plica.op import nn
from plica.rewrite import approx, either, holes, outputs, pack, recursive, rule
from plica.script import Tensor, f32

x, y, z, p, q = holes("x y z p q")


def composed(m):
    """Two transpositions as one."""
    first, second = m.value(p), m.value(q)
    if first is None or second is None:  # they reverse the axes
        return None
    return op.transpose(m.x, tuple(first[axis] for axis in second))


def joined(m):
    """Two products of one input as one, cut apart behind it."""
    if not len(m.shape(x)) == len(m.shape(y)) == len(m.shape(z)) == 2:
        return None
    return op.split(m.x @ op.concat((m.y, m.z), axis=1), (m.shape(y)[1],), axis=1)


positive = recursive("steps", lambda again: either(nn.relu(again), op.absolute(again)), op.exp(x))
once = rule("user-positive", nn.relu(positive), op.exp(x))
pair = rule("user-pair", outputs(x @ y, x @ z), joined)
silu = rule("user-silu", x * nn.sigmoid(x), nn.silu(x), float=approx(1e-5))
twice = rule("user-transpose-twice", op.transpose(op.transpose(x, p), q), composed)
wrong = rule("user-exp-log", op.exp(op.log(x)), x)


@plica.function
def model(
    v: Tensor[(2, 3), f32], a: Tensor[(3, 3), f32], b: Tensor[(3, 3), f32]
) -> Tensor[(2, 3), f32]:
    h = nn.relu(op.absolute(nn.relu(op.exp(v))))
    gate = op.transpose(op.transpose(v * nn.sigmoid(v), (1, 0)), (1, 0))
    return gate + (h @ a) * (h @ b)


def main() -> None:
    """Check the rules, use those that are right, and ask what they did."""
    right = (silu, twice, once, pair)
    for each in (*right, wrong):
        print(plica.check(each, examples=10))
    assert "refuted" in str(plica.check(wrong, examples=20)).lower()
    exe = plica.compile(model, packs=[pack("user", *right, version="1")], cache=False)
    v = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    a, b = np.eye(3, dtype=np.float32), np.full((3, 3), 0.5, np.float32)
    assert np.allclose(exe(v, a, b), plica.interpret(model, v, a, b), rtol=1e-5)
    print(exe.derivation)
    assert all(each.name in str(exe.derivation) for each in right)


if __name__ == "__main__":
    main()
