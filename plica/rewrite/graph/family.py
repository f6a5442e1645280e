"""Families: the types of a program without functions as values."""

from __future__ import annotations

from typing import Any, Final

import attrs

from plica.core import Name, Term, digest, free_vars, post_order, substitute
from plica.ir.graph import expression as ex
from plica.ir.graph.module import ConstructorDef, DataDef, Defined, Definition, Module, constructors
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type import DataName, DataType, FuncType, TupleType, Type, TypeVar
from plica.rewrite.graph.walk import NameSupply
from plica.runtime.error import Diagnostic, UnsupportedError

COPIES: Final = 10_000  # how many copies of data types a module may need


def refusal(message: str) -> UnsupportedError:
    """A program that has no form without functions as values."""
    return UnsupportedError(Diagnostic("unsupported", message))


@attrs.define(eq=False)
class Way:
    """One function of a family: its constructor, what it captures, and what it does."""

    family: FunctionFamily
    index: int
    name: Name
    captured: tuple[ex.Var, ...]
    body: ex.Expr | None = None

    @property
    def constructor(self) -> ex.Constructor:
        whole = DataType(self.family.data, ())
        return ex.Constructor(
            self.family.data, self.index, self.name, FuncType((), (), self.fields, whole)
        )

    @property
    def fields(self) -> tuple[Type, ...]:
        return tuple([each.type for each in self.captured if each.type is not None])


@attrs.define(eq=False)
class FunctionFamily:
    """All functions of one type; the parts of the type are translated."""

    of: FuncType
    data: DataName
    apply: ex.Var
    params: tuple[ex.Var, ...]
    ways: dict[ex.Expr, Way] = attrs.field(factory=dict)

    def definitions(self, spare: Name) -> dict[Defined, Definition]:
        """The data type, and the definition that applies its values."""
        ways = list(self.ways.values())
        names = [ConstructorDef(way.name, way.fields) for way in ways]
        value = ex.Var(Name("f"), DataType(self.data, ()))
        clauses = []
        for way in ways:
            assert way.body is not None
            pattern = ex.PConstructor(way.constructor, tuple([ex.PVar(v) for v in way.captured]))
            clauses.append(ex.Clause(pattern, way.body))
        params = (value, *self.params)
        # A type without functions in the program never has a value to apply.
        body: ex.Expr = ex.Match(value, tuple(clauses)) if ways else ex.Call(self.apply, params)
        if not ways:
            names.append(ConstructorDef(spare, ()))
        return {
            self.data: DataDef((), tuple(names)),
            self.apply: ex.Function(self.of.dims, (), params, self.of.ret, body),
        }


class Representation:
    """The translation of types, and the families and data types it has led to."""

    def __init__(self, module: Module, supply: NameSupply) -> None:
        self.supply = supply
        self.data: dict[DataName, DataDef] = {
            name: value
            for name, value in module.items()
            if isinstance(name, DataName) and isinstance(value, DataDef)
        }
        self.copied = _copied(self.data)
        self.families: dict[str, FunctionFamily] = {}
        self.copies: dict[tuple[DataName, tuple[Type, ...]], DataName] = {}
        self.made: dict[DataName, DataDef] = {}
        self._memo: dict[Type, Type] = {}
        for name, value in self.data.items():
            if name not in self.copied:
                self.made[name] = self._fields(value, {})

    def of(self, type: Type) -> Type:
        """The type that values of a type have in the translated program."""
        if (type_ := self._memo.get(type)) is None:
            type_ = self._memo[type] = self._translated(type)
        return type_

    def _translated(self, type: Type) -> Type:
        match type:
            case TupleType(items):
                return TupleType(tuple([self.of(item) for item in items]))
            case DataType(name, args):
                at = tuple([self.of(arg) for arg in args])
                if name in self.copied:
                    return DataType(self._copy(name, at), ())
                return DataType(name, at)
            case FuncType():
                return DataType(self.family(type).data, ())
            case _:
                return type

    def signature(self, of: FuncType) -> FuncType:
        """The type of a definition, which stays a function."""
        params = tuple([self.of(param) for param in of.params])
        return FuncType(of.dims, of.types, params, self.of(of.ret))

    def family(self, of: FuncType) -> FunctionFamily:
        """The family of a type of functions."""
        if of.types:
            raise refusal(f"A polymorphic function is a value: {of}.")
        whole = self.signature(of)
        if any(isinstance(var, ScalarVar | TypeVar) for var in free_vars(whole)):
            raise refusal(f"A function as a value takes dims from outside: {of}.")
        key = digest(whole)
        if key not in self.families:
            data = DataName(self.supply.name("Function"))
            params = tuple([ex.Var(self.supply.name("x"), param) for param in whole.params])
            inside = (DataType(data, ()), *whole.params)
            apply = ex.Var(self.supply.name("apply"), FuncType(whole.dims, (), inside, whole.ret))
            self.families[key] = FunctionFamily(whole, data, apply, params)
        return self.families[key]

    def way(self, value: ex.Expr, of: FuncType, captured: tuple[ex.Var, ...]) -> tuple[Way, bool]:
        """The family member of a function, and whether it is new; captured variables are
        translated."""
        family = self.family(of)
        if (known := family.ways.get(value)) is not None:
            return known, False
        for var in captured:
            if any(isinstance(v, ScalarVar | TypeVar) for v in free_vars(var)):
                message = f"A function as a value captures {var.name}, whose dims vary."
                raise refusal(message)
        name = self.supply.name("Closure")
        family.ways[value] = way = Way(family, len(family.ways), name, captured)
        return way, True

    def constructor(
        self, of: ex.Constructor, types: tuple[Type, ...]
    ) -> tuple[ex.Constructor, Any]:
        """A constructor at translated type arguments, and its remaining arguments."""
        name = of.data
        if name in self.copied:
            name, types = self._copy(name, types), ()
        return constructors(name, self.made[name])[of.index], types

    def fields(self, of: DataType, index: int) -> tuple[Type, ...]:
        """The fields of a constructor of a translated type."""
        definition = self.made[of.data]
        at: dict[Term, Term] = dict(zip(definition.types, of.args, strict=True))
        found = definition.constructors[index].fields
        return tuple([substitute(type_, at) for type_ in found])

    def definitions(self) -> dict[Defined, Definition]:
        """The data types and what applies functions."""
        found: dict[Defined, Definition] = {name: self.made[name] for name in self.made}
        for family in self.families.values():
            found.update(family.definitions(self.supply.name("Never")))
        return found

    def _copy(self, name: DataName, types: tuple[Type, ...]) -> DataName:
        key = name, types
        if key not in self.copies:
            if len(self.copies) >= COPIES:
                raise refusal(f"The data type {name.name} is needed at too many types.")
            self.copies[key] = copy = DataName(self.supply.name(name.name.hint))
            at: dict[Term, Term] = dict(zip(self.data[name].types, types, strict=True))
            self.made[copy] = self._fields(self.data[name], at)
        return self.copies[key]

    def _fields(self, data: DataDef, at: dict[Term, Term]) -> DataDef:
        made = []
        for def_ in data.constructors:
            fields: Any = [substitute(field, at) for field in def_.fields]
            made.append(ConstructorDef(def_.name, tuple([self.of(field) for field in fields])))
        return DataDef(() if at else data.types, tuple(made))


def _copied(data: dict[DataName, DataDef]) -> set[DataName]:
    """The data types whose fields hold functions over their own type arguments."""
    data_names: set[DataName] = set()
    size = -1
    while len(data_names) > size:
        size = len(data_names)
        for name, value in data.items():
            if any(_depends(field, data_names) for c in value.constructors for field in c.fields):
                data_names.add(name)
    return data_names


def _depends(field: Type, copied: set[DataName]) -> bool:
    return any(
        (isinstance(part, FuncType) or (isinstance(part, DataType) and part.data in copied))
        and any(isinstance(var, TypeVar) for var in free_vars(part))
        for part in post_order(field)
    )
