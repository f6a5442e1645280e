"""`target="wasm"`: a model as a module of WebAssembly, run by wasmtime, saved, loaded, in Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plica
from plica.codegen.backend import TARGETS, backend_named
from plica.codegen.fuzz import fuzz
from plica.codegen.wasm import toolchain
from plica.ir.graph.module import Module
from plica.ir.interpret.value import Array
from plica.runtime import archive
from plica.runtime.error import ArtefactError, EvaluationError, UnsupportedError
from plica.runtime.verify import verify
from plica.runtime.wasm import instance
from plica.runtime.wasm.module import names_of
from tests.codegen.native import assert_close

WHY = backend_named("wasm").missing()
pytestmark = pytest.mark.skipif(bool(WHY), reason=WHY)

RUNTIME = Path(instance.__file__).with_name("plica-runtime.js")

TEXT = """
from __future__ import annotations
import plica
from plica.script import Tensor, f32
from plica.op import matmul, nn, sinh

@plica.function
def main(x: Tensor[(4, 8), f32], w: Tensor[(8, 5), f32]) -> Tensor[(4, 5), f32]:
    return nn.softmax(sinh(nn.relu(matmul(x, w))), axis=-1)
"""

CHOSEN = """
from __future__ import annotations
import plica
from plica.script import Tensor, f32, i64
from plica.op import take

@plica.function
def main(x: Tensor[(4,), f32], at: Tensor[(2,), i64]) -> Tensor[(2,), f32]:
    return take(x, at)
"""


@pytest.fixture
def module() -> Module:
    return plica.from_text(TEXT)


@pytest.fixture
def arrays() -> list[Array]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float32) for shape in ((4, 8), (8, 5))]


def test_it_is_found_by_its_folder() -> None:
    assert TARGETS.points()["wasm"].value == "plica.codegen.wasm.backend:BACKEND"


@pytest.mark.parametrize("target", ["wasm", "wasm:relaxed", "wasm:scalar"])
def test_a_model_computes_what_it_means(module: Module, arrays: list[Array], target: str) -> None:
    made = plica.compile(module, target=target, cache=False)
    found: Any = made(*arrays)
    assert_close(found, plica.interpret(module, *arrays), arrays)


def test_lanes_are_of_128_bits_where_they_are_asked_for(module: Module) -> None:
    made = plica.compile(module, target="wasm", cache=False)
    assert "v128" in made.source("asm")
    assert "v128" not in plica.compile(module, target="wasm:scalar", cache=False).source("asm")
    assert plica.compile(module, target="wasm", cache=False).source("llvm") == made.source("llvm")


def test_random_kernels_compute_what_they_mean() -> None:
    report = fuzz(8, seed=5, target="wasm", isolated=False)
    assert report.finding is None
    assert report.examples == 8


def test_it_is_saved_loaded_and_verified(
    module: Module, arrays: list[Array], tmp_path: Path
) -> None:
    made = plica.compile(module, target="wasm", cache=False)
    made.save(tmp_path / "m.plica")
    np.testing.assert_array_equal(plica.load(tmp_path / "m.plica")(*arrays), made(*arrays))
    assert verify(tmp_path / "m.plica").target == "wasm (wasm32-unknown-unknown, generic)"


def test_an_index_outside_is_told() -> None:
    made = plica.compile(plica.from_text(CHOSEN), target="wasm", cache=False)
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(made(x, np.array([3, 1])), [3, 1])
    with pytest.raises(EvaluationError, match="outside"):
        made(x, np.array([4, 1]))


def test_a_damaged_module_is_refused(module: Module, tmp_path: Path) -> None:
    made = plica.compile(module, target="wasm", cache=False)
    code = made.artefact.objects[0]
    for wrong in (b"\x7fELF" + code[4:], code[: len(code) // 2]):
        with pytest.raises(ArtefactError):
            names_of(wrong)
    damaged = archive.pack(made.members()).replace(b"\0asm", b"\0osm")
    (tmp_path / "m.plica").write_bytes(damaged)
    with pytest.raises(ArtefactError, match="damaged"):
        plica.load(tmp_path / "m.plica")


def test_an_engine_without_an_extension_is_told(
    module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wasmtime

    plica.compile(module, target="wasm", cache=False).save(tmp_path / "m.plica")
    config = wasmtime.Config()
    config.wasm_simd = config.wasm_relaxed_simd = False
    store, old = wasmtime.Store, wasmtime.Engine(config)
    monkeypatch.setattr(wasmtime, "Store", lambda *_: store(old))
    with pytest.raises(ArtefactError, match="does not take") as caught:
        plica.load(tmp_path / "m.plica")
    assert caught.value.code == "other-machine"


def test_other_words_are_refused(module: Module) -> None:
    with pytest.raises(UnsupportedError, match="no target 'wasm:simd'"):
        plica.compile(module, target="wasm:simd")


def test_no_linker_is_a_clear_error(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLICA_WASM_LD", "there-is-no-such-linker")
    with pytest.raises(UnsupportedError, match="no linker") as caught:
        plica.compile(module, target="wasm", cache=False)
    assert caught.value.code == "no-toolchain"
    assert toolchain.INSTALL in backend_named("wasm").missing()


def test_no_engine_is_a_clear_error(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wasmtime", None)
    with pytest.raises(UnsupportedError, match="no engine") as caught:
        plica.compile(module, target="wasm", cache=False)
    assert instance.INSTALL in str(caught.value.diagnostics[0].suggestion)


def test_no_room_for_a_module_is_a_clear_error(
    module: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wasmtime

    def full(*given: object) -> None:
        raise wasmtime.WasmtimeError("mmap failed to reserve 0x104000000 bytes")

    monkeypatch.setattr(wasmtime, "Instance", full)
    with pytest.raises(EvaluationError, match="0x104000000") as caught:
        plica.compile(module, target="wasm", cache=False)
    assert caught.value.code == "no-memory"


def test_too_much_memory_is_a_clear_error(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "MAX_BYTES", 1 << 20)
    with pytest.raises(EvaluationError, match="not enough memory"):
        plica.compile(module, target="wasm", cache=False)


# --- the runtime of pages -------------------------------------------------------------------------

SCRIPT = """
import { load } from "./plica-runtime.js";
const model = await load(process.argv[2]);
const given = JSON.parse(process.argv[3]).map((each) => Float32Array.from(each));
const codes = [];
for (const wrong of [[given[0]], { y: given[0] }, [given[1], given[0]], [[1], [2]], [1, 2, 3]]) {
  try { model.run(wrong); codes.push("none"); } catch (error) { codes.push(error.code); }
}
const bytes = new Uint8Array((await import("node:fs")).readFileSync(process.argv[2]));
for (const wrong of [bytes.slice(0, 99), bytes.map((each, at) => (at === 50 ? each ^ 1 : each))]) {
  try { await load(wrong); codes.push("none"); } catch (error) { codes.push(error.code); }
}
Object.defineProperty(crypto, "subtle", { value: undefined });
const again = await load(bytes);  // by the digest of its own
const { output } = model.run(given);
const other = again.run({ x: given[0], w: given[1] }).output;
const same = other.data.every((each, at) => each === output.data[at]);
console.log(JSON.stringify({ codes, same, data: Array.from(output.data), shape: output.shape }));
"""


def test_the_runtime_is_small() -> None:
    import gzip

    assert len(gzip.compress(RUNTIME.read_bytes())) <= 20_000


THREADS = """
import { load } from "./plica-runtime.js";
const x = Float32Array.from({ length: 96 * 64 }, (_, at) => Math.sin(at));
const w = Float32Array.from({ length: 64 * 80 }, (_, at) => Math.cos(at));
const [one, many] = [await load("m.plica"), await load("m.plica", { threads: 3 })];
const meant = one.run([x, w]).output.data;
const same = (found) => found.every((each, at) => each === meant[at]);
let right = 0;
for (let turn = 0; turn < 40; turn++) right += same(many.run([x, w]).output.data);
many.close();
const codes = [];
try { await load("plain.plica", { threads: 2 }); } catch (error) { codes.push(error.code); }
const after = same(many.run([x, w]).output.data);
console.log(JSON.stringify({ right, after, codes, data: Array.from(meant.slice(0, 80)) }));
"""
SHARED = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(96, 64), f32], w: Tensor[(64, 80), f32]) -> Tensor[(96, 80), f32]:
    return op.nn.relu(op.matmul(x, w))
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed.")
def test_threads_of_node_share_the_work(module: Module, tmp_path: Path) -> None:
    made = plica.compile(plica.from_text(SHARED), target="wasm:threads", cache=False)
    assert "plica_worker" in names_of(made.artefact.objects[0]).exports
    made.export(tmp_path / "m.plica")
    assert str(verify(tmp_path / "m.plica").target).startswith("wasm")
    plica.compile(module, target="wasm", cache=False).save(tmp_path / "plain.plica")
    (tmp_path / "try.mjs").write_text(THREADS)
    done = subprocess.run(
        ["node", "try.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    said = json.loads(done.stdout)
    assert (said["right"], said["after"], said["codes"]) == (40, True, ["unsupported"])
    x = np.sin(np.arange(96 * 64)).astype("f4").reshape(96, 64)
    w = np.cos(np.arange(64 * 80)).astype("f4").reshape(64, 80)
    np.testing.assert_allclose(np.array(said["data"]), np.maximum(x[0] @ w, 0), atol=1e-4)
    np.testing.assert_allclose(made(x, w)[0], np.maximum(x[0] @ w, 0), atol=1e-4)


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed.")
def test_node_runs_an_artefact(module: Module, arrays: list[Array], tmp_path: Path) -> None:
    made = plica.compile(module, target="wasm", cache=False)
    made.export(tmp_path / "m.plica")
    assert (tmp_path / "plica-runtime.d.ts").exists()
    (tmp_path / "try.mjs").write_text(SCRIPT)
    given = json.dumps([each.ravel().tolist() for each in arrays])
    done = subprocess.run(
        ["node", "try.mjs", "m.plica", given],
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    said = json.loads(done.stdout)
    assert said["codes"] == [
        "input-missing", "input-unknown", "input-shape", "input-shape", "input-unknown",
        "bad-artefact", "bad-artefact",
    ]  # fmt: skip
    assert said["same"]
    assert said["shape"] == [4, 5]
    found = np.array(said["data"], np.float32).reshape(4, 5)
    assert_close(found, plica.interpret(module, *arrays), arrays)
