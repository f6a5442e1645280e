"""Rows in stages: one loop over rows, in it one stage after another (softmax, norms).

    m[i]    = max over k of x[i, k]            for i:
    e[i, j] = exp(x[i, j] - m[i])       -->        max of the row     vectors, then joined
    s[i]    = sum over k of e[i, k]                e of the row       vectors, kept in a near cache
    y[i, j] = e[i, j] / s[i]                       sum of the row
                                                   y of the row

A cheap stage of a row is not kept, but recomputed where it is read.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x = buffer("x", (4, 64), f32)
>>> top = stage("m", (4, 1), lambda i, j: reduce("max", (64,), lambda k: x[i, k]))
>>> away = stage("y", (4, 64), lambda i, j: x[i, j] - top[i, 0])
>>> made = chain_form(stages((x,), (top, away)), Machine(512, 32))
>>> [str(each.out.name) for each in made.stages]
['part', 'joined', 'few', 'total', 'out']
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from attrs import evolve, field, frozen

from plica.core.binding import free_vars, substitute
from plica.core.fold import map_top_down, post_order
from plica.core.term import Term, children
from plica.ir.loop import Each, Names, Stages, loads, reductions, scalar as sc
from plica.ir.loop.stages import inlined, stages
from plica.ir.type import f32, known
from plica.runtime.late import lazy_imports
from plica.schedule.default.machine import Machine
from plica.schedule.default.reduction import AT_ONCE, SHORT, in_parts, reduced_in_parts

with lazy_imports(__name__):
    from plica.schedule.default.rounded_quotient import rounds_quotient

CHEAP = 4  # reads and operations of an element that is computed again, at most


def rows_of(of: Stages) -> int | None:
    """The number of leading axes shared by stages that read each other at their own row, or
    None."""
    every = [stage for stage in of.stages if isinstance(stage, Each)]
    folds = [stage for stage in every if isinstance(stage.value, sc.Reduce)]
    if len(every) != len(of.stages) or not folds or len(every) < 2:
        return None
    sizes = folds[0].out.shape
    count = max((at + 1 for at, size in enumerate(sizes) if known(size) != 1), default=0)
    if not (rows := max(count, min(1, len(sizes)))):
        return None
    buffers: set[sc.Buffer] = set()
    for stage in every:
        if stage.out.shape[:rows] != sizes[:rows]:
            return None
        for load in loads(stage.value):
            if load.buffer in buffers and not _at_row(load, stage, rows):
                return None
        buffers.add(stage.out)
    return rows


def _at_row(load: sc.Load, of: Each, rows: int) -> bool:
    """Whether a load is at the row of the stage it is part of."""
    return all(
        place is axis or known(size) == 1
        for place, axis, size in zip(
            load.indices[:rows], of.axes[:rows], of.out.shape[:rows], strict=True
        )
    )


def chain_form(
    of: Stages, machine: Machine, most: int = AT_ONCE, *, approximates: bool = False
) -> Stages | None:
    """Stages along rows with at most a number of vectors reduced at once, or None if vectors do not
    help.

    If it `approximates`, a row is multiplied by the reciprocal of its divisor, unless a quotient is
    rounded.
    """
    if (rows := rows_of(of)) is None:
        return None
    names = Names(of, anew=of.made)
    approximates = approximates and not rounds_quotient(of)
    chain = _Chain(rows, names, machine, most, approximates, frozenset(of.inputs), of.dims)
    made: list[Each] = []
    for stage in of.stages:
        assert isinstance(stage, Each)  # they go along rows
        if (found := chain.stage(stage, last=stage.out is of.result)) is None:
            return None
        made += found
    return stages(of.inputs, made)


@frozen(eq=False)
class _Chain:
    """The common parameters of a chain's stages, and what is known of earlier ones."""

    rows: int
    names: Names
    machine: Machine
    most: int
    approximates: bool
    inputs: frozenset[sc.Buffer]
    dims: tuple[sc.ScalarVar, ...]
    known_: dict[sc.Buffer, Each] = field(factory=dict)

    def stage(self, of: Each, *, last: bool) -> list[Each] | None:
        """The stages for a stage; records how it is read afterwards."""
        rows, sizes = of.axes[: self.rows], of.out.shape[: self.rows]
        rest = of.out.shape[self.rows :]
        value, before = self.once_a_row(inlined(of.value, self.known_), rows, sizes)
        units: dict[Term, Term] = {axis: sc.index(0) for axis in of.axes[self.rows :]}
        if isinstance(value, sc.Reduce):
            if any(known(size) != 1 for size in rest):
                return None  # there are several of them in a row
            if (cut := in_parts(value, self.machine, self.most)) is None:
                return None
            value = _at_units(value, units)
            assert isinstance(value, sc.Reduce)
            found, total = reduced_in_parts(value, cut, rows, sizes, self.names)
            found = [*before, *found]
            if last:
                return [*found, Each(self.out(of, "out"), of.axes, total)]
            self.known_[of.out] = Each(of.out, of.axes, total)
            return found
        if reductions(value):
            return None
        found = before
        if self.approximates:
            value, turned = _without_division(value, rows, sizes, of.axes, self.names)
            found = [*before, *turned]
        if last:
            return [*found, Each(self.out(of, "out"), of.axes, value)]
        # Per-row values are kept, whatever their cost, because a row reads them many times.
        single = all(known(size) == 1 for size in rest)
        axes = rows if single else of.axes
        if not single and is_cheap(value, {*of.axes[self.rows :]}):
            self.known_[of.out] = Each(of.out, of.axes, value)
            return found
        if single:
            value = _at_units(value, units)
        if any(self.varies(var) and var not in axes for var in free_vars(value)):
            return None  # it depends on an axis that is not there
        shape = sizes if single else of.out.shape
        if not single:
            shape, value = self.whole_vectors(shape, axes[-1], value)
        kept = sc.Buffer(self.names.name("stage"), shape, sc.dtype_of(value))
        self.known_[of.out] = Each(of.out, of.axes, sc.Load(kept, axes))
        return [*found, Each(kept, axes, value)]

    def once_a_row(
        self, of: sc.Scalar, rows: tuple[sc.ScalarVar, ...], sizes: tuple[sc.Scalar, ...]
    ) -> tuple[sc.Scalar, list[Each]]:
        """A value along a row with its uniform parts loaded from separate stages.

        Wide numbers of which it is made would make vectors of the whole row shorter, too.
        """
        # An input may be readable under a condition alone; stages are, all along their rows.
        chooses = any(isinstance(term, sc.Select) for term in post_order(of))
        guarded = self.inputs if chooses else frozenset[sc.Buffer]()
        kept: dict[sc.Scalar, Each] = {}

        def new(node: Term) -> Term:
            plain = sc.Lit | sc.ScalarVar | sc.Load | sc.Reduce
            if not isinstance(node, sc.Scalar) or isinstance(node, plain):
                return node
            inside = free_vars(node)
            if any(self.varies(term) and term not in rows for term in inside):
                return node
            if not guarded.isdisjoint(inside) or not any(isinstance(e, sc.Buffer) for e in inside):
                return node
            if node not in kept:
                there = sc.Buffer(self.names.name("stage"), sizes, sc.dtype_of(node))
                kept[node] = Each(there, rows, node)
            return sc.Load(kept[node].out, rows)

        if isinstance(of, sc.Reduce):
            body = map_top_down(new, of.body)
            assert isinstance(body, sc.Scalar)
            return evolve(of, body=body), [*kept.values()]
        scalar = map_top_down(new, of)
        assert isinstance(scalar, sc.Scalar)
        return (of, []) if isinstance(scalar, sc.Load) else (scalar, [*kept.values()])

    def whole_vectors(
        self, shape: tuple[sc.Scalar, ...], last: sc.ScalarVar, value: sc.Scalar
    ) -> tuple[tuple[sc.Scalar, ...], sc.Scalar]:
        """A short kept row as whole vectors: partial stores would delay the next load."""
        length, lanes = known(shape[-1]) or 0, self.machine.lanes(sc.dtype_of(value))
        if not self.machine.masks or not lanes // 2 < length <= SHORT * lanes or not length % lanes:
            return shape, value
        room = sc.index(-(-length // lanes) * lanes)
        return (*shape[:-1], room), sc.Select(
            sc.Lt(last, shape[-1]), value, sc.Lit(0, sc.dtype_of(value))
        )

    def varies(self, of: Term) -> bool:
        """Whether a term is a variable other than a size."""
        return isinstance(of, sc.ScalarVar) and of not in self.dims

    def out(self, of: Each, like: str) -> sc.Buffer:
        return sc.Buffer(self.names.name(like), of.out.shape, of.out.dtype)


def _at_units(of: sc.Scalar, units: Mapping[Term, Term]) -> sc.Scalar:
    """A value where axes of length 1 are 0, which is all they ever are."""
    return substitute(of, dict(units))


def _without_division(
    of: sc.Scalar,
    rows: tuple[sc.ScalarVar, ...],
    sizes: tuple[sc.Scalar, ...],
    axes: tuple[sc.ScalarVar, ...],
    names: Names,
) -> tuple[sc.Scalar, list[Each]]:
    """The value of a row with one division for each row: `a / b` is `a * (1 / (b * s)) * s`.

    The power of two `s` keeps reciprocals of the smallest and largest numbers normal.
    """
    match of:
        case sc.Div(left, right) if sc.dtype_of(of) is f32 and right not in rows:
            inner = set(axes) - set(rows)
        case _:
            return of, []
    if not inner or not inner.isdisjoint(free_vars(right)) or isinstance(right, sc.Lit):
        return of, []
    size = sc.Max(right, sc.Lit(0.0, f32) - right)
    one, high, low = (sc.Lit(2.0**power, f32) for power in (0, 64, -64))
    far = sc.Select(sc.Lt(sc.Lit(2.0**100, f32), size), low, one)
    scale = sc.Select(sc.Lt(size, sc.Lit(2.0**-100, f32)), high, far)
    kept = sc.Buffer(names.name("stage"), sizes, f32)
    turned = sc.Buffer(names.name("stage"), sizes, f32)
    stages = [Each(kept, rows, scale), Each(turned, rows, sc.Div(one, right * sc.Load(kept, rows)))]
    return left * sc.Load(turned, rows) * sc.Load(kept, rows), stages


def is_cheap(of: sc.Scalar, along: Set[sc.ScalarVar]) -> bool:
    """Whether computing an element costs little more than loading its operands.

    Terms independent of the row axes are computed once per row, and indices cost nothing.
    """
    costly = sc.Div | sc.FloorDiv | sc.FloorMod | sc.Pow | sc.Intrinsic | sc.Reduce
    if any(isinstance(node, costly) for node in post_order(of)):
        return False
    count, left = 0, [of]
    while left and count <= CHEAP:
        node = left.pop()
        if along.isdisjoint(free_vars(node)):
            continue
        count += 1
        if not isinstance(node, sc.Load):
            left += [kid for kid in children(node) if isinstance(kid, sc.Scalar)]
    return count <= CHEAP
