"""Graph films: the graph of a module before and after every step of a derivation, as deltas.

    GraphFilm ::= GraphFilm(nodes, start, frames, origins)
    GraphFrame ::= GraphFrame(step, gone, set, made)     set: (node, what it reads), new or changed

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Function, Var
>>> from plica.ir.graph.module import module
>>> from plica.ir.type.infer import infer
>>> from plica.ir.type.term import tensor
>>> from plica.pipeline import lower
>>> x, main = Var(Name("x"), tensor((2,), "f32")), Var(Name("main"), None)
>>> of = infer(module({main: Function((), (), (x,), None, (x + 0.0) * x)}, main))
>>> [(frame.name, frame.gone, frame.set) for frame in film(lower(of).derivation).frames]
[('add-zero', (1,), ((2, (0,)),)), ('multiply-same', (2,), ((3, (0,)),))]

>>> from plica.ir.loop.scalar import Add, Lit
>>> from plica.ir.type.dtype import i64
>>> one, two, three = (Lit(each, i64) for each in (1, 2, 3))
>>> standing = StandingTerm(Add(Add(one, two), three))
>>> step = standing.replace(one, three)
>>> standing.root is Add(Add(three, two), three), len(step.above), len(step.gone)
(True, 3, 3)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import frozen

from plica.core import Term, parts_first, rebuild
from plica.ir.graph import Apply, Expr, Module
from plica.report.graph import NodeBox, Reach, boxes_in
from plica.report.origin import opened
from plica.rewrite.align import aligned
from plica.rewrite.derivation import Derivation, DerivationStep, at, provenance
from plica.rewrite.rule import Rule

Reads: TypeAlias = tuple[int, ...]


@frozen
class FilmNode:
    """The label of a node: its operator, type, kind and attributes."""

    label: str
    note: str
    kind: str
    attributes: str


@frozen(eq=False)
class GraphFrame:
    """A step: who took it, which nodes it took away, which it made or connected otherwise."""

    name: str
    is_pass: bool
    contract: str
    gone: tuple[int, ...]
    set: tuple[tuple[int, Reads], ...]
    made: tuple[int, ...]


@frozen(eq=False)
class NodeOrigin:
    """The origin of a node: nodes of the first graph, and the rules applied."""

    sources: tuple[int, ...]
    rules: tuple[str, ...]


@frozen(eq=False)
class GraphFilm:
    """The first graph, and what each step did to it; `first` and `final` find nodes by terms."""

    nodes: tuple[FilmNode, ...]
    start: tuple[tuple[int, Reads], ...]
    frames: tuple[GraphFrame, ...]
    origins: tuple[NodeOrigin, ...]
    first: Mapping[Expr, int]
    final: Mapping[Expr, int]

    def to_data(self) -> dict[str, Any]:
        """The film as JSON data."""
        return {
            "nodes": [[each.label, each.note, each.kind, each.attributes] for each in self.nodes],
            "start": [[node, list(reads)] for node, reads in self.start],
            "frames": [
                [frame.name, int(frame.is_pass), frame.contract, list(frame.gone),
                 [[node, list(reads)] for node, reads in frame.set], list(frame.made)]
                for frame in self.frames
            ],
            "origins": [[list(origin.sources), list(origin.rules)] for origin in self.origins],
        }  # fmt: skip


def film(derivation: Derivation) -> GraphFilm:
    """The film of a derivation whose states are modules."""
    source = derivation.source
    assert isinstance(source, Module)
    maker = _Maker(source)
    start = tuple(maker.state.items())
    frames = list(_frames(maker, derivation))
    origins = maker.origins(derivation)
    return GraphFilm(tuple(maker.nodes), start, tuple(frames), origins, maker.first, maker.numbers)


def _frames(maker: _Maker, derivation: Derivation) -> Iterator[GraphFrame]:
    """Every step as a delta; the steps of a sweep are separate."""
    term = derivation.source
    for (_, sweep), group in itertools.groupby(
        derivation.steps, lambda step: (step.path, step.sweep)
    ):
        together = tuple(group)
        begun = term
        last = len(together)
        # In a sweep to a normal form, a step's left side is in the graph, children first.
        if sweep is not None and sweep.kind == "normal" and not together[0].path and last > 1:
            standing = StandingTerm(term)
            for step in together[:-1]:
                yield maker.replaced(step, standing)
            together, skipped = together[-1:], together[:-1]
        else:
            skipped = ()
        for count, step in enumerate(together, 1):
            term = at(Derivation(begun, skipped + together[:count]), len(skipped) + count)
            assert isinstance(term, Module)
            yield maker.frame(step, term)


class _Maker:
    """Numbers nodes from one state to the next."""

    def __init__(self, source: Module) -> None:
        self.nodes: list[FilmNode] = []
        self.numbers: dict[Expr, int] = {}
        self.state: dict[int, Reads] = {}
        self._terms: list[Expr] = []  # one term that each node stood for
        self._module = source
        self._reach: Reach = {}
        self._take(source, {})
        self.first = dict(self.numbers)

    def frame(self, step: DerivationStep, after: Module) -> GraphFrame:
        """The delta of a step."""
        before = self.state
        came_from = {new: old for old, new in aligned(self._module, after)}
        known = len(self.nodes)
        self._take(after, came_from, None if step.rule.is_pass else step.after)
        changed = [(node, reads) for node, reads in self.state.items() if before.get(node) != reads]
        return _delta(step, [each for each in before if each not in self.state], changed, known)

    def replaced(self, step: DerivationStep, standing: StandingTerm) -> GraphFrame:
        """The delta of a step whose left side is in the graph: only its ancestors are new."""
        done = standing.replace(step.before, step.after)
        seen = [old for old in done.above if old in self._reach]
        known = len(self.nodes)
        free: dict[Expr, int] = {}
        for term in done.gone:
            if isinstance(term, Expr) and self._reach.pop(term, None) is not None:
                number = self.numbers.pop(term, None)
                if number is not None:
                    free[term] = number
        new: list[tuple[NodeBox, int | None]] = []
        if step.before in seen[:1] and isinstance(step.after, Expr):
            came_from = {new: old for old, new in aligned(step.before, step.after)}
            for box in boxes_in(step.after, self._reach):
                old = came_from.get(box.term)
                number = free.get(old) if isinstance(old, Expr) else None
                same = number is not None and self.nodes[number] == described(box)
                new.append((box, number if same else None))
        for old in seen:
            after = done.above[old]
            if old is not step.before and isinstance(after, Expr):
                new += [(box, free.get(old)) for box in boxes_in(after, self._reach)]
        left = set(free.values())
        changed: list[tuple[int, Reads]] = []
        for box, number in new:
            if number is None or number not in left:
                number = self._number(box)
            left.discard(number)
            self.numbers[box.term] = number
            reads = tuple([self.numbers[expr] for expr in box.below])
            if self.state.get(number) != reads:
                changed.append((number, reads))
            self.state[number] = reads
        for number in left:
            del self.state[number]
        assert isinstance(standing.root, Module)
        self._module = standing.root
        return _delta(step, sorted(left), changed, known)

    def _number(self, box: NodeBox) -> int:
        """The number of a node that was not there before."""
        self.nodes.append(described(box))
        self._terms.append(box.term)
        return len(self.nodes) - 1

    def _take(
        self, module: Module, came_from: Mapping[Term, Term], changed: Term | None = None
    ) -> None:
        """Numbers the nodes of a state; unchanged nodes keep their number.

        Ancestors of the `changed` part are unchanged: their types are not recomputed.
        """
        self._reach = {}
        every = boxes_in(module.main_function().body, self._reach)
        inside = None if changed is None else self._fresh(changed)
        numbers: dict[Expr, int] = {
            box.term: self.numbers[box.term] for box in every if box.term in self.numbers
        }
        taken = set(numbers.values())
        for box in every:
            if box.term in numbers:
                continue
            old = came_from.get(box.term)
            number = self.numbers.get(old) if isinstance(old, Expr) else None
            if number is not None:
                same = number not in taken and (
                    (inside is not None and box.term not in inside)
                    or self.nodes[number] == described(box)
                )
                number = number if same else None
            if number is None:
                number = self._number(box)
            taken.add(number)
            numbers[box.term] = number
        self.numbers = numbers
        self.state = {
            numbers[box.term]: tuple([numbers[expr] for expr in box.below]) for box in every
        }
        self._module = module

    def _fresh(self, root: Term) -> set[Term]:
        """The nodes of a term that the graph did not have before."""
        terms: set[Term] = set()
        stack = [root]
        while stack:
            node = stack.pop()
            if node not in terms and node not in self.numbers:
                terms.add(node)
                stack += node._children
        return terms

    def origins(self, derivation: Derivation) -> tuple[NodeOrigin, ...]:
        """The origin of every node."""
        known = provenance(derivation)
        groups = opened(self._module)
        node_origins: list[NodeOrigin] = []
        for term in self._terms:
            sources: dict[int, None] = {}
            rules: dict[Rule, None] = {}
            for each in groups.get(term, (term,)):
                theirs, made = known.get(each, ({}, {}))
                sources |= {
                    self.first[source]: None
                    for source in theirs
                    if isinstance(source, Expr) and source in self.first
                }
                rules |= made
            names = dict.fromkeys(rule.name for rule in rules)
            node_origins.append(NodeOrigin(tuple(sources), tuple(names)))
        return tuple(node_origins)


def _delta(
    step: DerivationStep, gone: Sequence[int], changed: Sequence[tuple[int, Reads]], known: int
) -> GraphFrame:
    """A frame; nodes from `known` on are new."""
    rule = step.rule
    made = tuple([node for node, _ in changed if node >= known])
    contract = str(rule.contract)
    return GraphFrame(rule.name, rule.is_pass, contract, tuple(gone), tuple(changed), made)


def described(box: NodeBox) -> FilmNode:
    """The label of a node on the page."""
    attributes = ""
    if isinstance(box.term, Apply):
        attributes = ", ".join(f"{name}={value}" for name, value in box.term.attrs)
    return FilmNode(box.label, box.note, box.kind, attributes)


@frozen(eq=False)
class Replacement:
    """The effect of one replacement: the new terms of the part and its ancestors, and the removed
    terms."""

    above: dict[Term, Term]  # the part itself, then its ancestors, bottom up
    gone: set[Term]


class StandingTerm:
    """A term with the parents of each of its parts."""

    def __init__(self, root: Term) -> None:
        self.root = root
        self._above: dict[Term, dict[Term, None]] = {}
        self._enter(root)

    def replace(self, old: Term, new: Term) -> Replacement:
        """Replaces all occurrences of a part."""
        made: dict[Term, Term] = {}
        for node in self._upwards(old) if old in self._above else ():
            if node is old:
                made[node] = new
            elif not type(node).variable:
                kids = tuple([made.get(kid, kid) for kid in node._children])
                made[node] = rebuild(node, kids)
        before, self.root = self.root, made.get(self.root, self.root)
        self._enter(self.root)
        return Replacement(made, self._leave(before))

    def _upwards(self, part: Term) -> list[Term]:
        """A part and all that is above it, parts before wholes."""
        return parts_first(self._above.__getitem__, part)[::-1]

    def _enter(self, root: Term) -> None:
        """Adds the new parts of a term."""
        if root in self._above:
            return
        self._above[root] = {}
        stack = [root]
        while stack:
            node = stack.pop()
            for kid in node._children:
                if kid not in self._above:
                    self._above[kid] = {}
                    stack.append(kid)
                self._above[kid][node] = None

    def _leave(self, term: Term) -> set[Term]:
        """Removes a term without parents, and what only it contained."""
        gone: set[Term] = set()
        stack = [term]
        while stack:
            node = stack.pop()
            if node is self.root or node in gone or self._above[node]:
                continue
            gone.add(node)
            del self._above[node]
            for kid in node._children:
                self._above[kid].pop(node, None)
                stack.append(kid)
        return gone
