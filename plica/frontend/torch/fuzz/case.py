"""Cases: a random torch program with inputs, grown call by call together with torch."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs

from plica.frontend.torch.fuzz.row import CallDraw, KnownValue, TorchCall, rows_for

if TYPE_CHECKING:
    import torch
    from torch import Tensor, fx

SHAPES: Final = ((2, 3, 5, 4), (1, 4, 6, 6), (2, 4, 7), (3, 2, 5), (3, 4), (5,), (2, 6), ())
MOST_ELEMENTS: Final = 2_000
LARGEST: Final = 1e4
TRIES: Final = 8

REFUSED: Final = (
    AssertionError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What torch says where a call makes no sense."""


@attrs.frozen(eq=False)
class TorchCase:
    """Inputs, a sequence of calls with one result each, and the inputs' values."""

    inputs: tuple[Tensor, ...]
    calls: tuple[tuple[TorchCall, int | None], ...]  # each call, with the index of its kept result
    outputs: tuple[int, ...]

    def module(self) -> fx.GraphModule:
        """The program as a module: one line after another, as people write them.

        If calls are nested functions, dynamo confuses their results (`torch.Tensor.int` with the
        `torch.ones_like` after it), also with its own backend `eager`, and soon stops compiling
        them.
        """
        from torch import fx

        graph = fx.Graph()
        held: dict[str, Tensor] = {}
        nodes = [graph.placeholder(f"v{at}") for at in range(len(self.inputs))]
        for call, part in self.calls:
            node = _node(graph, call, nodes, held)
            nodes.append(
                node if part is None else graph.call_function(operator.getitem, (node, part))
            )
        graph.output(tuple([nodes[at] for at in self.outputs]))
        return fx.GraphModule(held, graph).eval()

    def text(self) -> str:
        """The program as Python has it."""
        names = ", ".join(f"v{at}" for at in range(len(self.inputs)))
        lines = [f"def forward({names}):"]
        for at, (call, part) in enumerate(self.calls, len(self.inputs)):
            lines.append(f"    v{at} = {call.text()}" + ("" if part is None else f"[{part}]"))
        lines.append(f"    return {', '.join(f'v{at}' for at in self.outputs)},")
        return "\n".join(lines)

    def smaller(self) -> Iterator[TorchCase]:
        """The program with one call less, and with one result less."""
        if len(self.outputs) > 1:
            for at in self.outputs:
                yield attrs.evolve(self, outputs=(at,))
        for at in reversed(range(len(self.calls))):
            if (case := _without(self, at)) is not None:
                yield case


def _without(of: TorchCase, at: int) -> TorchCase | None:
    """The case without a call that nothing needs, or whose first tensor can stand for it."""
    number = len(of.inputs) + at
    call = of.calls[at][0]
    known = next((arg.number for arg in call.args if isinstance(arg, KnownValue)), None)
    if known is None:
        return None

    def new(old: int) -> int:
        old = known if old == number else old
        return old - 1 if old > number else old

    calls = [(_renumbered(torch_call, new), part) for torch_call, part in of.calls]
    del calls[at]
    return TorchCase(of.inputs, tuple(calls), tuple(dict.fromkeys(map(new, of.outputs))))


def _renumbered(of: Any, new: Any) -> Any:
    if isinstance(of, KnownValue):
        return KnownValue(new(of.number))
    if isinstance(of, list):
        return [_renumbered(each, new) for each in of]
    if isinstance(of, TorchCall):
        return TorchCall(of.path, tuple([_renumbered(arg, new) for arg in of.args]), of.named)
    return of


def torch_case(seed: int, number: int, most: int = 8) -> TorchCase:
    """The case of a number."""
    import torch

    random = Random(f"{seed}/{number} torch")
    shape = random.choice(SHAPES)
    kind = random.choice((torch.float32,) * 5 + (torch.float64, torch.int64, torch.float16))
    inputs = tuple([_numbers(random, shape, kind) for _ in range(random.randint(1, 2))])
    values = [tensor.clone() for tensor in inputs]
    calls: list[tuple[TorchCall, int | None]] = []
    for _ in range(random.randint(1, most)):
        for _ in range(TRIES):
            if (made := _grown(random, values)) is not None:
                call, part, value = made
                calls.append((call, part))
                values.append(value)
                break
    given = len(inputs)
    last = list(range(given, len(values))) or [0]
    outputs = {last[-1], *[each for each in last if random.random() < 0.2]}
    return TorchCase(inputs, tuple(calls), tuple(sorted(outputs)))


def _grown(random: Random, values: Sequence[Tensor]) -> tuple[TorchCall, int | None, Tensor] | None:
    """One more call on known tensors, or None if torch refuses it."""
    import torch
    from torch import fx

    back = min(int(random.expovariate(0.7)), len(values) - 1)
    at = len(values) - 1 - back
    rows = rows_for(values[at])
    row = rows[random.choice(list(rows))]
    try:
        call = row(CallDraw(random, values), KnownValue(at), values[at])
        alone = TorchCase(tuple(values), ((call, None),), (len(values),))
        made = fx.Interpreter(alone.module()).run(*[value.clone() for value in values])[0]
        part = None
        if isinstance(made, tuple | list):
            part = random.randrange(len(made))
            made = made[part]
    except REFUSED:
        return None
    if not isinstance(made, torch.Tensor) or not made.numel() or made.numel() > MOST_ELEMENTS:
        return None
    of = made.double() if made.dtype != torch.bool else made
    if not bool(torch.isfinite(of).all()) or bool(
        (of.abs() > LARGEST).any() if made.dtype != torch.bool else False
    ):
        return None
    return call, part, made


def _node(
    graph: fx.Graph, call: TorchCall, nodes: Sequence[fx.Node], held: dict[str, Tensor]
) -> fx.Node:
    """A call as a graph node, with constants stored separately."""
    import torch

    if call.path in ("weight", "spread", "places"):
        name = f"held_{len(held)}"
        held[name] = _held(call)
        return graph.get_attr(name)

    def argument(of: Any) -> Any:
        match of:
            case KnownValue(number):
                return nodes[number]
            case TorchCall():
                return _node(graph, of, nodes, held)
            case list():
                return [argument(each) for each in of]
            case _:
                return of

    args, named = tuple([argument(arg) for arg in call.args]), dict(call.named)
    within, _, name = call.path.rpartition(".")
    if within == "torch.Tensor":
        node = graph.call_method(name, args, named)
    else:
        found: Any = torch if within == "torch" else torch.nn.functional  # Any: modules
        node = graph.call_function(getattr(found, name), args, named)
    node.meta["path"] = call.path
    return node


def _held(call: TorchCall) -> Tensor:
    """A constant: numbers by its shape, or places that are given."""
    import torch

    if call.path == "places":
        return torch.tensor(call.args)
    count = 1
    for size in call.args:
        count *= size
    line = (torch.arange(count) * 37 % 29 - 14).float() / 8
    return (line.abs() + 0.5 if call.path == "spread" else line).reshape(call.args)


def _numbers(random: Random, shape: tuple[int, ...], kind: torch.dtype) -> Tensor:
    import torch

    source = torch.Generator().manual_seed(random.randrange(1 << 32))
    if kind == torch.int64:
        return torch.randint(-4, 9, shape, generator=source)
    if random.random() < 0.5:
        return (torch.randint(-16, 17, shape, generator=source) / 8).to(kind)
    return torch.randn(shape, generator=source).to(kind)
