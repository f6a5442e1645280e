"""Conversion of whole modules: the same numbers, and transforms at the edges alone."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.core.diagnostic import IllTyped
from plica.core.name import Name
from plica.ir.graph.check import check
from plica.ir.graph.expression import Apply, Const, Expr, If, Project, Tuple, Var, const
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.op import find
from plica.ir.type.infer import infer, type_of
from plica.ir.type.term import tensor
from plica.rewrite.graph.walk import expressions
from plica.rewrite.layout.convert import convert_layout
from tests.conftest import PROFILE, Golden
from tests.rewrite.graph.law import program, text

EXAMPLES: Final = {"ci": 10, "dev": 50, "deep": 2_000}[PROFILE]
RNG: Final = np.random.default_rng(0)
IMAGE: Final = Var(Name("x"), tensor((1, 4, 6, 6), "f32"))
WORDS: Final = ("NHWC", "NCHW2c", "NCHW4c", "NHWC2c", "CHWN", "NCHW", "NCHW3c")


def op(name: str) -> Any:
    found = find(name)
    assert found is not None
    return found


conv, relu, pool = op("nn.conv"), op("nn.relu"), op("nn.max_pool")
transpose = op("transpose")


def weights(*shape: int) -> Const:
    return const(RNG.standard_normal(shape).astype(np.float32))


def main_of(body: Expr, *params: Var) -> Module:
    return program(body, params or (IMAGE,), type_of(body))


def operators(module: Module) -> Counter[str]:
    """How often each operator stands in a module."""
    functions = [function for _, function in module.functions()]
    return Counter(node.op for node in expressions(*functions) if isinstance(node, Apply))


def same(before: Module, after: Module, *args: Any, within: float = 0.0) -> None:
    """Whether two modules agree to the bit, or within a tolerance where sums may be reordered."""
    assert not check(after)
    assert infer(after) is after
    expected, found = interpret(before, *args), interpret(after, *args)
    if not isinstance(expected, tuple) or not isinstance(found, tuple):
        expected, found = (expected,), (found,)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(np.asarray(b), np.asarray(a), rtol=within, atol=within)


def picture() -> Any:
    return RNG.standard_normal((1, 4, 6, 6)).astype(np.float32)


# --- the chain: two transforms -------------------------------------------------------------------


def residual_block(x: Expr, channels: int) -> Expr:
    """Convolution, batch norm, activation, twice, and the sum with what came in."""
    y = x
    for last in (False, True):
        y = conv(y, weights(channels, channels, 3, 3), padding=1)
        scale = [weights(channels) for _ in range(3)]
        y = op("nn.batch_norm")(y, *scale, const(np.ones(channels, np.float32)))
        y = y if last else relu(y)
    result: Expr = relu(y + x)
    return result


def network() -> Module:
    y = pool(relu(conv(IMAGE, weights(4, 4, 3, 3), padding=1)), 3, 1, 1)
    y = residual_block(residual_block(y, 4), 4)
    return main_of(y * weights(4, 1, 1))


def test_a_chain_of_convolutions_keeps_two_transforms() -> None:
    before = network()
    after = convert_layout(before, {"nn.conv": "NHWC"})
    found = operators(after)
    assert found["transpose"] == 2
    assert found["reshape"] == 0  # weights and scales are constants: transformed already
    assert found["nn.conv"] == found["nn.max_pool"] == 0
    assert found["nn.conv_laid"] == 5
    same(before, after, picture())


def test_blocks_keep_two_transforms_as_well() -> None:
    before = network()
    after = convert_layout(before, {"nn.conv": "NCHW2c"})
    found = operators(after)
    assert found["transpose"] == found["reshape"] == 2  # a reshape and a transpose each way
    assert found["nn.conv"] == found["nn.max_pool"] == 0
    same(before, after, picture())


def test_converting_back_gives_what_was() -> None:
    before = network()
    there = convert_layout(before, {"nn.conv": "NHWC"})
    back = convert_layout(there, {"nn.conv": "NCHW"})
    assert operators(back) == operators(before) + Counter({"transpose": 0})
    same(before, back, picture())


def test_text(golden: Golden) -> None:
    before = text(
        """
@plica.function
def main(
    x: Tensor[(1, 8, 6, 6), f32], w: Tensor[(8, 8, 3, 3), f32], b: Tensor[(8,), f32]
) -> Tensor[(1, 8), f32]:
    y = nn.relu(nn.bias_add(nn.conv(x, w, padding=1), b))
    z = nn.conv(nn.max_pool(y, 2), w, padding=1)
    return nn.flatten(nn.global_avg_pool(nn.relu(z)))
"""
    )
    golden(str(convert_layout(before, {"nn.conv": "NHWC"})), "convert_layout_nhwc")
    golden(str(convert_layout(before, {"nn.conv": "NCHW4c"})), "convert_layout_nchw4c")


# --- laws ----------------------------------------------------------------------------------------


@st.composite
def networks(draw: st.DrawFn) -> Module:
    """Layers over what is there, of whatever layout it may be in by then."""
    values: list[Expr] = [IMAGE]

    def images() -> list[Expr]:
        return [each for each in values if len(type_of(each).shape) == 4]  # type: ignore[union-attr]

    for _ in range(draw(st.integers(1, 8))):
        x = draw(st.sampled_from(images()[::-1]))
        shape = [int(size.value) for size in type_of(x).shape]  # type: ignore[union-attr]
        kind = draw(st.integers(0, 11))
        same_type = [each for each in images() if type_of(each) is type_of(x)]
        y = draw(st.sampled_from(same_type))
        c = shape[1]
        match kind:
            case 0 | 1 | 2:
                groups = draw(st.sampled_from([g for g in (1, 2, c) if c % g == 0]))
                out = groups * draw(st.integers(1, 3))
                x = conv(x, weights(out, c // groups, 1, 1), groups=groups)
            case 3:
                x = relu(x)
            case 4:
                x = x + y
            case 5:
                x = x * weights(c, 1, 1)
            case 6:
                x = op("concat")((x, y), draw(st.integers(0, 3)))
            case 7:
                x = pool(x, 2, 1, 1) if min(shape[2:]) > 1 else x
            case 8:
                x = transpose(x, draw(st.permutations(range(4))))
            case 9:
                x = op("nn.softmax")(x, axis=draw(st.integers(0, 3)))
            case 10:
                x = op("nn.global_avg_pool")(x)
            case _:
                x = op("reshape")(x, (shape[0], c, shape[3], shape[2]))
        values.append(x)
    last = values[-1]
    if draw(st.booleans()):
        last = Tuple((last, draw(st.sampled_from(values))))
    return main_of(last)


@settings(max_examples=EXAMPLES)
@given(networks(), st.sampled_from(WORDS), st.sampled_from(WORDS))
def test_the_meaning_stays(module: Module, word: str, other: str) -> None:
    desired = {"nn.conv": word, "nn.max_pool": other}
    after = convert_layout(module, desired)
    same(module, after, picture(), within=1e-4)
    assert convert_layout(after, desired) is after


def test_control_flow_stays_as_it_is() -> None:
    c = Var(Name("c"), tensor((), "bool"))
    y = conv(IMAGE, weights(4, 4, 1, 1))
    before = main_of(conv(If(c, relu(y), y), weights(4, 4, 1, 1)), c, IMAGE)
    after = convert_layout(before, {"nn.conv": "NHWC"})
    for choice in (True, False):
        same(before, after, choice, picture())


def test_several_results_are_moved_with_their_operator() -> None:
    parts = op("split")(conv(IMAGE, weights(4, 4, 1, 1)), 2, 1)
    body = conv(op("concat")((Project(parts, 1), relu(Project(parts, 0))), 1), weights(4, 4, 1, 1))
    before = main_of(body)
    after = convert_layout(before, {"nn.conv": "NHWC"})
    assert operators(after)["transpose"] == 2
    same(before, after, picture())
    whole = main_of(parts)
    same(whole, convert_layout(whole, {"nn.conv": "NHWC"}), picture())


def test_a_model_that_transposes_itself_loses_its_transposes() -> None:
    """As exporters of channels-last models write it: transposed around every convolution."""
    x = Var(Name("x"), tensor((1, 6, 6, 4), "f32"))
    y: Expr = x
    for _ in range(3):
        inner = conv(transpose(y, (0, 3, 1, 2)), weights(4, 4, 1, 1))
        y = relu(transpose(inner, (0, 2, 3, 1)))
    before = main_of(y, x)
    after = convert_layout(before, {"nn.conv": "NHWC"})
    assert operators(after)["transpose"] == 0
    same(before, after, RNG.standard_normal((1, 6, 6, 4)).astype(np.float32))


def test_channels_that_blocks_do_not_divide_stay_unblocked() -> None:
    x = Var(Name("x"), tensor((1, 3, 6, 6), "f32"))
    before = main_of(relu(conv(conv(x, weights(8, 3, 3, 3)), weights(8, 8, 1, 1))), x)
    after = convert_layout(before, {"nn.conv": "NCHW8c"})
    first = next(
        node
        for node in expressions(after.main_function())
        if isinstance(node, Apply) and node.op == "nn.conv_laid"
    )
    assert dict(first.attrs)["layouts"] == ("NCHW", "OIHW8o", "NCHW8c")
    same(before, after, RNG.standard_normal((1, 3, 6, 6)).astype(np.float32))


def test_weights_may_have_their_own_layout() -> None:
    before = main_of(conv(IMAGE, weights(4, 4, 3, 3)))
    after = convert_layout(before, {"nn.conv2d": ("NHWC", "OHWI")})
    assert '"OHWI"' in str(after)
    same(before, after, picture())


def test_operators_of_another_rank_stay() -> None:
    x = Var(Name("x"), tensor((1, 4, 6), "f32"))
    before = main_of(conv(x, weights(4, 4, 3)), x)
    assert convert_layout(before, {"nn.conv": "NHWC"}) is before
    assert operators(convert_layout(before, {"nn.conv": "NWC"}))["nn.conv_laid"] == 1


@pytest.mark.parametrize(
    ("desired", "code"),
    [
        ({"nn.dense": "NHWC"}, "unsupported"),
        ({"nn.cnov": "NHWC"}, "unsupported"),
        ({"nn.conv": "NHWX"}, "bad-layout"),
        ({"nn.conv": ("NHWC", "NHWC")}, "bad-layout"),
        ({"nn.max_pool": ("NHWC", "NHWC")}, "bad-layout"),
        ({"nn.conv": ()}, "bad-layout"),
    ],
)
def test_refusals(desired: Any, code: str) -> None:
    with pytest.raises(IllTyped) as error:
        convert_layout(network(), desired)
    assert error.value.diagnostics[0].code == code


def test_deep_and_shared_terms() -> None:
    y = conv(IMAGE, weights(4, 4, 1, 1))
    for _ in range(1_500):
        y = relu(y)
    for _ in range(60):
        y = y + y
    after = convert_layout(main_of(y), {"nn.conv": "NHWC"})
    assert operators(after)["transpose"] == 2
