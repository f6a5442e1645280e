"""Verifiers of loop programs: each returns the defects of a kernel.

`well_formed` checks what every kernel needs: bound names, matching element types, distinct block
labels, and blocks that use only their own variables. `capacities` adds up the memory of each scope.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import For, Kernel, Store
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i, j = buffer("x", (3,), f32), buffer("y", (3,), f32), axis("i"), axis("j")
>>> bad = Kernel((), (x, y), 1, For(i, x.shape[0], "serial", Store(y, (i,), x[j])))
>>> [each.code for each in well_formed(bad)]
['unbound-name']

Not here: device limits (`plica.ir.loop.device_limit`), and properties that need a proof, such as
bounds and declared regions (`plica.schedule.verify`).

Isolation: a block's body speaks of the block's own variables.

A block depends only on its iteration variables, those of enclosing blocks, and the kernel's dims;
never on enclosing loops, which would make it immovable.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import For, Kernel, Store, block
>>> from plica.ir.loop.tensor import axis, buffer
>>> y, i, v = buffer("y", (3,), f32), axis("i"), axis("v")
>>> bad = block("y", (v,), (3,), "s", (i,), Store(y, (i,), y[v]))
>>> [each.code for each in trespasses(Kernel((), (y,), 0, For(i, y.shape[0], "serial", bad)))]
['block-isolation']
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from plica.core import EvaluationError, Name, Term, free_vars
from plica.ir.loop import scalar as sc, statement as st
from plica.ir.loop.invocation import find_intrinsic, misfit, unknown_intrinsic
from plica.ir.loop.memory_scope import is_scope, scopes, unknown_scope
from plica.ir.loop.scalar import ScalarVar
from plica.ir.loop.statement import Bind, Block, For, Kernel, Stmt, substatements
from plica.ir.loop.vector import lanes_of, store_lanes
from plica.ir.type.dtype import DType, bool_
from plica.runtime.error import Diagnostic, Place


def well_formed(kernel: st.Kernel) -> tuple[Diagnostic, ...]:
    """The target-independent defects of a kernel."""
    checks = (_unbound, _repeated, trespasses, _ill_typed, _stored_inputs, _scopes, _invocations)
    return tuple([diagnostic for check in checks for diagnostic in check(kernel)])


def finding(code: str, message: str, where: object, *details: str | None) -> Diagnostic:
    """A diagnostic at a place of a kernel."""
    return Diagnostic(code, message, Place(node=str(where)), *details)


def _unbound(kernel: st.Kernel) -> Iterator[Diagnostic]:
    free = [each for each in free_vars(kernel) if isinstance(each, sc.ScalarVar | sc.Buffer)]
    for each in sorted(free, key=lambda var: (var.name, type(var).__name__)):
        what = "buffer" if isinstance(each, sc.Buffer) else "variable"
        message = f"The {what} {str(each.name)!r} is used where nothing binds it."
        yield finding("unbound-name", message, each.name)


def _repeated(kernel: st.Kernel) -> Iterator[Diagnostic]:
    seen: set[Name] = set()
    for stmt in st.statements_of(st.Block, kernel.body):
        if stmt.label in seen:
            message = f"Two blocks are called {str(stmt.label)!r}."
            yield finding("duplicate-name", message, stmt.label)
        seen.add(stmt.label)


def _stored_inputs(kernel: st.Kernel) -> Iterator[Diagnostic]:
    inputs = frozenset(kernel.params[: kernel.inputs])
    told: set[sc.Buffer] = set()
    for stmt in st.statements_of(st.Store, kernel.body):
        if stmt.buffer in inputs and stmt.buffer not in told:
            told.add(stmt.buffer)
            name = str(stmt.buffer.name)
            message = f"The kernel stores to {name!r}, which it only reads."
            hint = "Count it among the buffers it writes."
            yield finding("ill-formed-term", message, name, None, None, hint)


def _scopes(kernel: st.Kernel) -> Iterator[Diagnostic]:
    buffers = [each.buffer for each in st.statements_of(st.Alloc, kernel.body)]
    for buffer in (*kernel.params, *buffers):
        if not is_scope(buffer.scope):
            yield unknown_scope(buffer.scope)
        if buffer.strides and len(buffer.strides) != len(buffer.shape):
            message = f"The buffer {str(buffer.name)!r} has the wrong number of strides."
            wanted, found = str(len(buffer.shape)), str(len(buffer.strides))
            yield finding("ill-formed-term", message, buffer.name, wanted, found)


def _invocations(kernel: st.Kernel) -> Iterator[Diagnostic]:
    for stmt in st.statements_of(st.Invoke, kernel.body):
        known = find_intrinsic(stmt.name)
        wrong = unknown_intrinsic(stmt.name) if known is None else misfit(stmt, known.meaning)
        if wrong is not None:
            yield wrong


# --- element types -------------------------------------------------------------------------------


def _ill_typed(kernel: st.Kernel) -> Iterator[Diagnostic]:
    seen: set[Term] = set()
    for stmt in st.statements(kernel.body):
        for place, scalar, wanted in _typed(stmt):
            yield from _scalar(scalar, place, seen)
            dtype = sc.dtype_of(scalar)
            if wanted == "index" and not dtype.is_integer:
                message = "An index, an extent or a binding is not an integer."
                yield finding("dtype-conflict", message, place, "an integer", str(dtype))
            elif isinstance(wanted, DType) and dtype is not wanted:
                message = "A value has another element type than the place it goes to."
                yield finding("dtype-conflict", message, place, str(wanted), str(dtype))
        yield from _lanes(stmt)


def _typed(stmt: st.Stmt) -> list[tuple[str, sc.Scalar, DType | str]]:
    """The scalars directly in a statement: where they stand, and what they must be."""
    match stmt:
        case st.For(var, extent):
            return [(str(var.name), extent, "index")]
        case st.Block():
            name = str(stmt.label)
            places = [(name, scalar, "index") for scalar in (*stmt.extents, *stmt.bindings)]
            for region in (*stmt.reads, *stmt.writes):
                places += [(name, scalar, "index") for scalar in (*region.starts, *region.extents)]
            return [*places, (name, stmt.predicate, bool_)]
        case st.Store(buffer, indices, value):
            name = str(buffer.name)
            return [*[(name, index, "index") for index in indices], (name, value, buffer.dtype)]
        case st.Branch(condition) | st.While(condition):
            return [("a condition", condition, bool_)]
        case st.Bind(var, value):
            return [(str(var.name), value, var.dtype)]
        case st.Alloc(buffer):
            sizes = (*buffer.shape, *buffer.strides)
            return [(str(buffer.name), size, "index") for size in sizes]
        case st.Invoke(name, operands):
            found: list[tuple[str, sc.Scalar, DType | str]] = []
            for operand in operands:
                if isinstance(operand, st.Region):
                    found += [(name, part, "index") for part in (*operand.starts, *operand.extents)]
                else:
                    found.append((name, operand, "index"))
            return found
        case _:
            return []


def _scalar(root: sc.Scalar, place: str, seen: set[Term]) -> Iterator[Diagnostic]:
    """The defects of a scalar: operand types that differ, indices that are not integers."""
    stack: list[sc.Scalar] = [root]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, sc.Load):
            for index in node.indices:
                if not sc.dtype_of(index).is_integer:
                    message = f"An index of {str(node.buffer.name)!r} is not an integer."
                    yield finding(
                        "dtype-conflict", message, place, "an integer", str(sc.dtype_of(index))
                    )
            stack.extend(node.indices)
            continue
        kids = [kid for kid in node._children if isinstance(kid, sc.Scalar)]
        if isinstance(node, sc.Intrinsic) and sc.row_of(node) is None:
            message = f"No scalar intrinsic is called {node.name!r}."
            hint = "Declare it with plica.ir.loop.scalar_table.declare_scalar."
            yield Diagnostic("unknown-intrinsic", message, Place(node=place), suggestion=hint)
        if isinstance(node, sc.BINARY + sc.COMPARISON) and sc.dtype_of(kids[0]) is not sc.dtype_of(
            kids[1]
        ):
            message = f"The sides of a {type(node).__name__} have different element types."
            left, right = (str(sc.dtype_of(kid)) for kid in kids)
            yield finding("dtype-conflict", message, place, left, right)
        elif (
            isinstance(node, (*sc.BINARY, sc.Intrinsic, sc.Reduce)) and sc.dtype_of(node).is_storage
        ):
            message = (
                f"{sc.dtype_of(node)} only keeps numbers: cast before a {type(node).__name__}."
            )
            yield finding("dtype-conflict", message, place, "a cast", str(sc.dtype_of(node)))
        stack.extend(kids)


def _lanes(stmt: st.Stmt) -> Iterator[Diagnostic]:
    try:
        if isinstance(stmt, st.Store):
            store_lanes(stmt)
        else:
            for place, scalar, _ in _typed(stmt):
                if lanes_of(scalar) > 1:
                    message = "A vector stands where one number is wanted."
                    yield finding("shape-conflict", message, place)
    except EvaluationError as error:
        yield from error.diagnostics


# --- memory --------------------------------------------------------------------------------------


def capacities(kernel: st.Kernel) -> tuple[Diagnostic, ...]:
    """The scopes whose buffers, as many as are alive together, do not fit.

    Buffers of symbolic size are not counted: their size is known when the kernel is specialised.
    """
    found = []
    for scope in scopes():
        if scope.capacity is not None:
            need = peak_bytes(kernel, (scope.name,))
            if need > scope.capacity:
                message = f"The buffers in the memory scope {scope.name!r} do not fit."
                expected, there = f"at most {scope.capacity} bytes", f"{need} bytes"
                found.append(finding("scope-capacity", message, scope.name, expected, there))
    return tuple(found)


def peak_bytes(kernel: st.Kernel, names: Iterable[str]) -> int:
    """The bytes of the buffers in some scopes that are alive at one time, at most."""
    wanted = frozenset(names)
    start = sum(_bytes(param) for param in kernel.params if param.scope in wanted)
    most = start
    stack: list[tuple[st.Stmt, int]] = [(kernel.body, start)]
    while stack:
        stmt, alive = stack.pop()
        if isinstance(stmt, st.Alloc) and stmt.buffer.scope in wanted:
            alive += _bytes(stmt.buffer)
            most = max(most, alive)
        stack.extend((substatement, alive) for substatement in st.substatements(stmt))
    return most


def _bytes(buffer: sc.Buffer) -> int:
    sizes = [each.value for each in buffer.shape if isinstance(each, sc.Lit)]
    steps = [stride.value for stride in buffer.strides if isinstance(stride, sc.Lit)]
    if len(sizes) != len(buffer.shape) or len(steps) != len(buffer.strides):
        return 0
    count = 1
    for size in sizes:
        count *= int(size)
    if steps and count:
        count = 1 + sum(
            abs((int(size) - 1) * int(step)) for size, step in zip(sizes, steps, strict=True)
        )
    return count * buffer.dtype.bytes


@lru_cache(maxsize=256)
def trespasses(kernel: Kernel) -> tuple[Diagnostic, ...]:
    """The blocks that speak of variables of loops, or of bindings, around them."""
    found = []
    around: dict[Term, bool] = {}  # the variables in force, and whether blocks must not use them
    stack: list[Stmt | dict[Term, bool | None]] = [kernel.body]
    while stack:
        if isinstance(stmt := stack.pop(), dict):
            for var, before in stmt.items():
                if before is None:
                    del around[var]
                else:
                    around[var] = before
            continue
        if isinstance(stmt, Block):
            if names := _foreign(stmt, around):
                found.append(_trespass(stmt, names))
            own, forbidden = stmt.vars, False
        elif isinstance(stmt, For | Bind):
            own, forbidden = (stmt.var,), True
        else:
            stack.extend(reversed(substatements(stmt)))
            continue
        stack.append({var: around.get(var) for var in own})
        around.update(dict.fromkeys(own, forbidden))
        stack.extend(reversed(substatements(stmt)))
    return tuple(found)


def _foreign(block: Block, around: dict[Term, bool]) -> list[str]:
    parts = (block.init, block.body, *block.reads, *block.writes)
    free = frozenset[Term]().union(*[free_vars(part) for part in parts if part is not None])
    wrong = [term for term in free if around.get(term) and term not in block.vars]
    return sorted(str(each.name) for each in wrong if isinstance(each, ScalarVar))


def _trespass(block: Block, names: list[str]) -> Diagnostic:
    return Diagnostic(
        "block-isolation",
        f"The block {str(block.label)!r} speaks of variables that are not its own.",
        Place(node=str(block.label)),
        "variables of this block and of blocks around it, and the kernel's dims",
        ", ".join(names),
        "Bind them to variables of the block.",
    )
