r"""Partition: the regions that a pattern finds become functions, called where they stood.

    before:  def f(x, w, b): return nn.relu(nn.conv(x, w) + b)
    after:   def f(x, w, b):
                 def block(a, b, c): return nn.relu(nn.conv(a, b) + c)
                 return block(x, w, b)             # with the attribute composite="block"

>>> from plica.ir.text.script import from_text
>>> from plica.ir.op import find
>>> from plica.rewrite.pattern import holes
>>> x, y = holes("x y")
>>> module = from_text(
...     "from __future__ import annotations\n"
...     "import plica\nfrom plica import op\nfrom plica.script import Tensor, f32\n"
...     "@plica.function\n"
...     "def f(a: Tensor[(2,), f32]) -> Tensor[(2,), f32]:\n"
...     "    return op.exp(a * a) + op.exp(a + a)\n"
... )
>>> split = partition(module, find("exp")(x * y), "exp_of_product")
>>> [len(each.params) for each in composites(split)]
[1]

Laws: the meaning is preserved; `inline_composites(partition(m, p, n))` has the digest of
`infer(m)`; no expression is in two composites.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from plica.core import Name, RuleRefused, Term, parts_first, post_order
from plica.ir.graph import Module, expression as ex
from plica.ir.passes import Pass, exact_pass
from plica.ir.type import infer, type_of
from plica.rewrite.dominate import Dataflow, matches
from plica.rewrite.graph.walk import expressions, map_functions, operands, with_operands
from plica.rewrite.match import covered
from plica.rewrite.pattern import Dominator
from plica.runtime.error import Diagnostic

COMPOSITE: Final = "composite"  # the attribute that holds a composite's name
_PLAIN: Final = (ex.Apply, ex.Tuple, ex.Project, ex.Call)


def partition(module: Module, pattern: Term, name: str) -> Module:
    """The module with every region of the pattern as a separate function."""
    if any(
        isinstance(node, ex.If | ex.Let | ex.Match | ex.Function) for node in post_order(pattern)
    ):
        message = "A composite is made of operators, tuples, projections and calls."
        hint = "Leave control flow to a hole of the pattern."
        raise RuleRefused(Diagnostic("unsupported", message, suggestion=hint))
    known = infer(module)
    whole = ex.Tuple(tuple(function for _, function in known.functions()))
    dataflow = Dataflow(whole, opened)
    taken: set[ex.Expr] = set()
    found: dict[ex.Expr, frozenset[ex.Expr]] = {}
    for root, region in _regions(dataflow, pattern, taken):
        if root is not whole and taken.isdisjoint(region):
            taken |= region
            found[root] = region
    if not found:
        return known
    globals_ = frozenset(known.names)
    cutter = _Cutter(found, globals_, name)
    return map_functions(known, lambda _, function: cutter.function(function))


def opened(node: ex.Expr) -> tuple[ex.Expr, ...]:
    """The parts of an expression; a composite is atomic."""
    return () if is_composite(node) else operands(node)


def is_composite(node: ex.Expr, name: str | None = None) -> bool:
    """Whether an expression is a composite, or that of a name."""
    if not isinstance(node, ex.Function):
        return False
    found = ex.attr(node, COMPOSITE)
    return found is not None if name is None else found == name


def composites(module: Module) -> tuple[ex.Function, ...]:
    """The composites of a module, each once, in the order of a walk."""
    functions = [function for _, function in module.functions()]
    exprs = [node for node in expressions(*functions) if is_composite(node)]
    return tuple(node for node in exprs if isinstance(node, ex.Function))


def _regions(
    dataflow: Dataflow, pattern: Term, taken: set[ex.Expr]
) -> Iterator[tuple[ex.Expr, frozenset[ex.Expr]]]:
    """The regions of a pattern, outer before inner; matched nodes are skipped."""
    if isinstance(pattern, Dominator):
        for parent, child in dataflow.ends(pattern):
            if child not in taken and parent not in taken:
                yield child, frozenset(dataflow.region(pattern, parent, child).nodes)
        return
    for node in dataflow.nodes:
        if node not in taken and matches(pattern, node):
            region = frozenset(_plain(covered(pattern, node)))
            if all(_stays_inside(dataflow, expr, node, region) for expr in region):
                yield node, region


def _plain(nodes: Iterable[Term]) -> Iterator[ex.Expr]:
    """The computed parts of a match: constants are included anyway."""
    return (node for node in nodes if isinstance(node, _PLAIN))


def _stays_inside(
    dataflow: Dataflow, node: ex.Expr, root: ex.Expr, region: frozenset[ex.Expr]
) -> bool:
    return node is root or all(user in region for user in dataflow.users[node])


class _Cutter:
    """Functions with their regions replaced by calls."""

    def __init__(
        self, regions: dict[ex.Expr, frozenset[ex.Expr]], globals_: frozenset[Term], name: str
    ) -> None:
        self.regions = regions
        self.globals = globals_
        self.name = name
        self.memo: dict[ex.Expr, ex.Expr] = {}

    def function(self, function: ex.Function) -> ex.Function:
        if is_composite(function):
            return function
        for node in _inside(function):
            if node in self.memo:
                continue
            if node in self.regions:
                self.memo[node] = self._call(node, self.regions[node])
            else:
                parts = opened(node)
                new = node
                if parts:
                    new = with_operands(node, tuple([self.memo[part] for part in parts]))
                self.memo[node] = new
        made = self.memo[function]
        assert isinstance(made, ex.Function)
        return made

    def _call(self, root: ex.Expr, region: frozenset[ex.Expr]) -> ex.Expr:
        """The call that replaces a region."""
        become: dict[ex.Expr, ex.Expr] = {}
        inputs: list[ex.Expr] = []
        stack: list[tuple[ex.Expr, bool]] = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                parts = tuple([become[part] for part in operands(node)])
                become[node] = with_operands(node, parts)
            elif node in become:
                continue
            elif node in region:
                stack.append((node, True))
                stack.extend((part, False) for part in reversed(operands(node)))
            elif (
                isinstance(node, ex.Const | ex.Constructor)
                or node in self.globals
                or is_composite(node)
            ):
                become[node] = node
            else:
                become[node] = ex.Var(Name("argument", len(inputs)), type_of(node))
                inputs.append(node)
        params = tuple(each for node in inputs if isinstance(each := become[node], ex.Var))
        attrs = ((COMPOSITE, self.name),)
        function = ex.Function((), (), params, type_of(root), become[root], attrs)
        return ex.Call(function, tuple([self.memo[node] for node in inputs]))


def _inside(root: ex.Expr) -> list[ex.Expr]:
    """Every expression below one outside of composites, parts before wholes."""
    return parts_first(opened, root)


def inline_composites(module: Module, name: str | None = None) -> Module:
    """The module with the calls of composites, or of those of one name, written out."""
    known = infer(module)
    memo: dict[ex.Expr, ex.Expr] = {}

    def rewrite(_: ex.Var, function: ex.Function) -> ex.Function:
        for node in expressions(function):
            if node not in memo:
                new = with_operands(node, tuple([memo[part] for part in operands(node)]))
                memo[node] = _written_out(new, name)
        made = memo[function]
        assert isinstance(made, ex.Function)
        return made

    return map_functions(known, rewrite)


def _written_out(node: ex.Expr, name: str | None) -> ex.Expr:
    """The body of a called composite with its arguments in it."""
    if not isinstance(node, ex.Call) or not is_composite(node.callee, name):
        return node
    function = node.callee
    assert isinstance(function, ex.Function)
    become: dict[ex.Expr, ex.Expr] = dict(zip(function.params, node.args, strict=True))
    for expr in _inside(function.body):  # composites in it are closed: nothing to replace there
        if expr not in become:
            parts = tuple([become[part] for part in opened(expr)])
            become[expr] = with_operands(expr, parts) if parts else expr
    return become[function.body]


def partitioning(pattern: Term, name: str) -> Pass:
    """A pass that makes functions of the regions a pattern finds; they are fused as all others."""
    why = f"Regions like {name} become functions of their own."
    return exact_pass(f"partition-{name}", why, partial(partition, pattern=pattern, name=name))


INLINE_COMPOSITES: Final = exact_pass(
    "inline-composites", "Functions that partitioning made are written out.", inline_composites
)
