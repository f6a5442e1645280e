"""Operators: the module of a record is imported when its name is looked up.

>>> find("sub") is find("subtract"), "nn.conv" in names()
(True, True)
"""

from typing import Final

from plica.ir.graph.operator import (
    Attribute,
    Mismatch,
    Operator,
    aliases,
    catalogue,
    find,
    names,
    namespaces,
    register,
)

FILES: Final = (
    "elementwise", "linear", "activation", "convolution", "shape", "repeat", "comparison",
    "reduction", "normalize", "pad", "cut", "pool", "index", "create", "join", "pixel", "arrange",
    "quantise", "laid", "winograd", "mark", "order", "put", "scatter", "loss", "roi", "sampled",
    "sparse", "unpool", "bitserial", "top_k", "fourier", "collective",
)  # fmt: skip
"""The files of records, the commonest operators first."""

catalogue(f"{__name__}.{file}" for file in FILES)

__all__ = [
    "Attribute", "Mismatch", "Operator", "aliases", "find", "names", "namespaces", "register",
]  # fmt: skip
