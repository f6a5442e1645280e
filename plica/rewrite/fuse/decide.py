"""Decides fusion: which operators are computed in one kernel.

A group has one result, its *sink*.  A value joins the group of its users if all its users are in
that group, and none of its work would be done twice:

    inlined   it is computed where it is read; its elements are read at one place each, as often as
              it has elements, or it is cheap; rows that are only moved are read at a few places
    epilogue  it reduces (a sum, a convolution); it is computed first, element by element, and its
              users with it: they read exactly the element at hand.  A group reduces once.
    row       it is computed before its users, row by row (`plica.rewrite.fuse.row`)
    copied    bytes read as wider integers are so in each group that uses them: memory holds bytes;
              so are, where the limits say that products are made of tiles, narrow floats that are
              read as f32, and matrices that are transposed: a tile is read in any order

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Apply, Var
>>> from plica.ir.type.infer import infer_expr
>>> from plica.ir.type.term import tensor
>>> from plica.rewrite.fuse.limit import DEFAULT_LIMITS
>>> x = Var(Name("x"), tensor((2, 3), "f32"))
>>> found = decide(infer_expr(Apply("exp", (x + 1.0,))), DEFAULT_LIMITS)
>>> [each.reason for each in found.verdicts.values()]
['escapes', 'inlined']
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import product
from typing import Final, Literal, TypeAlias

from attrs import evolve, frozen

from plica.core import Term, substitute
from plica.ir.graph.expression import Apply, Expr, Function, If, attr
from plica.ir.loop.fusion_kind import Kind
from plica.ir.loop.scalar import Scalar, ScalarVar, Select
from plica.ir.type import TensorType, i8, known, same_dim, type_of, u8
from plica.rewrite.fuse.limit import FusionLimits
from plica.rewrite.fuse.reading import AccessPattern, Index, count, operator, parts, reading
from plica.rewrite.graph.walk import operands
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.rewrite.fuse.adjacent import pays
    from plica.rewrite.fuse.as_it_lies import is_as_it_lies, is_restored
    from plica.rewrite.fuse.unpacked import are_products, is_read_by_few, is_unpacked

Reason = Literal[
    "inlined", "epilogue", "row", "copied",
    "opaque", "stopped", "view", "may-fail", "escapes", "shared", "unread", "data-dependent",
    "repeated", "reread", "reordered", "narrow", "moved", "two-reductions", "size", "depth",
    "kept", "in-place",
]  # fmt: skip

# fmt: off
REASONS: Final[dict[Reason, str]] = {
    "inlined":        "computed where it is read",
    "epilogue":       "its user is computed with the result of the reduction",
    "row":            "its row is at hand when its users are computed",
    "copied":         "each of its users reads the bytes itself",
    "opaque":         "one of the two has no single tensor expression",
    "stopped":        "the limits name one of the operators",
    "view":           "a view is no work: its memory is its argument's",
    "may-fail":       "it may end the program, so all of it must be computed",
    "escapes":        "something else than an operator uses it too",
    "shared":         "operators of different groups use it",
    "unread":         "its user looks at its type only",
    "data-dependent": "where it is read is known when the program runs",
    "repeated":       "its elements would be computed more than once",
    "reread":         "its user reads each element again and again",
    "reordered":      "its user would sum it in an order memory does not have",
    "narrow":         "its user sums short rows, in which no vector would be full",
    "moved":          "its user reads it elsewhere than where it is made",
    "two-reductions": "its group reduces already",
    "kept":           "its bytes are kept, which take less memory than what they are made of",
    "in-place":       "it is written into its part of its user",
    "size":           "the group has as many operators as the limits allow",
    "depth":          "the group is as deep as the limits allow",
}
# fmt: on
"""What each word means."""

FUSED: Final = ("inlined", "epilogue", "row", "copied")


LANES: Final = 16  # elements per vector: costly operations are computed for this many at once
PLACES: Final = 4
"""The maximum number of places at which a group reads moved elements; each takes separate code."""

MIN_KERNEL_ELEMENTS: Final = 2048  # results with fewer elements are not worth a kernel


@frozen(eq=False)
class Verdict:
    """Whether a value joined the group of its users, and why; `because` is a use in the way."""

    reason: Reason
    because: Expr | None = None

    @property
    def fused(self) -> bool:
        return self.reason in FUSED


@frozen(eq=False)
class GroupSpot:
    """Where in its group a value is computed."""

    place: Index
    inner: bool
    depth: int
    again: tuple[Index, ...] = ()  # further places, for values that are only moved


Users: TypeAlias = Mapping[Expr, dict[Expr, None]]


class Group:
    """Operators that become one kernel; grows from its sink towards the inputs."""

    def __init__(
        self, sink: Expr, of: AccessPattern | None, is_closed: bool, joins: bool = False
    ) -> None:
        self.sink = sink
        self.of = of
        self.is_closed = is_closed
        self.joins = joins  # no kernel makes it: its parts are written where they belong
        self.spots: dict[Expr, GroupSpot] = {}
        self.anchor: Expr | None = None
        self.anchor_kind: Kind = "opaque"
        self.axes: list[tuple[ScalarVar, Scalar]] = []
        self.inner_axes: list[tuple[ScalarVar, Scalar]] = []
        self.stages: tuple[Group, ...] = ()  # where groups along rows were joined
        self.rows = 0  # how many of the first axes these share
        if of is not None:
            self.spots[sink] = GroupSpot(of.identity, False, 1)
            self.axes = list(zip(of.compute.axes, of.compute.shape, strict=True))
            if of.reduces:
                self.reduce_by(sink, of)

    def reduce_by(self, anchor: Expr, of: AccessPattern) -> None:
        """Note the one reduction of the group."""
        self.anchor = anchor
        self.anchor_kind = of.kind
        self.inner_axes = list(of.folded)


@frozen(eq=False)
class Decisions:
    """The group of every fused value, and the verdict on each."""

    order: tuple[Expr, ...]  # all expressions, parts before wholes
    users: Users
    groups: Mapping[Expr, Group]
    verdicts: Mapping[Expr, Verdict]


def decide(root: Expr, limits: FusionLimits) -> Decisions:
    """Group the operators of a typed expression."""
    order, users = _walk(root)
    groups: dict[Expr, Group] = {}
    verdicts: dict[Expr, Verdict] = {}
    homes: dict[Expr, tuple[Group, ...]] = {}  # of what is copied into several groups
    if limits.unpacks and not any(map(_decodes, order)):
        limits = evolve(limits, unpacks=False)
    joins = limits.joins and any(map(_chooses, order)) and not any(map(_branches, order))
    for node in reversed(order):
        if parts(node) is None:
            continue
        pattern = reading(node)
        joined, spot = _judge(node, pattern, users[node], groups, homes, limits)
        if joins and spot is None and pattern is not None and pays(node, pattern, users):
            verdicts[node] = joined
            groups[node] = Group(node, pattern, is_closed=True, joins=True)
            continue
        lies = joined.reason == "shared" and (
            is_as_it_lies(node, users[node], limits.tiles)
            or _is_window_data(node, users[node], limits)
        )
        if lies and pattern is not None:
            copies = _copies(node, pattern, users[node], groups, homes, limits)
            if copies is not None:
                verdicts[node] = Verdict("copied")
                homes[node] = tuple(copies)
                for group, group_spot in copies.items():
                    group.spots[node] = group_spot
                continue
        verdicts[node] = joined
        if spot is None:
            closed = pattern is None or pattern.is_view or pattern.kind == "opaque"
            groups[node] = Group(node, pattern, closed or operator(node) in limits.stop)
            continue
        assert pattern is not None
        group = groups[next(iter(users[node]))]
        group.spots[node] = spot
        groups[node] = group
        if pattern.reduces:
            group.reduce_by(node, pattern)
    return Decisions(tuple(order), users, groups, verdicts)


def _chooses(node: Expr) -> bool:
    """Whether an element of a value is one of several that it reads."""
    return (of := reading(node)) is not None and isinstance(of.compute.body, Select)


def _decodes(node: Expr) -> bool:
    """Whether a value is made of codes: fields of bytes, or narrow floats."""
    if (args := parts(node)) is None or operator(node) not in ("bit_field", "cast"):
        return False
    of = type_of(args[0])
    return operator(node) == "bit_field" or (isinstance(of, TensorType) and of.dtype.is_narrow)


def _branches(node: Expr) -> bool:
    return isinstance(node, If)


def _copies(  # noqa: PLR0917  # what is known of a value and of its users
    value: Expr,
    of: AccessPattern,
    users: Iterable[Expr],
    groups: Mapping[Expr, Group],
    homes: Mapping[Expr, tuple[Group, ...]],
    limits: FusionLimits,
) -> dict[Group, GroupSpot] | None:
    """The places at which each user group computes a value for itself, or None if one cannot."""
    using: dict[Group, list[Expr]] = {}
    for user in users:
        for group in homes.get(user) or filter(None, (groups.get(user),)):
            using.setdefault(group, []).append(user)
        if user not in homes and user not in groups:
            return None
    found: dict[Group, GroupSpot] = {}
    for group, theirs in using.items():
        if group.is_closed or len(group.spots) >= limits.size:
            return None
        spot = spot_of(value, theirs, group)
        if isinstance(spot, Verdict) or spot.depth > limits.depth:
            return None
        is_made = spot.inner and (
            limits.bytes_stay
            or not any(map(_is_apart, theirs))
            or _is_window_data(value, theirs, limits)
        )
        if not is_made and _inlined(of, spot, group) is not None:
            return None
        found[group] = spot
    return found


def _judge(  # noqa: PLR0917  # what is known of a value and of its users
    value: Expr,
    of: AccessPattern | None,
    users: Iterable[Expr],
    groups: Mapping[Expr, Group],
    homes: Mapping[Expr, tuple[Group, ...]],
    limits: FusionLimits,
) -> tuple[Verdict, GroupSpot | None]:
    """Whether a value joins the one group of its users, and where it is computed there."""
    no = _alone(value, of, limits)
    unpacked = limits.unpacks and no in (None, "view") and is_unpacked(value)
    if of is None or (no is not None and not unpacked):
        return Verdict(no or "opaque"), None
    group: Group | None = None
    for user in users:
        if (theirs := groups.get(user)) is None:
            return Verdict("shared" if user in homes else "escapes", user), None
        if group is not None and theirs is not group:
            return Verdict("shared", user), None
        group = theirs
    if group is None:
        return Verdict("escapes"), None  # it is the result itself
    if group.joins:
        return Verdict("in-place", group.sink), None
    if group.is_closed:
        return Verdict(_alone(group.sink, group.of, limits) or "opaque", group.sink), None
    if len(group.spots) >= limits.size:
        return Verdict("size", group.sink), None
    if isinstance(spot := spot_of(value, users, group), Verdict):
        return spot, None
    if spot.depth > limits.depth:
        return Verdict("depth", group.sink), None
    if unpacked and spot.inner and (
        any(map(is_unpacked, users))
        or (are_products(users) and is_read_by_few(spot.place, group.axes, group.inner_axes))
    ):  # fmt: skip
        no = None  # its codes take less memory
    elif of.is_view:
        no = "view"
    elif of.reduces:
        no = _epilogue(of, spot, group)
    elif (
        spot.inner
        and is_as_it_lies(value, users, limits.tiles)
        and (limits.bytes_stay or not any(map(_is_apart, users)))
    ):
        no = None  # products of bytes are made of bytes: an instruction does many of them
    elif spot.inner and _is_window_data(value, users, limits):
        no = None
    elif _is_byte(value) and (_is_transpose(spot, group) or (limits.bytes_stay and spot.inner)):
        no = "kept"
    else:
        no = _inlined(of, spot, group)
    if no is not None:
        return Verdict(no, group.anchor if no != "repeated" else group.sink), None
    return Verdict("epilogue" if of.reduces else "inlined"), spot


def _alone(value: Expr, of: AccessPattern | None, limits: FusionLimits) -> Reason | None:
    """Why a value is not fused with its users, independent of the users."""
    if of is None or of.kind == "opaque":
        return "opaque"
    if operator(value) in limits.stop:
        return "stopped"
    if of.is_view:
        return "view"
    return "may-fail" if of.may_fail else None


def spot_of(value: Expr, users: Iterable[Expr], group: Group) -> GroupSpot | Verdict:
    """The one place a group needs a value at."""
    found: dict[tuple[Index, bool], None] = {}
    depth = 0
    for user in users:
        theirs, at = reading(user), group.spots[user]
        depth = max(depth, at.depth + 1)
        for number, part in enumerate(parts(user) or ()):
            if part is not value:
                continue
            assert theirs is not None  # it is in a group
            if theirs.dependent[number]:
                return Verdict("data-dependent", user)
            for place, to in product(theirs.places[number], (at.place, *at.again)):
                where = moved(place, theirs, to)
                found[where, at.inner or theirs.inner[number]] = None
                if len(found) > 1 and not _is_read_again(value, found):
                    return Verdict("repeated", user)
    if not found:
        return Verdict("unread", next(iter(users)))
    (where, inner), *more = found
    return GroupSpot(where, inner, depth, tuple([scalars for scalars, _ in more]))


def _is_read_again(value: Expr, places: Collection[tuple[Index, bool]]) -> bool:
    """Whether a value may be read at several places: its rows are contiguous in its argument."""
    of = reading(value)
    several = 1 < len(places) <= PLACES and not any(inner for _, inner in places)
    return several and of is not None and of.moves_rows


def moved(place: Index, of: AccessPattern, to: Index) -> Index:
    """A place a user reads, once the user itself is computed at the place `to`."""
    if place == of.identity:
        return to
    if to == of.identity:
        return place
    at: dict[Term, Term] = dict(zip(of.compute.axes, to, strict=True))
    return tuple([at[each] if each in at else substitute(each, at) for each in place])  # type: ignore[misc]  # scalars give scalars


def _epilogue(of: AccessPattern, spot: GroupSpot, group: Group) -> Reason | None:
    """Why a reduction is not computed in a group: all of it must be read, in any order of axes."""
    if group.anchor is not None:
        return "two-reductions"
    wanted = {axis: size for axis, size in group.axes if known(size) != 1}
    # A convolution is tiled along the axes of its result: in another order it would crawl.
    if of.kind == "complex-out-fusable" and len(of.folded) > 1:
        order = [each for each in spot.place if each in wanted]
        if order != [axis for axis in wanted if axis in order]:
            return "moved"
    for place, size in zip(spot.place, of.compute.shape, strict=True):
        if isinstance(place, ScalarVar):
            there = wanted.pop(place, None)
            if there is None or not same_dim(size, there):
                return "moved"
        elif known(size) != 1:
            return "moved"
    return "moved" if wanted else None


def _inlined(of: AccessPattern, spot: GroupSpot, group: Group) -> Reason | None:
    """Why a value that does not reduce is not computed where it is read."""
    axes = group.axes
    if spot.inner:
        if group.anchor_kind != "reduction":
            return "reread"
        if of.kind == "injective":
            return "reordered"
        if (
            not of.is_cheap
            and (count(of.compute.shape) or 0) >= MIN_KERNEL_ELEMENTS
            and _is_narrow(spot, group)
        ):
            return "narrow"
        axes = [*axes, *group.inner_axes]
    plainly = {each for each in spot.place if isinstance(each, ScalarVar)}
    if all(axis in plainly or known(size) == 1 for axis, size in axes):
        return None
    here, there = count(of.compute.shape), count(tuple([size for _, size in axes]))
    if here is not None and there is not None and there <= here:
        return None
    return None if of.is_cheap else "repeated"


def _is_narrow(spot: GroupSpot, group: Group) -> bool:
    """Whether a reduction keeps the last axis of its operand, and that axis is short."""
    sizes = dict(group.axes)
    last = next((each for each in reversed(spot.place) if isinstance(each, ScalarVar)), None)
    size = None if last is None or last not in sizes else known(sizes[last])
    return size is not None and size < LANES


def _is_window_data(value: Expr, users: Iterable[Expr], limits: FusionLimits) -> bool:
    """Whether a value is bytes as wider numbers, which windows read as they lie."""
    return limits.windows and is_restored(value, users)


def _is_transpose(spot: GroupSpot, group: Group) -> bool:
    """Whether a group is a transpose of a value and nothing more."""
    if operator(group.sink) != "transpose" or len(group.spots) > 1:
        return False
    own = [axis for axis, size in group.axes if known(size) != 1]
    order = [each for each in spot.place if isinstance(each, ScalarVar)]
    return len(order) > 1 and order != own and set(order) == set(own)


def _is_byte(value: Expr) -> bool:
    of = type_of(value)
    return isinstance(of, TensorType) and of.dtype in (i8, u8)


def _is_apart(user: Expr) -> bool:
    """Whether a convolution looks at one channel for each result: no instruction adds its bytes."""
    args = parts(user)
    if operator(user) == "nn.conv_laid" and isinstance(user, Apply):
        return int(attr(user, "groups", 1)) > 1
    if operator(user) != "nn.conv" or args is None:
        return False
    weight = type_of(args[1])
    return isinstance(weight, TensorType) and known(weight.shape[1]) == 1


def inside(node: Expr) -> tuple[Expr, ...]:
    """What fusion sees of an expression: the arguments of a value, and no fused function."""
    if (args := parts(node)) is not None:
        return args
    if isinstance(node, Function) and is_whole(node):
        return ()
    return operands(node)


def is_whole(function: Function) -> bool:
    """Whether a function is already a kernel, or belongs to another code generator."""
    return bool(attr(function, "primitive")) or attr(function, "composite") is not None


def _walk(root: Expr) -> tuple[list[Expr], dict[Expr, dict[Expr, None]]]:
    """Every expression, parts before wholes, and who uses it."""
    users: dict[Expr, dict[Expr, None]] = {root: {}}
    order: list[Expr] = []
    stack: list[tuple[Expr, bool]] = [(root, False)]
    entered: set[Expr] = set()
    while stack:
        node, leaving = stack.pop()
        if leaving:
            order.append(node)
        elif node not in entered:
            entered.add(node)
            stack.append((node, True))
            for part in reversed(inside(node)):
                users.setdefault(part, {})[node] = None
                stack.append((part, False))
    return order, users
