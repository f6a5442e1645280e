"""Words: the names that a script's text gives a fixed meaning.

The printer never gives one of them to a variable, and the reader knows them without an import.

>>> "Tensor" in WORDS, is_reserved("_12"), is_reserved("_x")
(True, True, False)
"""

from __future__ import annotations

import re
from typing import Final

from plica.ir.loop.scalar import INTRINSICS
from plica.ir.type import DTYPES, DType

VERSION: Final = 1
"""The version of the text format, in the first line of a printed module: `# plica 1`."""

DTYPE_WORDS: Final[dict[str, DType]] = {dtype.name: dtype for dtype in DTYPES}
"""What names an element type, and as a function makes a scalar of it."""

SCRIPT_WORDS: Final = frozenset(
    {
        *DTYPE_WORDS, "Tensor", "Fn", "forall", "dim",  # types
        "const", "data", "archived",  # constants
        "partial", "absurd",  # matches
        "measure",  # sizes
    }
)  # fmt: skip
"""The names of `plica.script` used by texts."""

BUILTINS: Final = frozenset({"bool", "float", "tuple", "min", "max"})
"""Python's own names that have a meaning in a text."""

_BUILTIN_CALLS: Final = frozenset(
    {"abs", "all", "any", "max", "min", "pow", "range", "round", "sum"}
)

KERNEL_WORDS: Final = frozenset(
    {
        "Buffer", "strides", "align", "alloc", "view", "let",  # memory and names
        "grid", "parallel", "vectorized", "unrolled", "virtual", "thread",  # loops
        "block", "reads", "writes", "init",
        "spatial", "reduce", "scan", "ordered", "opaque",  # variables of blocks
        "group", "barrier", "invoke",  # other statements
        "prod", "intrinsic", "ramp", "broadcast", "shuffle",  # scalars
        *INTRINSICS - _BUILTIN_CALLS,
    }
)  # fmt: skip
"""The names of `plica.script` for kernels, besides the dtypes."""

TAKEN_IN_KERNELS: Final = KERNEL_WORDS | _BUILTIN_CALLS | {"where", "annotations"}
"""Names that no variable of a printed kernel has."""

BITS: Final = "bits"  # the keyword by which a loop says how wide its variable is
ROOTS: Final = frozenset({"plica", "op", "nn", "script"})  # names of modules
MAIN: Final = "__main__"  # assigned at the end of a text whose main is not its last function
WORDS: Final = SCRIPT_WORDS | BUILTINS | ROOTS | {MAIN}

_RESERVED: Final = re.compile(r"_[0-9]+\Z")


def is_reserved(name: str) -> bool:
    """Whether the name is reserved for sharing: `_0`, `_1`, …"""
    return _RESERVED.match(name) is not None
