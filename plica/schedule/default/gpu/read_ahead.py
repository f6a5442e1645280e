"""Read ahead: operands of the next step are loaded while this one multiplies.

    next = side[step 0]
    ...                              whatever else there is to do before
    for n in steps:
        now = next
        next = side[step n + 1]      16 bytes by a thread, as they lie: widened where they are used
        use now

So a step waits for loads issued one step before. With half as many vectors at a time, it takes the
same registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from attrs import field, frozen

from plica.core import Term, map_top_down, substitute
from plica.ir.loop.scalar import Buffer, Load, Lt, Scalar, ScalarVar, index
from plica.ir.loop.statement import NOTHING, Branch, For, LoopKind, Stmt, Store, allocated, seq
from plica.schedule.default.gpu.attention_chain import along
from plica.schedule.default.gpu.thread_code import Guard, ThreadNames, within

AXES: Final = ("u", "c", "v")  # keys of a thread, iterations of a row, and contiguous elements


@frozen(eq=False)
class ReadAhead:
    """A side of which a thread has some vectors at a time."""

    names: ThreadNames
    side: Scalar
    axis: ScalarVar
    sizes: tuple[int, int, int]
    """Keys of a thread, iterations of a row, contiguous elements."""
    at: Callable[[Scalar, Scalar, Scalar, Scalar], Mapping[Term, Term]]
    """Where a thread reads in a step."""
    guards: Callable[[Scalar, Scalar, Scalar], list[Guard]]
    """What may be beyond the end there."""
    now: Mapping[Term, Buffer] = field(init=False)
    next: Mapping[Term, Buffer] = field(init=False)

    def __attrs_post_init__(self) -> None:
        for word in ("now", "next"):
            object.__setattr__(self, word, {load: self._held(word, load) for load in self._loads()})

    def _loads(self) -> list[Load]:
        return list(dict.fromkeys(along(self.side, self.axis)))

    def _held(self, word: str, load: Load) -> Buffer:
        return self.names.buffer(word, self.sizes, load.buffer.dtype, "local")

    def value(self, step: Scalar, u: Scalar, c: Scalar, v: Scalar) -> Scalar:
        """An element of the operand, computed from the loaded data."""

        def read(node: Term) -> Term:
            return self.now[node][u, c, v] if node in self.now else node

        scalar = map_top_down(read, self.side)
        return substitute(scalar, self.at(step, u, c, v))

    def over(self, step: ScalarVar, steps: int, before: Stmt, body: Stmt) -> Stmt:
        """The body of each step, once something else was done."""
        more: Stmt = NOTHING
        if steps > 1:
            more = Branch(Lt(step, index(steps - 1)), self._asked(step + 1), NOTHING)
        loop = For(step, index(steps), "serial", seq(self._taken(), more, body))
        whole = seq(self._asked(index(0)), before, loop)
        return allocated(whole, (*self.now.values(), *self.next.values()))

    def _asked(self, step: Scalar) -> Stmt:
        return seq(*[self._nest(self._reads(load, step), "vectorized") for load in self._loads()])

    def _reads(self, load: Load, step: Scalar) -> Callable[..., Stmt]:
        def read(u: Scalar, c: Scalar, v: Scalar) -> Stmt:
            there = substitute(load, self.at(step, u, c, v))
            element = within(there, self.guards(step, u, c))
            return Store(self.next[load], (u, c, v), element)

        return read

    def _taken(self) -> Stmt:
        return seq(*[
            self._nest(lambda *at, load=load: Store(self.now[load], at, self.next[load][at]))
            for load in self._loads()
        ])  # fmt: skip

    def _nest(self, body: Callable[..., Stmt], kind: LoopKind = "unrolled") -> Stmt:
        return self.names.each(dict(zip(AXES, self.sizes, strict=True)), body, kind)
