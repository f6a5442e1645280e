"""pad_fold: pad a reduction with identity terms to a multiple of a length.

    before                                  after  pad_fold(k, 4)
    for i, k in grid(n, 6):                 for i, k in grid(n, 8):
        with block("C", …, reduce=k):           with block("C", …, reduce=k):
            with init(): C[vi] = 0                  with init(): C[vi] = 0
            C[vi] += A[vi, vk]                      C[vi] += A[vi, vk] if vk < 6 else 0

Tiles and `rfactor` then need no guard around the store; a masked store would keep the
accumulators in memory. Exact: combining with the identity changes no value, since a sum from 0.0
is never -0.0.

Preconditions:

- `plain-loop`: a serial loop without annotations.
- `one-block`: the loop contains one block and nothing else.
- a reduction: `reduce-kinds`, `reducer`, `same-element`, `distinct-writes`, `starts`.
- `single-store`: init and update are one store each.
- `identity`: the init stores the identity of the combiner.
- `reduce-loop`: the loop is a reduce variable over its whole extent, and nothing else depends on
  it.
- `multiple`: a positive number.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.analysis.reduction import reducer, update
from plica.analysis.site import Site, replace, with_parts
from plica.core import free_vars
from plica.ir.loop import MEANING, Block, For, Lt, Scalar, Select, Stmt, Store
from plica.ir.type import known
from plica.schedule.block_class import reduction_body
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Number, Scene, primitive
from plica.schedule.precondition import plain_loop
from plica.schedule.primitive.rfactor import block_below, joined_update
from plica.schedule.problem import Problem


@primitive("pad_fold")
@frozen(eq=False)
class PadFold(Instruction):
    """A loop of a reduction, and what its extent is to be a multiple of."""

    loop: Handle
    multiple: Number

    def check(self, scene: Scene) -> Problem | None:
        loop = scene.loop(self.loop)
        if (problem := plain_loop(loop.node)) is not None:
            return problem
        if scene.number(self.multiple) < 1:
            found = str(scene.number(self.multiple))
            return Problem("multiple", loop, "a positive multiple", found)
        if (site := block_below(scene, loop)) is None:
            return Problem("one-block", loop, "one block inside it, and nothing else", "another")
        return (
            reduction_body(site.node)
            or starts_from_identity(site.node)
            or feeds_one_variable(site, loop.node)
        )

    def edit(self, scene: Scene) -> Edited:
        at = scene.loop(self.loop)
        loop, site = at.node, block_below(scene, at)
        assert site is not None
        block, store = site.node, site.node.body
        assert isinstance(store, Store)
        padded = rounded_up(loop.extent, scene.number(self.multiple))
        axis = block.bindings.index(loop.var)
        start, _ = MEANING[reducer(block)]  # type: ignore[index]  # checked
        term = update(store)
        assert term is not None
        inside = Lt(block.vars[axis], block.extents[axis])
        term = Select(inside, term, start(store.buffer.dtype))
        extents = (*block.extents[:axis], padded, *block.extents[axis + 1 :])
        new = with_parts(
            block, extents=extents, body=joined_update(store, term), reads=(), writes=()
        )
        kernel = replace(scene.kernel, site, new)
        moved = Scene(kernel, {}).map.loops[loop.var]
        nest: Stmt = For(loop.var, padded, loop.kind, moved.node.body, loop.annotations)
        return Edited(replace(kernel, moved, nest))


def starts_from_identity(block: Block) -> Problem | None:
    """The problem of a reduction that does not begin with the identity of its combiner."""
    word = reducer(block)
    if not isinstance(block.init, Store) or not isinstance(block.body, Store):
        return Problem("single-store", block, "an init and an update of one store", "more")
    if word not in MEANING:
        return Problem("reducer", block, f"one of {', '.join(MEANING)}", str(word))
    identity = MEANING[word][0](block.init.buffer.dtype)
    if block.init.value is not identity:
        expected = f"an init that stores the identity of {word}, {identity.value}"  # type: ignore[attr-defined]  # a literal
        return Problem("identity", block, expected, "another value")
    return None


def feeds_one_variable(site: Site[Block], loop: For) -> Problem | None:
    """The problem of a loop that is not, alone and as a whole, one reduce variable of a block."""
    block = site.node
    expected = "a loop that is one reduce variable, over its whole extent, and nothing else"
    fed = [at for at, binding in enumerate(block.bindings) if loop.var in free_vars(binding)]
    if len(fed) != 1 or block.bindings[fed[0]] is not loop.var or block.kinds[fed[0]] != "reduce":
        return Problem("reduce-loop", block, expected, f"what it feeds of {block.label} is not")
    inner = [each.extent for each in site.loops]
    if block.extents[fed[0]] is not loop.extent or any(
        loop.var in free_vars(scalar) for scalar in (block.predicate, *inner)
    ):
        return Problem("reduce-loop", block, expected, "a guard or another extent depends on it")
    return None


def rounded_up(extent: Scalar, multiple: int) -> Scalar:
    """The extent, or the next multiple of a number."""
    size = known(extent)
    if multiple == 1 or (size is not None and size % multiple == 0):
        return extent
    return simple((extent + (multiple - 1)) // multiple * multiple)


pad_fold = PadFold
