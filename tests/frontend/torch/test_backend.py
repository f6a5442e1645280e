"""The backend of `torch.compile`: what is left to torch, sizes, strides, gradients, state."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch  # it may be missing
from torch._higher_order_ops import while_loop as loop_of_torch
from torch.fx.experimental import _config as symbolic_shapes

import plica
from plica.dynamo import TorchFallback, backend
from plica.frontend.torch.backend import TracedGraph
from plica.frontend.torch.dtype import array_of, tensor_of_array
from plica.frontend.torch.plan import TorchPart, device_of, plan
from plica.frontend.torch.symbol import Symbols
from plica.runtime.error import InputError
from plica.runtime.executable import Executable


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled(run: Callable[..., Any], **options: Any) -> Any:
    return torch.compile(run, backend="plica", **options)


def same(found: Any, wanted: Any) -> None:
    for mine, reference in zip(
        torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(wanted), strict=True
    ):
        assert (mine.dtype, mine.shape, mine.stride()) == (
            reference.dtype, reference.shape, reference.stride(),
        )  # fmt: skip
        torch.testing.assert_close(mine, reference)


@pytest.mark.filterwarnings("error::plica.dynamo.TorchFallback")
def test_types_and_strides_are_those_of_torch() -> None:
    def run(x: Any) -> Any:
        return (x.t() * 2, x.half() + 1, x.bfloat16() * 3, x > 0, (x * 9).long(), x.sum(0)[::2])

    x = torch.randn(3, 4)
    same(compiled(run)(x), run(x))
    same(compiled(run)(x.t().contiguous().t()), run(x.t().contiguous().t()))


def _scaled(x: Any) -> Any:
    return torch.nn.functional.pad(x * x.shape[0], (1, 1)).reshape(-1)


def _sums(x: Any, y: Any) -> Any:
    return x.cumsum(0) * y.sum(), y.flip(0) + x.amax()


def _step(query: Any, keys: Any, values: Any) -> Any:
    keys, values = torch.cat([keys, query]), torch.cat([values, query * 2])
    return torch.softmax(query @ keys.T, -1) @ values, keys, values


@pytest.mark.filterwarnings("error::plica.dynamo.TorchFallback")
@pytest.mark.parametrize(("run", "sizes", "compilations"), [
    (_scaled, [(3,), (5,), (3,), (7,), (9,)], 2),
    (_sums, [(3, 3), (5, 5), (4, 6), (6, 6), (2, 9)], 3),  # equal sizes turn out to be several
    (_step, [(1, 3, 3), (1, 4, 4), (1, 5, 5), (1, 6, 6)], 2),
])  # fmt: skip
def test_code_with_open_sizes_serves_all_but_the_first(
    run: Callable[..., Any], sizes: list[tuple[int, ...]], compilations: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    made: list[object] = []

    def counted(module: Any) -> Executable:
        made.append(module)
        return plica.compile(module)

    monkeypatch.setattr("plica.dynamo.compile_module", counted)
    code = compiled(run, dynamic=True)
    config: Any = symbolic_shapes  # Any: its methods are added when it is imported
    with config.patch(use_duck_shape=False):  # equal sizes have symbols of their own
        for each in sizes:
            inputs = [torch.randn(size, 4) for size in each]
            same(code(*inputs), run(*inputs))
    assert len(made) == compilations


def test_what_is_missing_is_left_to_torch_with_one_warning() -> None:
    def run(x: Any) -> Any:
        y = torch.i0(x.exp() + 1)
        return torch.sort(torch.special.erfcx(y * 2) + x, dim=0)[0] * 2 + torch.i0(x + 3)

    x = torch.linspace(1.0, 2.0, 5)
    with pytest.warns(TorchFallback) as caught:
        same(compiled(run)(x), run(x))
    (message,) = [str(each.message) for each in caught if each.category is TorchFallback]
    assert "aten.special_erfcx.default" in message
    assert "aten.i0.default" in message
    assert "aten.exp.default" not in message


def test_random_numbers_keep_their_order() -> None:
    def run(x: Any) -> Any:
        a = torch.rand(3)
        b = torch.nn.functional.dropout(x * a, 0.5)
        return b + torch.rand(3) * torch.exp(x)

    x = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TorchFallback)
        torch.manual_seed(5)
        wanted = run(x)
        code = compiled(run)
        code(x)
        torch.manual_seed(5)
        same(code(x), wanted)


def test_changed_inputs_are_changed() -> None:
    def run(x: Any, y: Any) -> Any:
        x.mul_(2)
        y[1] = 7
        return x + y

    ours, theirs = [torch.ones(3), torch.zeros(3)], [torch.ones(3), torch.zeros(3)]
    same(compiled(run)(*ours), run(*theirs))
    same(ours, theirs)


def test_views_of_inputs_share_their_memory() -> None:
    def run(x: Any) -> Any:
        return x.view(-1), x.t()[1:], x * 2

    x = torch.zeros(2, 3)
    flat, part, _ = compiled(run)(x)
    flat[0] = 5
    part[0, 0] = 7
    assert x[0].tolist() == [5, 7, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64])
def test_memory_is_shared_where_it_can_be(dtype: torch.dtype) -> None:
    x = torch.ones(2, 3, dtype=dtype)
    array = array_of(x)
    assert array.__array_interface__["data"][0] == x.data_ptr()
    assert tensor_of_array(array.copy()).dtype is dtype


def trained(model: torch.nn.Module, run: Any, x: torch.Tensor, steps: int = 3) -> list[Any]:
    """The losses of a few steps, and the parameters after them."""
    losses: list[Any] = []
    step = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        step.zero_grad()
        loss = (run(x) ** 2).mean()
        loss.backward()
        step.step()
        losses.append(loss.detach())
    return [*losses, *[each.detach() for each in model.parameters()]]


@pytest.mark.filterwarnings("error::plica.dynamo.TorchFallback")
@pytest.mark.parametrize("freeze", [False, True])
def test_training_is_compiled_forwards_and_backwards(freeze: bool) -> None:
    torch.manual_seed(0)
    layers = torch.nn.Linear(3, 8), torch.nn.GELU(), torch.nn.Linear(8, 5), torch.nn.LayerNorm(5)
    model: Any = torch.nn.Sequential(*layers)
    other = copy.deepcopy(model)
    x = torch.randn(4, 3)
    mine = trained(model, compiled(model, options={"freeze": freeze}), x)
    for found, wanted in zip(mine, trained(other, other, x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("error::plica.dynamo.TorchFallback")
@pytest.mark.parametrize("causal", [True, False])
def test_attention_has_the_slopes_of_torch(causal: bool) -> None:
    def attend(*given: Any) -> Any:
        mask = None if causal else torch.ones(5, 5).tril(1).bool()
        query, key, value = given
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=causal
        )

    given = [torch.randn(2, 3, 5, 4, requires_grad=True) for _ in range(3)]
    slope = torch.randn(2, 3, 5, 4)
    found, wanted = (run(*given) for run in (compiled(attend), attend))
    torch.testing.assert_close(found, wanted)
    slopes = [torch.autograd.grad((each * slope).sum(), given) for each in (found, wanted)]
    for mine, reference in zip(*slopes, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-5)


def test_gradients_of_what_is_left_to_torch_are_right() -> None:
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(2, 4, 2), torch.nn.BatchNorm2d(4), torch.nn.MaxPool2d(2)
    model: Any = torch.nn.Sequential(*layers, torch.nn.Conv2d(4, 3, 2), torch.nn.Flatten())
    other = copy.deepcopy(model)
    x = torch.randn(3, 2, 7, 7)
    with pytest.warns(TorchFallback, match="max_pool2d_with_indices_backward"):
        mine = trained(model, compiled(model), x, 2)
    for found, wanted in zip(mine, trained(other, other, x, 2), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


while_loop: Any = loop_of_torch  # torch says nothing of its types


def chosen(x: torch.Tensor, y: torch.Tensor) -> Any:
    def inner(v: torch.Tensor, w: torch.Tensor) -> Any:
        return torch.cond(
            w.sum() > 1, lambda a, b: (a * 2, b.exp()), lambda a, b: (a - 1, b + a), (v, w)
        )

    return torch.cond(x.sum() > 0, inner, lambda v, w: (v.sin(), v + w), (x, y))


def repeated(x: torch.Tensor, y: torch.Tensor) -> Any:
    def inner(v: torch.Tensor) -> Any:
        again = while_loop(lambda k, u: k < 2, lambda k, u: (k + 1, u * 1.5), (v[0, 0] * 0, v))
        return again[1]

    def test(i: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (i < 3) & (v.sum() < 50)

    return while_loop(test, lambda i, v: (i + 1, inner(v) + y), (torch.tensor(0), x))


CONTROL = [(chosen, signs) for signs in ((1, 1), (-1, 1))] + [(repeated, (1, 1))]


@pytest.mark.filterwarnings("error::plica.dynamo.TorchFallback")
@pytest.mark.parametrize(("run", "signs"), CONTROL)
def test_choices_and_loops_are_compiled(run: Any, signs: tuple[int, int]) -> None:
    x, y = (sign * torch.rand(2, 3) for sign in signs)
    for found, wanted in zip(compiled(run)(x, y), run(x, y), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("run", [chosen, repeated])
def test_choices_and_loops_are_read_from_a_program(run: Any) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return run(x, y)

    x, y = torch.rand(2, 3), torch.rand(2, 3)
    exe = plica.compile(plica.from_torch(torch.export.export(Model(), (x, y))), cache=False)
    for sign in (1, -1):
        found = exe((sign * x).numpy(), y.numpy())
        for mine, wanted in zip(found, run(sign * x, y), strict=True):
            torch.testing.assert_close(torch.from_numpy(np.asarray(mine)), wanted)


@pytest.mark.filterwarnings("error::plica.dynamo.TorchFallback")
@pytest.mark.parametrize("freeze", [False, True])
def test_parameters_may_change(freeze: bool) -> None:
    model: Any = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).eval()
    code = compiled(model, options={"freeze": freeze})
    x = torch.randn(4, 3)
    with torch.no_grad():
        same(code(x), model(x))
        model[0].weight.mul_(2)
        same(code(x), model(x))
        model[1].running_mean.add_(1)
        same(code(x), model(x))
        model[0].bias.data = torch.ones(2)
        same(code(x), model(x))


def test_an_option_that_is_not_there_is_refused() -> None:
    graph = torch.fx.symbolic_trace(torch.nn.ReLU())
    with pytest.raises(InputError):
        backend(graph, [torch.ones(2)], options={"melt": True})
    with pytest.raises(InputError, match="True or False"):
        backend(graph, [torch.ones(2)], options={"freeze": "yes"})
    with pytest.raises(InputError):
        backend(graph, [torch.ones(2)], mode="max-autotune")


def _replaced(model: Any) -> None:
    model[0].weight = torch.nn.Parameter(torch.randn(3, 4))


def _assigned(model: Any) -> None:
    model.load_state_dict({name: each + 1 for name, each in model.state_dict().items()},
                          assign=True)  # fmt: skip


def _written(model: Any) -> None:
    model[0].weight.mul_(3)


def _moved(model: Any) -> None:
    model.double().float()
    model[0].weight.add_(1)


@pytest.mark.parametrize("change", [_replaced, _assigned, _written, _moved])
@pytest.mark.filterwarnings("ignore::plica.dynamo.TorchFallback")
def test_frozen_parameters_may_be_replaced(change: Callable[[Any], None]) -> None:
    class Odd(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.special.erfcx(x * x + 1)  # which is left to torch

    class Doubled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.rand(3) + 1)

        def forward(self, x: Any) -> Any:
            return x * torch.special.erfcx(self.scale)  # a parameter that torch itself reads

    model = torch.nn.Sequential(torch.nn.Linear(4, 3), Odd(), Doubled()).eval()
    code = compiled(model, options={"freeze": True})
    x = torch.randn(2, 4)
    with torch.no_grad():
        same(code(x), model(x))
        change(model)
        same(code(x), model(x))
        _written(model)
        same(code(x), model(x))


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x[0, 0].expand(3),
        lambda x: (x[:, :1] + 1).expand(3, 4),
        lambda x: (x + 1).expand(2, 3, 4),
        lambda x: (x * 2).unfold(1, 2, 1),
        lambda x: torch.special.i0e((x[:, :1] * 2).expand(3, 4)),
    ],
)
@pytest.mark.filterwarnings("ignore::plica.dynamo.TorchFallback")
def test_what_is_repeated_has_no_stride(run: Callable[[Any], Any]) -> None:
    x = torch.randn(3, 4)
    with torch.no_grad():
        same(compiled(run)(x), run(x))


@pytest.mark.filterwarnings("error::plica.dynamo.TorchFallback")
def test_results_that_are_views_of_one_another_share_their_memory() -> None:
    def run(x: Any) -> Any:
        y = x * 2
        flat = y.view(-1)
        return y, flat, y[1:].t(), flat.sum() + x, y.split(2)[0]

    x = torch.ones(3, 4)
    with torch.no_grad():
        found, wanted = compiled(run)(x), run(x)
        same(found, wanted)
        for each in (found, wanted):
            each[0].zero_()
        same(found, wanted)


def test_what_lies_elsewhere_is_left_to_torch() -> None:
    graph = torch.fx.Graph()
    aten = torch.ops.aten
    x = graph.placeholder("x")
    here = graph.call_function(aten.exp.default, (x,))
    there = graph.call_function(aten._to_copy.default, (here,), {"device": "meta"})
    last = graph.call_function(aten.exp.default, (there,))
    graph.output((last,))
    for node, device in ((x, "cpu"), (here, "cpu"), (there, "meta"), (last, "meta")):
        node.meta["val"] = torch.empty(3, device=device)
    root = torch.fx.GraphModule(torch.nn.Module(), graph)
    assert device_of(root) == "cpu"
    found = plan(root, Symbols({}, {}))
    part, *rest = found.steps
    assert isinstance(part, TorchPart)
    assert part.nodes == (here,)
    assert rest == [there, last]
    assert all("it has to do with meta, not with cpu alone" in e.message for e in found.refused)


def divided(monkeypatch: pytest.MonkeyPatch) -> list[TracedGraph]:
    """The graphs that are made from now on."""
    made: list[TracedGraph] = []
    begin = TracedGraph.__init__

    def noted(self: TracedGraph, *args: Any) -> None:
        begin(self, *args)
        made.append(self)

    monkeypatch.setattr(TracedGraph, "__init__", noted)
    return made


def test_views_that_nobody_shares_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(x: Any) -> Any:
        y, z = x * 2, x + 1
        return y.view(-1), z.view(4, 3), z.t(), (x - 1)[1:], (x * 3).t()

    made, x = divided(monkeypatch), torch.randn(3, 4)
    with torch.no_grad():
        found, wanted = compiled(run)(x), run(x)
        same(found, wanted)
        for each in (found, wanted):
            each[1].zero_()
        same(found, wanted)
    assert made[0]._plan is not None
    left = [step for step in made[0]._plan.steps if not isinstance(step, TorchPart)]
    assert len(left) == 4  # what is shared, a part, and what has other strides


def test_slopes_of_weights_are_no_transposes_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = torch.nn.Linear(4, 3)
    made, x = divided(monkeypatch), torch.randn(5, 4)
    compiled(layer)(x).square().sum().backward()
    found = [each.grad for each in layer.parameters()]
    layer.zero_grad()
    layer(x).square().sum().backward()
    same(found, [each.grad for each in layer.parameters()])
    assert made[-1]._plan is not None
    assert all(isinstance(step, TorchPart) for step in made[-1]._plan.steps)


@pytest.mark.filterwarnings("ignore::plica.dynamo.TorchFallback")
def test_what_torch_computes_it_views(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(x: Any) -> Any:
        return torch.linalg.matrix_exp(x * 2).view(-1)

    made, x = divided(monkeypatch), torch.randn(3, 3)
    with torch.no_grad():
        same(compiled(run)(x), run(x))
    assert made[0]._plan is not None
    assert [isinstance(step, TorchPart) for step in made[0]._plan.steps] == [True, False, False]


def test_tensors_that_lie_anyhow_are_read() -> None:
    def run(*given: Any) -> Any:
        return [x * 2 for x in given]

    odd = torch.frombuffer(bytearray(np.arange(7, dtype=np.float32).tobytes()), dtype=torch.uint8)
    given = [
        torch.randn(4, 6)[1:, ::2],
        torch.randn(9)[1:],
        torch.zeros(0, 3),
        torch.randn(3, dtype=torch.complex64).conj().imag,
        torch.tensor(2.5),
        torch.randn(3, 4).to(torch.bfloat16).t(),
        odd[4:].view(torch.float32),
        torch.arange(5)[::2],
        torch.randn(1, 4).expand(3, 4),
    ]
    with torch.no_grad():
        made = compiled(run)
        for _ in range(2):
            found = made(*given)
            for mine, reference in zip(found, run(*given), strict=True):
                assert mine.dtype == reference.dtype
                torch.testing.assert_close(mine, reference)


@pytest.mark.filterwarnings("ignore::plica.dynamo.TorchFallback")
def test_what_a_later_part_reads_is_computed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(x: Any, y: Any) -> Any:
        is_small, total = y.abs() < 0.5, (x * y).sum(0)
        left = torch.linalg.matrix_exp(x * 2)
        return torch.where(is_small, left, 0.0) + total

    made = divided(monkeypatch)
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    with torch.no_grad():
        same([compiled(run)(x, y)], [run(x, y)])
    assert made[0]._plan is not None
    first, _, last = made[0]._plan.steps
    assert isinstance(first, TorchPart)
    assert isinstance(last, TorchPart)
    assert [str(each.target) for each in first.nodes] == ["aten.mul.Tensor"]
    assert len(last.inputs) == 3  # x, y and what torch has computed


def test_what_would_take_more_bytes_is_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(x: Any) -> Any:
        y = torch.tanh(x)
        return torch.linalg.matrix_exp(y) + (y * y).sum()

    made, x = divided(monkeypatch), torch.randn(3, 3)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", TorchFallback)
        same([compiled(run)(x)], [run(x)])
    assert made[0]._plan is not None
    first = made[0]._plan.steps[0]
    assert isinstance(first, TorchPart)
    assert [tuple(each.meta["val"].shape) for each in first.outputs] == [(3, 3), ()]


@pytest.mark.filterwarnings("error::plica.dynamo.TorchFallback")
@pytest.mark.parametrize("momentum", [0.1, None])
def test_norms_of_a_batch_are_trained(momentum: float | None) -> None:
    def norm() -> Any:
        torch.manual_seed(5)
        made = torch.nn.BatchNorm2d(3, momentum=momentum)
        torch.nn.init.uniform_(made.weight)
        return made

    mine, exact = norm(), norm().double()
    run = compiled(lambda x: torch.tanh(mine(x * 2)))
    for turn in range(2):
        x = torch.randn(4, 3, 5, 2) + turn
        run(x).square().sum().backward()
        wanted: Any = torch.tanh(exact(x.double() * 2))
        wanted.square().sum().backward()
    for one, other in zip(mine.parameters(), exact.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad.float(), rtol=1e-4, atol=1e-5)
    for one, other in zip(mine.buffers(), exact.buffers(), strict=True):
        torch.testing.assert_close(one, other.to(one.dtype))


@pytest.mark.parametrize("neg", [False, True])
def test_axes_in_another_order_are_read_as_they_lie(
    monkeypatch: pytest.MonkeyPatch, neg: bool
) -> None:
    given: list[list[int]] = []
    run = Executable.run

    def noted(self: Executable, addresses: Any) -> None:
        given.append(list(addresses))
        run(self, addresses)

    def sums(*every: Any) -> Any:
        return [(each * 2).sum(-1) for each in every]

    monkeypatch.setattr(Executable, "run", noted)
    image = torch.randn(2, 3, 4, 5)
    every = [
        image.to(memory_format=torch.channels_last),
        torch.randn(4, 3).t(),
        torch.randn(2, 1, 4).permute(2, 1, 0),
        torch.randn(3, 2, 5).permute(1, 2, 0),
    ]
    if neg:
        every[1] = torch._neg_view(every[1])
    with torch.no_grad():
        made = compiled(sums)
        for _ in range(2):
            same(made(*every), sums(*every))
        placed = [each.data_ptr() in given[-1] for each in every]
        assert placed == [True, not neg, True, True]
