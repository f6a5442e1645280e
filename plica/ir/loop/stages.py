"""Stages: tensors computed one from another; the meaning of a fused group before any loop.

    Stages ::= Stages(dims, inputs, made, stages, outputs)

It is the only term between graph and loops: form rules rewrite it, schedules start from it, and
search, features and accelerators read nothing else. Prologues and epilogues are ordinary stages. Of
the stages' results, `outputs` are memory of the launch: scratch first, the result last; all others
are local to the kernel.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import placeholder, stage
>>> from plica.ir.loop.tensor import reduce
>>> x = placeholder("x", (2, 3), f32)
>>> total = stage("total", (2,), lambda i: reduce("sum", (3,), lambda k: x[i, k]))
>>> half = stage("half", (2,), lambda i: total[i] / 2)
>>> of = stages((x,), (total, half))
>>> print(of)
total[i < 2] = sum(x[i, k] for k in range(3))
half[i < 2] = total[i] / 2.0
>>> evaluate_stages(of, [np.float32([[1, 2, 3], [4, 5, 6]])])
array([3. , 7.5], dtype=float32)

Laws: names never enter the digest; every form preserves `evaluate_stages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from attrs import frozen

from plica.core import (
    CompilerBug,
    Name,
    Term,
    all_of,
    free_vars,
    fresh,
    map_bottom_up,
    post_order,
    substitute,
)
from plica.ir.loop.define import define
from plica.ir.loop.scalar import Buffer, Load, Reduce, Scalar, ScalarVar
from plica.ir.loop.stage import Each, ExternStage, Scan, Stage, epilogue_of, stage_of
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import Compute, Prefix
from plica.ir.type import i64, known
from plica.runtime.late import lazy_imports

with lazy_imports(__name__):
    from plica.ir.interpret.array_arithmetic import Array
    from plica.ir.interpret.evaluate import evaluate
    from plica.ir.text.show.stages import shown_stages

WRITTEN = "ir.stages"  # the path that its terms are written down under


@frozen(eq=False)
class Stages(Term):
    """`stages` in order, over `inputs`; every buffer they make is in `made`."""

    binds = (
        ("dims", ("inputs", "made", "stages", "outputs")),
        ("inputs", ("stages",)),
        ("made", ("stages", "outputs")),
    )
    dims: tuple[ScalarVar, ...]
    inputs: tuple[Buffer, ...]
    made: tuple[Buffer, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[Buffer, ...]

    @property
    def result(self) -> Buffer:
        """The tensor that is wanted."""
        return self.outputs[-1]

    @property
    def scratch(self) -> tuple[Buffer, ...]:
        """Memory of the launch that is not read after it."""
        return self.outputs[:-1]

    def find(self, name: str) -> Each | None:
        """The stage that makes the buffer of a name."""
        for stage in self.stages:
            if isinstance(stage, Each) and stage.out.name == Name(name):
                return stage
        return None

    def __str__(self) -> str:
        return shown_stages(self.stages)


def stages(
    inputs: Sequence[Buffer], of: Iterable[Stage], outputs: Sequence[Buffer] | None = None
) -> Stages:
    """The stages as one term; the last result is the output where none are named."""
    of = tuple(of)
    buffers = tuple([out for stage in of for out in stage.outs])
    wanted = (buffers[-1],) if outputs is None else tuple(outputs)
    return Stages(_dims((*inputs, *buffers), of), tuple(inputs), buffers, tuple(of), wanted)


def _dims(buffers: Sequence[Buffer], of: Sequence[Stage]) -> tuple[ScalarVar, ...]:
    """The open sizes: those in shapes first, in order, then those that occur only in terms."""
    found = {var: None for buffer in buffers for size in buffer.shape for var in free_vars(size)}
    more = [var for stage in of for var in free_vars(stage) if var not in found]
    rest = sorted({var for var in more if isinstance(var, ScalarVar)}, key=_by_name)
    return tuple([var for var in found if isinstance(var, ScalarVar)] + rest)


def _by_name(of: ScalarVar) -> tuple[str, int]:
    return of.name.hint, of.name.index


def stages_of(of: Compute, name: str = "out") -> Stages:
    """A tensor expression as the one stage of some."""
    out = Buffer(fresh(Name(name), {buffer.name for buffer in of.inputs}), of.shape, of.dtype)
    return stages(of.inputs, (stage_of(out, of.axes, of.body),))


@lru_cache(maxsize=1024)
def kernel_of(of: Stages) -> Kernel:
    """The kernel of blocks that schedules work on: a nest for each stage."""
    match of.stages:
        case (ExternStage(_, body),):  # it has the loops it should have
            return Kernel(of.dims, (*of.inputs, *of.outputs), len(of.inputs), body)
        case _:
            return define(*of.stages, inputs=of.inputs, outputs=of.outputs)


def from_kernel(of: Kernel) -> Stages:
    """A kernel that has the loops it should have, as the one stage of some.

    Law: `kernel_of(from_kernel(kernel)) is kernel`.
    """
    inputs, outputs = of.params[: of.inputs], of.params[of.inputs :]
    return Stages(of.dims, inputs, outputs, (ExternStage(outputs, of.body),), outputs)


def compute_of(of: Each | Scan) -> Compute:
    """A stage as a tensor expression."""
    read = dict.fromkeys(node.buffer for node in all_of(Load, of.value))
    element = of.element if isinstance(of, Scan) else of.value
    return Compute(tuple(read), of.axes, of.out.shape, element)


def has_scan(of: Stages) -> bool:
    """Whether one of some stages is a scan."""
    return any(isinstance(stage, Scan) for stage in of.stages)


def as_elements(of: Stages, written: Callable[[Prefix], Scalar] = lambda fold: fold) -> Stages:
    """The stages with each scan replaced by an expression for its elements, transformed by
    `written`."""
    made = [
        Each(stage.out, stage.axes, written(stage.element)) if isinstance(stage, Scan) else stage
        for stage in of.stages
    ]
    return stages(of.inputs, made, of.outputs)


def as_scan(of: Stage) -> Stage:
    """Turns a stage whose elements are a prefix fold into a scan; leaves others unchanged."""
    return stage_of(of.out, of.axes, of.value) if isinstance(of, Each) else of


def evaluate_stages(
    of: Stages, arrays: Sequence[Array], sizes: Mapping[Term, int] | None = None
) -> Array:
    """Evaluates stages on arrays, one per input."""
    return evaluate_all(of, arrays, sizes)[of.result]


def evaluate_all(
    of: Stages, arrays: Sequence[Array], sizes: Mapping[Term, int] | None = None
) -> dict[Buffer, Array]:
    """Every tensor that stages make.

    An input may be seen in another shape of the same elements than it was given in.
    """
    held: dict[Buffer, Array] = {}
    for buffer, array in zip(of.inputs, arrays, strict=True):
        shape = [known(size) for size in buffer.shape]
        told = [n for n in shape if n is not None]
        held[buffer] = np.reshape(array, told) if len(told) == len(shape) else np.asarray(array)
    for stage in of.stages:
        if not isinstance(stage, Each | Scan):
            raise CompilerBug(f"{type(stage).__name__} stages have a meaning as kernels only.")
        compute = compute_of(stage)
        held[stage.out] = evaluate(compute, [held[read] for read in compute.inputs], sizes)
    return held


# --- reading --------------------------------------------------------------------------------------


@lru_cache(maxsize=256)  # every form asks of the stages of a kernel
def loads(of: Term) -> tuple[Load, ...]:
    """The loads of a term, each once."""
    return tuple(all_of(Load, of))


@lru_cache(maxsize=256)
def reductions(of: Term) -> tuple[Reduce, ...]:
    """The reductions of a term, each once."""
    return tuple(all_of(Reduce, of))


def with_element(of: Scalar, buffer: Buffer | None, value: Scalar) -> Scalar:
    """A term with a value substituted for its load from a buffer."""

    def filled(node: Term) -> Term:
        return value if isinstance(node, Load) and node.buffer is buffer else node

    return map_bottom_up(filled, of)


def inlined(value: Scalar, made: Mapping[Buffer, Each]) -> Scalar:
    """A value in which elements of some stages are computed where they are read."""

    def element(node: Term) -> Term:
        if not isinstance(node, Load) or node.buffer not in made:
            return node
        stage = made[node.buffer]
        return substitute(stage.value, dict(zip(stage.axes, node.indices, strict=True)))

    return map_bottom_up(element, value)


def pairs(of: Stages) -> list[tuple[Each, Each | None]]:
    """The stages, a reduction together with the epilogue that alone reads it."""
    found: list[tuple[Each, Each | None]] = []
    every = [stage for stage in of.stages if isinstance(stage, Each)]
    if len(every) != len(of.stages):
        raise CompilerBug("Only stages of elements come in pairs.")
    users: dict[Buffer, int] = {}
    for stage in every:
        for buffer in {load.buffer for load in loads(stage.value)}:
            users[buffer] = users.get(buffer, 0) + 1
    at = 0
    while at < len(every):
        one, after = every[at], every[at + 1] if at + 1 < len(every) else None
        alone = one.out not in of.outputs and users.get(one.out) == 1
        if after is not None and alone and reductions(one.value) and epilogue_of(one, after):
            found.append((one, after))
            at += 2
        else:
            found.append((one, None))
            at += 1
    return found


class Names:
    """Names in use in some terms: gives new ones.

    The names of results are not part of the key: building the stages again yields fresh results.
    The same holds for other stages if all of them are rebuilt.
    """

    def __init__(self, *of: Term, anew: Iterable[Buffer] = ()) -> None:
        self.used = {n.name for n in post_order(*of) if isinstance(n, ScalarVar | Buffer)}
        self.used -= {each.result.name for each in of if isinstance(each, Stages)}
        self.used -= {buffer.name for buffer in anew}

    def name(self, like: str) -> Name:
        """A name like another."""
        found = fresh(Name(like), self.used)
        self.used.add(found)
        return found

    def var(self, like: str) -> ScalarVar:
        """A fresh index variable."""
        return ScalarVar(self.name(like), i64)
