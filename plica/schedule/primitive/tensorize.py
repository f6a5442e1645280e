"""tensorize: replace a block, or a loop nest, by a tensor intrinsic, and return its block.

    before                                 after  tensorize(i_1, "doc.add4")
    for i_0 in range(4):                   for i_0 in range(4):
        for i_1 in range(4):                   with block("C_o", vo=i_0):
            with block("C", v=i_0 * 4 + i_1):      invoke("doc.add4", A[vo * 4 : …], C[vo * 4 : …])
                C[v] = C[v] + A[v]

The intrinsic is declared by its meaning, a kernel. Matching ignores the order of loops, unit loops,
unit dimensions, and the order of operands of sums and products. If the intrinsic does not
initialise its accumulator, the init of the block stays.

Preconditions:

- `known-intrinsic`: a declared intrinsic.
- for a loop, those of `blockize`: `rectangular`, `division`, `injective`, `begins`, `predicate`.
- for a loop, also a reduction: `reduce-kinds`, `reducer`, `same-element`, `distinct-writes`,
  `starts`.
- `describable`: its meaning is stores in loops.
- `match`: the block computes the same; the message shows the difference.
- `within`: the regions are inside their buffers.
"""

from __future__ import annotations

from functools import lru_cache

from attrs import frozen

from plica.analysis.enclosing import context_of
from plica.analysis.index import Context, can_prove
from plica.analysis.region import block_boxes
from plica.analysis.site import Above, replace, with_parts
from plica.core import did_you_mean
from plica.ir.contract import reassociates
from plica.ir.loop.intrinsic import find_intrinsic, intrinsics
from plica.ir.loop.invocation import TensorIntrinsic
from plica.ir.loop.scalar import Le, index
from plica.ir.loop.statement import Block, Invoke, Kernel, Stmt
from plica.ir.type import known
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.match import IntrinsicMatch, MatchFailure, described, matched
from plica.schedule.nest import Nest, nests_of
from plica.schedule.primitive.blockize import blockized, problem_of
from plica.schedule.problem import Problem


@primitive("tensorize")
@frozen(eq=False)
class Tensorize(Instruction):
    """A loop or a block, and the name of an intrinsic; gives the block that invokes it."""

    gives = "one"
    contract = reassociates  # an intrinsic adds in an order of its own

    target: Handle
    intrinsic: str

    def check(self, scene: Scene) -> Problem | None:
        if find_intrinsic(self.intrinsic) is None:
            hint = did_you_mean(self.intrinsic, [intrinsic.name for intrinsic in intrinsics()])
            expected = "a declared intrinsic"
            return Problem("known-intrinsic", "tensorize", expected, repr(self.intrinsic), hint)
        if self.target.sort == "loop":
            problem = problem_of(scene, scene.loop(self.target))
            if problem is not None:
                return problem
        found = self.tensorized(scene)
        return found if isinstance(found, Problem) else None

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.target) if self.target.sort == "loop" else scene.block(self.target)
        new = self.tensorized(scene)
        assert isinstance(new, Block)  # as checked
        return Edited(replace(scene.kernel, site, new), (new.label,))

    def tensorized(self, scene: Scene) -> Block | Problem:
        """The block that invokes the intrinsic."""
        intrinsic = find_intrinsic(self.intrinsic)
        assert intrinsic is not None
        if self.target.sort == "block":
            place = scene.block(self.target)
            return _tensorized(scene.kernel, place.node, place.above, intrinsic)
        site = scene.loop(self.target)
        if isinstance(block := blockized(scene.kernel, site), Problem):
            return block
        return _tensorized(scene.kernel, block, site.above, intrinsic)


@lru_cache(maxsize=256)
def _tensorized(
    kernel: Kernel, block: Block, above: Above, intrinsic: TensorIntrinsic
) -> Block | Problem:
    if isinstance(meaning := described(intrinsic), str):
        expected = f"a meaning of {intrinsic.name} that is stores in loops"
        return Problem("describable", block, expected, meaning)
    context = context_of((*above, (block, 0)))
    if isinstance(body := nests_of(block.body, context), str):
        return Problem("match", block, f"stores in loops, as {intrinsic.name} means", body)
    init: Stmt | None = block.init
    if init is not None and len(meaning.nests) > len(body):
        if isinstance(whole := _from_the_start(block, init, body, context), str):
            return Problem("match", block, f"the init that {intrinsic.name} means", whole)
        body, init = whole, None
    if isinstance(found := matched(body, meaning), MatchFailure):
        return Problem("match", block, found.expected, found.found)
    for param in meaning.params:
        region = found.regions[param.name]
        for start, extent, size in zip(
            region.starts, region.extents, region.buffer.shape, strict=True
        ):
            inside = can_prove(Le(index(0), start), context)
            if not inside or not can_prove(Le(start + extent, size), context):
                expected = f"a region for {param.name} inside {region.buffer.name}"
                return Problem("within", block, expected, "one that is not shown to be")
    call = _invocation(intrinsic.name, found, tuple(param.name for param in meaning.params),
                       meaning.dims)  # fmt: skip
    plain = with_parts(block, body=call, init=init, reads=(), writes=())
    reads, writes = block_boxes(plain)
    return with_parts(
        plain,
        reads=tuple(read.region for read in reads),
        writes=tuple(write.region for write in writes),
    )


def _from_the_start(
    block: Block, init: Stmt, body: tuple[Nest, ...], context: Context
) -> tuple[Nest, ...] | str:
    """The init and the updates, where they run in one and the same instance."""
    for var, kind, extent in zip(block.vars, block.kinds, block.extents, strict=True):
        if kind == "reduce" and known(extent) != 1:
            return f"one that runs in the first turn of {var.name} only"
    first = nests_of(init, context)
    return first if isinstance(first, str) else (*first, *body)


def _invocation(
    name: str, found: IntrinsicMatch, params: tuple[object, ...], dims: tuple[object, ...]
) -> Invoke:
    regions = [found.regions[param] for param in params]  # type: ignore[index]  # names
    return Invoke(name, (*regions, *[found.sizes[each] for each in dims]))  # type: ignore[index]  # names


tensorize = Tensorize
