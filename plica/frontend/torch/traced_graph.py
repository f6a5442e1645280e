"""Traced graphs one can call: parts that Plica has compiled, and nodes of torch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from plica.frontend.torch.plan import (
    GPU,
    TorchPart,
    TorchPlan,
    changes,
    device_of,
    given_inputs,
    module_of,
    plan,
)
from plica.frontend.torch.symbol import Symbols
from plica.frontend.torch.tensor_call import TensorCall, call_of, expected_strides, laid_out
from plica.runtime.error import Diagnostic, PlicaError
from plica.runtime.executable import Executable

if TYPE_CHECKING:
    import torch
    from torch import fx

Compile: TypeAlias = Callable[..., Executable]  # what makes code of a module, for a `target`

Read: TypeAlias = "Callable[[list[Any]], Any]"  # an argument, of the values of all nodes

Work: TypeAlias = "Callable[[list[Any]], None]"
"""A step: it adds its results to the values of all nodes."""

Step: TypeAlias = "tuple[Work, tuple[int, ...]]"
"""A step, and the positions of values that die after it."""


class TorchFallback(UserWarning):
    """Something is left to torch."""


class StoredTensors:
    """Tensors that count as constants, by their places among the inputs of a graph.

    A module's tensors may change between calls: a parameter can be replaced as well as written.
    `held` are tensors over the same memory, which torch's own graph keeps; `edition` counts
    replacements.
    """

    def __init__(self, tensors: dict[int, torch.Tensor]) -> None:
        self.tensors = dict(tensors)
        self.held = {at: tensor.detach() for at, tensor in tensors.items()}
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
        return [(tensor._version, tensor.data_ptr()) for tensor in self.tensors.values()]


class TracedGraph:
    """A traced graph, callable with a list of its inputs, which it takes over."""

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
        self._open: dict[tuple[TorchPart, tuple[int, ...]], TensorCall | None] = {}
        self._names, self._sources = _sources(self.holders)
        self._equal: tuple[int, ...] = (0,) * len(self._names)
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
            self._open.clear()
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
        """The steps of a call with inputs of some sizes.

        The first sizes have specialised code; for others it is compiled once, with open sizes.
        """
        symbols = Symbols(self._names, dict(zip(self._names.values(), sizes, strict=True)))
        self._note_equal(sizes)
        if self._plan is None:
            self._plan = self._divided(symbols)
        made: list[tuple[Work, set[int]]] = []
        for step in self._plan.steps:
            if not isinstance(step, TorchPart):
                made.append(self._left(step))
            elif step.outputs:
                run = self._for_all_sizes(step) if self._ready else None
                run = self._made(step, symbols) if run is None else run
                made += (
                    [self._left(node) for node in step.nodes]
                    if run is None
                    else [self._computed(step, run, symbols)]
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
        given = [_reader(arg, self._places) for arg in node.args]
        named = {name: _reader(each, self._places) for name, each in node.kwargs.items()}

        def work(values: list[Any]) -> None:
            more = {name: read(values) for name, read in named.items()}
            values[at] = target(*[read(values) for read in given], **more)

        return work, {self._places[each] for each in node.all_input_nodes}

    def _computed(
        self, part: TorchPart, run: TensorCall, symbols: Symbols
    ) -> tuple[Work, set[int]]:
        """A part that Plica has compiled, and the places that it reads."""
        inputs = [self._places[given_input] for given_input in given_inputs(part, self.frozen)]
        outputs = [self._places[node] for node in part.outputs]
        layouts = [expected_strides(node.meta["val"], symbols) for node in part.outputs]

        def work(values: list[Any]) -> None:
            tensors = run([values[at] for at in inputs])
            for at, tensor, strides in zip(outputs, tensors, layouts, strict=True):
                values[at] = tensor if strides is None else laid_out(tensor, strides)

        return work, {self._places[each] for each in part.inputs}

    def _divided(self, symbols: Symbols) -> TorchPlan:
        nodes = [node for node in self.graph.graph.nodes if node.op == "call_function"]
        if changing := [node for node in nodes if changes(node)]:
            names = ", ".join(sorted({str(node.target) for node in changing}))
            message = f"A graph that changes tensors is left to torch: {names}."
            warnings.warn(message, TorchFallback, stacklevel=2)
            return TorchPlan(tuple(nodes), ())
        torch_plan = plan(self.graph, symbols)
        if torch_plan.refused:
            warnings.warn(_listed(torch_plan.refused), TorchFallback, stacklevel=2)
        return torch_plan

    def _note_equal(self, sizes: Sequence[int]) -> None:
        """Note the symbols that had equal sizes in all calls: each has the first of its like.

        Torch has several symbols where it did not need to know that sizes are equal, as those of
        keys and values in a cache.
        """
        like = list(zip(self._equal, sizes, strict=True))
        self._equal = tuple([like.index(each) for each in like])

    def _for_all_sizes(self, part: TorchPart) -> TensorCall | None:
        """A part with open sizes, or None if its operators need static ones."""
        if self._is_on_gpu:
            return None
        key = part, self._equal
        if key not in self._open:
            names = [*self._names.values()]
            merged = {name: names[at] for name, at in zip(self._names, self._equal, strict=True)}
            try:
                module = module_of(self.graph, part, Symbols(merged, {}), self.frozen)
                given = given_inputs(part, self.frozen)
                self._open[key] = call_of(self.compile(module), given, (), by_arrays=True)
            except PlicaError:
                self._open[key] = None
        return self._open[key]

    def _made(self, part: TorchPart, symbols: Symbols) -> TensorCall | None:
        try:
            module = module_of(self.graph, part, symbols, self.frozen)
            code = self.compile(module, target="cuda") if self._is_on_gpu else self.compile(module)
            said = [node.meta["val"] for node in part.outputs]
            given = given_inputs(part, self.frozen)
            return call_of(code, given, said, on_gpu=self._is_on_gpu)
        except PlicaError as error:  # other sizes than those the graph was divided for
            warnings.warn(_listed(error.diagnostics), TorchFallback, stacklevel=2)
            return None


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


def _listed(refused: Sequence[Diagnostic]) -> str:
    lines = dict.fromkeys(str(diagnostic).splitlines()[0] for diagnostic in refused)
    return "Plica leaves these to torch:\n" + "\n".join(f"- {line}" for line in lines)
