"""Externs whose symbol spells their function: who serves them, by prefix of the symbol.

>>> spelled_extern("cosf") is None
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from plica.runtime.late import late

SERVED: Final = {
    "torch_operator_": late("plica.frontend.torch.custom_operator:implementation"),
    "torch_gradient_": late("plica.frontend.torch.custom_operator:implementation"),
    "declared_": late("plica.extending.declared:implementation"),
}


def spelled_extern(
    symbol: str, compiled_code: bool = False
) -> Callable[..., Any] | None:  # Any: arrays in and out
    """The function that a symbol spells, None where it spells none or the operator is not here;
    that of the interpreter, or that of compiled code."""
    for prefix, served in SERVED.items():
        if symbol.startswith(prefix):
            found: Callable[..., Any] | None = served(symbol, compiled_code)
            return found
    return None
