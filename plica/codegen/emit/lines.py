"""Lines of a text with braces, indented as they nest.

>>> lines = Lines()
>>> lines.open("for (int i = 0; i < 4; ++i)")
>>> lines.do("y[i] = x[i];")
>>> lines.close()
>>> print(lines.text())
for (int i = 0; i < 4; ++i) {
  y[i] = x[i];
}
"""

from __future__ import annotations


class Lines:
    """The lines written so far, and the brace depth."""

    def __init__(self, depth: int = 0) -> None:
        self._lines: list[str] = []
        self._depth = depth

    def do(self, line: str) -> None:
        """One line."""
        self._lines.append("  " * self._depth + line)

    def open(self, head: str) -> None:
        """A line that opens a brace."""
        self.do(f"{head} {{".lstrip())
        self._depth += 1

    def turn(self, head: str) -> None:
        """Close a brace and open the next on the same line."""
        self._depth -= 1
        self.do(f"}} {head} {{")
        self._depth += 1

    def close(self) -> None:
        """Close a brace."""
        self._depth -= 1
        self.do("}")

    def text(self) -> str:
        return "\n".join(self._lines)
