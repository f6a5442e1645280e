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

from plica.core.digest import digest
from plica.ir.graph.expression import Function
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule.form import Facts


def workload(function: Function, facts: Facts) -> str:
    """The key of what a primitive function does, where so much is known of its inputs."""
    known = "".join(["c" if each else "v" for each in facts.constant])
    free = f"{int(facts.reassociates)}{int(facts.approximates)}"
    text = f"{digest(to_stages(function).stages)} {known} {free} {facts.fits_i8}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]
