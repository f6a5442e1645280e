"""Types and dims in print.

>>> from plica.ir.type.term import TupleType, dim_var, tensor, f32
>>> TypePrinter().show(TupleType((tensor((dim_var("n"), 4), f32), tensor((), "bool"))))
'tuple[Tensor[("n", 4), f32], Tensor[(), bool]]'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, assert_never

from plica.core import CompilerBug, Name, Term, post_order
from plica.ir.graph.expression import Constructor
from plica.ir.loop import scalar as sc
from plica.ir.text.show.name import IdentifierSupply, spelling
from plica.ir.text.word import WORDS
from plica.ir.type import DType, term as ty

_SUM, _PRODUCT, _UNARY, _ATOM = 1, 2, 3, 4
_SIGNS: Final[dict[type[Term], tuple[str, int]]] = {
    sc.Add: ("+", _SUM), sc.Sub: ("-", _SUM),
    sc.Mul: ("*", _PRODUCT), sc.FloorDiv: ("//", _PRODUCT), sc.FloorMod: ("%", _PRODUCT),
}  # fmt: skip
_CALLS: Final = ("min", "max")


class TypePrinter:
    """Prints types under the names given so far; a variable without one shows its own."""

    def __init__(self, outer: TypePrinter | None = None) -> None:
        self.names: dict[Term, str] = {} if outer is None else dict(outer.names)
        # The names of constructors and the used keywords belong to the module printer.
        self.constructors: dict[tuple[ty.DataName, int], str] = outer.constructors if outer else {}
        self.words: set[str] = outer.words if outer else set()
        self._known: dict[ty.Type, str] = {}

    def show(self, of: ty.Type) -> str:
        """A type in script syntax."""
        if (text := self._known.get(of)) is None:
            text = self._known[of] = self._show(of)
        return text

    def show_tuple(self, items: Iterable[ty.Type]) -> str:
        """Types in parentheses, as in `Fn` and in data definitions."""
        return parenthesised([self.show(item) for item in items])

    def dtype(self, of: DType) -> str:
        """The word for an element type."""
        self.words.add(of.name)
        return of.name

    def name(self, of: Term) -> str:
        """The name of a variable."""
        known = self.names.get(of)
        return spelling(_name_of(of)) if known is None else known

    def constructor(self, of: Constructor) -> str:
        """The name of a constructor."""
        known = self.constructors.get((of.data, of.index))
        return spelling(of.name) if known is None else known

    def dim(self, of: sc.Scalar) -> str:
        """A dim as written inside quotes."""
        return show_dim(of, self.name)

    def shape(self, dims: tuple[sc.Scalar, ...]) -> str:
        """A shape: static dims as numbers, symbolic dims in quotes."""
        return parenthesised(
            [str(d.value) if isinstance(d, sc.Lit) else f'"{self.dim(d)}"' for d in dims]
        )

    def _show(self, of: ty.Type) -> str:
        match of:
            case ty.TensorType(shape, dtype):
                self.words.add("Tensor")
                return f"Tensor[{self.shape(shape)}, {self.dtype(dtype)}]"
            case ty.TupleType(items):
                inside = ", ".join(self.show(item) for item in items)
                return f"tuple[{inside}]" if items else "tuple[()]"
            case ty.DataType(data, args):
                inside = ", ".join(self.show(item) for item in args)
                return f"{self.name(data)}[{inside}]" if args else self.name(data)
            case ty.TypeVar() | ty.Unknown():
                return self.name(of)
            case ty.FuncType():
                return self._function(of)
            case _:
                assert_never(of)

    def _function(self, of: ty.FuncType) -> str:
        self.words.add("Fn")
        if not of.dims and not of.types:
            return f"Fn[{self.show_tuple(of.params)}, {self.show(of.ret)}]"
        # The variables that the type binds get names distinct from all others in it.
        inner = TypePrinter(self)
        bound = {*of.dims, *of.types}
        free = [term for term in post_order(of) if type(term).variable and term not in bound]
        dims = IdentifierSupply(
            [*[self.name(each) for each in free if isinstance(each, sc.ScalarVar)], *_CALLS]
        )
        types = IdentifierSupply([*[self.name(term) for term in free], *WORDS])
        for dim in of.dims:
            inner.names[dim] = dims.draw(dim.name)
        for kind in of.types:
            inner.names[kind] = types.draw(kind.name)
        binder = quantifier(
            [inner.names[var] for var in of.types], [inner.names[dim] for dim in of.dims]
        )
        self.words.add("forall")
        return f"Fn[{inner.show_tuple(of.params)}, {inner.show(of.ret)}, forall({binder})]"


def show_type(of: ty.TypeTerm) -> str:
    """A type in script syntax."""
    return TypePrinter().show(of)  # type: ignore[arg-type]  # every TypeTerm is a Type


def quantifier(types: list[str], dims: list[str]) -> str:
    """The arguments of `forall`: type names first, then dims."""
    parts = [f'"{" ".join(types)}"'] if types else []
    return ", ".join([*parts, f'dims="{" ".join(dims)}"'] if dims else parts)


def parenthesised(items: list[str]) -> str:
    """A tuple in Python's own notation."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def show_dim(of: sc.Scalar, name: Callable[[Term], str]) -> str:
    """An index term; reading the text builds the same term."""
    done: dict[Term, tuple[str, int]] = {}
    for node in post_order(of):
        match node:
            case sc.Lit(value, _):
                done[node] = str(value), _ATOM if value >= 0 else _UNARY
            case sc.ScalarVar():
                done[node] = name(node), _ATOM
            case sc.Min(left, right) | sc.Max(left, right):
                word = "min" if isinstance(node, sc.Min) else "max"
                done[node] = f"{word}({done[left][0]}, {done[right][0]})", _ATOM
            case sc.Add(left, right) | sc.Sub(left, right) | sc.Mul(left, right):
                done[node] = _infix(node, done[left], done[right])
            case sc.FloorDiv(left, right) | sc.FloorMod(left, right):
                done[node] = _infix(node, done[left], done[right])
            case DType():
                pass
            case _:
                raise CompilerBug(f"{node!r} is no part of a dim.")
    return done[of][0]


def _infix(node: Term, left: tuple[str, int], right: tuple[str, int]) -> tuple[str, int]:
    sign, level = _SIGNS[type(node)]
    before = left[0] if left[1] >= level else f"({left[0]})"
    after = right[0] if right[1] > level else f"({right[0]})"
    return f"{before}{sign}{after}", level


def _name_of(variable: Term) -> Name:
    assert isinstance(variable, sc.ScalarVar | ty.TypeVar | ty.DataName | ty.Unknown)
    return variable.name
