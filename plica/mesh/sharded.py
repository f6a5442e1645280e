"""Sharded programs: the program that each device of a mesh runs, written from inferred splits.

`laid_out` goes through the operators once and writes each in its chosen form, with a collective
wherever an argument is held otherwise.

    x: split 0 on data;  w1: split 1 on model
    before:  relu(x @ w1) @ w2
    after:   all_reduce(relu(x @ w1) @ w2, model)           w2: split 0 on model
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from plica.core import Name
from plica.ir.graph.expression import Apply, Expr, Function, Project, Tuple, Var
from plica.ir.graph.module import Module, main_module
from plica.ir.type import infer, tensor
from plica.mesh.exchange import bytes_of, exchange_cost, relaid, sends
from plica.mesh.infer import UNDECIDED, ChosenForm, Given, Splits, chosen_form, layout_of
from plica.mesh.mesh import REPLICATED, Layout, Mesh, refusal, sizes_of
from plica.mesh.program import FlatOperation, FlatProgram

UNIT: Final = Tuple(())


@frozen(eq=False)
class HeldValue:
    """A parameter of the program of a device: the value of the whole program, and its layout."""

    value: int
    layout: Layout


@frozen
class LayoutCost:
    """What a program costs each device."""

    sent: tuple[float, ...]  # bytes sent along each axis
    exchanges: int  # how many collectives send something
    steps: float  # innermost steps of all operators
    held: float  # bytes of parameters and constants


@frozen(eq=False)
class ShardedProgram:
    """A program on a mesh: the module that every device runs on its blocks."""

    program: FlatProgram
    mesh: Mesh
    module: Module
    held: tuple[HeldValue, ...]
    """What the parameters of the module are: parameters and constants of the program."""
    results: tuple[Layout, ...]
    layouts: tuple[Layout, ...]
    """How each value of the program is held where it is made."""
    cost: LayoutCost


def laid_out(
    program: FlatProgram, mesh: Mesh, splits: tuple[Splits, ...],
    results: Mapping[int, Layout], *, strict: bool = False,
) -> ShardedProgram:  # fmt: skip
    """The program of a device; with `strict` an operator that can't run on blocks is refused.

    `results` are the layouts of results by their place; others are left as they are, but partial
    ones are combined.
    """
    writer = _Writer(program, mesh, splits, strict=strict)
    layouts, parts = writer.results(results)
    function = Function((), (), tuple(writer.params), None, Tuple(tuple(parts)))
    every = [writer.first.get(v, mesh.replicated()) for v in range(len(program.names))]
    return ShardedProgram(
        program, mesh, infer(main_module(function)), tuple(writer.held), tuple(layouts),
        tuple(every), writer.cost(),
    )  # fmt: skip


def cost_of(program: FlatProgram, mesh: Mesh, splits: tuple[Splits, ...]) -> LayoutCost:
    """What `laid_out` would cost, without writing the program."""
    writer = _Writer(program, mesh, splits, build=False)
    writer.results({})
    return writer.cost()


class _Writer:
    """The values of the device as they are made, by value and layout."""

    def __init__(
        self, program: FlatProgram, mesh: Mesh, splits: tuple[Splits, ...], *,
        strict: bool = False, build: bool = True,
    ) -> None:  # fmt: skip
        self.program, self.mesh, self.splits, self.build = program, mesh, splits, build
        self.copies = Counter[int]()
        self.sent = [0.0] * len(mesh.axes)
        self.exchanges, self.steps, self.bytes = 0, 0.0, 0.0
        self.local: dict[int, dict[Layout, Expr]] = defaultdict(dict)
        self.params: list[Var] = []
        self.held: list[HeldValue] = []
        self.first: dict[int, Layout] = {}
        for value in range(program.params):
            self.hold(value, layout_of(splits, value))
        for operation in program.operations:
            self.apply(operation, strict)

    def cost(self) -> LayoutCost:
        """What was written so far costs."""
        return LayoutCost(tuple(self.sent), self.exchanges, self.steps, self.bytes)

    def hold(self, value: int, layout: Layout) -> None:
        """A parameter of the device for a value."""
        of = self.program.types[value]
        local = tensor(self.mesh.local_shape(sizes_of(of), layout), of.dtype)
        name = self.program.names[value].replace(".", "_")
        self.params.append(Var(Name(name, self.copies[value]), local))
        self.copies[value] += 1
        self.bytes += bytes_of(local)
        self.held.append(HeldValue(value, layout))
        self.put(value, layout, self.params[-1])

    def put(self, value: int, layout: Layout, expr: Expr) -> None:
        self.local[value][layout] = expr
        self.first.setdefault(value, layout)

    def get(self, value: int, layout: Layout) -> Expr:
        """A value in a layout, exchanged if it is held otherwise.

        Of constants scalars stand in the program; of others each device holds its block.
        """
        of, local = self.program.types[value], self.local[value]
        if layout in local:
            pass
        elif (constant := self.program.constants.get(value)) is None:
            sizes = self.mesh.sizes
            source = min(local, key=lambda held: exchange_cost(sizes, of, held, layout))
            for axis, sent in sends(sizes, of, source, layout):
                self.sent[axis] += sent
                self.exchanges += sent > 0
            relay = relaid(local[source], self.mesh, source, layout) if self.build else UNIT
            local[layout] = relay
        elif sizes_of(of):
            self.hold(value, layout)
        else:
            self.put(value, layout, constant)
        return local[layout]

    def apply(self, operation: FlatOperation, strict: bool) -> None:
        """Write an operation in the form that moves the fewest bytes."""
        program = self.program
        given = tuple([
            None if value in program.constants else tuple(self.local[value])
            for value in operation.arguments
        ])  # fmt: skip
        wanted = tuple([
            tuple([of_axis.get(value, UNDECIDED) for of_axis in self.splits])
            for value in operation.results
        ])  # fmt: skip
        types, outs = (tuple([program.types[value] for value in values])
                       for values in (operation.arguments, operation.results))  # fmt: skip
        form = chosen_form(
            self.mesh, operation.op, operation.attributes, types, outs, given, wanted
        )
        if strict:
            self.refuse_gathers(operation, form, given)
        args = tuple(map(self.get, operation.arguments, form.arguments))
        self.steps += form.steps
        node = Apply(operation.op, args, form.attributes) if self.build else UNIT
        several = self.build and len(operation.results) > 1
        for at, (value, layout) in enumerate(zip(operation.results, form.results, strict=True)):
            self.put(value, layout, Project(node, at) if several else node)

    def refuse_gathers(self, operation: FlatOperation, form: ChosenForm, given: Given) -> None:
        """Refuse an operation that takes a value in full that is held in blocks."""
        names = self.program.names
        for value, layout, held in zip(operation.arguments, form.arguments, given, strict=True):
            for at, (axis, size) in enumerate(self.mesh.axes):
                before = [versions[at] for versions in held or ()]
                in_blocks = before and size > 1 and all(it.kind == "split" for it in before)
                if in_blocks and layout[at].kind != "split":
                    raise refusal(
                        "not-sharded",
                        f"{names[operation.results[0]]} needs dim {before[0].dim} of "
                        f"{names[value]} in full, which {axis!r} splits: an element of its result "
                        "is no function of a block.",
                        "an operator that works on blocks", operation.op,
                        "Replicate the value before it, or leave out strict.",
                    )  # fmt: skip

    def results(self, wanted: Mapping[int, Layout]) -> tuple[list[Layout], list[Expr]]:
        """The layouts of the results, and what they are in them."""
        layouts: list[Layout] = []
        for place, value in enumerate(self.program.results):
            if value not in self.first:  # a constant that no operator takes
                self.get(value, wanted.get(place, self.mesh.replicated()))
            made = [REPLICATED if it.kind == "partial" else it for it in self.first[value]]
            layouts.append(wanted.get(place, tuple(made)))
        return layouts, list(map(self.get, self.program.results, layouts))
