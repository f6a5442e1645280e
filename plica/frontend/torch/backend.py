"""The backend of `torch.compile`: what Plica has a table for it computes, torch does the rest.

Torch hands over a graph without state.  It is divided when it is first called, since then all sizes
are numbers; a call with other sizes makes code of its own, once.  Tensors go in without a copy
where their memory allows it, and come out with the strides that torch expects.

Where a gradient may be asked for, torch derives a graph forwards and a graph backwards, and each of
them is divided like any other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from plica.frontend.torch.dtype import array_of, tensor_of_array
from plica.frontend.torch.plan import (
    GPU,
    TorchPart,
    TorchPlan,
    changes,
    device_of,
    module_of,
    plan,
)
from plica.frontend.torch.symbol import Symbols
from plica.frontend.torch.view import with_views_last
from plica.runtime.cuda.program import CudaExecutable
from plica.runtime.error import Diagnostic, InputError, PlicaError
from plica.runtime.executable import Executable
from plica.runtime.foreign_tensor import settled

if TYPE_CHECKING:
    import torch
    from torch import fx

Compile: TypeAlias = Callable[..., Executable]
"""What makes code of a module, for a `target`."""

ALIGNED = 16
"""Bytes at whose multiples tensors begin that code for GPUs reads where they are."""


class TorchFallback(UserWarning):
    """Something is left to torch."""


def compiled(
    graph: fx.GraphModule, inputs: Sequence[Any], compile_module: Compile, freeze: bool = False
) -> Callable[..., Any]:
    """What `torch.compile` calls in place of a graph.

    With `freeze`, parameters and buffers count as constants, so that they can be packed and folded;
    code is made anew when torch says that one of them was changed.
    """
    import torch
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch._aot_autograd.utils import make_boxed_func

    wanting = [each for each in inputs if isinstance(each, torch.Tensor) and each.requires_grad]
    # Parameters that a step of training changes are no constants.
    trains = bool(wanting) and torch.is_grad_enabled()
    stored = StoredTensors(_stored(inputs) if freeze and not trains else {})

    def inference(traced: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        run = TracedGraph(with_views_last(traced), compile_module, stored)
        boxed: Callable[..., Any] = make_boxed_func(run)
        return boxed

    table: Any = torch._decomp.core_aten_decompositions()  # Any: torch's own kind of table
    # Torch takes it apart for inference alone: what its slope needs is another tensor then.
    table.pop(torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default, None)
    if not stored.tensors:
        made: Callable[..., Any] = aot_autograd(
            fw_compiler=inference,
            bw_compiler=inference,
            inference_compiler=inference,
            decompositions=table,
        )(graph, inputs)
        return made
    # The stored tensors become attributes of the graph; torch then gives them as its first inputs.
    rest = [each for at, each in enumerate(inputs) if at not in stored.tensors]
    inner: Callable[..., Any] = aot_autograd(
        fw_compiler=inference, inference_compiler=inference, decompositions=table
    )(_with_attributes(graph, stored), rest)
    kept = [at for at in range(len(inputs)) if at not in stored.tensors]

    def frozen(*args: Any) -> Any:
        stored.renew(args)
        return inner(*[args[at] for at in kept])

    return frozen


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


def _stored(inputs: Sequence[Any]) -> dict[int, torch.Tensor]:
    """The inputs that are parameters or buffers of a module."""
    import torch

    return {
        at: each
        for at, each in enumerate(inputs)
        if isinstance(each, torch.nn.Parameter)
        or getattr(each, "_dynamo_static_input_type", None) is not None
    }


def _with_attributes(graph: fx.GraphModule, stored: StoredTensors) -> fx.GraphModule:
    import copy

    changed = copy.copy(graph)
    changed.graph = copy.deepcopy(graph.graph)
    holders = [node for node in changed.graph.nodes if node.op == "placeholder"]
    for at, tensor in stored.held.items():
        name = f"stored_{at}"
        changed.register_buffer(name, tensor)
        with changed.graph.inserting_after(holders[-1]):
            held = changed.graph.get_attr(name)
        held.meta = dict(holders[at].meta)
        holders[at].replace_all_uses_with(held)
        changed.graph.erase_node(holders[at])
    changed.recompile()
    return changed


class TracedGraph:
    """A traced graph one can call: parts that Plica has compiled, and nodes of torch."""

    def __init__(
        self, graph: fx.GraphModule, compile_module: Compile, stored: StoredTensors
    ) -> None:
        self.graph, self.compile = graph, compile_module
        self.holders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        self.frozen = dict(zip(self.holders, stored.held.values(), strict=False))
        self._stored, self._edition = stored, stored.edition
        self._plan: TorchPlan | None = None
        self._code: dict[tuple[TorchPart, tuple[int, ...]], Executable | OnGpu | None] = {}
        self._names, self._sources = _sources(self.holders)
        self._held = {
            node: getattr(graph, node.target) for node in graph.graph.nodes if node.op == "get_attr"
        }
        self._is_on_gpu = device_of(graph) == GPU
        (output,) = [node for node in graph.graph.nodes if node.op == "output"]
        self._output: Any = output.args[0]

    def __call__(self, *args: Any) -> Any:
        """Run the graph."""
        if self._edition != self._stored.edition:
            self._code.clear()
            self._edition = self._stored.edition
        sizes = tuple(_size(args[at], axis) for at, axis in self._sources)
        symbols = Symbols(self._names, dict(zip(self._names.values(), sizes, strict=True)))
        if self._plan is None:
            self._plan = self._divided(symbols)
        values: dict[fx.Node, Any] = dict(zip(self.holders, args, strict=True))
        values |= self._held
        for step in self._plan.steps:
            if isinstance(step, TorchPart):
                self._part(step, values, symbols, sizes)
            else:
                values[step] = _called(step, values)
        return _filled(self._output, values)

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

    def _part(
        self, part: TorchPart, values: dict[fx.Node, Any], symbols: Symbols, sizes: tuple[int, ...]
    ) -> None:
        if not part.outputs:
            return
        key = (part, sizes)
        if key not in self._code:
            self._code[key] = self._made(part, symbols)
        if (code := self._code[key]) is None:
            for node in part.nodes:
                values[node] = _called(node, values)
            return
        inputs = [
            values[each]
            for each in part.inputs
            if each not in self.frozen and each.op != "get_attr"
        ]
        if isinstance(code, OnGpu):
            tensors = code(*inputs)
        elif self._is_on_gpu:
            tensors = _called_with(code, inputs, part.outputs[0].meta["val"].device)
        else:
            made = code(*map(array_of, inputs))
            tensors = [
                tensor_of_array(each) for each in (made if isinstance(made, tuple) else [made])
            ]
        for node, tensor in zip(part.outputs, tensors, strict=True):
            values[node] = _laid_out(tensor, node.meta["val"], symbols)

    def _made(self, part: TorchPart, symbols: Symbols) -> Executable | OnGpu | None:
        try:
            module = module_of(self.graph, part, symbols, self.frozen)
            if not self._is_on_gpu:
                return self.compile(module)
            code = self.compile(module, target="cuda")
            return OnGpu(code, part.outputs) if isinstance(code, CudaExecutable) else code
        except PlicaError as error:  # other sizes than those the graph was divided for
            warnings.warn(_listed(error.diagnostics), TorchFallback, stacklevel=2)
            return None


class OnGpu:
    """Code for a GPU that is called with tensors: torch has their memory and the order of work."""

    def __init__(self, code: CudaExecutable, outputs: Sequence[fx.Node]) -> None:
        from torch._C import _cuda_getCurrentRawStream

        self.code = code
        said = [node.meta["val"] for node in outputs]
        self._number = said[0].device.index
        self._made = [
            (port.shape, {"dtype": each.dtype, "device": each.device})
            for port, each in zip(code.outputs, said, strict=True)
        ]
        self._stream = _cuda_getCurrentRawStream

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """The results of dense tensors and others, of which there are dense copies first."""
        import torch

        dense = [each if each.is_contiguous() and not each.is_neg() else
                 each.detach().resolve_neg().contiguous() for each in inputs]  # fmt: skip
        addresses = [each.data_ptr() for each in dense]
        if any(each % ALIGNED for each in addresses):
            dense = [each.detach().clone() for each in dense]
            addresses = [each.data_ptr() for each in dense]
        made = [torch.empty(shape, **how) for shape, how in self._made]
        there = [each.data_ptr() for each in made]
        self.code.run_at(addresses, there, self._stream(self._number))
        return made


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


def _called(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    target: Any = node.target
    given = [_filled(each, values) for each in node.args]
    named = {name: _filled(each, values) for name, each in node.kwargs.items()}
    return target(*given, **named)


def _filled(given: Any, values: dict[fx.Node, Any]) -> Any:
    """An argument with the values of nodes in their places."""
    if hasattr(given, "all_input_nodes"):
        return values[given]
    if isinstance(given, list | tuple):
        return type(given)([_filled(each, values) for each in given])
    if isinstance(given, dict):
        return {name: _filled(each, values) for name, each in given.items()}
    if isinstance(given, slice):
        ends = (given.start, given.stop, given.step)
        return slice(*[_filled(each, values) for each in ends])
    return given


def _laid_out(tensor: torch.Tensor, said: Any, symbols: Symbols) -> torch.Tensor:
    """A tensor with the strides that torch expects of it."""
    import torch

    strides = [
        each if isinstance(each, int) else symbols.term(each.node.expr) for each in said.stride()
    ]
    wanted = [each for each in strides if isinstance(each, int)]
    if len(wanted) != len(strides) or list(tensor.stride()) == wanted or not tensor.numel():
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


def check_options(options: dict[str, Any] | None, mode: str | None) -> bool:
    """Whether parameters are to be frozen; other options are refused."""
    given = dict(options or {})
    freeze = given.pop("freeze", False)
    if given or mode not in (None, "default"):
        message = "The backend of Plica does not have this option."
        found = ", ".join(sorted(given)) or f"mode={mode!r}"
        raise InputError(Diagnostic("input-unknown", message, None, "freeze", found))
    return bool(freeze)
