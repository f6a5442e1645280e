"""Types in text: annotations as types.

>>> import ast
>>> from plica.ir.text.script.origin import Origin, Problems
>>> from plica.ir.text.script.scope import Nowhere, NameScope
>>> reader = TypeReader(NameScope(Nowhere()), Origin("f.py", ""), Problems())
>>> str(reader.read(ast.parse("tuple[Tensor[(2, 3), f32], bool]", mode="eval").body))
'tuple[Tensor[(2, 3), f32], Tensor[(), bool]]'
"""

from __future__ import annotations

import ast
from typing import Final

from plica.core import Name
from plica.ir.loop.scalar import Lit, Scalar, ScalarVar
from plica.ir.text.script.origin import Origin, Problems, SourceReader
from plica.ir.text.script.scope import Data, Meaning, NameScope, Word, inside, meaning, word
from plica.ir.text.word import DTYPE_WORDS
from plica.ir.type import DataType, DType, FuncType, TensorType, TupleType, Type, TypeVar, i64
from plica.ir.type.dim_text import read_dim
from plica.ir.type.term import TypeTerm

UNIT: Final = TupleType(())
NO_SHAPE: Final = "A shape is a tuple of numbers and names in quotes."


class TypeReader(SourceReader):
    """Reads types in a scope; records errors and continues."""

    def __init__(self, scope: NameScope, origin: Origin, problems: Problems) -> None:
        self.scope = scope
        self.origin = origin
        self.problems = problems
        self.open: list[tuple[str, ScalarVar]] | None = None
        """Where dims may be new: those met so far, in order."""

    def meaning(self, node: ast.expr) -> Meaning | None:
        """The meaning of a dotted name outside the function, or None."""
        return meaning(node, self.scope)

    def read(self, node: ast.expr) -> Type:
        """The type of an annotation."""
        match node:
            case ast.Subscript(base, index):
                return self._applied(node, base, index)
            case ast.Name(name) if isinstance(kind := self.scope.find(f"type {name}"), TypeVar):
                return kind
            case ast.Name() | ast.Attribute():
                return self._named(node)
            case _:
                return self._no_type(node)

    def dtype(self, node: ast.expr) -> DType | None:
        """The element type of a name."""
        found = self.meaning(node)
        return DTYPE_WORDS.get(found.path) if isinstance(found, Word) else None

    def dtype_argument(self, node: ast.expr) -> DType | None:
        """The element type of a name; that it is none is said."""
        dtype = self.dtype(node)
        if dtype is None and not self.shadowed(node):
            self.no_dtype(node)
        return dtype

    def shadowed(self, node: ast.expr) -> bool:
        """Whether a word means something else here; if so, say it."""
        if not isinstance(node, ast.Name):
            return False
        usual = word(node.id)
        if usual is None or self.meaning(node) == usual:
            return False
        message = f"{node.id!r} is shadowed: something else has that name here."
        hint = f"Rename the other {node.id!r}."
        if inside(Word("script"), node.id) is not None:
            hint = f"Rename the other {node.id!r}, or write plica.script.{node.id}."
        self.error(node, "unbound-name", message, expected=f"the word {node.id}", suggestion=hint)
        return True

    def dim(self, node: ast.expr, text: str) -> Scalar:
        """The dim of a string."""
        if isinstance(found := read_dim(text, self._dim_name), Scalar):
            return found
        unbound = found.startswith("no dim")
        code = "unbound-name" if unbound else "unsupported-syntax"
        hint = None
        if unbound:
            hint = self.problems.suggest(found.split("'")[1], self.scope.known_dims())
        shown = text if len(text) <= 60 else f"{text[:56]} ..."
        self.error(node, code, f"{shown!r} is no dim here: {found}.", suggestion=hint)
        return Lit(1, i64)

    def _dim_name(self, name: str) -> Scalar | None:
        found = self.scope.find(f"dim {name}")
        if found is None and self.open is not None:
            found = ScalarVar(self.scope.fresh(name, "dim "), i64)
            self.scope.bind(f"dim {name}", found)
            self.open.append((name, found))
        return found if isinstance(found, ScalarVar) else None

    def _named(self, node: ast.expr) -> Type:
        found = self.meaning(node)
        match found:
            case Word(path) if path in DTYPE_WORDS:
                return TensorType((), DTYPE_WORDS[path])
            case Data():
                return self._data(node, found, ())
            case TypeTerm():
                return found
            case _ if self.shadowed(node):
                return UNIT
            case None if isinstance(node, ast.Name):
                names = [*self.scope.known(), *self.scope.known_types()]
                hint = self.problems.suggest(node.id, names)
                self.error(node, "unbound-name", f"No type is called {node.id!r}.", suggestion=hint)
                return UNIT
            case _:
                return self._no_type(node)

    def _applied(self, node: ast.expr, base: ast.expr, index: ast.expr) -> Type:
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
        match self.meaning(base):
            case Word("tuple"):
                return TupleType(tuple([self.read(part) for part in parts]))
            case Word("Tensor") if len(parts) == 2:
                return self._tensor(parts[0], parts[1])
            case Word("Fn") if len(parts) in (2, 3):
                return self._function(node, parts)
            case Data() as data:
                return self._data(node, data, tuple([self.read(part) for part in parts]))
            case _ if self.shadowed(base):
                return UNIT
            case None if isinstance(base, ast.Name):
                return self._named(base)  # says that there is no such name
            case _:
                return self._no_type(node)

    def _tensor(self, shape: ast.expr, dtype: ast.expr) -> Type:
        if not isinstance(shape, ast.Tuple):
            self.bad(shape, '(2, "n")', NO_SHAPE)
            return UNIT
        of = self.dtype_argument(dtype)
        sizes = tuple([self.size(elt) for elt in shape.elts])
        return TensorType(sizes, of or i64)

    def size(self, node: ast.expr) -> Scalar:
        """One dim of a shape: a number, or a string."""
        match node:
            case ast.Constant(value) if type(value) is int and value >= 2**63:
                return self.dim(node, str(value))  # says that it is too big
            case ast.Constant(value) if type(value) is int:
                return Lit(value, i64)
            case ast.Constant(str() as text):
                return self.dim(node, text)
            case _:
                self.bad(node, '(2, "n")', NO_SHAPE)
                return Lit(1, i64)

    def _data(self, node: ast.expr, data: Data, args: tuple[Type, ...]) -> Type:
        if len(args) != data.arity:
            self.error(
                node,
                "wrong-arity",
                f"{data.name.name} takes another number of types.",
                expected=f"{data.arity} types",
                found=f"{len(args)} types",
            )
        return DataType(data.name, args)

    def _function(self, node: ast.expr, parts: list[ast.expr]) -> Type:
        mark = self.scope.mark()
        before = len(self.open or ())
        types: tuple[TypeVar, ...] = ()
        dims: tuple[ScalarVar, ...] = ()
        if len(parts) == 3:
            types, dims = self._forall(parts[2])
        if not isinstance(parts[0], ast.Tuple):
            message = "The parameters of a function type are a tuple of types."
            self.unsupported(parts[0], message, expected="Fn[(A, B), R]")
            return UNIT
        params = tuple([self.read(elt) for elt in parts[0].elts])
        ret = self.read(parts[1])
        self.scope.leave(mark)
        for name, met in (self.open or ())[before:]:  # bound by the function around
            self.scope.bind(f"dim {name}", met)
        return FuncType(dims, types, params, ret)

    def _forall(self, node: ast.expr) -> tuple[tuple[TypeVar, ...], tuple[ScalarVar, ...]]:
        match node:
            case ast.Call(callee, args, keywords) if self.meaning(callee) == Word("forall"):
                given = {key.arg: key.value for key in keywords}
                if len(args) <= 1 and given.keys() <= {"dims"}:
                    types = self.names(args[0]) if args else []
                    dims = self.names(given["dims"]) if given else []
                    return self.bind_types(types, False), self.bind_dims(dims, False)
        message = "The third part of a function type says what it is for all of."
        self.unsupported(node, message, expected='forall("A B", dims="n")')
        return (), ()

    def names(self, node: ast.expr) -> list[str]:
        """Names in one string, separated by blanks."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = node.value.split()
            if twice := [name for i, name in enumerate(names) if name in names[:i]]:
                self.error(node, "duplicate-name", f"{twice[0]!r} is bound twice.")
            if all(name.isidentifier() for name in names):
                return list(dict.fromkeys(names))
        self.bad(node, '"A B"', "Names are given in one string, separated by blanks.")
        return []

    def bind_types(self, names: list[str], fresh: bool = True) -> tuple[TypeVar, ...]:
        """New type variables; those a type itself binds need not be unlike all others."""
        made = []
        for name in names:
            made.append(TypeVar(self.scope.fresh(name, "type ") if fresh else Name(name)))
            self.scope.bind(f"type {name}", made[-1])
        return tuple(made)

    def bind_dims(self, names: list[str], fresh: bool = True) -> tuple[ScalarVar, ...]:
        """New dims; those a type itself binds need not be unlike all others."""
        made = []
        for name in names:
            made.append(ScalarVar(self.scope.fresh(name, "dim ") if fresh else Name(name), i64))
            self.scope.bind(f"dim {name}", made[-1])
        return tuple(made)

    def _no_type(self, node: ast.expr) -> Type:
        example = 'Tensor[("n", 4), f32], tuple[A, B], Fn[(A,), B], or a data type'
        self.bad(node, example, "This is no type.")
        return UNIT
