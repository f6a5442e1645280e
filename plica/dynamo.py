"""The torch backend: `torch.compile(model, backend="plica")` finds `backend` here.

Torch is imported when it calls; docs/torch.md has examples.

>>> issubclass(TorchFallback, UserWarning)
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from plica.frontend.torch.backend import TorchFallback, check_options, compiled
from plica.pipeline import compile as compile_module

if TYPE_CHECKING:
    from torch import fx

__all__ = ["TorchFallback", "backend"]


def backend(
    graph: fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """Native code for a graph; `options={"freeze": True}` makes parameters constants."""
    return compiled(graph, inputs, compile_module, freeze=check_options(options, mode))
