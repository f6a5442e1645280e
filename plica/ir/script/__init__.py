"""script: the concrete syntax, which is Python's, read into modules."""

from plica.ir.script.live import Scripted, as_module, data, extern, function
from plica.ir.script.text import from_text, read_text

__all__ = ["Scripted", "as_module", "data", "extern", "from_text", "function", "read_text"]
