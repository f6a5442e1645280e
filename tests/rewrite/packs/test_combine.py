from __future__ import annotations

import pytest

from plica.ir.interpret.interpreter import interpret
from plica.rewrite.packs.combine import combine_parallel, combining, combining_pass
from tests.conftest import Golden
from tests.rewrite.graph.law import text
from tests.rewrite.packs.layers import agree, numbers, operators

DENSE = """
@plica.function
def main(x: Tensor[("n", 2), f32], w: Tensor[(3, 2), f32]) -> Tensor[("n", 3), f32]:
    a = nn.dense(x, w)
    b = nn.dense(x, const([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], f32))
    c = nn.dense(x, const([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]], f32))
    return a * b + c
"""
CONV = """
@plica.function
def main(x: Tensor[("n", 2, "h"), f32]) -> Tensor[("n", 3, "h"), f32]:
    a = nn.conv(x, const([[[1.0], [2.0]], [[3.0], [4.0]]], f32))
    b = nn.conv(x, const([[[5.0], [6.0]]], f32))
    return op.concat([a, b], axis=1)
"""


def test_dense_layers_become_one(golden: Golden) -> None:
    before = text(DENSE)
    after = combine_parallel(before)
    assert operators(after)["nn.dense"] == 1
    agree(before, after, numbers(4, 2), numbers(3, 2), rel=0.0)
    golden(str(after))


def test_dense_layers_become_a_batch() -> None:
    before = text(DENSE)
    after = combine_parallel(before, batch=True)
    assert operators(after)["nn.dense"] == 0
    assert operators(after)["nn.batch_matmul"] == 1
    agree(before, after, numbers(4, 2), numbers(3, 2), rel=0.0)


def test_too_few_branches_stay() -> None:
    module = text(CONV)
    assert operators(combine_parallel(module))["nn.conv"] == 2
    after = combine_parallel(module, min_branches=2)
    assert operators(after)["nn.conv"] == 1
    agree(module, after, numbers(2, 2, 4), rel=0.0)
    with pytest.raises(ValueError, match="two branches or more"):
        combine_parallel(module, min_branches=1)


def test_layers_behind_layers() -> None:
    before = text("""
@plica.function
def main(x: Tensor[(3, 2), f32], w: Tensor[(2, 2), f32], v: Tensor[(2, 2), f32]) \
        -> Tensor[(3, 2), f32]:
    a, b = x @ w, x @ v
    return (a @ w) * (a @ v) + (b @ w) * (b @ v)
""")
    after = combine_parallel(before, min_branches=2)
    assert operators(after)["matmul"] == 3
    agree(before, after, numbers(3, 2), numbers(2, 2), numbers(2, 2)[::-1].copy(), rel=0.0)


@pytest.mark.parametrize(
    "result",
    [
        "nn.dense(x, w) + nn.dense(y, w)",  # another input
        "nn.dense(x, w) + nn.dense(x, nn.dense(x, w))",  # a weight that depends on the other
        "nn.dense(x, w) if op.sum(y) < 0 else nn.dense(x, v)",  # never both
    ],
)
def test_what_does_not_go_together_stays(result: str) -> None:
    module = text(f"""
@plica.function
def main(x: Tensor[(2, 2), f32], y: Tensor[(2, 2), f32],
         w: Tensor[(2, 2), f32], v: Tensor[(2, 2), f32]) \
        -> Tensor[(2, 2), f32]:
    return {result}
""")
    assert operators(combine_parallel(module, 2))["nn.dense"] == 2


def test_grouped_convolutions_and_other_kernels_stay() -> None:
    module = text("""
@plica.function
def main(x: Tensor[("n", 2, 4), f32]) -> Tensor[("n", 2, 4), f32]:
    a = nn.conv(x, const([[[1.0]], [[2.0]]], f32), groups=2)
    b = nn.conv(x, const([[[3.0]], [[2.0]]], f32), groups=2)
    c = nn.conv(x, const([[[1.0], [2.0]], [[3.0], [4.0]]], f32))
    d = nn.conv(x, const([[[1.0, 0.0, 1.0], [2.0, 0.0, 1.0]]], f32), padding=1)
    return a + b + c + d
""")
    assert operators(combine_parallel(module, 2))["nn.conv"] == 4


def test_batches_of_products() -> None:
    before = text("""
@plica.function
def main(x: Tensor[("b", 3, 2), f32], w: Tensor[(1, 2, 2), f32], v: Tensor[(1, 3, 2), f32]) \
        -> tuple[Tensor[("b", 3, 2), f32], Tensor[("b", 3, 3), f32]]:
    return nn.batch_matmul(x, w, transpose_y=True), nn.batch_matmul(x, v, transpose_y=True)
""")
    after = combine_parallel(before, 2)
    assert operators(after)["nn.batch_matmul"] == 1
    agree(before, after, numbers(2, 3, 2), numbers(1, 2, 2), numbers(1, 3, 2), rel=0.0)


def test_the_pass_and_the_rules_are_made_once() -> None:
    module = text(DENSE)
    assert combining_pass(3)(module) is combine_parallel(module)
    assert combining(3) is combining(3)
    assert interpret(combining_pass(4)(module), numbers(4, 2), numbers(3, 2)).shape == (4, 3)
