"""Exporting: a module of torch and its inputs as a program, or a refusal that says what is wrong.

Torch traces the module with the shapes of the inputs.  What it cannot do with them is said as every
refusal here, with the submodule and the line it came to; what the module raises itself is its own.
Inputs may be arrays.  A program has the weights that the module had when it was exported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from plica.frontend.torch.dtype import dtype_of, tensor_of_array
from plica.runtime.element import ELEMENTS
from plica.runtime.error import Diagnostic, InputError, Place, PlicaError, UnsupportedError
from plica.runtime.foreign_tensor import how_to_share
from plica.runtime.given import ordinal

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


def exported(
    model: torch.nn.Module, args: tuple[torch.Tensor, ...], named: Mapping[str, torch.Tensor]
) -> ExportedProgram:
    """The program of a module for inputs like these."""
    from torch.export import export  # it is torch's module

    if wrong := [*_wrong_inputs(model, len(args), tuple(named))]:
        raise InputError(*wrong)
    if empty := [*_without_elements(model)]:
        raise UnsupportedError(*empty)
    try:
        return export(model, args, dict(named))
    except RuntimeError as error:  # what every error of torch is
        if not _is_of_torch(error):
            raise
        refused = _refused(model, (*args, *named.values()), error)
    raise refused


@frozen(eq=False)
class ModuleWeights:
    """The parameters and buffers of a module when it was read: who has them by which name, how
    often they had been written (-1 where torch does not count), and where they lay (0 where nobody
    knows)."""

    held: tuple[tuple[Mapping[str, torch.Tensor | None], str, torch.Tensor, int, int], ...]

    def are_same(self) -> bool:
        """Whether the module has them still, and torch reports that none was written."""
        for own, name, tensor, writes, place in self.held:  # each call asks: nothing is made here
            if id(own.get(name)) != id(tensor):
                return False
            if writes >= 0 and tensor._version != writes:
                return False
            if place and tensor.data_ptr() != place:
                return False
        return True


def weights_of(model: torch.nn.Module) -> ModuleWeights:
    """The parameters and buffers of a module as they are now."""
    owners = [own for each in model.modules() for own in (each._parameters, each._buffers)]
    return ModuleWeights(tuple([(own, name, tensor, *_state(tensor)) for own in owners
                          for name, tensor in own.items() if tensor is not None]))  # fmt: skip


def _state(of: torch.Tensor) -> tuple[int, int]:
    """How often a tensor was written, and where it lies, as far as torch says so."""
    import torch

    plain = type(of) in (torch.Tensor, torch.nn.Parameter) and of.layout is torch.strided
    return -1 if of.is_inference() else of._version, of.data_ptr() if plain else 0


def as_tensor(model: torch.nn.Module, which: int | str, given: Any) -> torch.Tensor:
    """What is given for an input, by its number or name, as a tensor; `Any`: arrays and tensors."""
    import torch  # it is torch's module

    name = name_of(model, which)
    expected, found = "a tensor or an array", type(given).__name__
    hint = how_to_share(name, given)
    if isinstance(given, torch.Tensor):
        is_dense = given.layout is torch.strided and not given.is_quantized
        if is_dense and not given.is_meta and not given.is_nested:
            return given
        expected, found = "a tensor that has elements", f"{given.dtype} on {given.device}"
        if given.is_nested:
            expected, found = "a tensor of one shape", "a nested tensor"
        elif not is_dense:
            expected, found = "a dense tensor", f"{given.dtype}, {given.layout}"
    elif isinstance(given, np.ndarray | np.generic | int | float | bool):
        array = np.asarray(given, order="C")
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if array.dtype in _arrays():
            return tensor_of_array(array)
        if array.dtype in (np.complex64, np.complex128):
            return torch.from_numpy(array)
        expected, found = "numbers of a type that torch has", f"an array of {array.dtype}"
        hint = 'Convert it: x.astype("float32").'
    message = "An input of a module of torch is a tensor or an array."
    place = Place(node=name)
    raise InputError(Diagnostic("input-type", message, place, expected, found, hint))


def of_other_elements(
    model: torch.nn.Module, given: Sequence[tuple[str, torch.Tensor]], error: PlicaError
) -> Iterator[Diagnostic]:
    """The inputs that a program was refused for: their elements are of one of two types that were
    to meet in it, and not of the type that the weights have, or where those have several or there
    are none, the first of these inputs.  Torch says so when it runs, not when it exports."""
    met = {word for each in error.diagnostics if each.code == "dtype-conflict"
           for word in (each.expected, each.found)}  # fmt: skip
    meant = [(name, each.dtype) for name, each in given if str(dtype_of(each.dtype)) in met]
    stored = {each.dtype for each in model.parameters() if each.is_floating_point()}
    wanted = next(iter(stored)) if len(stored) == 1 else meant[0][1] if meant else None
    for name, dtype in meant:
        if dtype is not wanted:
            message = f"Input {name!r} has other elements than what it is computed with."
            hint = f"Convert it: {name}.to({wanted})."
            place = Place(node=name)
            yield Diagnostic("input-dtype", message, place, str(wanted), str(dtype), hint)


@cache
def _arrays() -> frozenset[np.dtype[Any]]:
    """The element types of arrays that are those of tensors, too."""
    return frozenset([each.numpy for each in ELEMENTS.values() if each.dlpack is not None])


def name_of(model: torch.nn.Module, which: int | str) -> str:
    """The name of an input, by its number among those without names."""
    if isinstance(which, str):
        return which
    names = [each.name for each in signature(model.forward).parameters.values() if _by_place(each)]
    return names[which] if which < len(names) else f"input {which + 1}"


def _by_place(of: Parameter) -> bool:
    return of.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def _wrong_inputs(model: torch.nn.Module, count: int, named: Sequence[str]) -> Iterator[Diagnostic]:
    """What is given that the module does not take, and what it takes that is not given."""
    every = signature(model.forward).parameters.values()
    kinds = {each.kind for each in every}
    placed = [each.name for each in every if _by_place(each)]
    words = [each.name for each in every
             if each.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]  # fmt: skip
    if count > len(placed) and Parameter.VAR_POSITIONAL not in kinds:
        message = "More values are given than there are inputs."
        expected = f"{len(placed)} ({', '.join(placed)})"
        fewer = "Give a value for each of these, and no more."
        yield Diagnostic("input-unknown", message, None, expected, str(count), fewer)
    given = {*placed[:count], *named}
    for name in named:
        if name in placed[:count]:
            message = f"Input {name!r} is given twice, by position and by name."
            whose = f"The values by position are those of {', '.join(placed[:count])}."
            yield Diagnostic("input-unknown", message, Place(node=name), suggestion=whose)
        elif name not in words and Parameter.VAR_KEYWORD not in kinds:
            near = get_close_matches(name, words, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else None
            message, expected = f"There is no input {name!r}.", ", ".join(words) or "no inputs"
            yield Diagnostic("input-unknown", message, None, expected, name, hint)
    for each in every:
        is_one = each.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        if is_one and each.default is Parameter.empty and each.name not in given:
            message = f"Input {each.name!r} is not given."
            expected, found = ", ".join(placed), ", ".join(sorted(given)) or "no inputs"
            hint = f"Give it by its name: {each.name}=..."
            if each.name in placed[count : count + 1]:
                hint = f"Give it as the {ordinal(count + 1)} value, or by its name: {each.name}=..."
            yield Diagnostic("input-missing", message, Place(node=each.name), expected, found, hint)


def _without_elements(model: torch.nn.Module) -> Iterator[Diagnostic]:
    """The parameters and buffers that lie nowhere."""
    for name, each in (*model.named_parameters(), *model.named_buffers()):
        if each.is_meta:
            message = "A parameter of the module has a shape and no elements."
            hint = "Load the weights first: model.to_empty(device='cpu'), model.load_state_dict(…)."
            expected, found = "a tensor that has elements", f"{each.dtype} on {each.device}"
            yield Diagnostic("unsupported", message, Place(node=name), expected, found, hint)


def _is_of_torch(error: RuntimeError) -> bool:
    """Whether torch raised an error, and not a line of the module."""
    return _in_torch([frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)][-1])


def _in_torch(file: str) -> bool:
    """Whether a line is torch's, or of a text that was never a file."""
    import torch

    return file.startswith("<") or Path(file).is_relative_to(Path(torch.__file__).parent)


def _refused(
    model: torch.nn.Module, given: Sequence[torch.Tensor], error: RuntimeError
) -> PlicaError:
    """What torch says of a module and its inputs, as a refusal."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    said = next(filter(None, str(error).splitlines()), type(error).__name__)
    place = _place(model, error)
    if isinstance(error, GuardOnDataDependentSymNode):
        message = "The module decides in Python by elements of a tensor, which no shape says."
        hint = (
            "Choose by torch.where or torch.cond, or use torch.compile(model, backend='plica'), "
            "which compiles what lies between such decisions."
        )
        expected = "decisions by shapes"
        return UnsupportedError(Diagnostic("unsupported", message, place, expected, said, hint))
    stored = {each.device for each in (*model.parameters(), *model.buffers())}
    devices = {each.device for each in given}
    if stored and devices - stored:
        message = "The inputs lie on another device than the module."
        expected, found = (", ".join(sorted(map(str, each))) for each in (stored, devices))
        hint = f"Move them: x.to({expected!r})."
        return InputError(Diagnostic("input-device", message, place, expected, found, hint))
    shapes = ", ".join([f"{tuple(each.shape)} {each.dtype}" for each in given])
    message = "Torch cannot run the module on inputs like these."
    hint = "Give inputs for which model(*inputs) runs."
    return InputError(
        Diagnostic("input-shape", message, place, "inputs that fit", f"{shapes}: {said}", hint)
    )


def _place(model: torch.nn.Module, error: RuntimeError) -> Place | None:
    """The innermost submodule that was running, and the last line that is not torch's."""
    import torch

    names = {each: name for name, each in model.named_modules()}
    node, file, line = None, None, None
    for frame, number in [*walk_tb(error.__traceback__)][1:]:  # the first is that of `exported`
        running = frame.f_locals.get("self")
        if isinstance(running, torch.nn.Module) and running in names:
            kind = type(running).__name__
            node = f"{names[running]} ({kind})" if names[running] else kind
        if not _in_torch(frame.f_code.co_filename):
            file, line = frame.f_code.co_filename, number
    return None if node is None and file is None else Place(file, line, node=node)
