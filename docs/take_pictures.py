"""Pictures of the site: `python -m docs.take_pictures` after `make docs`, with Chromium installed.

Writes docs/picture/site-{light,dark,420}.png of the front page and results.png of the results.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.report.browser import LOADED, Browser, installed

ROOT: Final = Path(__file__).resolve().parents[1]
SITE: Final = ROOT / "build" / "docs" / "site"
PICTURES: Final = ROOT / "docs" / "picture"


def main() -> int:
    front, results = (SITE / name for name in ("index.html", "measured.html"))
    if not front.is_file():
        sys.exit("There is no site yet: run make docs first.")
    if installed() is None:
        sys.exit("Chromium is not installed.")
    pages = {
        "site-light": (front, "light", 1280),
        "site-dark": (front, "dark", 1280),
        "site-420": (front, "light", 420),
        "results": (results, "light", 1280),
    }
    errors: list[str] = []
    for name, (page, scheme, width) in pages.items():
        # A new profile each: the site remembers the scheme.
        with TemporaryDirectory() as folder, Browser(Path(folder), width) as browser:
            browser.scheme(scheme)
            browser.open(page.as_uri() + ("#latest-run" if page == results else ""), LOADED)
            browser.shot(PICTURES / f"{name}.png")
            errors += browser.errors
    print(*errors, sep="\n", file=sys.stderr)
    return int(bool(errors))


if __name__ == "__main__":
    sys.exit(main())
