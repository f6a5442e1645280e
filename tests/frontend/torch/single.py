"""One ATen operator as a graph, read by Plica and run beside torch itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import numpy as np
import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from plica.core.name import Name
from plica.frontend.torch.dtype import array_of, dtype_of
from plica.frontend.torch.exported import assembled, decompositions
from plica.frontend.torch.reader import Reader, name_of
from plica.frontend.torch.symbol import Symbols
from plica.frontend.torch.table import TABLE
from plica.ir.graph.expression import Expr, Tuple, Var
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.type.dim import dim
from plica.ir.type.term import TensorType

# Relative to what is compared, and to the largest of it.
TOLERANCE = {"float64": 1e-11, "float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


def operator(name: str) -> Any:
    *library, packet, overload = name.split(".")
    if library:
        pytest.importorskip("transformers.integrations.moe")  # it registers its operators
    return getattr(getattr(getattr(torch.ops, *library or ["aten"]), packet), overload)


def split(args: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by position, and those by name: a dict at the end."""
    if args and isinstance(args[-1], dict):
        return list(args[:-1]), args[-1]
    return list(args), {}


def read(op: Any, args: Sequence[Any], wanted: Sequence[int] | None = None) -> Module:
    """The module of one operator on tensors as they are among its arguments."""
    leaves, spec = pytree.tree_flatten(split(args))
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = [mode.from_tensor(each) if isinstance(each, torch.Tensor) else each for each in leaves]
    with mode:
        given, named = pytree.tree_unflatten(fakes, spec)
        said = op(*given, **named)
    graph = fx.Graph()
    nodes: list[Any] = []
    params: list[Any] = []
    seen: dict[int, fx.Node] = {}  # a tensor given twice is one input
    for each, fake in zip(leaves, fakes, strict=True):
        if not isinstance(each, torch.Tensor):
            nodes.append(each)
            continue
        if id(each) in seen:
            nodes.append(seen[id(each)])
            continue
        node = seen[id(each)] = graph.placeholder(f"x{len(params)}")
        node.meta["val"] = fake
        of = dtype_of(each.dtype)
        assert of is not None
        params.append(Var(Name(f"x{len(params)}"), TensorType(tuple(map(dim, each.shape)), of)))
        nodes.append(node)
    given, named = pytree.tree_unflatten(nodes, spec)
    call = graph.call_function(op, tuple(given), named)
    call.meta["val"] = said
    outputs: list[fx.Node] = [call]
    if isinstance(said, list | tuple):
        chosen = range(len(said)) if wanted is None else wanted
        outputs = []
        for at in chosen:
            item = graph.call_function(getitem, (call, at))
            item.meta["val"] = said[at]
            outputs.append(item)
    graph.output(tuple(outputs))
    module = fx.GraphModule(torch.nn.Module(), graph)
    if name_of(op) not in TABLE:  # programs are read once torch has decomposed it
        table, inputs = decompositions(), [node.meta["val"] for node in seen.values()]
        with mode:
            module = make_fx(module, decomposition_table=table)(*inputs)
            module = make_fx(functionalize(module), decomposition_table=table)(*inputs)
    reader = Reader(Symbols({}, {}))
    made = reader.graph(module, module.graph, params)
    if reader.errors:
        raise reader.errors[0]
    body: Expr = made[0] if len(made) == 1 else Tuple(tuple(made))
    return assembled(params, body, [node.name for node in outputs])


def agrees(
    name: str,
    args: Sequence[Any],
    wanted: Sequence[int] | None = None,
    run: Callable[..., Any] = interpret,
) -> None:
    """Assert that torch and what runs the module give the same."""
    op = operator(name)
    module = read(op, args, wanted)
    leaves = [each for each in pytree.tree_leaves(split(args)) if isinstance(each, torch.Tensor)]
    tensors = {id(each): each for each in leaves}
    found = run(module, *[array_of(each) for each in tensors.values()])
    given, named = split(args)
    expected = op(*given, **named)
    if isinstance(expected, list | tuple):
        chosen = range(len(expected)) if wanted is None else wanted
        pairs = [expected[at] for at in chosen]
    else:
        pairs = [expected]
    made = found if isinstance(found, tuple) else (found,)
    for reference, mine in zip(pairs, made, strict=True):
        compare(name, np.asarray(mine), array_of(reference))


def compare(name: str, found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> None:
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), name
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted, name)
        return
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b), name)
    np.testing.assert_array_equal(a[~finite], b[~finite], name)
    tolerance = TOLERANCE[str(wanted.dtype)]
    if finite.any():
        scale = np.abs(b[finite]) + np.abs(b[finite]).max(initial=0.0) * 0.1 + 1e-6
        assert (np.abs(a[finite] - b[finite]) <= tolerance * scale).all(), (name, a, b)
