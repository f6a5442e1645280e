"""Dynamic programs: what a module with data, recursion and choices does, before it is native code.

    Program ::= Program(routines, entry, kernels, constants, failures)
    Routine ::= Routine(name, params, registers, results, regions, cells)
    Region  ::= Region(steps, end)
    Step    ::= KernelCall(kernel, inputs, target) | Constant(target, number)
              | Build(target, tag, fields) | Invoke(routine, args, targets)
              | Choose(condition, then, orelse, targets) | Select(roots, tree, clauses, targets)
              | Open(cell) | Force(cell, thunk, targets)
              | Field(target, root, path, count) | Dup(register) | Drop(register) | Close(cell)
              | Unpack(root, targets, count)
    End     ::= Yield(registers) | Tail(routine, args) | Fail(failure) | Nothing

A register holds one object: a tensor, or a value of a data type.  Tuples are taken apart: a value
of tuple type is as many registers as it has tensors and data in it, and so is a tuple inside of
data.  A routine owns what its registers hold.  Arguments of routines, fields of objects and results
pass to their new owner; kernels, choices and selections only look.
`plica.codegen.dynamic.reference_count`
writes down where that takes a `Dup` or a `Drop`.  A cell is a value that is computed when it is
first needed, if ever.

Regions are numbered, so a routine nests as deep as the program does while this data stays flat.

>>> RoutineRegion((KernelCall(0, (0, 0), 1, 12, (), "add"),), Yield((1,))).end
Yield(registers=(1,))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from attrs import field, frozen

from plica.codegen.dynamic.tree import Node
from plica.codegen.program import KernelOrigin
from plica.ir.graph.expression import Const
from plica.ir.loop import Kernel
from plica.runtime.dynamic.artefact import Ending

if TYPE_CHECKING:
    from plica.codegen.lower.passes import LoweredKernel


@frozen
class KernelCall:
    """Run a kernel on tensors, and on new memory of so many bytes, which is the `target` then;
    `scratch` are the bytes of memory that the kernel keeps to itself."""

    kernel: int
    inputs: tuple[int, ...]
    target: int
    bytes: int
    scratch: tuple[int, ...]
    source: str


@frozen
class Constant:
    """A constant of the program; it is never given back."""

    target: int
    number: int


@frozen
class Build:
    """A value of a data type."""

    target: int
    tag: int
    fields: tuple[int, ...]


@frozen
class CallStep:
    """Call a routine and go on with its results."""

    routine: int
    args: tuple[int, ...]
    targets: tuple[int, ...]


@frozen
class ChooseStep:
    """Run one of two regions; what it yields is in the targets."""

    condition: int
    then: int
    orelse: int
    targets: tuple[int, ...]


@frozen
class SelectClause:
    """One way on: what it takes out of the roots, and the region that runs then."""

    fields: tuple[FieldStep, ...]
    region: int


@frozen
class SelectStep:
    """Run the clause that a decision tree comes to, by looking at the tags of the roots."""

    roots: tuple[int, ...]
    tree: tuple[Node, ...]
    clauses: tuple[SelectClause, ...]
    failure: int
    targets: tuple[int, ...]


@frozen
class Cell:
    """A value that is computed by a thunk when it is first needed: a routine and its arguments.

    `cells` are those that the thunk itself may need.
    """

    routine: int
    args: tuple[int, ...]
    cells: tuple[int, ...]
    results: int
    owned: bool = True


@frozen
class OpenCell:
    """A cell begins, empty."""

    cell: int


@frozen
class ForceStep:
    """The values of a cell."""

    cell: int
    targets: tuple[int, ...]


@frozen
class FieldStep:
    """Look at a part of an object and own it too; `path` counts fields from the root.

    `count` is how many fields the innermost object has.
    """

    target: int
    root: int
    path: tuple[int, ...]
    count: int


@frozen
class Dup:
    """One more owner."""

    register: int


@frozen
class Drop:
    """One owner less."""

    register: int


@frozen
class Close:
    """A cell ends; what it holds is dropped."""

    cell: int


@frozen
class Unpack:
    """Give up an object of `count` fields and own some of them: (field, register) each."""

    root: int
    targets: tuple[tuple[int, int], ...]
    count: int


Step: TypeAlias = (
    KernelCall | Constant | Build | CallStep | ChooseStep | SelectStep | OpenCell | ForceStep
    | FieldStep | Dup | Drop | Close | Unpack
)  # fmt: skip


@frozen
class Yield:
    """The values of a region; in tail position they are the results of the routine."""

    registers: tuple[int, ...]


@frozen
class Tail:
    """The results of a routine are those of another, which takes its place."""

    routine: int
    args: tuple[int, ...]


@frozen
class Fail:
    """The program ends here."""

    failure: int


@frozen
class FallThrough:
    """The last step decides what comes, in tail position."""


End: TypeAlias = Yield | Tail | Fail | FallThrough


@frozen
class RoutineRegion:
    """Steps, and what comes after them; one that does not return leaves the routine."""

    steps: tuple[Step, ...]
    end: End
    tail: bool = False


@frozen
class Routine:
    """A function: its parameters are the first registers, and region 0 is where it begins."""

    name: str
    params: int
    registers: int
    results: int
    regions: tuple[RoutineRegion, ...]
    cells: tuple[Cell, ...] = ()
    immortal: frozenset[int] = frozenset()  # registers of constants, which nobody counts

    @property
    def borrowed(self) -> int:
        """How many cells of somebody else it is given: they are its first."""
        return sum(not cell.owned for cell in self.cells)


@frozen
class DynamicProgram:
    """Routines, and the kernels and constants they refer to."""

    routines: tuple[Routine, ...]
    entry: int
    kernels: tuple[Kernel, ...]
    names: tuple[str, ...]
    constants: tuple[Const, ...]
    failures: tuple[Ending, ...]
    origins: tuple[KernelOrigin | None, ...] = field(default=(), eq=False, repr=False)
    lowered: Mapping[Kernel, LoweredKernel] = field(factory=dict, eq=False, repr=False)
    """Scheduled kernels that were lowered already, to see whether they can be."""
