"""Counting: who owns what, written down as steps.

Every object says how many owners it has.  A routine owns its parameters and what its steps give it,
and hands ownership on by arguments, fields and results; so an object is given up right after its
last use, and shared only where it is needed again:

    before:  r2 = add(r0, r0); r3 = Cons(r2, r1); yield r3, r2
    after:   r2 = add(r0, r0); drop r0; dup r2; r3 = Cons(r2, r1); yield r3, r2

What only one of several ways needs is dropped where the others begin.  A clause that takes an
object apart and needs it no more takes it over field by field: if nobody else owns it, nothing is
counted at all (`Unpack`).  A cell owns what it holds; what its thunk would need lives as long as
the cell may still be forced.

The uses are found from the end, region by region; no depth of nesting is too much.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from attrs import evolve

from plica.codegen.dynamic import program as dp
from plica.core import CompilerBug, Task
from plica.core.task import run

Live: TypeAlias = set[int]  # registers, and cells as numbers below 0


def with_reference_counts(program: dp.DynamicProgram) -> dp.DynamicProgram:
    """The program with every step that keeps count."""
    return evolve(program, routines=tuple([_Counting(each).done() for each in program.routines]))


class _Counting:
    """One routine: its regions as they are done."""

    def __init__(self, routine: dp.Routine) -> None:
        self.routine = routine
        self.steps: dict[int, list[dp.Step]] = {}

    def done(self) -> dp.Routine:
        routine = self.routine
        needed = run(self._region(0, set()))
        entry = [
            dp.Drop(each)
            for each in range(routine.params)
            if each not in needed and each not in routine.immortal
        ]
        self.steps[0][:0] = entry
        regions = [
            dp.RoutineRegion(tuple(self.steps[number]), region.end, region.tail)
            for number, region in enumerate(routine.regions)
        ]
        return evolve(routine, regions=tuple(regions))

    def _region(self, number: int, after: Live) -> Task[Live]:
        """The steps of a region, from the last to the first; gives the registers it needs."""
        region = self.routine.regions[number]
        live = set(after)
        done: list[dp.Step] = []  # the last step first
        match region.end:
            case dp.Yield(registers):
                self._consume(registers, live, done)
            case dp.Tail(_, args):
                self._consume(args, live, done)
            case dp.Fail() | dp.FallThrough():
                pass
        for step in reversed(region.steps):
            match step:
                case dp.KernelCall():
                    self._made((step.target,), live, done)
                    self._borrow(step.inputs, live, done)
                    done.append(step)
                case dp.Constant():
                    done.append(step)
                case dp.Build(target, _, fields):
                    self._made((target,), live, done)
                    done.append(step)
                    self._consume(fields, live, done)
                case dp.CallStep(_, args, targets):
                    self._made(targets, live, done)
                    done.append(step)
                    self._consume(args, live, done)
                case dp.OpenCell(cell):
                    if -1 - cell in live:
                        live.discard(-1 - cell)
                        done.append(step)
                case dp.ForceStep(cell, targets):
                    self._made(targets, live, done)
                    self._borrow(self._behind(cell), live, done)
                    done.append(step)
                case dp.ChooseStep(condition, then, orelse, targets):
                    self._made(targets, live, done)
                    before = [(yield self._region(then, live)), (yield self._region(orelse, live))]
                    live = set().union(*before)
                    if condition not in self.routine.immortal:
                        live.add(condition)
                    for inside, own in zip((then, orelse), before, strict=True):
                        self.steps[inside][:0] = self._dropped(live - own)
                    done.append(step)
                case dp.SelectStep(roots, _, clauses, _, targets):
                    self._made(targets, live, done)
                    before = []
                    for clause in clauses:
                        before.append((yield self._region(clause.region, live)))
                    live = set().union(
                        *[
                            own - {taken.target for taken in clause.fields}
                            for clause, own in zip(clauses, before, strict=True)
                        ]
                    )
                    live |= {root for root in roots if root not in self.routine.immortal}
                    for clause, own in zip(clauses, before, strict=True):
                        self.steps[clause.region][:0] = self._taken(clause.fields, live, own)
                    bare = tuple([dp.SelectClause((), clause.region) for clause in clauses])
                    done.append(evolve(step, clauses=bare))
                case _:
                    raise CompilerBug(f"{step!r} is counted already.")
        done.reverse()
        self.steps[number] = done
        return live

    def _behind(self, cell: int) -> list[int]:
        """What must be there for a cell to be forced: itself, and all that its thunk needs."""
        of: dp.Cell = self.routine.cells[cell]
        return [-1 - cell, *of.args, *[-1 - each for each in of.cells]]

    def _made(self, targets: Iterable[int], live: Live, done: list[dp.Step]) -> None:
        """Nobody needs what a step gives, or it is what was needed."""
        for target in targets:
            if target not in live:
                done.append(dp.Drop(target))
            live.discard(target)

    def _borrow(self, registers: Iterable[int], live: Live, done: list[dp.Step]) -> None:
        """A step looks at something; if it was the last to, it goes."""
        for each in dict.fromkeys(registers):
            if each not in live and not self._is_free(each):
                done.extend(self._dropped((each,)))
                live.add(each)

    def _consume(self, registers: Iterable[int], live: Live, done: list[dp.Step]) -> None:
        """A step takes something over; what is needed again gets one more owner before."""
        for register in registers:
            if self._is_free(register):
                continue
            if register in live:
                done.append(dp.Dup(register))
            live.add(register)

    def _is_free(self, each: int) -> bool:
        """Whether something is not counted: a constant, or a cell of somebody else."""
        if each < 0:
            return not self.routine.cells[-1 - each].owned
        return each in self.routine.immortal

    def _dropped(self, live: Iterable[int]) -> list[dp.Step]:
        # Cells first: they go before what their thunks would need.
        return [dp.Close(-1 - each) if each < 0 else dp.Drop(each) for each in sorted(live)]

    def _taken(self, fields: tuple[dp.FieldStep, ...], live: Live, own: Live) -> list[dp.Step]:
        """How a clause begins: with the fields it needs, and without what it does not."""
        needed = [field for field in fields if field.target in own]
        gone = live - own
        by_root: dict[int, list[dp.FieldStep]] = {}
        for field_step in needed:
            by_root.setdefault(field_step.root, []).append(field_step)
        whole = {root for root, of in by_root.items() if root in gone and _is_flat(of)}
        found: list[dp.Step] = [field_step for field_step in needed if field_step.root not in whole]
        for root in sorted(whole):
            taken = tuple([(field_step.path[0], field_step.target) for field_step in by_root[root]])
            found.append(dp.Unpack(root, taken, by_root[root][0].count))
        return found + self._dropped(gone - whole)


def _is_flat(fields: list[dp.FieldStep]) -> bool:
    """Whether fields are those of the object itself, each once."""
    return all(len(field.path) == 1 for field in fields) and len(
        {field.path for field in fields}
    ) == len(fields)
