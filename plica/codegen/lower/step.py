"""Steps of a graph: its choices, operators and fused functions, and the tensors these make.

A view is made by no step: it shows what another tensor holds.  While a program is made from its
last step to its first, steps are pending: what they read has no memory yet.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> x = Var(Name("x"), tensor((2, 3), "f32"))
>>> made_by(x) is None, len(list(leaves(Tuple((x, x)))))
(True, 2)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from attrs import field, frozen

from plica.codegen.program import Force
from plica.core import parts_first
from plica.ir.graph.expression import Apply, Call, Expr, If, Project, Tuple, Var
from plica.ir.loop import Kernel, Load, Scalar, Select
from plica.ir.type import TupleType, type_of
from plica.rewrite.fuse.reading import parts, reading
from plica.rewrite.graph.walk import operands

Value: TypeAlias = tuple[Expr, int]  # a step of the program, and which of its results


def leaves(value: Expr) -> Iterator[Expr]:
    """The tensors inside a value of any type, from left to right."""
    if isinstance(value, Tuple):
        for item in value.items:
            yield from leaves(item)
        return
    if isinstance(of := type_of(value), TupleType):
        for i in range(len(of.items)):
            yield from leaves(Project(value, i))
    else:
        yield value


def made_by(leaf: Expr) -> Value | None:
    """The step that makes a tensor, and which of its results it is; None for what is given."""
    match leaf:
        case Project(If() | Call() as step, index):
            return step, index
        case If() | Apply() | Call() | Project(Apply(), _):
            return leaf, 0
        case _:
            return None


def views(leaf: Expr) -> Iterator[Expr]:
    """A tensor, what it is a view of, and so on, up to what holds the elements."""
    yield leaf
    while isinstance(leaf, Apply | Project):
        of = reading(leaf)
        if of is None or not of.is_view:
            break
        args = parts(leaf)
        assert args is not None
        leaf = args[of.viewed]
        yield leaf


def shown(leaf: Expr) -> Expr:
    """What holds the elements of a tensor: itself, or what it is a view of."""
    *_, last = views(leaf)
    return last


def is_joint(step: Expr) -> bool:
    """Whether a step may join tensors or cut them apart: it chooses what it reads."""
    of = reading(step) if isinstance(step, Apply | Project) else None
    return of is not None and isinstance(of.compute.body, Select | Load) and not of.is_view


def branch_items(branch: Expr) -> tuple[Expr, ...]:
    """What a branch of an `If` gives."""
    return branch.items if isinstance(branch, Tuple) else (branch,)


def result_of(value: Value) -> Expr:
    """One result of an `If` or a call as a term."""
    step, index = value
    several = isinstance(step.then if isinstance(step, If) else type_of(step), Tuple | TupleType)
    return Project(step, index) if several else step


def steps_below(root: Expr) -> list[Expr]:
    """The choices, operators and fused functions of a graph, values before their uses."""

    def inside(node: Expr) -> tuple[Expr, ...] | None:
        return node.args if isinstance(node, Call) else parts(node)

    def below(node: Expr) -> tuple[Expr, ...]:
        return operands(node) if (own := inside(node)) is None else own

    return [
        node
        for node in parts_first(below, root)
        if isinstance(node, If) or inside(node) is not None
    ]


def launched(root: Expr) -> list[Expr]:
    """The operators and fused functions of a graph that kernels of our own may be made for: no
    choices, no kernels that somebody wrote, and no views, for which nothing runs."""
    return [
        step
        for step in steps_below(root)
        if not isinstance(step, If)
        and not (isinstance(step, Call) and isinstance(step.callee, Var))
        and shown(step) is step
    ]


@frozen
class PendingLaunch:
    """A launch whose arguments may not have their slots yet."""

    kernel: Kernel
    digest: str
    reads: tuple[Expr, ...]
    targets: tuple[int, ...]
    source: str
    term: Expr
    sizes: tuple[Scalar, ...]
    least: tuple[Scalar, ...] = ()


@frozen
class PendingChunks(PendingLaunch):
    """Chunks whose arguments may not have their slots yet: sizes, launches, bytes of rows."""

    rows: Scalar = field(kw_only=True)
    pieces: tuple[tuple[int, PendingLaunch, tuple[int, ...]], ...] = field(kw_only=True)


@frozen
class PendingChoose:
    """A choice whose condition may not have its slot yet."""

    condition: Expr
    then: int
    orelse: int


@frozen
class PendingCopy:
    """A copy whose source may not have its slot yet."""

    source: Expr
    target: int


Pending: TypeAlias = PendingLaunch | PendingChoose | Force | PendingCopy
