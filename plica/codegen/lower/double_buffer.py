"""Double buffer: a block that fills a buffer runs one iteration ahead of those who use it.

    for i in range(n):                                  for i in range(n, stage=(0, 1)):
        with block("T", double_buffer=True): …  -->         with block("T"): …
        with block("C"): …                                  with block("C"): …

The loop is the innermost one around the block with consumers of its data. The block's own producers
run ahead, too. `pipeline` adds prologue, buffer switching and epilogue.

Law: the kernel means the same, now and after `pipeline`.  Refused: no such loop; a loop that says
already what runs when.
"""

from __future__ import annotations

from plica.analysis.statement import mapped, refused, with_body
from plica.codegen.lower.pipeline import STAGE
from plica.core import post_order
from plica.ir.loop import Buffer, Load, statement as st

KEY = "double_buffer"


def double_buffer(kernel: st.Kernel) -> st.Kernel:
    """The kernel with pipeline annotations in the place of those of blocks."""
    body = mapped(kernel.body, _annotated)
    for statement in st.statements(body):
        if isinstance(statement, st.Block) and _asks(statement):
            message = f"The block {str(statement.label)!r} cannot be double buffered."
            expected = "a serial loop around it in which something else reads what it writes"
            raise refused(message, statement.label, expected, "none")
    return with_body(kernel, body)


def _asks(stmt: st.Stmt) -> bool:
    return isinstance(stmt, st.Block) and dict(stmt.annotations).get(KEY) is True


def _annotated(stmt: st.Stmt) -> st.Stmt:
    if not isinstance(stmt, st.For) or stmt.kind != "serial":
        return stmt
    held: list[Buffer] = []
    body = stmt.body
    while isinstance(body, st.Alloc):
        held.append(body.buffer)
        body = body.body
    if not isinstance(body, st.Seq):
        return stmt
    reads = [_read(statement) for statement in body.stmts]
    writes = [_written(statement) for statement in body.stmts]
    ahead: set[int] = set()
    for at, statement in enumerate(body.stmts):
        asking = any(_asks(one) for one in st.statements(statement))
        if asking and any(writes[at] & reads[user] for user in range(at + 1, len(reads))):
            ahead.add(at)
    if not ahead:
        return stmt
    if STAGE in dict(stmt.annotations):
        message = f"The loop {str(stmt.var.name)!r} is pipelined already."
        raise refused(message, stmt.var.name, "one annotation", f"{STAGE} and {KEY}")
    for at in range(len(reads) - 1, -1, -1):  # what they need comes before them
        if at not in ahead and any(writes[at] & reads[user] for user in ahead if user > at):
            ahead.add(at)
    stages = tuple([0 if at in ahead else 1 for at in range(len(reads))])
    new: st.Stmt = st.Seq(tuple([mapped(statement, _silent) for statement in body.stmts]))
    new = st.allocated(new, reversed(held))
    notes = st.annotated(stmt.annotations, **{STAGE: stages})
    return st.For(stmt.var, stmt.extent, stmt.kind, new, notes)


def _silent(stmt: st.Stmt) -> st.Stmt:
    if not isinstance(stmt, st.Block) or not _asks(stmt):
        return stmt
    fields = [getattr(stmt, name) for name in st.Block._fields]
    fields[-1] = st.annotated(stmt.annotations, **{KEY: None})
    return st.Block(*fields)


def _read(stmt: st.Stmt) -> set[Buffer]:
    return {node.buffer for node in post_order(stmt) if isinstance(node, Load | st.Region)}


def _written(stmt: st.Stmt) -> set[Buffer]:
    return {node.buffer for node in post_order(stmt) if isinstance(node, st.Store)}
