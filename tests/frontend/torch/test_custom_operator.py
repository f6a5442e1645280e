"""Operators of `torch.library` inside compiled modules: values, gradients, refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plica

torch = pytest.importorskip("torch")

LIBRARY = torch.library.Library("plica_test", "DEF")


def defined(schema: str, run: Callable[..., Any], fake: Callable[..., Any] | None) -> None:
    """An operator of a library, with a fake implementation."""
    LIBRARY.define(schema)
    name = schema.partition("(")[0]
    LIBRARY.impl(name, run, "CPU")
    if fake is not None:
        torch.library.register_fake(f"plica_test::{name}", fake, lib=LIBRARY)


def like(x: Any, *rest: Any, **named: Any) -> Any:
    return torch.empty_like(x)


def kept(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.inputs = inputs


def wave_backward(context: Any, cotangent: Any) -> Any:
    x, factor = context.inputs
    return cotangent * torch.cos(x * factor) * factor, None


def pair_backward(context: Any, by_sum: Any, by_counts: Any, by_product: Any) -> Any:
    x, y, _ = context.inputs
    return by_sum + by_product * y, by_sum + by_product * x, None


defined(
    "wave(Tensor x, float factor=2.0) -> Tensor", lambda x, factor=2.0: torch.sin(x * factor), like
)
torch.library.register_autograd(
    "plica_test::wave", wave_backward, setup_context=kept, lib=LIBRARY
)  # fmt: skip
defined(
    "pair(Tensor x, Tensor y, Tensor index) -> (Tensor, Tensor, Tensor)",
    lambda x, y, index: (x + y, index + 1, x * y),
    lambda x, y, index: (torch.empty_like(x), torch.empty_like(index), torch.empty_like(x)),
)
torch.library.register_autograd(
    "plica_test::pair", pair_backward, setup_context=kept, lib=LIBRARY
)  # fmt: skip
defined(
    "mixed(Tensor[] xs, Tensor? bias, int[] sizes, str mode, ScalarType dtype) -> Tensor",
    lambda xs, bias, sizes, mode, dtype: (
        (sum(xs) if mode == "sum" else xs[0]) * sizes[1] + (0 if bias is None else bias)
    ).to(dtype),
    lambda xs, bias, sizes, mode, dtype: torch.empty_like(xs[0], dtype=dtype),
)
defined("rows(Tensor x) -> Tensor", lambda x: x[x > 0], None)
defined("scale_(Tensor(a!) x) -> ()", lambda x: x.mul_(2), lambda x: None)
defined("extent(Tensor x) -> Tensor[]", lambda x: [x + 1, x - 1], lambda x: [like(x), like(x)])

wave, pair, mixed = (getattr(torch.ops.plica_test, each) for each in ("wave", "pair", "mixed"))


class Model(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be missing
    def __init__(self, body: Callable[..., Any]) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)
        self.body = body

    def forward(self, *given: Any) -> Any:
        return self.body(*given)


def compared(body: Callable[..., Any], *given: Any) -> Model:
    """A model whose compiled and interpreted values are torch's."""
    model = Model(body).eval()
    expected = model(*given)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    module = plica.from_torch(torch.export.export(model, given))
    arrays = [each.numpy() if each.dtype != torch.bfloat16 else each for each in given]
    results = [plica.compile(model)(*given)]
    if torch.bfloat16 not in {each.dtype for each in given}:
        results += [plica.interpret(plica.from_text(str(module)), *arrays)]
    for found in results:
        listed = found if isinstance(found, tuple | list) else (found,)
        for one, two in zip(listed, wanted, strict=True):
            plain = two.detach().float().numpy()
            np.testing.assert_allclose(np.asarray(one).astype(np.float32), plain, 1e-5, 1e-5)
    return model


X, Y = torch.linspace(-2, 2, 12).reshape(4, 3), torch.linspace(1, 3, 12).reshape(4, 3)
INDEX = torch.arange(12).reshape(4, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_arguments_that_are_no_tensors_are_static(dtype: Any) -> None:
    compared(lambda x: wave(x * 2) + wave(x, factor=0.5) - wave(x.sum(), 1.0), X.to(dtype))


def test_several_results_lists_and_absent_tensors() -> None:
    compared(pair, X, Y, INDEX)
    compared(lambda x: tuple(torch.ops.plica_test.extent(x)), X)
    compared(
        lambda x, y: mixed([x, y], None, [1, 3], "sum", torch.float64)
        + mixed([x], y, [1, 2], "first", torch.float64),
        X, Y,
    )  # fmt: skip


def test_open_sizes_and_branches() -> None:
    model = Model(lambda x: torch.cond(x.sum() > 0, wave, lambda x: x * 2, (x,)))
    n = torch.export.Dim("n", min=1)
    module = plica.from_torch(torch.export.export(model.eval(), (X,), dynamic_shapes=(({0: n},),)))
    exe = plica.compile(module)
    for x in (X[:1], Y):
        np.testing.assert_allclose(exe(x.numpy()), model(x).numpy(), 1e-5, 1e-6)


@pytest.mark.parametrize("body", [
    lambda self, x: wave(wave(self(x)).square(), 0.5).sum(),
    lambda self, x: sum(each.float().sum() for each in pair(wave(x), x * x, INDEX)),
    lambda self, x: pair(x, Y, INDEX)[2].sum(),
], ids=["one", "several", "part"])  # fmt: skip
def test_gradients_are_those_of_the_registered_formula(body: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 4)
    model = Model(lambda x: body(layer, x))
    module = plica.from_torch(torch.export.export(model.eval(), (X,)))
    value, found = plica.compile(plica.value_and_grad(module, wrt=0))(X.numpy())
    x = X.clone().requires_grad_()
    expected = model(x)
    expected.backward()
    np.testing.assert_allclose(np.asarray(value), expected.detach().numpy(), 1e-5)
    np.testing.assert_allclose(np.asarray(found), x.grad.numpy(), 1e-4, 1e-5)


def test_what_has_no_formula_has_no_gradient() -> None:
    model = Model(lambda x: mixed([x], None, [1, 2], "sum", torch.float32).sum())
    module = plica.from_torch(torch.export.export(model.eval(), (X,)))
    with pytest.raises(plica.UnsupportedError, match="declares no gradient"):
        plica.grad(module)


@pytest.mark.parametrize(("body", "message"), [
    (torch.ops.plica_test.rows, "no fake implementation"),
    (lambda x: [each := x * 1, torch.ops.plica_test.scale_(each), each][2], "writes to its arg"),
    (lambda x: wave(x.to(torch.complex64)).real, "complex numbers"),
], ids=["fake", "write", "complex"])  # fmt: skip
def test_refused(body: Callable[..., Any], message: str) -> None:
    with pytest.raises(plica.UnsupportedError, match=message):
        plica.compile(Model(body).eval())(X)


def test_an_operator_that_is_not_here_is_refused() -> None:
    module = plica.from_torch(torch.export.export(Model(wave).eval(), (X,)))
    elsewhere = plica.from_text(str(module).replace("3awave", "3anone"))
    with pytest.raises(plica.UnsupportedError, match="Nothing serves the extern"):
        plica.compile(elsewhere)


def test_a_model_with_one_is_not_saved(tmp_path: Path) -> None:
    exe = plica.compile(Model(wave).eval()).at(X)
    with pytest.raises(plica.UnsupportedError, match="calls Python functions"):
        exe.save(tmp_path / "m.plica")
