"""Open results: what torch itself gives otherwise where it rounds or orders otherwise.

Torch defines neither the last digits of sums and functions such as `exp`, nor the order of equal
elements. A program is rerun by torch with perturbed inputs, sums and functions, and with equal
elements permuted: a result that changes says nothing about a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from plica.frontend.torch.fuzz.case import TorchCase
from plica.frontend.torch.fuzz.row import LIBRARY, POINTWISE
from plica.rewrite.fuzz.judge import difference as apart

if TYPE_CHECKING:
    import torch
    from torch import Tensor, fx

Order = Literal["reversed", "rolled"]

TOLERANCE: Final = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-3, "float64": 1e-4}
"""Of the largest number of a result; half a dozen calls may lie in between."""

RUNS: Final = 6  # the number of perturbed runs
FEW_DIGITS: Final = 1024
"""Numbers that are integral when multiplied by this are exact function values, such as
`exp` of 0."""


def eager(
    case: TorchCase,
    inputs: Sequence[Tensor] | None = None,
    source: torch.Generator | None = None,
    order: Order | None = None,
) -> tuple[Tensor, ...] | None:
    """Torch's results, or None if it refuses the program.

    With a `source` of random numbers sums and functions are moved, with an `order` equal elements
    are met in another one.
    """
    import torch

    given = [tensor.clone() for tensor in (case.inputs if inputs is None else inputs)]
    module = case.module()  # run node by node: a module says more on the console where it fails
    values: dict[Any, Any] = {}
    holders = iter(given)
    try:
        with torch.no_grad():
            for node in module.graph.nodes:
                match node.op:
                    case "placeholder":
                        values[node] = next(holders)
                    case "get_attr":
                        values[node] = getattr(module, node.target)
                    case "output":
                        return tuple([values[each] for each in node.args[0]])
                    case _:
                        values[node] = _called(node, values, source, order)
    except (IndexError, RuntimeError, TypeError, ValueError):
        return None
    return None


def _called(
    node: fx.Node, values: dict[Any, Any], source: torch.Generator | None, order: Order | None
) -> Any:
    import torch
    from torch.fx.node import map_arg

    # Any: arguments are tensors, lists of them and plain values.
    args: Any = map_arg(node.args, values.__getitem__)
    named: Any = map_arg(node.kwargs, values.__getitem__)
    target: Any = node.target
    path = node.meta.get("path")
    if order is not None and path in ("torch.sort", "torch.topk") and args[0].ndim:
        x, *count, axis = args
        if order == "reversed":
            kept, places = target(x.flip(axis), *count, axis)
            return kept, x.shape[axis] - 1 - places
        kept, places = target(x.roll(1, axis), *count, axis)
        return kept, (places - 1) % x.shape[axis]
    run = target if node.op == "call_function" else getattr(torch.Tensor, target)
    made = run(*args, **named)
    if source is None or path is None or not isinstance(made, torch.Tensor):
        return made
    if not made.dtype.is_floating_point or (path in POINTWISE and path not in LIBRARY):
        return made
    if path in LIBRARY:
        exact = (made * FEW_DIGITS).frac() == 0
        return torch.where(exact, made, _moved(made, source, made))
    # A sum that cancels is as far off as its largest terms are, not as its own size is.
    return _moved(made, source, made.abs().amax())


def _moved(x: Tensor, source: torch.Generator, scale: Tensor) -> Tensor:
    import torch

    step = 2 * torch.finfo(x.dtype).eps * (1 - 2 * torch.rand(x.shape, generator=source))
    return (x + step * scale).to(x.dtype)


def difference(mine: Tensor, other: Tensor) -> str | None:
    """How a result differs from torch's beyond rounding, or None."""
    if (mine.dtype, mine.shape) != (other.dtype, other.shape):
        return f"{mine.dtype}{list(mine.shape)} for {other.dtype}{list(other.shape)}"
    name = str(other.dtype).removeprefix("torch.")
    a, b = (each.double() if each.dtype.is_floating_point else each for each in (mine, other))
    return apart(a.detach().numpy(), b.detach().numpy(), TOLERANCE.get(name, 0.0))


def is_open(case: TorchCase) -> bool:
    """Whether torch's own result changes where the program's meaning does not."""
    import torch

    if (before := eager(case)) is None:
        return True
    orders: tuple[Order, ...] = ("reversed", "rolled")  # the middle one is so in reverse, too
    others = [eager(case, order=order) for order in orders]
    for seed in range(RUNS):
        source = torch.Generator().manual_seed(seed)
        moved = [
            _moved(tensor, source, tensor) if tensor.dtype.is_floating_point else tensor
            for tensor in case.inputs
        ]
        others += [eager(case, moved), eager(case, source=source)]
    return any(
        after is None
        or any(difference(a, b) is not None for a, b in zip(after, before, strict=True))
        for after in others
    )
