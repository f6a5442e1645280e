"""Flatten: buffers of several axes become buffers of one.

    with alloc(T[4, 8]):                        with alloc(T[32]):
        T[i, j] = T[i, j - 1]         -->           T[i * 8 + j] = T[i * 8 + j - 1]

Strides become part of the index; digits of one number on several axes are recombined: `T[x // 4, x
% 4, j]` of a `T[8, 4, 16]` is `T[16 * x + j]`. Parameters are unchanged by default: their shapes
are the kernel's interface. So are buffers with regions passed to intrinsics, and versions of shared
buffers, which synchronisation distinguishes.

Law: the kernel means the same (parameters that were flattened are given flat).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, reduce
from typing import Final

from plica.analysis.enclosing import tidy
from plica.analysis.statement import reads_memory
from plica.core import Term, map_bottom_up, post_order
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import Add, Buffer, FloorDiv, FloorMod, Load, Scalar, index
from plica.ir.loop.statement import Alloc, Kernel, Region, Store
from plica.ir.type import known, product

DIGITS: Final = (FloorDiv, FloorMod)


def flatten(kernel: Kernel, *, params: bool = False) -> Kernel:
    """The kernel over flat buffers: those it allocates, with `params` all."""
    kept = set() if params else set(kernel.params)
    nodes = post_order(kernel.body)
    kept |= {node.buffer for node in nodes if isinstance(node, Region)}
    made: dict[Buffer, Buffer | None] = dict.fromkeys(kept)
    versions = _versioned(nodes)

    def flat(buffer: Buffer) -> Buffer | None:
        if buffer not in made:
            made[buffer] = _flat_versions(buffer) if buffer in versions else flat_buffer(buffer)
        return made[buffer]

    def place(buffer: Buffer, indices: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
        if buffer in versions:
            return indices[0], address(_one(buffer), indices[1:])
        return (address(buffer, indices),)

    def change(node: Term) -> Term:
        match node:
            case Load(buffer, indices):
                new = flat(buffer)
                return node if new is None else Load(new, place(buffer, indices))
            case Store(buffer, indices, value):
                new = flat(buffer)
                return node if new is None else Store(new, place(buffer, indices), value)
            case Alloc(buffer, body):
                new = flat(buffer)
                return node if new is None else Alloc(new, body)
            case _:
                return node

    body = map_bottom_up(change, kernel.body)
    own = tuple([flat(param) or param for param in kernel.params])
    return Kernel(kernel.dims, own, kernel.inputs, body, kernel.annotations)


def _versioned(nodes: Iterable[Term]) -> frozenset[Buffer]:
    """The multi-versioned buffers of blocks."""
    first: dict[Buffer, list[Scalar]] = {}
    for node in nodes:
        if isinstance(node, Load | Store) and len(node.indices) > 2:
            first.setdefault(node.buffer, []).append(node.indices[0])
    return frozenset(
        [
            buffer
            for buffer, places in first.items()
            if scope(buffer.scope).reach == "block"
            and not buffer.strides
            and any(isinstance(place, FloorMod) for place in places)
            and all(known(e) is not None or _in_turn(e, buffer) for e in places)
        ]
    )


def _in_turn(place: Scalar, buffer: Buffer) -> bool:
    return isinstance(place, FloorMod) and place.right is buffer.shape[0]


def _one(buffer: Buffer) -> Buffer:
    """A version of a buffer."""
    return Buffer(buffer.name, buffer.shape[1:], buffer.dtype, buffer.scope, (), buffer.align)


def _flat_versions(buffer: Buffer) -> Buffer:
    shape = (buffer.shape[0], product(buffer.shape[1:]))
    return Buffer(buffer.name, shape, buffer.dtype, buffer.scope, (), buffer.align)


def flat_buffer(buffer: Buffer) -> Buffer | None:
    """The one-dimensional buffer with the same elements; None if it is one already, or cannot be
    flattened."""
    if len(buffer.shape) == 1 and not buffer.strides:
        return None
    if not buffer.strides:
        size = product(buffer.shape)
    else:
        steps = [known(stride) for stride in buffer.strides]
        if any(each is None or each < 0 for each in steps):
            return None  # a place would be negative, or its sign is not known
        if any(known(dim) is None or known(dim) == 0 for dim in buffer.shape):
            return None
        last = [(term - 1) * step for term, step in zip(buffer.shape, buffer.strides, strict=True)]
        size = product([reduce(Add, last, index(1))])
    return Buffer(buffer.name, (size,), buffer.dtype, buffer.scope, (), buffer.align)


@lru_cache(maxsize=1024)
def _steps(shape: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    """How far the elements of a dense buffer are apart along each axis."""
    return tuple([product(shape[at + 1 :]) for at in range(len(shape))])


def address(buffer: Buffer, indices: tuple[Scalar, ...]) -> Scalar:
    """The index of an element in a flat buffer."""
    total: Scalar | None = None
    for place, step in zip(indices, buffer.strides or _steps(buffer.shape), strict=True):
        if known(step) == 0 or known(place) == 0:
            continue
        one, many = known(place), known(step)
        if one is not None and many is not None:
            part = index(one * many)
        else:
            part = place if many == 1 else place * step
        total = part if total is None else total + part
    return index(0) if total is None else _joined(total, indices)


def _joined(place: Scalar, indices: tuple[Scalar, ...]) -> Scalar:
    """An index with digits from several axes recombined: otherwise each lane of a vector has its
    own address, and contiguous elements are gathered."""
    cut = [scalar for scalar in indices if isinstance(scalar, DIGITS) or _has_digits(scalar)]
    return tidy(place) if len(cut) > 1 and not reads_memory(place) else place


@lru_cache(maxsize=4096)
def _has_digits(term: Scalar) -> bool:
    return any(isinstance(each, DIGITS) for each in post_order(term))
