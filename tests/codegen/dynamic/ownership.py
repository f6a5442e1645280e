"""Ownership, checked by running a routine on counts alone: an independent word on `count`."""

from __future__ import annotations

from collections import Counter

from plica.codegen.dynamic.program import (
    Build,
    CallStep,
    ChooseStep,
    Close,
    Constant,
    Drop,
    Dup,
    DynamicProgram,
    FallThrough,
    FieldStep,
    ForceStep,
    KernelCall,
    OpenCell,
    Routine,
    SelectStep,
    Tail,
    Unpack,
    Yield,
)


def check(program: DynamicProgram) -> None:
    """Every way through every routine owns what it uses, and nothing at its end."""
    for routine in program.routines:
        start = Counter(dict.fromkeys(range(routine.params), 1))
        assert _after(routine, 0, start, frozenset()) is None


def _after(
    routine: Routine, number: int, owned: Counter[int], cells: frozenset[int]
) -> tuple[Counter[int], frozenset[int]] | None:
    """What is owned after a region, None where it leaves the routine."""
    region = routine.regions[number]

    def own(each: int) -> None:
        owned[each] += each not in routine.immortal

    def use(each: int) -> None:
        assert each in routine.immortal or owned[each] > 0, (routine.name, number, each)

    def give(each: int) -> None:
        use(each)
        owned[each] -= each not in routine.immortal

    for step in region.steps:
        match step:
            case KernelCall():
                for each in step.inputs:
                    use(each)
                own(step.target)
            case Constant(target, _):
                assert target in routine.immortal
            case Build(target, _, fields):
                for each in fields:
                    give(each)
                own(target)
            case CallStep(_, args, targets):
                for each in args:
                    give(each)
                for each in targets:
                    own(each)
            case Dup(register):
                use(register)
                own(register)
            case Drop(register):
                give(register)
            case FieldStep(target, root, _, _):
                use(root)
                own(target)
            case Unpack(root, taken, count):
                give(root)
                assert len({field for field, _ in taken}) == len(taken) <= count
                for _, each in taken:
                    own(each)
            case OpenCell(cell):
                assert cell not in cells
                cells |= {cell}
            case Close(cell):
                assert cell in cells
                cells -= {cell}
            case ForceStep(cell, targets):
                of = routine.cells[cell]
                assert cell in cells or not of.owned
                for each in of.args:
                    use(each)
                for each in targets:
                    own(each)
            case ChooseStep() | SelectStep():
                ways = (
                    (step.then, step.orelse)
                    if isinstance(step, ChooseStep)
                    else [each.region for each in step.clauses]
                )
                for each in (step.condition,) if isinstance(step, ChooseStep) else step.roots:
                    use(each)
                ends = [_after(routine, each, Counter(owned), cells) for each in ways]
                on = [each for each in ends if each is not None]
                if on:
                    assert all(+left == +on[0][0] and kept == on[0][1] for left, kept in on)
                    owned, cells = on[0]
                for each in step.targets:
                    own(each)
    match region.end:
        case Yield(registers) | Tail(_, registers):
            for each in registers:
                give(each)
        case FallThrough():
            return None
    if region.tail:
        assert not +owned, (routine.name, number, +owned)
        assert not cells, (routine.name, number, cells)
        return None
    return owned, cells
