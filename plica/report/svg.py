"""SVG: shapes as text, every attribute and every word escaped.

>>> element("text", "a < b", x=1, y=2.5)
'<text x="1" y="2.5">a &lt; b</text>'
>>> element("g", raw(element("rect", x=0)), class_="bar", data_node="conv")
'<g class="bar" data-node="conv"><rect x="0"/></g>'
"""

from __future__ import annotations

from html import escape


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
