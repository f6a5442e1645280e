"""Export: a module of torch and its inputs as a program, or a refusal."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from difflib import get_close_matches
from functools import cache
from inspect import Parameter, signature
from io import StringIO
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from attrs import frozen

from plica.frontend.torch.dtype import dtype_of, tensor_of_array
from plica.frontend.torch.module_state import watched
from plica.runtime.element import ELEMENTS
from plica.runtime.error import Diagnostic, InputError, Place, PlicaError, UnsupportedError
from plica.runtime.foreign_tensor import how_to_share
from plica.runtime.given import ordinal

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


_OUTPUT_CLASS: Final = re.compile(r"Found <class '([^']*)'> in output, which is not a known type")
"""What torch says of an output that is no tree of tensors."""

STATIC: Final = (bool, int, float, str, type(None))
"""Python values that a module is specialised for."""


InputPlace: TypeAlias = tuple[int | str, str]
"""An input by its number or name, and where in it, if it is a tree."""


@frozen(eq=False)
class ModuleInputs:
    """The inputs of a call: tensors, and Python values that the code is specialised for."""

    args: tuple[Any, ...]  # Any: trees of tensors and Python values
    named: dict[str, Any]
    tensors: tuple[torch.Tensor, ...]
    tensor_places: tuple[InputPlace, ...]
    static: tuple[tuple[InputPlace, object], ...]
    key: Hashable  # what one code serves: shapes, element types, Python values, their places


def inputs_of(
    model: torch.nn.Module, args: tuple[object, ...], named: Mapping[str, object]
) -> ModuleInputs:
    """The inputs of a call; arrays become tensors, inside of lists, tuples and dicts too."""
    import torch
    from torch.utils._pytree import keystr, tree_flatten_with_path, tree_unflatten

    tensors: list[torch.Tensor] = []
    places: list[InputPlace] = []
    static: list[tuple[InputPlace, object]] = []
    keys: list[Hashable] = []
    leaves = (torch.Tensor, np.ndarray, np.generic, *STATIC)

    def leaf(place: InputPlace, given: object) -> object:
        if isinstance(given, STATIC) and not isinstance(given, np.generic):
            static.append((place, given))
            keys.append((type(given), repr(given)))  # 0.0 is not -0.0, nor 1 True
            return given
        tensor = as_tensor(model, place, given)
        tensors.append(tensor)
        places.append(place)
        keys.append((tensor.shape, tensor.dtype))
        return tensor

    def value(which: int | str, given: object) -> object:
        if isinstance(given, leaves):
            return leaf((which, ""), given)
        parts, tree = tree_flatten_with_path(given)
        keys.append(str(tree))
        return tree_unflatten([leaf((which, keystr(path)), each) for path, each in parts], tree)

    every = tuple([value(at, arg) for at, arg in enumerate(args)])
    by_name = {name: value(name, each) for name, each in named.items()}
    key = tuple(keys), len(args), tuple(named)
    return ModuleInputs(every, by_name, tuple(tensors), tuple(places), tuple(static), key)


def exported(model: torch.nn.Module, given: ModuleInputs) -> ExportedProgram:
    """The program of a module for inputs like these."""
    from torch.export import export  # it is torch's module

    if wrong := [*_wrong_inputs(model, len(given.args), tuple(given.named))]:
        raise InputError(*wrong)
    if empty := [*_without_elements(model)]:
        raise UnsupportedError(*empty)
    _register_caches()
    try:
        with _without_graphs(), watched(model) as changed:
            program = export(model, given.args, given.named)
    except (RuntimeError, TypeError, AttributeError) as error:
        if not _is_of_torch(error) or not (isinstance(error, RuntimeError) or given.static):
            raise
        refused: PlicaError = _refused(model, given, error)
    else:
        if not changed:
            return program
        message = "The module changes its own attributes: a result may depend on earlier calls."
        hint = (
            "Call model once first, if only the first call sets them; or use "
            "torch.compile(model, backend='plica'), which follows such changes."
        )
        expected, found = "a function of the inputs", ", ".join(sorted(changed))
        refused = UnsupportedError.of("unsupported", message, None, expected, found, hint)
    raise refused


def _register_caches() -> None:
    """Let torch take apart the key-value caches of transformers, as that registers them itself."""
    if "transformers.cache_utils" in sys.modules:
        from transformers.integrations import executorch

        register: Any = executorch.register_dynamic_cache_export_support  # Any: it has no types
        register()


@contextmanager
def _without_graphs() -> Iterator[None]:
    """Prevents torch from printing the exported graph: the refusal contains the problem."""
    written, graph = StringIO(), None
    log = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    level = log.level
    try:
        log.setLevel(logging.ERROR)
        with redirect_stderr(written):
            yield
    except RuntimeError as error:
        graph = getattr(error, "partial_fx_graph", None)
        raise
    finally:
        log.setLevel(level)
        text = written.getvalue()
        sys.stderr.write(text if graph is None else text.replace(f"{graph}\n", ""))


def as_tensor(model: torch.nn.Module, place: InputPlace, given: Any) -> torch.Tensor:
    """An input as a tensor; `Any`: arrays and tensors."""
    import torch  # it is torch's module

    expected, found = "a tensor or an array", type(given).__name__
    if isinstance(given, torch.Tensor):
        is_dense = given.layout is torch.strided and not given.is_quantized
        if is_dense and not given.is_meta and not given.is_nested:
            return given
        expected, found = "a tensor that has elements", f"{given.dtype} on {given.device}"
        if given.is_nested:
            expected, found = "a tensor of one shape", "a nested tensor"
        elif not is_dense:
            expected, found = "a dense tensor", f"{given.dtype}, {given.layout}"
    elif isinstance(given, np.ndarray | np.generic):
        array = np.asarray(given, order="C")
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        if array.dtype in _arrays():
            return tensor_of_array(array)
        if array.dtype in (np.complex64, np.complex128):
            return torch.from_numpy(array)
        expected, found = "numbers of a type that torch has", f"an array of {array.dtype}"
        name = name_of(model, place)
        raise InputError(_no_tensor(name, expected, found, 'Convert it: x.astype("float32").'))
    name = name_of(model, place)
    raise InputError(_no_tensor(name, expected, found, how_to_share(name, given)))


def _no_tensor(name: str, expected: str, found: str, hint: str | None) -> Diagnostic:
    message = "An input of a module of torch is a tensor, an array, or a tree of them."
    return Diagnostic("input-type", message, Place(node=name), expected, found, hint)


def of_other_elements(
    model: torch.nn.Module, inputs: ModuleInputs, error: PlicaError
) -> Iterator[Diagnostic]:
    """The inputs behind a dtype mismatch: those whose element type is one of the two in conflict,
    and not the weights'; if weights have several types or none, the first of these. Torch reports
    this at run time, not during export."""
    met = {word for diagnostic in error.diagnostics if diagnostic.code == "dtype-conflict"
           for word in (diagnostic.expected, diagnostic.found)}  # fmt: skip
    given = zip(inputs.tensor_places, inputs.tensors, strict=True)
    meant = [
        (name_of(model, at), each.dtype) for at, each in given if str(dtype_of(each.dtype)) in met
    ]
    stored = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
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
    return frozenset([element.numpy for element in ELEMENTS.values() if element.dlpack is not None])


def name_of(model: torch.nn.Module, place: InputPlace) -> str:
    """The name of an input, or of a part of it."""
    which, inner = place
    if isinstance(which, str):
        return which + inner
    names = [each.name for each in signature(model.forward).parameters.values() if _by_place(each)]
    return (names[which] if which < len(names) else f"input {which + 1}") + inner


def _by_place(of: Parameter) -> bool:
    return of.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def _wrong_inputs(model: torch.nn.Module, count: int, named: Sequence[str]) -> Iterator[Diagnostic]:
    """Unknown and missing inputs of the module."""
    every = signature(model.forward).parameters.values()
    kinds = {parameter.kind for parameter in every}
    placed = [parameter.name for parameter in every if _by_place(parameter)]
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
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta:
            message = "A parameter of the module has a shape and no elements."
            hint = "Load the weights first: model.to_empty(device='cpu'), model.load_state_dict(…)."
            expected, found = "a tensor that has elements", f"{tensor.dtype} on {tensor.device}"
            yield Diagnostic("unsupported", message, Place(node=name), expected, found, hint)


def _is_of_torch(error: Exception) -> bool:
    """Whether torch raised an error, and not a line of the module."""
    return _in_torch([frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)][-1])


def _in_torch(file: str) -> bool:
    """Whether a line is torch's, or of a text that was never a file."""
    import torch

    return file.startswith("<") or Path(file).is_relative_to(Path(torch.__file__).parent)


def _refused(model: torch.nn.Module, given: ModuleInputs, error: Exception) -> PlicaError:
    """What torch says of a module and its inputs, as a refusal."""
    from torch._subclasses.fake_tensor import UnsupportedOperatorException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    if not isinstance(error, RuntimeError):  # torch was given a Python value for a tensor
        every: dict[int | str, Any] = {}
        every.update(enumerate(given.args))
        every.update(given.named)
        wrong = []
        for which in dict.fromkeys(which for (which, _), _ in given.static):
            name, each = name_of(model, (which, "")), every[which]
            found, hint = type(each).__name__, how_to_share(name, each)
            wrong.append(_no_tensor(name, "a tensor or an array", found, hint))
        return InputError(*wrong)
    said = next(filter(None, str(error).splitlines()), type(error).__name__)
    place = _place(model, error)
    if isinstance(error, GuardOnDataDependentSymNode):
        message = "The module decides in Python by elements of a tensor, which no shape says."
        hint = (
            "Choose by torch.where or torch.cond, or use torch.compile(model, backend='plica'), "
            "which compiles what lies between such decisions."
        )
        return UnsupportedError.of("unsupported", message, place, "decisions by shapes", said, hint)
    if (unknown := _OUTPUT_CLASS.match(said)) is not None:
        message = f"The module gives a {unknown[1]}, which torch cannot take apart into tensors."
        hint = (
            "Return tensors, or tuples and dicts of them (a model of transformers: "
            "use_cache=False), or register the class: torch.utils._pytree.register_pytree_node."
        )
        expected = "outputs that are trees of tensors"
        return UnsupportedError.of("unsupported", message, place, expected, unknown[1], hint)
    if isinstance(error, UnsupportedOperatorException) or "fake impl" in said:
        message = "An operator has no fake implementation, which gives its results' shapes."
        hint = "Register one: torch.library.register_fake."
        return UnsupportedError.of("unsupported", message, place, None, said, hint)
    stored = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    devices = {tensor.device for tensor in given.tensors}
    if stored and devices - stored:
        message = "The inputs lie on another device than the module."
        expected, found = (", ".join(sorted(map(str, each))) for each in (stored, devices))
        hint = f"Move them: x.to({expected!r})."
        return InputError.of("input-device", message, place, expected, found, hint)
    shapes = ", ".join([f"{tuple(tensor.shape)} {tensor.dtype}" for tensor in given.tensors])
    message = "Torch cannot run the module on inputs like these."
    hint = "Give inputs for which model(*inputs) runs."
    return InputError.of(
        "input-shape", message, place, "inputs that fit", f"{shapes}: {said}", hint
    )


def _place(model: torch.nn.Module, error: Exception) -> Place | None:
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
