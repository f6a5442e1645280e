"""Reading live scripts: the source of a marked function, with the names that its globals give.

Names are resolved when the module is first used, so functions may refer to later definitions.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Final

import numpy as np

from plica.core import Name, ScriptError, Term
from plica.core.collector import paused
from plica.core.task import run
from plica.ir.graph.expression import Constructor, Expr, Literal, Var, const
from plica.ir.graph.module import Defined, Definition, Extern, Module, module
from plica.ir.graph.operator import Operator
from plica.ir.text.script.kernel import read_kernel
from plica.ir.text.script.mark import Scripted, ScriptedData, ScriptedKernel, data, function, kernel
from plica.ir.text.script.origin import Origin, PlaceTable, Problems
from plica.ir.text.script.scope import Data, Meaning, NameScope, Word
from plica.ir.text.script.statement import BodyReader
from plica.ir.text.script.text import parse, read_data
from plica.ir.text.show.statement import dims_of
from plica.ir.text.word import KERNEL_WORDS, SCRIPT_WORDS
from plica.ir.type import DataName, DType, FuncType, infer
from plica.ir.type.term import TypeTerm
from plica.runtime.error import Place

_MODULES: Final = {
    "plica": "plica", "plica.op": "op", "plica.op.nn": "op.nn", "plica.script": "script",
}  # fmt: skip


def extern(symbol: str, of: FuncType, gradient: str | None = None) -> Extern:
    """A function defined elsewhere; the symbolic dims in its parameters are its own.

    `gradient` is the symbol of the function from its arguments and a cotangent per float result to
    a cotangent per float argument.

    >>> from plica.ir.type.term import tensor
    >>> str(extern("f", FuncType((), (), (tensor(("n",), "f32"),), tensor((), "f32"))).type)
    'Fn[(Tensor[("n",), f32],), Tensor[(), f32], forall(dims="n")]'
    """
    dims = tuple(dims_of(of.params))
    return Extern(symbol, FuncType((*of.dims, *dims), of.types, of.params, of.ret), gradient)


def program_of(main: Scripted) -> Module:
    """A function and all it needs, read and inferred."""
    with paused():
        return _Program().of(main)


class _Program:
    """What one function needs, found while reading it."""

    def __init__(self) -> None:
        self.problems = Problems()
        self.places = PlaceTable()
        self.definitions: dict[Defined, Definition] = {}
        self._variables: dict[object, Var] = {}
        self._datas: dict[ScriptedData, Data] = {}
        self._used: dict[str, int] = {}
        self._pending: list[Scripted | Data] = []

    def of(self, main: Scripted) -> Module:
        variable = self.function(main)
        for each in self._pending:  # grows while it is gone through
            if isinstance(each, Data):
                self.definitions[each.name] = each.definition()
            else:
                self._read(each)
        self.problems.refuse()
        return infer(module(self.definitions, variable), self.places)

    def function(self, of: Scripted) -> Var:
        """The variable of a function; it will be read."""
        if of not in self._variables:
            self._variables[of] = Var(self._fresh(of.name), None)
            self._pending.append(of)
        return self._variables[of]

    def extern(self, name: str, of: Extern) -> Var:
        """The variable of an extern."""
        if of not in self._variables:
            self._variables[of] = variable = Var(self._fresh(name), of.type)
            self.definitions[variable] = of
        return self._variables[of]

    def data(self, of: ScriptedData) -> Data:
        """A data type; its definition will be read."""
        if of not in self._datas:
            origin, node = _source_of(of.source, of.name, ast.ClassDef)
            reader = self._reader(
                _Globals(self, vars(sys.modules[of.source.__module__]), of.local), origin
            )
            forall = [
                each
                for decorator in node.decorator_list
                if isinstance(decorator, ast.Call)
                for keyword in decorator.keywords
                for each in reader.names(keyword.value)
            ]
            name = DataName(self._fresh(of.name))
            self.places.note(name, origin, node)
            define = partial(read_data, reader, node, forall)
            self._datas[of] = Data(name, len(forall), define)
            self._pending.append(self._datas[of])
        return self._datas[of]

    def _read(self, of: Scripted) -> None:
        origin, node = _source_of(of.source, of.name, ast.FunctionDef)
        inner = inspect.getclosurevars(of.source).nonlocals
        reader = self._reader(_Globals(self, of.source.__globals__, {**of.local, **inner}), origin)
        variable = self._variables[of]
        self.places.note(variable, origin, node)
        if isinstance(of, ScriptedKernel):
            found = read_kernel(node, reader.scope.outer, origin, self.problems)
            if found is not None:
                self.definitions[variable] = found
            return
        options = reader.options(node.decorator_list)
        self.definitions[variable] = run(reader.function(node, options))

    def _reader(self, outer: _Globals, origin: Origin) -> BodyReader:
        return BodyReader(NameScope(outer), origin, self.problems, self.places)

    def _fresh(self, hint: str) -> Name:
        index = self._used.get(hint, 0)
        self._used[hint] = index + 1
        return Name(hint, index)


class _Globals:
    """Python's names around a function, as far as scripts can use them."""

    def __init__(
        self, program: _Program, names: Mapping[str, object], local: Mapping[str, object]
    ) -> None:
        self.program = program
        self.names = names
        self.local = local
        self._found: dict[str, Meaning | None] = {}
        self._makers: dict[str, list[ScriptedData]] | None = None

    def find(self, name: str) -> Meaning | None:
        """The meaning of the Python object of that name in a script."""
        if name not in self._found:
            value = self.local[name] if name in self.local else self.names.get(name)
            self._found[name] = None if value is None else self._meaning(name, value)
        return self._found[name]

    def constructors(self, name: str) -> list[Constructor]:
        """The constructors of that name, of the data types that have a name here."""
        if self._makers is None:
            self._makers = {}
            both = {**self.names, **self.local}
            for each in dict.fromkeys(v for v in both.values() if isinstance(v, ScriptedData)):
                for constructor in each.constructors:
                    self._makers.setdefault(constructor, []).append(each)
        makers = [self.program.data(each) for each in self._makers.get(name, ())]
        return [each for data in makers for each in data.constructors() if str(each.name) == name]

    def plain(self, name: str) -> object | None:
        """Plain data among Python's names."""
        value = self.local.get(name, self.names.get(name))
        return _plain(value)

    def known(self) -> Iterable[str]:
        """The names that could be meant."""
        self.constructors("")
        usable = (Scripted, ScriptedData, Term, np.ndarray, int, float)
        both = {**self.names, **self.local}
        named = [name for name, value in both.items() if isinstance(value, usable)]
        return [*named, *(self._makers or ())]

    def _meaning(self, name: str, value: object) -> Meaning:
        match value:
            case Scripted():
                return self.program.function(value)
            case ScriptedData():
                return self.program.data(value)
            case Extern():
                return self.program.extern(name, value)
            case DType():
                return Word(value.name)
            case Operator():
                return Word(f"op.{value.name}")
            case Expr() | TypeTerm():
                return value  # type: ignore[return-value]  # every TypeTerm is a Type
            case bool() | int() | float():
                return Literal(value)
            case np.ndarray() | np.generic():
                return const(value)
            case ModuleType() if value.__name__ in _MODULES:
                return Word(_MODULES[value.__name__])
        if value is const:  # the one word that lives elsewhere, since it has a meaning in Python
            return Word("const")
        word = getattr(value, "__name__", "")
        if getattr(value, "__module__", None) == "plica.script" and (
            word in SCRIPT_WORDS or word in KERNEL_WORDS
        ):
            return Word(word)
        if value in (function, data, extern, kernel):
            return Word(f"plica.{word}")
        return Word(word if value in (bool, float, tuple, min, max) else f"Python's {name}")


def _plain(value: object) -> object | None:
    if isinstance(value, str | DType | bool | int | float):
        return value
    if isinstance(value, tuple | list):
        items = tuple([_plain(item) for item in value])
        return None if None in items else items
    return None


def _source_of(of: Any, name: str, kind: type[Any]) -> tuple[Origin, Any]:
    """The syntax tree of a function or class, from its file."""
    try:
        lines, first = inspect.getsourcelines(of)
        file = inspect.getsourcefile(of) or "<unknown>"
    except (OSError, TypeError):  # what inspect raises where there is no source
        message = f"The source of {name} is not available."
        hint = "Write it in a file, or use plica.from_text."
        raise ScriptError.of("no-source", message, Place(node=name), None, None, hint) from None
    source = "".join(lines)
    if source[:1].isspace():  # inside something: a line around it keeps the columns
        source, first = f"if 1:\n{source}", first - 1
    node: Any = parse(source, file, first).body[0]
    node = node.body[0] if isinstance(node, ast.If) else node
    if not isinstance(node, kind):
        message = f"{name} must be written as a statement of its own."
        raise ScriptError.of("unsupported-syntax", message, Place(file, first, 1))
    return Origin(file, source, first), node
