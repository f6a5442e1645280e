"""Notebooks: what a value that prints as text shows where pages are shown.

>>> preformatted("a < b")
'<pre>a &lt; b</pre>'
"""

from __future__ import annotations

from html import escape


def preformatted(text: str) -> str:
    """A text as it is, for `_repr_html_`."""
    return f"<pre>{escape(text, quote=False)}</pre>"
