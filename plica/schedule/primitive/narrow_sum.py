"""narrow_sum: compute a short sum of widened terms in the dtype before widening.

    before                                  after  narrow_sum(c)
    C: f64                                  C: f32
    for i, k in grid(n, 16):                for i, k in grid(n, 16):
        with block("C", …, reduce=k):           with block("C", …, reduce=k):
            with init(): C[vi] = 0                  with init(): C[vi] = 0
            C[vi] += f64(A[vi, vk])                 C[vi] += A[vi, vk]
    … reads C[i]                            … reads f64(C[i])

Partial sums of a long sum need no wide accumulator: `rfactor` creates partial sums, and this step
narrows them. Their total stays wide.

Preconditions:

- a reduction: `reduce-kinds`, `reducer`, `same-element`, `distinct-writes`, `starts`.
- `single-store`, `identity`: a sum that starts with 0.
- `widened`: the terms are casts of narrower floats.
- `few-terms`: at most 128 terms.
- `intermediate`: the buffer is not an output.
- `sole-writer`: nothing else writes the buffer.
- `plain-reads`: readers load single elements.
"""

from __future__ import annotations

from math import prod
from typing import Final

from attrs import evolve, frozen

from plica.analysis.access import accesses
from plica.analysis.reduction import reducer, update
from plica.analysis.site import with_body
from plica.core import Term, free_vars, map_bottom_up, post_order
from plica.ir.contract import reassociates
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.scalar import Add, Buffer, Cast, Load, Scalar, Select, dtype_of
from plica.ir.loop.statement import Alloc, Block, Region, Store
from plica.ir.type import DType, known
from plica.schedule.block_class import reduction_body
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.precondition import intermediate
from plica.schedule.primitive.pad_fold import starts_from_identity
from plica.schedule.problem import Problem

MAX_TERMS: Final = 128  # terms that are added in the narrow dtype: this many roundings at most


@primitive("narrow_sum")
@frozen(eq=False)
class NarrowSum(Instruction):
    """A block that sums widened terms; gives nothing."""

    contract = reassociates

    block: Handle

    def check(self, scene: Scene) -> Problem | None:
        block = scene.block(self.block).node
        if (problem := reduction_body(block) or starts_from_identity(block)) is not None:
            return problem
        store = block.body
        assert isinstance(store, Store)
        if reducer(block) != "sum":
            return Problem("reducer", block, "a sum", str(reducer(block)))
        if _narrowed(store) is None:
            expected = "terms that are casts of a narrower float"
            return Problem("widened", block, expected, "other terms")
        sizes = [known(size) for size, kind in zip(block.extents, block.kinds, strict=True)
                 if kind == "reduce"]  # fmt: skip
        if None in sizes or prod(size or 0 for size in sizes) > MAX_TERMS:
            expected = f"at most {MAX_TERMS} terms"
            return Problem("few-terms", block, expected, " x ".join(map(str, sizes)))
        return intermediate(scene, store.buffer) or _used_plainly(scene, block, store.buffer)

    def edit(self, scene: Scene) -> Edited:
        block, kernel = scene.block(self.block).node, scene.kernel
        assert isinstance(block.body, Store)
        term = _narrowed(block.body)
        assert term is not None
        wide, dtype = block.body.buffer, dtype_of(term)
        narrow = evolve(wide, dtype=dtype)
        start, _ = MEANING["sum"]

        def change(node: Term) -> Term:
            match node:
                case Load(buffer, indices) if buffer is wide:
                    return Cast(Load(narrow, indices), wide.dtype)
                case Store(buffer, indices, Add()) if buffer is wide:
                    # Its operands were rewritten before: the term is taken from the block.
                    return Store(narrow, indices, Add(Load(narrow, indices), term))
                case Store(buffer, indices, _) if buffer is wide:
                    return Store(narrow, indices, start(dtype))
                case Alloc(buffer, body) if buffer is wide:
                    return Alloc(narrow, body)
                case _:
                    return node

        return Edited(with_body(kernel, map_bottom_up(change, kernel.body)))


def _narrowed(store: Store) -> Scalar | None:
    """The term of an update before widening, or None."""

    def inner(term: Scalar | None) -> Scalar | None:
        match term:
            case Cast(value, wide) if _is_narrower(dtype_of(value), wide):
                return value
            case Select(condition, chosen, rest) if rest is MEANING["sum"][0](dtype_of(rest)):
                short = inner(chosen)
                if short is None:
                    return None
                return Select(condition, short, MEANING["sum"][0](dtype_of(short)))
            case _:
                return None

    return inner(update(store))


def _is_narrower(one: DType, other: DType) -> bool:
    return one.is_float and other.is_float and one.bytes < other.bytes


def _used_plainly(scene: Scene, block: Block, buffer: Buffer) -> Problem | None:
    """The problem of a buffer with other writers, or with region accesses."""
    for site in scene.map.blocks.values():
        other = site.node
        if other is not block and any(
            access.written and access.buffer is buffer for access in accesses(other)
        ):
            return Problem("sole-writer", buffer, "one writer", str(other.label))
    for node in post_order(scene.kernel.body):
        if isinstance(node, Region) and node.buffer is buffer:
            return Problem("plain-reads", buffer, "reads of single elements", "a region")
    assert buffer in free_vars(block)
    return None


narrow_sum = NarrowSum
