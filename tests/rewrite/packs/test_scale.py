from __future__ import annotations

import numpy as np
import pytest

from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.contract import reassociates
from plica.ir.graph.expression import Apply, Const, Expr, Var, const
from plica.ir.graph.module import Module
from plica.ir.type.term import tensor
from plica.rewrite.closed import is_closed, value_of
from plica.rewrite.graph.fold import fold_constants
from plica.rewrite.pack import rewrite
from plica.rewrite.packs.scale import FOLD_SCALES, SCALE, fold_scales
from tests.conftest import Golden
from tests.rewrite.graph.law import text
from tests.rewrite.packs.layers import agree, call, numbers, of, operators

LAYER = """
@plica.function
def main(x: Tensor[("n", 2, 4), f32]) -> Tensor[("n", 2, 4), f32]:
    w = const([[[1.0], [2.0]], [[-3.0], [0.5]]], f32)
    s = const([[2.0], [{scale}]], f32)
    return {result}
"""


def layer(result: str, scale: float = -0.5) -> Module:
    return text(LAYER.format(result=result, scale=scale))


def test_conv_batch_norm_relu_is_a_conv_a_bias_and_a_relu(golden: Golden) -> None:
    before = text("""
@plica.function
def main(x: Tensor[("n", 2, "h"), f32]) -> Tensor[("n", 2, "h"), f32]:
    w = const([[[1.0], [2.0]], [[-3.0], [0.5]]], f32)
    g = const([1.0, -2.0], f32)
    y = nn.conv(x, w) + const([[1.0], [2.0]], f32)
    return nn.relu(nn.batch_norm(y, g, g, g, const([4.0, 1.0], f32), epsilon=0.0))
""")
    after = fold_scales(before)
    assert operators(after) == {"nn.conv": 1, "add": 1, "nn.relu": 1}
    agree(before, after, numbers(3, 2, 5))
    golden(str(after))


@pytest.mark.parametrize(
    "result",
    [
        "nn.conv(x, w) * s",
        "s * (nn.conv(x, w) + s)",
        "(nn.conv(x, w) - s) * s",
        "op.slice(nn.conv(x * s, w, padding=1), (1,), (5,), axes=(2,))",
        "nn.conv(x + s, w)",
        "nn.conv_transpose(x, w) * s",
        "nn.conv_transpose(s * x, w)",
    ],
)
def test_constants_move_into_weights(result: str) -> None:
    before = layer(result)
    after = fold_scales(before)
    assert operators(after)["multiply"] == 0
    assert operators(after)["add"] <= 1
    agree(before, after, numbers(3, 2, 4))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("name", ["nn.conv", "nn.conv_transpose"])
def test_groups(name: str, groups: int) -> None:
    x = Var(Name("x"), tensor((2, 4, 5, 5), "f32"))
    w = const(numbers(4, 4 // groups, 3, 3), "f32")
    s = const(numbers(4, 1, 1), "f32")
    for body in (call(name, x, w, groups=groups) * s, call(name, x * s, w, groups=groups)):
        before = of(body, x)
        after = fold_scales(before)
        assert operators(after) == {name: 1}
        agree(before, after, numbers(2, 4, 5, 5))


@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_matrices(transposed: bool) -> None:
    x = Var(Name("x"), tensor((2, 3, 4), "f32"))
    w = const(numbers(2, 5, 4) if transposed else numbers(2, 4, 5), "f32")
    s = const(numbers(5), "f32")
    plain = const(numbers(4, 5), "f32")
    cases = [
        call("nn.batch_matmul", x, w, transpose_y=transposed) * s,
        call("nn.batch_matmul", x * const(numbers(4), "f32"), w, transpose_y=transposed),
        call("matmul", x, plain) * s,
        call("matmul", x + const(numbers(4), "f32"), plain),
        call("matmul", const(numbers(5, 3), "f32"), x) * const(numbers(5, 1), "f32"),
        call("nn.dense", x - x, const(numbers(5, 4), "f32")) * s,
    ]
    for body in cases:
        before = of(body, x)
        after = fold_scales(before)
        assert operators(after)["multiply"] == 0
        agree(before, after, numbers(2, 3, 4))


def test_a_matrix_times_a_vector_has_no_rows_to_scale() -> None:
    x = Var(Name("x"), tensor((4,), "f32"))
    w = const(numbers(2, 3, 4), "f32")
    for factor in (const(numbers(3), "f32"), const(numbers(2, 1), "f32")):
        before = of(call("matmul", w, x) * factor, x)
        agree(before, fold_scales(before), numbers(4))


def test_a_positive_scale_goes_through_relu() -> None:
    before = layer("nn.relu(nn.conv(x, w) + s) * s", scale=0.25)
    after = fold_scales(before)
    assert operators(after) == {"nn.conv": 1, "add": 1, "nn.relu": 1}
    agree(before, after, numbers(3, 2, 4))


@pytest.mark.parametrize("scale", [-0.5, 0.0, float("inf"), float("nan")])
def test_no_other_scale_goes_through_relu(scale: float) -> None:
    module = fold_constants(layer("nn.relu(nn.conv(x, w)) * s", 1.0))
    nodes = [each for each in post_order(module) if isinstance(each, Apply)]
    (multiply,) = [each for each in nodes if each.op == "multiply"]
    (old,) = [arg for arg in multiply.args if isinstance(arg, Const)]
    new = Apply("multiply", (multiply.args[0], const([[2.0], [scale]], "f32")), ())
    assert old.shape == (2, 1)
    assert rewrite(new, SCALE)[0] is new


def test_a_shift_stops_at_padding() -> None:
    module = fold_constants(layer("op.slice(nn.conv(x + s, w, padding=1), (1,), (5,), axes=(2,))"))
    assert operators(fold_scales(module))["add"] == 1


def test_scales_that_are_no_constants_per_channel_stay() -> None:
    x = Var(Name("x"), tensor((2, 2, 4), "f32"))
    w = const(numbers(2, 2, 1), "f32")
    per_place = const(numbers(4), "f32")
    variable = Var(Name("s"), tensor((2, 1), "f32"))
    bigger = const(numbers(3, 2, 2, 4), "f32")
    for body in (
        call("nn.conv", x, w) * per_place,
        call("nn.conv", x, w) * variable,
        call("nn.conv", x, w) * bigger,
        call("nn.conv", x, variable + w) * const(2.0, "f32"),
    ):
        assert rewrite(body, SCALE)[0] is body


def test_what_is_shared_is_not_computed_twice() -> None:
    before = text("""
@plica.function
def main(x: Tensor[("n", 2, 4), f32]) -> tuple[Tensor[("n", 2, 4), f32], Tensor[("n", 2, 4), f32]]:
    y = nn.relu(nn.conv(x, const([[[1.0], [2.0]], [[-3.0], [0.5]]], f32)))
    return y * const([[2.0], [3.0]], f32), op.exp(y)
""")
    after = fold_scales(before)
    assert operators(after)["nn.conv"] == 1
    agree(before, after, numbers(3, 2, 4))


def test_what_only_layers_share_is_scaled_in_each() -> None:
    x = Var(Name("x"), tensor((3, 4), "f32"))
    scaled = x * const(numbers(4), "f32")
    a, b = (const(numbers(*shape), "f32") for shape in ((5, 4), (5, 4)))
    before = of(call("nn.dense", scaled, a) + call("nn.dense", scaled, b * const(2.0, "f32")), x)
    after = fold_scales(before)
    assert operators(after)["multiply"] == 0
    agree(before, after, numbers(3, 4))


def test_a_long_chain_of_scales_folds_in_one_run() -> None:
    x = Var(Name("x"), tensor((3, 4), "f32"))
    body = call("nn.dense", x, const(numbers(4, 4), "f32"))
    for n in range(50):
        body = body * const(1.0 + 0.01 * n, "f32") + const(numbers(4), "f32")
    after = fold_scales(of(body, x))
    assert operators(after) == {"nn.dense": 1, "add": 1}


def test_divisions_become_products_where_the_inverse_is_a_normal_number() -> None:
    x = Var(Name("x"), tensor((3,), "f32"))
    for divisor, operator in (
        (4.0, "multiply"),
        (0.0, "divide"),
        (1e-40, "divide"),
        (1e30, "multiply"),
    ):
        after, _ = rewrite(x / const(divisor, "f32"), SCALE)
        assert isinstance(after, Apply)
        assert after.op == operator
    one = Var(Name("x"), tensor((1, 1), "f32")) / const(255.0, "f32")
    assert rewrite(one, SCALE)[0] is one  # as exact as it was asked for: it costs nothing


@pytest.mark.parametrize("rounds", ["round", "floor", "cast"])
def test_a_quotient_of_given_numbers_that_is_rounded_stays_one(rounds: str) -> None:
    x = Var(Name("x"), tensor((3,), "f32"))
    word = {"dtype": "i8"} if rounds == "cast" else {}

    def rounded(of: Expr, divisor: float) -> str:
        after, _ = rewrite(call(rounds, of / const(divisor, "f32"), **word), SCALE)
        assert isinstance(after, Apply)
        assert isinstance(after.args[0], Apply)
        return after.args[0].op

    assert rounded(x, 0.05) == "divide"
    assert rounded(call("nn.relu", x), 0.05) == "divide"
    assert rounded(x, 0.25) == "multiply"  # exact
    assert rounded(call("exp", x), 0.05) == "multiply"  # its last bits are free
    assert rounded(x + x, 0.05) == "divide"


def test_a_quotient_that_is_moved_before_it_is_rounded_or_compared_stays_one() -> None:
    quotient = Var(Name("x"), tensor((3, 2), "f32")) / const(0.05, "f32")
    moved = call("reshape", call("transpose", quotient), shape=(6,))
    for after in (call("round", moved), call("less", moved, const(3.0, "f32"))):
        assert rewrite(after, SCALE)[0] is after
    product, _ = rewrite(call("exp", moved), SCALE)
    assert "divide" not in [each.op for each in post_order(product) if isinstance(each, Apply)]


def test_the_pass_and_its_contract() -> None:
    assert SCALE.contract is reassociates
    assert FOLD_SCALES(layer("nn.conv(x, w) * s")) is fold_scales(layer("nn.conv(x, w) * s"))


def test_closed_terms() -> None:
    failing = call("take", const([1.0], "f32"), const(3, "i64"), axis=0)
    assert is_closed(failing)
    assert value_of(failing) is None
    assert value_of(Var(Name("x"), tensor((), "f32"))) is None
    assert not is_closed(3)
    assert np.array_equal(value_of(const([1.0], "f32")) or (), [1.0])


def test_sums_of_integers_are_multiplied_by_one_factor() -> None:
    before = text("""
@plica.function
def main(n: Tensor[(3, 2, 4), i32], q: Tensor[(), f32]) -> Tensor[(3, 2, 4), f32]:
    return op.cast(n, dtype="f32") * q * const([[2.0], [-0.25]], f32)
""")
    after = fold_scales(before)
    assert "op.cast(n, dtype=f32) * (q * " in str(after)
    n, q = np.arange(24, dtype=np.int32).reshape(3, 2, 4), np.float32(0.5)
    agree(before, after, n, q)
