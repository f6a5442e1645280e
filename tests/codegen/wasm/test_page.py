"""A page in a real Chromium: a picture is drawn and classified, and the numbers hold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import plica
from plica.codegen.backend import backend_named
from plica.frontend.zoo import squeezenet
from tests.report.browser import Browser, installed
from tests.report.page_server import served

WHY = backend_named("wasm").missing()
SIDE = 64
CLASSES = 10

PAGE = """<!doctype html>
<meta charset="utf-8"><title>A picture, classified</title>
<canvas id="picture" width="SIDE" height="SIDE"></canvas><p id="class"></p>
<script type="module">
  import { load } from "./plica-runtime.js";
  const pen = document.querySelector("#picture").getContext("2d");
  const fade = pen.createLinearGradient(0, 0, SIDE, SIDE);
  fade.addColorStop(0, "#102040");
  fade.addColorStop(1, "#ff8020");
  pen.fillStyle = fade;
  pen.fillRect(0, 0, SIDE, SIDE);
  pen.fillStyle = "#30c060";
  pen.fillRect(8, 20, 30, 12);
  const pixels = pen.getImageData(0, 0, SIDE, SIDE).data;
  const x = new Float32Array(3 * SIDE * SIDE);
  for (let at = 0; at < SIDE * SIDE; at++)
    for (let colour = 0; colour < 3; colour++)
      x[colour * SIDE * SIDE + at] = pixels[4 * at + colour] / 255 - 0.5;
  const model = await load("model.plica");
  const [{ data }] = Object.values(model.run([x]));
  const best = data.indexOf(Math.max(...data));
  document.querySelector("#class").textContent = `class ${best}`;
  window.found = { x: Array.from(x), scores: Array.from(data), best };
  document.body.dataset.ready = "yes";
</script>
""".replace("SIDE", str(SIDE))


@pytest.mark.slow
@pytest.mark.skipif(bool(WHY), reason=WHY)
@pytest.mark.skipif(installed() is None, reason="There is no Chromium: apt-get install chromium.")
@pytest.mark.parametrize(("target", "threads"), [("wasm", 1), ("wasm:threads", 2)])
def test_a_page_classifies_a_picture(target: str, threads: int, tmp_path: Path) -> None:
    module = squeezenet(image=SIDE, classes=CLASSES)
    plica.compile(module, target=target, cache=False).export(tmp_path / "model.plica")
    page = PAGE.replace('load("model.plica")', f'load("model.plica", {{ threads: {threads} }})')
    (tmp_path / "index.html").write_text(page)
    with served(tmp_path) as address, Browser(tmp_path, 300, 200) as browser:
        browser.open(f"{address}/index.html")
        said = browser.run("window.found")
        browser.shot(tmp_path / "seen.png")
        assert browser.text("#class") == f"class {said['best']}"
        assert browser.errors == []
    x = np.array(said["x"], np.float32).reshape(1, 3, SIDE, SIDE)
    expected = np.asarray(plica.interpret(module, x))
    found = np.array(said["scores"], np.float32).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    assert int(expected.argmax()) == said["best"]
    assert (tmp_path / "seen.png").stat().st_size > 1000
