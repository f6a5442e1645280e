"""Custom operators: those of `torch.library`, as externs with gradients.

    mylib::scale(Tensor x, float factor)     at factor=2.0 one extern: from x to the result

The symbol of the extern spells the operator and its arguments that are no tensors, so that any
process with the operator can run it. Its types come from the operator's fake implementation. Its
meaning is the operator's own implementation, called at run time; its gradient is the operator's
registered autograd formula.

>>> symbol = spelled("torch_operator_", ["mylib::scale", "default", {"factor": 2.0}])
>>> symbol.isidentifier(), written_in(symbol)
(True, ['mylib::scale', 'default', {'factor': 2.0}])
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from plica.core import Name, digest, free_vars
from plica.frontend.torch.dtype import array_of, tensor_of_array
from plica.frontend.torch.node import TorchNode
from plica.ir.graph.expression import Call, Expr, Project, Var
from plica.ir.graph.module import Defined, Definition, Extern
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type import FuncType, TensorType, TupleType, dim, type_of

if TYPE_CHECKING:
    import torch

OPERATOR: Final = "torch_operator_"
GRADIENT: Final = "torch_gradient_"  # the prefixes of symbols

Arrays = tuple[np.ndarray[Any, Any], ...]


def is_custom(target: Any) -> bool:  # Any: whatever a node calls
    """Whether a node calls an operator of a library besides torch's own."""
    import torch

    if not isinstance(target, torch._ops.OpOverload):
        return False
    return target.namespace not in ("aten", "prim", "prims", "quantized", "_c10d_functional")


class CustomOperators:
    """The externs of one program, each with its variable."""

    def __init__(self) -> None:
        self.definitions: dict[Defined, Definition] = {}
        self._known: dict[Extern, Var] = {}

    def call(self, node: TorchNode) -> Expr | list[Expr]:
        """The result of a node: one term, or a list where the operator returns several."""
        schema = node.target._schema
        if schema.is_mutable:
            node.unsupported(f"The operator {node.kind} writes to its arguments.", "a function")
        several = isinstance(node.result, list | tuple)
        said = node.result if several else [node.result]
        if not said or not all(hasattr(each, "dtype") for each in said):
            found = ", ".join(str(each.type) for each in schema.returns) or "nothing"
            node.unsupported(f"The operator {node.kind} returns no tensors.", "tensors", found)
        tensors: list[Expr] = []
        written = {each.name: _encoded(node, each.name, tensors) for each in schema.arguments}
        results = tuple([
            TensorType(tuple([dim(size) for size in node.shape(at)]), node.dtype(at))
            for at in range(len(said))
        ])  # fmt: skip
        params = tuple([type_of(tensor) for tensor in tensors])
        known = {size for param in params for size in free_vars(param)}
        if any(free_vars(result) - known for result in results):
            message = f"The operator {node.kind} returns a size that its tensors do not have."
            node.unsupported(message, "sizes that follow from those of its tensors")
        dims = tuple(sorted([each for each in known if isinstance(each, ScalarVar)],
                            key=lambda each: each.name))  # fmt: skip
        of = FuncType(dims, (), params, TupleType(results) if several else results[0])
        whole = [schema.name, node.target._overloadname, written]
        kind = digest(of)[:8]  # an extern has one type
        gradient = f"{spelled(GRADIENT, whole)}__{kind}" if has_gradient(node.target) else None
        made = Call(self._variable(Extern(f"{spelled(OPERATOR, whole)}__{kind}", of, gradient)),
                    tuple(tensors))  # fmt: skip
        return [Project(made, at) for at in range(len(results))] if several else made

    def _variable(self, of: Extern) -> Var:
        if of not in self._known:
            hint = json.loads(_plain(of.symbol))[0].rpartition("::")[2]
            self._known[of] = Var(Name(hint, len(self._known)), of.type)
            self.definitions[self._known[of]] = of
        return self._known[of]


def has_gradient(target: torch._ops.OpOverload) -> bool:
    """Whether an autograd formula is registered for an operator."""
    import torch
    from torch._library.custom_ops import OPDEFS

    if (own := OPDEFS.get(target._schema.name)) is not None:
        return own._backward_fn is not None  # its autograd kernel is there in any case, and raises
    keys, name = ("Autograd", "AutogradCPU"), target._schema.name
    name = f"{name}.{target._schema.overload_name}".removesuffix(".")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(str(name), key) for key in keys)


# --- symbols -------------------------------------------------------------------------------------


def spelled(prefix: str, written: object) -> str:
    """An identifier of C that spells a value of JSON: `_` begins the code of a character."""
    text = json.dumps(written, separators=(",", ":"))
    return prefix + re.sub(r"[^0-9A-Za-z]", lambda at: f"_{ord(at[0]):02x}", text)


def written_in(symbol: str) -> Any:  # Any: a value of JSON
    """The value that a symbol spells."""
    return json.loads(_plain(symbol))


def _plain(symbol: str) -> str:
    text = symbol.removeprefix(OPERATOR).removeprefix(GRADIENT).partition("__")[0]
    return re.sub(r"_([0-9a-f]{2})", lambda at: chr(int(at[1], 16)), text)


def _encoded(node: TorchNode, name: str, tensors: list[Expr]) -> object:
    """An argument as JSON; a tensor is its position among the tensors."""
    import torch

    def value(of: Any) -> object:  # Any: whatever the schema says
        match of:
            case Expr():
                tensors.append(of)
                return {"tensor": len(tensors) - 1}
            case None | bool() | int() | float() | str():
                return of
            case list() | tuple():
                return [value(each) for each in of]
            case torch.dtype():
                return {"dtype": str(of).removeprefix("torch.")}
        message = f"The argument {name!r} of {node.kind} is no tensor and no constant."
        hint = "Say what the symbolic dims are: from_torch(program, dims={...})."
        node.unsupported(message, "a tensor, a number, a text, or a list of them", str(of), hint)

    return value(node.argument(name))


def _decoded(of: Any, tensors: Sequence[torch.Tensor]) -> Any:  # Any: a value of JSON
    import torch

    match of:
        case {"tensor": at}:
            return tensors[at]
        case {"dtype": name}:
            return getattr(torch, name)
        case list():
            return [_decoded(each, tensors) for each in of]
    return of


def _count(of: Any) -> int:  # Any: as above
    """The number of tensors among arguments."""
    match of:
        case {"tensor": _}:
            return 1
        case list():
            return sum(map(_count, of))
    return 0


# --- at run time ---------------------------------------------------------------------------------


def implementation(symbol: str, compiled_code: bool = False) -> Callable[..., Any] | None:
    """The function of arrays that a symbol means, None where this process has no such operator."""
    import torch

    name, overload, written = written_in(symbol)
    library, _, short = name.partition("::")
    packet = getattr(getattr(torch.ops, library), short, None)
    operator = getattr(packet, overload, None)
    if operator is None:
        return None

    def arguments(tensors: Sequence[torch.Tensor]) -> dict[str, Any]:  # Any: whatever it takes
        return {name: _decoded(each, tensors) for name, each in written.items()}

    def run(*arrays: np.ndarray[Any, Any]) -> Any:  # Any: an array, or a tuple
        with torch.no_grad():
            found = operator(**arguments([*map(_tensor, arrays)]))
        return _arrays(found) if isinstance(found, list | tuple) else array_of(found)

    def gradient(*arrays: np.ndarray[Any, Any]) -> Any:  # Any: as above
        tensors = [*map(_tensor, arrays)]
        count = sum(map(_count, written.values()))
        given, cotangents = tensors[:count], tensors[count:]
        wanted = [tensor.requires_grad_() for tensor in given if tensor.is_floating_point()]
        with torch.enable_grad():
            found = operator(**arguments(given))
        results = [*found] if isinstance(found, list | tuple) else [found]
        floats = [result for result in results if result.is_floating_point()]
        pairs = [pair for pair in zip(floats, cotangents, strict=True) if pair[0].requires_grad]
        made = torch.autograd.grad(
            [each for each, _ in pairs], wanted, [tensor for _, tensor in pairs], allow_unused=True
        ) if pairs else [None] * len(wanted)  # fmt: skip
        parts = [torch.zeros_like(x) if d is None else d for x, d in zip(wanted, made, strict=True)]
        return array_of(parts[0]) if len(parts) == 1 else _arrays(parts)

    return gradient if symbol.startswith(GRADIENT) else run


def _tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    return tensor_of_array(np.array(array, order="C"))  # its own: an operator may keep it


def _arrays(of: Sequence[torch.Tensor]) -> Arrays:
    return tuple([array_of(tensor) for tensor in of])
