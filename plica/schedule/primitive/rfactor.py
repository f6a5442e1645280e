"""rfactor: split a reduction into partial results over a loop, which a second block combines.

    before                                 after  rfactor(k1, 0)
    for i, k0, k1 in grid(n, p, 4):        for i, k0, k1 in grid(n, p, 4):
        with block("C", …):                    with block("C_rf", spatial=(k1, i), reduce=k0):
            with init(): C[vi] = 0                 with init(): C_rf[vk1, vi] = 0
            C[vi] += A[vi, k0 * 4 + k1]            C_rf[vk1, vi] += A[vi, vk0 * 4 + vk1]
                                           for i, k1 in grid(n, 4):
                                               with block("C", spatial=i, reduce=k1):
                                                   with init(): C[vi] = 0
                                                   C[vi] += C_rf[vk1, vi]

The new dimension is inserted before dimension `axis` of the buffer; a negative axis counts from the
end. Results are combined in another order: floating-point sums differ by rounding.

Preconditions:

- `plain-loop`: a serial loop without annotations.
- `one-block`: one block and nothing else is inside the loops from the first reduce loop.
- a reduction: `reduce-kinds`, `reducer`, `same-element`, `distinct-writes`, `starts`.
- `single-store`: init and update are one store each.
- `begins`: the reduce variables come from loops of their own, and are 0 where these are.
- `reduce-loop`: the loop feeds a reduce variable.
- `axis`: a dimension of the buffer.
- `extents`: the extent of the loop follows from the dims.
- `separate-predicate`: no condition uses loops of both kinds.
- `no-reduce-thread`: no other reduce loop is over threads.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis import site as sites
from plica.analysis.index import EMPTY, can_prove
from plica.analysis.index.context import conjuncts
from plica.analysis.reduction import reducer, update
from plica.core import Name, free_vars, substitute
from plica.ir.contract import reassociates
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.scalar import Buffer, Load, Scalar, ScalarVar, Select, index
from plica.ir.loop.statement import THREADS, Block, For, Stmt, Store, seq
from plica.schedule.block_class import reduction_body
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.order import begins_at_zero, reduce_loops
from plica.schedule.precondition import all_of, plain_loop
from plica.schedule.problem import Problem


@primitive("rfactor")
@frozen(eq=False)
class Rfactor(Instruction):
    """A loop of a reduction, and the position of its dimension; returns the block of partial
    results."""

    contract = reassociates

    gives = "one"

    loop: Handle
    axis: int = 0

    def check(self, scene: Scene) -> Problem | None:
        loop = scene.loop(self.loop)
        if (problem := plain_loop(loop.node)) is not None:
            return problem
        if (site := block_below(scene, loop)) is None:
            return Problem("one-block", loop, "one block inside it, and nothing else", "another")
        if (problem := reduction_body(site.node)) is not None:
            return problem
        return self.shaped(scene, site, loop.node) or self.apart(scene, site, loop.node)

    def shaped(self, scene: Scene, site: sites.Site[Block], loop: For) -> Problem | None:
        """The problem of the block's computation, or of the new dimension's position."""
        block, where = site.node, f"the block {site.node.label}"
        store = block.body
        if not isinstance(block.init, Store) or not isinstance(store, Store):
            return Problem("single-store", where, "an init and an update of one store", "more")
        if reducer(block) not in MEANING:
            return Problem("reducer", where, f"one of {', '.join(MEANING)}", str(reducer(block)))
        rank = len(store.buffer.shape)
        if not -rank - 1 <= self.axis <= rank:
            expected = f"an axis from {-rank - 1} to {rank}"
            return Problem("axis", store.buffer, expected, str(self.axis))
        if not begins_at_zero(site):
            expected = "reduce variables that follow from loops of their own, 0 where these are"
            return Problem("begins", where, expected, "bindings that are not shown to be such")
        if loop not in reduce_loops(site):
            found = f"{loop.var.name} feeds none"
            return Problem("reduce-loop", where, "a loop that feeds a reduce variable", found)
        if not free_vars(loop.extent) <= set(scene.kernel.dims):
            found = "its extent depends on something else"
            return Problem("extents", loop, "an extent by the dims", found)
        return None

    def apart(self, scene: Scene, site: sites.Site[Block], loop: For) -> Problem | None:
        """The problem of loops that cannot be separated into two nests."""
        reducing = {reduce_loop.var: reduce_loop for reduce_loop in reduce_loops(site)}
        chain = chain_of(site)
        for each in reducing.values():
            if each not in chain:
                found = f"something else inside {each.var.name}"
                return Problem("one-block", site, "to be all that its reduce loops run", found)
            if each.kind in THREADS:
                found = f"{each.var.name} is bound to {each.kind}"
                return Problem("no-reduce-thread", site, "reduce loops that are no threads", found)
        spatial = {each.var for each in site.loops} - reducing.keys()
        for condition in conjuncts(site.node.predicate):
            free = free_vars(condition)
            if not free.isdisjoint(reducing) and not free.isdisjoint(spatial):
                found = "a condition on loops of both kinds"
                expected = "conditions on spatial loops or on reduce loops"
                return Problem("separate-predicate", site, expected, found)
        return None

    def edit(self, scene: Scene) -> Edited:
        loop = scene.loop(self.loop).node
        site = block_below(scene, scene.loop(self.loop))
        assert site is not None
        block, kernel = site.node, scene.kernel
        store = block.body
        assert isinstance(store, Store)
        reducing = [reduce_loop for reduce_loop in reduce_loops(site) if reduce_loop is not loop]
        spatial = [at for at, kind in enumerate(block.kinds) if kind == "spatial"]
        kept = [each for each in chain_of(site) if each is loop or each not in reducing]
        names = sites.fresh_names(
            kernel,
            [
                Name(f"v{loop.var.name}"),
                *[block.vars[at].name for at in spatial],
                *[Name(f"v{each.var.name}") for each in reducing],
                Name(f"v{loop.var.name}"),
                *[each.var.name for each in kept],
                Name(f"{store.buffer.name}_rf"),
            ],
        )
        part, *rest = [ScalarVar(name, loop.var.dtype) for name in names[:-1]]
        own, rest = rest[: len(spatial)], rest[len(spatial) :]
        inner, (total, *outer) = rest[: len(reducing)], rest[len(reducing) :]
        axis = self.axis % (len(store.buffer.shape) + 1)
        shape = _with(store.buffer.shape, axis, loop.extent)
        buffer = Buffer(names[-1], shape, store.buffer.dtype, store.buffer.scope)

        meant: dict[ScalarVar, Scalar] = {
            loop.var: part, **{e.var: v for e, v in zip(reducing, inner, strict=True)}
        }  # fmt: skip
        values: dict[ScalarVar, Scalar] = {
            block.vars[at]: var for at, var in zip(spatial, own, strict=True)
        }
        for at, kind in enumerate(block.kinds):
            if kind == "reduce":
                values[block.vars[at]] = substitute(block.bindings[at], meant)
        partial = self._partial(site, loop, buffer, axis, values, meant, own, part, inner)
        label = sites.fresh_label(kernel, f"{block.label}_rf")
        partial = sites.with_parts(partial, label=label)

        place = _with(store.indices, axis, total)
        joined = joined_update(store, Load(buffer, place))
        moved = {e.var: v for e, v in zip(kept, outer, strict=True)}
        final = sites.with_parts(
            block,
            vars=(*[block.vars[at] for at in spatial], total),
            extents=(*[block.extents[at] for at in spatial], loop.extent),
            kinds=(*["spatial" for _ in spatial], "reduce"),
            bindings=(*[substitute(block.bindings[at], moved) for at in spatial], moved[loop.var]),
            predicate=all_of(
                substitute(conjunct, moved)
                for conjunct in conjuncts(block.predicate)
                if free_vars(conjunct).isdisjoint({loop.var, *[e.var for e in reducing]})
            ),
            body=joined,
            reads=(),
            writes=(),
        )
        first: Stmt = partial
        for each in reversed(chain_of(site)):
            first = For(each.var, each.extent, each.kind, first, each.annotations)
        second: Stmt = final
        for each, var in zip(reversed(kept), reversed(outer), strict=True):
            second = For(var, each.extent, each.kind, second, each.annotations)
        above = site.above[: len(site.above) - len(chain_of(site))]
        body = sites.rebuilt(above, seq(first, second))
        return Edited(sites.allocate(sites.with_body(kernel, body), (buffer,)), (label,))

    def _partial(  # noqa: PLR0917  # the parts of a block
        self,
        site: sites.Site[Block],
        loop: For,
        made: Buffer,
        axis: int,
        values: dict[ScalarVar, Scalar],
        meant: dict[ScalarVar, Scalar],
        own: list[ScalarVar],
        part: ScalarVar,
        inner: list[ScalarVar],
    ) -> Block:
        """The block that makes a partial result for each value of the loop."""
        block = site.node
        store = block.body
        assert isinstance(store, Store)
        word = reducer(block)
        start, _ = MEANING[word]  # type: ignore[index]  # checked
        indices = tuple([substitute(scalar, values) for scalar in store.indices])
        place = _with(indices, axis, part)
        taken = update(store)
        assert taken is not None
        value = substitute(taken, values)
        reducing = [reduce_loop for reduce_loop in reduce_loops(site) if reduce_loop is not loop]
        zero: dict[ScalarVar, Scalar] = {each.var: index(0) for each in reducing}
        kept, guards = [], []
        inside = EMPTY.loop(loop.var, loop.extent)
        for scalar in conjuncts(block.predicate):
            # The init runs in the first iteration of the inner loops, so where that is left out
            # the block must run nevertheless, and take nothing.
            if free_vars(scalar).isdisjoint(meant) or can_prove(substitute(scalar, zero), inside):
                kept.append(scalar)
            else:
                guards.append(substitute(scalar, meant))
        if guards:
            value = Select(all_of(guards), value, start(made.dtype))
        spatial = [at for at, kind in enumerate(block.kinds) if kind == "spatial"]
        return Block(
            block.label,
            (part, *own, *inner),
            (loop.extent, *[block.extents[at] for at in spatial], *[e.extent for e in reducing]),
            ("spatial", *["spatial" for _ in spatial], *["reduce" for _ in inner]),  # type: ignore[arg-type]  # kinds
            (loop.var, *[block.bindings[at] for at in spatial], *[e.var for e in reducing]),
            all_of(kept),
            Store(made, place, start(made.dtype)) if inner else None,
            joined_update(Store(made, place, store.value), value)
            if inner
            else Store(made, place, value),
        )


def joined_update(like: Store, value: Scalar) -> Store:
    """An update of the same kind: the element, joined with a value."""
    operation = type(like.value)
    old = Load(like.buffer, like.indices)
    return Store(like.buffer, like.indices, operation(old, value))  # type: ignore[call-arg]  # two sides


def _with(terms: tuple[Scalar, ...], axis: int, one: Scalar) -> tuple[Scalar, ...]:
    return (*terms[:axis], one, *terms[axis:])


def block_below(scene: Scene, site: sites.Site[For]) -> sites.Site[Block] | None:
    """The only block in a loop, possibly inside further loops."""
    stmt: Stmt = site.node
    while isinstance(stmt, For):
        stmt = stmt.body
    return scene.map.blocks[stmt.label] if isinstance(stmt, Block) else None


def chain_of(site: sites.Site[Block]) -> list[For]:
    """The loops around a block that run nothing else, outermost first."""
    loops: list[For] = []
    for stmt, _ in reversed(site.above):
        if not isinstance(stmt, For):
            break
        loops.append(stmt)
    return loops[::-1]


rfactor = Rfactor
