"""Epilogues: a schedule recorded without one is that of the kernel with it."""

from __future__ import annotations

import pytest

from plica.ir.loop.scalar import Intrinsic, Lit, Max
from plica.ir.loop.stage import Each, stage
from plica.ir.loop.stages import kernel_of, stages
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import Compute, buffer
from plica.ir.op.winograd import conv_winograd
from plica.ir.type.dtype import f32
from plica.schedule.default import Machine
from plica.schedule.default.bilinear import bilinear_form
from plica.schedule.default.choose import by_template, recorded, template_schedule
from plica.schedule.default.epilogue import with_epilogue, without_epilogue
from plica.schedule.form import Facts
from plica.schedule.hoist import hoist
from plica.schedule.replay import scheduled

MACHINE = Machine(512, 32)
KINDS = ("none", "bias", "residual", "swish")


def convolution(kind: str) -> Kernel:
    """A convolution and what is done to its results."""
    x, w = buffer("x", (1, 32, 12, 12), f32), buffer("w", (36, 32, 32), f32)
    bias, other = buffer("bias", (32,), f32), buffer("other", (1, 32, 12, 12), f32)
    assert conv_winograd.compute is not None
    of = conv_winograd.compute({"tile": 4, "padding": 1}, x, w)
    assert isinstance(of, Compute)
    fold = Each(buffer("conv", of.shape, f32), of.axes, of.body)
    of_kind = {
        "none": (),
        "bias": (stage("y", of.shape, lambda n, o, h, v: fold.out[n, o, h, v] + bias[o]),),
        "residual": (
            stage("y", of.shape,
                  lambda n, o, h, v: Max(fold.out[n, o, h, v] + other[n, o, h, v], Lit(0.0, f32))),
        ),
        "swish": (
            stage("y", of.shape,
                  lambda n, o, h, v: fold.out[n, o, h, v]
                  * Intrinsic("sigmoid", (fold.out[n, o, h, v],))),
        ),
    }[kind]  # fmt: skip
    inputs = {"bias": (x, w, bias), "residual": (x, w, other)}.get(kind, (x, w))
    constant = (False, True, *[False] * (len(inputs) - 2))
    form = bilinear_form(stages(inputs, (fold, *of_kind)), Facts(constant), MACHINE)
    assert form is not None
    return kernel_of(hoist(form, constant).rest)


@pytest.mark.parametrize("kind", KINDS)
def test_a_schedule_recorded_without_an_epilogue_is_that_with_it(kind: str) -> None:
    kernel = convolution(kind)
    made = template_schedule(kernel, MACHINE)
    assert isinstance(made, tuple)
    name, trace, loops = made
    assert name == "bilinear"
    found = by_template(kernel, MACHINE)
    assert found is not None
    assert (trace, loops) == recorded(found[1], kernel)
    assert scheduled(trace, kernel) is loops


def test_kernels_that_differ_in_epilogues_are_one_without() -> None:
    apart = [without_epilogue(convolution(kind)) for kind in KINDS]
    assert apart[0] is None  # there is nothing to take off
    bare = [each[0] for each in apart if each is not None]
    assert len(bare) == len(KINDS) - 1
    assert len({tuple(str(e.name) for e in each.params) for each in bare}) == 1


def test_a_name_that_a_schedule_took_is_no_epilogue_of_it() -> None:
    kernel = convolution("bias")
    apart = without_epilogue(kernel)
    assert apart is not None
    bare, epilogue = apart
    assert with_epilogue(bare, epilogue) is kernel
    (taken,) = [each for each in kernel.params if each not in bare.params]
    clash = Kernel(bare.dims, (*bare.params[:1], taken, *bare.params[1:]), bare.inputs, bare.body)
    assert with_epilogue(clash, epilogue) is not None  # the same buffer
    other = buffer("bias", (7,), f32)
    clash = Kernel(bare.dims, (other, *bare.params), bare.inputs + 1, bare.body)
    assert with_epilogue(clash, epilogue) is None


def test_a_sum_and_several_elements_are_no_epilogue() -> None:
    x = buffer("x", (8, 8), f32)
    acc = stage("acc", (8, 8), lambda i, j: x[i, j] * x[i, j])
    both = stage("y", (8, 4), lambda i, j: acc[i, j] + acc[i, j + 4])
    assert without_epilogue(kernel_of(stages((x,), (acc, both)))) is None
    assert without_epilogue(kernel_of(stages((x,), (acc,)))) is None
