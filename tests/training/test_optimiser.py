"""Optimisers: what each does to numbers, at any shape, and which rules are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pytest
from hypothesis import given, strategies as st

import plica
from plica.core.name import Name
from plica.ir.graph.expression import Function, Project, Var
from plica.ir.graph.module import main_module
from plica.ir.op.reduction import sum_
from plica.ir.type.term import TupleType, tensor
from plica.training import Optimiser, adafactor, adam, adamw, momentum, muon, optimiser, sgd, step
from plica.training.tensor_rule import orthogonal
from tests.scripts import update

Array: TypeAlias = np.ndarray[Any, Any]  # Any: of f32 or f64
Numbers: TypeAlias = list[Any]


def by_sgd(w: Array, slopes: Sequence[Array]) -> Numbers:
    for g in slopes:
        w = w - 0.1 * g
    return [w]


def by_momentum(w: Array, slopes: Sequence[Array]) -> Numbers:
    v = np.zeros_like(w)
    for g in slopes:
        v = 0.9 * v + g
        w = w - 0.1 * v
    return [w, v]


def by_adam(w: Array, slopes: Sequence[Array]) -> Numbers:
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(slopes, 1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return [w, m, v]


# fmt: off
KINDS: Final[dict[str, tuple[Optimiser, Callable[[Array, Sequence[Array]], Numbers]]]] = {
    "sgd":       (sgd(0.1),       by_sgd),
    "momentum":  (momentum(0.1),  by_momentum),
    "adam":      (adam(0.1),      by_adam),
}
# fmt: on


def sloping(shape: tuple[int, ...], dtype: str) -> Function:
    """A loss whose slope is an input."""
    w, g = (Var(Name(each), tensor(shape, dtype)) for each in "wg")
    return Function((), (), (w, g), None, sum_(w * g))


@pytest.mark.parametrize("kind", KINDS)
@given(
    shape=st.sampled_from([(), (1,), (3,), (2, 3), (0,), (2, 1, 2)]),
    dtype=st.sampled_from(["f32", "f64"]),
    steps=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_steps_are_what_numpy_says(
    kind: str, shape: tuple[int, ...], dtype: str, steps: int, seed: int
) -> None:
    way, reference = KINDS[kind]
    made = step(sloping(shape, dtype), way, "w").module
    random = np.random.default_rng(seed)
    kept = np.float32 if dtype == "f32" else np.float64
    w, *slopes = random.uniform(-2, 2, (1 + steps, *shape)).astype(kept)
    wanted = reference(w.astype(np.float64), [each.astype(np.float64) for each in slopes])
    weights = (w,)
    slots = tuple([np.zeros_like(w) for _ in way.slots])
    memory: tuple[Any, ...] = (np.float32(0), slots) if way.counts else (slots,) if slots else ()
    for g in slopes:
        loss, weights, memory = plica.interpret(made, weights, memory, g)
        assert np.asarray(loss).shape == ()
    found = [weights[0], *(memory[-1] if slots else ())]
    for mine, right in zip(found, wanted, strict=True):
        assert np.asarray(mine).dtype == kept
        # The beginning of Adam divides by numbers of f32 near 0.
        np.testing.assert_allclose(mine, right, rtol=2e-4, atol=1e-5)


# fmt: off
OF_TENSORS: Final[dict[str, Optimiser]] = {
    "adamw":     adamw(0.1, decay=0.2),
    "adafactor": adafactor(0.1),
    "muon":      muon(0.1, decay=0.2),
}
# fmt: on


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4,)])
@pytest.mark.parametrize("kind", [*KINDS, *OF_TENSORS])
def test_compiled_steps_are_those_of_torch(kind: str, shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    matrix = len(shape) == 2
    ways = {
        "adamw": lambda w: torch.optim.AdamW([w], lr=0.1, weight_decay=0.2),
        "adafactor": lambda w: torch.optim.Adafactor([w], lr=0.1),
        "muon": lambda w: (
            torch.optim.Muon([w], lr=0.1, weight_decay=0.2)
            if matrix
            else torch.optim.AdamW([w], lr=0.1, weight_decay=0.2)
        ),
        "sgd": lambda w: torch.optim.SGD([w], lr=0.1),
        "momentum": lambda w: torch.optim.SGD([w], lr=0.1, momentum=0.9),
        "adam": lambda w: torch.optim.Adam([w], lr=0.1),
    }
    random = np.random.default_rng(1)
    start = random.standard_normal(shape).astype(np.float32)
    own = OF_TENSORS[kind] if kind in OF_TENSORS else KINDS[kind][0]
    train = plica.training.trainer(sloping(shape, "f32"), own, wrt="w")
    state = train.start(w=start)
    theirs = torch.tensor(start, requires_grad=True)
    way = ways[kind](theirs)
    for _ in range(6):
        g = random.standard_normal(shape).astype(np.float32)
        loss, state = train(state, g)
        way.zero_grad()
        wanted = (theirs * torch.from_numpy(g)).sum()
        wanted.backward()
        way.step()
        # Muon of torch orthogonalises in bf16.
        close = 1e-2 if kind == "muon" and matrix else 1e-5
        np.testing.assert_allclose(loss, wanted.detach().numpy(), rtol=1e-4, atol=10 * close)
        np.testing.assert_allclose(state["w"], theirs.detach().numpy(), rtol=1e-4, atol=close)


def test_orthogonal_brings_singular_values_near_one() -> None:
    for shape in ((6, 4), (4, 6)):
        x = Var(Name("x"), tensor(shape, "f64"))
        module = main_module(Function((), (), (x,), None, orthogonal(x, shape)))
        found = plica.interpret(module, np.random.default_rng(0).standard_normal(shape))
        values = np.linalg.svd(found, compute_uv=False)
        assert (values > 0.6).all()
        assert (values < 1.3).all()


def test_a_rule_of_ones_own() -> None:
    way = optimiser(update.signed, slots=("last",), rate=0.5)
    assert way.open == ("pull",)
    made = step(sloping((2,), "f32"), way, "w").module
    w, g = np.array([1, -1], np.float32), np.array([3, 0], np.float32)
    _, (moved,), ((kept,),) = plica.interpret(made, (w,), ((w,),), g, np.float32(0.25))
    np.testing.assert_array_equal(kept, g)
    np.testing.assert_array_equal(moved, [1 - 0.5 - 0.25 * 1, -1 + 0.25])


def test_a_setting_that_is_none_is_an_input() -> None:
    made = step(sloping((), "f64"), sgd(rate=None), "w").module
    for rate in (0.5, 2.0):
        _, (moved,), _ = plica.interpret(made, (1.0,), (), 3.0, np.float32(rate))
        assert moved == 1 - 3 * rate


def refusal(run: Callable[[], object]) -> str:
    with pytest.raises(plica.InputError) as found:
        run()
    assert found.value.code == "bad-optimiser"
    return str(found.value)


Settings: TypeAlias = dict[str, Any]  # Any: what `optimiser` takes

# fmt: off
REFUSED: Final[dict[str, tuple[Any, Settings, str]]] = {  # Any: a script
    "a setting it has not":      (update.signed,     {"puls": 1.0},         "Did you mean 'pull'?"),
    "memory elsewhere":          (update.signed,     {"slots": ("rate",)},  "does not follow"),
    "a rule for matrices":       (update.matrix,     {},                    "single numbers"),
    "a rule that loses memory":  (update.forgetful,  {"slots": ("v",)},     "2 floats of rank 0"),
    "a rule without a slope":    (update.alone,      {},                    "a weight and a slope"),
}
# fmt: on


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_no_rule_is_refused(reason: str) -> None:
    rule, settings, words = REFUSED[reason]
    assert words in refusal(lambda: optimiser(rule, **settings))


def test_weights_that_are_no_tensors_are_refused() -> None:
    pair = Var(Name("pair"), TupleType((tensor((2,), "f32"), tensor((2,), "f32"))))
    loss = Function((), (), (pair,), None, sum_(Project(pair, 0)))
    assert "pair is not a tensor" in refusal(lambda: step(loss, sgd()))


def test_names_that_a_step_needs_are_refused() -> None:
    w, rate = (Var(Name(each), tensor((), "f32")) for each in ("w", "rate"))
    loss = Function((), (), (w, rate), None, w * rate)
    assert "'rate', which a step has too" in refusal(lambda: step(loss, sgd(None), "w"))
    assert step(loss, sgd(0.1), "w").weights[0][0] == "w"


def test_optimisers_say_what_they_are() -> None:
    assert repr(adam(rate=None)) == "Optimiser(adam, first=0.9, second=0.999, small=1e-08, rate)"
