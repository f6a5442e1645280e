"""script: the concrete syntax, which is Python's, read into modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "Scripted", "ScriptedKernel", "as_module", "data", "extern", "from_text", "function", "kernel",
    "read_text",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.ir.text.script.live import extern
    from plica.ir.text.script.mark import (
        Scripted,
        ScriptedKernel,
        as_module,
        data,
        function,
        kernel,
    )
    from plica.ir.text.script.text import from_text, read_text
else:
    lazily(__name__)
