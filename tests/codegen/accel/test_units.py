"""Units: what a machine computes layers with is found by what operations mean, not by names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given as drawn, settings, strategies as st

from plica.codegen.accel.check import check
from plica.codegen.accel.conv import (
    Convolution,
    ConvTiling,
    convolution,
    finish_of,
    pack_input,
    pack_outputs,
    pack_weight,
    reference,
    unpack_output,
)
from plica.codegen.accel.declaration import Accelerator, Field, Micro, Move, Operation, Reach, Sweep
from plica.codegen.accel.device import run
from plica.codegen.accel.encode import to_bytes
from plica.codegen.accel.layer import AccelLayer, Stays, layer_of
from plica.codegen.accel.offload import choose
from plica.codegen.accel.stream import build
from plica.codegen.accel.units import MachineUnits, units_of
from plica.codegen.accel.vta import osdi, vta
from plica.rewrite.quantise.form import integer_convolutions
from plica.runtime.error import UnsupportedError
from tests.codegen.accel.machines import FEW, MACHINES, NAMES, OUTER, SMALL
from tests.codegen.accel.network import Layers, given, network

Array = np.ndarray[Any, Any]


def renamed(machine: Accelerator) -> Accelerator:
    """The machine with other names for its scopes and operations."""
    scopes = {each.name: f"memory_{at}" for at, each in enumerate(machine.scopes)}
    names = {each.name: f"does_{at}" for at, each in enumerate(machine.operations)}

    def reach(of: Reach) -> Reach:
        return evolve(of, scopes=tuple([scopes[each] for each in of.scopes]))

    def operation(of: Operation) -> Operation:
        does = of.does
        if isinstance(does, Move):
            does = evolve(does, scope=scopes[does.scope], kind=scopes.get(does.kind, ""))
        elif isinstance(does, Sweep):
            reads = tuple([reach(each) for each in does.reads])
            does = evolve(does, writes=reach(does.writes), reads=reads)
        return evolve(of, name=names[of.name], does=does)

    micro = machine.micro
    return evolve(
        machine,
        name="other",
        scopes=tuple([evolve(each, name=scopes[each.name]) for each in machine.scopes]),
        operations=tuple([operation(each) for each in machine.operations]),
        finish=names[machine.finish],
        micro=None if micro is None else Micro(scopes[micro.scope], micro.fields),
    )


def without(machine: Accelerator, *names: str) -> Accelerator:
    left = [each for each in machine.operations if each.name not in names]
    return evolve(machine, operations=tuple(left))


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
def test_names_mean_nothing(machine: Accelerator) -> None:
    units = units_of(machine)
    pad = int(units.data.can_pad)
    of = Convolution(2 * units.depth, 6, 6, units.columns, 3, 1, pad, shift=5, bias=True)
    tiling = ConvTiling(1, 3, 1, 1, threads=2)
    one, other = (
        build(each, convolution(each, of, tiling)) for each in (machine, renamed(machine))
    )
    assert to_bytes(machine, one.code) == to_bytes(renamed(machine), other.code)
    assert one.micro == other.micro


def test_what_each_machine_has() -> None:
    assert [units_of(each).rows for each in MACHINES] == [1, 1, 2, 8]
    assert [units_of(each).depth for each in MACHINES] == [16, 16, 8, 1]
    units = units_of(OUTER)
    names = [units.multiply, units.clear, *(units.changes[each] for each in sorted(units.changes))]
    assert [each.name for each in names] == [
        "multiply", "clear", "total", "greater", "lesser", "shift"
    ]  # fmt: skip
    assert not units.data.can_pad


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        (("multiply",), "no operation that adds products of elements of two scopes"),
        (("clear",), "no operation that clears tile"),
        (("greater",), "no operation that takes the greater of tile"),
        (("lesser",), "no operation that takes the lesser of tile"),
        (("get.col",), "no move into col"),
        (("get.row",), "no move into row"),
        (("get.tile",), "no operation that takes the greater of tile"),
        (("put",), "no move out of tile"),
    ],
)
def test_a_machine_that_lacks_something_is_refused(gone: tuple[str, ...], why: str) -> None:
    with pytest.raises(UnsupportedError, match=why) as refused:
        units_of(without(OUTER, *gone))
    assert refused.value.diagnostics[0].place is not None


def layer(
    machine: Accelerator, batch: int = 8, each: bool = False, bias: bool = True
) -> AccelLayer | Stays:
    x = given((batch, 8, 5, 5))
    (found,) = integer_convolutions(network((x,), Layers(0).conv(x, 16, each=each, bias=bias)))
    return layer_of(machine, found)


@pytest.mark.parametrize(
    ("gone", "batch", "each", "why"),
    [
        ("total", 8, False, "outer has no operation that adds a tensor to tile"),
        ("shift", 8, False, "outer has no operation that shifts tile to the right by the number 6"),
        ("", 8, True, "outer has no operation that shifts tile to the right by a tensor"),
        ("", 1, False, "a batch of 1 fills 12% of 8 rows"),
    ],
)
def test_a_layer_that_needs_what_is_missing_stays(
    gone: str, batch: int, each: bool, why: str
) -> None:
    found = layer(without(OUTER, gone), batch, each)
    assert isinstance(found, Stays)
    assert why in found.why


def test_the_processor_pads_where_loads_cannot() -> None:
    ahead, along = layer(OUTER), layer(SMALL)
    assert isinstance(ahead, AccelLayer)
    assert isinstance(along, AccelLayer)
    assert (ahead.pad, ahead.convolution.pad, ahead.convolution.height) == (1, 0, 7)
    assert (along.pad, along.convolution.pad, along.convolution.height) == (0, 1, 5)
    assert (ahead.before, along.before, along.batch) == ("NCHW8n", "NCHW2n8c", 4)
    of = Convolution(8, 5, 5, 8, 3, pad=1)
    with pytest.raises(UnsupportedError, match=r"get\.col of outer cannot pad"):
        convolution(OUTER, of, ConvTiling(1, 1, 1, 1))


def test_a_number_that_no_field_holds_is_a_tensor() -> None:
    def narrow(of: Operation) -> Operation:
        fields = [Field(f.name, f.at, 3, True) if f.name == "imm" else f for f in of.fields]
        return evolve(of, fields=tuple(fields))

    machine = evolve(vta(), operations=tuple([narrow(each) for each in vta().operations]))
    steps = {each.unit.name for each in finish_of(units_of(machine), Convolution(16, 4, 4, 16))}
    assert steps == {"alu.shr", "alu.max", "alu.min"}
    found = layer(machine)
    assert isinstance(found, AccelLayer)
    assert set(found.constants) == {"w", "b", "n", "h"}  # a clip at zero is an operand still
    _is_exact(machine, found.convolution, found.constants, 0)


@st.composite
def convolutions(draw: st.DrawFn, units: MachineUnits) -> Convolution:
    """Small convolutions in whole blocks of a machine."""
    kernel = draw(st.sampled_from([1, 3]))
    return Convolution(
        draw(st.integers(1, 3)) * units.depth,
        5,
        4,
        draw(st.integers(1, 2)) * units.columns,
        kernel,
        draw(st.integers(1, 2)),
        kernel // 2 if units.data.can_pad else 0,
        draw(st.integers(0, 9)),
        draw(st.booleans()),
        -100,
        90,
    )


def _is_exact(machine: Accelerator, of: Convolution, constants: Any, seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = units_of(machine).rows
    images = random.integers(-128, 128, (rows, of.channels, of.height, of.width)).astype(np.int8)
    chosen = choose(machine, of, 1)
    assert check(machine, chosen.stream) == []
    values = {"x": pack_input(machine, images), **constants}
    found = unpack_output(machine, of, run(machine, chosen.stream, values)["y"])
    w, n = constants["w"], units_of(machine)
    axes = (0, 4, 1, 5, 2, 3) if n.weight.axes != "kn" else (0, 5, 1, 4, 2, 3)
    plain = w.transpose(axes).reshape(of.outputs, of.channels, of.kernel, of.kernel)
    bias = constants["b"].reshape(-1, n.rows, n.columns)[:, 0].reshape(-1) if of.bias else None
    for image, one in zip(images, found.reshape(rows, *found.shape[-3:]), strict=True):
        assert np.array_equal(one, reference(of, image, plain, bias))


@pytest.mark.parametrize("machine", [osdi(), SMALL, OUTER], ids=("osdi", "small", "outer"))
def test_layers_are_exact(machine: Accelerator) -> None:
    units = units_of(machine)

    @settings(max_examples=FEW)
    @drawn(convolutions(units), st.integers(0, 99))
    def tried(of: Convolution, seed: int) -> None:
        random = np.random.default_rng(seed)
        w = random.integers(-30, 30, (of.outputs, of.channels, of.kernel, of.kernel)).astype(
            np.int8
        )
        constants = {"w": pack_weight(machine, w)}
        per_output = {"b": random.integers(-999, 999, of.outputs), "l": np.full(of.outputs, of.low)}
        for each in build(machine, convolution(machine, of, ConvTiling(1, 1, 1, 1))).tensors:
            if each.name in per_output:
                constants[each.name] = pack_outputs(machine, per_output[each.name])
        _is_exact(machine, of, constants, seed)

    tried()
