"""The explorer on MobileNet-v2 in a real Chromium: size, time to the first view, pictures.

python benchmarks/explorer.py [--pictures docs/picture]

The page is written by `plica explore` with two futures (the first rule and fusion left away); it is
opened, its slider is moved, an operator is searched for, a kernel selected, and what was seen is
written where pictures were asked for: those of the documentation are made by this script.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import onnx

from plica.cli import main as plica
from plica.cli.model import here
from plica.frontend.onnx.origin import read_onnx
from plica.frontend.onnx.writer import to_onnx
from plica.frontend.zoo import mobilenet
from plica.report import compiled
from tests.report.browser import Browser, installed

SECONDS: Final = 3.0
MEGABYTES: Final = 5.0
WIDE: Final = (1280, 900)
PHONE: Final = (420, 900)


def written(folder: Path) -> Path:
    """The page of MobileNet-v2, with two futures."""
    model, page = folder / "mobilenet_v2.onnx", folder / "page.html"
    proto = to_onnx(mobilenet(2))
    onnx.save(proto, model)
    steps = compiled("mobilenet_v2", read_onnx(proto), here()).lowered.derivation.steps
    last = str(len(steps))
    words = ["--fork", "1", "--fork", last, "--timed", "3"]
    if plica(["explore", str(model), "-o", str(page), *words]) != 0:
        raise SystemExit("The page was not written.")
    return page


def walked(browser: Browser, pictures: Path) -> None:
    """What a visitor does, with a picture of each view."""
    browser.shot(pictures / "explore-light.png")
    browser.fill("#slider", "1")
    browser.key("b")
    browser.shot(pictures / "explore-rule.png")
    browser.key("b")
    browser.fill("#search", "Clip_2")
    print(f"search for Clip_2: {browser.count('#found button')} found")
    browser.click("#found button")
    browser.fill("#search", "")
    browser.click('tr[data-launch="3"]')
    print(browser.text("#sources").strip())
    browser.click('[data-tab="assembly"]')
    print(f"assembly: {len(browser.text('#assembly').splitlines())} lines")
    browser.key("End")
    browser.click('[data-tab="steps"]')
    browser.key("l")
    browser.shot(pictures / "explore-loops.png")
    browser.key("g")
    browser.click('[data-panel="futures"]')
    browser.until("document.querySelectorAll('.futures .box').length > 0")
    browser.run("document.querySelector('[data-panel=futures]').scrollIntoView()")
    browser.run("window.scrollBy(0, -120)")  # the slider stays in front of what is below
    browser.shot(pictures / "explore-futures.png")
    browser.click('[data-panel="kernels"]')
    browser.run("window.scrollTo(0, 0)")
    browser.scheme("dark")
    browser.shot(pictures / "explore-dark.png")
    browser.size(*PHONE)
    browser.shot(pictures / "explore-420.png")
    print(f"420 px: {browser.run('document.documentElement.scrollWidth')} px wide")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pictures", type=Path, help="the folder they are written into")
    arguments = parser.parse_args()
    if installed() is None:
        print("No Chromium is installed (Debian: apt-get install chromium): nothing was tried.")
        return 0
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        page = written(folder)
        size = page.stat().st_size / 1e6
        with Browser(folder, *WIDE) as browser:
            start = time.perf_counter()
            browser.open(page.as_uri())
            boxes = browser.count(".box")
            seconds = time.perf_counter() - start
            print(f"first view: {seconds:.2f} s (3 s at most), {boxes} boxes, "
                  f"{size:.2f} MB (5 MB at most)")  # fmt: skip
            walked(browser, arguments.pictures or folder)
            for error in browser.errors:
                print(error)
            good = not browser.errors
    return 0 if good and seconds < SECONDS and size < MEGABYTES else 1


if __name__ == "__main__":
    sys.exit(main())
