"""The backend of `torch.compile`: Plica computes what its table covers, torch the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from plica.frontend.torch.traced_graph import Compile, StoredTensors, TorchFallback, TracedGraph
from plica.frontend.torch.view import with_views_last
from plica.runtime.error import InputError, wrong_argument

if TYPE_CHECKING:
    import torch
    from torch import fx

__all__ = ["StoredTensors", "TorchFallback", "TracedGraph", "check_options", "compiled"]


def compiled(
    graph: fx.GraphModule, inputs: Sequence[Any], compile_module: Compile, freeze: bool = False
) -> Callable[..., Any]:
    """What `torch.compile` calls in place of a graph.

    With `freeze`, parameters and buffers are constants, which can be packed and folded; code is
    recompiled when torch reports a change.
    """
    import torch
    from torch._dynamo.backends.common import aot_autograd

    wanting = [each for each in inputs if isinstance(each, torch.Tensor) and each.requires_grad]
    # Parameters that a step of training changes are no constants.
    trains = bool(wanting) and torch.is_grad_enabled()
    stored = StoredTensors(_stored(inputs) if freeze and not trains else {})

    def inference(traced: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        run = TracedGraph(with_views_last(traced), compile_module, stored)

        def boxed(args: list[Any]) -> Any:
            return run(args)

        boxed._boxed_call = True  # type: ignore[attr-defined]  # torch's word for such a function
        return boxed

    table: Any = torch._decomp.core_aten_decompositions()  # Any: torch's own kind of table
    # Norms of a batch that is trained on are sums and products like others: one part with the rest.
    aten = torch.ops.aten
    norms = [aten._native_batch_norm_legit_functional, aten._batch_norm_with_update_functional]
    table.update(torch._decomp.get_decompositions([*norms, aten.batch_norm_backward]))
    # Torch decomposes it for inference only: its gradient then needs another tensor.
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


def check_options(options: dict[str, Any] | None, mode: str | None) -> bool:
    """Whether parameters are to be frozen; other options are refused."""
    given = dict(options or {})
    freeze = given.pop("freeze", False)
    if given or mode not in (None, "default"):
        message = "The backend of Plica does not have this option."
        found = ", ".join(sorted(given)) or f"mode={mode!r}"
        raise InputError.of("input-unknown", message, None, "freeze", found)
    if not isinstance(freeze, bool):
        message = "The option 'freeze' says whether parameters are constants."
        raise wrong_argument(message, "True or False", freeze)
    return freeze
