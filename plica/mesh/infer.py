"""Inference: the layout of every value of a program from the layouts of a few.

    1. `propagated` carries splits from annotated values along the factors of the operators, to
       arguments and to results; the first annotation to reach a value decides.
    2. `chosen_form` is the form of an operation that moves the fewest bytes, given how its
       arguments are held and what is wanted of its results; `plica.mesh.sharded` writes it.

Law: on every mesh the result is that of the whole program.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from attrs import frozen

from plica.ir.graph.expression import Attrs
from plica.ir.type import TensorType
from plica.mesh.exchange import bytes_of, exchange_cost
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
    splits = tuple([dict(of_axis) for of_axis in start or [{} for _ in mesh.axes]])

    def reason_against(value: int, axis: int, dim: int | None) -> str | None:
        """Splits a value if its size allows it together with the axes before."""
        splits[axis][value] = dim
        reason = _refused(mesh, program.types[value], layout_of(splits, value))
        if reason is not None:
            del splits[axis][value]
        return reason

    for value, axis, dim in annotations:
        if value in splits[axis]:
            continue
        if (reason := reason_against(value, axis, dim)) is not None:
            name, on = program.names[value], mesh.names[axis]
            message = f"{name} cannot be split at dim {dim} on {on!r}: {reason}."
            hint = "Split another dim, or use another mesh."
            raise refusal("bad-plan", message, "a dim that the devices divide",
                          program.types[value], hint)  # fmt: skip
        queue = [value] if dim is not None else []
        while queue:
            for operation in _users(program)[queue.pop()]:
                for other, at in _carried(program, operation, mesh.sizes[axis], splits[axis]):
                    if reason_against(other, axis, at) is None:
                        queue.append(other)
    return splits


@lru_cache(maxsize=8)
def _users(program: FlatProgram) -> Mapping[int, list[FlatOperation]]:
    """The operations that take or give each value."""
    users: dict[int, list[FlatOperation]] = defaultdict(list)
    for operation in program.operations:
        for value in dict.fromkeys((*operation.arguments, *operation.results)):
            users[value].append(operation)
    return users


@lru_cache(maxsize=1 << 14)
def _refused(mesh: Mesh, of: TensorType, layout: Layout) -> str | None:
    return mesh.refused_split(sizes_of(of), layout)


def layout_of(splits: Sequence[Splits], value: int) -> Layout:
    """The layout that splits ask of a value."""
    return tuple([placed(of_axis.get(value)) for of_axis in splits])


def _carried(
    program: FlatProgram, operation: FlatOperation, devices: int, known: Splits
) -> Iterator[tuple[int, int]]:
    """The values of an operation, with dims, that are split because others of it are."""
    for pairs in _splits_of_forms(program, operation, devices):
        if any(dim is not None and known.get(value) == dim for value, dim in pairs) and all(
            known.get(value) in (None, dim) for value, dim in pairs
        ):
            for value, dim in pairs:
                if dim is not None and value not in known and value not in program.constants:
                    yield value, dim
            return


@lru_cache(maxsize=1 << 15)
def _splits_of_forms(
    program: FlatProgram, operation: FlatOperation, devices: int
) -> tuple[tuple[tuple[int, int | None], ...], ...]:
    """For each form of an operation its values with the dims that are split."""
    types = tuple([program.types[value] for value in operation.arguments])
    values = (*operation.arguments, *operation.results)
    return tuple([
        tuple([(value, placement.dim if placement.kind == "split" else None)
               for value, placement in zip(values, form.arguments + form.results, strict=True)])
        for form in forms(operation.op, operation.attributes, types, devices)
    ])  # fmt: skip


# --- the form of one operation --------------------------------------------------------------------

UNDECIDED: Final = -1  # in place of a dim: nothing has been asked of a value
COMPUTE_WEIGHT: Final = 1e-3  # what touching a byte counts, in bytes that are sent
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
def chosen_form(  # noqa: PLR0917  # what it is about
    mesh: Mesh, op: str, attributes: Attrs, types: tuple[TensorType, ...],
    outs: tuple[TensorType, ...], given: Given, wanted: tuple[tuple[int | None, ...], ...],
) -> ChosenForm:  # fmt: skip
    """The form that moves the fewest bytes, axis by axis; equal operations get equal forms."""
    chosen: list[ShardedForm] = []
    for axis, size in enumerate(mesh.sizes):
        whole = ShardedForm((REPLICATED,) * len(types), (REPLICATED,) * len(outs), attributes)
        held = [[REPLICATED] if of is None else [layout[axis] for layout in of] for of in given]
        asked = [dims[axis] for dims in wanted]
        options = [form for form in (forms(op, attributes, types, size) if size > 1 else ())
                   if _is_asked(form, held, asked)]  # fmt: skip
        costs = [_form_cost(form, size, types, outs, held, asked) for form in (*options, whole)]
        chosen.append(form := (*options, whole)[costs.index(min(costs))])
        attributes = form.attributes
        types = local_types(types, form.arguments, size)
        outs = local_types(outs, form.results, size)
    arguments = zip(*[form.arguments for form in chosen], strict=True)
    results = zip(*[form.results for form in chosen], strict=True)
    work = float(steps(op, attributes, types) or 0)
    return ChosenForm(tuple(arguments), tuple(results), attributes, work)


def _is_asked(
    form: ShardedForm, held: Sequence[Sequence[Placement]], asked: Sequence[int | None]
) -> bool:
    """Whether a result is to be split so, or an argument is held so: no other split is begun."""
    return any(
        placement.kind == "split" and dim == placement.dim
        for placement, dim in zip(form.results, asked, strict=True)
    ) or any(
        placement is not REPLICATED and placement in versions
        for placement, versions in zip(form.arguments, held, strict=True)
    )


def _form_cost(  # noqa: PLR0917  # what it is about
    form: ShardedForm, size: int, types: tuple[TensorType, ...], outs: tuple[TensorType, ...],
    held: Sequence[Sequence[Placement]], asked: Sequence[int | None],
) -> float:  # fmt: skip
    """The bytes that a form moves now and, as far as one knows, for its results; and its work."""
    moved = 0.0
    for of, placement, versions in zip(types, form.arguments, held, strict=True):
        moved += min([exchange_cost((size,), of, (it,), (placement,)) for it in versions])
    for of, placement, dim in zip(outs, form.results, asked, strict=True):
        if dim != UNDECIDED or placement.kind == "partial":
            moved += exchange_cost((size,), of, (placement,), (placed(dim),))
    local = local_types(types + outs, form.arguments + form.results, size)
    return moved + COMPUTE_WEIGHT * sum(map(bytes_of, local))
