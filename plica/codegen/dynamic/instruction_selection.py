"""Instructing: functions in A-normal form become routines.

Names become registers; a tuple is the registers of its parts, so building and projecting tuples and
reshaping are no steps. A match becomes a decision tree. Thunks of A-normal form (`later = lambda:
...`) become cells with their bodies as routines.

Not here: who owns what (`plica.codegen.dynamic.reference_count`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from attrs import define, field, frozen

from plica.codegen.dynamic import program as dp
from plica.codegen.dynamic.kernel import Launchable, choose, choose_written, viewed
from plica.codegen.dynamic.layout import fields, span, width
from plica.codegen.dynamic.tree import Place, Row, Test, tree
from plica.codegen.lower.passes import LoweredKernel
from plica.codegen.lower.scheduled import Scheduler
from plica.codegen.program import KernelOrigin
from plica.core import CompilerBug, Term, free_vars, post_order
from plica.ir.graph import expression as ex
from plica.ir.graph.exhaustiveness import show_pattern
from plica.ir.graph.module import DataDef, Module
from plica.ir.loop import Kernel
from plica.ir.type import DataType, Type, type_of
from plica.runtime.dynamic.artefact import Ending


def select_instructions(
    module: Module, kernels: Mapping[ex.Var, ex.Function], by: Scheduler
) -> dp.DynamicProgram:
    """The program of a module in A-normal form, whose calls of `kernels` are operators."""
    whole = _Whole(module, kernels, by)
    assert module.main is not None
    entry = whole.routine(module.main)
    while whole.todo:
        whole.todo.pop().write()
    routines = [whole.routines[number] for number in range(len(whole.routines))]
    found = list(whole.kernels.values())
    return dp.DynamicProgram(
        tuple(routines),
        entry,
        tuple([kernel for _, kernel, _ in found]),
        tuple([name for _, _, name in found]),
        tuple(whole.constants),
        tuple(whole.failures),
        tuple([whole.origins.get(key) for key in whole.kernels]),
        whole.lowered,
    )


@frozen(eq=False)
class Thunk:
    """A postponed value: its routine, what it captures, the thunks it needs, and its width."""

    routine: int
    captured: tuple[ex.Var, ...]
    thunks: tuple[ex.Var, ...]
    results: int


@define(eq=False)
class _Whole:
    """What grows while a program is made."""

    module: Module
    named: Mapping[ex.Var, ex.Function]
    by: Scheduler
    numbers: dict[ex.Var, int] = field(factory=dict)
    routines: dict[int, dp.Routine] = field(factory=dict)
    todo: list[_Body] = field(factory=list)
    constants: dict[ex.Const, int] = field(factory=dict)
    kernels: dict[str, tuple[int, Kernel, str]] = field(factory=dict)
    origins: dict[str, KernelOrigin] = field(factory=dict)
    lowered: dict[Kernel, LoweredKernel] = field(factory=dict)
    failures: dict[Ending, int] = field(factory=dict)
    made: int = 0

    @cached_property
    def written(self) -> dict[Term, Kernel]:
        """User-written kernels by name."""
        table = self.module.definitions()
        return {name: each for name, each in table.items() if isinstance(each, Kernel)}

    def routine(self, name: ex.Var) -> int:
        """The number of the routine of a definition."""
        if name not in self.numbers:
            function = self.module.definitions()[name]
            if not isinstance(function, ex.Function):
                raise CompilerBug(f"{name.name} is called and is no graph function.")
            body = self.begun(str(name.name), function.params, (), {}, function.body)
            self.numbers[name] = body.number
        return self.numbers[name]

    def begun(
        self,
        name: str,
        params: tuple[ex.Var, ...],
        cells: tuple[ex.Var, ...],
        thunks: Mapping[ex.Var, Thunk],
        body: ex.Expr,
    ) -> _Body:
        """A routine that is still to be written."""
        made = _Body(self, self.made, name, body)
        self.made += 1
        self.todo.append(made)
        for param in params:
            made.env[param] = tuple([made.fresh() for _ in range(width(param.type))])
        made.params = made.registers
        for cell in cells:
            made.add_cell(cell, thunks[cell], owned=False)
        return made

    def failure(self, failure: Ending) -> int:
        return self.failures.setdefault(failure, len(self.failures))

    def constant(self, of: ex.Const) -> int:
        return self.constants.setdefault(of, len(self.constants))


@define(eq=False)
class _Body:
    """One routine under construction."""

    whole: _Whole
    number: int
    name: str
    body: ex.Expr
    params: int = 0
    registers: int = 0
    env: dict[ex.Var, tuple[int, ...]] = field(factory=dict)
    thunks: dict[ex.Var, Thunk] = field(factory=dict)
    cells: list[dp.Cell] = field(factory=list)
    cell_of: dict[ex.Var, int] = field(factory=dict)
    immortal: set[int] = field(factory=set)
    regions: dict[int, dp.RoutineRegion] = field(factory=dict)
    todo: list[tuple[int, ex.Expr, bool]] = field(factory=list)
    opened: int = 0

    def write(self) -> None:
        """The routine with all its regions, added to the program."""
        self.region(self.body, tail=True)
        while self.todo:
            number, body, tail = self.todo.pop()
            steps: list[dp.Step] = []
            while isinstance(body, ex.Let):
                self.bind(body.var, body.value, steps)
                body = body.body
            end = self.end(body, steps) if tail else dp.Yield(self.values(body, steps))
            self.regions[number] = dp.RoutineRegion(tuple(steps), end, tail)
        regions = tuple([self.regions[number] for number in range(self.opened)])
        self.whole.routines[self.number] = dp.Routine(
            self.name,
            self.params,
            self.registers,
            width(type_of(self.body)),
            regions,
            tuple(self.cells),
            frozenset(self.immortal),
        )

    def fresh(self) -> int:
        self.registers += 1
        return self.registers - 1

    def several(self, of: Type) -> tuple[int, ...]:
        """New registers for a value."""
        return tuple([self.fresh() for _ in range(width(of))])

    def region(self, body: ex.Expr, *, tail: bool) -> int:
        """The number of a region that is still to be written."""
        self.opened += 1
        self.todo.append((self.opened - 1, body, tail))
        return self.opened - 1

    def bind(self, var: ex.Var, value: ex.Expr, steps: list[dp.Step]) -> None:
        """Give a variable its registers."""
        if isinstance(value, ex.Function):
            self.postpone(var, value, steps)
        else:
            self.env[var] = self.values(value, steps)

    def end(self, node: ex.Expr, steps: list[dp.Step]) -> dp.End:
        """The end of a region in tail position."""
        if isinstance(node, ex.If | ex.Match):
            self.branch(node, steps, tail=True)
            return dp.FallThrough()
        if isinstance(node, ex.Call) and self.is_routine(node.callee):
            assert isinstance(node.callee, ex.Var)
            args = self.every(node.args, steps)
            return dp.Tail(self.whole.routine(node.callee), args)
        return dp.Yield(self.values(node, steps))

    def is_routine(self, callee: ex.Expr) -> bool:
        return (
            isinstance(callee, ex.Var)
            and callee not in self.whole.named
            and callee not in self.whole.written
            and callee not in self.thunks
        )

    def every(self, nodes: tuple[ex.Expr, ...], steps: list[dp.Step]) -> tuple[int, ...]:
        return tuple([register for node in nodes for register in self.values(node, steps)])

    def values(self, node: ex.Expr, steps: list[dp.Step]) -> tuple[int, ...]:
        """The registers of a value, after emitting its steps."""
        match node:
            case ex.Var():
                return self.env[node]
            case ex.Const():
                target = self.fresh()
                self.immortal.add(target)
                steps.append(dp.Constant(target, self.whole.constant(node)))
                return (target,)
            case ex.Tuple(items):
                return self.every(items, steps)
            case ex.Project(value, at):
                start, stop = span(type_of(value), at)
                return self.values(value, steps)[start:stop]
            case ex.If() | ex.Match():
                return self.branch(node, steps, tail=False)
            case ex.Call(callee, args, _):
                return self.call(node, callee, args, steps)
            case _:
                raise CompilerBug(f"{type(node).__name__} is left in A-normal form.")

    def call(
        self, node: ex.Call, callee: ex.Expr, args: tuple[ex.Expr, ...], steps: list[dp.Step]
    ) -> tuple[int, ...]:
        if isinstance(callee, ex.Constructor):
            target = self.fresh()
            steps.append(dp.Build(target, callee.index, self.every(args, steps)))
            return (target,)
        assert isinstance(callee, ex.Var)
        if callee in self.whole.named:
            return self.launch(self.whole.named[callee], args, steps)
        if callee in self.whole.written:
            return self.run(choose_written(self.whole.written[callee], callee, args), steps)
        if callee in self.thunks:
            targets = self.several(type_of(node))
            steps.append(dp.ForceStep(self.cell_of[callee], targets))
            return targets
        given = self.every(args, steps)
        targets = self.several(type_of(node))
        steps.append(dp.CallStep(self.whole.routine(callee), given, targets))
        return targets

    def launch(
        self, function: ex.Function, args: tuple[ex.Expr, ...], steps: list[dp.Step]
    ) -> tuple[int, ...]:
        """A kernel, or no step at all where a tensor is only looked at."""
        if (shown := viewed(function)) is not None:
            return self.values(shown if isinstance(shown, ex.Const) else args[shown], steps)
        return self.run(choose(function, args, self.whole.by), steps)

    def run(self, made: Launchable, steps: list[dp.Step]) -> tuple[int, ...]:
        """The step that runs a kernel."""
        if made.origin is not None:
            self.whole.origins.setdefault(made.digest, made.origin)
        if made.lowered is not None:
            self.whole.lowered[made.kernel] = made.lowered
        entry = (len(self.whole.kernels), made.kernel, made.source)
        number = self.whole.kernels.setdefault(made.digest, entry)[0]
        inputs = self.every(made.reads, steps)
        target = self.fresh()
        steps.append(dp.KernelCall(number, inputs, target, made.bytes, made.scratch, made.source))
        return (target,)

    def branch(
        self, node: ex.If | ex.Match, steps: list[dp.Step], *, tail: bool
    ) -> tuple[int, ...]:
        """A choice; in tail position its regions leave the routine."""
        if isinstance(node, ex.If):
            (condition,) = self.values(node.condition, steps)
            then, orelse = (self.region(node.then, tail=tail), self.region(node.orelse, tail=tail))
            targets = () if tail else self.several(type_of(node))
            steps.append(dp.ChooseStep(condition, then, orelse, targets))
            return targets
        roots = self.values(node.value, steps)
        of = type_of(node.value)
        clauses: list[dp.SelectClause] = []
        rows: list[Row] = []
        for number, clause in enumerate(node.clauses):
            taken: list[dp.FieldStep] = []
            asked = self.asked(clause.pattern, of, None, 0, roots, taken)
            rows.append((number, asked))
            clauses.append(dp.SelectClause(tuple(taken), self.region(clause.body, tail=tail)))
        patterns = " or ".join([show_pattern(clause.pattern) for clause in node.clauses])
        message = "No clause of the match fits the value."
        failure = self.whole.failure(Ending("match-failure", message, None, patterns or "nothing"))
        targets = () if tail else self.several(type_of(node))
        steps.append(dp.SelectStep(roots, tree(rows), tuple(clauses), failure, targets))
        return targets

    def asked(  # noqa: PLR0917  # a pattern, and where it stands
        self,
        pattern: ex.Pattern,
        of: Type,
        inside: tuple[Place, int] | None,
        offset: int,
        roots: tuple[int, ...],
        taken: list[dp.FieldStep],
    ) -> dict[Place, Test]:
        """The tag tests of a pattern, from the leaf `offset` on; its variables get registers.

        `inside` is the object it is a part of, and how many fields that has.
        """
        match pattern:
            case ex.PAny():
                return {}
            case ex.PVar(var):
                if inside is None:
                    self.env[var] = roots[offset : offset + width(of)]
                    return {}
                found = self.several(of)
                (root, path), count = inside
                for number, target in enumerate(found):
                    taken.append(dp.FieldStep(target, roots[root], (*path, offset + number), count))
                self.env[var] = found
                return {}
            case ex.PTuple(items):
                asked: dict[Place, Test] = {}
                for number, item in enumerate(items):
                    start, _ = span(of, number)
                    kind = of.items[number]  # type: ignore[union-attr]  # `span` has looked
                    asked |= self.asked(item, kind, inside, offset + start, roots, taken)
                return asked
            case ex.PConstructor(constructor, items):
                assert isinstance(of, DataType)
                place: Place = (offset, ())
                if inside is not None:
                    place = (inside[0][0], (*inside[0][1], offset))
                inner: dict[Place, Test] = {}
                at = 0
                kinds = fields(of, constructor.index, self.whole.module)
                count = sum(map(width, kinds))
                for item, kind in zip(items, kinds, strict=True):
                    inner |= self.asked(item, kind, (place, count), at, roots, taken)
                    at += width(kind)
                data = self.whole.module.definitions()[of.data]
                assert isinstance(data, DataDef)
                return {place: Test(constructor.index, len(data.constructors), inner)}

    def postpone(self, var: ex.Var, function: ex.Function, steps: list[dp.Step]) -> None:
        """A cell for a value that is computed when it is needed."""
        if function.params or function.dims or function.types:
            raise CompilerBug(f"The function {var.name} is left where only thunks are.")
        captured: dict[ex.Var, None] = {}
        thunks: dict[ex.Var, None] = {}
        free = free_vars(function)
        for node in post_order(function):
            if not isinstance(node, ex.Var) or node not in free:
                continue
            if node in self.thunks:
                thunks |= dict.fromkeys((*self.thunks[node].thunks, node))
                captured |= dict.fromkeys(self.thunks[node].captured)
            elif node in self.env:
                captured[node] = None
        params, needed = tuple(captured), tuple(thunks)
        label = f"{self.name}.{var.name}"
        body = self.whole.begun(label, params, needed, self.thunks, function.body)
        thunk = Thunk(body.number, params, needed, width(type_of(function.body)))
        self.add_cell(var, thunk, owned=True)
        steps.append(dp.OpenCell(self.cell_of[var]))

    def add_cell(self, var: ex.Var, thunk: Thunk, *, owned: bool) -> None:
        """Know a thunk by its variable."""
        args = tuple([register for each in thunk.captured for register in self.env[each]])
        cells = tuple([self.cell_of[each] for each in thunk.thunks])
        self.thunks[var] = thunk
        self.cell_of[var] = len(self.cells)
        self.cells.append(dp.Cell(thunk.routine, args, cells, thunk.results, owned))
