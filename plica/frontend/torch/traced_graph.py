"""Traced graphs one can call: parts that Plica has compiled, and nodes of torch.

What a call does is prepared once for its sizes: a list of steps over the values of the graph's
nodes, each of which knows where among them its arguments are, and which are needed no more after
it.  Tensors stay torch's: its memory, and on a GPU its order of work.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from plica.frontend.torch.dtype import array_of, tensor_of_array
from plica.frontend.torch.plan import (
    GPU,
    TorchPart,
    TorchPlan,
    changes,
    device_of,
    given_inputs,
    memory_order,
    module_of,
    plan,
)
from plica.frontend.torch.symbol import Symbols
from plica.runtime.cuda.program import CudaExecutable
from plica.runtime.error import Diagnostic, PlicaError
from plica.runtime.executable import Executable
from plica.runtime.foreign_tensor import settled

if TYPE_CHECKING:
    import torch
    from torch import fx

Compile: TypeAlias = Callable[..., Executable]
"""What makes code of a module, for a `target`."""

Read: TypeAlias = "Callable[[list[Any]], Any]"
"""An argument, of the values of all nodes."""

Work: TypeAlias = "Callable[[list[Any]], None]"
"""A step: it adds its results to the values of all nodes."""

Step: TypeAlias = "tuple[Work, tuple[int, ...]]"
"""A step, and the places of values that nobody needs after it."""

ALIGNED = 16
"""Bytes at whose multiples tensors begin that code for GPUs reads where they are."""


class TorchFallback(UserWarning):
    """Something is left to torch."""


class StoredTensors:
    """Tensors that count as constants, by their places among the inputs of a graph.

    A module may have other tensors at the next call: a parameter can be replaced as well as
    written.  `held` are tensors over the same memory, which torch's own graph keeps; `edition`
    says how often anything has become another.
    """

    def __init__(self, tensors: dict[int, torch.Tensor]) -> None:
        self.tensors = dict(tensors)
        self.held = {at: each.detach() for at, each in tensors.items()}
        self.edition = 0
        self._seen = self._state()

    def renew(self, args: Sequence[Any]) -> None:
        """Take note of the tensors of a call."""
        for at, known in self.tensors.items():
            given = args[at]
            if given is not known:
                self.tensors[at] = given
                self.edition += 1
            if given.data_ptr() != self.held[at].data_ptr() or given is not known:
                self.held[at].data = given.detach()
        state = self._state()
        if state != self._seen:
            self._seen = state
            self.edition += 1

    def _state(self) -> list[tuple[int, int]]:
        return [(each._version, each.data_ptr()) for each in self.tensors.values()]


class TracedGraph:
    """A traced graph one can call with a list of its inputs, which it takes over."""

    def __init__(
        self, graph: fx.GraphModule, compile_module: Compile, stored: StoredTensors
    ) -> None:
        self.graph, self.compile = graph, compile_module
        every = list(graph.graph.nodes)
        self.holders = [node for node in every if node.op == "placeholder"]
        self.frozen = dict(zip(self.holders, stored.held.values(), strict=False))
        self._stored, self._edition = stored, stored.edition
        self._plan: TorchPlan | None = None
        self._ready: dict[tuple[int, ...], list[Step]] = {}
        self._names, self._sources = _sources(self.holders)
        held = [node for node in every if node.op == "get_attr"]
        known = [*self.holders, *held]
        inner = [node for node in every if node.op == "call_function"]
        self._places = {node: at for at, node in enumerate([*known, *inner])}
        self._rest = [*[getattr(graph, node.target) for node in held], *[None] * len(inner)]
        self._is_on_gpu = device_of(graph) == GPU
        (output,) = [node for node in every if node.op == "output"]
        self._results = {self._places[node] for node in output.all_input_nodes}
        self._output = _reader(output.args[0], self._places)

    def __call__(self, args: list[Any]) -> Any:
        """Run the graph."""
        if self._edition != self._stored.edition:
            self._ready.clear()
            self._edition = self._stored.edition
        sizes = tuple([_size(args[at], axis) for at, axis in self._sources])
        steps = self._ready.get(sizes)
        if steps is None:
            steps = self._ready[sizes] = self._prepared(sizes)
        values = [*args, *self._rest]
        args.clear()
        for work, spent in steps:
            work(values)
            for at in spent:
                values[at] = None
        return self._output(values)

    def _prepared(self, sizes: tuple[int, ...]) -> list[Step]:
        """What a call with inputs of some sizes does."""
        symbols = Symbols(self._names, dict(zip(self._names.values(), sizes, strict=True)))
        if self._plan is None:
            self._plan = self._divided(symbols)
        made: list[tuple[Work, set[int]]] = []
        for step in self._plan.steps:
            if not isinstance(step, TorchPart):
                made.append(self._left(step))
            elif step.outputs:
                code = self._made(step, symbols)
                made += (
                    [self._left(node) for node in step.nodes]
                    if code is None
                    else [self._computed(step, code, symbols)]
                )
        needed = set(self._results)
        steps: list[Step] = []
        for work, used in reversed(made):
            steps.append((work, tuple(sorted(used - needed))))
            needed |= used
        return steps[::-1]

    def _left(self, node: fx.Node) -> tuple[Work, set[int]]:
        """A node that torch computes, and the places that it reads."""
        target: Any = node.target
        at = self._places[node]
        given = [_reader(each, self._places) for each in node.args]
        named = {name: _reader(each, self._places) for name, each in node.kwargs.items()}

        def work(values: list[Any]) -> None:
            more = {name: read(values) for name, read in named.items()}
            values[at] = target(*[read(values) for read in given], **more)

        return work, {self._places[each] for each in node.all_input_nodes}

    def _computed(
        self, part: TorchPart, code: Executable | OnTensors, symbols: Symbols
    ) -> tuple[Work, set[int]]:
        """A part that Plica has compiled, and the places that it reads."""
        said = [node.meta["val"] for node in part.outputs]
        given = given_inputs(part, self.frozen)
        inputs = [self._places[each] for each in given]
        outputs = [self._places[node] for node in part.outputs]
        layouts = [_strides(each, symbols) for each in said]
        orders = [memory_order(each) for each in given]
        run = (
            code
            if isinstance(code, OnTensors)
            else partial(self._called, code, said[0].device, orders)
        )

        def work(values: list[Any]) -> None:
            tensors = run([values[at] for at in inputs])
            for at, tensor, strides in zip(outputs, tensors, layouts, strict=True):
                values[at] = tensor if strides is None else _laid_out(tensor, strides)

        return work, {self._places[each] for each in part.inputs}

    def _called(
        self,
        code: Executable,
        device: Any,
        orders: Sequence[tuple[int, ...] | None],
        tensors: Sequence[Any],
    ) -> list[torch.Tensor]:
        """The results of code in which the host has a share."""
        inputs = [
            each if order is None else each.permute(order)
            for each, order in zip(tensors, orders, strict=True)
        ]
        if self._is_on_gpu:
            return _called_with(code, inputs, device)
        made = code(*map(array_of, inputs))
        return [tensor_of_array(each) for each in (made if isinstance(made, tuple) else [made])]

    def _divided(self, symbols: Symbols) -> TorchPlan:
        nodes = [node for node in self.graph.graph.nodes if node.op == "call_function"]
        if changing := [node for node in nodes if changes(node)]:
            names = ", ".join(sorted({str(node.target) for node in changing}))
            message = f"A graph that changes tensors is left to torch: {names}."
            warnings.warn(message, TorchFallback, stacklevel=2)
            return TorchPlan(tuple(nodes), ())
        found = plan(self.graph, symbols)
        if found.refused:
            warnings.warn(_listed(found.refused), TorchFallback, stacklevel=2)
        return found

    def _made(self, part: TorchPart, symbols: Symbols) -> Executable | OnTensors | None:
        try:
            module = module_of(self.graph, part, symbols, self.frozen)
            code = self.compile(module, target="cuda") if self._is_on_gpu else self.compile(module)
            return _on_tensors(code, part, given_inputs(part, self.frozen)) or code
        except PlicaError as error:  # other sizes than those the graph was divided for
            warnings.warn(_listed(error.diagnostics), TorchFallback, stacklevel=2)
            return None


class OnTensors:
    """Code that is called with tensors by their addresses: memory and order of work are torch's."""

    def __init__(
        self,
        run: Callable[[list[int], list[int]], None],
        inputs: Sequence[fx.Node],
        aligned: Sequence[int],
        rooms: Sequence[Callable[[], torch.Tensor]],
    ) -> None:
        import torch

        self._run, self._aligned, self._rooms = run, aligned, rooms
        self._dense = torch.contiguous_format
        self._orders = [memory_order(each) for each in inputs]
        self._strides = [
            None if order is None else each.meta["val"].stride()
            for each, order in zip(inputs, self._orders, strict=True)
        ]

    def __call__(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The results of tensors that lie as is expected, and of others, which are copied first."""
        dense = list(inputs)
        addresses = [each.data_ptr() for each in dense]
        strides = self._strides
        others = [
            at
            for at, each in enumerate(dense)
            if addresses[at] % self._aligned[at]
            or not (each.is_contiguous() if strides[at] is None else each.stride() == strides[at])
            or each.is_neg()
        ]
        for at in others:
            plain, order = dense[at].detach().resolve_neg(), self._orders[at]
            plain = plain if order is None else plain.permute(order)
            dense[at] = plain.clone(memory_format=self._dense)
            addresses[at] = dense[at].data_ptr()
        made = [room() for room in self._rooms]
        self._run(addresses, [each.data_ptr() for each in made])
        return made


def _on_tensors(code: Executable, part: TorchPart, inputs: Sequence[fx.Node]) -> OnTensors | None:
    """Code that tensors are given to by their addresses; None for code that takes arrays."""
    said = [node.meta["val"] for node in part.outputs]
    if isinstance(code, CudaExecutable):
        from torch._C import _cuda_getCurrentRawStream

        number, stream = said[0].device.index, _cuda_getCurrentRawStream

        def on_gpu(given: list[int], results: list[int]) -> None:
            code.run_at(given, results, stream(number))

        return OnTensors(on_gpu, inputs, [ALIGNED] * len(inputs), _rooms(code, said))
    if type(code) is not Executable or code.donated:
        return None

    def on_host(given: list[int], results: list[int]) -> None:
        code.run([*given, *results])

    sizes = [port.numpy.itemsize for port in code.inputs]
    return OnTensors(on_host, inputs, sizes, _rooms(code, said))


def _rooms(code: Executable, said: Sequence[Any]) -> list[Callable[[], torch.Tensor]]:
    """What makes memory for the results of code, as torch says they are."""
    import torch
    from torch._C._dynamo import guards

    # Torch's way for compiled code takes a third of the time; on a GPU it is for the current one.
    short: dict[str, Any] = {
        word: getattr(guards, f"_empty_strided_{word}", None) for word in ("cpu", "cuda")
    }

    def room(shape: tuple[int, ...], each: Any) -> Callable[[], torch.Tensor]:
        plain = partial(torch.empty, shape, dtype=each.dtype, device=each.device)
        if (quick := short.get(each.device.type)) is None:
            return plain
        strides = torch.empty(shape, device="meta").stride()
        made: Callable[[], torch.Tensor] = partial(quick, shape, strides, each.dtype)
        if each.device.type == "cpu":
            return made
        number, current = each.device.index, torch._C._cuda_getDevice
        return lambda: made() if current() == number else plain()

    return [room(port.shape, each) for port, each in zip(code.outputs, said, strict=True)]


def _called_with(code: Executable, inputs: Sequence[Any], device: Any) -> list[torch.Tensor]:
    """The results of code in which the host has a share, as tensors of a device."""
    found = code(*[settled(each.detach()).contiguous() for each in inputs])
    return [_of_array(each).to(device) for each in (found if isinstance(found, tuple) else [found])]


def _of_array(array: Any) -> torch.Tensor:
    """A tensor over the memory of an array, wherever that lies."""
    import torch

    return (
        tensor_of_array(array)
        if isinstance(array, np.ndarray)
        else torch.utils.dlpack.from_dlpack(array)
    )


def _sources(holders: Sequence[fx.Node]) -> tuple[dict[Any, str], list[tuple[int, int | None]]]:
    """The symbols of a graph, and where each is among its inputs: which one, and which axis."""
    names: dict[Any, str] = {}
    places: list[tuple[int, int | None]] = []
    for at, node in enumerate(holders):
        said: Any = node.meta.get("val")
        sizes: list[tuple[int | None, Any]] = [(None, said)]
        if hasattr(said, "shape"):
            sizes = list(enumerate(said.shape))
        for axis, size in sizes:
            if type(size).__name__ == "SymInt" and size.node.expr.is_Symbol:
                symbol = size.node.expr
                if symbol not in names:
                    names[symbol] = str(symbol)
                    places.append((at, axis))
    return names, places


def _size(value: Any, axis: int | None) -> int:
    return int(value if axis is None else value.shape[axis])


def _reader(given: Any, places: dict[fx.Node, int]) -> Read:
    """What gives an argument, with the values of nodes in their places."""
    if hasattr(given, "all_input_nodes"):
        return itemgetter(places[given])
    if isinstance(given, list | tuple):
        parts = [_reader(each, places) for each in given]
        kind: Any = type(given)
        return lambda values: kind([read(values) for read in parts])
    if isinstance(given, dict):
        named = {name: _reader(each, places) for name, each in given.items()}
        return lambda values: {name: read(values) for name, read in named.items()}
    if isinstance(given, slice):
        ends = [_reader(each, places) for each in (given.start, given.stop, given.step)]
        return lambda values: slice(*[read(values) for read in ends])
    return lambda values: given


def _strides(said: Any, symbols: Symbols) -> tuple[int, ...] | None:
    """The strides that torch expects of a tensor, None where one without gaps has them."""
    sizes, strides = (
        [each if isinstance(each, int) else symbols.term(each.node.expr) for each in every]
        for every in (said.shape, said.stride())
    )
    wanted = tuple([each for each in strides if isinstance(each, int)])
    if len(wanted) != len(strides):
        return None
    step = 1
    for size, stride in zip(reversed(sizes), reversed(wanted), strict=True):
        if not isinstance(size, int) or (size != 1 and stride != step):
            return wanted
        step *= size
    return None


def _laid_out(tensor: torch.Tensor, wanted: Sequence[int]) -> torch.Tensor:
    """A tensor with the strides that torch expects of it."""
    import torch

    if not tensor.numel():
        return tensor
    if all(size == 1 or a == b for size, a, b in
           zip(tensor.shape, tensor.stride(), wanted, strict=True)):  # fmt: skip
        return tensor
    # What is repeated along an axis (stride 0) is stored once.
    repeats = [size > 1 and not by for size, by in zip(tensor.shape, wanted, strict=True)]
    once = tensor[tuple([slice(0, 1) if each else slice(None) for each in repeats])]
    if _overlaps(once.shape, wanted):
        return tensor  # torch itself cannot write to it; only views have such strides
    laid_out = torch.empty_strided(
        once.shape, wanted, dtype=tensor.dtype, device=tensor.device
    ).copy_(once)
    return laid_out.as_strided(tensor.shape, wanted)


def _overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether several elements of a tensor may lie in one place."""
    end = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if stride < end:
                return True
            end = stride * (size - 1) + end
    return False


def _listed(refused: Sequence[Diagnostic]) -> str:
    lines = dict.fromkeys(str(each).splitlines()[0] for each in refused)
    return "Plica leaves these to torch:\n" + "\n".join(f"- {line}" for line in lines)
