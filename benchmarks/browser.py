"""Networks in a real Chromium, as WebAssembly on one thread, beside onnxruntime-web.

    npm install onnxruntime-web
    python benchmarks/browser.py node_modules/onnxruntime-web/dist [mobilenet_v2 ...]

Both get the same numbers in one page, in turns; times are the shortest of all calls, in ms.  A
ratio is onnxruntime-web's time over Plica's (above 1: Plica is faster), `error` the greatest
difference, relative to the greatest number.  Without the folder of onnxruntime-web Plica is alone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import onnx

import plica
from benchmarks.models import model_of
from plica.frontend import zoo
from tests.report.browser import Browser, installed
from tests.report.page_server import served

ROUNDS: Final = 15

PAGE: Final = """<!doctype html><meta charset="utf-8">
<script type="module">
  import { load } from "./plica-runtime.js";
  const model = await load("model.plica");
  const given = new Float32Array(await (await fetch("x.bin")).arrayBuffer());
  const least = { plica: Infinity, ort: Infinity };
  const [{ data: ours }] = Object.values(model.run([given]));
  let theirs = ours, other = null;
  if (BESIDE) {
    const ort = await import("./ort/ort.wasm.min.mjs");
    ort.env.wasm.numThreads = 1;
    ort.env.wasm.wasmPaths = new URL("./ort/", location.href).href;
    const how = { executionProviders: ["wasm"] };
    const session = await ort.InferenceSession.create("model.onnx", how);
    const feeds = { [session.inputNames[0]]: new ort.Tensor("float32", given, SHAPE) };
    other = async () => (await session.run(feeds))[session.outputNames[0]].data;
    theirs = await other();
  }
  for (let round = 0; round < ROUNDS; round++) {
    let begin = performance.now();
    model.run([given]);
    least.plica = Math.min(least.plica, performance.now() - begin);
    begin = performance.now();
    if (other) await other();
    if (other) least.ort = Math.min(least.ort, performance.now() - begin);
  }
  const apart = Math.max(...ours.map((each, at) => Math.abs(each - theirs[at])));
  window.found = { ...least, error: apart / Math.max(...theirs.map(Math.abs)) };
  document.body.dataset.ready = "yes";
</script><body></body>
"""


def timed(name: str, target: str, beside: Path | None) -> dict[str, float]:
    """What a page says of a network."""
    model, values = model_of(name)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        plica.compile(zoo.NETWORKS[name](), target=target).export(root / "model.plica")
        onnx.save(model, root / "model.onnx")
        values.tofile(root / "x.bin")
        if beside is not None:
            shutil.copytree(beside, root / "ort", ignore=shutil.ignore_patterns("*.map"))
        words = {"SHAPE": json.dumps(values.shape), "ROUNDS": str(ROUNDS),
                 "BESIDE": json.dumps(beside is not None)}  # fmt: skip
        page = PAGE
        for word, value in words.items():
            page = page.replace(word, value)
        (root / "index.html").write_text(page)
        with served(root) as address, Browser(root) as browser:
            browser.open(f"{address}/index.html")
            found: dict[str, float] = browser.run("window.found")
            return found


def main() -> int:
    """Print a line for each network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ort", nargs="?", type=Path, help="the folder `dist` of onnxruntime-web")
    parser.add_argument("networks", nargs="*", default=["mobilenet_v2"])
    parser.add_argument("--target", default="wasm")
    asked = parser.parse_args()
    if installed() is None:
        print("There is no Chromium: apt-get install chromium.")
        return 1
    for name in asked.networks:
        found = timed(name, asked.target, asked.ort)
        line = f"{name:16} plica {found['plica']:8.1f} ms"
        if asked.ort is not None:
            ratio = found["ort"] / found["plica"]
            line += f"  onnxruntime-web {found['ort']:8.1f} ms  ratio {ratio:.2f}"
        print(f"{line}  error {found['error']:.0e}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
