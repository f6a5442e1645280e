"""Laws of schedule steps, as data: which sequences of steps make the same program.

    Law ::= Law(name, form, left, right, when, same)

The two sides are instruction sequences on the same loops, blocks and numbers, which are the handles
`loop(n)`, `of_block(n)` and `number(n)`; a result of a step is `given(step, n)`. A law states:
wherever both sides are legal (and `when` holds), they produce the same kernel, up to names and unit
loops, and the handles in `same` refer to the same loops. Every law is tested on generated kernels
(`tests/schedule/test_law.py`).

- inverse     the second step undoes the first: `split` then `fuse`
- idempotent  a second step of the kind changes nothing: `set_scope` twice
- unit        a step on a loop of one iteration, or one that makes such loops, changes nothing
- compose     two steps are one: `fuse` then `fuse`
- commute     two steps on different loops may be exchanged

Normal forms of traces (`plica.schedule.normalise`) look for pairs by the inverse laws; the class of
a trace (`trace_class`) is the same for all traces that laws make equal, so a search that knows the
cost of one need not measure the others.

>>> print(next(each for each in LAWS if each.name == "split-then-fuse"))
split-then-fuse (inverse): split fuse = nothing
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise, product
from typing import Any, Final, Literal, TypeAlias

from attrs import field, frozen
from pyrsistent import pmap

from plica.analysis import statement
from plica.analysis.enclosing import simple
from plica.analysis.index import EMPTY, Context
from plica.analysis.index.context import conjuncts
from plica.analysis.site import distinct, map_of, replace, with_body, with_parts
from plica.core import Term, digest, free_vars, substitute
from plica.ir.loop.index_map import index_map
from plica.ir.loop.scalar import ScalarVar
from plica.ir.loop.statement import THREADS, TRUE, Block, For, Kernel, Stmt, statements
from plica.ir.type import known
from plica.schedule.handle import Handle, Output
from plica.schedule.instruction import Instruction, Scene
from plica.schedule.precondition import all_of
from plica.schedule.primitive.annotate import Annotate, Unannotate
from plica.schedule.primitive.buffer_memory import SetScope, written_by
from plica.schedule.primitive.cache import CacheRead, CacheWrite
from plica.schedule.primitive.compute_inline import ComputeInline, ReverseComputeInline
from plica.schedule.primitive.fuse import AddUnitLoop, Fuse
from plica.schedule.primitive.loop_kind import BindLoop, Parallel, Unroll, Vectorize
from plica.schedule.primitive.reorder import Reorder
from plica.schedule.primitive.reorder_block_iter_var import ReorderBlockIterVar
from plica.schedule.primitive.split import Split
from plica.schedule.primitive.transform_layout import TransformLayout
from plica.schedule.problem import Problem
from plica.schedule.replay import ReplayState, scheduled, taken
from plica.schedule.tidy import ZERO, mapped as contextual
from plica.schedule.trace import Step, Trace

Form: TypeAlias = Literal["inverse", "idempotent", "unit", "compose", "commute"]
Arguments: TypeAlias = Mapping[Handle, Output]
Agreement: TypeAlias = Literal["equal", "different", "refused"]

PARAMETER: Final = -1  # the step of handles that no side makes


def loop(position: int) -> Handle:
    """A loop that a law is about."""
    return Handle(PARAMETER, position, "loop")


def of_block(position: int) -> Handle:
    """A block that a law is about."""
    return Handle(PARAMETER, 100 + position, "block")


def number(position: int) -> Handle:
    """A number that a law is about."""
    return Handle(PARAMETER, 200 + position, "number")


def given(step: int, output: int = 0) -> Handle:
    """A loop that a step of a side gives."""
    return Handle(step, output, "loop")


def given_block(step: int) -> Handle:
    """The block that a step of a side gives."""
    return Handle(step, 0, "block")


I, J, K = loop(0), loop(1), loop(2)  # noqa: E741  # as loops are called
A, B, C = number(0), number(1), of_block(0)


def always(kernel: Kernel, arguments: Arguments) -> bool:
    """No condition."""
    return True


def divides(kernel: Kernel, arguments: Arguments) -> bool:
    """The product of the numbers divides the extent of the first loop."""
    numbers = [arguments[handle] for handle in (A, B) if handle in arguments]
    extent = _extent(kernel, arguments[I])
    total = 1
    for each in numbers:
        total *= each if isinstance(each, int) else 1
    return extent is not None and extent % total == 0


def are_nested(kernel: Kernel, arguments: Arguments) -> bool:
    """Whether each loop is directly inside the previous one."""
    loops = [arguments[handle] for handle in (I, J, K) if handle in arguments]
    inside = [map_of(kernel).loops[each].node for each in loops if isinstance(each, ScalarVar)]
    return all(outer.body is inner for outer, inner in pairwise(inside))


def unguarded(kernel: Kernel, arguments: Arguments) -> bool:
    """No block has a condition: `fuse` drops iterations that do nothing."""
    blocks = [stmt for stmt in statements(kernel.body) if isinstance(stmt, Block)]
    return all(block.predicate is TRUE for block in blocks)


def is_second_extent(kernel: Kernel, arguments: Arguments) -> bool:
    """The number is the extent of the second loop, and the loops fuse as they stand."""
    return _extent(kernel, arguments[J]) == arguments[A] != 1 and is_long(kernel, arguments)


def is_long(kernel: Kernel, arguments: Arguments) -> bool:
    """The first loop has several iterations, and no block has a condition."""
    return _extent(kernel, arguments[I]) != 1 and unguarded(kernel, arguments)


def is_intermediate(kernel: Kernel, arguments: Arguments) -> bool:
    """The block writes no parameter of the kernel."""
    buffer = written_by(Scene(distinct(kernel), arguments), C, 0)
    return not isinstance(buffer, Problem) and buffer not in kernel.params


def is_unit(kernel: Kernel, arguments: Arguments) -> bool:
    """The first loop has one iteration, and the others stand in it."""
    return _extent(kernel, arguments[I]) == 1 and are_nested(kernel, arguments)


def _extent(kernel: Kernel, of: Output) -> int | None:
    assert isinstance(of, ScalarVar)
    return known(map_of(kernel).loops[of].node.extent)


@frozen(eq=False)
class Law:
    """Two sequences of steps that make the same kernel."""

    name: str
    form: Form
    left: tuple[Instruction, ...]
    right: tuple[Instruction, ...] = ()
    when: Callable[[Kernel, Arguments], bool] = always
    same: tuple[tuple[Handle, Handle], ...] = ()
    """Handles of the left side and those of the right that stand for the same loop."""
    parameters: tuple[Handle, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        used = dict.fromkeys(
            child
            for step in (*self.left, *self.right)
            for child in step._children
            if isinstance(child, Handle) and child.step == PARAMETER
        )
        object.__setattr__(self, "parameters", tuple(used))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its left side, in order."""
        return tuple([each.kind for each in self.left])

    def __str__(self) -> str:
        words = [" ".join(each.kind for each in side) for side in (self.left, self.right)]
        return f"{self.name} ({self.form}): {words[0]} = {words[1] or 'nothing'}"


def agreement(law: Law, kernel: Kernel, arguments: Arguments) -> Agreement:
    """Whether the sides of a law make the same of a kernel; `refused` where one is illegal or the
    condition of the law does not hold."""
    if not law.when(kernel, arguments):
        return "refused"
    left, right = _taken(law.left, kernel, arguments), _taken(law.right, kernel, arguments)
    if left is None or right is None:
        return "refused"
    kernels = left.kernel, right.kernel
    for mark, (one, other) in enumerate(law.same):
        marked = _marked(kernels[0], left, one, mark), _marked(kernels[1], right, other, mark)
        if marked[0] is None or marked[1] is None:
            return "different"
        kernels = marked[0], marked[1]
    return "equal" if kernel_class(kernels[0]) == kernel_class(kernels[1]) else "different"


def _taken(side: tuple[Instruction, ...], kernel: Kernel, of: Arguments) -> ReplayState | None:
    state: ReplayState | Problem = ReplayState(distinct(kernel), pmap(dict(of)))
    for instruction in side:
        assert isinstance(state, ReplayState)
        if isinstance(state := taken(state, Step(instruction)), Problem):
            return None
    assert isinstance(state, ReplayState)
    return state


def _marked(kernel: Kernel, state: ReplayState, handle: Handle, mark: int) -> Kernel | None:
    """The kernel with a mark on a loop, or None if the loop is gone."""
    var = state.outputs[handle]
    assert isinstance(var, ScalarVar)
    if var not in map_of(kernel).loops:
        return None
    site = map_of(kernel).loops[var]
    of = site.node
    notes = (*of.annotations, (f"mark{mark}", True))
    return replace(kernel, site, For(of.var, of.extent, of.kind, of.body, notes))


def kernel_class(kernel: Kernel) -> str:
    """The digest of a kernel without its loops of one iteration, whatever its names."""
    return digest(replaced_units(kernel))


def replaced_units(kernel: Kernel) -> Kernel:
    """The kernel without loops of one iteration of which nothing is said.

    for i in range(1):            with block(v=j): …
        with block(v=i * 8 + j): …
    """

    def without(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, For) or stmt.kind in (*THREADS, "virtual") or stmt.annotations:
            return stmt
        return substitute(stmt.body, {stmt.var: ZERO}) if known(stmt.extent) == 1 else stmt

    return with_body(kernel, contextual(statement.mapped(kernel.body, without), simplest, EMPTY))


def simplest(stmt: Stmt, context: Context) -> Stmt:
    """A block with simplified bindings, and its conditions in the order of their loops."""
    if not isinstance(stmt, Block):
        return stmt
    place: dict[Term, int] = {each.var: at for at, each in enumerate(context.ranges)}
    bindings = tuple([simple(binding, context) for binding in stmt.bindings])
    parts = [simple(conjunct, context) for conjunct in conjuncts(stmt.predicate)]
    parts.sort(key=lambda each: sorted(place.get(var, -1) for var in free_vars(each)))
    return with_parts(stmt, bindings=bindings, predicate=all_of(parts))


def trace_class(trace: Trace, kernel: Kernel) -> str:
    """A digest that is the same for all traces that laws make equal on a kernel; raises
    `ScheduleRefused` where the trace is illegal."""
    return kernel_class(scheduled(trace, kernel))


def _inverse(name: str, left: tuple[Instruction, ...], **more: Any) -> Law:
    return Law(name, "inverse", left, **more)


LOCAL: Final[Mapping[str, Callable[[Handle], Instruction]]] = {
    "split": lambda of: Split(of, (None, A)),
    "unroll": Unroll,
    "vectorize": Vectorize,
    "parallel": Parallel,
    "bind": lambda of: BindLoop(of, "blockIdx.x"),
    "annotate": lambda of: Annotate(of, "pragma", "p"),
    "unannotate": lambda of: Unannotate(of, "pragma"),
    "add_unit_loop": AddUnitLoop,
}
"""Steps on one loop, which commute where the loops are different."""


def _commuting() -> tuple[Law, ...]:
    pairs = [(a, b) for a, b in product(LOCAL, LOCAL) if a <= b and (a, b) != ("bind", "bind")]
    return tuple([
        Law(f"{a}-beside-{b}", "commute", (LOCAL[a](I), LOCAL[b](J)), (LOCAL[b](J), LOCAL[a](I)))
        for a, b in pairs
    ])  # fmt: skip


HALVES: Final = index_map(lambda i, j: (j, i))
LAWS: Final[tuple[Law, ...]] = (
    _inverse("split-then-fuse", (Split(I, (None, A)), Fuse((given(0), given(0, 1)))),
             same=((given(1), I),)),
    _inverse("reorder-then-back", (Reorder((J, I)), Reorder((I, J))), when=are_nested),
    _inverse("annotate-then-unannotate", (Annotate(I, "pragma", "p"), Unannotate(I, "pragma"))),
    _inverse("unit-loop-then-fuse", (AddUnitLoop(I), Fuse((given(0), I))), when=is_long,
             same=((given(1), I),)),
    _inverse("fuse-then-split", (Fuse((I, J)), Split(given(0), (None, A))), when=is_second_extent,
             same=((given(1), I), (given(1, 1), J))),
    _inverse("cache-read-then-inline", (CacheRead(C, 0, "global"), ComputeInline(given_block(0)))),
    _inverse("cache-write-then-inline",
             (CacheWrite(C, 0, "global"), ReverseComputeInline(given_block(0)))),
    _inverse("iter-vars-there-and-back",
             (ReorderBlockIterVar(C, (1, 0)), ReorderBlockIterVar(C, (1, 0)))),
    _inverse("layout-there-and-back",
             (TransformLayout(C, "write", 0, HALVES), TransformLayout(C, "write", 0, HALVES)),
             when=is_intermediate),
    Law("split-by-one", "unit", (Split(I, (None, 1)),), same=((given(0), I),)),
    Law("split-of-all", "unit", (Split(I, (1, A)),), when=divides, same=((given(0, 1), I),)),
    Law("unit-loop", "unit", (AddUnitLoop(I),)),
    Law("unroll-of-one", "unit", (Unroll(I),), when=is_unit),
    Law("vectorize-of-one", "unit", (Vectorize(I),), when=is_unit),
    Law("parallel-of-one", "unit", (Parallel(I),), when=is_unit),
    Law("reorder-of-one", "unit", (Reorder((J, I)),), when=is_unit),
    Law("reorder-of-itself", "unit", (Reorder((I, J)),), when=are_nested),
    Law("set-scope-again", "idempotent", (SetScope(C, 0, "local"), SetScope(C, 0, "local")),
        (SetScope(C, 0, "local"),)),
    Law("the-last-scope", "compose", (SetScope(C, 0, "shared"), SetScope(C, 0, "local")),
        (SetScope(C, 0, "local"),)),
    Law("reorder-again", "idempotent", (Reorder((J, I)), Reorder((J, I))), (Reorder((J, I)),)),
    Law("fuse-of-a-fuse", "compose", (Fuse((I, J)), Fuse((given(0), K))), (Fuse((I, J, K)),),
        when=unguarded,        same=((given(1), given(0)),)),
    Law("fuse-of-two-sides", "compose", (Fuse((J, K)), Fuse((I, given(0)))), (Fuse((I, J, K)),),
        when=unguarded,        same=((given(1), given(0)),)),
    Law("split-of-the-outer", "compose", (Split(I, (None, B)), Split(given(0), (None, A))),
        (Split(I, (None, A, B)),), when=divides,
        same=((given(1), given(0)), (given(1, 1), given(0, 1)), (given(0, 1), given(0, 2)))),
    Law("reorder-of-three", "compose", (Reorder((J, I)), Reorder((K, I))),
        (Reorder((J, K, I)),), when=are_nested),
    Law("reorder-by-turns", "compose", (Reorder((J, I)), Reorder((K, J))),
        (Reorder((K, I, J)),), when=are_nested),
    *_commuting(),
    *[Law(f"{kind}-beside-fuse", "commute", (step(K), Fuse((I, J))), (Fuse((I, J)), step(K)))
      for kind, step in LOCAL.items()],
)  # fmt: skip
"""The laws; each is tested on generated kernels."""

UNDOING: Final[frozenset[tuple[str, ...]]] = frozenset(
    law.kinds for law in LAWS if law.form == "inverse"
)
"""Kinds of two steps of which the second may undo the first."""
