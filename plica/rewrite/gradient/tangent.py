"""Tangents: the types of cotangents, their zeros and their sums.

    of(f32 tensor)   the same              of(List[f32 tensor])   ListTangent[f32 tensor]
    of(i64 tensor)   ()                    of((a, b))             (of(a), of(b)), or () if both are

A data type with floats has a data type of tangents: its constructors with tangents for fields, and
one more for zero, so that zeros need no value. Sums of such tangents are functions of the module,
one per type that needs them.

A partially built cotangent is a `Part`: None is zero, a Python tuple a tuple.

>>> from plica.ir.graph.module import module
>>> from plica.ir.type.term import tensor
>>> tangents = Tangents(module({}), NameSupply())
>>> x, n = tensor((2,), "f32"), tensor((2,), "i32")
>>> tangents.of(ty.TupleType((x, n))) is ty.TupleType((x, UNIT)), tangents.of(n) is UNIT
(True, True)
"""

from __future__ import annotations

from typing import Final, TypeAlias

from plica.core import CompilerBug, free_vars, post_order, substitute
from plica.ir.graph import expression as ex
from plica.ir.graph.module import ConstructorDef, DataDef, Defined, Definition, Module, constructors
from plica.ir.loop.scalar import ScalarVar
from plica.ir.op.create import zeros, zeros_like
from plica.ir.type import term as ty
from plica.rewrite.graph.walk import NameSupply

Part: TypeAlias = ex.Expr | tuple["Part", ...] | None

UNIT: Final = ty.TupleType(())


class Tangents:
    """The tangent types of one module; `definitions` grows on demand."""

    def __init__(self, module: Module, supply: NameSupply) -> None:
        self.data = {
            name: value
            for name, value in module.items()
            if isinstance(name, ty.DataName) and isinstance(value, DataDef)
        }
        self.supply = supply
        self.definitions: dict[Defined, Definition] = {}
        self.names: dict[ty.DataName, ty.DataName] = {}
        self.sums: dict[ty.Type, ex.Var] = {}
        self._holds: dict[ty.DataName, bool] = {}

    # --- types -------------------------------------------------------------------------------

    def is_active(self, of: ty.Type) -> bool:
        """Whether values of a type contain floats, and so have derivatives."""
        match of:
            case ty.TensorType():
                return of.dtype.is_float
            case ty.TupleType(items):
                return any(map(self.is_active, items))
            case ty.DataType(data, args):
                return self._holds_floats(data) or any(map(self.is_active, args))
            case ty.TypeVar():
                return True  # in a definition: whoever uses it may put floats there
            case ty.FuncType():
                raise CompilerBug("A function is differentiated with functions as values in it.")
        raise CompilerBug("A type that is not known is differentiated.")

    def of(self, type: ty.Type) -> ty.Type:
        """The type of the cotangents of a type."""
        if not self.is_active(type):
            return UNIT
        match type:
            case ty.TupleType(items):
                return ty.TupleType(tuple(map(self.of, items)))
            case ty.DataType(data, args):
                return ty.DataType(self.name(data), tuple(map(self.of, args)))
        return type

    def _holds_floats(self, data: ty.DataName) -> bool:
        """Whether some constructor of a data type has floats, whatever its parameters are."""
        if data not in self._holds:
            reached = [data]
            for data_name in reached:  # grows while it is gone through
                for part in post_order(self.data[data_name]):
                    if isinstance(part, ty.DataName) and part in self.data and part not in reached:
                        reached.append(part)
            self._holds[data] = any(
                isinstance(part, ty.TensorType) and part.dtype.is_float
                for data_name in reached
                for part in post_order(self.data[data_name])
            )
        return self._holds[data]

    def name(self, data: ty.DataName) -> ty.DataName:
        """The data type of the tangents of a data type."""
        if data not in self.names:
            hint = data.name.hint
            new = self.names[data] = ty.DataName(self.supply.name(f"{hint}Tangent"))
            data_def = self.data[data]
            ways = [ConstructorDef(self.supply.name(f"{hint}Zero"), ())]
            for def_ in data_def.constructors:
                fields = tuple([self.of(field) for field in def_.fields])
                ways.append(ConstructorDef(self.supply.name(f"{def_.name.hint}Tangent"), fields))
            self.definitions[new] = DataDef(data_def.types, tuple(ways))
        return self.names[data]

    def constructor(
        self, of: ty.DataType, index: int
    ) -> tuple[ex.Constructor, tuple[ty.Type, ...]]:
        """A constructor of a tangent type, at 0 its zero, and the types of its fields."""
        made = self.definitions[of.data]
        assert isinstance(made, DataDef)
        found = constructors(of.data, made)[index]
        mapping = dict(zip(made.types, of.args, strict=True))
        fields = made.constructors[index].fields
        # A substitution preserves types.
        return found, tuple([substitute(field, mapping) for field in fields])

    # --- values ------------------------------------------------------------------------------

    def zero(self, of: ty.Type, value: ex.Expr) -> ex.Expr:
        """The zero of a cotangent type; `value` is the primal value."""
        return self.whole(of, None, value)

    def whole(self, of: ty.Type, part: Part, value: ex.Expr) -> ex.Expr:
        """A cotangent as an expression, with explicit zeros."""
        match of:
            case ty.TupleType(items):
                parts = part if isinstance(part, tuple) else self.opened(of, part)
                given = parts if isinstance(parts, tuple) else (None,) * len(items)
                exprs = [
                    self.whole(item, given[at], projected(value, at))
                    for at, item in enumerate(items)
                ]
                return ex.Tuple(tuple(exprs))
            case ty.DataType() if part is None:
                return ex.Call(self.constructor(of, 0)[0], (), of.args)
            case ty.TensorType() if part is None:
                return zeros_of(of, value)
        assert isinstance(part, ex.Expr)
        return part

    def opened(self, of: ty.Type, value: ex.Expr | None) -> Part:
        """A cotangent split into parts, as far as its type determines them."""
        if value is None or of is UNIT:
            return None
        if isinstance(of, ty.TupleType):
            return tuple(
                [self.opened(item, projected(value, at)) for at, item in enumerate(of.items)]
            )
        return value

    def plus(self, of: ty.Type, a: Part, b: Part) -> Part:
        """The sum of two cotangents of a type."""
        if a is None or b is None:
            return b if a is None else a
        if isinstance(of, ty.TupleType):
            assert isinstance(a, tuple)
            assert isinstance(b, tuple)
            every = zip(of.items, a, b, strict=True)
            return tuple([self.plus(item, left, right) for item, left, right in every])
        assert isinstance(a, ex.Expr)
        assert isinstance(b, ex.Expr)
        if isinstance(of, ty.DataType):
            return ex.Call(self._sum(of), (a, b))
        return a + b

    def _sum(self, of: ty.DataType) -> ex.Var:
        """The function that adds tangents of a data type."""
        if of not in self.sums:
            dims = sorted(
                (var for var in free_vars(of) if isinstance(var, ScalarVar)),
                key=lambda each: each.name,
            )
            hint = f"add_{of.data.name.hint}"
            name = ex.Var(self.supply.name(hint), ty.FuncType(tuple(dims), (), (of, of), of))
            self.sums[of] = name
            a, b = (ex.Var(self.supply.name(each), of) for each in "ab")
            self.definitions[name] = ex.Function(
                tuple(dims), (), (a, b), of, self._summed(of, a, b)
            )
        return self.sums[of]

    def _summed(self, of: ty.DataType, a: ex.Var, b: ex.Var) -> ex.Expr:
        nothing, _ = self.constructor(of, 0)
        made = self.definitions[of.data]
        assert isinstance(made, DataDef)
        clauses = [ex.Clause(ex.PConstructor(nothing, ()), b)]
        for index in range(1, len(made.constructors)):
            way, fields = self.constructor(of, index)
            left, right = (
                [ex.Var(self.supply.name(hint), field) for field in fields] for hint in "xy"
            )
            every = [
                self.whole(field, self.plus(field, self.opened(field, x), self.opened(field, y)), x)
                for field, x, y in zip(fields, left, right, strict=True)
            ]
            both = ex.Call(way, tuple(every), of.args)
            inner = ex.Match(
                b,
                (
                    ex.Clause(ex.PConstructor(way, tuple([ex.PVar(var) for var in right])), both),
                    ex.Clause(
                        ex.PAny(), a
                    ),  # b is zero: of one value all tangents have one constructor
                ),
            )
            clauses.append(
                ex.Clause(ex.PConstructor(way, tuple([ex.PVar(var) for var in left])), inner)
            )
        return ex.Match(a, tuple(clauses))


def projected(value: ex.Expr, at: int) -> ex.Expr:
    """One item of a tuple, without making one to take it apart."""
    return value.items[at] if isinstance(value, ex.Tuple) else ex.Project(value, at)


def zeros_of(of: ty.TensorType, value: ex.Expr) -> ex.Expr:
    """Zeros in the shape of a value, which is not needed where the shape is known."""
    shape = ty.static_shape(of)
    return zeros_like(value) if shape is None else zeros(shape, of.dtype)


def is_zero(part: Part) -> bool:
    """Whether a cotangent is known to be zero."""
    if isinstance(part, tuple):
        return all(map(is_zero, part))
    return part is None
