"""Where a step is refused: the path to a loop or a block, and the kernel with it underlined."""

from __future__ import annotations

import re
from collections.abc import Iterator

from attrs import frozen

from plica.analysis.site import Site
from plica.ir.loop.statement import Block, For, Kernel, Stmt
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.text.show import show_kernel


@frozen(eq=False)
class RefusalPlace:
    """The kernel before a step, and the loops and blocks that the refusal is about."""

    kernel: Kernel
    sites: tuple[Site[For] | Site[Block], ...]

    @property
    def path(self) -> tuple[str, ...]:
        """From the root to the first of the places."""
        if not self.sites:
            return ()
        around = [stmt for stmt, _ in self.sites[0].above]
        return tuple(_steps((*around, self.sites[0].node)))

    @property
    def text(self) -> str:
        """The kernel as text, each place underlined."""
        lines = []
        for line in show_kernel(self.kernel, "kernel").splitlines():
            lines.append(line)
            if marks := [mark for site in self.sites for mark in _marks(line, site.node)]:
                under = [" "] * max(end for _, end in marks)
                for start, end in marks:
                    under[start:end] = "^" * (end - start)
                lines.append("".join(under))
        return "\n".join(lines)


def _steps(around: tuple[Stmt, ...]) -> Iterator[str]:
    for stmt in around:
        match stmt:
            case For(var):
                yield f"for {var.name}"
            case Block():
                yield f"block {stmt.label}"
            case _:
                continue


def _marks(line: str, node: For | Block) -> Iterator[tuple[int, int]]:
    """Where a line of a kernel speaks of a loop or of a block."""
    if isinstance(node, For):
        head = re.match(rf"\s*for [^:]*?\b({re.escape(str(node.var.name))})\b", line)
    else:
        head = re.match(rf"\s*with (block\(\"{re.escape(str(node.label))}\")", line)
    if head is not None:
        yield head.span(1)
