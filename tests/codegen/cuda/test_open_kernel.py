"""Open sizes on a GPU: one code, by the emulator, at many sizes; what has none is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plica
from plica.codegen.cuda.open_unit import open_unit
from plica.codegen.cuda.target import parse_gpu
from plica.codegen.open_memory_plan import OpenPlan
from plica.codegen.record import as_script
from plica.core.digest import digest
from plica.pipeline import contract_of, lower
from plica.runtime.cuda import open_step
from plica.runtime.cuda.open_program import OpenDeviceExecutable
from plica.runtime.cuda.open_step import OpenLaunch, open_from_data
from plica.runtime.cuda.step import DeviceLaunch
from plica.runtime.error import InputError, UnsupportedError
from plica.runtime.typed_json import plain
from plica.schedule.replay import kernel_of
from tests.codegen.cuda.emulate import COMPILER
from tests.frontend.onnx.build import runtime
from tests.frontend.onnx.test_run_time import loop

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")

HEAD = """
import plica
from plica import op
from plica.op import nn
from plica.script import Tensor, f16, f32

@plica.function
"""

ROWS = """
def main(x: Tensor[("n", 16), f32], w: Tensor[(24, 16), f32]) -> Tensor[("n", 24), f32]:
    return nn.softmax(nn.dense(x, w), axis=-1)
"""
OPEN = """
def main(
    x: Tensor[("n", "m"), f32], y: Tensor[("k", "m"), f32], z: Tensor[("m",), f32]
) -> tuple[
    Tensor[("n", "m"), f32], Tensor[("m",), f32], Tensor[("n",), f32],
    Tensor[("n + k", "m"), f32], Tensor[("n", "k"), f32],
]:
    turned = op.transpose(y, (1, 0))
    rows, sums, most = nn.softmax(x * z, axis=-1), op.sum(x, axis=0), op.max(x + 1.0, axis=1)
    return rows, sums, most, op.concatenate((x, y), axis=0), nn.relu(op.matmul(x, turned))
"""
ODD_ROWS = """
def main(x: Tensor[("n", 3), f32], y: Tensor[(3,), f32]) -> Tensor[("n", 3), f32]:
    return nn.relu(x * 2.0 + y)
"""
CHOICE = """
def main(x: Tensor[("n", 3), f32], c: Tensor[(), f32]) -> Tensor[("n", 3), f32]:
    y = x + 1.0
    return op.exp(y) if c > 0.0 else op.negative(y)
"""

ASKED = """
def main(x: Tensor[("n",), f32], y: Tensor[("m",), f32]) -> Tensor[("m",), f32]:
    return op.match_shape(x, ("m",)) + y
"""
SPLIT = """
def main(x: Tensor[("n", 3), f32], y: Tensor[(65536,), f32]) -> Tensor[("n", 3), f32]:
    return x + op.sum(y, axis=0)
"""
TILED = """
def main(
    x: Tensor[("n", 3), f32], a: Tensor[(2048, 2048), f16], b: Tensor[(2048, 2048), f16]
) -> tuple[Tensor[("n", 3), f32], Tensor[(2048, 2048), f16]]:
    return x + 1.0, op.matmul(a, b)
"""

SIZES = ({"n": 5, "m": 7, "k": 3}, {"n": 130, "m": 33, "k": 20}, {"n": 1, "m": 300, "k": 1})


def compiled(text: str) -> Any:
    return plica.compile(plica.from_text(HEAD + text), target="cuda-emulator", cache=False)


def given(exe: Any, sizes: dict[str, int]) -> list[Any]:
    random = np.random.default_rng(3)
    shapes = [[sizes[e] if isinstance(e, str) else e for e in port.shape] for port in exe.inputs]
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("text", [ROWS, OPEN])
def test_one_code_serves_every_size(text: str) -> None:
    exe, module = compiled(text), plica.from_text(HEAD + text)
    assert isinstance(exe, OpenDeviceExecutable)
    for sizes in SIZES:
        arrays = given(exe, sizes)
        found, meant = exe(*arrays), plica.interpret(module, *arrays)
        for one, other in zip(*(e if isinstance(e, tuple) else (e,) for e in (found, meant)),
                              strict=True):  # fmt: skip
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert exe.stats.compilations == 1
    assert exe.stats.at_call == 0


def test_rows_of_whole_vectors_have_code_for_several_at_once() -> None:
    assert compiled(ROWS).source("cuda").count("row_count") > 2
    assert "row_count" not in compiled(ODD_ROWS).source("cuda")


def test_an_artefact_serves_every_size(tmp_path: Any) -> None:
    exe = compiled(ODD_ROWS)
    exe.save(tmp_path / "m.plica")
    again = plica.load(tmp_path / "m.plica")
    for n in (2, 0, 300):
        x, y = given(exe, {"n": n})
        np.testing.assert_array_equal(again(x, y), np.maximum(x * 2 + y, 0))
    assert again.stats.compilations == 0


@pytest.mark.parametrize("text", [ROWS, OPEN, ODD_ROWS])
def test_a_kernel_is_read_as_it_was_written(text: str) -> None:
    target = parse_gpu("cuda:sm_90")
    lowered = lower(plica.from_text(HEAD + text), contract_of(None), (), target)
    for kernel in lowered.program.kernels:
        _, _, again = kernel_of(plica.from_text(as_script(kernel)))
        assert digest(again) == digest(kernel)


def test_sizes_that_disagree_are_told() -> None:
    exe = compiled(OPEN)
    x, y, z = given(exe, SIZES[0])
    with pytest.raises(InputError, match=r"m is 7 \(axis 1 of 'x'\)"):
        exe(x, y, z[1:])


def test_what_an_operator_asks_of_sizes_is_told() -> None:
    exe = compiled(ASKED)
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(exe(x, x), x + x)
    with pytest.raises(InputError, match="no value at these sizes") as refused:
        exe(x, x[1:])
    (said,) = refused.value.diagnostics
    assert (said.expected, said.found) == (
        "n == m",
        "n is 3 (axis 0 of 'x'), m is 2 (axis 0 of 'y')",
    )


def test_a_profile_of_what_only_stands_for_a_gpu_is_refused() -> None:
    exe = compiled(ODD_ROWS)
    with pytest.raises(UnsupportedError, match="a GPU that a processor stands for"):
        exe.profile(*given(exe, {"n": 2}))


@pytest.mark.parametrize("n", ['"n"', "2"])
def test_choices_are_made_between_segments(n: str) -> None:
    exe = compiled(CHOICE.replace('"n"', n))
    x = np.array([[1, 2, 3], [5, 6, 7]], np.float32)
    np.testing.assert_allclose(exe(x, np.float32(1)), np.exp(x + 1), rtol=1e-5)
    np.testing.assert_array_equal(exe(x, np.float32(-1)), -x - 1)
    assert exe.stats.at_call == 0


def test_what_loops_collect_is_all_there() -> None:
    made = loop(False)
    exe = plica.compile(made, target="cuda-emulator", cache=False)
    for turns in (3, 1):
        feed = {"m": np.asarray(turns), "x": np.arange(4, dtype=np.float32)}
        for mine, other in zip(exe(**feed), runtime(made, feed), strict=True):
            np.testing.assert_array_equal(mine, other)


def test_sizes_beyond_its_code_are_compiled_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    exe = compiled(ODD_ROWS)
    x, y = given(exe, {"n": 300})
    monkeypatch.setattr(open_step, "MAX_BLOCKS", 3)
    np.testing.assert_array_equal(exe(x, y), np.maximum(x * 2 + y, 0))
    assert exe.stats.at_call == 1
    x, y = given(exe, {"n": 200})
    np.testing.assert_array_equal(exe(x, y), np.maximum(x * 2 + y, 0))
    assert exe.stats.at_call == 1


def test_parts_of_sums_of_a_known_size_have_memory() -> None:
    exe = compiled(SPLIT)
    assert isinstance(exe, OpenDeviceExecutable)
    assert exe.artefact.device is not None
    assert any(isinstance(e, OpenLaunch) and e.scratch for e in exe.artefact.device.steps)
    for n in (2, 0, 300):
        x, y = given(exe, {"n": n})
        np.testing.assert_allclose(exe(x, y), x + y.sum(dtype=np.float64), rtol=1e-4, atol=1e-4)
    assert exe.stats.at_call == 0


def test_launches_of_a_known_size_have_maps_of_tiles() -> None:
    target = parse_gpu("cuda:sm_90a")
    assert target is not None
    lowered = lower(plica.from_text(HEAD + TILED), contract_of(None), (), target)
    assert isinstance(lowered.plan, OpenPlan)
    made = open_unit(lowered.program, lowered.plan, target.gpu)
    told = [each.maps for each in made.program.steps if isinstance(each, OpenLaunch)]
    assert [len(each) for each in told] == [0, 2]
    assert made.text.count("__grid_constant__") == 2
    found = made.program.at({"n": 5}).steps[-1]
    assert isinstance(found, DeviceLaunch)
    assert found.maps == told[1]
    assert open_from_data(plain(made.program)) == made.program
