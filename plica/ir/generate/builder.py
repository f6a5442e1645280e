"""The state of one growing program: the names in use, the palette of types, the data types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from plica.core import Name, all_of, fresh, substitute
from plica.ir.generate.choice import between, hints, names, pick
from plica.ir.generate.scalar import dims
from plica.ir.generate.scope import GenerationScope
from plica.ir.generate.value import dtypes
from plica.ir.graph import expression as ex
from plica.ir.graph.module import DataDef, constructors
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.type import Type, dim_var, f32, term as ty

V = TypeVar("V")

SCALAR_ATTRIBUTES: Final = (True, False, 0, -3, "always", "", "a b", 2.5, (1, 2), ())


@attrs.define
class Builder:
    """Draws leaves."""

    draw: DrawFn
    used: set[Name] = attrs.field(factory=set)
    retired: list[ex.Var] = attrs.field(factory=list)  # variables whose scope has ended
    palette: list[ty.TensorType] = attrs.field(factory=list)
    data: list[tuple[ty.DataName, DataDef]] = attrs.field(factory=list)
    cost: dict[ex.Var, int] = attrs.field(factory=dict)  # steps a call of a definition may take

    def choose(self, options: Sequence[V]) -> V:
        """One of several; the first is the simplest."""
        return pick(self.draw, options)

    def chance(self, one_in: int) -> bool:
        """True once in a given number of times; the simplest is False."""
        return self.draw(between(0, one_in - 1)) == one_in - 1

    def count(self, low: int, high: int) -> int:
        """A number, the smaller the simpler."""
        return self.draw(between(low, high))

    def take(self, strategy: SearchStrategy[V]) -> V:
        """A value of a strategy."""
        return self.draw(strategy)

    # --- names ---------------------------------------------------------------------------------

    def name(self, like: SearchStrategy[str] | None = None) -> Name:
        """A name that nothing in this program has; the hint may be common."""
        name = fresh(Name(self.draw(hints() if like is None else like)), self.used)
        self.used.add(name)
        return name

    def var(self, type: ty.Type) -> ex.Var:
        """A new variable, at times one that was used in another scope before."""
        again = [each for each in self.retired if each.type is type]
        if again and self.chance(8):
            return again[-1]
        return ex.Var(self.name(), type)

    def dims(self, count: int) -> tuple[ScalarVar, ...]:
        """New symbolic dims."""
        return tuple(dim_var(self.name(st.sampled_from("nmkx"))) for _ in range(count))

    def type_vars(self, count: int) -> tuple[ty.TypeVar, ...]:
        """New type variables."""
        hint = st.sampled_from(("A", "B", "A_1", "x"))
        return tuple(ty.TypeVar(self.name(hint)) for _ in range(count))

    def attributes(self) -> ex.Attrs:
        """Attributes of a function: mostly none."""
        if not self.chance(4):
            return ()
        words = self.draw(st.sets(st.sampled_from(("inline", "name", "with space")), max_size=2))
        return tuple((word, self.choose(SCALAR_ATTRIBUTES)) for word in sorted(words))

    # --- types ---------------------------------------------------------------------------------

    def settle_palette(self) -> None:
        """A few tensor types for the whole program, so that things fit together."""
        shapes = [(), (2,), (2, 3), (0,), (1, 2), (3,)]
        chosen = [f32, self.draw(dtypes())]
        sizes = [self.choose(shapes) for _ in range(2)]
        self.palette = [ty.tensor(shape, dtype) for shape in sizes for dtype in chosen]

    def tensor_type(self) -> ty.TensorType:
        """One of the palette."""
        return self.choose(self.palette)

    def type(self, scope: GenerationScope, depth: int = 2, functions: bool = True) -> ty.Type:
        """A type that has a value in this scope, though maybe only one that is in it already."""
        kinds = ["tensor", "tensor", "tensor"]
        if here := [each.type for each in scope.pool if functions or is_first_order(each.type)]:
            kinds.append("known")
        if depth > 0:
            kinds.append("tuple")
            kinds += ["data"] if self.data else []
            kinds += ["function"] if functions else []
        match self.choose(kinds):
            case "known":
                return self.choose(here)
            case "tuple":
                count = self.count(0, 3)
                items = [self.type(scope, depth - 1, functions) for _ in range(count)]
                return ty.TupleType(tuple(items))
            case "data":
                name, definition = self.choose(self.data)
                return ty.DataType(
                    name, tuple(self.type(scope, depth - 1, functions) for _ in definition.types)
                )
            case "function":
                if self.chance(8):  # a polymorphic function as a value
                    (a,) = self.type_vars(1)
                    return ty.FuncType((), (a,), (a,), a)
                params = [self.type(scope, depth - 1) for _ in range(self.count(0, 2))]
                return ty.FuncType((), (), tuple(params), self.type(scope, depth - 1))
            case _:
                return self.tensor_type()

    # --- data ----------------------------------------------------------------------------------

    def constructors_of(self, of: ty.DataType | ty.DataName) -> tuple[ex.Constructor, ...]:
        """The constructors of a data type as expressions."""
        name = of.data if isinstance(of, ty.DataType) else of
        return constructors(*next(each for each in self.data if each[0] is name))


def fields_of(constructor: ex.Constructor, type: ty.DataType) -> tuple[ty.Type, ...]:
    """The types of a constructor's fields at an instance of its data type."""
    signature = constructor.type
    assert isinstance(signature, ty.FuncType)
    return instantiate(signature, type.args)[0]


def instantiate(
    function: ty.FuncType, types: tuple[ty.Type, ...], dims: tuple[Scalar, ...] = ()
) -> tuple[tuple[ty.Type, ...], ty.Type]:
    """Parameters and result of a function type at the given types and dims."""
    mapping = dict(zip((*function.types, *function.dims), (*types, *dims), strict=True))
    params = tuple(substitute(param, mapping) for param in function.params)
    return params, substitute(function.ret, mapping)


def is_first_order(type: ty.Type) -> bool:
    """Whether values of the type contain no function (data types are assumed to contain none)."""
    if isinstance(type, ty.TupleType):
        return all(is_first_order(item) for item in type.items)
    if isinstance(type, ty.DataType):
        return all(is_first_order(item) for item in type.args)
    return not isinstance(type, ty.FuncType)


@st.composite
def types(
    draw: DrawFn,
    dim_vars: Sequence[ScalarVar] = (),
    type_vars: Sequence[ty.TypeVar] = (),
    data: Sequence[ty.DataName] = (ty.DataName(Name("List")),),
    depth: int = 2,
) -> Type:
    """Types over the given dims, type variables and (one-argument) data types."""
    kinds = ["tensor", "tensor"]
    if depth:
        kinds += ["tuple", "function", "data"]
    if type_vars:
        kinds.append("variable")

    def inner(dims: Sequence[ScalarVar] = (), more: Sequence[ty.TypeVar] = ()) -> Type:
        return draw(types((*dim_vars, *dims), (*type_vars, *more), data, depth - 1))

    match draw(st.sampled_from(kinds)):
        case "tuple":
            return ty.TupleType(tuple(inner() for _ in range(draw(st.integers(0, 3)))))
        case "data" if data:
            return ty.DataType(draw(st.sampled_from(list(data))), (inner(),))
        case "variable":
            return draw(st.sampled_from(list(type_vars)))
        case "function":
            bound = draw(st.lists(names(odd=False), max_size=2, unique=True))
            more = tuple(ty.TypeVar(name) for name in bound)
            own = (dim_var("p"),) if draw(st.booleans()) else ()
            params = tuple(inner(own, more) for _ in range(draw(st.integers(0, 2))))
            return ty.FuncType(dims_in(params, own), more, params, inner(own, more))
        case _:
            shape = draw(st.lists(dims(dim_vars), max_size=3))
            return ty.TensorType(tuple(shape), draw(dtypes()))


def dims_in(types: Sequence[Type], among: Sequence[ScalarVar]) -> tuple[ScalarVar, ...]:
    """Those of the dims that the types mention, in order of first appearance."""
    found = all_of(ScalarVar, *types)
    return tuple(dict.fromkeys(var for var in found if var in among))


def cover(builder: Builder, type: Type, depth: int = 2) -> list[ex.Pattern]:
    """Patterns for a total match: a partition of the values, or some of it and a last clause."""
    if depth == 0 or not isinstance(type, ty.DataType | ty.TupleType) or builder.chance(3):
        return [catch_all(builder, type)]
    return split(builder, type, depth)


def split(builder: Builder, type: ty.DataType | ty.TupleType, depth: int = 2) -> list[ex.Pattern]:
    """As `cover`, looking inside the value at least once."""
    found: list[ex.Pattern] = []
    if isinstance(type, ty.DataType):
        for constructor in builder.constructors_of(type):
            for items in _product(builder, fields_of(constructor, type), depth):
                found.append(ex.PConstructor(constructor, items))
    else:
        found = [ex.PTuple(items) for items in _product(builder, type.items, depth)]
    if len(found) > 1 and builder.chance(3):
        kept = builder.count(1, len(found) - 1)
        return [*found[:kept], catch_all(builder, type)]
    return found


def catch_all(builder: Builder, type: Type) -> ex.Pattern:
    """A pattern that fits anything: a name, or none."""
    return ex.PAny() if builder.chance(3) else ex.PVar(builder.var(type))


def _product(builder: Builder, types: tuple[Type, ...], depth: int) -> list[tuple[ex.Pattern, ...]]:
    """Patterns for each case: one field is matched further, the others are bound whole."""
    deep = [i for i, type_ in enumerate(types) if isinstance(type_, ty.DataType | ty.TupleType)]
    where = builder.choose(deep or range(len(types))) if types else 0
    cases = cover(builder, types[where], depth - 1) if types else [ex.PAny()]
    made: list[tuple[ex.Pattern, ...]] = []
    for case in cases:
        items = [case if i == where else catch_all(builder, type_) for i, type_ in enumerate(types)]
        made.append(tuple(items))
    return made
