"""Combining: parallel layers that share their input become one layer, cut apart behind it.

    before:  nn.dense(x, a), nn.dense(x, b), nn.dense(x, c)
    after:   split(nn.dense(x, concat((a, b, c))), …)

One large product uses a machine better than several small ones. Each output is the same sum in the
same order, so results are bit-equal. A rule rewrites a tuple of layers; which layers of a program
can form a tuple depends on the whole program, and is found by the pass.

Note [Together]: layers are combined if they are needed under the same conditions: in one scope, a
branch or a body. Their weights are constants or parameters, so none depends on another's result.

>>> [each.name for each in combining(2)][:2]
['combine-2-conv', 'combine-2-dense']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, TypeAlias

import attrs

from plica.ir.graph import Apply, Expr, Function, Module, Operator, Project, Tuple, Var
from plica.ir.op.convolution import conv
from plica.ir.op.join import concat, split, stack
from plica.ir.op.linear import batch_matmul, dense, matmul
from plica.ir.op.relation import NUMBER
from plica.ir.op.shape import expand_dims, squeeze
from plica.ir.passes import Pass, exact_pass
from plica.ir.type import TensorType, known, type_of
from plica.rewrite.closed import is_closed
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.scope_placement import needed, regions
from plica.rewrite.graph.walk import map_functions, operands, with_operands
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole
from plica.rewrite.rule import Rule

Key: TypeAlias = tuple[object, ...]


@attrs.frozen
class Joint:
    """How layers of one operator are joined: their weights along an axis, their results likewise.

    `weight` and `result` are axes counted from the end where negative, given the attributes.
    """

    slug: str
    record: Operator
    ranks: tuple[int, ...]  # of the weight
    weight: Callable[[dict[str, Any]], int]
    result: int


# fmt: off
JOINTS: Final = (
    Joint("conv",         conv,         (3, 4, 5), lambda given: 0,                           1),
    Joint("dense",        dense,        (2,),      lambda given: 0,                          -1),
    Joint("matmul",       matmul,       (2,),      lambda given: 1,                          -1),
    Joint("batch-matmul", batch_matmul, (3,),      lambda given: 2 - given["transpose_y"],    2),
)
# fmt: on


def shape_of(value: Expr) -> tuple[Any, ...]:
    """The shape of a tensor expression."""
    of = type_of(value)
    assert isinstance(of, TensorType)
    return of.shape


def joined(joint: Joint, data: Expr, weights: tuple[Expr, ...], settings: Any) -> Expr | None:
    """One layer for several, as a tuple of their results, or None if they do not fit."""
    axis = joint.weight(settings)
    shapes = [shape_of(weight) for weight in weights]
    sizes = [known(shape[axis]) for shape in shapes]
    others = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    if settings.get("groups", 1) != 1 or None in sizes or len(others) > 1:
        return None
    whole = joint.record(data, concat(weights, axis=axis), **settings)
    cuts = tuple(accumulate(size for size in sizes[:-1] if size is not None))
    return split(whole, cuts, axis=joint.result)


def batched(data: Expr, weights: tuple[Expr, ...]) -> Expr | None:
    """Dense layers of equal size as one batched product, or None."""
    if len(shape_of(data)) != 2 or len({shape_of(weight) for weight in weights}) > 1:
        return None
    whole = batch_matmul(expand_dims(data, axis=0), stack(weights), transpose_y=True)
    parts = split(whole, len(weights), axis=0)
    return Tuple(tuple(squeeze(Project(parts, n), axis=0) for n in range(len(weights))))


@lru_cache(maxsize=256)
def combining(count: int) -> tuple[Rule, ...]:
    """The rules that combine that many layers, the last of them by a batch of matrices."""
    return (*(_rule(joint, count) for joint in JOINTS), _batch_rule(count))


def _weights(count: int, ranks: tuple[int, ...]) -> list[Any]:
    return [hole(f"w{number}", rank=ranks, dtypes=NUMBER) for number in range(count)]


def _rule(joint: Joint, count: int) -> Rule:
    x: Any = hole("x", dtypes=NUMBER, rank=joint.ranks if joint.record is conv else None)
    settings = [hole(attribute.name) for attribute in joint.record.attributes]

    def right(m: PatternMatch) -> Expr | None:
        values = {attribute.name: m[attribute.name] for attribute in joint.record.attributes}
        return joined(joint, m.x, tuple(m[f"w{number}"] for number in range(count)), values)

    layers = [joint.record(x, weight, *settings) for weight in _weights(count, joint.ranks)]
    return rule(f"combine-{count}-{joint.slug}", Tuple(tuple(layers)), right)


def _batch_rule(count: int) -> Rule:
    x: Any = hole("x", dtypes=NUMBER, rank=2)

    def right(m: PatternMatch) -> Expr | None:
        return batched(m.x, tuple(m[f"w{number}"] for number in range(count)))

    layers = tuple(dense(x, weight) for weight in _weights(count, (2,)))
    return rule(f"combine-{count}-dense-batch", Tuple(layers), right)


COMBINE: Final[Pack] = pack(
    "combine",
    combining(2),
    combining(3)[:2],
    version="1",
    doc="Parallel layers that share their input become one; for tuples of two or three.",
)


def combine_parallel(module: Module, min_branches: int = 3, batch: bool = False) -> Module:
    """The module with parallel layers combined, if there are at least `min_branches`.

    With `batch` dense layers of one size become one product of a batch of matrices.
    """
    if min_branches < 2:
        raise ValueError(f"Combining takes two branches or more, found {min_branches}.")
    return map_functions(
        to_dataflow(module), lambda _, function: _combined(function, min_branches, batch)
    )


def combining_pass(min_branches: int = 3, batch: bool = False) -> Pass:
    """Combining as a step of a pipeline."""
    return exact_pass(
        "combine-parallel",
        f"Make one layer of {min_branches} or more that share their input.",
        lambda module: combine_parallel(module, min_branches, batch),
    )


def _combined(function: Function, least: int, batch: bool) -> Function:
    new: dict[Expr, Expr] = {}
    for group in _groups(function):
        whole = _one(group, batch) if len(group) >= least else None
        if whole is not None:
            parts = whole.items if isinstance(whole, Tuple) else None
            for number, node in enumerate(group):
                new[node] = parts[number] if parts else Project(whole, number)
    return _replaced(function, new) if new else function


def _one(group: tuple[Apply, ...], batch: bool) -> Expr | None:
    """The layers of a group as one, by the rule for this many."""
    *rules, in_batch = combining(len(group))
    for each in (in_batch, *rules) if batch else rules:
        if isinstance(found := each.at(Tuple(group)), Expr):
            return found
    return None


def _groups(function: Function) -> Iterator[tuple[Apply, ...]]:
    """The layers of each scope that share operator, input and attributes, in order."""
    params = frozenset(function.params)
    taken: set[Expr] = set()
    scopes = [function.body]
    for scope in scopes:
        found: dict[Key, list[Apply]] = {}
        for node in needed(scope):
            scopes.extend(regions(node))
            if isinstance(node, Apply) and node not in taken:
                key = _key(node, params)
                if key is not None:
                    taken.add(node)
                    found.setdefault(key, []).append(node)
        yield from map(tuple, found.values())


_BY_NAME: Final = {joint.record.name: joint for joint in JOINTS}


def _key(node: Apply, params: frozenset[Var]) -> Key | None:
    """What layers must share to be combined, or None for other nodes."""
    if (joint := _BY_NAME.get(node.op)) is None:
        return None
    data, weight = node.args
    if not (is_closed(weight) or weight in params):
        return None
    shape, axis = shape_of(weight), joint.weight(dict(node.attrs))
    if len(shape) not in joint.ranks:
        return None
    return node.op, data, node.attrs, (*shape[:axis], *shape[axis + 1 :])


def _replaced(function: Function, new: dict[Expr, Expr]) -> Function:
    """The function with some nodes replaced, also inside the replacements."""
    memo: dict[Expr, Expr] = {}
    stack: list[Any] = [function]  # an expression, or a 1-tuple of one whose parts are done
    while stack:
        node = stack.pop()
        if node.__class__ is tuple:
            (node,) = node
            if node in new:
                memo[node] = memo[new[node]]
            else:
                memo[node] = with_operands(node, tuple([memo[part] for part in operands(node)]))
        elif node not in memo:
            stack.append((node,))
            needs = (new[node],) if node in new else operands(node)
            stack.extend([part for part in needs if part not in memo])
    made = memo[function]
    assert isinstance(made, Function)
    return made
