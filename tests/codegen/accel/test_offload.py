"""Offloading: a network split between processor and accelerator means what it meant, exactly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given as drawn, settings, strategies as st

import plica
from plica import op
from plica.cli import main
from plica.codegen.accel.conv import Convolution, reference
from plica.codegen.accel.layer import AccelLayer, Stays, layer_of
from plica.codegen.accel.mapping import FORM
from plica.codegen.accel.offload import Offloaded, choose, offload
from plica.codegen.accel.split import flat_inputs, levels
from plica.codegen.accel.target import AccelTarget, parse_accel
from plica.codegen.accel.vta import Configuration, osdi, vta
from plica.core.name import Name
from plica.frontend.zoo import mlp
from plica.ir.graph.expression import Apply, Expr, Function, Var, const
from plica.ir.graph.module import Module, module as build
from plica.ir.interpret.interpreter import interpret
from plica.ir.op.convolution import conv
from plica.ir.op.elementwise import cast
from plica.ir.type.dtype import f32
from plica.ir.type.term import tensor
from plica.rewrite.graph.walk import expressions
from plica.rewrite.quantise.form import integer_convolutions
from plica.runtime.accel.executable import AccelExecutable
from plica.runtime.error import InputError, UnsupportedError
from plica.runtime.link import can_link
from tests.codegen.accel.machines import FEW, OUTER
from tests.codegen.accel.network import Layers, given, network, networks, residual, sizes

Array = np.ndarray[Any, Any]
OSDI = AccelTarget("osdi")
native = pytest.mark.skipif(not can_link(), reason="object files are not loaded here")


def bytes_of(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def meaning(layer: AccelLayer, data: Array) -> Array:
    """What a launch gives, by sums of whole numbers: blocks in, blocks out."""
    of = layer.convolution
    constants = layer.constants
    n = layer.units.depth
    w = constants["w"].transpose(0, 4, 1, 5, 2, 3)
    w = w.reshape(of.outputs, of.channels, of.kernel, of.kernel)
    images = data.reshape(layer.batch, of.channels // n, of.height, of.width, n)
    found = [
        reference(
            of,
            one.transpose(0, 3, 1, 2).reshape(of.channels, of.height, of.width),
            w,
            constants.get("b"),
            constants.get("n"),
        )
        for one in images
    ]
    shape = (layer.batch, of.outputs // n, n, of.out_height, of.out_width)
    return np.stack(found).reshape(shape).transpose(0, 1, 3, 4, 2)


def evaluated(of: Offloaded, *args: Array) -> list[Array]:
    """Stages by the interpreter and launches by their meaning, in the order of levels."""
    values: dict[Expr, Array] = dict(zip(flat_inputs(of.graph), args, strict=True))
    results: dict[Expr, Array] = {}
    level = levels(of.graph)
    work: list[tuple[int, int, Any]] = [(each.level, 1, each) for each in of.stages]
    work += [(level[each.result], 0, each) for each in of.graph.launches]
    for _, is_stage, each in sorted(work, key=lambda one: one[:2]):
        if is_stage:
            found = interpret(each.module, *[values[one] for one in each.inputs])
            whole = found if isinstance(found, tuple) else (found,)
            results |= dict(zip(each.results, whole, strict=True))
            values = {**results, **values}
        else:
            made = meaning(each.layer, values[each.data])
            values[each.result] = made.reshape(sizes(each.result))
    return [results[each] for each in of.graph.outputs]


def whole(module: Module, *args: Array) -> list[Array]:
    found = interpret(module, *args)
    return list(found) if isinstance(found, tuple) else [found]


@settings(max_examples=FEW)
@drawn(module=networks(), seed=st.integers(0, 9))
def test_a_split_network_means_the_same(module: Module, seed: int) -> None:
    x = bytes_of(sizes(module.main_function().params[0]), seed)
    split = offload(module, OSDI)
    for one, other in zip(evaluated(split, x), whole(module, x), strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)


def moved(of: Offloaded) -> list[int]:
    """How many transposes each stage has."""
    return [
        sum(
            isinstance(node, Apply) and node.op == "transpose"
            for node in expressions(each.module.main_function())
        )
        for each in of.stages
    ]


def test_between_neighbours_nothing_is_moved() -> None:
    layers, x = Layers(0), given((1, 16, 4, 4))
    y = layers.conv(layers.conv(layers.conv(x, 32), 32), 16)
    split = offload(network((x,), y), OSDI)
    assert len(split.graph.launches) == 3
    assert [each.level for each in split.stages] == [0, 3]
    assert moved(split) == [1, 1]


def test_a_residual_sum_stays_in_blocks() -> None:
    layers, x = Layers(1), given((1, 16, 4, 4))
    first = layers.conv(x, 16)
    y = layers.conv(residual(first, layers.conv(first, 16)), 16)
    split = offload(network((x,), y), OSDI)
    assert [each.level for each in split.stages] == [0, 2, 3]
    assert moved(split) == [1, 0, 1]


def test_layers_side_by_side_have_one_stage_before_them() -> None:
    layers, x = Layers(2), given((1, 16, 4, 4))
    y = residual(layers.conv(x, 16), layers.conv(x, 16, 1))
    split = offload(network((x,), y), OSDI)
    assert [each.level for each in split.stages] == [0, 1]


def test_products_are_offloaded_too() -> None:
    layers, x = Layers(3), given((3, 20))
    module = network((x,), layers.dense(layers.dense(x, 24), 10))
    split = offload(module, OSDI)
    assert [each.layer.shape for each in split.graph.launches] == [
        "3x20 -> 24, dense",
        "3x24 -> 10, dense",
    ]
    (found,) = evaluated(split, bytes_of((3, 20)))
    assert np.array_equal(found, interpret(module, bytes_of((3, 20))))


@pytest.mark.parametrize(
    ("why", "shape", "options"),
    [
        ("3 channels fill 19% of a block of 16", (1, 3, 5, 5), {"kernel": 1}),
        ("16 groups", (1, 16, 5, 5), {"groups": 16}),
    ],
)
def test_layers_that_stay_say_why(
    why: str, shape: tuple[int, ...], options: dict[str, int]
) -> None:
    x = given(shape)
    module = network((x,), Layers(0).conv(x, 16, **options))  # type: ignore[arg-type]  # by name
    (found,) = integer_convolutions(module)
    stays = layer_of(osdi(), found)
    assert isinstance(stays, Stays)
    assert why in stays.why
    with pytest.raises(UnsupportedError, match="No layer of this model") as refused:
        offload(module, OSDI)
    assert why in str(refused.value.diagnostics[0].found)


@pytest.mark.parametrize(
    ("why", "shape", "options"),
    [
        ("3 channels fill 19% of a block of 16", (1, 3, 5, 5), {}),
        ("dilated", (1, 16, 7, 7), {"dilation": 2}),
        ("pads as much as its kernel", (1, 16, 5, 5), {"kernel": 1, "pad": 1}),
    ],
)
def test_layers_that_would_stay_run_as_windows(
    why: str, shape: tuple[int, ...], options: dict[str, int]
) -> None:
    x = given(shape)
    module = network((x,), Layers(0).conv(x, 16, **options))  # type: ignore[arg-type]  # by name
    (found,) = integer_convolutions(module)
    stays = layer_of(osdi(), found)
    assert isinstance(stays, Stays)
    assert why in stays.why
    split = offload(module, OSDI)
    assert "1 of 1 integer layers" in split.placement
    assert np.array_equal(evaluated(split, bytes_of(shape))[0], interpret(module, bytes_of(shape)))


def test_a_layer_that_fits_nowhere_stays() -> None:
    x = given((1, 16, 5, 5))
    (found,) = integer_convolutions(network((x,), Layers(0).conv(x, 16)))
    small = vta(Configuration(inp=7, wgt=12, acc=10))
    stays = layer_of(small, found)
    assert isinstance(stays, Stays)
    assert "smallest tile" in stays.why
    with pytest.raises(UnsupportedError, match="Not even the smallest tile") as refused:
        choose(small, Convolution(16, 5, 5, 16, kernel=3, pad=1))
    assert refused.value.code == "scope-capacity"


def test_targets_by_name() -> None:
    assert parse_accel("accel") == parse_accel("accel:vta") == AccelTarget()
    assert parse_accel("cuda") is None
    with pytest.raises(UnsupportedError, match="no accelerator 'vtaa'") as refused:
        parse_accel("accel:vtaa")
    assert refused.value.diagnostics[0].suggestion == "Did you mean 'vta'?"


@pytest.mark.parametrize(
    ("text", "meant"),
    [("accelerator", "accel"), ("accel vta", "accel:vta"), ("accel:", "accel"), ("ACCEL", "accel")],
)
def test_what_is_near_an_accelerator_is_refused(text: str, meant: str) -> None:
    with pytest.raises(UnsupportedError, match="no target") as refused:
        plica.compile(plica.from_text(FLOATS), target=text)
    assert refused.value.diagnostics[0].suggestion == f"Did you mean {meant!r}?"
    assert "accel:osdi" in str(refused.value.diagnostics[0].expected)


def block() -> Module:
    """Floats in and out; a first layer that stays, a residual block, a product."""
    layers = Layers(5)
    x = plica.from_text(FLOATS).main_function().params[0]
    scaled = plica.from_text(FLOATS).main_function().body
    first = layers.conv(scaled, 16, 1)
    second = residual(first, layers.conv(layers.conv(first, 24), 16, low=-128))
    last = layers.conv(second, 32, 1, stride=2, each=True)
    return network((x,), cast(last, f32) * 0.5, last, x)


FLOATS = """
import plica
from plica import op
from plica.script import Tensor, f32, i8

@plica.function
def main(x: Tensor[(2, 3, 6, 6), f32]) -> Tensor[(2, 3, 6, 6), i8]:
    return op.cast(op.clip(x * 32.0, min=-128, max=127), i8)
"""


@pytest.fixture(scope="module")
def compiled() -> AccelExecutable:
    made = plica.compile(block(), target="accel")
    assert isinstance(made, AccelExecutable)
    return made


def image(seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((2, 3, 6, 6)).astype(np.float32)


@native
def test_a_network_runs_on_both(compiled: AccelExecutable) -> None:
    alone = plica.compile(block(), effort="fast")
    for seed in range(2):
        wanted, found = alone(image(seed)), compiled(image(seed))
        assert len(found) == 3
        for one, other in zip(wanted, found, strict=True):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)
    assert "3 channels fill 19%" in compiled.source("placement")
    assert "3 of 4 integer layers" in compiled.source("placement")
    assert compiled.target == "accel:vta"


@native
def test_what_is_given_is_checked(compiled: AccelExecutable) -> None:
    with pytest.raises(InputError, match="wrong shape"):
        compiled(np.ones((2, 3, 6, 7), np.float32))
    by_name = compiled(x=image())
    assert np.array_equal(by_name[0], compiled(image())[0])


@native
def test_the_profile_has_cycles(compiled: AccelExecutable) -> None:
    found = compiled.profile(image(), runs=1)
    assert [each.cycles > 0 for each in found.launches] == [True] * 3
    assert found.cycles == sum(each.cycles for each in found.launches)
    assert found.launches[0].name == "launch0: 2 x 16x6x6 -> 24, 3x3"
    by_name = {row.kernel: row for row in found.rows}
    first = by_name[found.launches[0].name]
    assert first.seconds == pytest.approx(found.launches[0].cycles / 100e6)
    assert str(found.cycles) in str(found)


@native
def test_equal_parts_have_rows_each() -> None:
    layers, source = Layers(5), plica.from_text(FLOATS).main_function()
    y = source.body
    for _ in range(4):
        y = op.flip(layers.conv(y, 16, 1), axis=2)
    made = plica.compile(network(source.params, cast(y, f32)), target="accel")
    assert isinstance(made, AccelExecutable)
    made._parts[2] = made._parts[1]  # as where both are read from one entry of the store
    found = {row.kernel.partition(".")[0] for row in made.profile(image(), runs=1).rows}
    assert {each for each in found if each.startswith("part")} == {f"part{n}" for n in range(4)}


@native
def test_sources(compiled: AccelExecutable) -> None:
    text = compiled.source("accel")
    assert text == compiled.source()
    assert "!push_next" in text
    assert text.count("; program ") == 3
    assert "@plica.kernel" in compiled.source("kernel")
    assert "define" in compiled.source("llvm")


@native
def test_an_artefact_is_loaded_without_the_compiler(
    compiled: AccelExecutable, tmp_path: Path
) -> None:
    path = tmp_path / "block.plica"
    compiled.save(path)
    np.save(tmp_path / "x.npy", image())
    script = (
        "import sys, numpy as np, plica\n"
        f"exe = plica.load({str(path)!r})\n"
        f"found = exe(np.load({str(tmp_path / 'x.npy')!r}))\n"
        f"np.savez({str(tmp_path / 'y.npz')!r}, *found)\n"
        "rooms = {m.split('.')[1] for m in sys.modules if m.startswith('plica.')}\n"
        "assert rooms == {'runtime'}, rooms\n"
        "assert exe.source('accel') and exe.source('placement')\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    with np.load(tmp_path / "y.npz") as found:
        for one, other in zip(compiled(image()), found.values(), strict=True):
            assert np.array_equal(one, other)
    again = tmp_path / "again.plica"
    plica.load(path).save(again)
    assert path.read_bytes() == again.read_bytes()


@native
def test_it_is_no_library_and_no_single_artefact(compiled: AccelExecutable, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="is not a shared library"):
        compiled.export(tmp_path / "lib.so")
    with pytest.raises(UnsupportedError, match="one artefact of native code"):
        _ = compiled.artefact


def test_a_model_of_floats_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="No layer of this model can run") as refused:
        plica.compile(plica.from_text(FLOATS), target="accel")
    assert "plica.quantise" in str(refused.value)


REASONS: dict[str, dict[str, Any]] = {
    "it is computed in f32": {},
    "its sums stay in i32": {"power_of_two": True, "deep": 1},
    "is a product, and no shift": {"per_channel": False},
    "shift to the left": {"power_of_two": True, "per_channel": True, "huge": 2.0**30},
    "has a zero point": {"power_of_two": True, "symmetric": False},
}


def two_layers(deep: int, huge: float) -> Module:
    random = np.random.default_rng(0)
    x = Var(Name("x"), tensor((1, 16, 4, 4), "f32"))
    body: Expr = x
    for _ in range(deep):
        w = random.standard_normal((16, 16, 1, 1)).astype(np.float32)
        w[3] *= huge
        body = conv(body, const(w))
    main = Var(Name("main"), None)
    return build({main: Function((), (), (x,), None, body)}, main)


@pytest.mark.parametrize("why", REASONS)
def test_a_model_without_a_layer_to_offload_says_why_for_each(why: str) -> None:
    given = dict(REASONS[why])
    module = two_layers(given.pop("deep", 2), given.pop("huge", 1.0))
    random = np.random.default_rng(1)
    x = random.uniform(-1, 1, (1, 16, 4, 4)).astype(np.float32)
    small = plica.quantise(module, [x], **given) if given else module
    with pytest.raises(UnsupportedError, match="No layer of this model can run") as refused:
        offload(small, AccelTarget())
    assert why in str(refused.value.diagnostics[0].found)
    # No remedy is what was done already.
    hint = str(refused.value.diagnostics[0].suggestion)
    assert "power_of_two" not in given or FORM not in hint


@native
def test_a_batch_of_none_gives_none() -> None:
    layers = Layers(3)
    x = Var(Name("x"), tensor((0, 16, 4, 4), "i8"))
    module = network((x,), layers.conv(x, 16))
    (layer,) = integer_convolutions(module)
    stays = layer_of(vta(), layer)
    assert isinstance(stays, Stays)
    assert "nothing" in stays.why
    exe = plica.compile(module, target="accel")
    found = exe(np.zeros((0, 16, 4, 4), np.int8))
    assert isinstance(found, np.ndarray)
    assert found.shape == (0, 16, 4, 4)


@native
def test_the_tuning_is_a_table(compiled: AccelExecutable, tmp_path: Path) -> None:
    assert "the best guess" in compiled.tuning
    compiled.save(tmp_path / "m.plica")
    assert "cycles" in plica.load(tmp_path / "m.plica").tuning


WEIGHT = np.arange(-128, 128, dtype=np.int8).reshape(16, 16, 1, 1)
SCRIPT = f"""
from __future__ import annotations
import plica
from plica import op
from plica.script import Tensor, const, i8, i32

@plica.function
def main(x: Tensor[(1, 16, 4, 4), i8]) -> Tensor[(1, 16, 4, 4), i8]:
    sums = op.nn.conv(op.cast(x, i32), op.cast(const({WEIGHT.tolist()}, i8), i32))
    return op.cast(op.clip(op.right_shift(sums, const(7, i32)), min=-128, max=127), i8)
"""


@native
def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.py").write_text(SCRIPT, encoding="utf-8")
    model, path = str(tmp_path / "m.py"), str(tmp_path / "m.plica")
    tuned = ["--tune", "3", "--db", str(tmp_path / "tune.db")]
    assert main(["compile", model, "-o", path, "--target", "accel:osdi", *tuned]) == 0
    assert "1 of 1 integer layers" in capsys.readouterr().out
    assert main(["verify", path]) == 0
    assert "target: accel:osdi" in capsys.readouterr().out
    np.save(tmp_path / "x.npy", bytes_of((1, 16, 4, 4)))
    out = tmp_path / "y.npz"
    assert main(["run", path, "--input", f"x={tmp_path / 'x.npy'}", "-o", str(out)]) == 0
    wanted = reference(Convolution(16, 4, 4, 16, shift=7), bytes_of((16, 4, 4)), WEIGHT)
    with np.load(out) as found:
        assert np.array_equal(found["output"][0], wanted)
    assert main(["compile", model, "-o", str(tmp_path / "m.so"), "--target", "accel"]) != 0
    assert "an artefact is written" in capsys.readouterr().err


def test_a_declaration_is_a_target_as_it_stands() -> None:
    x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    small = plica.quantise(mlp((16, 16, 16, 8), batch=8), [x], power_of_two=True)
    for machine in (OUTER, vta()):
        made = plica.compile(small, target=machine, cache=False)
        assert np.array_equal(made(x), plica.compile(small, cache=False)(x))
        assert made.source("placement").startswith(f"accel:{machine.name}: ")
