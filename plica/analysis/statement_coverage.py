"""Coverage of statements: whether a statement reads from a buffer only what it wrote itself.

If so, the buffer's contents need not survive from one run of the statement to the next: the buffer
may live inside, and iterations may have one each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import TypeGuard

from attrs import evolve, frozen

from plica.analysis.coverage import proved, reached
from plica.analysis.index import EMPTY, Context
from plica.analysis.index.context import negated
from plica.analysis.statement import direct_scalars, opened_sum
from plica.analysis.write import Write, joined
from plica.core import Name, Term, free_vars, map_top_down, post_order, substitute
from plica.ir.loop import scalar as sc, statement as st
from plica.ir.loop.invocation import find_intrinsic
from plica.ir.loop.vector import has_vectors
from plica.ir.type import i64


@frozen(eq=False)
class AccessStep:
    """One statement around an access: which of its substatements, and what that adds."""

    stmt: st.Stmt
    position: int
    loop: tuple[sc.ScalarVar, sc.Scalar] | None = None
    guard: sc.Scalar | None = None
    bindings: tuple[sc.Scalar, ...] = ()  # of a block, in terms of loops


@frozen(eq=False)
class CoveredAccess:
    """An access of a buffer, in terms of loops, and the way to it from outside."""

    indices: tuple[sc.Scalar, ...]
    written: bool
    way: tuple[AccessStep, ...]
    choices: int = 0  # how many steps at the end of the way are choices between values

    @property
    def statement_way(self) -> tuple[AccessStep, ...]:
        """The way to the statement, as if every choice in it took this access."""
        return self.way[: len(self.way) - self.choices]

    def context(self, start: Context) -> Context:
        for step in self.way:
            if step.loop is not None:
                start = start.loop(*step.loop)
            if step.guard is not None:
                start = start.where(step.guard)
        return start


@frozen(eq=False)
class InitWrite:
    """A write of a block's init: `shared` steps of its way are around the block's body as well."""

    write: CoveredAccess
    shared: int
    inner: Write


def covered(inside: st.Stmt, buffer: sc.Buffer, context: Context = EMPTY) -> bool:
    """Whether each execution of a statement reads from a buffer only what it wrote before."""
    return _covered(part_touching(inside, buffer), buffer, context)


@lru_cache(maxsize=1024)  # kernels that differ in an epilogue have the same stages before it
def _covered(inside: st.Stmt, buffer: sc.Buffer, context: Context) -> bool:
    found: list[CoveredAccess] = []
    for each in _touches(inside, buffer):
        if each is None:
            return False
        found.append(each)
    writes = [each for each in found if each.written]
    reads: dict[tuple[AccessStep, ...], list[CoveredAccess]] = {}
    for each in found:
        if not each.written:
            reads.setdefault(each.statement_way, []).append(each)
    return all(
        _is_written_before(writes, way, each, context)
        or _are_written_where_chosen(writes, way, each, context)
        for way, each in reads.items()
    )


def _are_written_where_chosen(
    writes: Sequence[CoveredAccess],
    way: tuple[AccessStep, ...],
    reads: Sequence[CoveredAccess],
    context: Context,
) -> bool:
    """Whether each read is preceded by its writes, given the branches that lead to the read."""
    chosen: dict[tuple[AccessStep, ...], list[CoveredAccess]] = {}
    for read in reads:
        chosen.setdefault(read.way, []).append(read)
    return list(chosen) != [way] and all(
        _is_written_before(writes, steps, taken, context) for steps, taken in chosen.items()
    )


def _is_written_before(
    writes: Sequence[CoveredAccess],
    way: tuple[AccessStep, ...],
    reads: Sequence[CoveredAccess],
    start: Context,
) -> bool:
    """Whether every element of one read is written before it."""
    if not writes:
        return False
    context = CoveredAccess((), False, way).context(start)
    before, inits = _coming_before(writes, way)
    places = list(dict.fromkeys([read.indices for read in reads]))
    together = joined([Write(place, ()) for place in places], "a read")

    def all_reached(wanted: Sequence[Write]) -> bool:
        for write in wanted:
            here = context.loops(write.loops)
            inits_of = partial(_init_before, element=write.indices, context=here)
            if not any(map(inits_of, inits)) and not reached(before, write.indices, here):
                return False
        return True

    return all_reached(together) or (
        len(together) < len(places)
        and len(writes) > 1
        and all_reached([Write(place, ()) for place in places])
    )


def _coming_before(
    writes: Sequence[CoveredAccess], way: tuple[AccessStep, ...]
) -> tuple[list[Write], list[InitWrite]]:
    """The writes that precede a place in a statement, including those of inits that may."""
    before: list[Write] = []
    inits: list[InitWrite] = []
    for write in writes:
        shared = 0
        for one, two in zip(write.way, way, strict=False):
            if one.stmt is not two.stmt or one.position != two.position:
                break
            shared += 1
        if shared == min(len(write.way), len(way)):
            continue  # a store reads before it writes
        one, two = write.way[shared], way[shared]
        if one.position >= two.position:
            continue
        rest = write.way[shared + 1 :]
        if any(_is_unclear(step) for step in rest):
            continue
        loops = tuple([step.loop for step in rest if step.loop is not None])
        guards = tuple([step.guard for step in rest if step.guard is not None])
        inner = Write(write.indices, loops, guards)
        if isinstance(one.stmt, st.Block):
            inits.append(InitWrite(write, shared, inner))
        elif isinstance(one.stmt, st.Seq):
            before.append(inner)
    return before, inits


def touches_buffer(stmt: st.Stmt, buffer: sc.Buffer) -> bool:
    """Whether a statement reads or writes a buffer somewhere."""
    return buffer in free_vars(stmt)


def part_touching(stmt: st.Stmt, buffer: sc.Buffer) -> st.Stmt:
    """A statement reduced to the parts that read or write a buffer."""
    while isinstance(stmt, st.Alloc | st.Seq):
        if isinstance(stmt, st.Alloc):
            stmt = stmt.body
            continue
        parts = [statement for statement in stmt.stmts if touches_buffer(statement, buffer)]
        if len(parts) != 1:
            return st.seq(*parts)
        (stmt,) = parts
    return stmt


def _touches(root: st.Stmt, buffer: sc.Buffer) -> Iterator[CoveredAccess | None]:
    """The accesses of a buffer; None for one that is not understood."""
    stack: list[tuple[st.Stmt, tuple[AccessStep, ...], dict[Term, sc.Scalar]]] = [(root, (), {})]
    while stack:
        stmt, way, values = stack.pop()
        if buffer not in free_vars(stmt):
            continue
        match stmt:
            case st.Store(target, indices, _) if target is buffer:
                yield _touch(indices, True, way, values)
            case st.Invoke(_, operands):
                for at, operand in enumerate(operands):
                    if isinstance(operand, st.Region) and operand.buffer is buffer:
                        yield _whole(operand, stmt, way, values, written=_begins(stmt, at))
            case st.While():
                yield None
            case _:
                pass
        for scalar in direct_scalars(stmt):
            if buffer in free_vars(scalar):
                yield from _loads(scalar, buffer, stmt, way, values)
        steps, inner = _steps(stmt, values)
        stack.extend(
            (statement, (*way, step), inner)
            for statement, step in reversed(list(zip(st.substatements(stmt), steps, strict=True)))
        )


def _touch(
    indices: Sequence[sc.Scalar],
    written: bool,
    way: tuple[AccessStep, ...],
    values: Mapping[Term, sc.Scalar],
) -> CoveredAccess | None:
    if any(has_vectors(index) or _opaque(index) for index in indices):
        return None
    return CoveredAccess(tuple([substitute(index, values) for index in indices]), written, way)


def _gathered(load: sc.Load) -> tuple[list[sc.Scalar], tuple[AccessStep, ...]]:
    """Indices with a fresh variable for each loaded number, and the constraints on these."""
    read: dict[Term, sc.ScalarVar] = {}

    def one(node: Term) -> Term:
        plain = node.value if isinstance(node, sc.Cast) else node
        if isinstance(plain, sc.Load) and isinstance(node, sc.Scalar) and sc.dtype_of(node) is i64:
            return read.setdefault(node, sc.ScalarVar(Name("a number read", len(read)), i64))
        return node

    places: list[sc.Scalar] = []
    steps: list[AccessStep] = []
    for size, index in zip(load.buffer.shape, load.indices, strict=True):
        place = map_top_down(one, index) if _opaque(index) and sc.dtype_of(index) is i64 else index
        if place is not index:
            steps += [AccessStep(st.NOTHING, 0, guard=inside)
                      for inside in (sc.Le(sc.index(0), place), sc.Lt(place, size))]  # fmt: skip
        places.append(place)
    return places, tuple(steps)


def _begins(call: st.Invoke, at: int) -> bool:
    """Whether an intrinsic writes all elements of a region before it does anything else.

    Then it reads nothing of it that was there.
    """
    intrinsic = find_intrinsic(call.name)
    if intrinsic is None or at >= len(intrinsic.meaning.params):
        return False
    buffer, stmt = intrinsic.meaning.params[at], intrinsic.meaning.body
    if isinstance(stmt, st.Seq) and stmt.stmts:
        stmt = stmt.stmts[0]
    loops: list[tuple[Term, sc.Scalar]] = []
    while isinstance(stmt, st.For):
        loops.append((stmt.var, stmt.extent))
        stmt = stmt.body
    if not isinstance(stmt, st.Store) or stmt.buffer is not buffer:
        return False
    places = dict(zip(stmt.indices, buffer.shape, strict=True))
    whole = len(places) == len(stmt.indices) == len(loops)
    return whole and places == dict(loops) and buffer not in free_vars(stmt.value)


def _whole(
    of: st.Region,
    call: st.Invoke,
    way: tuple[AccessStep, ...],
    values: Mapping[Term, sc.Scalar],
    *,
    written: bool,
) -> CoveredAccess | None:
    """All of a region that is given to an intrinsic.

    It may read all, and may have written none of it, unless it begins with writing all.
    """
    places: list[sc.Scalar] = []
    for at, (start, extent) in enumerate(zip(of.starts, of.extents, strict=True)):
        var = sc.ScalarVar(Name("an element", at), i64)
        way = (*way, AccessStep(call, 0, (var, substitute(extent, values))))
        places.append(start + var)
    return _touch(places, written, way, values)


def _opaque(term: sc.Scalar) -> bool:
    return any(isinstance(var, sc.Buffer) for var in free_vars(term))


def _loads(
    root: sc.Scalar,
    buffer: sc.Buffer,
    stmt: st.Stmt,
    way: tuple[AccessStep, ...],
    values: Mapping[Term, sc.Scalar],
) -> Iterator[CoveredAccess | None]:
    """The loads of a term; those in branches that are not taken do not count."""
    binders = [term for term in post_order(root) if type(term).binds]
    bound = {kid for node in binders if not isinstance(node, sc.Reduce) for kid in node._children}
    stack: list[tuple[Term, tuple[AccessStep, ...], tuple[AccessStep, ...]]] = [(root, (), ())]
    seen: set[tuple[Term, tuple[object, ...]]] = set()
    while stack:
        node, terms, guards = stack.pop()
        key = node, tuple([step.loop or step.guard for step in (*terms, *guards)])
        if key in seen or buffer not in free_vars(node):
            continue
        seen.add(key)
        if isinstance(node, sc.Load) and node.buffer is buffer:
            if not bound.isdisjoint(free_vars(node)):
                yield None
            else:
                places, known_of = _gathered(node)
                touch = _touch(places, False, (*way, *terms, *known_of, *guards), values)
                yield None if touch is None else evolve(touch, choices=len(guards))
        if isinstance(node, sc.Select) and not _opaque(node.condition):
            holds = substitute(node.condition, values)
            stack.append((node.then, terms, (*guards, AccessStep(stmt, 0, guard=holds))))
            stack.append((node.orelse, terms, (*guards, AccessStep(stmt, 1, guard=negated(holds)))))
        elif isinstance(node, sc.Reduce):
            body, loops = opened_sum(node, len(terms))
            own = [AccessStep(stmt, 0, (var, substitute(size, values))) for var, size in loops]
            stack.append((body, (*terms, *own), guards))
            stack.extend((extent, terms, guards) for extent in node.extents)
        else:
            kids = [child for child in node._children if isinstance(child, sc.Scalar)]
            stack.extend((child, terms, guards) for child in kids)


def _steps(
    stmt: st.Stmt, values: dict[Term, sc.Scalar]
) -> tuple[list[AccessStep], dict[Term, sc.Scalar]]:
    count = len(st.substatements(stmt))
    match stmt:
        case st.For(var, extent):
            return [AccessStep(stmt, 0, (var, substitute(extent, values)))], values
        case st.Branch(condition):
            holds = None if _opaque(condition) else substitute(condition, values)
            contrary = None if holds is None else negated(holds)
            return [AccessStep(stmt, 0, guard=holds), AccessStep(stmt, 1, guard=contrary)], values
        case st.Block():
            bindings = tuple([substitute(binding, values) for binding in stmt.bindings])
            plain = stmt.predicate is not st.TRUE and not _opaque(stmt.predicate)
            guard = substitute(stmt.predicate, values) if plain else None
            inner = dict(values)
            inner.update(zip(stmt.vars, bindings, strict=True))
            steps = [AccessStep(stmt, at, guard=guard, bindings=bindings) for at in range(count)]
            return steps, inner
        case st.Bind(var, value):
            inner = dict(values)
            if not _opaque(value):
                inner[var] = substitute(value, values)
            return [AccessStep(stmt, 0)], inner
        case _:
            return [AccessStep(stmt, at) for at in range(count)], values


# --- proofs --------------------------------------------------------------------------------------


def _is_unclear(step: AccessStep) -> bool:
    """Whether a statement runs its body under a condition that reads memory."""
    if step.guard is not None:
        return False
    return isinstance(step.stmt, st.Branch) or (
        isinstance(step.stmt, st.Block) and step.stmt.predicate is not st.TRUE
    )


def _init_before(init: InitWrite, element: tuple[sc.Scalar, ...], context: Context) -> bool:
    """Whether a block's init has written what its body reads, in this run."""
    way, shared = init.write.way, init.shared
    step = way[shared]
    block = step.stmt
    assert isinstance(block, st.Block)
    loops = {each.loop[0]: each.loop for each in way[:shared] if each.loop is not None}
    kinds = zip(step.bindings, block.kinds, strict=True)
    reducing = [binding for binding, kind in kinds if kind in st.ACCUMULATING]
    around = frozenset[Term]().union(*[free_vars(scalar) for scalar in reducing])
    if not around <= loops.keys():
        return False  # the reduction began in an earlier run
    kinds_around = {each.stmt.kind for each in way[:shared] if _is_loop(each.stmt, around)}
    if not kinds_around <= {"serial", "unrolled"}:
        return False
    if any(not around.isdisjoint(free_vars(place)) for place in init.write.indices):
        return False
    first: dict[Term, sc.Scalar] = {var: sc.Lit(0, i64) for var in around}
    conditions: list[sc.Scalar] = [
        sc.Eq(one, two) for one, two in zip(init.write.indices, element, strict=True)
    ]
    conditions += [sc.Eq(substitute(scalar, first), sc.index(0)) for scalar in reducing]
    for access_step in way[: shared + 1]:
        if _is_unclear(access_step):
            return False
        if access_step.guard is not None:
            conditions.append(substitute(access_step.guard, first))
        if access_step.loop is not None and not around.isdisjoint(free_vars(access_step.loop[1])):
            return False
    # The statements around the write inside the init run whenever the init does.
    return reached([init.inner], element, context) and all(
        proved(condition, context) for condition in conditions
    )


def _is_loop(stmt: st.Stmt, variables: frozenset[Term]) -> TypeGuard[st.For]:
    return isinstance(stmt, st.For) and stmt.var in variables
