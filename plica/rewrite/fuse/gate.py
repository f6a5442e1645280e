"""Gates: fusion of a product with elementwise readers of slices of its result.

z = nn.dense(h, w)                       gates of a recurrent step, in one function
y = f(z[:, :128], z[:, 128:256], …)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from plica.ir.graph.expression import Expr
from plica.ir.type import TensorType, TupleType, type_of
from plica.rewrite.fuse.chain import is_product
from plica.rewrite.fuse.decide import Decisions, Group, Verdict, inside
from plica.rewrite.fuse.reading import count, operator

CUTTING_OPERATORS: Final = frozenset(("slice", "split"))
"""The operators that cut a product into gates."""


def with_gates(decisions: Decisions, is_wanted: Callable[[Group], bool]) -> Decisions:
    """The decisions with products fused into the readers of their slices, where that is wanted."""
    groups, verdicts = dict(decisions.groups), dict(decisions.verdicts)
    place = {node: number for number, node in enumerate(decisions.order)}
    for node in decisions.order:
        product = groups.get(node)
        if product is None or product.sink is not node or not is_product(product):
            continue
        readers = _readers(node, decisions, groups)
        wholes = [_joined(product, each, place) for each in readers]
        for number, reader in enumerate(readers):
            if more := _read_by(reader, readers):
                apart = _joined(product, reader, place, more)
                wholes[number] = apart if is_wanted(apart) else wholes[number]
        if not wholes or not all(map(is_wanted, wholes)):
            continue
        for inner in product.spots:
            if groups.get(inner) is product:
                del groups[inner]
                verdicts[inner] = Verdict("copied" if len(wholes) > 1 else "row")
        for reader, whole in zip(readers, wholes, strict=True):
            mine = [each for each in reader.spots if groups.get(each) is reader]
            groups |= dict.fromkeys(mine, whole)
    return Decisions(decisions.order, decisions.users, groups, verdicts)


def _readers(node: Expr, decisions: Decisions, groups: dict[Expr, Group]) -> list[Group]:
    """The groups that read slices of a value elementwise; none if it has any other reader."""
    users = decisions.users[node]
    found: dict[Group, None] = {}
    elements = 0
    for user in users:
        reader = groups.get(user)
        plain = reader is not None and reader.anchor is None and not reader.is_closed
        if reader is None or not plain or operator(user) not in CUTTING_OPERATORS:
            return []
        found[reader] = None
        elements += _elements(user)
    return [*found] if 0 < elements <= _elements(node) else []


def _read_by(reader: Group, readers: list[Group]) -> list[Group]:
    """The other `readers` whose results a group reads."""
    inner = {part for node in reader.spots for part in inside(node)}
    return [each for each in readers if each is not reader and each.sink in inner]


def _joined(
    product: Group, reader: Group, place: dict[Expr, int], more: Sequence[Group] = ()
) -> Group:
    """One group of the product, its reader, and the groups `more` whose results that reads."""
    whole = Group(reader.sink, reader.of, is_closed=False)
    spots = {**product.spots, **reader.spots}
    for each in more:
        spots |= each.spots
    whole.spots = dict(sorted(spots.items(), key=lambda pair: -place[pair[0]]))
    whole.stages = (*(reader.stages or (reader,))[:-1], product, *more, reader)
    return whole


def _elements(of: Expr) -> int:
    found = type_of(of)
    parts = found.items if isinstance(found, TupleType) else (found,)
    return sum([count(each.shape) or 0 for each in parts if isinstance(each, TensorType)])
