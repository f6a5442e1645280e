"""The state of one growing program: the names in use, the palette of types, the data types."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from plica.core import Name, fresh, substitute
from plica.ir.generate.choice import between, pick
from plica.ir.generate.name import hints
from plica.ir.generate.scope import GenerationScope
from plica.ir.generate.value import dtypes
from plica.ir.graph.expression import Attrs, Constructor, Var
from plica.ir.graph.module import DataDef, constructors
from plica.ir.loop.scalar import Lit, Scalar, ScalarVar
from plica.ir.type import DType, dim_var, f32, term as ty

V = TypeVar("V")

SCALAR_ATTRIBUTES: Final = (True, False, 0, -3, "always", "", "a b", 2.5, (1, 2), ())


@attrs.define
class Builder:
    """Draws leaves."""

    draw: DrawFn
    used: set[Name] = attrs.field(factory=set)
    retired: list[Var] = attrs.field(factory=list)  # variables whose scope has ended
    palette: list[ty.TensorType] = attrs.field(factory=list)
    data: list[tuple[ty.DataName, DataDef]] = attrs.field(factory=list)
    cost: dict[Var, int] = attrs.field(factory=dict)  # steps a call of a definition may take

    def choose(self, options: Any) -> Any:
        """One of several; the first is the simplest.  Any: whatever is in the sequence."""
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

    def var(self, type: ty.Type) -> Var:
        """A new variable, at times one that was used in another scope before."""
        again = [each for each in self.retired if each.type is type]
        if again and self.chance(8):
            return again[-1]
        return Var(self.name(), type)

    def dims(self, count: int) -> tuple[ScalarVar, ...]:
        """New symbolic dims."""
        return tuple(dim_var(self.name(st.sampled_from("nmkx"))) for _ in range(count))

    def type_vars(self, count: int) -> tuple[ty.TypeVar, ...]:
        """New type variables."""
        hint = st.sampled_from(("A", "B", "A_1", "x"))
        return tuple(ty.TypeVar(self.name(hint)) for _ in range(count))

    def attributes(self) -> Attrs:
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
        self.palette = [_static(shape, each) for shape in sizes for each in chosen]

    def tensor_type(self) -> ty.TensorType:
        """One of the palette."""
        found: ty.TensorType = self.choose(self.palette)
        return found

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
                known: ty.Type = self.choose(here)
                return known
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

    def constructors_of(self, of: ty.DataType | ty.DataName) -> tuple[Constructor, ...]:
        """The constructors of a data type as expressions."""
        name = of.data if isinstance(of, ty.DataType) else of
        return constructors(*next(each for each in self.data if each[0] is name))


def fields_of(constructor: Constructor, type: ty.DataType) -> tuple[ty.Type, ...]:
    """The types of a constructor's fields at an instance of its data type."""
    signature = constructor.type
    assert isinstance(signature, ty.FuncType)
    return instantiate(signature, type.args)[0]


def instantiate(
    function: ty.FuncType, types: tuple[ty.Type, ...], dims: tuple[Scalar, ...] = ()
) -> tuple[tuple[ty.Type, ...], ty.Type]:
    """Parameters and result of a function type at the given types and dims."""
    mapping = dict(zip((*function.types, *function.dims), (*types, *dims), strict=True))
    params = tuple(substitute(each, mapping) for each in function.params)
    return params, substitute(function.ret, mapping)


def is_first_order(type: ty.Type) -> bool:
    """Whether values of the type contain no function (data types are assumed to contain none)."""
    if isinstance(type, ty.TupleType):
        return all(is_first_order(item) for item in type.items)
    if isinstance(type, ty.DataType):
        return all(is_first_order(item) for item in type.args)
    return not isinstance(type, ty.FuncType)


def _static(shape: tuple[int, ...], dtype: DType) -> ty.TensorType:
    return ty.TensorType(tuple(Lit(size, DType("i64")) for size in shape), dtype)
