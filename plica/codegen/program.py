"""Programs: what a compiled module does, step by step, before it is native code.

    Program ::= Program(kernels, slots, regions, entry)
    Region  ::= tuple of steps
    Step    ::= Launch(kernel, args) | Chunks(rows, pieces) | Copy(source, target)
              | Choose(condition, then, orelse) | Force(thunk)
    Slot    ::= Slot(space, index, shape, dtype, within, offset)

A size may be open: a term over the `dims` of the program, which are known when it is called.

>>> from plica.ir.type import f32
>>> Slot("temporary", 0, (3, 2), f32).bytes
24
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from attrs import field, frozen

from plica.core import CompilerBug, digest
from plica.ir.graph.expression import Call, Const, Expr, Var
from plica.ir.loop import Kernel, Scalar, ScalarVar, index
from plica.ir.type import DType, product
from plica.schedule.trace import Trace

if TYPE_CHECKING:
    from plica.codegen.lower.passes import LoweredKernel

Space = Literal["input", "output", "constant", "temporary"]


@frozen
class Slot:
    """A tensor in memory: `index` counts within its space.

    A part of another slot has its space and index, and begins `offset` bytes behind it.
    """

    space: Space
    index: int
    shape: tuple[int | Scalar, ...]
    dtype: DType
    within: int | None = None
    """The number of the slot that it is a part of, which is no part itself."""
    offset: int = 0

    @property
    def fixed(self) -> tuple[int, ...]:
        """The shape, where all of it is known."""
        found = tuple([size for size in self.shape if isinstance(size, int)])
        if len(found) < len(self.shape):
            raise CompilerBug(f"The size of {self.space} {self.index} is open.")
        return found

    @property
    def bytes(self) -> int:
        count = self.dtype.bytes
        for size in self.fixed:
            count *= size
        return count

    @property
    def size(self) -> Scalar:
        """The bytes as a term, which is a number unless some size is open."""
        sizes = [index(each) if isinstance(each, int) else each for each in self.shape]
        return product([index(self.dtype.bytes), *sizes])


@frozen
class Launch:
    """Run a kernel on slots; `source` is the operator it comes from, `term` what it computes.

    Kernels that differ in names only are one, so the dims of the kernel are names of its own:
    `sizes` says what each of them is in this launch, over the dims of the program.  Terms over
    these that are `least` must not be negative: if one is, the program ends here.
    """

    kernel: int
    args: tuple[int, ...]
    source: str
    term: Expr | None = field(default=None, eq=False, repr=False)
    sizes: tuple[Scalar, ...] = ()
    least: tuple[Scalar, ...] = ()

    @property
    def calls(self) -> bool:
        """Whether somebody wrote the kernel: it may read and write in any order."""
        return isinstance(self.term, Call) and isinstance(self.term.callee, Var)


@frozen
class RowKernel:
    """A kernel for a given number of rows; `steps` says how many bytes a row of each argument has,
    0 where all rows read the same."""

    size: int
    kernel: int
    args: tuple[int, ...]
    steps: tuple[int, ...]


@frozen
class Chunks(Launch):
    """Run kernels on rows, each on as many as it takes, the first as long as there are this many.

    `kernel` is that of the first piece, `args` are those of all.
    """

    rows: Scalar = field(kw_only=True)
    pieces: tuple[RowKernel, ...] = field(kw_only=True)


@frozen
class Copy:
    """Copy a whole slot to another of the same type."""

    source: int
    target: int


@frozen
class Choose:
    """Run the region `then` if the scalar bool in the slot holds, otherwise `orelse`."""

    condition: int
    then: int
    orelse: int


@frozen
class Force:
    """Run a region unless it has run in this call already; thunks count from 0."""

    thunk: int


Step: TypeAlias = Launch | Chunks | Copy | Choose | Force


@frozen(eq=False)
class KernelOrigin:
    """What a kernel was before it was lowered: where its schedule begins, and the schedule.

    `form` and `template` name what made both; empty where nobody chose by tables.
    """

    kernel: Kernel
    trace: Trace
    form: str = ""
    template: str = ""


@frozen
class Program:
    """Kernels with their names, slots, and regions; `thunks` says which region each thunk runs.

    `origins` says how kernels were scheduled, None for those that are plain loops.  `dims` are the
    open sizes, in the order in which they are given; `needs` are terms over them that must not be
    negative, so that every operator has a meaning.
    """

    kernels: tuple[Kernel, ...]
    names: tuple[str, ...]
    slots: tuple[Slot, ...]
    regions: tuple[tuple[Step, ...], ...]
    entry: int
    constants: tuple[Const, ...]
    thunks: tuple[int, ...] = ()
    origins: tuple[KernelOrigin | None, ...] = field(default=(), eq=False, repr=False)
    dims: tuple[ScalarVar, ...] = ()
    needs: tuple[Scalar, ...] = ()
    donated: tuple[tuple[int, int], ...] = ()
    """Inputs and the outputs that are written over them, by their numbers."""
    joined: tuple[str, ...] = field(default=(), eq=False, repr=False)
    """Of what joins tensors in memory: which of them are written there, and why others are not."""
    passed_over: tuple[str, ...] = field(default=(), eq=False, repr=False)
    """Schedules that promised more but could not be lowered, by kernel, and why."""
    lowered: Mapping[Kernel, LoweredKernel] = field(factory=dict, eq=False, repr=False)
    """Scheduled kernels that were lowered already, to see whether they can be."""
    digests: tuple[str, ...] = field(default=(), eq=False, repr=False)
    """Of kernels as they were when the program was made: what they are called by."""

    def space(self, space: Space) -> tuple[Slot, ...]:
        """The slots of one space, in order of their index; parts of others are none."""
        slots = [slot for slot in self.slots if slot.space == space and slot.within is None]
        return tuple(sorted(slots, key=lambda slot: slot.index))

    def holder(self, slot: int) -> int:
        """The slot whose memory one has: itself, unless it is a part."""
        within = self.slots[slot].within
        return slot if within is None else within


def moved_bytes(launch: Launch, program: Program) -> int:
    """The bytes of what a launch reads and writes; of a result that is written over an input those
    of what is put there, since the rest stays where it is."""
    sizes = [program.slots[slot].bytes for slot in launch.args]
    result = program.slots[launch.args[-1]]
    over = {new for _, new in program.donated}
    if result.space == "output" and result.index in over:
        return 2 * sum(sizes[:-1])
    return sum(sizes)


def launches(program: Program) -> tuple[Launch, ...]:
    """Every launch, in the order in which failures are numbered."""
    return tuple([s for steps in program.regions for s in steps if isinstance(s, Launch)])


NAME_DIGITS: Final = 8
LONGEST_NAME: Final = 40


def kernel_name(number: int, program: Program) -> str:
    """The name of a kernel's function: the same in every program that it is part of.

    It is what the kernel does and the beginning of its digest, never its number.
    """
    known = program.digests[number] if program.digests else digest(program.kernels[number])
    return function_name(program.names[number], known)


def function_name(does: str, known: str) -> str:
    """The same of what a kernel does, and its digest."""
    return f"{_one_word(does)}_{known[:NAME_DIGITS]}"


def plain_name(number: int, program: Program) -> str:
    """What a kernel does, in one word, which others may have too."""
    return _one_word(program.names[number])


def _one_word(does: str) -> str:
    letters = [doe if doe.isalnum() and doe.isascii() else "_" for doe in does]
    word = "".join(letters)[:LONGEST_NAME]
    return word if word[:1].isalpha() else f"k_{word}"
