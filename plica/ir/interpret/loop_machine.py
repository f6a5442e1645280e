"""Performing a loop program: the machine that runs statements over storages.

>>> from plica.ir.type.dtype import i32
>>> from plica.ir.loop.statement import For, Store
>>> from plica.ir.loop.tensor import axis, buffer
>>> y, t = buffer("y", (2,), i32), axis("t")
>>> machine = LoopMachine({}, sweeping=False, turns=0)
>>> machine.env[y] = machine.allocate(y)
>>> machine.run(For(t, y.shape[0], "threadIdx.x", Store(y, (t,), y.shape[0] * 0 + t)))
>>> machine.env[y].array()
array([0, 1], dtype=int32)

# Note [Cooperation]
A block whose reduce variable follows a thread is a reduction across threads, which lowering turns
into shuffles or steps through shared memory.  Until then the threads that work on one element
together count as one; others still race with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

from attrs import define

from plica.core import CompilerBug, EvaluationError, Term, free_vars, name_of
from plica.ir.interpret.race import Strand, ThreadGrid
from plica.ir.interpret.scalar_program import Line, line, run_line
from plica.ir.interpret.storage import Storage, Watcher
from plica.ir.interpret.thread_block import coordinate, meets, spread
from plica.ir.interpret.vectorised import swept
from plica.ir.loop import statement as st
from plica.ir.loop.invocation import find_intrinsic, kept, misfit, sizes_for, unknown_intrinsic
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import Buffer, Scalar
from plica.ir.loop.specialise import specialise
from plica.ir.loop.vector import store_lanes
from plica.runtime.error import Place

_UNORDERED: Final = ("parallel", "vectorized")


class LoopMachine:
    """The memory and the variables of a run."""

    def __init__(self, env: dict[Term, Any], sweeping: bool, turns: int) -> None:
        self.env = env
        self.sweeping = sweeping
        self.turns = turns
        self.watchers: list[Watcher] = []
        self.launch: ThreadGrid | None = None
        self.lines: dict[Any, Line] = {}
        self.blocks: dict[st.Block, _Prepared] = {}

    def run(self, body: st.Stmt) -> None:
        """Runs a statement to its end; a barrier outside all threads has no effect."""
        try:
            for _ in self.steps(body):
                pass
        except EvaluationError as error:
            if error.code != "data-race":
                self.settle()
            raise

    def settle(self) -> None:
        """Refuses undefined reads of a launch that no race explains."""
        if self.launch is not None and self.launch.suspect is not None:
            storage, indices = self.launch.suspect
            self.launch.suspect = None
            storage.undefined(indices)

    def steps(self, body: st.Stmt) -> Iterator[st.Barrier]:
        """Run a statement; stop at each barrier."""
        env, lines = self.env, self.lines
        stack: list[Any] = [body]
        push, pop = stack.append, stack.pop
        while stack:
            item = pop()
            kind = item.__class__
            if kind is _Loop:
                if item.next == item.extent:
                    env[item.var] = item.hidden
                    if item.strand is not None:
                        self.watchers.pop()
                    continue
                env[item.var] = item.next
                if item.strand is not None:
                    item.strand.iteration = item.next
                item.next += 1
                push(item)
                push(item.body)
            elif kind is st.Store:
                if (known := lines.get(item)) is None:
                    known = lines[item] = line(store_lanes(item), env)
                *indices, value = run_line(known)
                if len(indices) == len(item.indices):
                    env[item.buffer].store(indices, value)
                else:
                    self.scatter(item, [*indices, value])
            elif kind is st.Block:
                if (prepared := self.blocks.get(item)) is None:
                    prepared = self.blocks[item] = _Prepared(item, env)
                self.enter(item, prepared, stack)
            elif kind is st.Seq:
                stack.extend(item.stmts[::-1])
            elif kind is st.For:
                (extent,) = self.values(item, (item.extent,))
                if self.sweeping and swept(item, extent, self):
                    continue
                if item.kind in st.THREADS:
                    if (here := coordinate(self, item, extent)) is None:
                        yield from spread(self, item, extent)
                    elif here < extent:
                        push(_Leave((item.var,), (env.get(item.var),)))
                        env[item.var] = here
                        push(item.body)
                    continue
                strand = Strand() if item.kind in _UNORDERED else None
                if strand is not None:
                    self.watchers.append(strand)
                push(_Loop(item.var, max(0, extent), item.body, env.get(item.var), strand))
            elif kind is st.Branch:
                (condition,) = self.values(item, (item.condition,))
                push(item.then if condition else item.orelse)
            elif kind is st.Alloc:
                push(_Leave((item.buffer,), (env.get(item.buffer),)))
                env[item.buffer] = self.allocated(item)
                push(item.body)
            elif kind is st.Bind:
                (value,) = self.values(item, (item.value,))
                push(_Leave((item.var,), (env.get(item.var),)))
                env[item.var] = value
                push(item.body)
            elif kind is st.While:
                (condition,) = self.values(item, (item.condition,))
                if condition:
                    self.take_turn(item)
                    push(item)
                    push(item.body)
            elif kind is st.Invoke:
                together = self.launch is not None and _is_of_warp(item)
                if together:  # its threads do it at once: each reads what others hold
                    if meets(self, WARP_BARRIER):
                        yield WARP_BARRIER
                    push(WARP_BARRIER)
                self.invoke(item, stack)
            elif kind is st.Barrier:
                if meets(self, item):
                    yield item
            elif kind is _Leave:
                env.update(zip(item.terms, item.hidden, strict=True))
                if item.thread is not None and self.launch is not None:
                    self.launch.thread = item.thread
            else:
                raise CompilerBug(f"The loop interpreter meets a {kind.__name__} it cannot run.")

    def values(self, owner: Term, scalars: tuple[Scalar, ...]) -> list[Any]:
        """The current values of some scalars; the compiled line is cached by owner."""
        if (known := self.lines.get(owner)) is None:
            known = self.lines[owner] = line(scalars, self.env)
        return run_line(known)

    # --- blocks ----------------------------------------------------------------------------------

    def enter(self, block: st.Block, prepared: _Prepared, stack: list[Any]) -> None:
        """Pushes the work of a block, if its predicate holds."""
        if prepared.predicate is not None and not run_line(prepared.predicate)[0]:
            return
        env, count = self.env, len(block.vars)
        values = run_line(prepared.bindings)
        for at in range(count):
            if not 0 <= values[at] < values[count + at]:
                self.outside(block, at, values[at], values[count + at])
        thread = None
        if self.launch is not None and prepared.reducing:
            thread = self.cooperate(block, prepared)
        stack.append(_Leave(block.vars, tuple([env.get(var) for var in block.vars]), thread))
        for var, value in zip(block.vars, values, strict=False):
            env[var] = value
        stack.append(block.body)
        if block.init is not None and not any(values[at] for at in prepared.reducing):
            stack.append(block.init)

    def cooperate(self, block: st.Block, prepared: _Prepared) -> Any:
        """See Note [Cooperation]: returns the running thread's previous name, or None if
        unchanged."""
        launch = self.launch
        assert launch is not None
        tags = {launch.variables[var] for var in prepared.followed if var in launch.variables}
        if not tags:
            return None
        before = launch.thread
        launch.thread = (
            *[None if f"threadIdx.{axis}" in tags else place
              for axis, place in zip("xyz", before, strict=False)],
            str(block.label),
        )  # fmt: skip
        return before

    def outside(self, block: st.Block, at: int, value: int, extent: int) -> NoReturn:
        """Refuse a block variable outside its range."""
        name = str(block.vars[at].name)
        message = f"The variable {name!r} of the block {str(block.label)!r} is out of its range."
        place = Place(node=str(block.label))
        raise EvaluationError.of(
            "binding-out-of-range", message, place, f"0 <= {name} < {extent}", str(value)
        )

    def scatter(self, store: st.Store, values: list[Any]) -> None:
        """A store of a vector: all lanes were computed before the first is stored."""
        rank = len(store.indices)
        target = self.env[store.buffer]
        for at in range(0, len(values), rank + 1):
            target.store(values[at : at + rank], values[at + rank])

    def take_turn(self, loop: st.While) -> None:
        """One more turn of a while loop."""
        self.turns -= 1
        if self.turns < 0:
            message = "The while loops of a kernel take more turns than the limit that was set."
            names = sorted(str(name_of(var)) for var in free_vars(loop.condition))
            place = Place(node=f"the while loop over {', '.join(names) or 'a constant'}")
            found, hint = "its condition still holds", "run_kernel(…, turns=…) sets the limit."
            raise EvaluationError.of("endless-loop", message, place, "it to end", found, hint)

    # --- memory ----------------------------------------------------------------------------------

    def allocate(self, buffer: Buffer) -> Storage:
        """An undefined storage for a buffer, with its current shape and strides."""
        scope(buffer.scope)  # a scope nobody declared is refused
        numbers = self.values(buffer, (*buffer.shape, *buffer.strides))
        shape = tuple([max(0, size) for size in numbers[: len(buffer.shape)]])
        strides = tuple(numbers[len(buffer.shape) :]) if buffer.strides else None
        return Storage.blank(buffer, shape, self.watchers, strides)

    def allocated(self, alloc: st.Alloc) -> Storage:
        """The storage of an allocation: threads that share the scope share one storage."""
        new, launch = self.allocate(alloc.buffer), self.launch
        of = scope(alloc.buffer.scope)
        if launch is None or of.reach in ("all", "thread"):
            return new
        return launch.instance((alloc, launch.turn(alloc)), of, new)

    def invoke(self, call: st.Invoke, stack: list[Any]) -> None:
        """Pushes the meaning of an intrinsic, over views of its regions."""
        if (intrinsic := find_intrinsic(call.name)) is None:
            raise EvaluationError(unknown_intrinsic(call.name))
        meaning = intrinsic.meaning
        if (wrong := misfit(call, meaning)) is not None:
            raise EvaluationError(wrong)
        regions = [operand for operand in call.operands if isinstance(operand, st.Region)]
        scalars = [operand for operand in call.operands if isinstance(operand, Scalar)]
        wanted = [part for each in regions for part in (*each.starts, *each.extents)]
        numbers = iter(self.values(call, (*wanted, *scalars)))
        boxes = [
            ([next(numbers) for _ in each.starts], [next(numbers) for _ in each.extents])
            for each in regions
        ]
        keep = [
            kept(extents, len(param.shape))
            for (_, extents), param in zip(boxes, meaning.params, strict=True)
        ]
        shapes = [
            tuple([extents[at] for at in which])
            for (_, extents), which in zip(boxes, keep, strict=True)
        ]
        sizes = sizes_for(call, meaning, shapes, list(numbers))
        sized = specialise(meaning, sizes)
        stack.append(_Leave(sized.params, tuple([self.env.get(buffer) for buffer in sized.params])))
        views = [
            self.env[region.buffer].view(param, *box, which)
            for region, param, box, which in zip(regions, sized.params, boxes, keep, strict=True)
        ]
        self.env.update(zip(sized.params, views, strict=True))
        stack.append(sized.body)


WARP_BARRIER: Final = st.Barrier("warp")
"""What threads wait at before and after an intrinsic that reads what others of a warp hold."""


def _is_of_warp(call: st.Invoke) -> bool:
    regions = [operand for operand in call.operands if isinstance(operand, st.Region)]
    return any(scope(region.buffer.scope).reach == "warp" for region in regions)


class _Prepared:
    """A block's lines, laid out once."""

    __slots__ = ("bindings", "followed", "predicate", "reducing")

    def __init__(self, block: st.Block, env: dict[Term, Any]) -> None:
        self.predicate = None if block.predicate is st.TRUE else line((block.predicate,), env)
        self.bindings = line((*block.bindings, *block.extents), env)
        self.reducing = [at for at, kind in enumerate(block.kinds) if kind in st.ACCUMULATING]
        followed = [free_vars(block.bindings[at]) for at in self.reducing]
        self.followed = frozenset[Term]().union(*followed)


@define(eq=False)
class _Loop:
    """A loop under way: the next iteration, and what its variable was outside."""

    var: Term
    extent: int
    body: st.Stmt
    hidden: Any
    strand: Strand | None
    next: int = 0


@define(eq=False)
class _Leave:
    """The end of a scope: variables and buffers are again what they were outside."""

    terms: Sequence[Term]
    hidden: Sequence[Any]
    thread: Any = None
