"""The differentiated program, as the sweeps of its blocks see it."""

from __future__ import annotations

from plica.core import substitute
from plica.ir.graph import expression as ex
from plica.ir.graph.module import DataDef, Defined, Definition, Extern, Module
from plica.ir.type import DataType, FuncType, TupleType, Type, type_of
from plica.rewrite.gradient.form import is_kept
from plica.rewrite.gradient.tangent import Tangents
from plica.rewrite.graph.walk import NameSupply
from plica.runtime.error import Diagnostic, Place


class SweptProgram:
    """One module in first-order A-normal form, and what its derivatives need."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.table = module.definitions()
        self.supply = NameSupply(*module.values, *module.names)
        self.tangents = Tangents(module, self.supply)
        self.thunks: dict[ex.Var, tuple[ex.Var, list[ex.Var]]] = {}
        self.derived: dict[ex.Var, ex.Var] = {}
        self.todo: list[ex.Var] = []
        self.made: dict[Defined, Definition] = {}
        self.place = ""
        self.missing: dict[tuple[str, str], Diagnostic] = {}

    def fresh(self, hint: str, of: Type) -> ex.Var:
        """A new variable."""
        return ex.Var(self.supply.name(hint), of)

    def is_active(self, var: ex.Var) -> bool:
        """Whether a variable can have a cotangent."""
        of = type_of(var)
        return not isinstance(of, FuncType) and self.tangents.is_active(of)

    def fields(self, of: DataType, constructor: ex.Constructor) -> list[Type]:
        """The field types of a constructor."""
        data = self.table[of.data]
        assert isinstance(data, DataDef)
        mapping = dict(zip(data.types, of.args, strict=True))
        fields = data.constructors[constructor.index].fields
        # A substitution preserves types.
        return [substitute(field, mapping) for field in fields]

    def named(self, pattern: ex.Pattern, of: Type) -> ex.Pattern:
        """A pattern in which active parts are named, so that their zeros can be built."""
        if isinstance(pattern, ex.PAny):
            return ex.PVar(self.fresh("x", of))
        if not self.tangents.is_active(of):
            return pattern
        match pattern, of:
            case ex.PTuple(items), TupleType(types):
                pairs = zip(items, types, strict=True)
                return ex.PTuple(tuple([self.named(*pair) for pair in pairs]))
            case ex.PConstructor(constructor, items), DataType():
                pairs = zip(items, self.fields(of, constructor), strict=True)
                return ex.PConstructor(constructor, tuple([self.named(*pair) for pair in pairs]))
        return pattern

    def is_checkpoint(self, callee: ex.Var) -> bool:
        """Whether calls of a function are computed again when derivatives are."""
        value = self.table.get(callee)
        return isinstance(value, ex.Function) and is_kept(value)

    def derivative(self, callee: ex.Var) -> ex.Var | None:
        """The function that returns the value and the pullback, or None."""
        value = self.table.get(callee)
        if not isinstance(value, ex.Function):
            why = "It is defined outside of the graph language, and declares no gradient."
            self.miss(str(callee.name), why)
            return None
        if callee not in self.derived:
            assert value.ret is not None
            params = tuple([type_of(param) for param in value.params])
            every = TupleType(tuple(map(self.tangents.of, params)))
            pull = FuncType((), (), (self.tangents.of(value.ret),), every)
            of = FuncType(value.dims, (), params, TupleType((value.ret, pull)))
            self.derived[callee] = self.fresh(f"{callee.name.hint}_pull", of)
            self.todo.append(callee)
        return self.derived[callee]

    def extern_gradient(self, callee: ex.Var) -> ex.Var | None:
        """The extern from arguments and cotangents to cotangents, None where none is declared."""
        value = self.table.get(callee)
        if not isinstance(value, Extern) or value.gradient is None:
            return None
        if callee not in self.derived:
            of = value.type
            results = of.ret.items if isinstance(of.ret, TupleType) else (of.ret,)
            given = [result for result in results if self.tangents.is_active(result)]
            parts = tuple([param for param in of.params if self.tangents.is_active(param)])
            ret = parts[0] if len(parts) == 1 else TupleType(parts)
            kind = FuncType(of.dims, of.types, (*of.params, *given), ret)
            self.derived[callee] = self.fresh(f"{callee.name.hint}_gradient", kind)
            self.made[self.derived[callee]] = Extern(value.gradient, kind)
        return self.derived[callee]

    def miss(self, op: str, why: str = "Its record has no gradient.") -> None:
        """Note that something has no gradient; all of that is reported together."""
        place = Place(node=self.place)
        message = f"{op} cannot be differentiated, in {self.place}."
        hint = "Mark what needs no derivative with stop_gradient."
        self.missing[op, self.place] = Diagnostic("no-gradient", message, place, None, why, hint)
