"""Kernels in LLVM's text: one internal function each, over the addresses of its buffers.

A kernel with a load that had to be checked gives back whether some index was outside its buffer;
any other gives nothing back.
"""

from __future__ import annotations

from attrs import frozen

from plica.codegen.llvm.value import Values
from plica.codegen.llvm.word import memory
from plica.codegen.llvm.writer import Writer
from plica.core.diagnostic import CompilerBug
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
)
from plica.ir.scalar import Buffer, ScalarVar


@frozen
class Text:
    """A function: its lines, whether it can fail, and what it refers to."""

    lines: tuple[str, ...]
    can_fail: bool
    helpers: frozenset[str]
    functions: tuple[tuple[str, tuple[str, tuple[str, ...]]], ...]


def emit(kernel: Kernel, name: str, over: int | None = None) -> Text:
    """The function of a kernel without symbolic dims.

    `over` is the input whose memory the result is written to, so that both have one address: LLVM
    is told that no two parameters overlap, so the body may use only one of them.
    """
    if kernel.dims:
        raise CompilerBug(f"The kernel {name} has symbolic dims.")
    w = Writer()
    values = Values(w)
    params = []
    for number, buffer in enumerate(kernel.params):
        pointer = f"%b{number}"
        values.pointers[buffer] = pointer
        params.append(f"{_facts(buffer, number < kernel.inputs)} {pointer}")
    if over is not None:
        values.pointers[kernel.params[over]] = values.pointers[kernel.params[-1]]
    _statements(kernel.body, values)
    if values.fails is not None:
        w.do(f"ret i1 {w.let(f'load i1, ptr {values.fails}')}")
    else:
        w.do("ret void")
    result = "void" if values.fails is None else "i1"
    return Text(
        lines=(
            f"define internal {result} @{name}({', '.join(params)}) noinline nounwind {{",
            "entry:",
            *values.registers,
            *w.lines,
            "}",
        ),
        can_fail=values.fails is not None,
        helpers=frozenset(w.helpers),
        functions=tuple(sorted(w.functions.items())),
    )


def _facts(buffer: Buffer, read_only: bool) -> str:
    """What LLVM may know of a parameter."""
    words = ["ptr", "noalias", "nonnull", "captures(none)", f"align {buffer.dtype.bytes}"]
    if read_only:
        words.append("readonly")
    size = buffer.dtype.bytes * _count(buffer)
    if size:
        words.append(f"dereferenceable({size})")
    return " ".join(words)


def _count(buffer: Buffer) -> int:
    count = 1
    for dim in buffer.shape:
        size = known(dim)
        if size is None:
            raise CompilerBug(f"The buffer {buffer.name} has a symbolic dim.")
        count *= size
    return count


def _statements(body: Stmt, values: Values) -> None:
    stack: list[Stmt | tuple[ScalarVar, list[str]] | str] = [body]
    while stack:
        item = stack.pop()
        match item:
            case For(var, extent, _, inside):
                stack.append(values.open(var, extent))
                stack.append(inside)
            case Store(buffer, indices, value):
                values.store(buffer, indices, value)
            case Seq(stmts):
                stack.extend(reversed(stmts))
            case Alloc(buffer, inside):
                own = values.reserve(memory(buffer.dtype), max(1, _count(buffer)))
                values.pointers[buffer] = own
                stack.append(inside)
            case Branch(condition, then, orelse):
                (test,) = values.evaluate([condition])
                w = values.w
                yes, no, done = w.labels("then", "else", "done")
                w.do(f"br i1 {test}, label %{yes}, label %{no}")
                w.start(yes)
                stack += [f"{done}:", orelse, f"{done} {no}:", then]
            case str():
                _join(values.w, item)
            case Block() | Bind() | While() | Invoke() | Barrier():
                raise CompilerBug(f"Lowering left a {type(item).__name__} in a kernel.")
            case _:
                values.close(item)


def _join(w: Writer, mark: str) -> None:
    """Go on to the end of a branch, and begin what follows: `done:` or `done else:`."""
    end, *other = mark.removesuffix(":").split(" ")
    w.do(f"br label %{end}")
    w.start(other[0] if other else end)
