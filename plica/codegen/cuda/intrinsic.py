"""Intrinsics in CUDA C++: their per-thread form, and where threads may execute them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from plica.analysis.statement import reads_memory, refused
from plica.codegen.cuda import warp_register as register, wgmma as group
from plica.codegen.cuda.address import valued
from plica.codegen.emit.expression import Expressions
from plica.core import CompilerBug, Term, free_vars, post_order
from plica.ir.loop.intrinsic import find_intrinsic
from plica.ir.loop.memory_scope import WARP, scope
from plica.ir.loop.scalar import Buffer, Load, Scalar, ScalarVar, index
from plica.ir.loop.statement import Bind, Branch, For, Invoke, Region, Stmt, substatements
from plica.ir.type import f32, known

LANE: Final = "threadIdx.x"  # the threads of a warp


def invocation(
    call: Invoke,
    values: Expressions,
    lane: ScalarVar | None,
    warp: tuple[ScalarVar, int] | None = None,
) -> str:
    """The call that implements an invocation; `lane` is the thread's index in its warp.

    `warp` is the warp's index, and the number of warps.
    """
    if group.is_product(call):
        return group.products(call, values, lane, warp)
    intrinsic = find_intrinsic(call.name)
    hints = {} if intrinsic is None else dict(intrinsic.hints)
    word = str(hints.get("cuda"))
    if word in ("row_max", "row_power", "row_sum") or "lanes" in hints:
        return register.rows(call, values, word, int(str(hints.get("lanes", 0))))
    if word == "restored":
        return register.restored(call, values, int(str(hints["bits"])))
    if word in ("quad_mma", "quad_mix"):
        return register.quads(call, values, word)
    if word == "warp_mma":
        return _from_registers(call, values, lane)
    if word != "mma":
        raise refused(
            f"The intrinsic {call.name!r} is not there for threads.",
            call.name, "one of tensor cores", "another",
        )  # fmt: skip
    a, b, c = [operand for operand in call.operands if isinstance(operand, Region)]
    if lane is None:
        raise _misplaced(call, "no loop over the threads of a warp around it")
    left, right = bool(hints["left"]), bool(hints["right"])
    high, wide = int(str(hints["high"])), int(str(hints["wide"]))
    if wide < 2 or wide % 2:
        raise _misplaced(call, f"{wide} squares across, where an even number can be")
    # The contribution of the lane, in elements, and its required value.
    *between, half, ak, ae = _steps(a, 4 if high > 1 else 3)
    (ai,) = between or (0,)
    bj, bk, *last = _steps(b)
    be, pair = last if not right else reversed(last)
    bytes_ = a.buffer.dtype.bytes == 1
    if a.buffer.dtype.bytes != 2 and not (left and right):
        kind = a.buffer.dtype.name
        raise _misplaced(call, f"{kind} of which rows or columns are neighbours, not terms")
    near = 16 // a.buffer.dtype.bytes
    rows, columns = (near, 1) if left else (1, 8), (near, 1) if right else (1, 8)
    at_a = _base(call, a, lane, rows[0], lambda number: number // 4)
    at_b = _base(call, b, lane, 2 * columns[0], lambda number: number % 4)
    if (ae, be, pair) != (rows[1], columns[1], columns[0]):
        raise _misplaced(call, "elements that do not lie together, eight by eight")
    whole = [known(extent) for extent in c.extents] == [known(dim) for dim in c.buffer.shape]
    if not whole or scope(c.buffer.scope).reach != "thread":
        raise _misplaced(call, f"a part of {c.buffer.name}, or one that is not a thread's own")
    numbers = (high, wide, int(not left), int(not right), ai, half, ak, bj, bk)
    kinds = [region.buffer.dtype.name for region in ((a, b) if bytes_ else (a,))]
    kinds = ["few", *kinds] if hints.get("few") else kinds
    function = values.help(f"p_mma_{'_'.join(kinds)}")
    sides = [f"&{values.place(region.buffer, at)}" for region, at in ((a, at_a), (b, at_b))]
    which = ", ".join(map(str, numbers))
    return f"{function}<{which}>({values.buffers[c.buffer]}, {', '.join(sides)});"


def _from_registers(call: Invoke, values: Expressions, lane: ScalarVar | None) -> str:
    """Products with a left operand in registers."""
    a, b, c = [operand for operand in call.operands if isinstance(operand, Region)]
    if lane is None:
        raise _misplaced(call, "no loop over the threads of a warp around it")
    wide = _sizes(b)[0]
    high = prod(_sizes(c)) // (4 * wide)
    if b.buffer.dtype is f32:  # eight terms at once, of which a thread has two neighbours
        *between, half, ah = _steps(a, 3 if high > 1 else 2)
    else:
        *between, half, ah, _ = _steps(a, 4 if high > 1 else 3)
    (ai,) = between or (0,)
    bj, bk, be, pair = _steps(b)
    at_b = _base(call, b, lane, 2, lambda number: number % 4)
    if (be, pair) != (8, 1) or wide % 2:
        raise _misplaced(call, "elements that do not lie together, eight by eight")
    function = values.help(f"p_warp_mma_{b.buffer.dtype.name}")
    which = ", ".join(map(str, (high, wide, ai, half, ah, bj, bk)))
    left = f"&{values.place(a.buffer, a.starts)}"
    right = f"&{values.place(b.buffer, at_b)}"
    return f"{function}<{which}>({values.buffers[c.buffer]}, {left}, {right});"


def _misplaced(call: Invoke, found: str) -> Exception:
    message = f"The intrinsic {call.name!r} cannot be done by a warp here."
    expected = "rows and columns of each thread as its number in the warp says"
    return refused(message, call.name, expected, found)


def _sizes(of: Region) -> list[int]:
    sizes = [known(extent) for extent in of.extents]
    if None in sizes:
        raise CompilerBug(f"A region of {of.buffer.name} has no known size.")
    return [size for size in sizes if size is not None and size != 1]


def _steps(of: Region, axes: int = 4) -> list[int]:
    """How far elements are from the next, along each axis of a region that has several."""
    found, step = list[int](), 1
    for extent, size in reversed([*zip(of.extents, of.buffer.shape, strict=True)]):
        if known(extent) != 1:
            found.insert(0, step)
        step *= known(size) or 1
    if of.buffer.strides or len(found) != axes:
        raise CompilerBug(f"A region of {of.buffer.name} is not one of squares.")
    return found


def _base(
    call: Invoke, of: Region, lane: ScalarVar, step: int, number: Callable[[int], int]
) -> tuple[Scalar, ...]:
    """Where the part of a whole warp begins; the place of a thread in it is checked."""
    places: list[Scalar] = []
    seen, size = False, 1
    for start, extent in reversed([*zip(of.starts, of.buffer.shape, strict=True)]):
        if lane in free_vars(start):
            told = [valued(start, lane, each) for each in range(WARP)]
            right = [known(scalar) for scalar in told] == [number(each) for each in range(WARP)]
            if seen or not right or size != step:
                raise _misplaced(call, f"{of.buffer.name} at other places")
            seen, start = True, index(0)
        places.insert(0, start)
        size *= known(extent) or 1
    if not seen:
        raise _misplaced(call, f"the same of {of.buffer.name} for all threads")
    return tuple(places)


def come_together(nest: Stmt) -> None:
    """Refuses warp-level work that not all threads may reach.

    All reach it if conditions and trip counts are uniform in a block.
    """
    stack: list[tuple[Stmt, bool, int, frozenset[Term]]] = [(nest, True, WARP, frozenset())]
    while stack:
        stmt, all_come, lanes, own = stack.pop()
        match stmt:
            case Invoke() if not (all_come and _takes(stmt, lanes)):
                raise _misplaced(stmt, "a condition around it")
            case Branch(condition):
                all_come = all_come and _is_same(condition, own)
            case For(var, extent, kind):
                all_come = all_come and _is_same(extent, own)
                if kind == LANE:
                    lanes = known(extent) or 0
                if kind.startswith("threadIdx"):
                    own |= {var}
            case Bind(var, value) if not _is_same(value, own):
                own |= {var}
            case _:
                pass
        stack += [(substatement, all_come, lanes, own) for substatement in substatements(stmt)]


def _takes(call: Invoke, lanes: int) -> bool:
    """Whether a loop over a given number of threads is one of a warp, or of the parts that join."""
    intrinsic = find_intrinsic(call.name)
    part = None if intrinsic is None else dict(intrinsic.hints).get("lanes")
    return lanes == WARP if part is None else lanes % int(str(part)) == 0


def _is_same(of: Scalar, own: frozenset[Term]) -> bool:
    """Whether a term is the same for all threads of a block, whose variables are known."""
    return free_vars(of).isdisjoint(own) and not reads_memory(of)


def handed(nest: Stmt) -> frozenset[Buffer]:
    """The buffers of shared memory that only a warp's work reads.

    Each thread reads there what others wrote, after a barrier: copies into them may be under way
    until then.
    """
    read: set[Buffer] = set()
    invoked: set[Buffer] = set()
    for node in post_order(nest):
        if isinstance(node, Load):
            read.add(node.buffer)
        elif isinstance(node, Region) and scope(node.buffer.scope).reach == "block":
            invoked.add(node.buffer)
    return frozenset(invoked - read)
