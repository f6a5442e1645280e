"""Kernels in LLVM's text: one internal function each, over the addresses of its buffers.

A kernel with a load that had to be checked gives back whether some index was outside its buffer;
any other gives nothing back.

    serial, parallel    a loop
    unrolled            the body once for each value of the variable, which is a constant there
    vectorized          the body once, for all lanes at the same time

Where the lanes of a vectorized loop would part ways (a branch that depends on its variable, memory
of its own) it is a loop like any other, which means the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from attrs import frozen

from plica.codegen.llvm.access import place_of
from plica.codegen.llvm.lane import FALSE, TRUE, constant
from plica.codegen.llvm.value import Values
from plica.codegen.llvm.word import is_narrow, memory
from plica.codegen.llvm.writer import Writer
from plica.codegen.lower.bound import interval
from plica.core.binding import free_vars
from plica.core.diagnostic import CompilerBug
from plica.core.fold import post_order
from plica.ir.dim import known
from plica.ir.loop import (
    Alloc,
    Barrier,
    Bind,
    Block,
    Branch,
    For,
    Invoke,
    Kernel,
    Seq,
    Stmt,
    Store,
    While,
    statements,
)
from plica.ir.scalar import Buffer, Load, ScalarVar, dtype_of

WIDTH: Final = 512
"""How many bits of a vector are used where nothing is known of the machine."""

STRAIGHT: Final = 64
"""As many lanes are written out, though no register holds so many."""

PLAIN: Final = '"plica-loops"="plain"'
"""Says of a function that LLVM should look at its loops: no schedule has."""

Step: TypeAlias = "Stmt | Callable[[], None]"


@frozen
class Text:
    """A function: its lines, whether it can fail, and what it refers to."""

    lines: tuple[str, ...]
    can_fail: bool
    helpers: frozenset[tuple[str, int]]
    functions: tuple[tuple[str, tuple[str, tuple[str, ...]]], ...]


def emit(
    kernel: Kernel, name: str, over: int | None = None, fused: bool = False, width: int = 0
) -> Text:
    """The function of a kernel without symbolic dims.

    `over` is the input whose memory the result is written to, so that both have one address: LLVM
    is told that no two parameters overlap, so the body may use only one of them.  `fused` allows
    `a * b + c` to be rounded once.  `width` is how many bits of a vector LLVM should use.
    """
    if kernel.dims:
        raise CompilerBug(f"The kernel {name} has symbolic dims.")
    w = Writer()
    values = Values(w, fused)
    places = values.access.places
    params = []
    for number, buffer in enumerate(kernel.params):
        pointer = f"%b{number}"
        places[buffer] = place_of(buffer, pointer)
        size = buffer.dtype.bytes * places[buffer].span
        params.append(f"{_facts(buffer, size, number < kernel.inputs)} {pointer}")
    if over is not None:
        last = places[kernel.params[-1]].pointer
        places[kernel.params[over]] = place_of(kernel.params[over], last)
    statements_ = _Statements(values, width or WIDTH)
    statements_.write(kernel.body)
    if values.fails is not None:
        w.do(f"ret i1 {w.let(f'load i1, ptr {values.fails}')}")
    else:
        w.do("ret void")
    result = "void" if values.fails is None else "i1"
    facts = "noinline nounwind" + (f' "prefer-vector-width"="{width}"' if width else "")
    if statements_.plain or values.loops:
        facts += f" {PLAIN}"
    return Text(
        lines=(
            f"define internal {result} @{name}({', '.join(params)}) {facts} {{",
            "entry:",
            *values.registers,
            *w.lines,
            "}",
        ),
        can_fail=values.fails is not None,
        helpers=frozenset(w.helpers),
        functions=tuple(sorted(w.functions.items())),
    )


def _facts(buffer: Buffer, size: int, read_only: bool) -> str:
    """What LLVM may know of a parameter."""
    align = max(buffer.align, buffer.dtype.bytes)
    words = ["ptr", "noalias", "nonnull", "captures(none)", f"align {align}"]
    if read_only:
        words.append("readonly")
    if size:
        words.append(f"dereferenceable({size})")
    return " ".join(words)


class _Statements:
    """Writes statements, with a stack of those still to come and of what is to be done between."""

    def __init__(self, values: Values, width: int) -> None:
        self.values = values
        self.width = width
        self.plain = False  # whether something is left that LLVM's loop passes make better
        self.stack: list[Step] = []
        self.own: dict[Buffer, str] = {}

    def write(self, body: Stmt) -> None:
        values, stack = self.values, self.stack
        stack.append(body)
        while stack:
            item = stack.pop()
            match item:
                case For():
                    self._loop(item)
                case Store(buffer, indices, value):
                    self.plain = self.plain or _accumulates(item)
                    values.store(buffer, indices, value)
                case Seq(stmts):
                    stack.extend(reversed(stmts))
                case Alloc(buffer, inside):
                    self._reserve(buffer)
                    stack.append(inside)
                case Bind(var, value, inside):
                    (found,) = values.evaluate([value])
                    bounds = (0, 0)
                    if dtype_of(var).is_integer:
                        bounds = interval(value, values.ranges, values.intervals)
                    values.bind(var, found, bounds)
                    stack += [partial(values.unbind, var), inside]
                case Branch():
                    self._branch(item)
                case Block() | While() | Invoke() | Barrier():
                    raise CompilerBug(f"Lowering left a {type(item).__name__} in a kernel.")
                case _:
                    item()

    def _loop(self, loop: For) -> None:
        values, stack = self.values, self.stack
        count = known(loop.extent)
        if count is None:
            raise CompilerBug(f"The loop over {loop.var.name} has no known extent.")
        if count <= 0:
            return
        match loop.kind:
            case "unrolled":
                self._copy(loop, 0, count)
            case "vectorized" if count > 1 and _keeps_step(loop):
                self._strips(loop, count)
            case "serial" | "parallel" | "vectorized":
                self.plain = self.plain or not _has_loops(loop.body)
                stack += [partial(values.close, values.open(loop.var, count)), loop.body]
            case _:
                raise CompilerBug(
                    f"Lowering left the {loop.kind} loop {loop.var.name} in a kernel."
                )

    def _copy(self, loop: For, number: int, count: int) -> None:
        """The body of an unrolled loop for one value of its variable, then for those that follow."""
        if number:
            self.values.unbind(loop.var)
        if number == count:
            return
        self.values.bind(loop.var, constant(number), (number, number))
        self.stack += [partial(self._copy, loop, number + 1, count), loop.body]

    def _strips(self, loop: For, count: int) -> None:
        """A vectorized loop: a strip at a time if it is long, then the lanes that are left."""
        strip = 2 * self.width // (8 * max(1, _widest(loop.body)))
        done = count // strip * strip if count > max(strip, STRAIGHT) else 0
        self.stack.append(partial(self._spread, loop, done, count))
        if done:
            values = self.values
            opened = values.open(loop.var, done, strip)
            values.spread(loop.var, values.vars[loop.var], strip)
            self.stack += [partial(values.close, opened), values.gather, loop.body]

    def _spread(self, loop: For, done: int, count: int) -> None:
        """The body of a vectorized loop for the lanes from one on.

        So many at once as the greatest power of two that is not more: LLVM makes registers of
        these, but single numbers of what fills no register.
        """
        if done == count:
            return
        values = self.values
        lanes = 1 << (count - done).bit_length() - 1
        values.bind(loop.var, constant(done), (done, done + lanes - 1))
        values.spread(loop.var, constant(done), lanes)
        self.stack += [
            partial(self._spread, loop, done + lanes, count),
            partial(values.unbind, loop.var),
            values.gather,
            loop.body,
        ]

    def _reserve(self, buffer: Buffer) -> None:
        """Memory for a buffer; the same where an unrolled loop comes to it again."""
        values = self.values
        place = place_of(buffer, "")
        if buffer not in self.own:
            self.own[buffer] = values.reserve(memory(buffer.dtype), max(1, place.span))
        values.access.places[buffer] = place_of(buffer, self.own[buffer])

    def _branch(self, branch: Branch) -> None:
        values, w, stack = self.values, self.values.w, self.stack
        (test,) = values.evaluate([branch.condition])
        if test in (TRUE, FALSE):
            stack.append(branch.then if test == TRUE else branch.orelse)
            return
        yes, no, done = w.labels("then", "else", "done")
        w.do(f"br i1 {values.lanes.scalar(test)}, label %{yes}, label %{no}")
        w.start(yes)
        mark = values.lanes.mark()
        stack += [
            partial(self._join, mark, done, done),
            branch.orelse,
            partial(self._join, mark, done, no),
            branch.then,
        ]

    def _join(self, mark: int, end: str, begin: str) -> None:
        """Go on to the end of a branch, and begin what follows in the text."""
        self.values.lanes.release(mark)
        self.values.w.do(f"br label %{end}")
        self.values.w.start(begin)


def _keeps_step(loop: For) -> bool:
    """Whether all lanes of a loop do the same, so that one instruction does it for all."""
    return not any(_parts(stmt, loop.var) for stmt in statements(loop.body))


def _parts(stmt: Stmt, lane: ScalarVar) -> bool:
    match stmt:
        case Branch(condition, _, _):
            return lane in free_vars(condition)
        case Alloc():
            return True
        case For(kind="vectorized"):
            return True
        case _:
            return False


def _accumulates(store: Store) -> bool:
    """Whether an element in memory, not in a register, is made of what it was before."""
    if store.buffer.scope == "local" or store.buffer not in free_vars(store.value):
        return False
    return any(isinstance(n, Load) and n.buffer is store.buffer for n in post_order(store.value))


def _has_loops(body: Stmt) -> bool:
    return any(isinstance(stmt, For) for stmt in statements(body))


def _widest(body: Stmt) -> int:
    """The bytes of the widest element that is read or written; f16 and bf16 become f32."""
    widest = 1
    for stmt in statements(body):
        if isinstance(stmt, Store):
            dtypes = [stmt.buffer.dtype]
            dtypes += [
                node.buffer.dtype for node in post_order(stmt.value) if isinstance(node, Load)
            ]
            widest = max(widest, *[4 if is_narrow(each) else each.bytes for each in dtypes])
    return widest
