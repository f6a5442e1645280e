"""Inputs and outputs that are sequences or optionals: the tensors that stand for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve

from plica.core.diagnostic import Malformed
from plica.core.name import Name
from plica.frontend.onnx.dim import identifier
from plica.frontend.onnx.ragged import as_any_rank, as_option, as_ragged
from plica.frontend.onnx.storage import dtype_of
from plica.frontend.onnx.value import (
    AnyRankValue,
    ListedValue,
    OptionValue,
    RaggedValue,
    TensorValue,
)
from plica.ir.graph.expression import Attrs, Expr, Tuple, Var, attr
from plica.ir.graph.module import Module, module
from plica.ir.type import TensorType, dim_var, dtype, known, tensor
from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.runtime.port import OpenPort
from plica.runtime.ragged import MAX_RANK, WIDTH, ListKind, ListPort, to_data

if TYPE_CHECKING:
    from onnx import TypeProto, ValueInfoProto


def port_of(info: ValueInfoProto) -> ListPort | None:
    """The list port of an input or output; None for tensors and undeclared types."""
    of: TypeProto = info.type
    if option := of.HasField("optional_type"):
        of = of.optional_type.elem_type
    if listed := of.HasField("sequence_type"):
        of = of.sequence_type.elem_type
    if not option and not listed:
        return None
    kind: ListKind = "list" if not option else "option of list" if listed else "option"
    if not of.HasField("tensor_type"):
        message = f"{info.name!r} holds no tensors."
        found = str(of.WhichOneof("value"))
        raise UnsupportedError.of("unsupported", message, Place(node=info.name), "tensors", found)
    element = dtype_of(of.tensor_type.elem_type, info.name)
    shape = None
    if of.tensor_type.HasField("shape"):
        dims = of.tensor_type.shape.dim
        if len(dims) > MAX_RANK:
            message = f"The tensors of {info.name!r} have too many axes."
            told = Diagnostic("unsupported", message, Place(node=info.name), str(MAX_RANK))
            raise UnsupportedError(told)
        # No two tensors of a list need be of one size, whatever it is called.
        shape = tuple(
            int(dim.dim_value) if dim.dim_value > 0 else dim.dim_param or f"{info.name}_{at}"
            for at, dim in enumerate(dims)
        )
    return ListPort(info.name, shape, element.name, element.numpy, kind)


def open_ports(info: ValueInfoProto) -> list[OpenPort]:
    """The arrays that stand for an input or output."""
    port = port_of(info)
    assert port is not None
    shapes: dict[str, tuple[tuple[int | str, ...], str]] = {
        ".there": ((), "bool"),
        ".elements": ((f"{port.name}_total",), port.dtype),
        ".shapes": ((f"{port.name}_count", WIDTH), "i64"),
    }
    found = []
    for name in port.parts:
        shape, element = shapes[name.removeprefix(port.name)]
        found.append(OpenPort(name, shape, element, dtype(element).numpy))
    return found


def sequence_input(info: ValueInfoProto, names: set[str]) -> tuple[list[Var], RaggedValue]:
    """The parameters that represent an input, and its port; `names` of dims are taken."""
    port = port_of(info)
    assert port is not None
    params: list[Var] = []
    for each in open_ports(info):
        sizes: list[object] = []
        for size in each.shape:
            if isinstance(size, str):
                name = identifier(size, names)
                names.add(name)
                sizes.append(dim_var(name))
            else:
                sizes.append(size)
        params.append(Var(Name(each.name), tensor(tuple(sizes), each.dtype)))  # type: ignore[arg-type]  # ints and dims
    of, axes = dtype(port.dtype), None if port.shape is None else len(port.shape)
    whole = Tuple(tuple(params))
    if port.kind == "list":
        return params, RaggedValue(whole, of, axes)
    return params, OptionValue(whole, of, axes, port.kind == "option of list")


def sequence_output(info: ValueInfoProto, value: TensorValue) -> Mapping[str, Expr]:
    """The tensors that stand for an output, by name."""
    port = given_port(info, value)
    if port.kind == "any rank":
        ragged_value: RaggedValue = as_any_rank(info.name, value)
        said = info.type.tensor_type.elem_type if info.type.HasField("tensor_type") else 0
        if said and dtype_of(said, info.name) is not ragged_value.of:
            raise _another(info, port, value)
    elif port.kind == "list":
        if isinstance(value, OptionValue) or not isinstance(value, ListedValue):
            raise _another(info, port, value)
        ragged_value = as_ragged(info.name, value)
    else:
        ragged_value = as_option(info.name, value, port.kind == "option of list")
    if ragged_value.of.name != port.dtype:
        raise _another(info, port, value)
    return dict(zip(port.parts, ragged_value.parts, strict=True))


def given_port(info: ValueInfoProto, value: TensorValue) -> ListPort:
    """The output port: as declared, or from the value."""
    if (said := port_of(info)) is not None:
        return said
    if isinstance(value, OptionValue):
        kind: ListKind = "option of list" if value.holds_list else "option"
    elif isinstance(value, AnyRankValue):
        kind = "any rank"
    elif isinstance(value, ListedValue):
        kind = "list"
    else:
        shape = tuple(known(size) for size in value.type.shape)
        named = tuple(f"{info.name}_{at}" if n is None else n for at, n in enumerate(shape))
        of = value.type.dtype
        return ListPort(info.name, named, of.name, of.numpy, "tensor")
    return ListPort(info.name, None, value.of.name, value.of.numpy, kind)


def sequence_ports(
    declared: Iterable[ValueInfoProto],
    outputs: Iterable[ValueInfoProto],
    scope: Mapping[str, TensorValue | None],
    params: Sequence[Var],
) -> Attrs:
    """The list interface as an attribute of the main function; () for tensors only."""
    taken = {str(param.name): param.type for param in params}
    takes = []
    for info in declared:
        port, of = port_of(info), taken.get(info.name)
        if port is not None:
            takes.append(port)
        elif isinstance(of, TensorType):
            takes.append(given_port(info, TensorValue(Var(Name(info.name), of))))
    values = [(output, scope.get(output.name)) for output in outputs]
    gives = [given_port(info, value) for info, value in values if value is not None]
    if all(port.kind == "tensor" for port in (*takes, *gives)):
        return ()
    told = [
        tuple([(each.name, each.kind, each.dtype, each.shape) for each in side])
        for side in (takes, gives)
    ]
    return (("lists", tuple(told)),)


def said_ports(sides: Iterable[Iterable[ValueInfoProto]]) -> tuple[list[list[Any]], ...]:
    """The declared list interface as data."""
    tensor_ = ListPort("", None, "f32", np.dtype("float32"), "tensor")  # looked at by nobody
    return tuple(
        to_data([port_of(proto) or replace(tensor_, name=proto.name) for proto in side])
        for side in sides
    )


def _another(info: ValueInfoProto, port: ListPort, value: TensorValue) -> Malformed:
    message = f"The output {info.name!r} is of another type than the model says."
    return Malformed.of("bad-model", message, Place(node=info.name), port.type, value.word)


def over_arrays(of: Module) -> Module:
    """The module whose caller gives the arrays that stand for lists."""
    main = of.main_function()
    assert of.main is not None
    if attr(main, "lists") is None:
        return of
    kept = tuple([(name, value) for name, value in main.attrs if name != "lists"])
    changed = evolve(main, attrs=kept)
    return module({n: changed if n is of.main else d for n, d in of.items()}, of.main)
