"""script: the concrete syntax, which is Python's, read into modules."""

from plica.ir.script.live import Scripted, ScriptedKernel, as_module, data, extern, function, kernel
from plica.ir.script.text import from_text, read_text

__all__ = [
    "Scripted",
    "ScriptedKernel",
    "as_module",
    "data",
    "extern",
    "from_text",
    "function",
    "kernel",
    "read_text",
]
