"""Tensor intrinsics: instructions of many elements, declared by meaning and implementation.

Both are kernels over the same buffers.  Declaring an intrinsic runs the two on random whole numbers
and refuses it where they differ, so a wrong instruction is found before anything is built on it.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import For, Kernel, Store
>>> from plica.ir.loop.scalar import Ramp, index
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i = buffer("x", (4,), f32), buffer("y", (4,), f32), axis("i")
>>> add = Kernel((), (x, y), 1, For(i, index(4), "serial", Store(y, (i,), y[i] + x[i])))
>>> lanes = Ramp(index(0), index(1), 4)
>>> at_once = Kernel((), (x, y), 1, Store(y, (lanes,), y[lanes] + x[lanes]))
>>> intrinsic("doc.add4", add, at_once).name
'doc.add4'
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final
from zlib import crc32

import numpy as np

from plica.core import EvaluationError, Term, ill_formed
from plica.ir.loop.invocation import TensorIntrinsic, find_intrinsic, intrinsics, register
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.statement import Annotations, Kernel
from plica.ir.type import DType, Sizes, bool_, shape_of
from plica.runtime.error import Diagnostic, Place
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.interpret.kernel import run_in_place
    from plica.ir.interpret.value import Array

__all__ = ["TensorIntrinsic", "find_intrinsic", "intrinsic", "intrinsics"]

TRIALS: Final = 4  # how often a declaration is tried, at growing sizes of its dims


def intrinsic(
    name: str, meaning: Kernel, implementation: Kernel | None = None, hints: Annotations = ()
) -> TensorIntrinsic:
    """Declare a tensor intrinsic; an implementation that differs from the meaning is refused.

    `hints` are what targets need to know: sorted pairs of a word and plain data.
    """
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise ill_formed(f"A tensor intrinsic is a word or words with dots between, not {name!r}.")
    if implementation is not None:
        _compare(name, meaning, implementation)
    return register(TensorIntrinsic(name, meaning, implementation, hints))


def _compare(name: str, meaning: Kernel, implementation: Kernel) -> None:
    ours, theirs = _interface(meaning), _interface(implementation)
    if ours != theirs:
        raise EvaluationError(
            _bad(name, "has other buffers than its meaning", str(ours), str(theirs))
        )
    random = np.random.default_rng(crc32(name.encode()))
    for trial in range(TRIALS):
        sizes: dict[Term, int] = {dim: 1 + trial + 2 * at for at, dim in enumerate(meaning.dims)}
        given = [_filled(param, sizes, random) for param in meaning.params]
        expected = run_in_place(meaning, given, sizes)
        renamed: dict[Term, int] = dict(zip(implementation.dims, sizes.values(), strict=True))
        arrays = run_in_place(implementation, given, renamed)
        _agree(name, meaning, expected, arrays, sizes)


def _interface(kernel: Kernel) -> tuple[object, ...]:
    kinds = tuple((len(param.shape), str(param.dtype)) for param in kernel.params)
    return len(kernel.dims), kernel.inputs, kinds


def _filled(buffer: Buffer, sizes: Sizes, random: np.random.Generator) -> Array:
    if (shape := shape_of(buffer.shape, sizes)) is None:
        raise ill_formed(f"The size of {buffer.name} follows from no dim of the intrinsic.")
    low, high = _range(buffer.dtype)
    return random.integers(low, high, shape, endpoint=True).astype(buffer.dtype.numpy)


def _range(dtype: DType) -> tuple[int, int]:
    """Whole numbers so small that sums and products of many of them are exact."""
    if dtype is bool_:
        return 0, 1
    return (0, 4) if dtype.kind == "uint" else (-4, 4)


def _agree(
    name: str, meaning: Kernel, expected: Sequence[Array], found: Sequence[Array], sizes: Sizes
) -> None:
    for param, one, two in zip(meaning.params, expected, found, strict=True):
        different = one != two
        if one.shape != two.shape or np.any(different):
            at = tuple(int(i) for i in np.unravel_index(int(np.argmax(different)), one.shape))
            where = f"{param.name}{list(at)}" if math.prod(one.shape) > 1 else str(param.name)
            dims = ", ".join(f"{each!s}={size}" for each, size in _named(sizes))
            raise EvaluationError(
                _bad(
                    name,
                    "does not do what it means" + (f" at {dims}" if dims else ""),
                    f"{where} = {one[at]}",
                    f"{where} = {two[at]}",
                )
            )


def _named(sizes: Sizes) -> list[tuple[str, int]]:
    return [(str(getattr(var, "name", var)), size) for var, size in sizes.items()]


def _bad(name: str, what: str, expected: str, found: str) -> Diagnostic:
    message = f"The implementation of the tensor intrinsic {name!r} {what}."
    return Diagnostic("bad-intrinsic", message, Place(node=name), expected, found)
