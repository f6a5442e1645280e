"""Origins of launches: the operators of the model that each kernel computes, and how it came.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.infer import infer
>>> from plica.ir.graph.module import module
>>> from plica.ir.type.term import tensor
>>> x, main = Var(Name("x"), tensor((2,), "f32")), Var(Name("main"), None)
>>> of = infer(module({main: Function((), (), (x,), None, (x + 1.0) * x)}, main))
>>> from plica.pipeline import lower
>>> product = of.main_function().body
>>> names = {product: ("mul_1",), product.args[0]: ("add_0",)}
>>> [origin.nodes for origin in origins(lower(of), names)]
[('add_0', 'mul_1')]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen

from plica.codegen.compilation import Lowered
from plica.codegen.program import launches
from plica.core import Term, post_order, rebuild
from plica.ir.graph.expression import Apply, Call, Const, Expr, Function, Project
from plica.rewrite.derivation import at, provenance
from plica.rewrite.fuse import is_primitive

Names = Mapping[Expr, tuple[str, ...]]


@frozen(eq=False)
class LaunchOrigin:
    """What one launch computes: operators of the model, the names of their nodes, the rules."""

    operators: tuple[Expr, ...]
    nodes: tuple[str, ...]
    rules: tuple[str, ...]


def origins(lowered: Lowered, names: Names, whole: bool = False) -> tuple[LaunchOrigin, ...]:
    """The origin of each launch, in order; with `whole`, including passes and the computation of
    its constants."""
    known = provenance(lowered.derivation)
    rank = {each: place for place, each in enumerate(post_order(lowered.module))}
    final = at(lowered.derivation, len(lowered.derivation.steps))
    groups = opened(final)
    found: list[LaunchOrigin] = []
    for launch in launches(lowered.program):
        operators: dict[Expr, None] = {}
        rules: dict[str, None] = {}
        made_by = launch.term.value if isinstance(launch.term, Project) else launch.term
        terms: tuple[Term, ...] = () if made_by is None else groups.get(made_by, ())
        if whole and made_by is not None:
            constants = [child for child in made_by._children if isinstance(child, Const)]
            terms = (*constants, *terms, made_by)
        for term in terms:
            sources, made = known.get(term, ({}, {}))
            operators |= {source: None for source in sources if isinstance(source, Apply)}
            rules |= {rule.name: None for rule in made if whole or not rule.is_pass}
        ordered = sorted(operators, key=rank.__getitem__)  # as the model has them
        found.append(LaunchOrigin(tuple(ordered), nodes_of(ordered, names), tuple(rules)))
    return tuple(found)


def nodes_of(operators: Iterable[Expr], names: Names) -> tuple[str, ...]:
    """The names of the nodes that operators come from."""
    return tuple(dict.fromkeys(name for operator in operators for name in names.get(operator, ())))


def opened(root: Term) -> dict[Term, tuple[Term, ...]]:
    """For each operator and each call of a fused function: the operators it was made of."""
    plain: dict[Term, Term] = {}  # every term with no fused function in it
    groups: dict[Term, tuple[Term, ...]] = {}
    for node in post_order(root):
        if isinstance(node, Call) and is_primitive(node.callee):
            assert isinstance(node.callee, Function)
            inside: dict[Term, Term] = dict(
                zip(node.callee.params, [plain[arg] for arg in node.args], strict=True)
            )
            group: list[Term] = []
            for each in post_order(node.callee.body):
                if each not in inside:
                    inside[each] = rebuild(each, tuple([inside[kid] for kid in each._children]))
                    if isinstance(each, Apply):
                        group.append(inside[each])
            plain[node] = inside[node.callee.body]
            groups[node] = tuple(group)
        else:
            plain[node] = rebuild(node, tuple([plain[kid] for kid in node._children]))
            if isinstance(node, Apply):
                groups[node] = (plain[node],)
    return groups
