"""Gates: a product whose result is cut into parts, and what is made of those element by element.

    z = nn.dense(h, w)                       gates of a recurrent step, in one function
    y = f(z[:, :128], z[:, 128:256], …)      where a form can compute them so

An element of the result needs one of each part, so a product of few rows may as well be made where
it is read: no element of it is needed twice.  Parts that several groups read are made by each of
those that reads them; and what one of these reads of another (the output of a step of an LSTM, its
state) it makes for itself, so that neither waits for the other.  Only whoever schedules knows
whether that is worth while, so it is asked.
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
"""What cuts a product into gates."""


def with_gates(decisions: Decisions, is_wanted: Callable[[Group], bool]) -> Decisions:
    """The decisions once products are one group with what reads their parts, where it is wanted."""
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
    """The groups that read parts of a value element by element; none where something else does."""
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
    """Groups of some whose results a group reads."""
    inner = {part for node in reader.spots for part in inside(node)}
    return [each for each in readers if each is not reader and each.sink in inner]


def _joined(
    product: Group, reader: Group, place: dict[Expr, int], more: Sequence[Group] = ()
) -> Group:
    """A product and what reads it as stages of one group, with what that reads of `more`."""
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
