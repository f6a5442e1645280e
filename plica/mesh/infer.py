"""Inference: the layout of every value of a program from the layouts of a few.

    1. `propagated` carries splits from annotated values along the factors of the operators, to
       arguments and to results; the first annotation to reach a value decides.
    2. `laid_out` goes through the operators once, chooses the form of each that moves the fewest
       bytes, and writes a collective wherever an argument is held otherwise.

    x: split 0 on data;  w1: split 1 on model
    before:  relu(x @ w1) @ w2
    after:   all_reduce(relu(x @ w1) @ w2, model)           w2: split 0 on model

Law: on every mesh the result is that of the whole program.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from attrs import frozen

from plica.core import Name
from plica.ir.graph.expression import Apply, Attrs, Expr, Function, Project, Tuple, Var
from plica.ir.graph.module import Module, main_module
from plica.ir.type import TensorType, infer, tensor
from plica.mesh.exchange import bytes_of, exchange_cost, exchanges, relaid, sends
from plica.mesh.factor import ShardedForm, forms, local_types
from plica.mesh.mesh import REPLICATED, Layout, Mesh, Placement, placed, refusal, sizes_of
from plica.mesh.program import FlatOperation, FlatProgram
from plica.rewrite.graph.feature import steps

Splits: TypeAlias = dict[int, int | None]
"""By value the dim that an axis splits; None where the value is held in full by decision."""


class Annotation(NamedTuple):
    """A value that an axis splits at a dim, or does not split (None)."""

    value: int
    axis: int
    dim: int | None


def propagated(
    program: FlatProgram, mesh: Mesh, annotations: Iterable[Annotation],
    start: tuple[Splits, ...] | None = None,
) -> tuple[Splits, ...]:  # fmt: skip
    """What each axis splits of which value, from annotations in their order, after a `start`."""
    users = _users(program)
    splits = tuple([dict(each) for each in start or [{} for _ in mesh.axes]])
    for value, axis, dim in annotations:
        if value in splits[axis]:
            continue
        _assign(program, mesh, splits, value, axis, dim, refuse=True)
        queue = [value] if dim is not None else []
        while queue:
            for operation in users[queue.pop()]:
                queue += _carried(program, mesh, splits, operation, axis)
    return splits


@lru_cache(maxsize=8)
def _users(program: FlatProgram) -> Mapping[int, list[FlatOperation]]:
    """The operations that take or give each value."""
    users: dict[int, list[FlatOperation]] = defaultdict(list)
    for operation in program.operations:
        for value in dict.fromkeys((*operation.arguments, *operation.results)):
            users[value].append(operation)
    return users


@lru_cache(maxsize=1 << 15)
def _forms_at(
    program: FlatProgram, operation: FlatOperation, devices: int
) -> tuple[tuple[tuple[int, int | None], ...], ...]:
    """For each form of an operation that splits something, its values with the dims split."""
    types = tuple([program.types[value] for value in operation.arguments])
    values = (*operation.arguments, *operation.results)
    found = []
    for form in forms(operation.op, operation.attributes, types, devices):
        placements = (*form.arguments, *form.results)
        if any(placement.kind == "split" for placement in placements):
            dims = [each.dim if each.kind == "split" else None for each in placements]
            found.append(tuple(zip(values, dims, strict=True)))
    return tuple(found)


def _assign(  # noqa: PLR0917  # what it is about
    program: FlatProgram, mesh: Mesh, splits: Sequence[Splits], value: int, axis: int,
    dim: int | None, *, refuse: bool = False,
) -> bool:  # fmt: skip
    """Split a value on an axis, if its size allows it together with the axes before."""
    splits[axis][value] = dim
    reason = _refused(mesh, program.types[value], layout_of(splits, value))
    if reason is None:
        return True
    del splits[axis][value]
    if refuse:
        name, on = program.names[value], mesh.names[axis]
        message = f"{name} cannot be split at dim {dim} on {on!r}: {reason}."
        hint = "Split another dim, or use another mesh."
        raise refusal("bad-plan", message, "a dim that the devices divide",
                      program.types[value], hint)  # fmt: skip
    return False


@lru_cache(maxsize=1 << 14)
def _refused(mesh: Mesh, of: TensorType, layout: Layout) -> str | None:
    return mesh.refused_split(sizes_of(of), layout)


def layout_of(splits: Sequence[Splits], value: int) -> Layout:
    """The layout that splits ask of a value."""
    return tuple([placed(of_axis.get(value)) for of_axis in splits])


def _carried(
    program: FlatProgram, mesh: Mesh, splits: tuple[Splits, ...], operation: FlatOperation,
    axis: int,
) -> list[int]:  # fmt: skip
    """The values of an operation that are split because others of it are."""
    known = splits[axis]
    for pairs in _forms_at(program, operation, mesh.sizes[axis]):
        if not any(dim is not None and known.get(value) == dim for value, dim in pairs):
            continue
        if any(known.get(value) not in (None, dim) for value, dim in pairs):
            continue
        return [
            value
            for value, dim in pairs
            if dim is not None
            and value not in known
            and value not in program.constants
            and _assign(program, mesh, splits, value, axis, dim)
        ]
    return []


# --- the program of one device --------------------------------------------------------------------


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


COMPUTE_WEIGHT: Final = 1e-3  # what touching a byte counts, in bytes that are sent


def laid_out(
    program: FlatProgram,
    mesh: Mesh,
    splits: tuple[Splits, ...],
    results: Mapping[int, Layout] | None = None,
    *,
    strict: bool = False,
) -> ShardedProgram:
    """The program of a device; with `strict` an operator that can't run on blocks is refused.

    `results` are the layouts of results by their place; others are left as they are, but partial
    ones are combined.
    """
    return _written(program, mesh, splits, strict=strict).sharded(results or {})


def cost_of(program: FlatProgram, mesh: Mesh, splits: tuple[Splits, ...]) -> LayoutCost:
    """What `laid_out` would cost, without writing the program."""
    writer = _written(program, mesh, splits, build=False)
    writer.results({})
    return writer.cost()


def _written(
    program: FlatProgram, mesh: Mesh, splits: tuple[Splits, ...], *, strict: bool = False,
    build: bool = True,
) -> _Writer:  # fmt: skip
    writer = _Writer(program, mesh, splits, strict, build)
    for value in range(program.params):
        writer.hold(value, layout_of(splits, value))
    for operation in program.operations:
        writer.apply(operation)
    return writer


class _Writer:
    """The values of the device as they are made, by value and layout."""

    def __init__(
        self, program: FlatProgram, mesh: Mesh, splits: tuple[Splits, ...], strict: bool,
        build: bool,
    ) -> None:  # fmt: skip
        self.program, self.mesh, self.splits, self.strict = program, mesh, splits, strict
        self.build = build
        self.copies = Counter[int]()
        self.sent = [0.0] * len(mesh.axes)
        self.exchanges, self.steps, self.bytes = 0, 0.0, 0.0
        self.local: dict[int, dict[Layout, Expr]] = defaultdict(dict)
        self.params: list[Var] = []
        self.held: list[HeldValue] = []
        self.first: dict[int, Layout] = {}

    def hold(self, value: int, layout: Layout) -> Expr:
        """A parameter of the device for a value."""
        of = self.program.types[value]
        local = tensor(self.mesh.local_shape(sizes_of(of), layout), of.dtype)
        param = Var(Name(self.program.names[value].replace(".", "_"), self.copies[value]), local)
        self.copies[value] += 1
        self.bytes += bytes_of(local)
        self.params.append(param)
        self.held.append(HeldValue(value, layout))
        self.local[value][layout] = param
        self.first.setdefault(value, layout)
        return param

    def get(self, value: int, layout: Layout) -> Expr:
        """A value in a layout, exchanged if it is held otherwise."""
        if (expr := self.local[value].get(layout)) is not None:
            return expr
        if value in self.program.constants:
            return self.constant(value, layout)
        of = self.program.types[value]
        source = min(self.local[value],
                     key=lambda held: exchange_cost(self.mesh, of, held, layout))  # fmt: skip
        for axis, sent in sends(self.mesh, of, source, layout):
            self.sent[axis] += sent
            self.exchanges += sent > 0
        made = self.local[value][source]
        if self.build:
            made = relaid(made, self.mesh, source, layout)
        self.local[value][layout] = made
        return made

    def constant(self, value: int, layout: Layout) -> Expr:
        """A constant: scalars stand in the program, of others each device holds its block."""
        if sizes_of(self.program.types[value]):
            return self.hold(value, layout)
        self.local[value][layout] = self.program.constants[value]
        self.first.setdefault(value, layout)
        return self.program.constants[value]

    def apply(self, operation: FlatOperation) -> None:
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
        types = tuple([program.types[value] for value in operation.arguments])
        outs = tuple([program.types[value] for value in operation.results])
        chosen = _chosen(self.mesh, operation.op, operation.attributes, types, outs, given, wanted)
        if self.strict:
            self.refuse_gathers(operation, chosen, given)
        args = tuple([
            self.get(value, layout)
            for value, layout in zip(operation.arguments, chosen.arguments, strict=True)
        ])  # fmt: skip
        self.steps += chosen.steps
        node = Apply(operation.op, args, chosen.attributes) if self.build else UNIT
        for at, (value, layout) in enumerate(zip(operation.results, chosen.results, strict=True)):
            several = self.build and len(operation.results) > 1
            made = Project(node, at) if several else node
            self.local[value][layout] = made
            self.first[value] = layout

    def refuse_gathers(self, operation: FlatOperation, chosen: ChosenForm, given: Given) -> None:
        """Refuse an operation that takes a value in full that is held in blocks."""
        for value, layout, held in zip(operation.arguments, chosen.arguments, given, strict=True):
            for axis, (name, size) in enumerate(self.mesh.axes):
                before = [placements[axis] for placements in held or ()]
                if (
                    layout[axis].kind == "split"
                    or not before
                    or size == 1
                    or any(placement.kind != "split" for placement in before)
                ):
                    continue
                title = self.program.names[operation.results[0]]
                raise refusal(
                    "not-sharded",
                    f"{title} needs dim {before[0].dim} of {self.program.names[value]} in full, "
                    f"which {name!r} splits: an element of its result is no function of a block.",
                    "an operator that works on blocks", operation.op,
                    "Replicate the value before it, or leave out strict.",
                )  # fmt: skip

    def results(self, wanted: Mapping[int, Layout]) -> tuple[list[Layout], list[Expr]]:
        """The layouts of the results, and what they are in them."""
        layouts, parts = [], []
        for place, value in enumerate(self.program.results):
            if value in self.program.constants and value not in self.first:
                self.constant(value, wanted.get(place, self.mesh.replicated()))
            layout = wanted.get(place)
            if layout is None:
                layout = tuple(
                    [REPLICATED if each.kind == "partial" else each for each in self.first[value]]
                )
            layouts.append(layout)
            parts.append(self.get(value, layout))
        return layouts, parts

    def cost(self) -> LayoutCost:
        """What was written so far costs."""
        return LayoutCost(tuple(self.sent), self.exchanges, self.steps, self.bytes)

    def sharded(self, wanted: Mapping[int, Layout]) -> ShardedProgram:
        """The program of a device."""
        layouts, parts = self.results(wanted)
        function = Function((), (), tuple(self.params), None, Tuple(tuple(parts)))
        every = [self.first.get(v, self.mesh.replicated()) for v in range(len(self.program.names))]
        return ShardedProgram(
            self.program, self.mesh, infer(main_module(function)), tuple(self.held),
            tuple(layouts), tuple(every), self.cost(),
        )  # fmt: skip


# --- the form of one operation --------------------------------------------------------------------

UNIT: Final = Tuple(())
UNDECIDED: Final = -1  # in place of a dim: nothing has been asked of a value

Given: TypeAlias = "tuple[tuple[Layout, ...] | None, ...]"
"""For each argument the layouts in which it is at hand; None for a constant, which has all."""


@frozen
class ChosenForm:
    """The layouts of the arguments and results of an operation, and its attributes on blocks."""

    arguments: tuple[Layout, ...]
    results: tuple[Layout, ...]
    attributes: Attrs
    steps: float  # the innermost steps on one device


@lru_cache(maxsize=1 << 15)
def _chosen(  # noqa: PLR0917  # what it is about
    mesh: Mesh, op: str, attributes: Attrs, types: tuple[TensorType, ...],
    outs: tuple[TensorType, ...], given: Given, wanted: tuple[tuple[int | None, ...], ...],
) -> ChosenForm:  # fmt: skip
    """The form that moves the fewest bytes, axis by axis; equal operations get equal forms."""
    arguments: list[Layout] = [()] * len(types)
    results: list[Layout] = [()] * len(outs)
    inner, made = types, outs
    for axis, size in enumerate(mesh.sizes):
        whole = ShardedForm((REPLICATED,) * len(types), (REPLICATED,) * len(outs), attributes)
        best, least = whole, float("inf")
        for form in (*(forms(op, attributes, inner, size) if size > 1 else ()), whole):
            if form is not whole and not _is_asked(form, axis, given, wanted):
                continue
            cost = _form_cost(form, size, axis, inner, made, given, wanted)
            if cost < least:
                best, least = form, cost
        attributes = best.attributes
        inner = local_types(inner, best.arguments, size)
        made = local_types(made, best.results, size)
        arguments = [(*a, p) for a, p in zip(arguments, best.arguments, strict=True)]
        results = [(*a, p) for a, p in zip(results, best.results, strict=True)]
    work = float(steps(op, attributes, inner) or 0)
    return ChosenForm(tuple(arguments), tuple(results), attributes, work)


def _is_asked(
    form: ShardedForm, axis: int, given: Given, wanted: tuple[tuple[int | None, ...], ...]
) -> bool:
    """Whether a result is to be split so, or an argument is held so: no other split is begun."""
    return any(
        dims[axis] == placement.dim
        for placement, dims in zip(form.results, wanted, strict=True)
        if placement.kind == "split"
    ) or any(
        placement.kind != "replicated" and held[axis] == placement
        for placement, versions in zip(form.arguments, given, strict=True)
        for held in versions or ()
    )


def _form_cost(  # noqa: PLR0917  # what it is about
    form: ShardedForm, size: int, axis: int, inner: tuple[TensorType, ...],
    made: tuple[TensorType, ...], given: Given, wanted: tuple[tuple[int | None, ...], ...],
) -> float:  # fmt: skip
    """The bytes that a form moves now and, as far as one knows, for its results; and its work."""
    total = 0.0
    for of, placement, versions in zip(inner, form.arguments, given, strict=True):
        whole = bytes_of(of)
        held = [REPLICATED] if versions is None else [layout[axis] for layout in versions]
        total += min([move_cost(each, placement, whole, size) for each in held])
        total += COMPUTE_WEIGHT * whole / (size if placement.kind == "split" else 1)
    for of, placement, dims in zip(made, form.results, wanted, strict=True):
        whole = bytes_of(of)
        dim = dims[axis]
        if dim != UNDECIDED or placement.kind == "partial":
            total += move_cost(placement, placed(dim), whole, size)
        total += COMPUTE_WEIGHT * whole / (size if placement.kind == "split" else 1)
    return total


def move_cost(held: Placement, wanted: Placement, whole: float, size: int) -> float:
    """The bytes that each device sends to bring a tensor from one placement to another."""
    if wanted.kind == "partial" and held != wanted:
        return float("inf")
    local = whole / size if held.kind == "split" else whole
    return sum([exchange.bytes(local, size) for exchange in exchanges((held,), (wanted,))])
