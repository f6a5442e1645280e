"""The page: models and traces as one HTML file that needs nothing else, no network, no other file.

>>> "http:" in STYLE or "https:" in SCRIPT
False
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

ASSETS: Final = files("plica.report") / "asset"
SCRIPTS: Final = ("data", "graph", "nest", "chart", "ask", "page")
STYLE: Final = (ASSETS / "page.css").read_text(encoding="utf-8")
SCRIPT: Final = "\n".join((ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)


def page(views: Sequence[Mapping[str, Any]], live: str = "") -> str:
    """The whole page; `live` is the word by which a server knows its own page."""
    title = f"Plica: {', '.join(str(view['name']) for view in views)}"
    head = joined(
        raw('<meta charset="utf-8">'),
        raw('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", title),
        element("style", raw(STYLE)),
    )
    packed = element("script", raw(pack_data({"views": list(views), "live": live})),
                     type="text/plain", id="data")  # fmt: skip
    body = element("body", element("div", id="app"), packed, element("script", raw(SCRIPT)))
    return f"<!DOCTYPE html>\n{element('html', element('head', head), body, lang='en')}\n"


def pack_data(data: object) -> str:
    """JSON, compressed, in letters that HTML leaves alone."""
    text = json.dumps(plain(data), separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def plain(data: Any) -> Any:  # Any: what JSON holds
    """Data without nan and infinite numbers, for which JSON has no word; times to four digits."""
    if isinstance(data, Mapping):
        return {str(name): plain(each) for name, each in data.items()}
    if isinstance(data, list | tuple):
        return [plain(each) for each in data]
    if isinstance(data, float):
        return float(f"{data:.4g}") if math.isfinite(data) else None
    return data


# --- sVG ---------------------------------------------------------------------------------------


class raw(str):  # reads as a word, as in raw(text)
    """Text that is markup already."""


def element(name: str, *inside: str, **attributes: object) -> raw:
    """An element; `class_` is class, `data_node` is data-node, None is left out."""
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not inside and name not in ("script", "td", "th", "div", "span", "p", "section"):
        return raw(f"<{name}{words}/>")
    body = "".join(each if isinstance(each, raw) else escape(each) for each in inside)
    return raw(f"<{name}{words}>{body}</{name}>")


def joined(*parts: str) -> raw:
    """Several elements after one another."""
    return raw("".join(parts))


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
