"""Exported programs: names, dims, trees of inputs and outputs, types, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch  # it may be missing

import plica
from plica.frontend.torch.dtype import array_of
from plica.runtime.error import InputError, PlicaError, UnsupportedError
from tests.conftest import Golden

Dim = torch.export.Dim


class Model(torch.nn.Module):
    """A function as a module, with a buffer and a parameter."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run
        self.scale = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("seen", torch.zeros(3))
        self.register_buffer("unsaved", torch.ones(3), persistent=False)

    def forward(self, *args: Any, **named: Any) -> Any:
        return self.run(self, *args, **named)


def exported(run: Callable[..., Any], *args: Any, **options: Any) -> Any:
    return torch.export.export(Model(run).eval(), args, **options)


def refused(program: Any, **options: Any) -> PlicaError:
    with pytest.raises(PlicaError) as caught:
        plica.from_torch(program, **options)
    return caught.value


class Two(torch.nn.Module):
    def forward(self, left: Any, right: Any) -> Any:
        return {"sum": left + right, "rest": [left * 2, None, right.shape[1]]}


def two(**options: Any) -> Any:
    return torch.export.export(Two(), (torch.ones(4, 3), torch.ones(4, 3)), **options)


SHAPES = {name: {0: Dim("n", min=1, max=64), 1: 3} for name in ("left", "right")}


def test_symbolic_dims_are_dims_of_the_module(golden: Golden) -> None:
    golden(str(plica.from_torch(two(dynamic_shapes=SHAPES))))


def test_a_program_runs_at_several_sizes() -> None:
    program = two(dynamic_shapes=SHAPES)
    module = plica.from_torch(program)
    for size in (1, 5):
        x, y = (np.random.default_rng(at).random((size, 3), np.float32) for at in (0, 1))
        for run in (
            lambda a, b: plica.interpret(module, a, b),
            plica.compile(plica.from_torch(program, dims={"n": size})),
        ):
            total, double, width = run(x, y)
            np.testing.assert_array_equal(total, x + y)
            np.testing.assert_array_equal(double, x * 2)
            assert int(width) == 3


def test_sizes_are_computed_with() -> None:
    def run(model: Any, x: Any) -> Any:
        n = x.shape[0]
        wide = x.repeat(2, 1).reshape(n * 2, 3)[: n + 1]
        return wide + torch.arange(n + 1)[:, None], x.reshape(-1)

    program = exported(run, torch.ones(4, 3), dynamic_shapes=(({0: Dim("n", min=2)},),))
    module = plica.from_torch(program)
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    first, flat = plica.interpret(module, x)
    np.testing.assert_array_equal(first, np.tile(x, (2, 1))[:6] + np.arange(6)[:, None])
    np.testing.assert_array_equal(flat, x.reshape(-1))


def test_a_size_outside_of_what_was_exported_is_refused() -> None:
    error = refused(two(dynamic_shapes=SHAPES), dims={"n": 65})
    assert isinstance(error, InputError)
    assert error.code == "input-shape"
    assert error.diagnostics[0].expected == "from 1 to 64"


def test_a_size_for_a_dim_that_is_not_there_is_refused() -> None:
    assert refused(two(dynamic_shapes=SHAPES), dims={"m": 2}).code == "input-unknown"


@pytest.mark.parametrize("size", ["a", 2.5, True])
def test_a_size_that_is_no_number_is_refused(size: Any) -> None:
    assert refused(two(dynamic_shapes=SHAPES), dims={"n": size}).code == "input-type"


@pytest.mark.parametrize(("size", "expected"), [(1 << 63, "below"), (-1, "below"), (1, "from 2")])
def test_a_size_that_no_program_could_have_is_refused(size: int, expected: str) -> None:
    shapes = (({0: Dim("n", min=2)},),)
    program = exported(lambda model, x: x * 2, torch.ones(4, 3), dynamic_shapes=shapes)
    error = refused(program, dims={"n": size})
    assert error.code == "input-shape"
    assert expected in str(error.diagnostics[0].expected)


def test_inputs_by_name_and_in_trees() -> None:
    class Named(torch.nn.Module):
        def forward(self, pair: Any, *, shift: Any, flag: bool = True) -> Any:
            return pair["a"] * pair["b"] + (shift if flag else 0)

    pair = {"a": torch.ones(2), "b": torch.full((2,), 3.0)}
    program = torch.export.export(Named(), (pair,), {"shift": torch.ones(2)})
    module = plica.from_torch(program)
    names = [str(each.name) for each in module.main_function().params]
    assert names == ["pair_a", "pair_b", "shift"]
    found = plica.interpret(module, *[np.full(2, v, np.float32) for v in (2, 5, 1)])
    np.testing.assert_array_equal(found, [11.0, 11.0])


def test_types_of_inputs() -> None:
    names = ["float16", "bfloat16", "float64", "int32", "uint8", "bool", "int64"]
    given = [torch.tensor([0, 1, 1]).to(getattr(torch, name)) for name in names]
    program = exported(lambda model, *xs: [(x + x, x == 1) for x in xs], *given)
    found = plica.interpret(plica.from_torch(program), *[array_of(x) for x in given])
    for at, x in enumerate(given):
        np.testing.assert_array_equal(found[2 * at], array_of(x + x))
        assert found[2 * at].dtype == array_of(x).dtype
        np.testing.assert_array_equal(found[2 * at + 1], [False, True, True])


def test_stored_tensors_are_constants() -> None:
    def run(model: Any, x: Any) -> Any:
        return x * model.scale + model.seen + model.unsaved * torch.tensor(0.5)

    program = exported(run, torch.ones(3))
    module = plica.from_torch(program)
    assert len(module.main_function().params) == 1
    np.testing.assert_array_equal(plica.interpret(module, np.ones(3, np.float32)), [1.5, 2.5, 3.5])


def test_a_part_without_gradients_is_read_in_place() -> None:
    def run(model: Any, x: Any) -> Any:
        with torch.no_grad():
            y = x * 2
        return y + model.scale

    module = plica.from_torch(exported(run, torch.ones(3)))
    np.testing.assert_array_equal(plica.interpret(module, np.ones(3, np.float32)), [3, 4, 5])


def test_everything_that_is_missing_is_said_at_once() -> None:
    def run(model: Any, x: Any) -> Any:
        return torch.special.erfcx(x) + torch.i0(x) + torch.i0(x * 2)

    error = refused(exported(run, torch.ones(3)))
    assert isinstance(error, UnsupportedError)
    assert [each.found for each in error.diagnostics] == [
        "aten.special_erfcx.default",
        "aten.i0.default",
        "aten.i0.default",
    ]
    places = [each.place for each in error.diagnostics]
    assert [each.node for each in places if each] == ["special_erfcx", "i0", "i0_1"]
    assert all(each and each.file == __file__ and each.line for each in places)


def test_state_that_changes_is_refused() -> None:
    def run(model: Any, x: Any) -> Any:
        model.seen.add_(x)
        return x

    error = refused(exported(run, torch.ones(3)))
    assert "changes a buffer" in str(error)
    assert "seen" in str(error)


def test_an_input_that_changes_is_refused() -> None:
    def run(model: Any, x: Any) -> Any:
        return x.add_(1)

    assert "changes an input" in str(refused(exported(run, torch.ones(3))))


def test_complex_numbers_are_refused() -> None:
    x = torch.ones(3, dtype=torch.complex64)
    assert refused(exported(lambda model, x: x.abs(), x)).code == "unsupported"


def test_a_symbolic_size_as_an_output_is_a_number() -> None:
    program = exported(lambda model, x: (x, x.shape[0]), torch.ones(4),
                       dynamic_shapes=(((Dim("n"),),),))  # fmt: skip
    x, size = plica.interpret(plica.from_torch(program), np.ones(3, np.float32))
    assert np.shape(x) == (3,)
    assert int(size) == 3


def test_dims_that_are_no_mapping_are_refused() -> None:
    program = exported(lambda model, x: x + 1, torch.ones(4))
    with pytest.raises(InputError, match="gives a number for each name"):
        plica.from_torch(program, dims=3)  # type: ignore[arg-type]  # that is the point


def test_a_model_that_is_not_exported_is_refused() -> None:
    error = refused(torch.nn.ReLU())
    assert isinstance(error, InputError)
    assert "torch.export.export" in (error.diagnostics[0].suggestion or "")


def test_sizes_outside_the_range_of_a_dim_are_refused() -> None:
    def run(model: Any, x: Any) -> Any:
        return x * 2 if x.shape[0] >= 2 else x * 3

    shapes = (({0: Dim("n", min=2, max=8)},),)
    program = exported(run, torch.ones(3, 4), dynamic_shapes=shapes)
    module = plica.from_torch(program)
    for call in (plica.compile(module), lambda x: plica.interpret(module, x)):
        assert np.array_equal(call(np.ones((8, 4), np.float32)), np.full((8, 4), 2, np.float32))
        for size in (1, 9):
            with pytest.raises(plica.PlicaError, match="dim 'n' has a size") as caught:
                call(np.ones((size, 4), np.float32))
            assert caught.value.code == "input-shape"
            assert caught.value.diagnostics[0].expected == "from 2 to 8"


def test_the_range_of_a_derived_dim_is_kept() -> None:
    def run(model: Any, x: Any, y: Any) -> Any:
        return x + y[1:]

    n = Dim("n", min=3, max=9)
    shapes = (({0: n}, {0: n + 1}),)
    program = exported(run, torch.ones(4), torch.ones(5), dynamic_shapes=shapes)
    exe = plica.compile(plica.from_torch(program))
    x, y = np.ones(5, np.float32), np.ones(6, np.float32)
    assert np.array_equal(exe(x, y), x + y[1:])
    for bad in ((x, x), (x[:2], y[:3])):
        with pytest.raises(plica.PlicaError, match="input-shape"):
            exe(*bad)


@pytest.mark.parametrize("kind", ["scatter", "index_put"])
@pytest.mark.parametrize("at", [-5, -1, 3, 4])
def test_scattering_outside_is_refused_as_torch_refuses_it(kind: str, at: int) -> None:
    def run(model: Any, x: Any, places: Any) -> Any:
        if kind == "scatter":
            return torch.scatter(x, 0, places, 1.0)
        return torch.index_put(x, (places,), torch.ones(2))

    module = plica.from_torch(exported(run, torch.zeros(4), torch.tensor([0, 1])))
    x, places = np.zeros(4, np.float32), np.array([0, at])
    inside = (-4 if kind == "index_put" else 0) <= at < 4
    for call in (plica.compile(module), lambda *given: plica.interpret(module, *given)):
        if inside:
            wanted = run(None, torch.from_numpy(x), torch.from_numpy(places))
            np.testing.assert_array_equal(call(x, places), wanted.numpy())
        else:
            with pytest.raises(plica.PlicaError, match="index-out-of-bounds"):
                call(x, places)


def test_the_row_of_padding_has_no_gradient() -> None:
    def run(_: Model, weight: Any, places: Any) -> Any:
        rows = torch.nn.functional.embedding(places, weight, padding_idx=1)
        return torch.sin(rows).sum()

    weight = torch.linspace(-1, 1, 15).reshape(5, 3)
    places = torch.tensor([[0, 1], [3, 1]])
    asked = weight.clone().requires_grad_()
    run(Model(run), asked, places).backward()
    module = plica.from_torch(exported(run, weight, places))
    found = plica.interpret(plica.grad(module, wrt=0), weight.numpy(), places.numpy())
    np.testing.assert_allclose(found, np.asarray(asked.grad), rtol=1e-6)


def test_a_constant_table_needs_no_choice_of_rows() -> None:
    table = torch.nn.Embedding(5, 3, padding_idx=1).eval()
    module = plica.from_torch(torch.export.export(table, (torch.tensor([0, 1]),)))
    assert "where" not in str(module)


def test_the_gradient_of_a_norm_is_zero_at_zero() -> None:
    def run(_: Model, x: Any) -> Any:
        return torch.linalg.vector_norm(x, dim=1).sum()

    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    module = plica.from_torch(exported(run, x))
    found = plica.interpret(plica.grad(module), x.numpy())
    np.testing.assert_allclose(found, [[0.0, 0.0], [0.6, 0.8]], rtol=1e-6)
