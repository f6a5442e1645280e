"""The lowering passes in order: from a scheduled kernel of blocks to what a target folds.

Each pass is a function from kernels to kernels that keeps what they mean; a target takes those that
name it.

>>> print(*[each.name for each in LOWER if "cpu" in each.targets][:4])
double-buffer place blocks-to-loops compact
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from attrs import field, frozen

from plica.codegen.lower.allreduce import allreduce
from plica.codegen.lower.barrier import barriers
from plica.codegen.lower.blocks import blocks_to_loops
from plica.codegen.lower.compact import compact
from plica.codegen.lower.digit import digits
from plica.codegen.lower.double_buffer import double_buffer
from plica.codegen.lower.flatten import flatten
from plica.codegen.lower.hoist import hoist
from plica.codegen.lower.in_place import in_place
from plica.codegen.lower.narrow import narrow
from plica.codegen.lower.once import once
from plica.codegen.lower.own import own
from plica.codegen.lower.partition import partition
from plica.codegen.lower.pipeline import pipeline
from plica.codegen.lower.place import place
from plica.codegen.lower.reuse import reuse
from plica.codegen.lower.tidy import tidy
from plica.codegen.lower.unroll import unroll
from plica.codegen.lower.vectorise import vectorise
from plica.codegen.lower.virtual_thread import virtual_threads
from plica.core.diagnostic import did_you_mean
from plica.ir.loop import Kernel
from plica.runtime.error import Diagnostic, InputError

Target: TypeAlias = Literal["cpu", "gpu", "accel"]
EVERY: Final[tuple[Target, ...]] = ("cpu", "gpu", "accel")
GPU: Final[tuple[Target, ...]] = ("gpu",)
CPU: Final[tuple[Target, ...]] = ("cpu",)


@frozen
class Lowering:
    """A pass over kernels: its name, why it exists, and the targets that use it."""

    name: str
    why: str
    run: Callable[[Kernel], Kernel] = field(eq=False)
    targets: tuple[Target, ...] = EVERY


# fmt: off
LOWER: Final[tuple[Lowering, ...]] = (
    Lowering("allreduce",       "Reductions across threads become trees.",         allreduce, GPU),
    Lowering("double-buffer",   "Blocks that run ahead become pipeline stages.",   double_buffer),
    Lowering("place",           "Buffers live where they are needed.",             place),
    Lowering("blocks-to-loops", "Bindings are put in, predicates are branches.",   blocks_to_loops),
    Lowering("once",            "One thread does what all would do alike.",        once,      GPU),
    Lowering("digits",          "Guards ask about high digits of a place alone.",  digits,    GPU),
    Lowering("compact",         "Buffers are as large as what is touched.",        compact),
    Lowering("pipeline",        "Statements run in different iterations.",         pipeline),
    Lowering("virtual-threads", "Threads are interleaved into one stream.",        virtual_threads),
    Lowering("hoist",           "Branches leave the loops they do not depend on.", hoist),
    Lowering("tidy",            "Index terms become simple.",                      tidy),
    Lowering("partition",       "Guards leave the middle of loops.",               partition),
    Lowering("unroll",          "Loops that ask for it are written out.",          unroll),
    Lowering("tidy-again",      "What was cut and copied becomes simple.",         tidy),
    Lowering("own",             "What no other thread sees is in registers.",      own,       GPU),
    Lowering("in-place",        "Rows are kept where the result goes.",            in_place, CPU),
    Lowering("vectorise",       "Loops over lanes have a number of them.",         vectorise),
    Lowering("flatten",         "Buffers have one axis.",                          flatten),
    Lowering("reuse",           "Buffers share memory.",                           reuse),
    Lowering("barriers",        "Threads wait where they meet.",                   barriers, GPU),
    Lowering("narrow",          "Index terms have 32 bits.",                       narrow, GPU),
)
# fmt: on


def lower(kernel: Kernel, target: Target = "cpu") -> Kernel:
    """The kernel after all passes of a target."""
    if target not in EVERY:
        message, expected = "Kernels are not lowered for this target.", f"one of {', '.join(EVERY)}"
        hint = did_you_mean(str(target), EVERY)
        raise InputError(Diagnostic("input-unknown", message, None, expected, repr(target), hint))
    for each in LOWER:
        if target in each.targets:
            kernel = each.run(kernel)
    return kernel
