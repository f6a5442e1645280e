"""Notebooks: the rich representation of values, as text or as a table.

>>> preformatted("a < b")
'<pre>a &lt; b</pre>'
>>> table(["kernel"], [["k0"]])
'<table><tr><th>kernel</th></tr><tr><td>k0</td></tr></table>'
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def preformatted(text: str) -> str:
    """A preformatted text, for `_repr_html_`."""
    return f"<pre>{escape(text, quote=False)}</pre>"


class ShownAsText:
    """Values that a notebook shows as their `str`, preformatted."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of texts under a head."""
    lines = [_row("th", head), *[_row("td", row) for row in rows]]
    return f"<table>{''.join(lines)}</table>"


def _row(kind: str, cells: Sequence[str]) -> str:
    inside = "".join(f"<{kind}>{escape(cell, quote=False)}</{kind}>" for cell in cells)
    return f"<tr>{inside}</tr>"
