"""blockize: turn a loop and everything inside it into one block, and return it.

    before                                 after  blockize(i_1)
    for i_0 in range(4):                   for i_0 in range(4):
        for i_1 in range(8):                   with block("C_o", vo=i_0):
            with block("C", v=i_0 * 8 + i_1):      for i_1 in range(8):
                …                                      with block("C", v=vo * 8 + i_1): …

With a single inner block, each of its variables is split: the part from the outer loops becomes a
variable of the new block; the part from the inner loops stays. Its init becomes the init of the new
block, over the inner loops that feed spatial variables. With several inner blocks, the new block
has the outer loops as its variables.

Preconditions:

- `rectangular`: only loops around it, with independent extents.
- `division`: each variable is a multiple of the extents inside, plus the part from inside.
- `injective`, and a reduction: `reduce-kinds`, `reducer`, `same-element`, `distinct-writes`,
  `starts`.
- `begins`: if there is an init, its reduce variables come from loops of their own, and are 0
  where these are.
- `predicate`: it follows from the new variables and the loops inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from attrs import frozen

from plica.analysis.dependence import children, conflicts
from plica.analysis.enclosing import context_of, simple
from plica.analysis.index import Context, can_prove
from plica.analysis.index.context import conjuncts
from plica.analysis.index.iteration import iteration_map
from plica.analysis.region import ends_of
from plica.analysis.site import Site, fresh_label, fresh_names, replace, with_inside, with_parts
from plica.core import Name, Term, free_vars, substitute
from plica.ir.loop import Alloc, Block, For, Kernel, Lt, Scalar, ScalarVar, Seq, Stmt, index
from plica.ir.loop.scalar import And, Eq
from plica.ir.loop.statement import TRUE, IterKind, block as make_block
from plica.ir.type import i64, known
from plica.schedule.block_class import reduction_body
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.order import begins_at_zero
from plica.schedule.precondition import injective, rectangular
from plica.schedule.problem import Problem


@primitive("blockize")
@frozen(eq=False)
class Blockize(Instruction):
    """A loop; gives the block it becomes."""

    gives = "one"

    loop: Handle

    def check(self, scene: Scene) -> Problem | None:
        return problem_of(scene, scene.loop(self.loop))

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.loop)
        new = blockized(scene.kernel, site)
        assert isinstance(new, Block)  # as checked
        return Edited(replace(scene.kernel, site, new), (new.label,))


def problem_of(scene: Scene, site: Site[For]) -> Problem | None:
    """Why a loop cannot become a block."""
    for stmt, _ in reversed(site.above):
        if isinstance(stmt, Block):
            break
        if not isinstance(stmt, For | Seq | Alloc):
            where, around = f"the loop {site.node.var.name}", f"a {type(stmt).__name__}"
            return Problem("rectangular", where, "nothing but loops around it", around)
    if (inside := only_block(site.node)) is not None:
        place = scene.map.blocks[inside[1].label]
        problem = rectangular(place)
        if problem is None and inside[1].init is not None:
            problem = injective(scene, place) or reduction_body(inside[1])
            if problem is None and not begins_at_zero(place):
                expected = "reduce variables that follow from loops of their own, 0 where these are"
                where = f"the block {inside[1].label}"
                other = "bindings that are not shown to be such"
                return Problem("begins", where, expected, other)
        if problem is not None:
            return problem
    found = blockized(scene.kernel, site)
    return found if isinstance(found, Problem) else None


def only_block(loop: For) -> tuple[tuple[For, ...], Block] | None:
    """The only block in a nest of loops, with the loops, or None."""
    loops = [loop]
    while isinstance(loop.body, For):
        loop = loop.body
        loops.append(loop)
    return (tuple(loops), loop.body) if isinstance(loop.body, Block) else None


@lru_cache(maxsize=512)
def blockized(kernel: Kernel, site: Site[For]) -> Block | Problem:
    """The block that a loop becomes, or why it does not."""
    if (inside := only_block(site.node)) is None:
        return _around_several(kernel, site)
    return _Division(kernel, site, *inside).block()


def _around_several(kernel: Kernel, site: Site[For]) -> Block:
    loop = site.node
    free = free_vars(loop)
    outer = [each for each in site.loops if each.var in free]
    hints = [Name(f"v{each.var.name.hint}") for each in outer]
    own = [ScalarVar(name, i64) for name in fresh_names(kernel, hints)]
    # Iterations that never meet write different elements, as spatial variables promise.
    kinds: list[IterKind] = ["opaque" if conflicts(each) else "spatial" for each in outer]
    body = substitute(loop, {each.var: var for each, var in zip(outer, own, strict=True)})
    first = next((str(child.block.label) for child in children(loop)), str(loop.var.name))
    return Block(
        fresh_label(kernel, f"{first}_o"),
        tuple(own),
        tuple(each.extent for each in outer),
        tuple(kinds),
        tuple(each.var for each in outer),
        TRUE,
        None,
        body,
    )


@frozen(eq=False)
class _Part:
    """A variable of the block inside, divided: `whole` is `outer * step + inner`."""

    kind: IterKind
    outer: Scalar | None
    extent: Scalar
    step: Scalar
    inner: Scalar


class _Division:
    """The variables of one block, divided between the loops outside and those inside."""

    def __init__(
        self, kernel: Kernel, site: Site[For], inner: tuple[For, ...], block: Block
    ) -> None:
        self.kernel, self.site, self.inner_loops, self.inside = kernel, site, inner, block
        self.where = f"the block {block.label}"
        self.outside = {loop.var: loop.extent for loop in site.loops}
        self.within = {loop.var: loop.extent for loop in inner}
        above = (*site.above, *[(loop, 0) for loop in inner])
        self.context: Context = context_of(above)

    def block(self) -> Block | Problem:
        """The new block."""
        parts: list[_Part] = []
        for var, extent, kind, value in zip(
            self.inside.vars, self.inside.extents, self.inside.kinds, self.inside.bindings,
            strict=True,
        ):  # fmt: skip
            if (part := self.divided(kind, extent, value)) is None:
                expected = f"{var.name} to be a multiple of what the loops inside make, and that"
                return Problem("division", self.where, expected, "something else")
            parts.append(part)
        hints = [
            Name(f"{var.name.hint}_o", var.name.index)
            for var, part in zip(self.inside.vars, parts, strict=True)
            if part.outer is not None
        ]
        own = [ScalarVar(name, i64) for name in fresh_names(self.kernel, hints)]
        divided = [part for part in parts if part.outer is not None]
        values = tuple([part.outer for part in divided if part.outer is not None])
        extents = tuple([part.extent for part in divided])
        if isinstance(split := self.predicates(values, extents, own), Problem):
            return split
        outer_predicate, inner_predicate = split
        waiting = iter(own)
        bindings = tuple(
            [
                part.inner if part.outer is None else simple(next(waiting) * part.step + part.inner)
                for part in parts
            ]
        )
        init = None
        if self.inside.init is not None:
            init = self.init(bindings, parts, inner_predicate, own)
            if isinstance(init, Problem):
                return init
        body: Stmt = with_parts(
            self.inside, bindings=bindings, predicate=inner_predicate, init=None
        )
        for loop in reversed(self.inner_loops):
            body = with_inside(loop, 0, body)
        label = fresh_label(self.kernel, f"{self.inside.label}_o")
        kinds = tuple([part.kind for part in divided])
        return Block(
            label, tuple(own), extents, kinds, values, outer_predicate, init, body,  # type: ignore[arg-type]  # the kinds are those of a block
        )  # fmt: skip

    def divided(self, kind: IterKind, extent: Scalar, value: Scalar) -> _Part | None:
        """A split variable, or None if it is not shown to be a sum of the two parts."""
        free = free_vars(value)
        one, zero = index(1), index(0)
        if free.isdisjoint(self.within):
            return _Part(kind, value, extent, one, zero)
        if free.isdisjoint(self.outside):
            return _Part(kind, None, one, one, value)
        outer = _at(value, dict.fromkeys(self.within, zero))
        base = _at(outer, dict.fromkeys(self.outside, zero))
        inner = simple(_at(value, dict.fromkeys(self.outside, zero)) - base)
        if not can_prove(Eq(value, outer + inner), self.context):
            return None
        ends = ends_of(inner, self.within)
        if ends is None or simple(ends.low) is not zero:
            return None
        step = simple(ends.high + 1)
        if known(step) == 0:  # an empty loop: nothing is divided by what is inside
            return None
        several = simple(outer // step, self.context)
        if not can_prove(Eq(several * step, outer), self.context):
            return None
        size = simple((extent + step - 1) // step)
        if not can_prove(Lt(several, size), self.context):
            return None
        return _Part(kind, several, size, step, inner)

    def predicates(
        self, values: tuple[Scalar, ...], extents: tuple[Scalar, ...], own: Sequence[ScalarVar]
    ) -> tuple[Scalar, Scalar] | Problem:
        """The condition on the new block, and that on the one inside it."""
        outside: list[Scalar] = []
        inside: list[Scalar] = []
        inverse = iteration_map(self.outside.items(), values, extents).recovered(tuple(own))
        for conjunct in conjuncts(self.inside.predicate):
            free = free_vars(conjunct)
            if free.isdisjoint(self.within):
                outside.append(conjunct)
                continue
            moved = _at(conjunct, {var: inverse[var] for var in self.outside if var in inverse})
            if left := [var for var in self.outside if var in free_vars(moved)]:
                expected = "a predicate that follows from the new block's variables"
                found = f"it depends on the loop {left[0].name}"
                return Problem("predicate", self.where, expected, found)
            inside.append(moved)
        return _all(outside), _all(inside)

    def init(
        self,
        bindings: tuple[Scalar, ...],
        parts: Sequence[_Part],
        predicate: Scalar,
        own: Sequence[ScalarVar],
    ) -> Stmt | Problem:
        """The init of the new block: the inner one, over the loops of the elements it
        initialises."""
        feeding: dict[IterKind, set[Term]] = {"spatial": set(), "reduce": set()}
        for part in parts:
            feeding[part.kind] |= free_vars(part.inner) & self.within.keys()
        if feeding["spatial"] & feeding["reduce"]:
            expected = "loops inside that feed spatial variables or reduce variables"
            return Problem("division", self.where, expected, "one that feeds both")
        kept = [each for each in self.inner_loops if each.var in feeding["spatial"]]
        block = self.inside
        spatial = [at for at, kind in enumerate(block.kinds) if kind == "spatial"]
        hints = [each.var.name for each in kept] + [block.vars[at].name for at in spatial]
        names = fresh_names(self.kernel, [*[each.name for each in own], *hints])[len(own) :]
        loops = [ScalarVar(name, i64) for name in names[: len(kept)]]
        variables = [ScalarVar(name, i64) for name in names[len(kept) :]]
        moved: dict[Term, Scalar] = {var: index(0) for var in self.within}
        moved |= {each.var: var for each, var in zip(kept, loops, strict=True)}
        outside = [part.kind for part in parts if part.outer is not None]
        moved |= {var: index(0) for var, kind in zip(own, outside, strict=True) if kind == "reduce"}
        renamed = {block.vars[at]: var for at, var in zip(spatial, variables, strict=True)}
        assert block.init is not None
        begun = substitute(block.init, renamed)
        label = fresh_label(self.kernel, f"{block.label}_init")
        extents = [block.extents[at] for at in spatial]
        values = [_at(bindings[at], moved) for at in spatial]
        where = _at(predicate, moved)
        kinds = "s" * len(spatial)
        body: Stmt = make_block(label, variables, extents, kinds, values, begun, predicate=where)
        for loop, var in zip(reversed(kept), reversed(loops), strict=True):
            body = For(var, loop.extent, "serial", body)
        return body


def _at(term: Scalar, values: dict[Term, Scalar] | dict[ScalarVar, Scalar]) -> Scalar:
    scalar = substitute(term, values)
    return simple(scalar)


def _all(conditions: Sequence[Scalar]) -> Scalar:
    total: Scalar = TRUE
    for condition in conditions:
        total = condition if total is TRUE else And(total, condition)
    return total


blockize = Blockize
