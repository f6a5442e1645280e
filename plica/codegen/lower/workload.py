"""Workloads: what a kernel is to do, as a short text that outlives names and processes.

Two kernels that do the same have one key: it is made of the digest of their stages, which knows no
names and no values of weights, of which inputs are known when the program is compiled, and of what
may happen to floats.  It is what tuning records are found by.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Var
>>> from plica.ir.type.term import tensor
>>> def doubled(name):
...     x = Var(Name(name), tensor((3,), "f32"))
...     return Function((), (), (x,), x.type, x + x)
>>> workload(doubled("x"), Facts((False,))) == workload(doubled("y"), Facts((False,)))
True
>>> workload(doubled("x"), Facts((False,))) == workload(doubled("x"), Facts((True,)))
False
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias, get_args

from plica.core import digest
from plica.ir.graph.expression import Const, Function
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages, loads, reductions, stages
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule.form import Facts

Equality: TypeAlias = Literal["structural", "ignore-constants", "anchor"]
"""When two kernels are one work: also their constants are equal; whatever those are; or their first
reduction is the same, whatever is done before and after it."""

EQUALITIES: Final[tuple[Equality, ...]] = get_args(Equality)
USUAL: Final[Equality] = "ignore-constants"


def workload(
    function: Function, facts: Facts, equality: Equality = USUAL, constants: Sequence[Const] = ()
) -> str:
    """The key of what a primitive function does, where so much is known of its inputs.

    The key says which equality it is by, and so does every record that is found by it.
    """
    known = "".join(["c" if each else "v" for each in facts.constant])
    free = f"{int(facts.reassociates)}{int(facts.approximates)}"
    of = to_stages(function).stages
    text = f"{digest(of)} {known} {free} {facts.fits_i8}"
    if equality == "anchor":
        text = f"{digest(anchor(of))} {free}"
    elif equality == "structural":
        text += "".join([f" {digest(constant)}" for constant in constants])
    found = hashlib.sha256(text.encode()).hexdigest()[:32]
    return found if equality == USUAL else f"{equality}:{found}"


def equality_of(key: str) -> Equality:
    """The equality that a key was made by.

    >>> equality_of("anchor:ab12"), equality_of("ab12")
    ('anchor', 'ignore-constants')
    """
    said = key.partition(":")[0]
    return next((equality for equality in EQUALITIES if equality == said), USUAL)


def anchor(of: Stages) -> Stages:
    """The first stage that reduces, alone; all stages where none does."""
    for stage in of.stages:
        if isinstance(stage, Each) and reductions(stage.value):
            read = dict.fromkeys(load.buffer for load in loads(stage.value))
            return stages(tuple(read), (stage,))
    return of
