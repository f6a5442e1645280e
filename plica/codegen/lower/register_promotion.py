"""Promotion: memory of which every thread of a block has its own elements becomes registers.

    with alloc(S[8, 32], "shared"):             for t in threadIdx.x(32):
        for t in threadIdx.x(32):                   with alloc(S[8], "local"):
            for k: S[k, t] = A[k, t]      -->           for k: S[k] = A[k, t]
        for t in threadIdx.x(32):                       for k: B[k, t] = S[k]
            for k: B[k, t] = S[k, t]

A schedule keeps a row of several stages in shared memory; where each thread only reads what it
wrote itself, registers suffice. Loops over the same threads are merged into one loop, around
enclosing serial loops, because registers live no longer than their thread: barriers are inserted
later.

Law: the kernel means the same once it has its barriers.
"""

from __future__ import annotations

from collections.abc import Iterator

from plica.analysis.index.context import conjuncts
from plica.analysis.site import distinct, map_of
from plica.analysis.statement import mapped, reads_memory, with_body
from plica.core import Name, Term, fresh, map_bottom_up, post_order, substitute
from plica.ir.loop import statement as st
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import Buffer, Eq, Load, Lt, Scalar, ScalarVar, index
from plica.ir.type import i64, known

LARGEST = 64  # elements that a thread has registers for


def promote_to_registers(kernel: st.Kernel) -> st.Kernel:
    """The kernel with registers for what threads do not share."""
    every = [each.buffer for each in st.statements(kernel.body) if isinstance(each, st.Alloc)]
    if not any(map(_is_shared, every)):
        return kernel
    kernel = distinct(kernel)
    used = set(map_of(kernel).names)

    def change(stmt: st.Stmt) -> st.Stmt:
        outermost = isinstance(stmt, st.For) and stmt.kind.startswith("blockIdx")
        inside = stmt.body if isinstance(stmt, st.For) else stmt
        if not outermost or (isinstance(inside, st.For) and inside.kind.startswith("blockIdx")):
            return stmt
        assert isinstance(stmt, st.For)
        if (statement := _with_registers(inside, used)) is None:
            return stmt
        return st.For(stmt.var, stmt.extent, stmt.kind, statement, stmt.annotations)

    return with_body(kernel, mapped(kernel.body, change))


def _is_shared(buffer: Buffer) -> bool:
    return scope(buffer.scope).reach == "block"


def _with_registers(body: st.Stmt, used: set[Name]) -> st.Stmt | None:
    """The threads' code with registers, in merged loops over the same threads; None if nothing
    changes."""
    if not (tags := _threads(body)):
        return None
    whole = {tag: ScalarVar(_name(tag.replace("Idx.", "_"), used), i64) for tag in tags}
    joined = _joined(body, whole, tags)
    kept = [each.buffer for each in st.statements(joined) if isinstance(each, st.Alloc)]
    axes = {each: _axes(each, joined, whole, tags) for each in kept if _is_shared(each)}
    made = {each: _register(each, at) for each, at in axes.items() if at is not None}
    if not made and all(known(loop.extent) == tags[loop.kind] for loop in _thread_loops(body)):
        return None

    def change(node: Term) -> Term:
        match node:
            case Load(buffer, indices) if buffer in made:
                return Load(made[buffer], _rest(indices, axes[buffer]))
            case st.Store(buffer, indices, value) if buffer in made:
                return st.Store(made[buffer], _rest(indices, axes[buffer]), value)
            case st.Alloc(buffer, inside) if buffer in made:
                return st.Alloc(made[buffer], inside)
            case _:
                return node

    inner = map_bottom_up(change, joined)
    for tag in reversed(tags):
        inner = st.For(whole[tag], index(tags[tag]), tag, inner)  # type: ignore[arg-type]  # a tag is a kind, a term keeps its sort
    return inner


def _has_threads(stmt: st.Stmt) -> bool:
    return any(isinstance(s, st.For) and s.kind in st.THREADS for s in st.statements(stmt))


def _thread_loops(body: st.Stmt) -> Iterator[st.For]:
    """All loops over threads of a block."""
    for statement in st.statements(body):
        if isinstance(statement, st.For) and statement.kind.startswith("threadIdx"):
            yield statement


def _threads(body: st.Stmt) -> dict[str, int] | None:
    """The numbers of threads if all code is in thread loops; otherwise None."""
    found: dict[str, int] | None = None
    stack: list[tuple[st.Stmt, dict[str, int]]] = [(body, {})]
    while stack:
        stmt, around = stack.pop()
        match stmt:
            case st.Seq(stmts):
                stack += [(statement, around) for statement in stmts]
            case st.Alloc(_, inside):
                stack.append((inside, around))
            case st.For(var, extent, kind, inside) if kind.startswith("threadIdx"):
                size = known(extent)
                if size is None or kind in around or var.dtype is not i64:
                    return None
                stack.append((inside, {**around, kind: size}))
            case st.For(_, extent, "serial" | "unrolled", inside) if _has_threads(
                inside
            ) and not reads_memory(extent):
                stack.append((inside, around))  # all threads go through it together
            case st.Branch(asked, then, orelse) if _has_threads(stmt) and not reads_memory(asked):
                stack += [(then, around), (orelse, around)]
            case _:
                if _has_threads(stmt) or (found is not None and [*found] != [*around]):
                    return None
                found = {tag: max(size, (found or around)[tag]) for tag, size in around.items()}
    return found


def _joined(body: st.Stmt, whole: dict[str, ScalarVar], tags: dict[str, int]) -> st.Stmt:
    """The bodies of the thread loops, in terms of the variables of one enclosing nest."""
    now: dict[Term, Term] = {}
    for statement in st.statements(body):
        if isinstance(statement, st.For) and statement.kind in whole:
            now[statement.var] = whole[statement.kind]

    def bare(stmt: st.Stmt) -> st.Stmt:
        if not isinstance(stmt, st.For) or stmt.kind not in whole:
            return stmt
        if known(stmt.extent) == tags[stmt.kind]:
            return stmt.body
        return st.Branch(Lt(stmt.var, stmt.extent), stmt.body, st.NOTHING)

    return substitute(mapped(body, bare), now)


def _axes(
    of: Buffer, body: st.Stmt, whole: dict[str, ScalarVar], tags: dict[str, int]
) -> tuple[int, ...] | None:
    """The axes of a buffer that identify the thread in every access, or None."""
    shape = [known(size) for size in of.shape]
    if any(size is None for size in shape) or of.strides:
        return None
    first = _first_alone(of, body, whole)
    chosen: tuple[int, ...] | None = None
    for node in post_order(body):
        if isinstance(node, st.Region) and node.buffer is of:
            return None
        if not isinstance(node, Load | st.Store) or node.buffer is not of:
            continue
        at = []
        for tag, var in whole.items():
            here = [n for n, scalar in enumerate(node.indices) if scalar is var]
            if not here and tags[tag] > 1 and tag not in first:
                return None
            at += here[:1]
        axes = tuple(at)
        if chosen is not None and axes != chosen:
            return None
        chosen = axes
    if chosen is None:
        return None
    count = 1
    for n, size in enumerate(shape):
        count *= 1 if n in chosen else size or 0
    return chosen if count <= LARGEST else None


def _first_alone(of: Buffer, body: st.Stmt, whole: dict[str, ScalarVar]) -> frozenset[str]:
    """The axes of threads along which the first alone uses a buffer."""
    found = frozenset(whole)
    stack: list[tuple[st.Stmt, frozenset[str]]] = [(body, frozenset())]
    while stack and found:
        stmt, inside = stack.pop()
        parts = st.substatements(stmt)
        own = [child for child in stmt._children if child not in parts]
        used = isinstance(stmt, st.Store) and stmt.buffer is of
        if used or any(isinstance(e, Load) and e.buffer is of for e in post_order(*own)):
            found &= inside
        if isinstance(stmt, st.Branch):
            then = {tag for conjunct in conjuncts(stmt.condition) for tag, var in whole.items()
                    if conjunct in (Eq(var, index(0)), Lt(var, index(1)))}  # fmt: skip
            stack += [(stmt.then, inside | then), (stmt.orelse, inside)]
        else:
            stack += [(part, inside) for part in parts]
    return found


def _register(of: Buffer, axes: tuple[int, ...]) -> Buffer:
    shape = [size for n, size in enumerate(of.shape) if n not in axes]
    return Buffer(of.name, tuple(shape) or (index(1),), of.dtype, "local")


def _rest(indices: tuple[Scalar, ...], axes: tuple[int, ...] | None) -> tuple[Scalar, ...]:
    assert axes is not None
    return tuple([scalar for n, scalar in enumerate(indices) if n not in axes]) or (index(0),)


def _name(hint: str, used: set[Name]) -> Name:
    name = fresh(Name(hint), used)
    used.add(name)
    return name
