"""Define: stages become one kernel of blocks, which schedules can work on.

    total[i] = sum over k of x[i, k]    -->  for i, k:
    share[i, j] = x[i, j] / total[i]             with block("total", spatial=i, reduce=k):
                                                     init: total[i] = 0
                                                     total[i] = total[i] + x[i, k]
                                             for i, j:
                                                 with block("share", spatial=(i, j)):
                                                     share[i, j] = x[i, j] / total[i]

Inputs are the buffers that no stage makes, outputs those that no other stage reads.

A reduction of symbolic extent is assumed to have at least one term, or its init would never run.
With `empty`, such reductions are initialised by a block of their own and may have none.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import statements
>>> from plica.ir.loop.stage import placeholder, stage
>>> from plica.ir.loop.tensor import reduce
>>> x = placeholder("x", (2, 3), f32)
>>> total = stage("total", (2,), lambda i: reduce("sum", (3,), lambda k: x[i, k]))
>>> share = stage("share", (2, 3), lambda i, j: x[i, j] / total[i])
>>> kernel = define(total, share)
>>> [str(each.label) for each in statements(kernel.body) if isinstance(each, st.Block)]
['total', 'share']
>>> [str(each.name) for each in kernel.params], kernel.inputs
(['x', 'share'], 1)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, cast

from plica.core import Name, Term, all_of, free_vars, fresh, map_top_down, rename, substitute
from plica.ir.loop import statement as st
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.reduction import TakenOut, exposed, taken_out
from plica.ir.loop.scalar import Buffer, Lit, Load, Scalar, ScalarVar, dtype_of, index
from plica.ir.loop.stage import (
    Each,
    ExternStage,
    Fold,
    Recurrence,
    Scan,
    Scatter,
    Stage,
    epilogue_of,
    stage_of,
)
from plica.ir.loop.summation import spelled
from plica.ir.loop.tensor import Compute
from plica.ir.type.dim import known

Iteration: TypeAlias = tuple[ScalarVar, Scalar, str]  # an axis, its extent, the letter of its kind


def define(
    *stages: Stage,
    inputs: Iterable[Buffer] | None = None,
    outputs: Iterable[Buffer] | None = None,
    empty: bool = False,
) -> st.Kernel:
    """The kernel that computes some stages, each from placeholders and stages before it."""
    made = {out: None for stage in stages for out in stage.outs}
    read = _reads(stages)
    given = [buffer for buffer in read if buffer not in made] if inputs is None else list(inputs)
    if outputs is None:  # what only its own stage reads: a scan reads itself
        wanted = [buffer for buffer in made if all(buffer in one.outs for one in read[buffer])]
    else:
        wanted = list(outputs)
    return _Writer([*given, *wanted], empty).kernel(stages, given, wanted)


def defined(
    of: Compute | Sequence[Compute], name: str = "out", *, empty: bool = False
) -> st.Kernel:
    """The kernel of one tensor expression, or of several over the same inputs."""
    several = [of] if isinstance(of, Compute) else list(of)
    inputs = list(dict.fromkeys(buffer for one in several for buffer in one.inputs))
    used = {buffer.name for buffer in inputs}
    stages = []
    for each in several:
        label = fresh(Name(name), used)
        used.add(label)
        stages.append(stage_of(Buffer(label, each.shape, each.dtype), each.axes, each.body))
    outs = [stage.out for stage in stages]
    return _Writer([*inputs, *outs], empty).kernel(stages, inputs, outs)


def _reads(stages: Sequence[Stage]) -> dict[Buffer, list[Stage]]:
    """The buffers that stages read, in order, each with those that read it; and all they make."""
    found: dict[Buffer, list[Stage]] = {}
    for stage in stages:
        for out in stage.outs:
            found.setdefault(out, [])
        if isinstance(stage, ExternStage):
            inside = [one.buffer for one in st.statements_of(st.Alloc, stage.body)]
            touched = all_of(Buffer, stage.body)
            seen = [one for one in touched if one not in inside]
        else:
            seen = [one.buffer for one in all_of(Load, stage)]
        for one in dict.fromkeys(seen):
            found.setdefault(one, []).append(stage)
    return found


class _Writer:
    """Names in use, and the statements written so far."""

    def __init__(self, params: Sequence[Buffer], empty: bool) -> None:
        self.names = {param.name for param in params}
        self.labels: set[Name] = set()
        self.empty = empty
        self.held: list[Buffer] = []
        self.stmts: list[st.Stmt] = []

    def kernel(
        self, stages: Sequence[Stage], inputs: Sequence[Buffer], outputs: Sequence[Buffer]
    ) -> st.Kernel:
        """The kernel of all stages."""
        params = (*inputs, *outputs)
        dims = _dims(params, stages)
        self.names.update(dim.name for dim in dims)
        renamed: dict[Buffer, Buffer] = {}
        last = _epilogues(stages, params)
        inside = {scan.out for scan in last.values()}
        for stage in stages:
            for out in stage.outs:
                if out not in params and out not in inside:
                    own = rename(out, self.name(out.name))
                    self.held.append(own)
                    if own is not out:
                        renamed[out] = own
        for stage in stages:
            if isinstance(stage, Each) and stage in last:
                self.scan(substitute(last[stage], renamed), substitute(stage, renamed))
            elif stage not in last.values():
                self.stage(substitute(stage, renamed))
        body = st.seq(*self.stmts) if self.stmts else st.NOTHING
        body = st.allocated(body, reversed(self.held))
        return st.Kernel(dims, params, len(inputs), body)

    def stage(self, of: Stage) -> None:
        """Write the loops and blocks of a stage."""
        match of:
            case Each(out, axes, value):
                made = stage_of(out, axes, value)
                if isinstance(made, Scan):
                    self.scan(made)
                else:
                    self.each(out, axes, made.value)
            case Fold():
                self.fold(of)
            case Scan():
                self.scan(of)
            case Recurrence():
                self.recurrence(of)
            case Scatter():
                self.scatter(of)
            case ExternStage(outs, body):
                self.block(outs[0].name, (), body)

    def each(self, out: Buffer, axes: tuple[ScalarVar, ...], value: Scalar) -> None:
        sizes = dict(zip(axes, out.shape, strict=True))
        rest, extracted = taken_out(value, sizes, self.name)
        last = extracted[-1] if extracted else None
        # A reduction that is the whole value is accumulated where it ends.
        direct = (
            last is not None
            and rest is Load(last.buffer, last.axes)
            and all(known(sizes[var]) == 1 for var in axes if var not in last.axes)
        )
        for each in extracted:
            if direct and each is last:
                self.reduce(each, out, axes)
            else:
                self.held.append(each.buffer)
                self.reduce(each, each.buffer, each.axes)
        if not direct:
            loops = [(axis, size, "s") for axis, size in sizes.items()]
            self.block(out.name, loops, st.Store(out, axes, rest))

    def reduce(self, of: TakenOut, into: Buffer, axes: tuple[ScalarVar, ...]) -> None:
        if of.value.runs:
            self.in_runs(of, into, axes)
            return
        start, join = MEANING[of.combiner]
        init = st.Store(into, axes, start(dtype_of(of.body)))
        again = st.Store(into, axes, join(Load(into, axes), of.body))
        self.reduced(into.name, axes, into.shape, of.terms, of.extents, init, again)

    def in_runs(self, of: TakenOut, into: Buffer, axes: tuple[ScalarVar, ...]) -> None:
        """A blocked sum: a block adds the totals of runs, each of which is one term."""
        whole = spelled(of.value)
        read: dict[Term, Scalar] = {}
        for each in exposed(whole):
            held = Buffer(self.name(Name("total")), into.shape, dtype_of(each))
            self.held.append(held)
            total = TakenOut(held, axes, each.combiner, each.axes, each.extents, each.body)
            self.reduce(total, held, axes)
            read[each] = Load(held, axes)
        value = map_top_down(lambda node: read.get(node, node), whole)
        loops = [(axis, size, "s") for axis, size in zip(axes, into.shape, strict=True)]
        self.block(into.name, loops, st.Store(into, axes, value))

    def reduced(  # noqa: PLR0917  # a reduction is these things
        self,
        label: Name,
        axes: Sequence[ScalarVar],
        shape: Sequence[Scalar],
        terms: Sequence[ScalarVar],
        extents: Sequence[Scalar],
        init: st.Stmt,
        again: st.Stmt,
    ) -> None:
        """A reduction block; its init apart where there may be nothing to reduce."""
        outer = [(axis, size, "s") for axis, size in zip(axes, shape, strict=True)]
        inner = [(term, size, "r") for term, size in zip(terms, extents, strict=True)]
        if self.empty and any(known(extent) is None for extent in extents):
            self.block(Name(f"{label}_start"), outer, init)
            self.block(label, [*outer, *inner], again)
        else:
            self.block(label, [*outer, *inner], again, init)

    def fold(self, of: Fold) -> None:
        places = [Load(out, of.axes) for out in of.outs]
        init = st.seq(
            *[
                st.Store(out, of.axes, one)
                for out, one in zip(of.outs, of.combine.starts, strict=True)
            ]
        )
        if any(known(extent) == 0 for extent in of.extents):
            loops = [
                (axis, size, "s") for axis, size in zip(of.axes, of.outs[0].shape, strict=True)
            ]
            self.block(of.outs[0].name, loops, init)
            return
        joined = of.combine.joined(places, of.values)
        # All values are computed before the first is stored: each may depend on each.
        held = [ScalarVar(self.name(Name("new")), dtype_of(scalar)) for scalar in joined]
        again: st.Stmt = st.seq(
            *[st.Store(out, of.axes, var) for out, var in zip(of.outs, held, strict=True)]
        )
        for var, value in reversed(list(zip(held, joined, strict=True))):
            again = st.Bind(var, value, again)
        shape = of.outs[0].shape
        self.reduced(of.outs[0].name, of.axes, shape, of.terms, of.extents, init, again)

    def scan(self, of: Scan, epilogue: Each | None = None) -> None:
        """A block that carries the running value and stores it, or an epilogue of it, at each
        index."""
        start, join = MEANING[of.combiner]
        dtype, along = dtype_of(of.value), of.axes[of.along]
        sizes = dict(zip(of.axes, of.out.shape, strict=True))
        place = tuple([axis for axis in of.axes if axis is not along])
        carry = Buffer(self.name(Name("carry")), tuple([sizes[axis] for axis in place]), dtype)
        self.held.append(carry)
        carried = Load(carry, place)
        add = st.Store(carry, place, join(carried, of.value))
        keep = st.Store(of.out, of.axes, carried)
        if epilogue is not None:
            keep = stored_epilogue(epilogue, of, carried)
        body = st.seq(keep, add) if of.exclusive else st.seq(add, keep)
        if of.reverse:
            body = substitute(body, {along: sizes[along] - 1 - along})
        loops = [(axis, size, "c" if axis is along else "s") for axis, size in sizes.items()]
        self.block(keep.buffer.name, loops, body, st.Store(carry, place, start(dtype)))

    def recurrence(self, of: Recurrence) -> None:
        time, *rest = of.axes
        size, *sizes = of.out.shape
        count = Lit(of.count, time.dtype)
        others = [(axis, scalar, "s") for axis, scalar in zip(rest, sizes, strict=True)]
        begin = st.Store(of.out, of.axes, of.first)
        self.block(Name(f"{of.out.name}_start"), [(time, count, "s"), *others], begin)
        step = cast(st.Stmt, substitute(st.Store(of.out, of.axes, of.next), {time: time + count}))
        length = known(size)
        left = size - count if length is None else Lit(length - of.count, time.dtype)
        self.block(of.out.name, [(time, left, "o"), *others], step)

    def scatter(self, of: Scatter) -> None:
        """A block for what every place begins with, and one that stores term after term."""
        if of.first is not None:
            loops = [(axis, size, "s") for axis, size in zip(of.axes, of.out.shape, strict=True)]
            self.block(Name(f"{of.out.name}_start"), loops, st.Store(of.out, of.axes, of.first))
        store = st.Store(of.out, of.indices, of.value)
        loops = [(term, size, "o") for term, size in zip(of.terms, of.extents, strict=True)]
        self.block(of.out.name, loops, st.Branch(of.condition, store, st.NOTHING))

    def block(
        self, label: Name, around: Sequence[Iteration], body: st.Stmt, init: st.Stmt | None = None
    ) -> None:
        """A loop nest around a block with its own variables."""
        label = fresh(label, self.labels)
        self.labels.add(label)
        loops = [rename(axis, self.name(axis.name)) for axis, _, _ in around]
        inside = [
            rename(axis, self.name(Name(f"v{axis.name.hint}", axis.name.index)))
            for axis, _, _ in around
        ]
        own: dict[ScalarVar, ScalarVar] = {
            axis: var for (axis, _, _), var in zip(around, inside, strict=True)
        }
        parts: list[Any] = [
            None if statement is None else substitute(statement, own) for statement in (init, body)
        ]
        extents = tuple([extent for _, extent, _ in around])
        kinds = tuple([st.ITER_KINDS[letter] for _, _, letter in around])
        stmt: st.Stmt = st.Block(
            label, tuple(inside), extents, kinds, tuple(loops), st.TRUE, *parts
        )
        for var, extent in zip(reversed(loops), reversed(extents), strict=True):
            stmt = st.For(var, extent, "serial", stmt)
        self.stmts.append(stmt)

    def name(self, like: Name) -> Name:
        """A fresh name similar to a given one."""
        found = fresh(like, self.names)
        self.names.add(found)
        return found


def _epilogues(stages: Sequence[Stage], params: Sequence[Buffer]) -> dict[Each, Scan]:
    """The stages that alone read a scan, each where the scan has it, with that scan."""
    readers = _reads(stages)
    found: dict[Each, Scan] = {}
    for stage in stages:
        if isinstance(stage, Scan) and stage.out not in params and len(readers[stage.out]) == 1:
            (last,) = readers[stage.out]
            if isinstance(last, Each) and last not in found and epilogue_of(stage, last):
                found[last] = stage
    return found


def stored_epilogue(epilogue: Each, of: Scan, carried: Scalar) -> st.Store:
    """The store of a scan's epilogue at its axes."""
    (read,) = [each for each in all_of(Load, epilogue.value) if each.buffer is of.out]
    own = dict(zip(read.indices, of.axes, strict=True))
    indices = tuple([own.get(axis, index(0)) for axis in epilogue.axes])
    value = substitute(epilogue.value, dict(zip(epilogue.axes, indices, strict=True)))

    def replaced(node: Term) -> Term:
        return carried if isinstance(node, Load) and node.buffer is of.out else node

    return st.Store(epilogue.out, indices, map_top_down(replaced, value))


def _dims(params: Sequence[Buffer], stages: Sequence[Stage]) -> tuple[ScalarVar, ...]:
    """The symbolic dims: those of the shapes first, in order."""
    found: dict[ScalarVar, None] = {}
    free = frozenset[Any]().union(*[free_vars(each) for each in (*params, *stages)])
    for node in all_of(ScalarVar, *params, *stages):
        if node in free:
            found[node] = None
    return tuple(found)
