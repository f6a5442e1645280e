r"""Code regions: parts of a program that another code generator takes over, as calls of externs.

    before:  def main(x): return op.exp(nn.relu(x @ W) @ V)
    after:   def main(x): return op.exp(acme_0(x))         with acme_0(a) = nn.relu(a @ W) @ V

>>> from plica.ir.text.script import from_text
>>> from plica.ir.op import find
>>> from plica.rewrite.pattern import holes
>>> x, y = holes("x y")
>>> found = outlined(from_text(
...     "from __future__ import annotations\n"
...     "import plica\nfrom plica import op\nfrom plica.script import Tensor, f32\n"
...     "@plica.function\n"
...     "def main(a: Tensor[(2,), f32]) -> Tensor[(2,), f32]:\n"
...     "    return op.exp(a * a + a)\n"
... ), (("product", x * y), ("sum", x + y)), "acme")
>>> [(each.symbol, each.patterns) for each in found.regions]
[('acme_0', ('product', 'sum'))]

Law: if each extern computes its region's function, the result means the same as the module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from attrs import frozen

from plica.core import Name, Term, fold_into
from plica.ir.graph import expression as ex
from plica.ir.graph.module import Defined, Definition, Extern, Module, main_module, module as build
from plica.ir.type import FuncType, TensorType, TupleType, infer, static_shape, type_of
from plica.rewrite.dominate import Dataflow, matches
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.walk import operands, with_operands
from plica.rewrite.match import covered


@frozen(eq=False)
class CodeRegion:
    """A part of a program: the symbol it is called by, what it computes, the patterns it is of."""

    symbol: str
    function: ex.Function
    patterns: tuple[str, ...]

    def module(self) -> Module:
        """The region as a separate program."""
        return infer(main_module(self.function))


@frozen(eq=False)
class Outlined:
    """A program that calls its regions, and these."""

    module: Module
    regions: tuple[CodeRegion, ...]


Accepts = Callable[[CodeRegion], bool]


def outlined(
    module: Module,
    patterns: Sequence[tuple[str, Term]],
    prefix: str,
    accepts: Accepts = lambda region: True,
) -> Outlined:
    """The module with externs in place of regions; `accepts` decides about each region."""
    known = infer(to_dataflow(module))
    main = known.main_function()
    graph = _Graph(main.body, patterns)
    regions: list[CodeRegion] = []
    calls: dict[ex.Expr, ex.Expr] = {}
    externs: dict[Defined, Definition] = {}
    memo: dict[ex.Expr, ex.Expr] = {}
    groups = [(exprs, graph.cut(exprs)) for exprs in graph.merged()]
    for group, (inputs, outputs, function) in groups:
        symbol = f"{prefix}_{len(regions)}"
        words = graph.words_of(group)
        region = CodeRegion(symbol, function, words)
        if not accepts(region):
            continue
        regions.append(region)
        ret = function.ret
        assert ret is not None
        kind = FuncType((), (), tuple([type_of(expr) for expr in inputs]), ret)
        name = ex.Var(Name(symbol), None)
        externs[name] = Extern(symbol, kind)
        call = ex.Call(name, tuple(inputs))
        for number, output in enumerate(outputs):
            calls[output] = ex.Project(call, number) if len(outputs) > 1 else call
    for node in graph.order:
        _rebuild(node, calls, memo)
    body = memo[main.body]
    whole = ex.Function(main.dims, main.types, main.params, main.ret, body, main.attrs)
    others = {name: value for name, value in known.items() if name is not known.main}
    assert known.main is not None
    return Outlined(build({**others, **externs, known.main: whole}, known.main), tuple(regions))


def _rebuild(node: ex.Expr, calls: dict[ex.Expr, ex.Expr], memo: dict[ex.Expr, ex.Expr]) -> None:
    """Rebuilds an expression after its parts; results of a region are read from its call."""

    def parts(at: ex.Expr) -> tuple[ex.Expr, ...]:
        return _parts(calls.get(at, at))

    def rebuilt(at: ex.Expr) -> ex.Expr:
        new = calls.get(at, at)
        kids = parts(at)
        return with_operands(new, tuple([memo[child] for child in kids])) if kids else new

    fold_into(memo, node, parts, rebuilt)


def _parts(node: ex.Expr) -> tuple[ex.Expr, ...]:
    """The parts of an expression; control flow and functions are atomic."""
    plain = ex.Apply | ex.Tuple | ex.Project | ex.Call
    return operands(node) if isinstance(node, plain) else ()


class _Graph:
    """The expressions of a function, in units that a pattern covers and alone."""

    def __init__(self, body: ex.Expr, patterns: Sequence[tuple[str, Term]]) -> None:
        self.body = body
        flow = Dataflow(body, _parts)
        self.users = flow.users
        self.order = list(reversed(flow.nodes))  # parts before wholes
        self.words: dict[ex.Expr, str] = {}
        self.unit: dict[ex.Expr, int] = {}
        for node in flow.nodes:
            self._claim(node, patterns)

    def _claim(self, node: ex.Expr, patterns: Sequence[tuple[str, Term]]) -> None:
        """Assigns an expression, with operands used only by it, to the first pattern that covers
        it."""
        if node in self.unit or not isinstance(node, ex.Apply):
            return
        for word, pattern in patterns:
            if not matches(pattern, node):
                continue
            region = {each for each in covered(pattern, node) if isinstance(each, ex.Apply)}
            inside = all(
                each is node or all(user in region for user in self.users.get(each, ()))
                for each in region
            )
            if inside and not any(each in self.unit for each in region) and _is_plain(region):
                number = len(self.words)
                self.words[node] = word
                self.unit.update(dict.fromkeys(region, number))
                return

    def merged(self) -> list[frozenset[ex.Expr]]:
        """Merges units along edges while they stay convex, operands first."""
        group = {node: self.unit.get(node, -1 - at) for at, node in enumerate(self.order)}
        for node in self.order:
            for part in _parts(node):
                one, other = group[part], group[node]
                if one < 0 or other < 0 or one == other or self._detour(one, other, group):
                    continue
                for expr, number in group.items():
                    if number == other:
                        group[expr] = one
        found: dict[int, list[ex.Expr]] = {}
        for node in self.order:
            if group[node] >= 0:
                found.setdefault(group[node], []).append(node)
        return [frozenset(exprs) for exprs in found.values()]

    def _detour(self, one: int, other: int, group: dict[ex.Expr, int]) -> bool:
        """Whether a path from a group to another one passes through a third."""
        nodes: dict[int, list[ex.Expr]] = {}
        for node, number in group.items():
            nodes.setdefault(number, []).append(node)
        seen, stack = {one, other}, [one]
        while stack:
            at = stack.pop()
            for node in nodes[at]:
                for user in self.users[node]:
                    there = group[user]
                    if there == other and at != one:
                        return True
                    if there not in seen:
                        seen.add(there)
                        stack.append(there)
        return False

    def words_of(self, group: frozenset[ex.Expr]) -> tuple[str, ...]:
        """The patterns that a region is of, parts first, each once."""
        inside = [expr for expr in self.order if expr in group and expr in self.words]
        return tuple(dict.fromkeys([self.words[expr] for expr in inside]))

    def cut(self, group: frozenset[ex.Expr]) -> tuple[list[ex.Expr], list[ex.Expr], ex.Function]:
        """A region's arguments, its results, and its function."""
        inside = [node for node in self.order if node in group]
        inputs: list[ex.Expr] = []
        become: dict[ex.Expr, ex.Expr] = {}
        for node in inside:
            for part in operands(node):
                if part in group or part in become:
                    continue
                if isinstance(part, ex.Const | ex.Literal):
                    become[part] = part
                    continue
                become[part] = ex.Var(Name("argument", len(inputs)), type_of(part))
                inputs.append(part)
            become[node] = with_operands(node, tuple([become[expr] for expr in operands(node)]))
        outputs = [
            node
            for node in inside
            if node is self.body or any(user not in group for user in self.users[node])
        ]
        params = tuple([each for part in inputs if isinstance(each := become[part], ex.Var)])
        if len(outputs) == 1:
            result, ret = become[outputs[0]], type_of(outputs[0])
        else:
            result = ex.Tuple(tuple([become[output] for output in outputs]))
            ret = TupleType(tuple([type_of(output) for output in outputs]))
        return inputs, outputs, ex.Function((), (), params, ret, result)


def _is_plain(region: Collection[ex.Expr]) -> bool:
    """Whether all that a region reads and gives are tensors of known sizes."""
    touched = [*region, *[part for node in region for part in operands(node)]]
    return all(
        isinstance(expr, ex.Literal)
        or (isinstance(of := type_of(expr), TensorType) and static_shape(of) is not None)
        for expr in touched
    )
