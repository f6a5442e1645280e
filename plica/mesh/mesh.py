"""Meshes: devices on named axes; and placements: what of a tensor each device holds.

    Mesh      ::= name=size, …                          data=2,model=4
    Placement ::= split(dim) | replicated | partial(combiner)

A tensor has one placement for each axis of the mesh: a block of a dim, all of it, or a term of a
sum (or of a product, a maximum, …) over the axis.  A dim that several axes split is cut by the
first of them first.

>>> mesh = Mesh.parse("data=2,model=4")
>>> mesh.devices, mesh.coordinates(6)
(8, (1, 2))
>>> parse_layout("data: split 0", mesh)
(Placement(split 0), Placement(replicated))
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Final, Literal, TypeAlias

from attrs import frozen

from plica.ir.loop.scalar import Combiner
from plica.ir.type import TensorType, static_shape
from plica.runtime.error import Diagnostic, InputError

MAX_DEVICES: Final = 1 << 16

PlacementKind: TypeAlias = Literal["split", "replicated", "partial"]


@frozen(repr=False, eq=False)
class Placement:
    """What the devices along one mesh axis hold of a tensor; equal ones are one object."""

    kind: PlacementKind
    dim: int = -1
    combiner: Combiner = "sum"

    def __str__(self) -> str:
        match self.kind:
            case "split":
                return f"split {self.dim}"
            case "partial":
                return f"partial {self.combiner}"
        return "replicated"

    def __repr__(self) -> str:
        return f"Placement({self})"


REPLICATED: Final = Placement("replicated")

Layout: TypeAlias = tuple[Placement, ...]  # a placement for each axis of a mesh


@cache
def split(dim: int) -> Placement:
    """Block `i` of a dim is on device `i` of the axis."""
    return Placement("split", dim)


def placed(dim: int | None) -> Placement:
    """Split at a dim, if there is one."""
    return REPLICATED if dim is None or dim < 0 else split(dim)


@cache
def partial(combiner: Combiner) -> Placement:
    """The tensor is what the terms on all devices of the axis combine to."""
    return Placement("partial", combiner=combiner)


PARTIAL_SUM: Final = partial("sum")


def refusal(
    code: str, message: str, expected: str | None, found: object, hint: str | None = None
) -> InputError:
    """The error for a mesh, a plan or a placement that cannot be."""
    return InputError(Diagnostic(code, message, None, expected, str(found), hint))


def sizes_of(of: TensorType) -> tuple[int, ...]:
    """The sizes of a tensor, all of which are known: programs of others are refused."""
    sizes = static_shape(of)
    assert sizes is not None
    return sizes


@frozen
class Mesh:
    """Devices on named axes, numbered in row-major order."""

    axes: tuple[tuple[str, int], ...]

    def __attrs_post_init__(self) -> None:
        names = self.names
        if (
            len(set(names)) != len(names)
            or any(not re.fullmatch(r"[A-Za-z_]\w*", name) for name in names)
            or any(type(size) is not int or size < 1 for _, size in self.axes)
            or self.devices > MAX_DEVICES
        ):
            hint = "Write it as data=2,model=4."
            expected = f"distinct axis names with sizes from 1, {MAX_DEVICES} devices at most"
            raise refusal("bad-mesh", "This is no mesh of devices.", expected, self, hint)

    @staticmethod
    def parse(text: str) -> Mesh:
        """The mesh that `data=2,model=4` describes."""
        parts = [part.partition("=") for part in text.split(",")]
        if any(not re.fullmatch(r"\s*\d{1,9}\s*", size) for _, _, size in parts):
            message = f"The mesh {text!r} has an axis without a size."
            raise refusal("bad-mesh", message, "NAME=SIZE,…", text, "Write it as data=2,model=4.")
        return Mesh(tuple([(name.strip(), int(size)) for name, _, size in parts]))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the axes."""
        return tuple([name for name, _ in self.axes])

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return tuple([size for _, size in self.axes])

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return prod(self.sizes)

    def axis(self, name: str) -> int:
        """The position of an axis; refused if the mesh has no such axis."""
        if name not in self.names:
            message = f"The mesh {self} has no axis {name!r}."
            raise refusal("bad-mesh", message, " or ".join(self.names), name)
        return self.names.index(name)

    def coordinates(self, device: int) -> tuple[int, ...]:
        """The place of a device on each axis."""
        strides = [prod(self.sizes[axis + 1 :]) for axis in range(len(self.axes))]
        return tuple([device // n % size for n, size in zip(strides, self.sizes, strict=True)])

    def group(self, device: int, axis: int) -> tuple[int, ...]:
        """The devices that differ from one along an axis only, in order; it is among them."""
        stride = prod(self.sizes[axis + 1 :])
        first = device - self.coordinates(device)[axis] * stride
        return tuple(range(first, first + stride * self.sizes[axis], stride))

    def replicated(self) -> Layout:
        """The layout of what every device holds in full."""
        return (REPLICATED,) * len(self.axes)

    def local_shape(self, shape: Sequence[int], layout: Layout) -> tuple[int, ...]:
        """The shape of what one device holds."""
        return tuple([it.stop - it.start for it in self.block(shape, layout, 0)])

    def block(self, shape: Sequence[int], layout: Layout, device: int) -> tuple[slice, ...]:
        """Where the block of a device lies in the whole tensor."""
        starts, sizes = [0] * len(shape), list(shape)
        for placement, size, at in zip(layout, self.sizes, self.coordinates(device), strict=True):
            if placement.kind == "split":
                sizes[placement.dim] //= size
                starts[placement.dim] += at * sizes[placement.dim]
        return tuple([slice(a, a + n) for a, n in zip(starts, sizes, strict=True)])

    def refused_split(self, shape: Sequence[int], layout: Layout) -> str | None:
        """Why a tensor of a shape cannot have a layout; None if it can."""
        sizes = list(shape)
        for placement, (name, size) in zip(layout, self.axes, strict=True):
            if placement.kind != "split":
                continue
            if not 0 <= placement.dim < len(sizes):
                return f"there is no dim {placement.dim} in a tensor of rank {len(sizes)}"
            if sizes[placement.dim] % size:
                return f"{size} devices on {name!r} do not divide {sizes[placement.dim]}"
            sizes[placement.dim] //= size
        return None

    def __str__(self) -> str:
        return ",".join([f"{name}={size}" for name, size in self.axes])


def show_layout(layout: Layout, mesh: Mesh) -> str:
    """A layout as text: what is not replicated, by axis."""
    words = [
        f"{name}: {placement}"
        for name, placement in zip(mesh.names, layout, strict=True)
        if placement is not REPLICATED
    ]
    return ", ".join(words) or "replicated"


def parse_layout(text: str, mesh: Mesh) -> Layout:
    """The layout that a text of `show_layout` stands for."""
    layout = list(mesh.replicated())
    for part in text.split(",") if text.strip() != "replicated" else ():
        name, _, words = part.partition(":")
        layout[mesh.axis(name.strip())] = parse_placement(words.strip())
    return tuple(layout)


def parse_placement(text: str) -> Placement:
    """The placement that a text stands for."""
    match text.split():
        case ["replicated"]:
            return REPLICATED
        case ["split", dim] if dim.isdecimal():
            return split(int(dim))
        case ["partial", ("sum" | "prod" | "max" | "min" | "all" | "any") as combiner]:
            return partial(combiner)
    raise refusal(
        "bad-placement", f"{text!r} is no placement.",
        "split DIM, replicated or partial COMBINER", text,
    )  # fmt: skip
