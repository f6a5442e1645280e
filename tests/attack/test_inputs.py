"""Hostile inputs of a compiled model."""

from __future__ import annotations

import array
import io
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import plica
from tests.attack.judge import gives, refused

FIXED = """
import plica
from plica import op

@plica.function
def main(x: Tensor[(4, 3), f32], i: Tensor[(2,), i64]) -> Tensor[(2, 3), f32]:
    return op.take(x, i, axis=0) * 2.0
"""
OPEN = """
import plica
from plica import op

@plica.function
def main(x: Tensor[("n", "m"), f32], y: Tensor[("m", "k"), f32]) -> Tensor[("n", "k"), f32]:
    return op.matmul(x, y)
"""
X: Final = np.arange(12, dtype=np.float32).reshape(4, 3)
I: Final = np.array([1, 3])  # noqa: E741  # the name of the input
Y: Final = X[I] * 2


@pytest.fixture(scope="module")
def fixed() -> Any:
    return plica.compile(plica.from_text(FIXED), threads=1)


@pytest.fixture(scope="module")
def opened() -> Any:
    return plica.compile(plica.from_text(OPEN), threads=1)


class Raises:
    """Speaks no protocol without failing."""

    def __array__(self, *args: object, **named: object) -> Any:
        raise RuntimeError("planted")


class Lies:
    """Says it speaks DLPack, and does not."""

    def __dlpack__(self, *args: object, **named: object) -> Any:
        return "no capsule"

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Elsewhere(Lies):
    """Lies on a device that does not exist."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (99, 7)


class Changing(np.ndarray[Any, Any]):
    """An array of a class of its own."""


REFUSED: Final[dict[str, Callable[[Any], Any]]] = {
    "nothing": lambda exe: exe(),
    "one too few": lambda exe: exe(X),
    "one too many": lambda exe: exe(X, I, X),
    "a hundred too many": lambda exe: exe(*[X] * 100),
    "an unknown name": lambda exe: exe(X, I, z=X),
    "a name twice": lambda exe: exe(X, I, x=X),
    "a name in capitals": lambda exe: exe(X=X, i=I),
    "an empty name": lambda exe: exe(**{"": X, "i": I}),
    "a name with a null": lambda exe: exe(**{"x\0": X, "i": I}),
    "a rank too low": lambda exe: exe(X[0], I),
    "a rank too high": lambda exe: exe(X[None], I),
    "a scalar": lambda exe: exe(np.float32(1), I),
    "turned": lambda exe: exe(X.T, I),
    "one row less": lambda exe: exe(X[:3], I),
    "no rows": lambda exe: exe(X[:0], I),
    "rank 32": lambda exe: exe(X.reshape((1,) * 30 + (4, 3)), I),
    "doubles": lambda exe: exe(X.astype("f8"), I),
    "halves": lambda exe: exe(X.astype("f2"), I),
    "integers": lambda exe: exe(X.astype("i4"), I),
    "bools": lambda exe: exe(X > 3, I),
    "complex numbers": lambda exe: exe(X.astype("c8"), I),
    "texts": lambda exe: exe(X.astype("U3"), I),
    "bytes": lambda exe: exe(X.astype("S3"), I),
    "objects": lambda exe: exe(X.astype(object), I),
    "records": lambda exe: exe(np.zeros((4, 3), [("a", "f4")]), I),
    "dates": lambda exe: exe(np.zeros((4, 3), "datetime64[s]"), I),
    "voids": lambda exe: exe(np.zeros((4, 3), "V4"), I),
    "long doubles": lambda exe: exe(X.astype(np.longdouble), I),
    "indices as floats": lambda exe: exe(X, I.astype("f4")),
    "indices as 32 bits": lambda exe: exe(X, I.astype("i4")),
    "unsigned indices": lambda exe: exe(X, I.astype("u8")),
    "an index past the end": lambda exe: exe(X, np.array([0, 4])),
    "an index far past the end": lambda exe: exe(X, np.array([0, 2**62])),
    "an index before the start": lambda exe: exe(X, np.array([-5, 0])),
    "the least index": lambda exe: exe(X, np.array([0, -(2**63)])),
    "None": lambda exe: exe(None, I),
    "a text": lambda exe: exe("x", I),
    "a path": lambda exe: exe(Path("x.npy"), I),
    "a file": lambda exe: exe(io.BytesIO(b"x"), I),
    "a dict": lambda exe: exe({"x": X}, I),
    "a set": lambda exe: exe({1.0}, I),
    "a function": lambda exe: exe(len, I),
    "a class": lambda exe: exe(np.ndarray, I),
    "an iterator": lambda exe: exe(iter(X), I),
    "Ellipsis": lambda exe: exe(..., I),
    "a huge integer": lambda exe: exe(10**400, I),
    "a decimal": lambda exe: exe(Decimal(1), I),
    "a fraction": lambda exe: exe(Fraction(1, 3), I),
    "ragged lists": lambda exe: exe([[1.0], [1.0, 2.0]], I),
    "deep lists": lambda exe: exe([[[[[[[[[1.0]]]]]]]]], I),
    "a list in itself": lambda exe: exe(_in_itself(), I),
    "what raises": lambda exe: exe(Raises(), I),
    "what lies": lambda exe: exe(Lies(), I),
    "what is elsewhere": lambda exe: exe(Elsewhere(), I),
    "its own class": lambda exe: exe(exe, I),
    "a buffer": lambda exe: exe(memoryview(X.tobytes()), I),
    "bytes of a buffer": lambda exe: exe(memoryview(b"0" * 48), I),
    "a masked array of another shape": lambda exe: exe(np.ma.masked_array(X[:2]), I),
}


def _in_itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_such_input_is_refused(name: str, fixed: Any) -> None:
    refused(lambda: REFUSED[name](fixed))


TAKEN: Final[dict[str, Callable[[], tuple[Any, Any]]]] = {
    "by columns": lambda: (np.asfortranarray(X), I),
    "backwards": lambda: (X[::-1][::-1], I[::-1][::-1]),
    "every second": lambda: (np.repeat(X, 2, 0)[::2], I),
    "read only": lambda: (_frozen(X), _frozen(I)),
    "other bytes": lambda: (X.astype(">f4"), I.astype(">i8")),
    "not aligned": lambda: (_unaligned(X), I),
    "a class of its own": lambda: (X.view(Changing), I),
    "a matrix": lambda: (np.asmatrix(X), I),
    "negative indices": lambda: (X, np.array([-3, -1])),
}


def _frozen(of: Any) -> Any:
    made = of.copy()
    made.flags.writeable = False
    return made


def _unaligned(of: Any) -> Any:
    raw = np.zeros(of.nbytes + 1, np.uint8)[1:]
    made = np.frombuffer(raw.data, of.dtype, of.size).reshape(of.shape)
    raw[:] = np.frombuffer(of.tobytes(), np.uint8)
    return made


@pytest.mark.parametrize("name", TAKEN)
def test_strange_memory_gives_the_same(name: str, fixed: Any) -> None:
    gives(lambda: fixed(*TAKEN[name]()), Y)


def test_what_is_given_is_never_changed(fixed: Any) -> None:
    x = X.copy()
    fixed(x, I)[:] = -1
    assert np.array_equal(x, X)


OPEN_REFUSED: Final[dict[str, Callable[[Any], Any]]] = {
    "sizes that do not meet": lambda exe: exe(np.ones((2, 3), "f4"), np.ones((4, 2), "f4")),
    "a rank more": lambda exe: exe(np.ones((1, 2, 3), "f4"), np.ones((3, 2), "f4")),
    "a result of petabytes": lambda exe: exe(_thin(2**26, 1), _thin(1, 2**26)),
    "sizes whose product wraps": lambda exe: exe(_thin(2**32, 0), _thin(0, 2**32)),
    "sizes near the end": lambda exe: exe(_thin(2**60, 0), _thin(0, 2)),
    "halves": lambda exe: exe(np.ones((2, 2), "f2"), np.ones((2, 2), "f2")),
}


def _thin(*shape: int) -> Any:
    """A large array of one number, in four bytes."""
    return np.lib.stride_tricks.as_strided(np.ones(1, np.float32), shape, (0,) * len(shape))


@pytest.mark.parametrize("name", OPEN_REFUSED)
def test_open_sizes_that_cannot_be_are_refused(name: str, opened: Any) -> None:
    refused(lambda: OPEN_REFUSED[name](opened))


@pytest.mark.parametrize("sizes", [(0, 3, 2), (2, 0, 3), (2, 3, 0), (0, 0, 0), (1, 1, 1)])
def test_sizes_of_nothing(sizes: tuple[int, int, int], opened: Any) -> None:
    n, m, k = sizes
    a, b = np.ones((n, m), "f4"), np.ones((m, k), "f4")
    gives(lambda: opened(a, b), a @ b)


def test_a_buffer_of_the_standard_library(opened: Any) -> None:
    plain = array.array("f", [1, 2, 3])
    gives(lambda: opened(np.asarray(plain).reshape(1, 3), np.ones((3, 1), "f4")), [[6.0]])
