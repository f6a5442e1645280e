"""`plica.quantise`: near the model in floats, the same bytes in native code, and clear refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plica
from plica.cli import main
from plica.cli.quantise import read_samples
from plica.core.name import Name
from plica.frontend.zoo import mlp, resnet
from plica.ir.graph.expression import Var, const
from plica.ir.graph.module import Module
from plica.ir.type.term import static_shape, tensor
from plica.quantising import quantised
from plica.rewrite.quantise.annotate import annotate, prepare, tapped
from plica.rewrite.quantise.integer import said
from plica.runtime.error import InputError
from plica.runtime.link import can_link
from tests.conftest import Golden
from tests.rewrite.quantise.net import digits, module_of, numbers, op, var

Array = np.ndarray[Any, Any]


def cosine(a: Array, b: Array) -> float:
    return float(np.sum(a * b) / np.linalg.norm(a) / np.linalg.norm(b))


HOW: dict[str, dict[str, Any]] = {
    "usual": {},
    "unsigned": {"symmetric": False},
    "one scale": {"per_channel": False},
    "shifts": {"power_of_two": True},
    "kl": {"method": "kl"},
    "mse": {"method": "mse", "symmetric": False},
    "percentile": {"method": "percentile", "percentile": 99.9},
    "shifts for each": {"power_of_two": True, "per_channel": True, "symmetric": False},
}


NATIVE = ("usual", "unsigned", "shifts for each")


@pytest.mark.parametrize("how", HOW)
def test_a_small_network_is_near_and_the_same_in_native_code(how: str) -> None:
    net = digits()
    found = quantised(net, [numbers(seed, 1, 2, 8, 8) for seed in range(8)], **HOW[how])
    assert [row.op for row in found.report.rows if row.form == "f32"] == ["nn.softmax"]
    exe = plica.compile(found.module) if how in NATIVE else None
    for seed in range(20, 24):
        x = numbers(seed, 1, 2, 8, 8)
        integers, floats = plica.interpret(found.module, x), plica.interpret(net, x)
        assert exe is None or np.abs(exe(x) - integers).max() < 1e-6  # softmax is in floats
        assert cosine(integers, floats) > 0.99
        assert np.argmax(integers) == np.argmax(floats)


@pytest.fixture(autouse=True, scope="module")
def kept() -> object:
    """What calibration compiles is compiled once for all tests."""
    return plica.compile(tapped(annotate(prepare(digits()))))


@pytest.mark.slow
def test_a_residual_network_is_near() -> None:
    net = resnet(18, image=16, width=0.0625, classes=10)
    samples = numbers(0, 8, 1, 3, 16, 16)
    found = quantised(net, samples)
    assert found.report.count("f32") == 0
    exe = plica.compile(found.module)
    for seed in (1, 2):
        x = numbers(seed, 1, 3, 16, 16)
        integers = plica.interpret(found.module, x)
        assert np.array_equal(exe(x), integers)
        assert cosine(integers, plica.interpret(net, x)) > 0.995


def bottleneck() -> Module:
    """A layer whose bias goes into the next one, and stays for a sum."""
    x = var("x", (1, 4, 5, 5))
    w = plica_const(numbers(0, 4, 4, 1, 1))
    y = op("nn.bias_add", op("nn.conv", x, w), plica_const(numbers(1, 4)), axis=1)
    z = op("clip", op("nn.conv", y, w), min=0.0, max=6.0)
    return module_of(op("nn.conv", op("add", op("nn.conv", z, w), y), w), x)


@pytest.mark.parametrize("net", [bottleneck, digits])
def test_the_report_says_what_is_in_floats(net: Callable[[], Module]) -> None:
    of = net()
    shape = static_shape(of.main_function().params[0].type)  # type: ignore[arg-type]  # a tensor
    assert shape is not None
    found = quantised(of, numbers(0, 3, *shape))
    left = [row.op for row in said(found.module) if row.form == "f32"]
    assert left == [row.op for row in found.report.rows if row.form == "f32"]


def test_it_is_a_pure_function() -> None:
    samples = numbers(3, 4, 1, 2, 8, 8)
    first, again = (plica.quantise(digits(), samples, method="kl") for _ in range(2))
    assert plica.digest(first) == plica.digest(again)


def test_samples_have_many_forms() -> None:
    net, samples = digits(), numbers(3, 4, 1, 2, 8, 8)
    several: list[Any] = [
        samples,
        list(samples),
        [(each,) for each in samples],
        [{"x": each} for each in samples],
        {"x": samples},
        iter(samples),
    ]
    assert len({plica.digest(plica.quantise(net, each)) for each in several}) == 1


def test_the_simulation_is_what_integers_mean() -> None:
    found = quantised(digits(), numbers(3, 4, 1, 2, 8, 8), power_of_two=True)
    for seed in range(5):
        x = numbers(seed, 1, 2, 8, 8)
        simulated = plica.interpret(found.simulated, x)
        assert np.allclose(plica.interpret(found.module, x), simulated, rtol=1e-6, atol=0)


def test_the_first_and_the_last_layer_can_stay() -> None:
    found = quantised(mlp((16, 8, 8, 4)), numbers(0, 4, 1, 16), keep=("first", "last"))
    said = [(row.form, row.why) for row in found.report.rows if row.op == "nn.dense"]
    assert said == [("f32", "The first layer is kept."), ("i8", ""), ("f32", "The last layer is kept.")]  # fmt: skip  # noqa: E501


def halves() -> Module:
    x = Var(Name("x"), tensor((1, 4), "f16"))
    return module_of(op("nn.dense", x, const(np.ones((2, 4), np.float16))), x)


def test_what_is_kept_is_named_in_the_refusal() -> None:
    with pytest.raises(plica.PlicaError, match=r"no operator 'nn\.conf'") as caught:
        plica.quantise(digits(), [WIDE], keep=("nn.conf",))
    assert caught.value.diagnostics[0].suggestion == "Did you mean 'nn.conv'?"


NAN = np.full((1, 2, 8, 8), np.nan, np.float32)
WIDE = np.zeros((1, 2, 8, 9), np.float32)
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no samples": (lambda: plica.quantise(digits(), []), "input-missing"),
    "nothing said": (lambda: plica.quantise(digits()), "input-missing"),
    "nan": (lambda: plica.quantise(digits(), [NAN]), "not-finite"),
    "shape": (lambda: plica.quantise(digits(), [WIDE]), "input-shape"),
    "percentile": (lambda: plica.quantise(digits(), [], percentile=101), "unsupported"),
    "keep": (lambda: plica.quantise(digits(), [WIDE], keep=("nosuch",)), "unsupported"),
    "f16": (lambda: plica.quantise(halves(), [WIDE.astype(np.float16)]), "unsupported"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    ask, code = REFUSED[name]
    with pytest.raises(plica.PlicaError) as caught:
        ask()
    assert caught.value.diagnostics[0].code == code


def test_a_network_without_layers_needs_no_samples() -> None:
    x = var("x", (2, 3))
    assert quantised(module_of(op("nn.softmax", x), x), []).points == ()


def test_the_integer_module_as_text(golden: Golden) -> None:
    x = var("x", (1, 4))
    w = np.arange(8).reshape(2, 4).astype(np.float32) / 8
    body = op("nn.relu", op("add", op("nn.dense", x, plica_const(w)), plica_const(w[:, 1])))
    body = op("nn.dense", body, plica_const(w[:, :2]))
    samples = [np.ones((1, 4), np.float32)]
    shown = [
        f"# {how}\n{plica.quantise(module_of(body, x), samples, **HOW[how])}"
        for how in ("usual", "unsigned", "shifts")
    ]
    golden("\n".join(shown))


def plica_const(values: Array) -> Any:
    return const(np.ascontiguousarray(values))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, samples, out = tmp_path / "net.py", tmp_path / "x.npz", tmp_path / "net.plica"
    net = mlp((4, 3, 2))
    model.write_text(str(net))
    np.savez(samples, x=numbers(0, 5, 1, 4))
    assert main(["quantise", str(model), "--samples", str(samples), "-o", str(out)]) == 0
    assert "nn.dense" in capsys.readouterr().out
    x = numbers(1, 1, 4)
    wanted = plica.quantise(net, {"x": numbers(0, 5, 1, 4)})
    assert np.array_equal(plica.load(out)(x), plica.interpret(wanted, x))
    samples.write_text("no numbers")
    assert main(["quantise", str(model), "--samples", str(samples), "-o", str(out)]) == 1
    assert "samples" in capsys.readouterr().err
    assert main(["quantise", str(model), "--samples", str(tmp_path / "no"), "-o", str(out)]) == 1
    assert "No such file" in capsys.readouterr().err


def test_samples_are_read_from_one_array_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, numbers(0, 5, 1, 4))
    assert read_samples(path, ["x"])["x"].shape == (5, 1, 4)
    with pytest.raises(InputError, match="several inputs") as several:
        read_samples(path, ["x", "y"])
    assert several.value.code == "input-missing"
    np.savez(tmp_path / "o.npz", x=np.array([None]))
    for name, code in (("none.npz", "no-source"), ("o.npz", "input-type")):
        with pytest.raises(InputError) as refused:
            read_samples(tmp_path / name, ["x"])
        assert refused.value.code == code


@pytest.mark.skipif(not can_link(), reason="object files are not loaded here")
def test_the_command_for_an_accelerator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, out = mlp((32, 16, 16)), tmp_path / "net.plica"
    (tmp_path / "net.py").write_text(str(net))
    samples = numbers(0, 5, 1, 32)
    np.save(tmp_path / "x.npy", samples)
    words = ["quantise", str(tmp_path / "net.py"), "--samples", str(tmp_path / "x.npy")]
    assert main([*words, "--target", "accel", "-o", str(out)]) == 0
    assert "1 of 1 integer layers" in capsys.readouterr().out
    wanted = plica.interpret(plica.quantise(net, samples, power_of_two=True), samples[0])
    assert np.array_equal(plica.load(out)(samples[0]), wanted)
    assert main(["verify", str(out), "--model", str(tmp_path / "net.py")]) == 1
    assert "quantised model" in capsys.readouterr().err
