"""Unification: the current knowledge about unknown types and dims of one inference.

An `Unknown` is a type to be inferred, and a dim variable hinted `?` a size to be inferred; all
other dim variables are rigid: callers choose them, and they never become numbers. Dims are equal as
polynomials. An equation with one unknown is solved if the division is exact; others wait until more
is known. A literal has a *weak* type.

>>> from plica.ir.type.term import tensor
>>> solver = Solver()
>>> n = solver.fresh_dim()
>>> solver.unify(tensor((2 * n + 1,), "f32"), tensor((7,), "f32")) is None, known(solver.size(n))
(True, 3)
>>> solver.unify(tensor(("m",), "f32"), tensor((7,), "f32")).code
'shape-conflict'

Infinite types are detected when a type is assembled (`endless`), not at every step, which would
cost quadratic time. A clash is a value; the caller turns it into an error with a place. Nothing
here inspects programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from plica.core import Name, OutOfRange, Term, free_vars, rebuild, substitute
from plica.ir.loop.scalar import Lit, Scalar, ScalarVar, Sub
from plica.ir.type.dim import dim_var, from_polynomial, known, polynomial, same_dim
from plica.ir.type.dtype import i64
from plica.ir.type.term import DataType, FuncType, TensorType, TupleType, Type, TypeVar, Unknown
from plica.ir.type.unknown import (
    POISON,
    TYPES,
    Number,
    Weak,
    is_linear,
    is_open,
    parts,
    rename_types,
    shown,
    solved,
    unknowns,
    variables,
    weak,
)


@attrs.frozen
class Clash:
    """Two types that do not agree, and the parts in which they do not."""

    code: str
    found: Type
    expected: Type
    why: str
    site: Term | None = None  # where the found or expected type was decided, if it was inferred


class Solver:
    """The growing knowledge of one inference: bindings of unknowns, and who waits for which."""

    __slots__ = (
        "_resolved",
        "count",
        "endless",
        "equations",
        "huge",
        "known",
        "ready",
        "site",
        "sites",
        "sizes",
        "types",
        "waiting",
        "weak",
    )

    def __init__(self) -> None:
        self.types: dict[Unknown, Type] = {}
        self.sizes: dict[Term, Scalar] = {}
        self.weak: dict[Unknown, Weak] = {}
        self.count = 0
        self.site: Term | None = None  # the expression whose demand is being met
        self.sites: dict[Unknown, Term | None] = {}  # where each unknown was decided
        self.waiting: dict[Term, list[Any]] = {}  # Any: whatever the caller waits with
        self.ready: list[Any] = []
        self.equations: list[tuple[Scalar, Scalar, Type, Type, Term | None]] = []
        self.endless: dict[Unknown, tuple[Type, Term | None]] = {}  # parts of themselves, and where
        self.huge: dict[Term, tuple[str, Term | None]] = {}  # dims out of range, and where
        self.known: dict[Term, bool] = {}  # whether a type holds no unknowns, where it was asked
        self._resolved: dict[Term, Term] | None = None

    # --- unknowns --------------------------------------------------------------------------

    def fresh(self) -> Unknown:
        """A new unknown type; names are numbered, so older ones can be distinguished from newer."""
        self.count += 1
        return Unknown(Name("?", self.count))

    def fresh_weak(self, value: Number) -> Unknown:
        """The unknown type of a number."""
        unknown = self.fresh()
        self.weak[unknown] = weak(value)
        return unknown

    def fresh_dim(self) -> ScalarVar:
        """A new unknown dim."""
        self.count += 1
        return dim_var(Name("?", self.count))

    def wait(self, until: Term, what: Any) -> None:
        """Moves `what` to `ready` once something is known about the unknown `until`."""
        self.waiting.setdefault(until, []).append(what)

    # --- looking things up -----------------------------------------------------------------

    def find(self, of: Type) -> Type:
        """The type as far as its outermost part is known."""
        if of.__class__ is not Unknown:
            return of
        trail: list[Unknown] = []
        while isinstance(of, Unknown):
            if (bound := self.types.get(of)) is None:
                break
            trail.append(of)
            of = bound
        for passed in trail[:-1]:
            self.types[passed] = of
        return of

    def size(self, of: Scalar) -> Scalar:
        """A dim with all solved unknowns substituted."""
        while self.sizes and of.__class__ is not Lit:
            if not (solved := {v: self.sizes[v] for v in free_vars(of) if v in self.sizes}):
                break
            of = from_polynomial(polynomial(substitute(of, solved)))
        return of

    def is_known(self, of: Type) -> bool:
        """Whether a type contains no unknowns, not even solved ones."""
        if (answer := self.known.get(of)) is not None:
            return answer
        stack: list[Term] = [of]
        while stack:
            if isinstance(node := stack[-1], TensorType | Unknown):
                self.known[node] = next(unknowns(node), None) is None
            elif node not in self.known:
                later = [kid for kid in node._children if kid not in self.known]
                if later := [kid for kid in later if isinstance(kid, TYPES)]:
                    stack.extend(later)
                    continue
                self.known[node] = all(self.known.get(kid, True) for kid in node._children)
            stack.pop()
        return self.known[of]

    def resolve(self, of: Type) -> Type:
        """A type with all solved unknowns substituted, in all its parts."""
        of = self.find(of)
        if self.is_known(of):
            return of
        memo: dict[Term, Term] = {} if self._resolved is None else self._resolved
        stack: list[tuple[Term, bool]] = [(of, False)]
        inside: dict[Term, None] = {}  # the way from `of` to here
        while stack:
            node, leaving = stack.pop()
            if leaving:
                inside.pop(node, None)  # what holds itself was entered twice
                memo[node] = rebuild(node, tuple([memo[kid] for kid in node._children]))
            elif node in memo:
                continue
            elif isinstance(node, Unknown):
                type_ = self.find(node)
                if type_ is node:
                    memo[node] = node
                elif type_ in memo:
                    memo[node] = memo[type_]
                elif type_ in inside:
                    self.endless[node] = type_, self.sites.get(node)
                    self.types[node] = POISON
                    memo[node] = POISON
                else:
                    stack.append((node, False))
                    stack.append((type_, False))
            elif isinstance(node, Scalar):
                try:
                    memo[node] = self.size(node)
                except OutOfRange as big:
                    self.huge.setdefault(node, (big.diagnostics[0].message, self.site))
                    memo[node] = Lit(0, i64)
            elif not isinstance(node, TYPES) or self.is_known(node):
                memo[node] = node
            else:
                inside[node] = None
                stack.append((node, True))
                stack.extend((kid, False) for kid in reversed(node._children))
        result = memo[of]
        assert isinstance(result, TYPES)
        return result

    def freeze(self) -> None:
        """Freezes the knowledge: resolved types are cached from now on."""
        self._resolved = {}

    def first_unknown(self, of: Type) -> Term | None:
        """The first part of a resolved type that is not known yet."""
        return None if self.is_known(of) else next(unknowns(of), None)

    # --- unification -----------------------------------------------------------------------

    def unify(self, found: Type, expected: Type) -> Clash | None:
        """Make two types one, or say why they cannot be."""
        stack: list[tuple[Type, Type, Term | None]] = [(found, expected, None)]
        seen: set[tuple[Type, Type]] = set()
        while stack:
            a, b, site = stack.pop()
            if a is b:
                continue
            if isinstance(a, Unknown):
                site = self.sites.get(a, site)
                a = self.find(a)
            if isinstance(b, Unknown):
                site = self.sites.get(b, site)
                b = self.find(b)
            if a is b or (a, b) in seen:
                continue
            if isinstance(a, Unknown) or isinstance(b, Unknown):
                why = self._bind(a, b)
            elif isinstance(a, TensorType) and isinstance(b, TensorType):
                why = self._tensors(a, b, found, expected)
            else:
                seen.add((a, b))
                why = self._parts(a, b, stack, site)
            if why is not None:
                return Clash(why[0], self.resolve(found), self.resolve(expected), why[1], site)
        return None

    def instantiate(
        self, of: FuncType, types: tuple[Type, ...] | None = None
    ) -> tuple[FuncType, tuple[Type, ...]]:
        """A polymorphic function at new unknowns (or the given types); also its type arguments."""
        given = tuple([self.fresh() for _ in of.types]) if types is None else types
        mapping: dict[Term, Term] = dict(zip(of.types, given, strict=True))
        mapping |= {dim: self.fresh_dim() for dim in of.dims}
        bare = FuncType((), (), of.params, of.ret)
        if any(isinstance(node, FuncType) and (node.dims or node.types) for node in parts(bare)):
            result: Term = substitute(bare, mapping)
        else:
            result = rename_types(bare, mapping)  # nothing inside binds, so nothing is captured
        assert isinstance(result, FuncType)
        return result, given

    def default(self, of: Unknown) -> None:
        """Decide a weak type that nothing else decides."""
        self._set(of, TensorType((), self.weak[of].default()))

    def recheck(self) -> Iterator[tuple[Clash, Term | None]]:
        """Look again at the equations between dims that had to wait; those that fail."""
        waiting, self.equations = self.equations, []
        for a, b, type_, expected, site in waiting:
            if (why := self._dims(a, b, type_, expected, site)) is not None:
                yield Clash(why[0], self.resolve(type_), self.resolve(expected), why[1]), site

    def _bind(self, a: Type, b: Type) -> tuple[str, str] | None:
        if not isinstance(a, Unknown) or (isinstance(b, Unknown) and b.name < a.name):
            a, b = b, a
        assert isinstance(a, Unknown)
        if a is POISON or b is POISON:
            other = b if a is POISON else a
            if isinstance(other, Unknown):
                self._set(other, POISON)
            return None
        if isinstance(b, Unknown):
            # The younger gives way to the older, which then has the weakness of both.
            a, b = b, a
            ours, theirs = self.weak.get(a), self.weak.get(b)
            if ours is not None:
                self.weak[b] = ours if theirs is None else ours.joined(theirs)
            self._set(a, b)
            return None
        if (number := self.weak.get(a)) is not None:
            if not isinstance(b, TensorType):
                return "type-conflict", "A number is a tensor of rank 0."
            if b.shape:
                return "shape-conflict", "A number is a tensor of rank 0."
            if not number.fits(b.dtype):
                return "dtype-conflict", number.why_not(b.dtype)
        self._set(a, b)
        return None

    def _set(self, unknown: Unknown, to: Type) -> None:
        self.types[unknown] = to
        self.sites[unknown] = self.site
        if self.waiting:
            self.ready.extend(self.waiting.pop(unknown, ()))

    def _parts(
        self, a: Type, b: Type, stack: list[tuple[Type, Type, Term | None]], site: Term | None
    ) -> tuple[str, str] | None:
        """Types of one kind agree when their parts do."""
        if isinstance(a, TupleType) and isinstance(b, TupleType):
            if len(a.items) != len(b.items):
                return "type-conflict", _counts("tuple", "items", len(a.items), len(b.items))
            pairs = zip(a.items, b.items, strict=True)
        elif isinstance(a, DataType) and isinstance(b, DataType) and a.data is b.data:
            if len(a.args) != len(b.args):
                return "type-conflict", _counts("type", "arguments", len(a.args), len(b.args))
            pairs = zip(a.args, b.args, strict=True)
        elif isinstance(a, FuncType) and isinstance(b, FuncType):
            if len(a.params) != len(b.params):
                return "type-conflict", _counts("function", "params", len(a.params), len(b.params))
            if (len(a.dims), len(a.types)) != (len(b.dims), len(b.types)):
                return "type-conflict", "One function is more general than the other."
            if a.dims or a.types:
                a, b = self._rigid(a, b)
            pairs = zip((*a.params, a.ret), (*b.params, b.ret), strict=True)
        else:
            return "type-conflict", ""
        stack.extend(reversed([(x, y, site) for x, y in pairs]))
        return None

    def _rigid(self, a: FuncType, b: FuncType) -> tuple[FuncType, FuncType]:
        """Two polymorphic functions over the same rigid variables.

        Unknowns in a function's type may depend on what the function binds, so these are the
        variables; where the other type has them free, they are renamed.
        """
        model, other = (b, a) if self.is_known(a) else (a, b)
        types: Sequence[TypeVar] = model.types
        dims: Sequence[ScalarVar] = model.dims
        if not free_vars(other).isdisjoint((*types, *dims)):
            self.count += 1
            types = [TypeVar(Name(f"rigid{i}", self.count)) for i in range(len(types))]
            dims = [dim_var(Name(f"rigid{i}", self.count)) for i in range(len(dims))]
        opened = []
        for func_type in (a, b):
            mapping: dict[Term, Term] = dict(zip(func_type.types, types, strict=True))
            mapping |= dict(zip(func_type.dims, dims, strict=True))
            bare = substitute(FuncType((), (), func_type.params, func_type.ret), mapping)
            opened.append(bare)
        return opened[0], opened[1]

    def _tensors(
        self, a: TensorType, b: TensorType, found: Type, expected: Type
    ) -> tuple[str, str] | None:
        if len(a.shape) != len(b.shape):
            why = f"One has rank {len(a.shape)}, the other rank {len(b.shape)}."
            return "shape-conflict", why
        if a.dtype is not b.dtype:
            return "dtype-conflict", f"One holds {a.dtype}, the other {b.dtype}."
        for x, y in zip(a.shape, b.shape, strict=True):
            if x is not y:
                why_not = self._dims(x, y, found, expected, self.site)
                if why_not is not None:
                    return why_not
        return None

    def _dims(
        self, x: Scalar, y: Scalar, found: Type, expected: Type, site: Term | None
    ) -> tuple[str, str] | None:
        """Solve `x == y` for an unknown dim, note it for later, or say why it cannot hold."""
        try:
            return self._equation(self.size(x), self.size(y), found, expected, site)
        except OutOfRange as big:
            return "shape-conflict", f"A dim is out of range: {big.diagnostics[0].message}"

    def _equation(
        self, x: Scalar, y: Scalar, found: Type, expected: Type, site: Term | None
    ) -> tuple[str, str] | None:
        if x is y or same_dim(x, y):
            return None
        if not (open_ := [v for v in (*variables(x), *variables(y)) if is_open(v)]):
            return "shape-conflict", _unequal(x, y)
        for unknown in open_:
            if (solution := solved(Sub(x, y), unknown)) is not None:
                number = known(solution)
                if number is not None and number < 0:
                    return "shape-conflict", f"A dim would have to be {number}."
                self.sizes[unknown] = solution
                if self.waiting:
                    self.ready.extend(self.waiting.pop(unknown, ()))
                return None
        if len(set(open_)) == 1 and is_linear(Sub(x, y), open_[0]):
            return "shape-conflict", f"No size makes {shown(x)} and {shown(y)} equal."
        self.equations.append((x, y, found, expected, site))
        return None


def same_type(a: Type, b: Type) -> bool:
    """Whether two known types are equal whatever their dims are, and up to bound names."""
    return a is b or Solver().unify(a, b) is None


def _counts(what: str, of: str, a: int, b: int) -> str:
    return f"One {what} has {a} {of}, the other {b}."


def _unequal(x: Scalar, y: Scalar) -> str:
    """Why two dims without unknowns do not agree."""
    a, b = shown(x), shown(y)
    rigid: Iterable[ScalarVar] = (*variables(x), *variables(y))
    if not rigid:
        return f"One dim is {a}, the other {b}."
    names = " and ".join(dict.fromkeys(str(var.name) for var in rigid))
    return f"One dim is {a}, the other {b}, and {names} may be any size."
