"""Cutting: a program in which sizes become known while it runs, as steps over segments.

Not here: the code of segments, which is that of any program with open sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count

from attrs import Factory, define, evolve, frozen

from plica.codegen.interface import size_text
from plica.codegen.program_kind import is_ordering
from plica.codegen.staged import host_part
from plica.codegen.staged.segment import Ranges, is_cheap, segment
from plica.core import Name, Task, Term, free_vars, map_top_down
from plica.core.task import run
from plica.ir.graph import Defined, Definition, Module, expression as ex, module
from plica.ir.loop.scalar import ScalarVar
from plica.ir.type import TensorType, TupleType, infer, type_of
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.walk import operands, with_operands
from plica.runtime.staged import program as programs


@frozen(eq=False)
class CutProgram:
    """Steps, and the modules of the segments they run."""

    program: programs.StepBlock
    segments: tuple[Module, ...]


def cut(of: Module, *, chooses: bool = True, updates: bool = True) -> CutProgram:
    """The program of a module, in steps and segments, which have choices in them if what runs them
    `chooses`, and are offered what a loop carries to write over if it `updates`."""
    whole = to_dataflow(infer(of))
    main = whole.main_function()
    main = evolve(main, body=host_part.loops_at_calls(main.body))
    rest = {name: value for name, value in whole.items() if name is not whole.main}
    cutter = _Cutter(main, rest, chooses, updates)
    program = cutter.block(main.body, {})
    return CutProgram(program, tuple(cutter.segments))


@define(eq=False)
class _Demand:
    """What must be there at a point of the program, and what the host does then."""

    needs: list[ex.Expr] = Factory(list)
    measures: list[ex.LetDim] = Factory(list)
    event: ex.If | ex.Let | ex.Apply | None = None


class _Cutter:
    """The registers and segments of one program."""

    def __init__(
        self, main: ex.Function, rest: Mapping[Defined, Definition], chooses: bool, updates: bool
    ) -> None:
        self.rest, self.segments = rest, list[Module]()
        self.ranges: Ranges = ex.attr(main, "dim_ranges", ())
        self.registers: dict[ex.Var, int] = {}
        self.told: dict[ScalarVar, tuple[str, ...]] = {}
        """The inputs that decide a size."""
        self.inputs = {param: str(param.name) for param in main.params}
        for param in main.params:
            if not isinstance(param.type, TensorType):
                raise host_part.refused("An input is no tensor.", str(param.type))
            self.registers[param] = len(self.registers)
            for size in param.type.shape:
                if isinstance(size, ScalarVar):
                    self.told.setdefault(size, (self.inputs[param],))
        self.hosts, self.chooses = host_part.host_parts(main.body, chooses=chooses), chooses
        self.updates = updates

    def block(self, root: ex.Expr, given: Mapping[ex.Expr, ex.Expr]) -> programs.StepBlock:
        """The steps that give the tensors of an expression; `given` are there already."""
        return _BlockCutter(self, root, given).block()

    def fresh(self, hint: str, of: TensorType) -> ex.Var:
        """A new register; a segment that is cut again has registers of the program as inputs."""
        taken = {register.name for register in self.registers}
        free = (Name(hint, number) for number in count(len(self.registers)))
        var = ex.Var(next(name for name in free if name not in taken), of)
        self.register(var)
        return var

    def register(self, of: ex.Var) -> int:
        """The register of a variable; a loop that both sides of a branch run has its own once."""
        return self.registers.setdefault(of, len(self.registers))

    def depends(self, value: ex.Expr) -> tuple[str, ...]:
        """The inputs that a value is computed from."""
        found: set[str] = set()
        for var in free_vars(value):
            if isinstance(var, ScalarVar):
                found.update(self.told.get(var, ()))
            elif isinstance(var, ex.Var) and var in self.inputs:
                found.add(self.inputs[var])
        return tuple([name for name in self.inputs.values() if name in found])


class _BlockCutter:
    """One block: first what is demanded, then the segments that serve the demands."""

    def __init__(self, whole: _Cutter, root: ex.Expr, given: Mapping[ex.Expr, ex.Expr]) -> None:
        self.whole, self.root = whole, root
        self.plain: dict[ex.Expr, ex.Expr] = dict(given)
        self.demands: list[_Demand] = [_Demand()]
        self.pending: set[ScalarVar] = set()
        self.shared: dict[ex.If, list[ex.Expr]] = {}  # what is made before a choice for both sides
        self.results: dict[ex.Expr, tuple[ex.Var, ...]] = {}  # registers of what the host does
        self.since: dict[ex.Var, int] = {}  # the demand after which they are there

    # --- what is demanded ------------------------------------------------------------------------

    def block(self) -> programs.StepBlock:
        run(self._visit(self.root))
        last = self.demands[-1]
        wanted = _flat(self.plain[self.root])
        if self.pending and any(self._waits(expr) for expr in wanted):
            last = self._next()
        last.needs += wanted
        steps = self._steps()
        return programs.StepBlock(tuple(steps), tuple([self._register(expr) for expr in wanted]))

    def _visit(self, node: ex.Expr) -> Task[None]:
        """Give every expression below its form without what the host does."""
        if node in self.plain:
            return
        match node:
            case ex.LetDim(_, value, body):
                yield self._visit(value)
                self._measure(node)
                yield self._visit(body)
                self.plain[node] = self.plain[body]
            case ex.Let(_, ex.Function(), ex.Call(_, args, _)) if node in self.whole.hosts:
                for part in (*args, *host_part.invariants(node)):
                    yield self._visit(part)
                self._repeat(node)
            case ex.Let(var, value, body):
                yield self._visit(value)
                self.plain[var] = self.plain[value]
                yield self._visit(body)
                self.plain[node] = self.plain[body]
            case ex.If(condition) if self._is_of_host(node):
                self.shared[node] = host_part.shared_by_sides(node, self.whole.hosts)
                for part in (*self.shared[node], condition):
                    yield self._visit(part)
                self._choose(node)
            case ex.Apply(_, (x,), _) if is_ordering(node):
                yield self._visit(x)
                self._order(node)
            case _:
                kids = operands(node)
                for child in kids:
                    yield self._visit(child)
                self.plain[node] = _made(node, tuple([self.plain[child] for child in kids]))

    def _is_of_host(self, node: ex.If) -> bool:
        whole = self.whole
        return not whole.chooses or not whole.hosts.isdisjoint((node.then, node.orelse))

    def _waits(self, value: ex.Expr) -> bool:
        return not self.pending.isdisjoint(free_vars(value))

    def _next(self) -> _Demand:
        self.demands.append(_Demand())
        self.pending = set()
        return self.demands[-1]

    def _measure(self, node: ex.LetDim) -> None:
        value = self.plain[node.value]
        demand = self._next() if self._waits(value) else self.demands[-1]
        demand.needs.append(value)
        demand.measures.append(node)
        self.pending.add(node.dim)
        self.whole.told[node.dim] = self.whole.depends(node.value)

    def _choose(self, node: ex.If) -> None:
        needs = [self.plain[expr] for expr in (node.condition, *self.shared[node])]
        demand = self._next() if any(map(self._waits, needs)) else self.demands[-1]
        demand.needs += needs
        self._event(demand, node)

    def _order(self, node: ex.Apply) -> None:
        x = self.plain[node.args[0]]
        demand = self._next() if self._waits(x) else self.demands[-1]
        demand.needs.append(x)
        self._event(demand, node)

    def _repeat(self, node: ex.Let) -> None:
        assert isinstance(node.body, ex.Call)
        start = [self.plain[arg] for arg in node.body.args]
        before = [self.plain[invariant] for invariant in host_part.invariants(node)]
        waits = any(self._waits(expr) for expr in (*start, *before))
        demand = self._next() if waits else self.demands[-1]
        demand.needs += start
        for var in free_vars(node.value):  # what a body has from outside is there before it
            if isinstance(var, ex.Var) and var in self.plain:
                demand.needs += _flat(self.plain[var])
        for each in before:
            demand.needs += _flat(each)
        self._event(demand, node)

    def _event(self, demand: _Demand, node: ex.If | ex.Let | ex.Apply) -> None:
        demand.event = node
        of = type_of(node)
        items = of.items if isinstance(of, TupleType) else (of,)
        made = []
        for item in items:
            if not isinstance(item, TensorType):
                raise host_part.refused("What a branch or a loop gives is no tensor.", str(item))
            made.append(self.whole.fresh("kept", item))
        self.results[node] = tuple(made)
        self.since |= dict.fromkeys(made, len(self.demands) - 1)
        self.plain[node] = ex.Tuple(tuple(made)) if isinstance(of, TupleType) else made[0]
        self._next()

    # --- segments that serve the demands ---------------------------------------------------------

    def _steps(self) -> list[programs.Step]:
        self.level: dict[ex.Expr, int] = {}
        self.kept: dict[ex.Expr, ex.Var | None] = {}  # what is in a register, once it is
        inside: dict[int, dict[ex.Expr, ex.Expr]] = {}
        for number, demand in enumerate(self.demands):
            for need in demand.needs:
                run(self._place(need, number))
            for need in demand.needs:
                self._use(need, number, whole=True)
            if demand.event is not None:
                inside[number] = self._available(demand.event, number)
        steps: list[programs.Step] = []
        for number, demand in enumerate(self.demands):
            steps += self._segment(demand, number)
            for node in demand.measures:
                register = self._register(self.plain[node.value])
                told = self.whole.told[node.dim]
                steps.append(programs.MeasureDim(str(node.dim.name), register, told))
            if demand.event is not None:
                given = {node: self._shown(expr) for node, expr in inside[number].items()}
                steps.append(self._host_step(demand.event, given))
        return steps

    def _place(self, node: ex.Expr, number: int) -> Task[None]:
        """Expressions belong to the first demand that needs them; those of branches to none."""
        if node in self.level or isinstance(node, ex.Var | ex.Const):
            return
        for child in (node.condition,) if isinstance(node, ex.If) else operands(node):
            yield self._place(child, number)
        # A tuple is in no register, its items are.
        of = node.value if isinstance(node, ex.Project) else node
        self.level[node] = self.level.get(of, number)

    def _use(self, root: ex.Expr, number: int, whole: bool = False) -> None:
        """Note what an expression of this demand takes from earlier ones."""
        if whole and self._is_earlier(root, number):
            self.kept[root] = None
            return
        seen: set[ex.Expr] = {root}
        stack = [root]
        while stack:
            for operand in operands(stack.pop()):
                if self._is_earlier(operand, number):
                    self.kept[operand] = None
                elif operand not in seen:
                    seen.add(operand)
                    stack.append(operand)

    def _is_earlier(self, node: ex.Expr, number: int) -> bool:
        if self.level.get(node, number) >= number or is_cheap(node):
            return False
        return isinstance(type_of(node), TensorType)

    def _available(self, event: ex.If | ex.Let | ex.Apply, number: int) -> dict[ex.Expr, ex.Expr]:
        """What the blocks of an event find outside of them, computed by now."""
        found: dict[ex.Expr, ex.Expr] = {}
        seen: set[ex.Expr] = set()
        if isinstance(event, ex.Apply):
            return found
        roots = (event.then, event.orelse) if isinstance(event, ex.If) else (event.value,)
        stack: list[ex.Expr] = list(roots)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            plain = self.plain.get(node)
            if isinstance(plain, ex.Var) and self.since.get(plain, -1) < number:
                found[node] = plain
            elif plain is not None and self._is_earlier(plain, number + 1):
                self.kept[plain] = None
                found[node] = plain
            else:
                stack += operands(node)
        return found

    def _segment(self, demand: _Demand, number: int) -> list[programs.Step]:
        """The step that computes what a demand needs, and what is kept of it."""
        wanted = dict.fromkeys(need for need in demand.needs if self._is_new(need))
        wanted |= dict.fromkeys(
            expr for expr in self.kept if self.level.get(expr) == number and self._is_new(expr)
        )
        prefixes = [step for expr in [*wanted] if (step := self._prefix(expr, wanted)) is not None]
        if not wanted:
            return prefixes
        shown: dict[Term, Term] = {expr: var for expr, var in self.kept.items() if var is not None}
        outputs = [map_top_down(lambda node: shown.get(node, node), expr) for expr in wanted]
        made = segment(outputs, self.whole.rest, self.whole.ranges)
        numbers = self.whole.registers
        inputs = [one if isinstance(one, str) else numbers[one] for one in made.operands]
        registers = []
        for expr in wanted:
            of = type_of(expr)
            assert isinstance(of, TensorType)
            var = self.whole.fresh("kept", of)
            self.kept[expr] = var
            registers.append(self.whole.registers[var])
        self.whole.segments.append(made.module)
        at = len(self.whole.segments) - 1
        return [*prefixes, programs.RunSegment(at, tuple(inputs), tuple(registers))]

    def _prefix(self, node: ex.Expr, wanted: dict[ex.Expr, None]) -> programs.Step | None:
        """The step that takes what is wanted from the beginning of a register, if that is all of
        it; then no segment has to give it.

        Where a size is measured the host is at work in any case; elsewhere code is, which loops of
        native turns are made of.
        """
        if (found := host_part.prefix_of(node)) is None:
            return None
        x, dim = found
        kept = x if isinstance(x, ex.Var) else self.kept.get(x)
        measured = [measure.dim for demand in self.demands for measure in demand.measures]
        if kept is None or dim not in measured:
            return None
        of = type_of(node)
        assert isinstance(of, TensorType)
        del wanted[node]
        self.kept[node] = var = self.whole.fresh("kept", of)
        registers = self.whole.registers
        whole = type_of(x)
        assert isinstance(whole, TensorType)
        said = size_text(whole.shape[0])
        return programs.TakePrefix(registers[kept], str(dim.name), registers[var], said)

    def _is_new(self, node: ex.Expr) -> bool:
        return not isinstance(node, ex.Var) and self.kept.get(node) is None

    def _shown(self, node: ex.Expr) -> ex.Expr:
        """An expression that was computed, as the register it is in."""
        if isinstance(node, ex.Var):
            return node
        var = self.kept[node]
        assert var is not None
        return var

    def _register(self, node: ex.Expr) -> int:
        shown = self._shown(node)
        assert isinstance(shown, ex.Var)
        return self.whole.registers[shown]

    def _host_step(
        self, event: ex.If | ex.Let | ex.Apply, given: Mapping[ex.Expr, ex.Expr]
    ) -> programs.Step:
        outputs = tuple([self.whole.registers[var] for var in self.results[event]])
        if isinstance(event, ex.Apply):
            taken = self._register(self.plain[event.args[0]])
            options = tuple([(name, int(value)) for name, value in event.attrs])
            return programs.HostCall(event.op, taken, outputs, options)
        if isinstance(event, ex.If):
            then, orelse = (self.whole.block(expr, given) for expr in (event.then, event.orelse))
            return programs.ChooseBlock(
                self._register(self.plain[event.condition]), then, orelse, outputs
            )
        assert isinstance(event.value, ex.Function)
        assert isinstance(event.body, ex.Call)
        carried = [self.whole.register(param) for param in event.value.params]
        turn = host_part.turn_of(event)
        test, body, end = (self.whole.block(expr, given) for expr in turn)
        start = [self._register(self.plain[arg]) for arg in event.body.args]
        if self.whole.updates:
            self._offer(body, carried)
        return programs.RepeatBlock(tuple(start), tuple(carried), (test, body, end), outputs)

    def _offer(self, body: programs.StepBlock, carried: Sequence[int]) -> None:
        """What a loop carries may be written over by the one segment of its body, where what it is
        then is one of the results, and what it was is none."""
        match body.steps:
            case (programs.RunSegment(at, inputs, _),) if len({*body.results}) == len(body.results):
                pass
            case _:
                return
        whole = self.whole.segments[at]
        main = whole.main_function()
        names = [
            str(param.name)
            for param, operand in zip(main.params, inputs, strict=True)
            if operand in carried and operand not in body.results
        ]
        attrs = {**dict(main.attrs), "offered": tuple(names)}
        changed = evolve(main, attrs=tuple(sorted(attrs.items())))
        table = {name: changed if name is whole.main else value for name, value in whole.items()}
        self.whole.segments[at] = infer(module(table, whole.main))


def _made(node: ex.Expr, parts: tuple[ex.Expr, ...]) -> ex.Expr:
    if isinstance(node, ex.Project) and isinstance(parts[0], ex.Tuple):
        return parts[0].items[node.index]
    return with_operands(node, parts)


def _flat(node: ex.Expr) -> list[ex.Expr]:
    """The tensors of an expression, one by one."""
    of = type_of(node)
    if isinstance(node, ex.Tuple):
        return [item for expr in node.items for item in _flat(expr)]
    if isinstance(of, TupleType):
        return [item for at in range(len(of.items)) for item in _flat(ex.Project(node, at))]
    if not isinstance(of, TensorType):
        raise host_part.refused("A result is no tensor.", str(of))
    return [node]
