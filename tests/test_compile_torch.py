"""`plica.compile` of what torch has: modules, and programs that it exported."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plica
from plica.runtime.selecting_executable import SelectingExecutable

torch = pytest.importorskip("torch")

from tests.frontend.torch.test_module_state import interpreted  # noqa: E402  # torch is there


def network() -> Any:
    torch.manual_seed(0)
    layers = torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
    return torch.nn.Sequential(*layers).eval()


class Named(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be missing
    def forward(self, x: Any, scale: Any) -> Any:
        return torch.tanh(x) * scale, x


def test_a_module_is_exported_when_it_is_called(tmp_path: Path) -> None:
    model = network()
    exe = plica.compile(model)
    for rows in (2, 5, 2):
        x = torch.randn(rows, 6)
        expected = model(x).detach().numpy()
        np.testing.assert_allclose(np.asarray(exe(x.numpy())), expected, 1e-4, 1e-5)
        np.testing.assert_allclose(np.asarray(exe(x)), expected, 1e-4, 1e-5)
    assert (exe.stats.calls, exe.stats.compilations) == (6, 2)
    assert repr(exe) == "<Torch Sequential, 2 compiled>"
    exe.at(x).save(tmp_path / "m.plica")
    loaded = plica.load(tmp_path / "m.plica")
    np.testing.assert_allclose(np.asarray(loaded(x.numpy())), expected, 1e-4, 1e-5)
    assert exe.profile(x, runs=1).rows


def test_inputs_by_name_and_several_results() -> None:
    exe = plica.compile(Named().eval())
    x, scale = torch.randn(3), torch.tensor(2.0)
    one, two = exe(x, scale=scale)
    np.testing.assert_allclose(np.asarray(one), (torch.tanh(x) * 2).numpy(), 1e-5)
    assert np.array_equal(np.asarray(two), x.numpy())


def test_an_exported_program_has_one_code_for_all_sizes() -> None:
    model = network()
    batch = torch.export.Dim("batch")
    program = torch.export.export(model, (torch.randn(2, 6),), dynamic_shapes=({0: batch},))
    exe = plica.compile(program)
    for rows in (1, 4):
        x = torch.randn(rows, 6)
        np.testing.assert_allclose(
            np.asarray(exe(x.numpy())), model(x).detach().numpy(), 1e-4, 1e-5
        )
    assert exe.stats.compilations <= 1


def test_a_program_in_the_background() -> None:
    program = torch.export.export(network(), (torch.randn(2, 6),))
    exe = plica.compile(program, background=True)
    assert isinstance(exe, SelectingExecutable)
    assert exe.wait().tier == "default"


def test_a_module_in_training_is_refused() -> None:
    with pytest.raises(plica.UnsupportedError, match="in training"):
        plica.compile(network().train())


@pytest.mark.parametrize("ask", ["inputs", "outputs", "artefact", "source"])
def test_what_is_not_known_before_a_call_is_refused(ask: str) -> None:
    exe = plica.compile(network())
    with pytest.raises(plica.UnsupportedError, match="when it is called"):
        getattr(exe, ask)()


def test_a_module_offers_what_its_executables_do() -> None:
    exe: Any = plica.compile(network())  # Any: what GPUs have is not on every executable
    x = torch.randn(2, 6)
    asks: list[Callable[[], Any]] = [
        lambda: exe.target, lambda: exe.run([0, 0]), lambda: exe.save("no.plica"),
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(plica.UnsupportedError, match="when it is called"):
            ask()
    assert "effort" in exe._repr_html_()
    with pytest.raises(plica.UnsupportedError, match=r"(?s)known of GPUs.*exe.profile"):
        exe.seconds(x)
    assert exe.target == exe.at(x).target
    assert "compiled" in exe._repr_html_()
    with pytest.raises(plica.InputError, match="no input 'stream'"):  # as of any processor's
        exe(x, stream=0)
    emulated: Any = plica.compile(network(), target="cuda-emulator")
    with pytest.raises(plica.UnsupportedError, match="stands for"):
        emulated.seconds(x)


class Streamed(torch.nn.Module):  # type: ignore[misc, name-defined]  # as above
    """A module one of whose inputs has the name of an option."""

    def forward(self, x: Any, stream: Any) -> Any:
        return x + stream


def test_an_input_may_have_the_name_of_an_option() -> None:
    x = torch.arange(6.0)
    np.testing.assert_array_equal(plica.compile(Streamed().eval())(x, stream=x), 2 * x.numpy())


class Product(torch.nn.Module):  # type: ignore[misc, name-defined]  # as above
    """A module without weights."""

    def forward(self, x: Any, y: Any) -> Any:
        return x @ y


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64])
def test_elements_of_another_type_than_the_weights_are_refused_by_name(dtype: Any) -> None:
    found = rf"(?s)input: .*input-dtype.*float32.*{dtype}.*input\.to\(torch\.float32\)"
    with pytest.raises(plica.InputError, match=found):
        plica.compile(torch.nn.Linear(4, 3).eval())(torch.ones(2, 4).to(dtype))
    with pytest.raises(plica.InputError, match=rf"(?s)y: .*{dtype}.*y\.to\(torch\.float32\)"):
        plica.compile(Product().eval())(torch.ones(2, 2), torch.ones(2, 2).to(dtype))


def _quantised() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch is going to leave them out
        return torch.quantize_per_tensor(torch.ones(2, 4), 0.1, 0, torch.qint8)


def _no_values() -> Any:
    return torch.ones(2, 4, device="meta")


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (torch.ones(2, 4).to_sparse, r"input\.to_dense\(\)"),
        (torch.ones(2, 4).requires_grad_, r"input\.detach\(\)"),
        (_no_values, r"torch\.empty_like\(input"),
        (_quantised, r"input\.dequantize\(\)"),
        (lambda: [[1.0, 2.0, 3.0, 4.0]], r"numpy\.asarray\(input\)"),
        (lambda: None, "Give an array"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_to_do(given: Any, hint: str) -> None:
    layer = torch.nn.Linear(4, 3).eval()
    program = torch.export.export(layer, (torch.ones(2, 4),))
    for exe in (plica.compile(layer), plica.compile(program)):
        with pytest.raises(plica.InputError, match=rf"(?s)input: .*found: .*suggestion: .*{hint}"):
            exe(given())


def test_tensors_of_a_program_are_refused_in_words_of_torch() -> None:
    exe = plica.compile(torch.export.export(torch.nn.Linear(4, 3), (torch.ones(2, 4),)))
    with pytest.raises(plica.InputError, match=r"input\.to\(torch\.float32\)"):
        exe(torch.ones(2, 4).double())
    with pytest.raises(plica.InputError, match=r"input\.reshape\(\(2, 4\)\)"):
        exe(torch.ones(8))
    with pytest.raises(plica.InputError, match="sizes that are open"):
        exe(torch.ones(3, 4))


def test_an_input_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(plica.InputError, match="a tensor or an array"):
        plica.compile(network())("x")


@pytest.mark.parametrize("given", [
    np.zeros((2, 6), object), np.zeros((2, 6), "U1"), np.zeros((2, 6), np.longdouble),
    np.zeros((2, 6), "M8[s]"), np.zeros((2, 6), [("a", "f4")]),
])  # fmt: skip
def test_an_array_of_no_numbers_of_torch_is_refused(given: Any) -> None:
    with pytest.raises(plica.InputError, match=r"(?s)input: .*input-type.*an array of .*astype"):
        plica.compile(network())(given)


def test_a_nested_tensor_is_refused() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 6), torch.ones(3, 6)])
    with pytest.raises(plica.InputError, match=r"(?s)input-type.*nested.*to_padded_tensor"):
        plica.compile(network())(nested)


class Optional(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be missing
    """A module that takes Python values, and trees of them and of tensors."""

    def forward(
        self, x: Any, flag: Any = True, mode: Any = "add", by: Any = (1, [2.0]), bias: Any = None
    ) -> Any:
        first, others = by
        for each in others:
            x = x * first + each if mode == "add" else x * first * each
        x = x if bias is None else x + bias["b"]
        return (x, None) if flag else x * 2


@pytest.mark.parametrize("named", [
    {}, {"flag": False}, {"mode": "mul"}, {"by": (2, [])}, {"by": (True, [0.5, -0.0])},
    {"bias": {"b": torch.ones(4)}, "flag": 0}, {"by": (1.5, [torch.ones(4), 3]), "mode": "mul"},
])  # fmt: skip
def test_python_values_are_part_of_the_code(named: Any) -> None:
    model, x = Optional().eval(), torch.randn(4)
    exe = plica.compile(model)
    for options in (named, {}, named, {"flag": False, **named}):
        want = model(x, **options)
        want = want[0] if isinstance(want, tuple) else want
        np.testing.assert_allclose(np.asarray(exe(x, **options)), want.numpy(), 1e-5)
    assert exe.stats.compilations == len({*map(str, ({}, named, {"flag": False, **named}))})
    assert len(exe.at(x, **named).inputs) == 1 + str(named).count("tensor")


class Boxed:
    """An output that torch does not know."""

    def __init__(self, x: Any) -> None:
        self.x = x


class Boxing(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be missing
    def forward(self, x: Any, box: Any = None) -> Any:
        return Boxed(x * 2)


def test_classes_that_torch_does_not_know_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    exe = plica.compile(Boxing().eval())
    with pytest.raises(plica.UnsupportedError, match=r"(?s)gives a .*Boxed.*register_pytree_node"):
        exe(torch.ones(3))
    with pytest.raises(plica.InputError, match=r"(?s)box: .*input-type.*found: Boxed"):
        exe(torch.ones(3), box=Boxed(1))
    with pytest.raises(plica.UnsupportedError, match="decides"):
        plica.compile(Deciding().eval())(torch.ones(3))
    assert capfd.readouterr().err == ""


def test_a_language_model_gives_its_cache() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 32, "vocab_size": 50}
    config = transformers.LlamaConfig(num_hidden_layers=1, num_attention_heads=2, **sizes)
    model = transformers.LlamaForCausalLM(config).eval()
    exe, ids = interpreted(model), torch.arange(5)[None]
    with torch.no_grad():
        want = model(ids)
    logits, keys, values = exe(ids)
    np.testing.assert_allclose(np.asarray(logits), want.logits.numpy(), 1e-3, 1e-4)
    (layer,) = want.past_key_values.layers
    np.testing.assert_allclose(np.asarray(keys), layer.keys.numpy(), 1e-3, 1e-4)
    np.testing.assert_allclose(np.asarray(values), layer.values.numpy(), 1e-3, 1e-4)
    alone = exe(ids, use_cache=False)
    np.testing.assert_allclose(np.asarray(alone), want.logits.numpy(), 1e-3, 1e-4)
    with torch.no_grad():
        after = model(ids[:, :1], past_key_values=copy.deepcopy(want.past_key_values))
    step, *_ = exe(ids[:, :1], past_key_values=want.past_key_values)
    np.testing.assert_allclose(np.asarray(step), after.logits.numpy(), 1e-3, 1e-4)


@pytest.mark.parametrize("kind", ["Mixtral", pytest.param("Qwen2Moe", marks=pytest.mark.slow)])
def test_a_sparse_mixture_of_experts(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "moe_intermediate_size": 16,
             "shared_expert_intermediate_size": 16, "vocab_size": 50}  # fmt: skip
    few = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    experts = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2}
    config = getattr(transformers, f"{kind}Config")(**sizes, **few, **experts)
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    exe = interpreted(model)
    for ids in (torch.arange(6)[None], torch.tensor([[7]])):
        with torch.no_grad():
            want = model(ids, use_cache=False).logits.numpy()
        np.testing.assert_allclose(np.asarray(exe(ids, use_cache=False)), want, 1e-3, 1e-4)


def test_numbers_are_inputs_without_axes() -> None:
    exe, x = plica.compile(Named().eval()), torch.randn(4)
    for scale in (3.0, np.float32(3), np.array(3.0, "f4")):
        one, _ = exe(x, scale)
        np.testing.assert_allclose(np.asarray(one), (torch.tanh(x) * 3).numpy(), 1e-5)


def test_arrays_of_the_other_byte_order_and_of_narrow_floats_are_inputs() -> None:
    bf16 = pytest.importorskip("ml_dtypes").bfloat16
    exe, x = plica.compile(Named().eval()), np.linspace(-1, 1, 5, dtype=np.float32)
    one, _ = exe(x.astype(x.dtype.newbyteorder()), x)
    np.testing.assert_allclose(np.asarray(one), np.tanh(x) * x, 1e-5)
    one, same = exe(x.astype(bf16), x.astype(bf16))
    assert np.array_equal(np.asarray(same).astype("f4"), x.astype(bf16).astype("f4"))
    np.testing.assert_allclose(np.asarray(one).astype("f4"), np.tanh(x) * x, 0.02)
    again, _ = exe(one, same)  # what came out goes in
    assert np.asarray(again).dtype == bf16


def test_weights_that_are_written_or_replaced_are_read_again() -> None:
    model, x = network(), torch.randn(2, 6)
    exe = plica.compile(model)

    def agree() -> None:
        expected = model(x).detach().numpy()
        np.testing.assert_allclose(np.asarray(exe(x)), expected, 1e-4, 1e-5)

    agree()
    before, kept = exe.at(x), np.asarray(exe(x))
    with torch.no_grad():
        model[0].weight.mul_(2)
    agree()
    model[2].bias = torch.nn.Parameter(torch.ones(3))
    agree()
    model.double()
    x = x.double()
    agree()
    assert exe.stats.compilations == 4
    agree()
    assert exe.stats.compilations == 4  # nothing was written since
    assert np.array_equal(np.asarray(before(x.float())), kept)
    model.train()
    with pytest.raises(plica.UnsupportedError, match="in training"):
        exe(torch.randn(3, 6).double())


def test_torchscript_is_refused() -> None:
    with pytest.raises(plica.UnsupportedError, match=r"(?s)TorchScript.*expected.*model.eval"):
        plica.compile(torch.jit.trace(network(), torch.randn(2, 6)))


def test_inputs_that_do_not_fit_are_refused_at_the_layer() -> None:
    found = r"(?s)2 \(Linear\): Torch cannot run.*input-shape.*\(2, 6\) torch.float32: .*9"
    broken = torch.nn.Sequential(*network()[:2], torch.nn.Linear(9, 3)).eval()
    with pytest.raises(plica.InputError, match=found):
        plica.compile(broken)(torch.randn(2, 6))
    with pytest.raises(plica.InputError, match="input-shape"):
        plica.compile(network())(torch.randn(2, 5))


def test_inputs_are_those_of_forward() -> None:
    exe = plica.compile(Named().eval())
    x = torch.randn(3)
    with pytest.raises(plica.InputError, match=r"(?s)scale: .*not given.*input-missing"):
        exe(x)
    with pytest.raises(plica.InputError, match=r"(?s)no input 'scal'.*Did you mean 'scale'"):
        exe(x, scal=x)
    with pytest.raises(plica.InputError, match=r"(?s)More values.*2 \(x, scale\)"):
        exe(x, x, x)
    with pytest.raises(plica.InputError, match="given twice"):
        exe(x, x=x, scale=x)


def test_tensors_without_elements_are_refused() -> None:
    with pytest.raises(plica.InputError, match=r"(?s)input: .*input-type.*on meta"):
        plica.compile(network())(torch.randn(2, 6, device="meta"))
    nowhere = torch.nn.Linear(6, 3, device="meta").eval()
    with pytest.raises(plica.UnsupportedError, match=r"(?s)weight: .*on meta.*load_state_dict"):
        plica.compile(nowhere)(torch.randn(2, 6))


class Deciding(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be missing
    def forward(self, x: Any) -> Any:
        return x if x.sum() > 0 else -x


class Failing(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch may be missing
    def forward(self, x: Any) -> Any:
        raise RuntimeError("its own")


def test_decisions_by_elements_are_refused_and_errors_of_the_module_are_its_own() -> None:
    with pytest.raises(plica.UnsupportedError, match=r"(?s)Deciding.*decides.*torch.where"):
        plica.compile(Deciding().eval())(torch.ones(3))
    with pytest.raises(RuntimeError, match=r"^its own"):
        plica.compile(Failing().eval())(torch.ones(3))
