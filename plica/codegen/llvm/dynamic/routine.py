"""Routines in LLVM's text: one function each.

    tailcc ptr routine(ptr state, ptr others, ptr ... args and cells)

gives its first result, the others where `others` points; null says that it failed, and the state
says why.  Registers are variables of the function, which LLVM keeps in registers of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from plica.codegen.dynamic import program as dp
from plica.codegen.dynamic.tree import Leaf, Miss, Switch
from plica.codegen.llvm.dynamic.convention import IN_REGISTERS, Folding, name_of, passed, word_at
from plica.codegen.llvm.dynamic.support import class_of, meta, tensor_size
from plica.codegen.llvm.writer import LlvmWriter
from plica.runtime.dynamic import state

LONG: Final = 100  # from this many steps on, what counts objects is called instead of written out
LONGER: Final = 600
"""From this many steps on, LLVM does not improve a routine: its kernels take the time."""


class RoutineEmitter:
    """One routine under construction."""

    def __init__(self, folding: Folding, number: int) -> None:
        self.folding = folding
        self.program = folding.program
        self.number = number
        self.routine: dp.Routine = folding.program.routines[number]
        self.w = LlvmWriter()
        self.todo: list[tuple[int, tuple[int, ...], str]] = []
        self.length = sum(len(region.steps) for region in self.routine.regions)
        self.apart = ".apart" if self.length >= LONG else ""
        self.calls = False  # whether it calls routines that come back
        self.most = 0  # how many results such a routine gives besides the first

    def text(self) -> str:
        routine, w = self.routine, self.w
        self.todo = [(0, (), "")]
        while self.todo:
            region, targets, join = self.todo.pop()
            w.start(f"r{region}")
            self.region(routine.regions[region], targets, join)
        first = routine.borrowed
        names = [f"%p{number}" for number in range(routine.params)]
        names += [f"%c{number}" for number in range(first)]
        params = [f"ptr {each}" for each in ("%state", "%others", *names[:IN_REGISTERS])]
        head = f"define internal tailcc ptr @{name_of(self.program, self.number)}"
        plain = "optnone " if self.length >= LONGER else ""
        lines = [f"{head}({', '.join(params)}) {plain}noinline nounwind {{", "entry:"]
        lines += [f"  %r{number}.at = alloca ptr, align 8" for number in range(routine.registers)]
        if self.most:
            lines.append(f"  %more = alloca [{self.most} x ptr], align 8")
        for number, cell in enumerate(routine.cells[first:], first):
            lines.append(f"  %c{number} = alloca [{1 + cell.results} x ptr], align 8")
        for number, name in enumerate(names[IN_REGISTERS:]):
            offset = 8 * (state.MORE + number)
            lines.append(f"  {name}.at = getelementptr i8, ptr %state, i64 {offset}")
            lines.append(f"  {name} = load ptr, ptr {name}.at, align 8")
        for number in range(routine.params):
            lines.append(f"  store ptr %p{number}, ptr %r{number}.at, align 8")
        lines += self.guard() if self.calls else ["  br label %r0"]
        return "\n".join([*lines, *w.lines, "fail:", "  ret ptr null", "}"])

    def guard(self) -> list[str]:
        """Look whether there is stack enough to go on."""
        return [
            "  %sp = call ptr @llvm.stacksave.p0()",
            f"  %lowest.at = getelementptr i8, ptr %state, i64 {8 * state.LOWEST}",
            "  %lowest = load ptr, ptr %lowest.at, align 8",
            "  %deep = icmp ult ptr %sp, %lowest",
            "  br i1 %deep, label %too.deep, label %r0",
            "too.deep:",
            f"  %code.at = getelementptr i8, ptr %state, i64 {8 * state.CODE}",
            f"  store i64 {state.DEEP}, ptr %code.at, align 8",
            "  br label %fail",
        ]

    # --- registers -------------------------------------------------------------------------------

    def get(self, register: int) -> str:
        return self.w.let(f"load ptr, ptr %r{register}.at, align 8")

    def put(self, register: int, value: str) -> None:
        self.w.do(f"store ptr {value}, ptr %r{register}.at, align 8")

    def checked(self, value: str) -> str:
        """What a call gave, which is null where it failed."""
        failed = self.w.let(f"icmp eq ptr {value}, null")
        (on,) = self.w.labels("on")
        self.w.do(f"br i1 {failed}, label %fail, label %{on}")
        self.w.start(on)
        return value

    def field(self, of: str, number: int) -> str:
        at = self.w.let(f"getelementptr i8, ptr {of}, i64 {16 + 8 * number}")
        return self.w.let(f"load ptr, ptr {at}, align 8")

    def along(self, root: int, path: tuple[int, ...]) -> str:
        """What lies behind fields."""
        found = self.get(root)
        for number in path:
            found = self.field(found, number)
        return found

    def take(self, size: int, fields: int = 0, tag: int = 0) -> str:
        """A new object that has one owner."""
        made = self.checked(
            self.w.let(f"call ptr @plica.take{self.apart}(ptr %state, i64 {class_of(size)})")
        )
        self.w.do(f"store i64 1, ptr {made}, align 8")
        at = word_at(self.w, made, 1)
        self.w.do(f"store i64 {meta(size, fields, tag)}, ptr {at}, align 8")
        return made

    def drop(self, value: str) -> None:
        self.w.do(f"call void @plica.drop{self.apart}(ptr %state, ptr {value})")

    def dup(self, value: str) -> None:
        self.w.do(f"call void @plica.dup{self.apart}(ptr {value})")

    def fail(self, code: int) -> None:
        self.w.do(f"store i64 {code}, ptr {word_at(self.w, '%state', state.CODE)}, align 8")
        self.w.do("br label %fail")

    # --- regions ---------------------------------------------------------------------------------

    def region(self, region: dp.RoutineRegion, targets: tuple[int, ...], join: str) -> None:
        for step in region.steps:
            self.step(step)
        match region.end:
            case dp.Yield(registers):
                values = [self.get(register) for register in registers]
                if region.tail:
                    self.leave(values)
                    return
                for target, value in zip(targets, values, strict=True):
                    self.put(target, value)
                self.w.do(f"br label %{join}")
            case dp.Tail(routine, args):
                self.tail(routine, [self.get(arg) for arg in args])
            case dp.Fail(failure):
                self.fail(1 + failure)
            case dp.FallThrough():
                if self.w.lines[-1].endswith(":"):  # a match without clauses, of which none fits
                    self.w.do("unreachable")

    def leave(self, values: Sequence[str]) -> None:
        """Return the results; where there are none, anything but null."""
        for number, value in enumerate(values[1:]):
            at = self.w.let(f"getelementptr ptr, ptr %others, i64 {number}")
            self.w.do(f"store ptr {value}, ptr {at}, align 8")
        self.w.do(f"ret ptr {values[0] if values else '%state'}")

    def tail(self, routine: int, values: Sequence[str]) -> None:
        if routine == self.number:
            for number, value in enumerate(values):
                self.put(number, value)
            self.w.do("br label %r0")
            return
        listed = passed(self.w, "%others", values)
        kind = "musttail call" if self.folding.jumps else "call"
        self.calls = self.calls or not self.folding.jumps
        made = self.w.let(f"{kind} tailcc ptr @{name_of(self.program, routine)}({listed})")
        self.w.do(f"ret ptr {made}")

    def step(self, step: dp.Step) -> None:
        match step:
            case dp.KernelCall():
                self.launch(step)
            case dp.Constant(target, number):
                table = self.w.let(
                    f"load ptr, ptr {word_at(self.w, '%state', state.CONSTANTS)}, align 8"
                )
                self.put(target, word_at(self.w, table, 3 * number))
            case dp.Build(target, tag, fields):
                self.build(target, tag, fields)
            case dp.CallStep(routine, args, targets):
                given = [self.get(arg) for arg in args]
                self.call(routine, given, (), targets)
            case dp.ChooseStep(condition, then, orelse, targets):
                self.choose(condition, then, orelse, targets)
            case dp.SelectStep():
                self.select(step)
            case dp.OpenCell(cell):
                self.w.do(f"store ptr null, ptr %c{cell}, align 8")
            case dp.ForceStep(cell, targets):
                self.force(cell, targets)
            case dp.FieldStep(target, root, path, _):
                value = self.along(root, path)
                self.dup(value)
                self.put(target, value)
            case dp.Dup(register):
                self.dup(self.get(register))
            case dp.Drop(register):
                self.drop(self.get(register))
            case dp.Close(cell):
                self.close(cell)
            case dp.Unpack():
                self.unpack(step)

    def launch(self, step: dp.KernelCall) -> None:
        w = self.w
        pointers = []
        for each in step.inputs:
            pointers.append(self.field(self.get(each), 0))
        kept = []
        for number, size in enumerate((*step.scratch, step.bytes)):
            whole, start = tensor_size(size)
            made = self.take(whole)
            elements = w.let(f"getelementptr i8, ptr {made}, i64 {start}")
            w.do(f"store ptr {elements}, ptr {word_at(w, made, 2)}, align 8")
            pointers.append(elements)
            if number < len(step.scratch):
                kept.append(made)
            else:
                self.put(step.target, made)
        callee = self.folding.callees[step.kernel]
        listed = ", ".join([f"ptr {pointer}" for pointer in pointers])
        if callee.can_fail:
            failed = w.let(f"call i1 @{callee.name}({listed})")
            outside, on = w.labels("outside", "inside")
            w.do(f"br i1 {failed}, label %{outside}, label %{on}")
            w.start(outside)
            self.fail(self.folding.code_of(step))
            w.start(on)
        else:
            w.do(f"call void @{callee.name}({listed})")
        for scratch in kept:
            self.drop(scratch)

    def build(self, target: int, tag: int, fields: tuple[int, ...]) -> None:
        if not fields:
            self.folding.tags.add(tag)
            self.put(target, f"@plica.tag.{tag}")
            return
        made = self.take(16 + 8 * len(fields), len(fields), tag)
        for number, field in enumerate(fields):
            self.w.do(
                f"store ptr {self.get(field)}, ptr {word_at(self.w, made, 2 + number)}, align 8"
            )
        self.put(target, made)

    def call(
        self, routine: int, given: Sequence[str], cells: Sequence[int], targets: tuple[int, ...]
    ) -> list[str]:
        """Call a routine that comes back; its results."""
        self.calls = True
        results = self.program.routines[routine].results
        self.most = max(self.most, results - 1)
        others = "%more" if results > 1 else "null"
        listed = passed(self.w, others, [*given, *[f"%c{n}" for n in cells]])
        made = self.w.let(f"call tailcc ptr @{name_of(self.program, routine)}({listed})")
        found = [self.checked(made)]
        for number in range(results - 1):
            at = self.w.let(f"getelementptr ptr, ptr %more, i64 {number}")
            found.append(self.w.let(f"load ptr, ptr {at}, align 8"))
        for target, value in zip(targets, found, strict=False):
            self.put(target, value)
        return found[:results]

    def ways(self, regions: Sequence[int], targets: tuple[int, ...]) -> None:
        """Let regions be written, and go on where they come together, if they do."""
        (join,) = self.w.labels("join")
        for region in regions:
            self.todo.append((region, targets, join))
        if not regions or not all(self.routine.regions[region].tail for region in regions):
            self.w.start(join)

    def choose(self, condition: int, then: int, orelse: int, targets: tuple[int, ...]) -> None:
        elements = self.field(self.get(condition), 0)
        flag = self.w.let(f"load i8, ptr {elements}, align 1")
        test = self.w.let(f"icmp ne i8 {flag}, 0")
        self.w.do(f"br i1 {test}, label %r{then}, label %r{orelse}")
        self.ways((then, orelse), targets)

    def select(self, step: dp.SelectStep) -> None:
        w = self.w
        labels = w.labels(*[f"n{number}" for number in range(len(step.tree))])
        w.do(f"br label %{labels[0]}")
        for label, node in zip(labels, step.tree, strict=True):
            w.start(label)
            match node:
                case Leaf(clause):
                    w.do(f"br label %r{step.clauses[clause].region}")
                case Miss():
                    self.fail(1 + step.failure)
                case Switch(root, path, cases, default):
                    at = word_at(w, self.along(step.roots[root], path), 1)
                    tag = w.let(f"lshr i64 {w.let(f'load i64, ptr {at}, align 8')}, 32")
                    last = cases[-1][1] if default is None else default
                    tests = cases[:-1] if default is None else cases
                    listed = " ".join([f"i64 {n}, label %{labels[to]}" for n, to in tests])
                    w.do(f"switch i64 {tag}, label %{labels[last]} [ {listed} ]")
        used = {node.clause for node in step.tree if isinstance(node, Leaf)}
        regions = [each.region for n, each in enumerate(step.clauses) if n in used]
        self.ways(regions, step.targets)

    def force(self, cell: int, targets: tuple[int, ...]) -> None:
        """The values of a cell, whose first word says whether they are there."""
        w, of = self.w, self.routine.cells[cell]
        new, old = w.labels("force", "forced")
        filled = w.let(f"load ptr, ptr %c{cell}, align 8")
        empty = w.let(f"icmp eq ptr {filled}, null")
        w.do(f"br i1 {empty}, label %{new}, label %{old}")
        w.start(new)
        given = [self.get(arg) for arg in of.args]
        for value in given:
            self.dup(value)
        for number, value in enumerate(self.call(of.routine, given, of.cells, ())):
            w.do(f"store ptr {value}, ptr {word_at(w, f'%c{cell}', 1 + number)}, align 8")
        w.do(f"store ptr %state, ptr %c{cell}, align 8")
        w.do(f"br label %{old}")
        w.start(old)
        for number, target in enumerate(targets):
            value = w.let(f"load ptr, ptr {word_at(w, f'%c{cell}', 1 + number)}, align 8")
            self.dup(value)
            self.put(target, value)

    def close(self, cell: int) -> None:
        w = self.w
        full, empty = w.labels("full", "empty")
        filled = w.let(f"load ptr, ptr %c{cell}, align 8")
        none = w.let(f"icmp eq ptr {filled}, null")
        w.do(f"br i1 {none}, label %{empty}, label %{full}")
        w.start(full)
        for number in range(self.routine.cells[cell].results):
            self.drop(w.let(f"load ptr, ptr {word_at(w, f'%c{cell}', 1 + number)}, align 8"))
        w.do(f"br label %{empty}")
        w.start(empty)

    def unpack(self, step: dp.Unpack) -> None:
        """Take over the fields of an object; if others own it too, they are shared."""
        w = self.w
        root = self.get(step.root)
        values = {number: self.field(root, number) for number in range(step.count)}
        taken = {number for number, _ in step.targets}
        count = w.let(f"load i64, ptr {root}, align 8")
        only = w.let(f"icmp eq i64 {count}, 1")
        alone, shared, end = w.labels("alone", "shared", "unpacked")
        w.do(f"br i1 {only}, label %{alone}, label %{shared}")
        w.start(alone)
        for number, value in values.items():
            if number not in taken:
                self.drop(value)
        w.do(f"call void @plica.give{self.apart}(ptr %state, ptr {root})")
        w.do(f"br label %{end}")
        w.start(shared)
        for number in sorted(taken):
            self.dup(values[number])
        self.drop(root)
        w.do(f"br label %{end}")
        w.start(end)
        for number, target in step.targets:
            self.put(target, values[number])
