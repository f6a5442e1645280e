"""Showing dynamic programs: one line a step, for people.

>>> from plica.codegen.dynamic.program import Build, RoutineRegion, Routine, Yield
>>> one = Routine("one", 1, 2, 1, (RoutineRegion((Build(1, 0, (0,)),), Yield((1,)), True),))
>>> print(show(dp.DynamicProgram((one,), 0, (), (), (), ())))
one(r0):
    r1 = tag 0 (r0)
    return r1
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from plica.codegen.dynamic import program as dp
from plica.codegen.dynamic.tree import Leaf, Miss, Node, Switch


def show(program: dp.DynamicProgram) -> str:
    """The routines of a program."""
    return "\n\n".join([_routine(routine, program) for routine in program.routines])


def _routine(of: dp.Routine, program: dp.DynamicProgram) -> str:
    cells = [f"c{number}" for number in range(of.borrowed)]
    lines = [f"{of.name}({', '.join([_list(range(of.params)), *cells]).strip(', ')}):"]
    todo = [(0, 1, "")]
    while todo:
        number, depth, label = todo.pop()
        indent = "    " * depth
        if label:
            lines.append(f"{'    ' * (depth - 1)}{label}:")
        region = of.regions[number]
        inside: list[tuple[int, int, str]] = []
        for step in region.steps:
            lines.append(indent + _step(step, of, program))
            inside += [(each, depth + 1, f"{word} b{each}") for each, word in _ways(step)]
        match region.end:
            case dp.Yield(registers):
                word = "return" if region.tail else "yield"
                lines.append(f"{indent}{word} {_list(registers)}".rstrip())
            case dp.Tail(routine, args):
                lines.append(f"{indent}jump {program.routines[routine].name}({_list(args)})")
            case dp.Fail(failure):
                lines.append(f"{indent}fail {failure}")
            case dp.FallThrough():
                pass
            case _:
                assert_never(region.end)
        todo.extend(reversed(inside))
    return "\n".join(lines)


def _ways(step: dp.Step) -> list[tuple[int, str]]:
    """The regions inside of a step."""
    if isinstance(step, dp.ChooseStep):
        return [(step.then, "then"), (step.orelse, "else")]
    if isinstance(step, dp.SelectStep):
        return [(clause.region, f"clause {number}") for number, clause in enumerate(step.clauses)]
    return []


def _step(step: dp.Step, of: dp.Routine, program: dp.DynamicProgram) -> str:
    match step:
        case dp.KernelCall():
            made = f"r{step.target}"
            return f"{made} = [{step.source}]({_list(step.inputs)})"
        case dp.Constant(target, number):
            return f"r{target} = constant {number}"
        case dp.Build(target, tag, fields):
            return f"r{target} = tag {tag} ({_list(fields)})"
        case dp.CallStep(routine, args, targets):
            return f"{_list(targets)} = {program.routines[routine].name}({_list(args)})".lstrip()
        case dp.ChooseStep(condition, then, orelse, targets):
            return f"{_to(targets)}if r{condition}: b{then} else b{orelse}"
        case dp.SelectStep(roots, tree, clauses, _, targets):
            shown = "; ".join([_node(each) for each in tree])
            return f"{_to(targets)}match {_list(roots)}: {shown}" + "".join(
                [f"; {n} -> b{clause.region}" for n, clause in enumerate(clauses)]
            )
        case dp.OpenCell(cell):
            thunk = of.cells[cell]
            return f"open c{cell}: {program.routines[thunk.routine].name}({_list(thunk.args)})"
        case dp.ForceStep(cell, targets):
            return f"{_to(targets)}force c{cell}"
        case dp.FieldStep(target, root, path, _):
            return f"r{target} = r{root}.{'.'.join(map(str, path))}"
        case dp.Dup(register):
            return f"dup r{register}"
        case dp.Drop(register):
            return f"drop r{register}"
        case dp.Close(cell):
            return f"close c{cell}"
        case dp.Unpack(root, pairs, _):
            taken = ", ".join([f"r{register} = .{number}" for number, register in pairs])
            return f"unpack r{root}: {taken}"
        case _:
            assert_never(step)


def _node(node: Node) -> str:
    match node:
        case Switch(root, path, cases, default):
            ways = ", ".join([f"{tag}: {to}" for tag, to in cases])
            rest = "" if default is None else f", _: {default}"
            return f"tag {'.'.join(map(str, (root, *path)))} {{{ways}{rest}}}"
        case Leaf(clause):
            return f"clause {clause}"
        case Miss():
            return "miss"
        case _:
            assert_never(node)


def _list(registers: Iterable[int]) -> str:
    return ", ".join([f"r{register}" for register in registers])


def _to(targets: tuple[int, ...]) -> str:
    return f"{_list(targets)} = " if targets else ""
