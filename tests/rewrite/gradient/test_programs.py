"""Derivatives of programs with every part of the language, of derivatives, and of large graphs."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

import plica
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Project, Var
from plica.ir.graph.module import module
from plica.ir.interpret.value import build
from plica.ir.op.elementwise import sin
from plica.ir.type.infer import infer, is_inferred
from plica.ir.type.term import tensor
from plica.rewrite.graph import is_first_order
from plica.rewrite.graph.walk import expressions
from plica.rewrite.optimise import optimise
from tests.conftest import Golden
from tests.rewrite.gradient import source
from tests.rewrite.gradient.finite import Array, directional, program

MLP = """
@plica.function
def main(x: Tensor[(8, 2), f32], w: Tensor[(4, 2), f32], v: Tensor[(1, 4), f32]) -> Tensor[(), f32]:
    y = nn.dense(op.tanh(nn.dense(x, w)), v)
    return op.mean(op.square(y))
"""
CUBE = """
@plica.function
def main(x: Tensor[(), f64]) -> Tensor[(), f64]:
    return x * x * x
"""
PLAIN = """
@plica.function
def main(
    x: Tensor[(2, 3), f64], w: Tensor[(4, 3), f64]
) -> tuple[Tensor[(2, 4), f64], Tensor[(), i64]]:
    y = op.tanh(nn.dense(x, w))
    return (y, op.size(y))
"""


def arrays(given: tuple[Any, ...]) -> list[Array]:
    return [np.asarray(each) for each in given]


def ways_of(args: list[Array], seed: int = 0) -> list[Array | None]:
    random = np.random.default_rng(seed)
    return [
        np.asarray(random.uniform(-1, 1, x.shape)) if x.dtype == np.float64 else None for x in args
    ]


def inner(parts: Any, ways: list[Array | None]) -> float:
    several = parts if isinstance(parts, tuple) else (parts,)
    chosen = [each for each in ways if each is not None]
    return sum(float(np.sum(a * b)) for a, b in zip(several, chosen, strict=True))


# --- meaning -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", source.PROGRAMS)
def test_it_is_what_differences_say(name: str) -> None:
    text, given = source.PROGRAMS[name]
    of, args = source.read(text), arrays(given)
    ways = ways_of(args)
    wanted = directional(of, args, ways)
    value, parts = plica.interpret(plica.value_and_grad(of), *args)
    assert value == plica.interpret(of, *args)
    assert inner(parts, ways) == pytest.approx(wanted, rel=1e-6, abs=1e-8)
    moved = plica.interpret(plica.jvp(of), *args, *[x for x in ways if x is not None])
    assert moved[0] == value
    assert float(moved[1]) == pytest.approx(inner(parts, ways), rel=1e-9, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["choice", "list", "tree", "closure", "recursion", "higher-order"])
def test_compiled_is_interpreted(name: str) -> None:
    text, given = source.PROGRAMS[name]
    found, args = plica.grad(source.read(text)), arrays(given)
    mine, wanted = plica.compile(found)(*args), plica.interpret(found, *args)
    several = (mine, wanted) if isinstance(wanted, tuple) else ((mine,), (wanted,))
    for a, b in zip(*several, strict=True):
        assert np.allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "name", [pytest.param("list", marks=pytest.mark.slow), "closure", "symbolic"]
)
def test_second_derivatives_are_what_differences_say(name: str) -> None:
    """Of the slope along one direction, along another: the closures of pullbacks are derived."""
    text, given = source.PROGRAMS[name]
    of, args = source.read(text), arrays(given)
    ways = ways_of(args, 1)
    along = [each for each in ways if each is not None]
    slope = plica.jvp(of)
    count = len(args)
    whole = program_of_slope(slope)
    wanted = directional(whole, [*args, *along], [*ways, *[None] * len(along)], 1e-5)
    floats = tuple(at for at in range(count) if ways[at] is not None)
    found = plica.interpret(plica.grad(whole, floats), *args, *along)
    assert inner(found, ways) == pytest.approx(wanted, rel=1e-5, abs=1e-7)


def program_of_slope(slope: plica.Module) -> plica.Module:
    """The second result alone."""
    main = slope.main_function()
    assert slope.main is not None
    name = Var(slope.main.name, None)
    rest = {key: value for key, value in slope.items() if key is not slope.main}
    alone = attrs.evolve(main, body=Project(main.body, 1), ret=None)
    return infer(module({**rest, name: alone}, name))


def test_the_second_derivative_of_a_cube_is_six_x() -> None:
    twice = plica.grad(plica.grad(source.read(CUBE)))
    run = plica.compile(twice)
    for x in (-1.5, 0.0, 2.0):
        assert plica.interpret(twice, x) == 6 * x
        assert run(np.asarray(x)) == 6 * x


def test_pullbacks_take_cotangents_of_all_results() -> None:
    of = source.read(PLAIN)
    random = np.random.default_rng(0)
    x, w, d = (random.uniform(-1, 1, shape) for shape in ((2, 3), (4, 3), (2, 4)))
    (y, size), (by_x, by_w) = plica.interpret(plica.vjp(of), x, w, d)
    bent = d * (1 - np.tanh(x @ w.T) ** 2)
    assert np.allclose(y, np.tanh(x @ w.T))
    assert size == 8
    assert np.allclose(by_x, bent @ w)
    assert np.allclose(by_w, bent.T @ x)


def test_main_may_call_itself_for_its_value_too() -> None:
    text = """
@plica.function
def main(x: Tensor[(), f64], n: Tensor[(), i64]) -> Tensor[(), f64]:
    if n == 0:
        return x
    else:
        return op.sin(main(x, n - 1)) * main(op.stop_gradient(x), n - 1)
"""
    of = source.read(text)
    found = plica.interpret(plica.grad(of), 0.7, 1)
    assert found == pytest.approx(np.cos(0.7) * 0.7)


def test_data_has_tangents_of_its_own() -> None:
    text = source.LIST.replace("l = build(n, x)\n", "l = Cons(x, Nil())\n")
    assert "ItemsTangent" not in str(plica.grad(source.read(text)))  # it was decided beforehand
    assert "ConsTangent" in str(plica.grad(source.read(source.LIST)))


# --- marks ---------------------------------------------------------------------------------------

STOPPED = """
@plica.function
def main(x: Tensor[(), f64]) -> Tensor[(), f64]:
    return x * op.stop_gradient(x * x)
"""
KEPT = """
@plica.function(attrs={"checkpoint": True})
def layer(x: Tensor[(64, 64), f32], w: Tensor[(64, 64), f32]) -> Tensor[(64, 64), f32]:
    return op.sin(op.exp(op.sin(op.exp(op.sin(x @ w) * 0.1) @ w)) @ w)

@plica.function
def main(x: Tensor[(64, 64), f32], w: Tensor[(64, 64), f32]) -> Tensor[(), f32]:
    return op.sum(layer(layer(layer(x, w), w), w))
"""


def test_nothing_flows_through_a_stop() -> None:
    assert plica.interpret(plica.grad(source.read(STOPPED)), 3.0) == 9.0


def test_checkpoints_are_computed_again() -> None:
    kept = source.read(KEPT)
    plain = source.read(KEPT.replace('(attrs={"checkpoint": True})', ""))
    random = np.random.default_rng(0)
    x, w = (random.uniform(-0.1, 0.1, (64, 64)).astype(np.float32) for _ in range(2))
    wanted = plica.interpret(plica.grad(plain), x, w)
    again = plica.grad(kept)
    assert "op.after" in str(again)
    assert plica.compile(again).workspace < plica.compile(plica.grad(plain)).workspace
    for mine, other in zip(plica.interpret(again, x, w), wanted, strict=True):
        assert np.allclose(mine, other, rtol=1e-4, atol=1e-6)


def test_a_program_can_be_marked_as_a_whole() -> None:
    marked = plica.checkpoint(source.read(CUBE))
    assert plica.interpret(marked, 2.0) == 8.0
    assert plica.interpret(plica.grad(marked), 2.0) == 12.0


# --- form ----------------------------------------------------------------------------------------


def test_derivatives_of_operators_are_plain_dataflow(golden: Golden) -> None:
    found = plica.grad(source.read(MLP), ("w", "v"))
    assert is_inferred(found)
    assert is_first_order(found)
    golden(str(found))


def test_packs_leave_no_ones_and_zeros(golden: Golden) -> None:
    found = optimise(plica.grad(source.read(MLP), ("w", "v"))).module
    golden(str(found))


def test_derivatives_of_recursion_are_functions_with_pullbacks(golden: Golden) -> None:
    golden(str(plica.grad(source.read(source.LIST))))


def test_the_same_module_gives_the_same_derivative() -> None:
    for text in (source.LIST, source.CLOSURE, MLP):
        first, second = (plica.grad(source.read(text)) for _ in range(2))
        assert first is second


def chain(depth: int, step: Any) -> plica.Module:
    x = Var(Name("x"), tensor((), "f64"))
    value: Expr = x
    for _ in range(depth):
        value = step(value)
    return program(Function((), (), (x,), None, value))


@pytest.mark.parametrize("depth", [600, pytest.param(20_000, marks=pytest.mark.slow)])
def test_long_chains_are_differentiated(depth: int) -> None:
    found = plica.grad(chain(depth, sin))
    assert len(expressions(found.main_function().body)) < 5 * depth
    assert 0 < float(plica.interpret(found, 0.5)) < 1


def test_sixty_doublings_take_sixty_steps() -> None:
    found = plica.grad(chain(60, lambda value: value + value))
    assert float(plica.interpret(found, 0.5)) == 2.0**60


CHECKPOINTED = """
@plica.function(attrs={"checkpoint": True})
def main(x: Tensor[(), f64], n: Tensor[(), i64]) -> Tensor[(), f64]:
    return x if n == 0 else op.sin(main(x * x, n - 1))
"""


def test_a_checkpointed_recursion_has_a_second_derivative() -> None:
    module = source.read(CHECKPOINTED)
    first = plica.grad(module, wrt=0)
    second = plica.grad(first, wrt=0)
    at = (np.asarray(0.7), np.asarray(3))
    step = 1e-5
    ahead, behind = (float(np.asarray(plica.interpret(first, 0.7 + d, 3))) for d in (step, -step))
    slope = float(np.asarray(plica.interpret(first, *at)))
    assert np.isclose(plica.compile(second)(*at), (ahead - behind) / (2 * step), rtol=1e-6)
    _, tangent = plica.interpret(plica.jvp(module), *at, 1.0)
    assert np.isclose(tangent, slope, rtol=1e-12)


CLOSURES_OVER_DATA = """
@plica.data
class T:
    A: (Tensor[(), f64],)
    B: (T, Tensor[(), f64], T)

@plica.function
def twice(
    f: Fn[(Tensor[(), f64],), Tensor[(), f64]], x: Tensor[(), f64]
) -> Tensor[(), f64]:
    return f(f(x) * 0.5)

@plica.function
def value(t: T, x: Tensor[(), f64], fuel: Tensor[(), i64]) -> Tensor[(), f64]:
    if fuel <= 0:
        return x
    else:
        match t:
            case A(a):
                return twice(lambda b: (b if x > 0.0 else b) * 0.08, (a - 0.5) * (x * a))
            case B(a, b, c):
                return twice(lambda d: twice(lambda e: x * e, value(c, b, fuel - 1)), x)

@plica.function
def main(t: T, x: Tensor[(), f64], n: Tensor[(), i64]) -> Tensor[(), f64]:
    return value(t, x, n)
"""


def test_gradients_of_closures_over_data_compile() -> None:
    module = source.read(CLOSURES_OVER_DATA)
    made = plica.grad(module, wrt=("t", "x"))
    leaf = build(module, "A", 0.3)
    tree = build(module, "B", leaf, 0.7, build(module, "B", leaf, -0.2, leaf))
    expected, found = plica.interpret(made, tree, 0.4, 3), plica.compile(made)(tree, 0.4, 3)
    assert np.isclose(expected[1], found[1], rtol=1e-12)
    step = 1e-6
    up, down = (float(plica.interpret(module, tree, 0.4 + d, 3)) for d in (step, -step))
    assert np.isclose(expected[1], (up - down) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "op.concat((x, x), axis=0)",
        "op.concat((x, x * x, x), axis=1)",
        "op.pad(x, pad_width=((1, 2), (0, 3)))",
    ],
)
def test_gradients_at_open_sizes(text: str) -> None:
    module = source.read(f"""
@plica.function
def main(x: Tensor[("n", "m"), f64]) -> Tensor[(), f64]:
    return op.sum(op.sin({text}))
""")
    made = plica.grad(module)
    x = np.random.default_rng(0).standard_normal((4, 3))
    way = np.ones_like(x)
    found = float(np.sum(plica.interpret(made, x) * way))
    step = 1e-6
    up, down = (float(plica.interpret(module, x + d * way)) for d in (step, -step))
    assert np.isclose(found, (up - down) / (2 * step), rtol=1e-6)
