"""Flows that are not for the machine, or leave what is theirs, are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from plica.codegen.accel.conv import Convolution, ConvTiling, convolution
from plica.codegen.accel.encode import read
from plica.codegen.accel.fitting import BadFlow
from plica.codegen.accel.flow import (
    ZERO,
    Flow,
    Loop,
    Memory,
    Stmt,
    Threads,
    Tile,
    Touch,
    Transfer,
    Work,
)
from plica.codegen.accel.instruction import BadInstruction
from plica.codegen.accel.stream import build
from plica.codegen.accel.vta import osdi, vta
from plica.ir.loop.scalar import Scalar, index
from plica.ir.loop.tensor import axis
from plica.runtime.error import UnsupportedError
from plica.search.accel.cycles import searched
from plica.search.accel.space import LayerTask

X, Y = Memory("x", "inp", 8), Memory("y", "out", 4)
A, S, W = Tile("a", "inp", 4), Tile("s", "acc", 4), Tile("w", "wgt", 1)
T, ONE = axis("i"), index(1)


def load(
    tile: Tile = A,
    *,
    tensor: Memory = X,
    sram: Scalar = ZERO,
    dram: Scalar = ZERO,
    width: int = 4,
    operation: str = "load.inp",
) -> Transfer:
    return Transfer(operation, tile, sram, tensor, dram, ONE, index(width), index(width))


def clear(extent: int = 4, *strides: int, base: Scalar = ZERO, tile: Tile = S) -> Work:
    touch = Touch(tile, base, tuple(index(each) for each in strides or (1,)))
    return Work("gemm.reset", (index(extent),), (touch,))


def product(*touches: Touch) -> Work:
    return Work("gemm", (ONE,), touches)


HERE, BEHIND = Touch(S, ZERO, (ZERO,)), Touch(A, index(4), (ZERO,))
WEIGHT = Touch(W, ZERO, (ZERO,))

# fmt: off
WRONG: list[tuple[str, Callable[[], Stmt]]] = [
    ("'s' is of another scope",   lambda: load(S)),
    ("'a' is of another scope",   lambda: clear(tile=A)),
    ("another kind of element",   lambda: load(tensor=Y)),
    ("A tile is not in the flow", lambda: load(Tile("b", "inp", 4))),
    ("tensor of a transfer is",   lambda: load(tensor=Memory("z", "inp", 8))),
    ("of an operation that moves", lambda: load(operation="gemm")),
    ("of an operation that sweeps", lambda: Work("load.inp", (), ())),
    ("Work touches what",         lambda: product(HERE)),
    ("Work touches what",         lambda: Work("gemm", (ONE,), ())),
    ("for each loop of its work", lambda: clear(4, 1, 1)),
    ("no operand 'im'",           lambda: Work("alu.max.imm", (ONE,), (HERE,), (("im", 1),))),
    ("Work goes beyond its tile", lambda: clear(5)),
    ("Work goes beyond its tile", lambda: clear(4, base=ONE)),
    ("Work goes beyond its tile", lambda: clear(4, -1)),
    ("Work goes beyond its tile", lambda: product(HERE, BEHIND, WEIGHT)),
    ("beyond its tile",           lambda: load(width=5)),
    ("beyond its tensor",         lambda: load(dram=index(5))),
    ("beyond its tensor",         lambda: Loop(T, 3, load(dram=T * 4))),
    ("beyond its tensor",         lambda: Threads(T, 3, load(dram=T * 4))),
    ("beyond its tile",           lambda: Threads(T, 2, load(sram=T))),
    ("beyond its tensor",         lambda: load(dram=index(-1))),
    ("too few turns",             lambda: Loop(T, -1, load())),
]
# fmt: on


@pytest.mark.parametrize(("message", "make"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_a_flow_that_does_not_fit_is_refused(message: str, make: Callable[[], Stmt]) -> None:
    with pytest.raises(BadFlow, match=message) as refused:
        build(vta(), Flow((X, Y), (A, S, W), make()))
    assert refused.value.code == "bad-flow"
    assert refused.value.diagnostics[0].expected


def test_a_flow_of_scopes_and_names_that_are_not_there_is_refused() -> None:
    with pytest.raises(BadFlow, match="of no scope"):
        build(vta(), Flow((), (Tile("a", "imp", 4),), load()))
    with pytest.raises(BadFlow, match="one name"):
        build(vta(), Flow((X, Memory("x", "inp", 1)), (A,), load()))
    with pytest.raises(BadInstruction, match="no operation 'get'"):
        build(vta(), Flow((X,), (A,), Work("get", (), ())))
    with pytest.raises(UnsupportedError, match="of no loop"):
        build(vta(), Flow((X,), (A,), load(dram=T)))


def test_what_fits_is_built() -> None:
    inside = Threads(T, 2, load(dram=T * 4))
    assert len(build(vta(), Flow((X,), (A,), inside)).code) > 2


def test_a_tiling_is_across_something() -> None:
    with pytest.raises(UnsupportedError, match="across the result"):
        convolution(osdi(), Convolution(16, 4, 4, 16), ConvTiling(4, 4, 1, 1, 2, "nosuch"))  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize("given", [{"shift": -3}, {"shift": 40}, {"pad": -1}])
def test_a_convolution_shifts_right_and_pads_with_something(given: dict[str, int]) -> None:
    with pytest.raises(UnsupportedError, match=r"shift|pads"):
        convolution(osdi(), Convolution(16, 4, 4, 16, **given), ConvTiling(4, 4, 1, 1))  # type: ignore[arg-type]  # by name


def test_an_empty_line_is_no_instruction() -> None:
    with pytest.raises(BadInstruction, match="no instruction here"):
        read(vta(), "")


@pytest.mark.parametrize("trials", [0, -1])
def test_a_search_has_trials(trials: int) -> None:
    with pytest.raises(UnsupportedError, match="at least 1"):
        searched(LayerTask(osdi(), Convolution(16, 4, 4, 16)), trials)
