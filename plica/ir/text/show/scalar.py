"""Scalars in print: expressions inside kernels, with names for shared or deep terms.

A term that is used several times, or is deep, is written once under a reserved name `_0, _1, …`.
The name denotes the term, not an evaluation order. Under a reduction the names are clauses of its
comprehension: `sum(_0 * _0 for k in range(4) for _0 in [x[k]])`.

>>> from plica.ir.type.dtype import f16
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, i = buffer("x", (3,), f16), axis("i")
>>> ScalarPrinter(ScalarNames(IdentifierSupply(()))).lines([(x[i] * 2 + 1, None)])
([], ['x[i] * 2.0 + 1.0'])

A number is written bare if the adjacent operand determines its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

from plica.core import Name, Term, all_of, fresh, map_bottom_up, parts_first, rename, substitute
from plica.ir.loop import scalar as sc
from plica.ir.text.show.attribute import float_text, string_text
from plica.ir.text.show.layout import StatementSpot, meet
from plica.ir.text.show.name import IdentifierSupply
from plica.ir.text.trail import Trail
from plica.ir.type import DType, bool_, f32, i64

DEPTH: Final = 16  # how deep an expression may be before a part of it is named
MAX_NODES_REPEATED: Final = 7
"""Terms of no more nodes are repeated rather than named.  Nodes are counted, not letters: how a
kernel is written must not depend on its names."""

INFIX: Final[dict[type, tuple[str, int]]] = {
    of: (row.sign, row.binds) for of, row in sc.ROW_OF.items() if row.sign
}
"""The sign of an operation, and how tightly it binds."""

PREFIX: Final[dict[type, str]] = {of: row.word for of, row in sc.ROW_OF.items() if row.word}
_SIGN, _ATOM = 11, 12
_AGREEING: Final = frozenset({*sc.BINARY, *sc.COMPARISON})

Root: TypeAlias = "tuple[sc.Scalar, DType | None]"  # and the dtype its place asks for
Shown: TypeAlias = "tuple[str, int, int, int]"  # text, how tightly it binds, depth, nodes


def natural(value: bool | int | float) -> DType:
    """The dtype of a number that nothing else gives one."""
    return bool_ if isinstance(value, bool) else i64 if isinstance(value, int) else f32


class ScalarNames(Trail[Term, str]):
    """The text of each variable and buffer in scope.

    A variable bound in several places has one text, unless one place is inside another.
    """

    def __init__(self, supply: IdentifierSupply) -> None:
        super().__init__()
        self.supply = supply
        self._first: dict[Term, str] = {}

    def of(self, term: sc.Buffer | sc.ScalarVar) -> str:
        """The text of a variable; one that nothing binds gets a text all the same."""
        return self.table.get(term) or self._draw(term)

    def bind(self, term: sc.Buffer | sc.ScalarVar) -> str:
        """The text of a variable from here on."""
        text = self.supply.draw(term.name) if term in self.table else self._draw(term)
        self.put(term, text)
        return text

    def _draw(self, term: sc.Buffer | sc.ScalarVar) -> str:
        if (text := self._first.get(term)) is None:
            text = self._first[term] = self.supply.draw(term.name)
        return text


class ScalarPrinter:
    """Prints the scalars of one kernel; remembers the words it needed."""

    def __init__(self, names: ScalarNames) -> None:
        self.names = names
        self.words: set[str] = set()
        self.temporaries = 0

    def temporary(self) -> str:
        """A fresh reserved name."""
        self.temporaries += 1
        return f"_{self.temporaries - 1}"

    def lines(self, roots: Sequence[Root], naming: bool = True) -> tuple[list[str], list[str]]:
        """Lines that name parts, then one text for each root."""
        if all(
            isinstance(term, sc.Lit | sc.ScalarVar) for term, _ in roots
        ):  # nothing to name: sizes
            return [], [
                self.literal(term, dtype) if isinstance(term, sc.Lit) else self.text(term, {})[0]
                for term, dtype in roots
            ]
        terms = axes_apart([term for term, _ in roots], self.names.table)
        order = _order(terms)
        top = StatementSpot()
        spots, uses, inside = _places(order, terms, top)
        named: dict[StatementSpot, list[tuple[str, str]]] = {}
        memo: dict[sc.Scalar, Shown] = {}
        within = set(terms)
        mark = self.names.mark()
        for node in order:
            if isinstance(node, sc.Reduce):
                for axis in node.axes:
                    self.names.bind(axis)
        for node in order:
            kids = _kids(node)
            clauses = named.get(inside[node], []) if isinstance(node, sc.Reduce) else []
            text, binds = self.text(node, memo, clauses)
            depth = 1 + max((memo[kid][2] for kid in kids), default=0) + bool(clauses)
            nodes = 1 + sum([memo[kid][3] for kid in kids])
            often = uses[node] > 1 and nodes > MAX_NODES_REPEATED
            deep = depth > DEPTH and (uses[node] > 1 or node not in within)
            if naming and kids and (often or deep):
                name = self.temporary()
                named.setdefault(spots[node], []).append((name, text))
                memo[node] = name, _ATOM, 0, 1
            else:
                memo[node] = text, binds, depth, nodes
        self.names.leave(mark)
        texts = [
            self.literal(term, dtype) if isinstance(term, sc.Lit) else memo[term][0]
            for term, (_, dtype) in zip(terms, roots, strict=True)
        ]
        return [f"{name} = {text}" for name, text in named.get(top, [])], texts

    def literal(self, of: sc.Lit, expected: DType | None, typed: bool = False) -> str:
        """A number; with its dtype where a bare one would be read as another."""
        text = float_text(of.value) if isinstance(of.value, float) else repr(of.value)
        named = text.startswith("float")
        if not typed and not named and of.dtype is (expected or natural(of.value)):
            return text
        self.words.add(of.dtype.name)
        return f"{of.dtype}{text.removeprefix('float')}" if named else f"{of.dtype}({text})"

    def text(
        self, node: sc.Scalar, memo: dict[sc.Scalar, Shown], clauses: Iterable[tuple[str, str]] = ()
    ) -> tuple[str, int]:
        """The text of a node whose parts have theirs, and how tightly it binds."""

        def part(kid: sc.Scalar, least: int = 0, like: DType | None = None) -> str:
            if isinstance(kid, sc.Lit):
                text = self.literal(kid, like)
                binds = _SIGN if text[0] == "-" else _ATOM
            else:
                text, binds, *_ = memo[kid]
            return text if binds >= least else f"({text})"

        if (infix := INFIX.get(type(node))) is not None:
            word, binds = infix
            left, right = _kids(node)
            like = agreed((left, right)) if type(node) in _AGREEING else None
            first = binds + 1 if binds == 4 else binds  # comparisons do not chain
            return f"{part(left, first, like)} {word} {part(right, binds + 1, like)}", binds
        match node:
            case sc.Lit():
                text = self.literal(node, None)
                return text, _SIGN if text[0] == "-" else _ATOM
            case sc.ScalarVar():
                return self.names.of(node), _ATOM
            case sc.Load(buffer, indices):
                return f"{self.names.of(buffer)}[{', '.join(map(part, indices)) or '()'}]", _ATOM
            case sc.Not(value):
                return f"not {part(value, 3)}", 3
            case sc.Select(condition, then, orelse):
                like = agreed((then, orelse))
                chosen, other = part(then, 1, like), part(orelse, 0, like)
                return f"{chosen} if {part(condition, 1)} else {other}", 0
            case sc.Cast(value, to):
                self.words.add(to.name)
                inside = (
                    self.literal(value, None, True) if isinstance(value, sc.Lit) else part(value)
                )
                return f"{to}({inside})", _ATOM
            case sc.Intrinsic(name, args):
                return self._intrinsic(name, args, part), _ATOM
            case sc.Reduce(combiner, axes, extents, value, runs):
                self.words.add(combiner)
                if not axes:
                    return f"{combiner}([{part(value)}])", _ATOM
                over = [
                    f"for {self.names.of(axis)} in range({part(extent)})"
                    for axis, extent in zip(axes, extents, strict=True)
                ]
                over += [f"for {name} in [{text}]" for name, text in clauses]
                terms = f"{part(value)} {' '.join(over)}"
                whole = f'({terms}), runs="{runs}"' if runs else terms
                return f"{combiner}({whole})", _ATOM
            case sc.Ramp(base, stride, lanes):
                self.words.add("ramp")
                like = agreed((base, stride))
                return f"ramp({part(base, 0, like)}, {part(stride, 0, like)}, {lanes})", _ATOM
            case sc.Broadcast(value, lanes):
                self.words.add("broadcast")
                return f"broadcast({part(value)}, {lanes})", _ATOM
            case sc.Shuffle(vectors, indices_):
                self.words.add("shuffle")
                inside = _tuple([part(vector) for vector in vectors])
                return f"shuffle({inside}, {_tuple(list(map(str, indices_)))})", _ATOM
            case _:
                like = agreed(_kids(node))
                both = ", ".join(part(kid, 0, like) for kid in _kids(node))
                return f"{PREFIX[type(node)]}({both})", _ATOM

    def _intrinsic(self, name: str, args: tuple[sc.Scalar, ...], part: Callable[..., str]) -> str:
        if name in sc.INTRINSICS:
            self.words.add(name)
            like = agreed(args)
            return f"{name}({', '.join(part(arg, 0, like) for arg in args)})"
        self.words.add("intrinsic")
        return f"intrinsic({', '.join([string_text(name), *map(part, args)])})"


def show_scalar(of: sc.Scalar) -> str:
    """A scalar term alone; shared terms are defined on lines before it."""
    named, (text,) = ScalarPrinter(ScalarNames(IdentifierSupply(()))).lines([(of, None)])
    return "\n".join([*named, text])


def agreed(sides: Sequence[sc.Scalar]) -> DType | None:
    """The dtype that bare numbers among operands take: that of the first other operand."""
    return next((sc.dtype_of(side) for side in sides if not isinstance(side, sc.Lit)), None)


def axes_apart(terms: list[sc.Scalar], scope: Iterable[Term]) -> list[sc.Scalar]:
    """The terms with different axes for different reductions, none of them in scope."""
    spent: set[Term] = set(scope)
    reductions = all_of(sc.Reduce, *terms)
    axes = [axis for reduction in reductions for axis in reduction.axes]
    if len(set(axes)) == len(axes) and spent.isdisjoint(axes):
        return terms
    whole = sc.Intrinsic("", tuple(terms))
    used = {
        each.name
        for each in (*all_of(sc.ScalarVar, whole), *spent)
        if isinstance(each, sc.ScalarVar)
    }

    def visit(node: Term) -> Term:
        if not isinstance(node, sc.Reduce):
            return node
        mapping: dict[sc.ScalarVar, sc.ScalarVar] = {}
        for axis in node.axes:
            if axis in spent:
                name = fresh(Name(axis.name.hint, axis.name.index), used)
                used.add(name)
                mapping[axis] = rename(axis, name)
            spent.add(axis)
        if not mapping:
            return node
        new = tuple([mapping.get(axis, axis) for axis in node.axes])
        body: Any = substitute(node.body, mapping)
        return sc.Reduce(node.combiner, new, node.extents, body, node.runs)

    done = map_bottom_up(visit, whole)
    return list(done.args)


def _kids(node: sc.Scalar) -> tuple[sc.Scalar, ...]:
    match node:
        case sc.Lit() | sc.ScalarVar():
            return ()
        case sc.Load(_, indices):
            return indices
        case sc.Reduce(_, _, extents, body):
            return (*extents, body)
        case _:
            return tuple([kid for kid in node._children if isinstance(kid, sc.Scalar)])


def _order(roots: list[sc.Scalar]) -> list[sc.Scalar]:
    """Every term inside the roots, parts first; the shapes of buffers are no parts."""
    return parts_first(_kids, *roots)


def _places(
    order: list[sc.Scalar], roots: list[sc.Scalar], top: StatementSpot
) -> tuple[dict[sc.Scalar, StatementSpot], dict[sc.Scalar, int], dict[sc.Scalar, StatementSpot]]:
    """Where each node can be named, how often it is used, and the spot inside each reduction."""
    spots: dict[sc.Scalar, StatementSpot] = {}
    uses: dict[sc.Scalar, int] = dict.fromkeys(order, 0)
    inside: dict[sc.Scalar, StatementSpot] = {}

    def use(node: sc.Scalar, spot: StatementSpot) -> None:
        old = spots.get(node)
        spots[node] = spot if old is None else meet(old, spot)
        uses[node] += 1

    for root in roots:
        use(root, top)
    for node in reversed(order):  # whoever uses a node comes before it
        spot = spots[node]
        if isinstance(node, sc.Reduce):
            inside[node] = StatementSpot(spot)
            for extent in node.extents:
                use(extent, spot)
            use(node.body, inside[node])
        else:
            for kid in _kids(node):
                use(kid, spot)
    return spots, uses, inside


def _tuple(items: list[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
