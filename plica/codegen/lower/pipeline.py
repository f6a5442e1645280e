"""Software pipeline: the statements of a loop run in different iterations at a time.

    before                                          after
    for i in range(n, stage=(0, 1)):                with alloc(T[2, 8]):
        with alloc(T[8]):                               load(T[0], 0)                  prologue
            load(T, i)                                  for i in range(n - 1):         body
            use(T, i)                                       load(T[(i + 1) % 2], i + 1)
                                                            use(T[i % 2], i)
                                                        use(T[(n - 1) % 2], n - 1)     epilogue

`software_pipeline_stage` gives the number of iterations by which each statement lags,
`software_pipeline_order` its position within an iteration. A buffer allocated in the loop gets as
many versions as are live together, plus `software_pipeline_spare`: for that many iterations read
data is not overwritten, so that asynchronous work on it may be pending.

Law: the kernel means the same.  Refused: numbers that do not fit the statements; a statement that
would run before what it needs; statements of different stages that share memory from outside the
loop, which has one version only.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.analysis.index import Context
from plica.analysis.statement import mapped, outermost, refused, with_body
from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import statement as st
from plica.ir.loop.scalar import Buffer, Load, Lt, Max, Scalar, index
from plica.ir.type import known
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.analysis.disjoint_access import accesses

STAGE, ORDER = "software_pipeline_stage", "software_pipeline_order"
SPARE = "software_pipeline_spare"


def pipeline(kernel: st.Kernel) -> st.Kernel:
    """The kernel with its annotated loops pipelined."""
    start = outermost(kernel)
    return with_body(kernel, mapped(kernel.body, lambda stmt: _pipelined(stmt, start)))


@frozen(eq=False)
class PipelinePlan:
    """The statements of a loop, when each runs, and how many versions its buffers have."""

    loop: st.For
    stmts: tuple[st.Stmt, ...]
    stages: tuple[int, ...]
    places: tuple[int, ...]
    versions: dict[Buffer, int]

    @property
    def turns(self) -> list[int]:
        """The statements in the order of one turn."""
        return sorted(range(len(self.stmts)), key=lambda each: self.places[each])


def _pipelined(stmt: st.Stmt, context: Context) -> st.Stmt:
    if not isinstance(stmt, st.For) or STAGE not in dict(stmt.annotations):
        return stmt
    plan = _plan(stmt, context)
    deepest = max(plan.stages)
    extent, count = stmt.extent, known(stmt.extent)
    last = extent if count is not None and count >= deepest else Max(extent, index(deepest))
    many = extent - deepest if last is extent else last - deepest
    parts: list[st.Stmt] = []
    for turn in range(deepest):
        parts += [
            _guarded(plan, each, index(turn - plan.stages[each]))
            for each in plan.turns
            if plan.stages[each] <= turn
        ]
    body = [_at(plan, each, stmt.var + (deepest - plan.stages[each])) for each in plan.turns]
    notes = st.annotated(stmt.annotations, **{STAGE: None, ORDER: None, SPARE: None})
    parts.append(st.For(stmt.var, simple(many), "serial", st.Seq(tuple(body)), notes))
    for turn in range(deepest):
        parts += [
            _guarded(plan, each, last + (turn - plan.stages[each]))
            for each in plan.turns
            if plan.stages[each] > turn
        ]
    new: st.Stmt = st.Seq(tuple(parts))
    for buffer, versions in reversed(plan.versions.items()):
        new = st.Alloc(_versioned(buffer, versions), new)
    return new


def _plan(loop: st.For, context: Context) -> PipelinePlan:
    notes = dict(loop.annotations)
    held: list[Buffer] = []
    body = loop.body
    while isinstance(body, st.Alloc):
        held.append(body.buffer)
        body = body.body
    stmts = body.stmts if isinstance(body, st.Seq) else (body,)
    stages: Any = notes[STAGE]
    places: Any = notes.get(ORDER, tuple(range(len(stmts))))
    message = f"The loop {str(loop.var.name)!r} cannot be pipelined."
    where = loop.var.name
    if len(stages) != len(stmts) or any(not isinstance(s, int) or s < 0 for s in stages):
        expected = f"a stage for each of {len(stmts)} statements"
        raise refused(message, where, expected, str(stages))
    if sorted(places) != list(range(len(stmts))):
        expected = f"a place for each of {len(stmts)} statements"
        raise refused(message, where, expected, str(places))
    if loop.kind != "serial":
        raise refused(message, where, "a serial loop", loop.kind)
    if not isinstance(notes.get(SPARE, 0), int) or notes.get(SPARE, 0) < 0:  # type: ignore[operator]  # a number, as was asked
        raise refused(message, where, "a number of spare versions", str(notes[SPARE]))
    for buffer in held:
        if buffer.strides or loop.var in free_vars(buffer):
            raise refused(message, where, "buffers of one form", f"{buffer.name} has its own")
    plan = PipelinePlan(loop, stmts, tuple(stages), tuple(places), {})
    _check(plan, held, context)
    return plan


def _check(plan: PipelinePlan, held: list[Buffer], context: Context) -> None:
    """Refuse an order that breaks a dependence; count the versions of each buffer."""
    loop, message = plan.loop, f"The loop {str(plan.loop.var.name)!r} cannot be pipelined."
    touched = [accesses(statement, context.loop(loop.var, loop.extent)) for statement in plan.stmts]
    reads = [{access.buffer for access in of if not access.written} for of in touched]
    writes = [{access.buffer for access in of if access.written} for of in touched]
    when = list(zip(plan.stages, plan.places, strict=True))
    for a in range(len(plan.stmts)):
        for b in range(a + 1, len(plan.stmts)):
            shared = (writes[a] & (reads[b] | writes[b])) | (reads[a] & writes[b])
            for buffer in sorted(shared, key=lambda each: each.name):
                between = f"statements {a} and {b} over {buffer.name}"
                if when[a] > when[b]:
                    expected = "statements that run after what they need"
                    raise refused(message, loop.var.name, expected, between)
                if plan.stages[a] != plan.stages[b] and buffer not in held:
                    expected = "buffers of the loop's own between statements of different stages"
                    raise refused(message, loop.var.name, expected, between)
    spare: Any = dict(loop.annotations).get(SPARE, 0)
    for buffer in held:
        writers = [at for at in range(len(when)) if buffer in writes[at]]
        users = [at for at in range(len(when)) if buffer in reads[at] | writes[at]]
        most = 1
        for writer in writers:
            for user in users:
                apart = plan.stages[user] - plan.stages[writer]
                most = max(most, apart + (0 if plan.places[writer] > plan.places[user] else 1))
        plan.versions[buffer] = most + (spare if most > 1 else 0)


def _versioned(buffer: Buffer, versions: int) -> Buffer:
    if versions == 1:
        return buffer
    shape = (index(versions), *buffer.shape)
    return Buffer(buffer.name, shape, buffer.dtype, buffer.scope, (), buffer.align)


def _at(plan: PipelinePlan, number: int, iteration: Scalar) -> st.Stmt:
    """A statement of the loop at an iteration."""
    var = plan.loop.var

    def change(node: Term) -> Term:
        match node:
            case Load(buffer, indices) if plan.versions.get(buffer, 1) > 1:
                count = plan.versions[buffer]
                return Load(_versioned(buffer, count), (var % count, *indices))
            case st.Store(buffer, indices, value) if plan.versions.get(buffer, 1) > 1:
                count = plan.versions[buffer]
                return st.Store(_versioned(buffer, count), (var % count, *indices), value)
            case st.Region(buffer, starts, extents) if plan.versions.get(buffer, 1) > 1:
                count = plan.versions[buffer]
                new = _versioned(buffer, count)
                return st.Region(new, (var % count, *starts), (index(1), *extents))
            case _:
                return node

    own = map_bottom_up(change, plan.stmts[number])
    return substitute(own, {var: simple(iteration)})


def _guarded(plan: PipelinePlan, number: int, iteration: Scalar) -> st.Stmt:
    """A statement at an iteration, if that exists."""
    condition = simple(Lt(iteration, plan.loop.extent))
    stmt = _at(plan, number, iteration)
    if known(condition) is not None:
        return stmt if known(condition) else st.NOTHING
    return st.Branch(condition, stmt, st.NOTHING)
