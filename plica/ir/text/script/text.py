"""Texts: a module read from Python source.

The source is only parsed: nothing in it is ever run, imported or evaluated.

>>> module = from_text('''
... @plica.function
... def twice(x: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
...     return x + x
... ''')
>>> [str(name.name) for name in module.names]
['twice']
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NoReturn

from plica.core import Name, ScriptError
from plica.core.collector import paused
from plica.core.task import run
from plica.ir.graph.expression import Const, Constructor, Literal, Var
from plica.ir.graph.module import (
    ConstructorDef,
    DataDef,
    Defined,
    Definition,
    Extern,
    Module,
    module,
)
from plica.ir.text.script.kernel import read_kernel
from plica.ir.text.script.origin import Node, Origin, PlaceTable, Problems, SourceReader
from plica.ir.text.script.scope import Data, Meaning, NameScope, Word, inside, word
from plica.ir.text.script.statement import BodyReader
from plica.ir.text.word import MAIN, VERSION, is_reserved
from plica.ir.type import DataName, FuncType, infer
from plica.runtime.error import Place, wrong_argument

CORRECT: Final = "Correct the text until python -m py_compile accepts it."
EXTERN: Final = 'plica.extern("symbol", Fn[(A,), R])'

MAX_CHARACTERS: Final = 1 << 30
"""Characters of a text; more are refused before anything is done with them."""

_HEADER: Final = re.compile(r"\s*#\s*plica\s+([0-9]{1,9})\s*$", re.MULTILINE)


def from_text(
    source: str, file: str = "<text>", constants: Mapping[str, Const] | None = None
) -> Module:
    """The module of a text, with all types inferred.

    `constants` holds what the text refers to as `archived`: the table that `show_module` returns
    with the text. Raises `ScriptError` or `IllTyped` with all errors.
    """
    if not isinstance(source, str):
        hint = "Decode the bytes first: source.decode()." if isinstance(source, bytes) else None
        raise wrong_argument("Only a text can be read.", "the text of a module", source, hint)
    with paused():
        surface, places = read_text(source, file, constants or {})
        return infer(surface, places)


def read_text(source: str, file: str, constants: Mapping[str, Const]) -> tuple[Module, PlaceTable]:
    """The module as written, before inference, and the place of each term."""
    tree = parse(source, file)
    reader = TextReader(Origin(file, source), constants)
    surface = reader.module(tree.body)
    reader.problems.refuse()
    return surface, reader.places


def parse(source: str, file: str, first_line: int = 1) -> ast.Module:
    """Python's syntax tree of a text; what Python refuses is a `ScriptError`."""
    if len(source) > MAX_CHARACTERS:
        message, expected = "The text is too long.", f"{MAX_CHARACTERS} characters at most"
        hint = "Keep its constants in a file beside it."
        _refuse(Place(file), message, expected, str(len(source)), hint)
    header = _HEADER.match(source)
    if header and int(header[1]) > VERSION:
        message = "The text was written by a newer Plica."
        expected, found = f"version {VERSION} or older", f"version {header[1]}"
        hint = "Upgrade plica to read this text."
        raise ScriptError.of("newer-version", message, Place(file, 1, 1), expected, found, hint)
    try:
        return ast.parse(source)
    except SyntaxError as reason:
        line = None if reason.lineno is None else reason.lineno + first_line - 1
        message = f"{reason.msg[:1].upper()}{reason.msg[1:]}."
        text = (reason.text or "").strip()[:80] or None
        _refuse(Place(file, line, reason.offset), message, "valid Python", text, CORRECT)
    except (RecursionError, MemoryError):
        message = "The text is nested too deep for Python's parser."
        hint = "Give names to parts of the deepest expression."
        _refuse(Place(file), message, "200 brackets in one another at most", None, hint)
    except ValueError as reason:
        _refuse(Place(file), f"{str(reason).capitalize()}.", "a text", None, CORRECT)


def _refuse(place: Place, message: str, expected: str, found: str | None, hint: str) -> NoReturn:
    raise ScriptError.of("syntax", message, place, expected, found, hint)


class TextReader(SourceReader):
    """Reads a whole text; the environment of each of its functions."""

    def __init__(self, origin: Origin, constants: Mapping[str, Const]) -> None:
        self.origin = origin
        self.constants = constants
        self.problems = Problems()
        self.places = PlaceTable()
        self.imported: dict[str, Word] = {}
        self.datas: dict[str, Data] = {}
        self.values: dict[str, Var] = {}
        self.numbers: dict[str, int | float] = {}
        self.definitions: dict[Defined, Definition] = {}
        self.main: Var | None = None
        self.last_kernel: Var | None = None
        self._makers: dict[str, list[Data]] = {}  # which data types have a constructor so called

    # The names that functions see.

    def find(self, name: str) -> Meaning | None:
        """A definition of the text, or an import."""
        if name in self.numbers:
            return Literal(self.numbers[name])
        return self.values.get(name) or self.datas.get(name) or self.imported.get(name)

    def constructors(self, name: str) -> list[Constructor]:
        """The constructors of that name."""
        makers = self._makers.get(name, ())
        return [each for data in makers for each in data.constructors() if str(each.name) == name]

    def plain(self, name: str) -> object | None:
        """A number that the text gives a name."""
        return self.numbers.get(name)

    def known(self) -> Iterable[str]:
        """The names of all definitions and constructors."""
        return [*self.values, *self.datas, *self.numbers, *self._makers, *self.imported]

    # The definitions.

    def module(self, body: list[ast.stmt]) -> Module:
        """All definitions; the last function is the main one, without any the last kernel."""
        later: list[Callable[[], None]] = []
        chosen: ast.Assign | None = None
        for i, node in enumerate(body):
            match node:
                case ast.Import() | ast.ImportFrom():
                    self._import(node)
                case ast.Expr(ast.Constant(str())) if i == 0:
                    pass
                case ast.ClassDef():
                    later.insert(0, self._data(node))
                case ast.FunctionDef():
                    is_kernel = any(map(self._is_kernel, node.decorator_list))
                    later.append(self._kernel(node) if is_kernel else self._function(node))
                case ast.Assign([ast.Name(name)], _) if name == MAIN:
                    chosen = node
                case ast.Assign([ast.Name(name)], ast.Constant(int() | float() as number)):
                    if self._declare(node, name):
                        self.numbers[name] = number
                case ast.Assign([ast.Name(name)], ast.Call() as call):
                    self._assigned(node, name, call)
                case _:
                    message = "A text holds imports, data types, functions, kernels and externs."
                    self.unsupported(node, message, found=self.origin.excerpt(node))
        for read in later:
            read()
        self.main = self.main or self.last_kernel
        if chosen is not None:
            self._choose(chosen)
        return module(self.definitions, self.main)

    def reader(self) -> BodyReader:
        """A reader for one definition."""
        reader = BodyReader(NameScope(self), self.origin, self.problems, self.places)
        reader.constants = self.constants
        return reader

    def _declare(self, node: Node, name: str) -> bool:
        taken = any(name in each for each in (self.values, self.datas, self.numbers))
        if taken:
            self.error(node, "duplicate-name", f"The text defines {name!r} twice.")
        if is_reserved(name):
            self.unsupported(node, f"{name} is reserved for sharing inside functions.")
        return not taken

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            return
        base = node.module if isinstance(node, ast.ImportFrom) else None
        for alias in node.names:
            if alias.name == "*":
                hint = "Import each name; the words of plica.script need no import at all."
                self.unsupported(node, "Star imports are not read.", found="*", suggestion=hint)
                continue
            path = alias.name if base is None else f"{base}.{alias.name}"
            path = path.replace("plica.ir.text.script.", "plica.", 1)  # where the decorators live
            head, *steps = path.split(".")
            found = word(head) if head == "plica" and not getattr(node, "level", 0) else None
            for step in steps:
                found = None if found is None else inside(found, step)
            if found is None:
                self.unsupported(node, "A text imports from plica only.", found=path)
            else:
                name = alias.asname or (alias.name if base is not None else head)
                self.imported[name] = found if base is not None or alias.asname else Word(head)

    def _data(self, node: ast.ClassDef) -> Callable[[], None]:
        reader = self.reader()
        forall: list[str] = []
        for each in node.decorator_list:
            match each:
                case ast.Call(callee, [], [ast.keyword("forall", names)]) if reader.is_decorator(
                    callee, "data"
                ):
                    forall = reader.names(names)
                case ast.Name() | ast.Attribute() if reader.is_decorator(each, "data"):
                    pass
                case _:
                    message = "A data type has no other decorator than plica.data."
                    self.unsupported(each, message, expected="@plica.data")
        if not node.decorator_list or node.bases or node.keywords:
            message = "The only classes are data types."
            self.unsupported(node, message, expected="@plica.data before the class")
        name = DataName(Name(node.name))
        data = Data(name, len(forall), partial(read_data, reader, node, forall))
        if self._declare(node, node.name):
            self.datas[node.name] = data
            self.places.note(name, self.origin, node)
            for each_ in node.body:
                if isinstance(each_, ast.AnnAssign) and isinstance(each_.target, ast.Name):
                    self._makers.setdefault(each_.target.id, []).append(data)

        def read() -> None:
            self.definitions[name] = data.definition()
            self.places.note(self.definitions[name], self.origin, node)

        return read

    def _variable(self, node: ast.FunctionDef) -> Var:
        """The variable of a function or a kernel."""
        variable = Var(Name(node.name), None)
        if self._declare(node, node.name):
            self.values[node.name] = variable
            self.places.note(variable, self.origin, node)
        return variable

    def _function(self, node: ast.FunctionDef) -> Callable[[], None]:
        reader, variable = self.reader(), self._variable(node)

        def read() -> None:
            if not node.decorator_list:
                message = "A function of a text is marked by its decorator."
                self.unsupported(node, message, expected="@plica.function before the def")
            function = run(reader.function(node, reader.options(node.decorator_list)))
            self.definitions[variable] = function
            self.main = variable

        return read

    def _is_kernel(self, node: ast.expr) -> bool:
        callee = node.func if isinstance(node, ast.Call) else node
        return self.reader().is_decorator(callee, "kernel")

    def _kernel(self, node: ast.FunctionDef) -> Callable[[], None]:
        variable = self._variable(node)
        for each in node.decorator_list:
            if not self._is_kernel(each):
                message = "A kernel has no other decorator than plica.kernel."
                self.unsupported(each, message, expected="@plica.kernel")

        def read() -> None:
            if (kernel := read_kernel(node, self, self.origin, self.problems)) is not None:
                self.definitions[variable] = kernel
                self.places.note(kernel, self.origin, node)
                self.last_kernel = variable

        return read

    def _assigned(self, node: ast.Assign, name: str, call: ast.Call) -> None:
        reader = self.reader()
        extern: Extern | None = None
        if reader.is_decorator(call.func, "extern"):
            extern = read_extern(reader, call)
        else:
            message = "Only externs are assigned outside functions."
            self.unsupported(node, message, expected=EXTERN, found=self.origin.excerpt(call))
        if extern is not None and self._declare(node, name):
            variable = Var(Name(name), extern.type)
            self.values[name] = variable
            self.definitions[variable] = extern
            self.places.note(variable, self.origin, node)

    def _choose(self, node: ast.Assign) -> None:
        match node.value:
            case ast.Constant(None):
                self.main = None
            case ast.Name(name) if name in self.values:
                self.main = self.values[name]
            case _:
                shown = self.origin.excerpt(node.value)
                hint = self.problems.suggest(shown, self.values)
                message = "The main function must be one of the text."
                self.error(node, "unbound-name", message, found=shown, suggestion=hint)


def read_data(reader: BodyReader, node: ast.ClassDef, forall: list[str]) -> DataDef:
    """A data type: each annotated name of the class is a constructor with its fields."""
    types = reader.bind_types(forall)
    made: dict[str, ConstructorDef] = {}
    for i, each in enumerate(node.body):
        match each:
            case ast.AnnAssign(ast.Name(name), ast.Tuple(fields), None, _):
                if name in made:
                    message = f"{node.name} has two constructors {name!r}."
                    reader.error(each, "duplicate-name", message)
                made[name] = ConstructorDef(Name(name), tuple([reader.read(f) for f in fields]))
            case ast.Expr(ast.Constant(str())) if i == 0:
                pass
            case ast.Pass():
                pass
            case _:
                message = "A data type holds its constructors, each with a tuple of types."
                reader.bad(each, "Node: (Tree, Tree)", message)
    return DataDef(types, tuple(made.values()))


def read_extern(reader: BodyReader, call: ast.Call) -> Extern | None:
    """`plica.extern("symbol", Fn[(A,), R])`; the dims in its parameters are its own."""
    gradient: str | None = None
    match call.keywords:
        case [ast.keyword("gradient", ast.Constant(str() as gradient))]:
            call = ast.Call(call.func, call.args, [])
    match call:
        case ast.Call(_, [ast.Constant(str() as symbol), kind], []):
            reader.open = []
            of = reader.read(kind)
            met = tuple([dim for _, dim in reader.open])
            reader.open = None
            if isinstance(of, FuncType):
                whole = FuncType((*of.dims, *met), of.types, of.params, of.ret)
                return Extern(symbol, whole, gradient)
    reader.bad(call, EXTERN, "An extern is a symbol and a function type.")
    return None
