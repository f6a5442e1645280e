"""Interfaces: what callers of a dynamic program give and get, from the types of its main function.

>>> from plica.ir.text.script import from_text
>>> from plica.ir.type.infer import infer
>>> whole = infer(from_text('''
... @plica.data
... class Tree:
...     Leaf: (Tensor[(2,), f32],)
...     Node: (Tree, Tree)
...
... @plica.function
... def main(t: Tree) -> Tree:
...     return t
... '''))
>>> interface, types = interface_of(whole)
>>> interface.params, [each.name for each in interface.data[0].constructors]
((('t', 0),), ['Leaf', 'Node'])
"""

from __future__ import annotations

from typing import Final

from plica.codegen.dynamic.layout import fields
from plica.core import CompilerBug, Name
from plica.ir.graph.module import DataDef, Module
from plica.ir.interpret.value import DataValue
from plica.ir.type import term as ty
from plica.runtime.dynamic.form import ConstructorForm, DataForm, DynamicInterface, Form
from plica.runtime.dynamic.value import Make
from plica.runtime.error import Diagnostic, Place, UnsupportedError
from plica.runtime.port import Port

MAX_FORMS: Final = 10_000  # how many types an interface may be made of


def interface_of(module: Module) -> tuple[DynamicInterface, tuple[ty.DataType, ...]]:
    """The interface of a module's main function, and the data types in it by number."""
    main = module.main_function()
    forms = _Forms(module)
    params = tuple([(str(var.name), forms.of(var.type, str(var.name))) for var in main.params])
    result = forms.of(main.ret, "output")
    done = 0
    while done < len(forms.types):  # a data type may hold others, which are found on the way
        forms.define(done)
        done += 1
    data = tuple([forms.data[number] for number in range(len(forms.types))])
    return DynamicInterface(params, result, data), tuple(forms.types)


def maker(module: Module, types: tuple[ty.DataType, ...]) -> Make:
    """Makes values of data types as the interpreter has them."""
    names: list[tuple[Name, ...]] = []
    for data_type in types:
        data = module.definitions()[data_type.data]
        assert isinstance(data, DataDef)
        names.append(tuple([way.name for way in data.constructors]))

    def make(number: int, index: int, inside: tuple[object, ...]) -> DataValue:
        return DataValue(types[number].data, index, names[number][index], inside)  # type: ignore[arg-type]  # values

    return make


def hidden_functions(module: Module) -> list[Diagnostic]:
    """Inputs and outputs of main in whose data functions are hidden."""
    main = module.main_function()
    wrong = []
    for name, of in (*[(str(p.name), p.type) for p in main.params], ("the output", main.ret)):
        if not ty.holds_function(of) and _holds_function(of, module):
            message = f"{name}: a function is hidden in the data of the interface."
            hint = "plica.interpret runs every program of the language."
            place = Place(node=name)
            wrong.append(
                Diagnostic("unsupported", message, place, "tensors and data", str(of), hint)
            )
    return wrong


def _holds_function(of: ty.Type | None, module: Module) -> bool:
    seen: set[ty.Type] = set()
    stack = [of]
    while stack:
        if isinstance(each := stack.pop(), ty.FuncType):
            return True
        if each is None or each in seen:
            continue
        seen.add(each)
        if isinstance(each, ty.TupleType):
            stack.extend(each.items)
        elif isinstance(each, ty.DataType):
            data = module.definitions()[each.data]
            assert isinstance(data, DataDef)
            for number in range(len(data.constructors)):
                stack.extend(fields(each, number, module))
            if len(seen) > MAX_FORMS:
                return False  # types that grow are refused where they are laid out
    return False


class _Forms:
    """Data types by number, in order of occurrence."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.types: list[ty.DataType] = []
        self.numbers: dict[ty.DataType, int] = {}
        self.data: dict[int, DataForm] = {}

    def of(self, type: ty.Type | None, name: str) -> Form:
        match type:
            case ty.TensorType():
                if (shape := ty.static_shape(type)) is None:
                    message = f"{name}: the size of a tensor is not known when it is compiled."
                    hint = "Give numbers for the dims."
                    raise UnsupportedError(
                        Diagnostic("unsupported", message, None, "numbers", str(type), hint)
                    )
                return Port(name, shape, type.dtype.name, type.dtype.numpy)
            case ty.TupleType(items):
                return tuple([self.of(item, f"{name}[{n}]") for n, item in enumerate(items)])
            case ty.DataType():
                if type not in self.numbers:
                    if len(self.types) > MAX_FORMS:
                        message = f"The data type {type.data.name} grows without end."
                        raise UnsupportedError(Diagnostic("unsupported", message))
                    self.numbers[type] = len(self.types)
                    self.types.append(type)
                return self.numbers[type]
            case _:
                raise CompilerBug(f"A value of type {type} is in the interface of main.")

    def define(self, number: int) -> None:
        """The constructors of a data type."""
        of = self.types[number]
        definition = self.module.definitions()[of.data]
        assert isinstance(definition, DataDef)
        ways = []
        for index, constructor in enumerate(definition.constructors):
            inside = fields(of, index, self.module)
            label = str(constructor.name)
            ways.append(
                ConstructorForm(
                    label, index, tuple([self.of(t, f"{label}[{n}]") for n, t in enumerate(inside)])
                )
            )
        self.data[number] = DataForm(str(of.data.name), tuple(ways))
