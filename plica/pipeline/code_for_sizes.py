"""The selector behind models that are compiled when they are called, for their sizes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import numpy as np

from plica.codegen.lower.supported import unsupported
from plica.core import Term, free_vars
from plica.ir.graph import Module, attr, shape_specialisation
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.type import TensorType, TupleType, Type, infer, known
from plica.runtime.error import Diagnostic, InputError, Place, UnsupportedError
from plica.runtime.executable import Executable, Interface, Shape
from plica.runtime.late import lazy_imports
from plica.runtime.open_executable import OpenExecutable
from plica.runtime.port import Array, OpenPort, Port
from plica.runtime.selecting_executable import Args, Named, Selected, SelectingExecutable, Selector
from plica.runtime.stats import Stats

if TYPE_CHECKING:
    pass

with lazy_imports(__name__):
    from plica.frontend.onnx.polymorphic_model import ShapePolymorphicModel
    from plica.ir.text.show.type import show_dim

MAX_EXECUTABLES: Final = 16
"""The number of cached executables; the least recently used one is evicted."""

Compile = Callable[[Module], Executable]


class ModuleSource(Protocol):
    """Returns the module for the input sizes of a call."""

    interface: Interface

    needed: tuple[int, ...]  # the inputs whose values decide shapes, by number, as far as is known

    whole: Module | None  # the module before sizes are known, if there is one

    @property
    def reason(self) -> str | None:
        """Why there is no code for all sizes, where that is known."""

    @property
    def lists(self) -> tuple[Any, Any] | None:  # Any: the source, and what it says of lists
        """The types of inputs and outputs if some are lists; None if all are arrays."""

    def at(self, arrays: Sequence[Array]) -> Module:
        """The module for these inputs; those it needs the values of are no parameters of it."""


class CodeForSizes(Selector):
    """Selects the code for the sizes of a call, and compiles it on first use."""

    def __init__(self, source: ModuleSource, compiled: Compile) -> None:
        self.interface = source.interface
        self._source, self._compiled = source, compiled
        self._known: OrderedDict[object, tuple[Executable, tuple[int, ...]]] = OrderedDict()
        self._lock = threading.Lock()
        self._compilations = self._late = 0  # how often a call waited for the compiler
        ports = source.interface.inputs
        alone = all(shape == at for at, (_, shape) in enumerate(source.interface.params))
        # The types of the inputs, where none of them is a tuple.
        self._dtypes = tuple([port.numpy for port in ports]) if alone else (None,)

    def select(self, of: Executable, args: Args, named: Named) -> Selected:
        """The executable for inputs of these sizes.

        Inputs whose values decide shapes are part of it, and are none of its inputs.
        """
        return (*self._found(of._arrays(args, named)), {})

    def call(self, of: Executable, args: Args, named: Named) -> Any:
        """The results of a call (Any: as the code gives them)."""
        if not named and (seen := self._seen(args)) is not None:
            return seen[0](*seen[1])
        before = self._compilations
        arrays = of._arrays(args, named)
        try:
            exe, rest = self._found(arrays)
        except InputError as error:
            return of._run_separated(error, arrays)
        self._late += self._compilations - before
        return exe(*rest)

    def _seen(self, args: Sequence[Any]) -> tuple[Executable, Sequence[Any]] | None:
        """The executable for arrays that need no second look, if such were given before.

        It does not wait for another thread that compiles: each step here is one for all threads.
        """
        if len(args) != len(self._dtypes):
            return None
        shapes = []
        for arg, dtype in zip(args, self._dtypes, strict=True):
            if type(arg) is not np.ndarray or arg.dtype is not dtype:
                return None
            shapes.append(arg.shape)
        needed = self._source.needed
        values = tuple([args[at].tobytes() for at in needed]) if needed else ()
        key = (tuple(shapes), needed, values)
        if (known := self._known.get(key)) is None:
            return None
        if len(self._known) > 1:
            with suppress(KeyError):  # it may have gone by now, and serves this call all the same
                self._known.move_to_end(key)
        exe, part = known
        return exe, [arg for at, arg in enumerate(args) if at not in part] if part else args

    @property
    def lists(self) -> tuple[Any, Any] | None:  # Any: as the source says it
        """The types of inputs and outputs if some are lists; None if all are arrays."""
        return self._source.lists

    @property
    def whole(self) -> Module | None:
        """The module with open sizes; None if modules exist only per call."""
        return self._source.whole

    def refusal(self) -> UnsupportedError:
        """The refusal to show one code where each size has its own."""
        takes = ", ".join(map(str, self.interface.inputs))
        message = "This model is compiled for the sizes of each call: there is no one code of it."
        hint = "Take the executable for some inputs, exe.at(…), or give numbers for the dims."
        if (reason := self._source.reason) is not None:
            takes = f"{takes}; {reason}"
        return UnsupportedError(Diagnostic("unsupported", message, None, "sizes", takes, hint))

    def stats(self, calls: int) -> Stats:
        """The number of compilations per size, and the memory of their code."""
        held = [exe.stats.bytes for exe, _ in tuple(self._known.values())]
        return Stats(calls, self._compilations, sum(held), self._late)

    def show(self, of: Executable) -> str:
        """The inputs and outputs, the number of sizes compiled, and why each is compiled."""
        takes = ", ".join(map(str, self.interface.inputs))
        gives = ", ".join(port.type for port in self.interface.outputs)
        gives = gives if self.interface.single else f"({gives})"
        reason = self._source.reason
        why = "" if reason is None else f", for each size: {reason}"
        return f"<Specialised ({takes}) -> {gives}, {len(self._known)} compiled{why}>"

    def _found(self, arrays: Sequence[Array]) -> tuple[Executable, list[Any]]:
        """The executable for these inputs, compiled on first use, and the arguments to call it
        with."""
        with self._lock:
            key = self._key(arrays)
            if (known := self._known.get(key)) is None:
                executable = self._compiled(self._source.at(arrays))
                self._compilations += 1
                # By now it may be known that more values are needed: they are part of the code.
                known = self._known[self._key(arrays)] = executable, self._source.needed
                if len(self._known) > MAX_EXECUTABLES:
                    self._known.popitem(last=False)
            else:
                self._known.move_to_end(key)
        exe, part = known
        params = self.interface.params
        return exe, [_nested(shape, arrays) for _, shape in params if shape not in part]

    def _key(self, arrays: Sequence[Array]) -> object:
        shapes, needed = tuple([array.shape for array in arrays]), self._source.needed
        return shapes, needed, tuple([arrays[at].tobytes() for at in needed])


Specialised: TypeAlias = SelectingExecutable[CodeForSizes]
"""A model that is compiled for the sizes of its inputs when it is called."""


def specialised(of: Module, compiled: Compile) -> Specialised:
    """What compiles a module with symbolic dims when it is called."""
    return SelectingExecutable(CodeForSizes(Sizes(of), compiled))


def specialised_model(of: ShapePolymorphicModel, compiled: Compile) -> Specialised:
    """What compiles an ONNX model when it is called."""
    return SelectingExecutable(CodeForSizes(OnnxSource(of), compiled))


def with_code_for_sizes(opened: Executable, module: Specialised, eager: bool) -> Executable:
    """Code for every size, plus specialised code for sizes that recur."""
    assert isinstance(opened, OpenExecutable)
    return opened.beside(lambda: module, eager=eager)


def _nested(shape: Shape, arrays: Sequence[Array]) -> Any:  # Any: an array, or tuples of them
    if isinstance(shape, int):
        return arrays[shape]
    return tuple(_nested(each, arrays) for each in shape)


class Sizes:
    """A module with symbolic dims as a source: its parameters define the dims."""

    needed: tuple[int, ...] = ()
    whole: Module | None
    reason: str | None = None

    def __init__(self, of: Module) -> None:
        self._module = infer(of)
        hidden = self._hidden()
        if unsupported(self._module, sizes_come=True, objects=True):
            every = [*unsupported(self._module), *hidden]
            raise UnsupportedError(every[0], *every[1:])
        if hidden:
            raise UnsupportedError(hidden[0], *hidden[1:])
        self.interface = interface_of(self._module)
        self.whole = shape_specialisation.open_form(self._module)

    @property
    def lists(self) -> tuple[Any, Any] | None:  # Any: as the protocol
        """The module and what it says of lists."""
        lists = attr(self._module.main_function(), "lists")
        return None if lists is None else (self._module, lists)

    def _hidden(self) -> list[Diagnostic]:
        """Dims that no shape says: it must stand alone on some axis."""
        told = {*shape_specialisation.open_dims(self._module)}
        lost: dict[str, dict[str, TensorType]] = {}  # where each is, by dim and input
        for param in self._module.main_function().params:
            for tensor in shape_specialisation.tensors(param.type):
                for name in sorted(str(dim.name) for dim in _dims(tensor) if dim not in told):
                    lost.setdefault(name, {}).setdefault(str(param.name), tensor)
        wrong = []
        for name, inputs in lost.items():
            where = " and ".join(inputs)
            message = f"No shape says what the dim {name} is: it never stands alone in {where}."
            place = Place(node=next(iter(inputs)))
            found = ", ".join(f"{at}: {tensor_type}" for at, tensor_type in inputs.items())
            hint = f"Let {name} be the size of some axis of an input, or write a number for it."
            wrong.append(Diagnostic("unsupported", message, place, name, found, hint))
        return wrong

    def at(self, arrays: Sequence[Array]) -> Module:
        """The module at the sizes of these arrays."""
        sizes = shape_specialisation.sizes_of(self._module, [array.shape for array in arrays])
        named = {str(dim.name): size for dim, size in sizes.items()}
        shape_specialisation.check_ranges(self._module.main_function(), named)
        module = shape_specialisation.sized(self._module, sizes)
        types = [
            tensor
            for param in module.main_function().params
            for tensor in shape_specialisation.tensors(param.type)
        ]
        wrong = []
        for port, of, given in zip(self.interface.inputs, types, arrays, strict=True):
            wanted = tuple([known(size) for size in of.shape])
            if given.shape != wanted:
                message = f"Input {port.name!r} has the wrong shape."
                place = Place(node=port.name)
                expected = f"{wanted} ({port.type})"
                wrong.append(Diagnostic("input-shape", message, place, expected, str(given.shape)))
        if wrong:
            raise InputError(wrong[0], *wrong[1:])
        return module


class OnnxSource:
    """An ONNX model as a source: it is read for the sizes and values of a call."""

    whole: Module | None = None

    def __init__(self, model: ShapePolymorphicModel) -> None:
        self._model = model
        params = tuple((port.name, at) for at, port in enumerate(model.inputs))
        single = len(model.outputs) == 1
        self.interface = Interface(params, model.inputs, model.outputs, single)
        self._numbers = {port.name: at for at, port in enumerate(model.inputs)}
        self.needed = self._needed()

    @property
    def lists(self) -> tuple[Any, Any] | None:  # Any: as the protocol
        """The model and what it says of lists."""
        lists = self._model.lists
        return None if lists is None else (self._model, lists)

    @property
    def reason(self) -> str | None:
        """What the model refuses to be without numbers."""
        return self._model.reason

    def _needed(self) -> tuple[int, ...]:
        return tuple([self._numbers[name] for name in self._model.needed])

    def at(self, arrays: Sequence[Array]) -> Module:
        """The module for these inputs."""
        given = {name: arrays[at] for name, at in self._numbers.items()}
        module = self._model.at(given)[0]
        self.needed = self._needed()
        return module


def interface_of(of: Module) -> Interface:
    """The names and types a caller sees, some sizes being names."""
    main = of.main_function()
    inputs: list[Port] = []
    params = tuple(
        [(str(param.name), _ports(str(param.name), param.type, inputs)) for param in main.params]
    )
    outputs: list[Port] = []
    names = attr(main, "outputs")
    single = not isinstance(main.ret, TupleType)
    if names is None:
        _ports("output", main.ret, outputs)
    else:
        parts = main.ret.items if isinstance(main.ret, TupleType) else (main.ret,)
        for name, part in zip(names, parts, strict=True):
            _ports(name, part, outputs)
    ranges = attr(main, "dim_ranges", ())
    return Interface(params, tuple(inputs), tuple(outputs), single, ranges)


def _ports(name: str, of: Type | None, into: list[Port]) -> Shape:
    """Add a port for each tensor of a type, and say where they are."""
    if isinstance(of, TupleType):
        return tuple([_ports(f"{name}[{at}]", item, into) for at, item in enumerate(of.items)])
    assert isinstance(of, TensorType)
    shape = tuple([_size(dim) for dim in of.shape])
    into.append(OpenPort(name, shape, of.dtype.name, of.dtype.numpy))
    return len(into) - 1


def _size(of: Scalar) -> int | str:
    number = known(of)
    return show_dim(of, _named) if number is None else number


def _named(of: Term) -> str:
    assert isinstance(of, ScalarVar)
    return str(of.name)


def _dims(of: TensorType) -> list[ScalarVar]:
    every = [var for size in of.shape for var in free_vars(size)]
    return [each for each in every if isinstance(each, ScalarVar)]
