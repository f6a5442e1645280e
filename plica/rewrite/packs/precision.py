"""Mixed precision: heavy layers in 16-bit floats, sensitive operators in f32.

Operators fall into three lists. `ALWAYS` are computed in the narrow dtype: their arguments are
cast, and their result is cast back. `FOLLOW` are computed in it if all their arguments come from
it, so casts move behind them. Everything else, in `NEVER` or not listed, is never narrowed.
Adjacent casts cancel, so a chain keeps casts only at its ends.

    before:  nn.softmax(nn.dense(nn.relu(nn.dense(x, a)), b))                        (f32)
    after:   nn.softmax(cast(nn.dense(nn.relu(nn.dense(cast(x), a')), b'), f32))     (a', b': bf16)

Sums of 16-bit floats are accumulated in f32 and rounded once, as the operators define.

The contract is `approx(4 u)`, u being half the distance from 1 to the next narrow number: two
arguments and a result are rounded, and the products of the roundings fit into the fourth.  Beyond
65504 an f16 is infinite; constants that large are not narrowed, for inputs the caller answers.

>>> [rule.name for rule in precision(f16)][:2]
['f16-conv', 'f16-conv-transpose']
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from plica.core import did_you_mean
from plica.ir.contract import Contract, approx, exact
from plica.ir.graph import Expr, Module, Operator, Project
from plica.ir.interpret.interpreter import interpret
from plica.ir.op import find, names
from plica.ir.op.elementwise import cast
from plica.ir.op.join import split
from plica.ir.passes import Pass
from plica.ir.type import DType, TensorType, bf16, f16, f32, type_of
from plica.rewrite.closed import closed, is_closed, value_of
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.fold import fold_constants
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack, rewrite
from plica.rewrite.pattern import either, hole
from plica.rewrite.rule import Computed, Rule
from plica.runtime.error import Diagnostic, UnsupportedError

ALWAYS: Final = ("nn.conv", "nn.conv_transpose", "nn.dense", "matmul", "nn.batch_matmul")
"""Computed in the narrow dtype."""

MOVES: Final = (
    "nn.relu", "negative", "absolute", "copy", "nn.max_pool", "maximum", "minimum", "reshape",
    "transpose", "squeeze", "expand_dims", "broadcast_to", "slice", "flip", "tile", "repeat",
    "concat", "stack", "max", "min", "supremum", "infimum",
)  # fmt: skip
"""Of those that follow, the ones that round nothing: they choose and move numbers."""

FOLLOW: Final = (*MOVES, "add", "subtract", "multiply", "nn.leaky_relu", "nn.avg_pool")
"""Computed in the narrow dtype where their arguments are of it."""

NEVER: Final = (
    "exp", "log", "power", "sum", "mean", "var", "std", "prod", "erf", "divide", "rsqrt", "sqrt",
    "nn.softmax", "nn.log_softmax", "nn.layer_norm", "nn.rms_norm", "nn.batch_norm", "nn.gelu",
    "nn.instance_norm", "nn.group_norm", "nn.l2_normalize", "nn.sigmoid", "tanh", "cumsum",
)  # fmt: skip
"""Kept in f32, because they overflow or lose digits early; so are unlisted operators."""

ROUNDING: Final = {f16: 2.0**-11, bf16: 2.0**-8}  # the largest relative error of one rounding
MAX_CONCATENATED: Final = 8  # how many parts a concatenation may have behind which a cast moves
MAX_SPLIT_PARTS: Final = 4  # up to which number the parts of a split do
ARGUMENTS: Final = tuple(f"arg{number}" for number in range(MAX_CONCATENATED))


def fits_in(narrow: DType, value: Expr) -> bool:
    """Whether a constant can be rounded within the contract, in max-norm; non-constants can.

    An overflow is not, and neither is a constant all of whose numbers are too small to be normal.
    """
    if not is_closed(value):
        return True
    if (array := value_of(value)) is None:
        return False
    wide = array.astype(np.float64)
    wide = wide[np.isfinite(wide)]
    with np.errstate(over="ignore"):
        rounded = wide.astype(narrow.numpy).astype(np.float64)
    most = np.abs(wide).max(initial=0.0)
    return bool((np.abs(rounded - wide) <= ROUNDING[narrow] * most).all())


@lru_cache(maxsize=64)
def precision(
    narrow: DType,
    always: tuple[str, ...] = ALWAYS,
    follow: tuple[str, ...] = FOLLOW,
    accumulate: DType = f32,
) -> Pack:
    """The rules of mixed precision for one narrow dtype and lists of operators."""
    _check(narrow, always, follow, accumulate)
    rules = [_always(_operator(name), narrow) for name in always]
    rules += [_follow(_operator(name), narrow) for name in follow]
    rules += [_part(narrow, number) for number in range(MAX_SPLIT_PARTS)]
    x = hole("x", dtypes=narrow)
    rules.append(rule(f"{narrow}-cast-back", cast(cast(x, f32), narrow), x))
    return pack(f"precision-{narrow}", rules, version="1", doc=f"Heavy layers in {narrow}.")


def to_mixed_precision(
    module: Module,
    narrow: DType = f16,
    always: Sequence[str] = ALWAYS,
    follow: Sequence[str] = FOLLOW,
    accumulate: DType = f32,
) -> Module:
    """The module with heavy layers in the narrow dtype; its interface is unchanged."""
    rules = precision(narrow, tuple(always), tuple(follow), accumulate)
    done, _ = rewrite(to_dataflow(module), rules)
    assert isinstance(done, Module)
    return fold_constants(done)


def precision_pass(
    narrow: DType = f16, always: Sequence[str] = ALWAYS, follow: Sequence[str] = FOLLOW
) -> Pass:
    """Mixed precision as a step of a pipeline."""
    why = f"Compute heavy layers in {narrow}, which is half the memory and faster where supported."
    run = lambda module: to_mixed_precision(module, narrow, always, follow)  # noqa: E731
    return Pass("mixed-precision", why, run, contract=_bound(narrow))


def deviation(before: Module, after: Module, *inputs: Any) -> tuple[float, ...]:
    """For each output, how far one module is from another on some inputs, in max-norm."""
    left, right = interpret(before, *inputs), interpret(after, *inputs)
    pairs = zip(left, right, strict=True) if isinstance(left, tuple) else [(left, right)]
    found = []
    for a, b in pairs:
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        most = float(np.abs(wide_a).max(initial=0.0))
        gap = float(np.abs(wide_a - wide_b).max(initial=0.0))
        found.append(gap / most if most else gap)
    return tuple(found)


def _operator(name: str) -> Operator:
    operator = find(name)
    assert operator is not None
    return operator


def _slug(record: Operator, narrow: DType) -> str:
    return f"{narrow}-{record.name.removeprefix('nn.').replace('_', '-')}"


def _settings(record: Operator) -> list[Any]:
    return [hole(attribute.name) for attribute in record.attributes]


def _bound(narrow: DType) -> Contract:
    return approx(4 * ROUNDING[narrow])


def _always(record: Operator, narrow: DType) -> Rule:
    args = [hole(f"arg{n}", dtypes=f32) for n in range(len(record.inputs))]
    left = record(*args, *_settings(record))
    return rule(_slug(record, narrow), left, _narrowed(record, narrow), float=_bound(narrow))


def _follow(record: Operator, narrow: DType) -> Rule:
    """A cast moves behind the operator, where all arguments but constants have one."""
    settings = _settings(record)
    most = MAX_CONCATENATED if record.variadic else len(record.inputs)
    wide = [cast(hole(f"arg{n}", dtypes=narrow), f32) for n in range(most)]
    fixed = [closed(f"arg{n}", dtypes=f32) for n in range(most)]
    if record.variadic:
        forms = [record(tuple(wide[:n]), *settings) for n in range(1, most + 1)]
    else:
        forms = [record(*wide, *settings)]
    if len(record.inputs) == 2:
        forms += [record(wide[0], fixed[1], *settings), record(fixed[0], wide[1], *settings)]
    rounds = record.name not in MOVES or len(forms) == 3
    bound = _bound(narrow) if rounds else exact
    if not record.variadic and len(record.inputs) == 1:
        inner = record(hole("arg0", dtypes=narrow), *settings)
        return rule(_slug(record, narrow), forms[0], cast(inner, f32), float=bound)
    return rule(_slug(record, narrow), either(*forms), _narrowed(record, narrow), float=bound)


def _narrowed(record: Operator, narrow: DType) -> Computed:
    """The operator on narrow arguments, its result cast back."""

    def right(m: PatternMatch) -> Expr | None:
        given: list[Expr] = [m.filling[name] for name in ARGUMENTS if name in m.filling]
        if not all(fits_in(narrow, each) for each in given):
            return None
        inner = [each if is_of(each, narrow) else cast(each, narrow) for each in given]
        values = [m[attribute.name] for attribute in record.attributes]
        expr = record(tuple(inner), *values) if record.variadic else record(*inner, *values)
        return cast(expr, f32)

    return right


def _part(narrow: DType, number: int) -> Rule:
    """Tuples have no cast, so a cast moves behind the parts of a split."""
    x, sections, axis = hole("x", dtypes=narrow), hole("sections"), hole("axis")
    left = Project(split(cast(x, f32), sections, axis), number)
    right = cast(Project(split(x, sections, axis), number), f32)
    return rule(f"{narrow}-split-{number}", left, right)


def is_of(value: Expr, dtype: DType) -> bool:
    """Whether an expression is a tensor of a dtype."""
    of = type_of(value)
    return isinstance(of, TensorType) and of.dtype is dtype


def _check(
    narrow: DType, always: tuple[str, ...], follow: tuple[str, ...], accumulate: DType
) -> None:
    """Refuse what cannot be asked for, all of it together."""
    wrong = []
    if narrow not in ROUNDING:
        message = "Mixed precision is for a 16-bit float."
        wrong.append(Diagnostic("unsupported", message, None, "f16 or bf16", str(narrow)))
    if accumulate is not f32:
        message = "Operators on 16-bit floats accumulate in f32."
        wrong.append(Diagnostic("unsupported", message, None, "f32", str(accumulate)))
    for name in (*always, *follow):
        if find(name) is None:
            message = f"There is no operator {name!r} to narrow."
            hint = did_you_mean(name, names())
            wrong.append(Diagnostic("unknown-operator", message, suggestion=hint))
    for name in sorted({*always} & {*follow}):
        message = f"{name} can't both be narrowed always and follow."
        wrong.append(Diagnostic("duplicate-name", message))
    if wrong:
        raise UnsupportedError(*wrong)


BF16: Final = precision(bf16)
