"""A page in a real Chromium: a model on `navigator.gpu` gives the numbers that it means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import plica
from plica.codegen.backend import backend_named
from plica.frontend.zoo import mobilenet
from tests.report.browser import Browser, installed
from tests.report.page_server import served

WHY = backend_named("webgpu").missing()
FLAGS = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")

PAGE = """<!doctype html><meta charset="utf-8"><body></body>
<script type="module">
  import { load } from "./plica-runtime.js";
  const model = await load("model.plica");
  const x = new Float32Array(await (await fetch("x.bin")).arrayBuffer());
  const codes = [];
  for (const wrong of [[], { y: x }, [x.slice(1)]]) {
    try { await model.run(wrong); codes.push("none"); } catch (error) { codes.push(error.code); }
  }
  const [{ data }] = Object.values(await model.run([x]));
  window.found = { codes, data: Array.from(data) };
  document.body.dataset.ready = "yes";
</script>
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(WHY), reason=WHY)
@pytest.mark.skipif(installed() is None, reason="There is no Chromium: apt-get install chromium.")
def test_a_page_runs_a_model_on_a_gpu(tmp_path: Path) -> None:
    module = mobilenet(2, image=32, width=0.125, classes=10)
    plica.compile(module, target="webgpu", cache=False).export(tmp_path / "model.plica")
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32), np.float32)
    x.tofile(tmp_path / "x.bin")
    (tmp_path / "index.html").write_text(PAGE)
    with served(tmp_path) as address, Browser(tmp_path, flags=FLAGS) as browser:
        browser.open(f"{address}/index.html")
        said = browser.run("window.found")
        assert browser.errors == []
    assert said["codes"] == ["input-missing", "input-unknown", "input-shape"]
    expected = np.asarray(plica.interpret(module, x))
    found = np.array(said["data"], np.float32).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
