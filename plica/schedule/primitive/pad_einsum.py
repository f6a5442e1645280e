"""pad_einsum: pad a sum of products to larger extents with zeros.

    before                                 after  pad_einsum(c, (4, 4, 1))
    for i, j, k in grid(6, 5, 3):          A_pad = A with 2 rows of zeros more
        with block("C", ssr):              for i, j, k in grid(8, 8, 3):
            C[i, j] += A[i, k] * B[k, j]       with block("C", ssr):
                                                   C_pad[i, j] += A_pad[i, k] * B_pad[k, j]
                                           C = C_pad without what is outside

Every extent is rounded up to a multiple, so that tiles and intrinsics fit. Returns the padding
blocks, then the block that copies the result, if any.

Preconditions:

- a reduction: `reduce-kinds`, `reducer`, `same-element`, `distinct-writes`, `starts`.
- `einsum`: a sum of products from 0, each index a variable, each buffer at one position. A
  reduction is padded only if every factor is padded with it.
- `padding`: a positive number per variable.
- `trivial`: each variable is a loop, with nothing else inside and no predicate.
- `plain-loop`: serial loops without annotations.
- `independent`, `handed-over`: parallel loops around it and inside it stay legal.
"""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.analysis.site import Site, allocate, fresh_label, fresh_names, replace, with_parts
from plica.core import Name, substitute
from plica.ir.contract import signless_zero
from plica.ir.loop import scalar as sc
from plica.ir.loop.statement import TRUE, Block, For, Stmt, Store, block as make_block, seq
from plica.ir.type import i64, known
from plica.schedule.block_class import reduction_body
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.launch import unsafe_after
from plica.schedule.precondition import all_of, plain_loop
from plica.schedule.problem import Problem


@primitive("pad_einsum")
@frozen(eq=False)
class PadEinsum(Instruction):
    """A block that sums products, and what each extent is to be a multiple of."""

    gives = "several"
    contract = signless_zero  # what is added to a sum is 0

    block: Handle
    padding: tuple[int, ...]

    def check(self, scene: Scene) -> Problem | None:
        site = scene.block(self.block)
        block, where = site.node, f"the block {site.node.label}"
        if (problem := reduction_body(block)) is not None:
            return problem
        if len(self.padding) != len(block.vars) or any(each < 1 for each in self.padding):
            expected = f"{len(block.vars)} positive numbers"
            return Problem("padding", where, expected, str(self.padding))
        if (factors := einsum(block)) is None:
            expected = "a sum of products from 0 of elements at its variables"
            return Problem("einsum", where, expected, "something else")
        wider = self.wider(block)
        for var, kind in zip(block.vars, block.kinds, strict=True):
            if kind == "reduce" and var in wider:
                for factor in factors:
                    if var not in factor.indices:
                        found = f"{factor.buffer.name} does not depend on {var.name}"
                        expected = "every factor to be 0 where a reduction is padded"
                        return Problem("einsum", where, expected, found)
        return self.trivial(site) or unsafe_after(self, scene)

    def trivial(self, site: Site[Block]) -> Problem | None:
        """The problem of loops that are not the block's variables."""
        block = site.node
        own = site.loops[-len(block.vars) :]
        chained = all(a.body is b for a, b in zip(own, [*own[1:], block], strict=True))
        each_one = {loop.var for loop in own} == set(block.bindings)
        if len(own) != len(block.vars) or not chained or not each_one:
            expected = "a loop of its own for each variable, nothing else inside them"
            return Problem("trivial", block, expected, "other bindings or loops")
        sizes = dict(zip(block.bindings, block.extents, strict=True))
        for loop in own:
            if sizes[loop.var] is not loop.extent or block.predicate is not TRUE:
                expected = "loops over the extents of its variables, and no predicate"
                return Problem("trivial", block, expected, "others")
            if (problem := plain_loop(loop)) is not None:
                return problem
        return None

    def wider(self, block: Block) -> dict[sc.ScalarVar, sc.Scalar]:
        """The variables whose extents grow, with their new extents."""
        found: dict[sc.ScalarVar, sc.Scalar] = {}
        for var, extent, multiple in zip(block.vars, block.extents, self.padding, strict=True):
            size = known(extent)
            if multiple > 1 and (size is None or size % multiple):
                found[var] = simple((extent + (multiple - 1)) // multiple * multiple)
        return found

    def edit(self, scene: Scene) -> Edited:
        site = scene.block(self.block)
        block, kernel = site.node, scene.kernel
        if not (wider := self.wider(block)):
            return Edited(kernel)
        factors = einsum(block)
        assert factors is not None  # as checked
        assert isinstance(block.body, Store)
        work = _Padding(scene, block, wider)
        before = [work.padded(load) for load in dict.fromkeys(factors)]
        target = sc.Load(block.body.buffer, block.body.indices)
        after = work.cropped(target)
        own = site.loops[-len(block.vars) :]
        extents = tuple([wider.get(var, size) for var, size in zip(
            block.vars, block.extents, strict=True)])  # fmt: skip
        new = with_parts(
            block, extents=extents, init=work.moved(block.init), body=work.moved(block.body),
            reads=(), writes=(),
        )  # fmt: skip
        nest: Stmt = new
        sizes = dict(zip(block.bindings, extents, strict=True))
        for loop in reversed(own):
            nest = For(loop.var, sizes[loop.var], loop.kind, nest)
        outermost = scene.map.loops[own[0].var]
        made = seq(*[statement for statement in before if statement is not None], nest, *after)
        labels = tuple(work.labels)
        return Edited(allocate(replace(kernel, outermost, made), work.buffers.values()), labels)


def pad_einsum(block: Handle, padding: Iterable[int]) -> Instruction:
    """A sum of products over extents that are multiples; gives the blocks that pad and copy."""
    return PadEinsum(block, tuple(padding))


def einsum(block: Block) -> tuple[sc.Load, ...] | None:
    """The factors whose product a block accumulates from 0, or None."""
    init, body = block.init, block.body
    if not isinstance(init, Store) or not isinstance(body, Store):
        return None
    if (
        not isinstance(init.value, sc.Lit)
        or init.value.value != 0
        or not isinstance(body.value, sc.Add)
    ):
        return None
    old = sc.Load(body.buffer, body.indices)
    sides = (body.value.left, body.value.right)
    rest = sides[1] if sides[0] is old else sides[0] if sides[1] is old else None
    factors: list[sc.Load] = []
    stack = [] if rest is None else [rest]
    while stack:
        if isinstance(node := stack.pop(), sc.Mul):
            stack += [node.right, node.left]
        elif isinstance(node, sc.Load):
            factors.append(node)
        else:
            return None
    for load in (old, *factors):
        plain = all(at in block.vars for at in load.indices)
        if not plain or len(set(load.indices)) != len(load.indices):
            return None
    places = {factor.buffer: factor.indices for factor in factors}
    if any(places[factor.buffer] != factor.indices for factor in factors):
        return None  # a buffer has one larger copy
    return tuple(factors) or None


class _Padding:
    """Buffers, blocks and names that are made while a block is padded."""

    def __init__(self, scene: Scene, block: Block, wider: dict[sc.ScalarVar, sc.Scalar]) -> None:
        self.kernel, self.block = scene.kernel, block
        self.wider: dict[sc.Scalar, sc.Scalar] = dict(wider.items())
        self.sizes: dict[sc.Scalar, sc.Scalar] = dict(zip(block.vars, block.extents, strict=True))
        self.buffers: dict[sc.Buffer, sc.Buffer] = {}
        self.labels: list[Name] = []
        self.names: list[Name] = []

    def fresh(self, hint: str) -> Name:
        """A name that neither the kernel nor anything made here has."""
        name = fresh_names(self.kernel, [*self.names, Name(hint)])[-1]
        self.names.append(name)
        return name

    def label(self, hint: str) -> Name:
        name = fresh_label(self.kernel, hint)
        while name in self.labels:
            name = fresh_label(self.kernel, f"{hint}_{len(self.labels)}")
        self.labels.append(name)
        return name

    def widened(self, of: sc.Load) -> sc.Buffer | None:
        """The enlarged buffer, or None if unchanged."""
        if not any(var in self.wider for var in of.indices):
            return None
        if of.buffer not in self.buffers:
            shape = tuple([self.wider.get(var, self.sizes[var]) for var in of.indices])
            name = self.fresh(f"{of.buffer.name}_pad")
            self.buffers[of.buffer] = sc.Buffer(name, shape, of.buffer.dtype)
        return self.buffers[of.buffer]

    def padded(self, of: sc.Load) -> Stmt | None:
        """The zero-padded copy of an input, or None if it exists or is unchanged."""
        made = of.buffer in self.buffers
        wide = self.widened(of)
        if wide is None or made:
            return None
        loops, own = self.variables(len(of.indices)), self.variables(len(of.indices))
        inside = all_of(
            [
                sc.Lt(var, self.sizes[at])
                for var, at in zip(own, of.indices, strict=True)
                if at in self.wider
            ]
        )
        value = sc.Select(inside, sc.Load(of.buffer, tuple(own)), sc.Lit(0, of.buffer.dtype))
        return self.nest(wide, wide.shape, loops, own, Store(wide, tuple(own), value))

    def cropped(self, target: sc.Load) -> list[Stmt]:
        """The copy of the result without padding; empty if unchanged."""
        if (wide := self.widened(target)) is None:
            return []
        extents = tuple([self.sizes[var] for var in target.indices])
        loops, own = self.variables(len(extents)), self.variables(len(extents))
        copy = Store(target.buffer, tuple(own), sc.Load(wide, tuple(own)))
        return [self.nest(wide, extents, loops, own, copy)]

    def variables(self, count: int) -> list[sc.ScalarVar]:
        return [sc.ScalarVar(self.fresh("ax"), i64) for _ in range(count)]

    def nest(
        self,
        of: sc.Buffer,
        extents: tuple[sc.Scalar, ...],
        loops: list[sc.ScalarVar],
        own: list[sc.ScalarVar],
        body: Store,
    ) -> Stmt:
        label = self.label(str(of.name))
        stmt: Stmt = make_block(label, own, extents, "s" * len(own), loops, body)
        for var, extent in zip(reversed(loops), reversed(extents), strict=True):
            stmt = For(var, extent, "serial", stmt)
        return stmt

    def moved(self, stmt: Stmt | None) -> Stmt | None:
        """A statement that speaks of the larger buffers."""
        if stmt is None:
            return None
        return substitute(stmt, self.buffers)
