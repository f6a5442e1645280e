"""Linearisation: a resolved graph of primitive operators becomes a program.

Each primitive function, and each other operator, is one launch of one kernel, in topological order;
each value has a slot. A result is written directly to its destination (an output, the result of an
`If`) unless it is produced elsewhere or needed twice; then it is copied. A view shares the slot of
its operand and takes no step, and neither does a concatenation whose parts are written in place
(`plica.codegen.lower.part_placement`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from attrs import evolve

from plica.codegen import program as programs
from plica.codegen.lower.passes import LoweredKernel
from plica.codegen.lower.processor import processor
from plica.codegen.lower.region import RegionTree
from plica.codegen.lower.scheduled import Scheduled, Scheduler, plain, read_by
from plica.codegen.lower.step import (
    Pending,
    PendingChoose,
    PendingChunks,
    PendingCopy,
    PendingLaunch,
    Value,
    branch_items,
    is_joint,
    leaves,
    made_by,
    result_of,
    shown,
    steps_below,
    views,
)
from plica.core import CompilerBug, Term, digest, post_order
from plica.core.diagnostic import MAX_TENSOR_BYTES, spanned_bytes, too_large
from plica.ir.contract import exact
from plica.ir.graph.expression import Call, Const, Expr, Function, If, Var, attr
from plica.ir.graph.module import Definition, Extern, Module
from plica.ir.graph.shape_specialisation import open_dims
from plica.ir.loop import Buffer, Kernel, Scalar, index as index_term
from plica.ir.type import TensorType, greater, known, static_shape, type_of
from plica.rewrite.fuse.reading import parts
from plica.rewrite.fuse.to_stages import alone, to_stages
from plica.runtime.error import UnsupportedError
from plica.runtime.late import lazy_imports
from plica.schedule.trace import Trace

with lazy_imports(__name__):  # few graphs call kernels
    from plica.codegen.lower.chunk import ChunkRows, chunk, row_bytes
    from plica.codegen.lower.donate import check_donated, unsound, with_unread, written_over_input
    from plica.codegen.lower.kernel_call import all_written, called_kernel
    from plica.codegen.lower.part_placement import PartPlacement, fitted, placed
    from plica.ir.loop.need import asserted

PLAIN: Final = processor(None, exact)  # plain loops for every kernel


def linearised(
    of: Module,
    schedule: Scheduler = PLAIN,
    built: Callable[[str], object] | None = None,
    *,
    parts: bool = False,
) -> programs.Program:
    """The program of a resolved and decomposed module, each kernel of which is scheduled.

    `built` is called for every kernel built on the way, with its digest. With `parts`, a slot may
    be a part of another.
    """
    function = of.main_function()
    wanted: tuple[str, ...] = attr(function, "donated", ())
    offered: tuple[str, ...] = attr(function, "offered", ())
    dims = open_dims(of)
    names = tuple([str(param.name) for param in function.params for _ in leaves(param)])
    joint = parts and any(map(is_joint, steps_below(function.body)))
    joins, notes = joint and not dims, (NOT_JOINED,) if joint and dims else ()

    def build(
        inputs: tuple[str, ...], barred: frozenset[Expr] | None
    ) -> tuple[programs.Program, Mapping[Expr, int]]:
        maker = _Maker(schedule, built, of.definitions(), inputs, frozenset(dims))
        maker.barred = barred
        made = maker.program(function.params, function.body)
        return evolve(made, dims=dims, joined=(*made.joined, *notes)), maker.own_parts()

    while True:
        both = (*wanted, *offered)
        program = fitted(partial(build, both)) if joins else build(both, None)[0]
        if not offered or not (late_reads := unsound(program, names, offered)):
            break
        offered = tuple([each for each in offered if each not in late_reads])
    if wanted:
        program = with_unread(program, names, wanted)
        check_donated(program, names, wanted)
    return program


NOT_JOINED: Final = (
    "No part is written in place: with open sizes it is no number where in the whole it begins."
)


class _Maker:
    """What grows while a program is made."""

    def __init__(
        self,
        schedule: Scheduler,
        built: Callable[[str], object] | None,
        table: Mapping[Term, Definition],
        wanted: tuple[str, ...] = (),
        dims: frozenset[Term] = frozenset(),
    ) -> None:
        self.dims = dims
        self.barred: frozenset[Expr] | None = None  # what is no part; None where nothing is one
        self.parts: PartPlacement | None = None
        self.put: dict[tuple[Expr, int], tuple[int, PendingCopy]] = {}  # what is copied into a join
        self.wanted = wanted  # names of the inputs that may be written over
        self.donated: dict[int, int] = {}  # slots of such inputs, and of what is written there
        self.schedule, self.built, self.table = schedule, built, table
        self.tree = RegionTree()
        self.slots: list[programs.Slot] = []
        self.counts: dict[programs.Space, int] = {}
        self.given: dict[Expr, int] = {}  # slots of inputs and constants
        self.made: dict[Value, int] = {}  # slots of results
        self.wishes: dict[Value, list[tuple[int, int]]] = {}  # region and slot to end in
        self.uses: dict[Expr, dict[int, None]] = {}  # the regions that need a step
        self.constants: list[Const] = []
        self.kernels: dict[str, tuple[int, Kernel, str]] = {}  # by digest, in order of use
        self.steps: list[list[tuple[int, Pending]]] = [[]]
        self.copies: list[list[PendingCopy]] = [[]]  # what ends each region
        self.thunks: list[int] = []
        self.origins: dict[
            str, programs.KernelOrigin
        ] = {}  # how scheduled kernels came about, by digest
        self.lowered: dict[Kernel, LoweredKernel] = {}
        self.passed_over: dict[str, None] = {}  # schedules that could not be lowered, and why

    def program(self, params: tuple[Var, ...], body: Expr) -> programs.Program:
        """The whole: steps from the last to the first, so that all uses of each are known."""
        for param in params:
            for leaf in leaves(param):
                self.given[leaf] = self.slot("input", leaf)
                if str(param.name) in self.wanted:
                    self.donated[self.given[leaf]] = -1
        order = steps_below(body)
        if self.barred is not None:
            self.parts = placed(order, body, self.barred)
        self.uses = {step: {} for step in order}
        for leaf in leaves(body):
            self.deliver(leaf, 0, self.slot("output", leaf))
        for index in range(len(order) - 1, -1, -1):
            if self.uses[order[index]]:
                self.place(order[index], index)
        self.steps[0] += self.put.values()
        regions = []
        for steps, copies in zip(self.steps, self.copies, strict=True):
            done: list[programs.Step] = [self.finish(step) for _, step in sorted(steps, key=_when)]
            regions.append(
                (*done, *(programs.Copy(self.where(copy.source), copy.target) for copy in copies))
            )
        kernels = list(self.kernels.values())
        return programs.Program(
            kernels=tuple([kernel for _, kernel, _ in kernels]),
            names=tuple([name for _, _, name in kernels]),
            slots=tuple(self.slots),
            regions=tuple(regions),
            entry=0,
            constants=tuple(self.constants),
            thunks=tuple(self.thunks),
            origins=tuple([self.origins.get(key) for key in self.kernels]),
            joined=() if self.parts is None else self.parts.notes,
            passed_over=tuple(self.passed_over),
            lowered=self.lowered,
            digests=tuple(self.kernels),
            donated=tuple([
                (self.slots[old].index, self.slots[new].index)
                for old, new in self.donated.items() if new >= 0
            ]),
        )  # fmt: skip

    def place(self, step: Expr, index: int) -> None:
        """Give a step its region and its slots, and note what it needs there."""
        users = self.tree.reduced(self.uses[step])
        region = users[0]
        if len(users) > 1:
            region = self.opened(self.tree.child(self.tree.common(users)))
            for user in users:
                self.steps[user].append((index, programs.Force(len(self.thunks))))
            self.thunks.append(region)
        if isinstance(step, If):
            self.choose(step, index, region)
        elif self.parts is not None and step in self.parts.joins:
            self.join(step, index, region, self.parts)
        elif self.parts is not None and step in self.parts.ranges:
            self.need(self.parts.ranges[step][0], region)
        else:
            self.launch(step, index, region)

    def choose(self, step: If, index: int, region: int) -> None:
        then, orelse = map(self.opened, self.tree.branches(region))
        left, right = branch_items(step.then), branch_items(step.orelse)
        targets = [self.result((step, i), region, leaf) for i, leaf in enumerate(left)]
        for side, items in ((then, left), (orelse, right)):
            for leaf, target in zip(items, targets, strict=True):
                self.deliver(leaf, side, target)
        self.need(step.condition, region)
        self.steps[region].append((index, PendingChoose(step.condition, then, orelse)))

    def join(self, step: Expr, index: int, region: int, of: PartPlacement) -> None:
        """A concatenation after its parts: those not written in place are copied."""
        self.result((step, 0), region, step)
        home, first = of.homes.get(step, (step, 0))
        args = parts(step)
        assert args is not None
        for piece in of.joins[step]:
            leaf = shown(args[piece.operand])
            self.need(leaf, region)
            offset = first + piece.start * self.slots[self.made[step, 0]].dtype.bytes
            if of.homes.get(leaf) != (home, offset):  # by the first who needs it there
                target = self.part(self.made[home, 0], offset, leaf)
                self.put[home, offset] = index, PendingCopy(leaf, target)

    def own_parts(self) -> dict[Expr, int]:
        """The slots of values that are parts of others."""
        made = {step: slot for (step, _), slot in self.made.items()}
        return {step: at for step, at in made.items() if self.slots[at].within is not None}

    def part(self, whole: int, offset: int, leaf: Expr) -> int:
        """The slot of a part of another one, at a byte offset."""
        of, inside = type_of(leaf), self.slots[whole]
        assert isinstance(of, TensorType)
        within = whole if inside.within is None else inside.within
        shape = static_shape(of)
        assert shape is not None  # where sizes are open there are no parts
        start = inside.offset + offset
        return self.add(programs.Slot(inside.space, inside.index, shape, of.dtype, within, start))

    def launch(self, step: Expr, index: int, region: int) -> None:
        if isinstance(step, Call) and isinstance(step.callee, Var):
            self.call(step, step.callee, index, region)
            return
        function, args = alone(step) if not isinstance(step, Call) else (step.callee, step.args)
        assert isinstance(function, Function)
        target = self.result((step, 0), region, step)
        over = self.over_input(function, args, target, step) if self.donated else None
        if over is not None and not region:
            for read in over.reads:
                self.need(read, region)
            self.steps[region].append((index, over))
            return
        rows, sizes = self.schedule.rows(function, args)
        if rows is None or not sizes or not self.has_form(rows, sizes, args):
            launch = self.made_of(self.schedule(function, args), args, target, step)
            if self.dims:
                launch = evolve(launch, least=self.asserted(function, args))
        else:
            launch = self.chunks(function, args, target, step, (rows, sizes))
        for read in launch.reads:
            self.need(read, region)
        self.steps[region].append((index, launch))

    def asserted(self, function: Function, args: Sequence[Expr]) -> tuple[Scalar, ...]:
        """A launch's requirements on sizes, from its function or the views it reads."""
        seen = [view for arg in args for view in list(views(arg))[:-1]]
        return asserted((*post_order(function.body), *seen), self.dims)

    def call(self, step: Call, name: Var, index: int, region: int) -> None:
        """The launch of a user's kernel, unchanged."""
        called = self.table.get(name)
        assert isinstance(called, Kernel | Extern)  # or it would not have been left a call
        types = tuple([type_of(arg) for arg in step.args])
        before = called_kernel(called, str(name.name), types)
        kernel = all_written(before)
        key = digest(kernel)
        if self.built is not None:
            self.built(key)
        if isinstance(called, Kernel):  # what an extern does is nobody's to lower
            self.origins.setdefault(key, programs.KernelOrigin(before, Trace(())))
        results = list(leaves(step))
        targets = [self.result((step, at), region, leaf) for at, leaf in enumerate(results)]
        for read in step.args:
            self.need(read, region)
        source = str(name.name)
        launch = PendingLaunch(kernel, key, step.args, tuple(targets), source, step, kernel.dims)
        self.steps[region].append((index, launch))

    def over_input(
        self, function: Function, args: Sequence[Expr], target: int, step: Expr
    ) -> PendingLaunch | None:
        """The launch that writes a result over a donated input, where it can."""
        if self.slots[target].space != "output":
            return None
        whole = to_stages(function)
        for buffer, read in zip(whole.stages.inputs, whole.reads, strict=True):
            slot = self.given.get(shown(args[read]))
            if slot is None or self.donated.get(slot, 0) != -1 or whole.reads.count(read) > 1:
                continue
            if self.slots[slot].size is not self.slots[target].size:
                continue
            if (kernel := written_over_input(whole.stages, buffer)) is None:
                continue
            self.donated[slot] = target
            key = digest(kernel)
            if self.built is not None:
                self.built(key)
            reads = tuple([args[each] for each in whole.reads if each != read])
            source = f"{whole.source} in place"
            return PendingLaunch(kernel, key, reads, (target,), source, step, kernel.dims)
        return None

    def has_form(self, rows: ChunkRows, sizes: Sequence[int], args: Sequence[Expr]) -> bool:
        """Whether a function on some rows is more than plain loops."""
        parts = self.schedule.parts(sizes, sizes[0])
        return self.schedule(chunk(rows, sizes[0]), args, parts).origin is not None

    def chunks(  # as a launch
        self, function: Function, args: Sequence[Expr], target: int, step: Expr,
        cut: tuple[ChunkRows, Sequence[int]],
    ) -> PendingChunks:  # fmt: skip
        """A launch for every size of a chunk."""
        rows, sizes = cut
        pieces: list[tuple[int, PendingLaunch, tuple[int, ...]]] = []
        whole = plain(function)
        *given, result = [
            row_bytes(buffer, rows) if rowed else 0
            for buffer, rowed in zip(whole.kernel.params, rows.rowed, strict=True)
        ]
        apart = dict(zip(whole.reads, given, strict=True))  # by what the function is given
        for size in sizes:
            part = chunk(rows, size)
            made = self.schedule(part, args, self.schedule.parts(sizes, size))
            steps = [apart.get(read, 0) for read in made.reads]
            launch = self.made_of(made, args, target, step)
            pieces.append((size, launch, (*steps, *[0] * len(made.scratch), result)))
        first = pieces[0][1]
        reads = tuple([read for _, each, _ in pieces for read in each.reads])
        targets = dict.fromkeys(slot for _, each, _ in pieces for slot in each.targets)
        return PendingChunks(
            first.kernel, first.digest, reads, tuple(targets), first.source, step, first.sizes,
            rows=rows.count, pieces=tuple(pieces),
        )  # fmt: skip

    def made_of(
        self, made: Scheduled, args: Sequence[Expr], target: int, step: Expr
    ) -> PendingLaunch:
        """The launch of the kernel of a function."""
        if self.built is not None:
            self.built(made.digest)
        if made.origin is not None:
            self.origins.setdefault(made.digest, made.origin)
        if made.lowered is not None:
            self.lowered[made.kernel] = made.lowered
        self.passed_over |= dict.fromkeys([f"{made.source}: {why}" for why in made.passed_over])
        reads = tuple(read_by(made, args))
        targets = (*[self.scratch(buffer, made) for buffer in made.scratch], target)
        return PendingLaunch(
            made.kernel, made.digest, reads, targets, made.source, step, made.sizes
        )

    def scratch(self, of: Buffer, made: Scheduled) -> int:
        """A slot for a kernel's scratch memory."""
        sizes = [greater(made.over_dims(size), index_term(0)) for size in of.shape]
        shape = tuple([n if (n := known(size)) is not None else size for size in sizes])
        return self.add(programs.Slot("temporary", self.count("temporary"), shape, of.dtype))

    def need(self, leaf: Expr, region: int) -> None:
        """Note that a tensor is needed in a region."""
        leaf = shown(leaf)
        if (value := made_by(leaf)) is not None:
            self.uses[value[0]][region] = None
        elif leaf not in self.given:
            if not isinstance(leaf, Const):
                raise CompilerBug(f"{leaf!r} is not given and nothing makes it.")
            self.given[leaf] = self.slot("constant", leaf)
            self.constants.append(leaf)

    def deliver(self, leaf: Expr, region: int, target: int) -> None:
        """Note that a tensor should be in a slot at the end of a region."""
        leaf = shown(leaf)
        self.need(leaf, region)
        if (value := made_by(leaf)) is None:
            self.copies[region].append(PendingCopy(leaf, target))
        else:
            self.wishes.setdefault(value, []).append((region, target))

    def result(self, value: Value, region: int, leaf: Expr) -> int:
        """The slot of a result: where it is wanted in its own region, or a temporary.

        In a branch, which may not run, negative sizes count as empty.
        """
        home = None if self.parts is None else self.parts.homes.get(value[0])
        chosen = None if home is None else self.part(self.made[home[0], 0], home[1], leaf)
        for wanted, target in self.wishes.pop(value, ()):
            if wanted == region and chosen is None:
                chosen = target
            else:
                source = leaf if not isinstance(value[0], If | Call) else result_of(value)
                self.copies[wanted].append(PendingCopy(source, target))
        self.made[value] = chosen if chosen is not None else self.slot("temporary", leaf, region)
        return self.made[value]

    def opened(self, region: int) -> int:
        """The region, with room for its steps."""
        while len(self.steps) <= region:
            self.steps.append([])
            self.copies.append([])
        return region

    def slot(self, space: programs.Space, leaf: Expr, region: int = 0) -> int:
        of = type_of(leaf)
        if not isinstance(of, TensorType):
            raise CompilerBug(f"A value of type {of} has no place in memory.")
        if (shape := static_shape(of)) is None:
            sizes = [greater(dim, index_term(0)) for dim in of.shape] if region else of.shape
            open_ = tuple([n if (n := known(size)) is not None else size for size in sizes])
            return self.add(programs.Slot(space, self.count(space), open_, of.dtype))
        if spanned_bytes(shape, of.dtype.bytes) > MAX_TENSOR_BYTES:
            raise UnsupportedError(too_large(str(of)))
        return self.add(programs.Slot(space, self.count(space), shape, of.dtype))

    def count(self, space: programs.Space) -> int:
        """The number of the next slot of a space."""
        index = self.counts.get(space, 0)
        self.counts[space] = index + 1
        return index

    def add(self, slot: programs.Slot) -> int:
        self.slots.append(slot)
        return len(self.slots) - 1

    def given_to(self, of: PendingLaunch) -> programs.Launch:
        """A launch with the slots of its arguments."""
        args = (*(self.where(read) for read in of.reads), *of.targets)
        found = self.kernels.setdefault(of.digest, (len(self.kernels), of.kernel, of.source))
        return programs.Launch(found[0], args, of.source, of.term, of.sizes, of.least)

    def where(self, leaf: Expr) -> int:
        """The slot of a tensor, once every step is placed."""
        leaf = shown(leaf)
        value = made_by(leaf)
        if value is not None and value not in self.made and self.parts is not None:
            of, offset = self.parts.ranges[value[0]]
            self.made[value] = self.part(self.where(of), offset, leaf)
        return self.given[leaf] if value is None else self.made[value]

    def finish(self, step: Pending) -> programs.Step:
        match step:
            case PendingChunks(_, _, _, _, source, term):
                inside = [(size, self.given_to(each), bytes_) for size, each, bytes_ in step.pieces]
                pieces = tuple(
                    [programs.RowKernel(size, e.kernel, e.args, b) for size, e, b in inside]
                )
                args = tuple(dict.fromkeys(slot for piece in pieces for slot in piece.args))
                first = pieces[0].kernel
                return programs.Chunks(first, args, source, term, rows=step.rows, pieces=pieces)
            case PendingLaunch():
                return self.given_to(step)
            case PendingCopy(source, target):
                return programs.Copy(self.where(source), target)
            case PendingChoose(condition, then, orelse):
                return programs.Choose(self.where(condition), then, orelse)
            case programs.Force():
                return step


def _when(pair: tuple[int, Pending]) -> int:
    return pair[0]
