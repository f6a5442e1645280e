"""Annotate: which operators are computed in integers, and at which places numbers become them.

A *point* is a value that is quantised and restored at once.  Points are what layers, sums and
means read, looked for behind operators that only arrange numbers, so that a value is quantised
where it is made: after the bias and the relu of the layer that makes it.

    x ─ point ─ conv + b ─ relu ─ point ─ max_pool ─ conv + b ─ point ─┐
                                            └───────────────────────── add ─ relu ─ point ─ …

Layers with constant weights are always selected; other operators only if their results become
integers anyway, because between floats they would lose.

>>> from plica.core.name import Name
>>> from plica.ir.graph.expression import Function, Var, const
>>> from plica.ir.graph.module import module
>>> from plica.ir.op.activation import relu
>>> from plica.ir.op.linear import dense
>>> from plica.ir.type.term import tensor
>>> x, main = Var(Name("x"), tensor((1, 4), "f32")), Var(Name("main"), None)
>>> w = const(np.ones((4, 4), np.float32))
>>> net = module({main: Function((), (), (x,), None, dense(relu(dense(x, w)), w))}, main)
>>> found = annotate(net)
>>> len(found.points), [row.form for row in found.rows]
(2, ['i8', 'i8', 'i8'])
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal, TypeAlias

import numpy as np
from attrs import evolve, frozen

from plica.core import did_you_mean
from plica.ir.graph import Apply, Expr, Function, Module, Project, Tuple, Var, attr, module as build
from plica.ir.op.activation import bias_add
from plica.ir.op.window import sides
from plica.ir.type import DType, TensorType, bf16, f16, f32, f64, infer, static_shape, type_of
from plica.rewrite.closed import is_closed, value_of
from plica.rewrite.graph.fold import fold_constants
from plica.rewrite.graph.walk import NameSupply
from plica.rewrite.optimise import optimise
from plica.rewrite.pack import Pack, pack, rewrite
from plica.rewrite.packs.inference import unpacked
from plica.rewrite.quantise.arrange import TABLED, is_carrier
from plica.rewrite.quantise.word import SUM_LIMIT
from plica.runtime.error import Diagnostic, UnsupportedError

Form: TypeAlias = Literal["i8", "f32", "f16", "bf16", "f64"]

# fmt: off
LAYERS: Final[dict[str, int]] = {"nn.conv": 0, "nn.dense": 0, "matmul": -1}
"""Layers by name, with the axis of the weight that their results lie along."""
MEANS: Final = ("mean", "sum", "nn.global_avg_pool", "nn.avg_pool")
BENT: Final = ("nn.relu", "clip")
OTHERS: Final[dict[DType, Form]] = {f16: "f16", bf16: "bf16", f64: "f64"}
NO_FORM: Final = "There is no integer form of it."
UNUSED: Final = "What it gives is used in floats only."
FARTHEST: Final = 255 * 127  # the greatest product of a byte less its zero point and a weight
BIASES: Final[Pack] = pack("biases", unpacked(bias_add, bias=1), version="1")
# fmt: on


@frozen
class AnnotationRow:
    """One operator: whether it is computed in integers, and if not, why."""

    op: str
    type: str
    form: Form
    why: str = ""


@frozen(eq=False)
class Annotated:
    """A prepared module, the values to be quantised in the order of the data, and the layers."""

    module: Module
    points: tuple[Expr, ...]
    layers: Mapping[Expr, int]  # the selected layers, each with the output axis of its weight
    rows: tuple[AnnotationRow, ...]


def prepare(module: Module) -> Module:
    """The module as annotation wants it: constants computed, scales in the weights."""
    found = optimise(infer(module)).module
    done, _ = rewrite(found, BIASES)
    assert isinstance(done, Module)
    return fold_constants(infer(done))


def annotate(module: Module, keep: Collection[str] = ()) -> Annotated:
    """What becomes integers in an inferred module that is prepared.

    What is in `keep` stays in floats: operators by name, and the `first` and `last` layer.
    """
    known = infer(module)
    main = known.main_function()
    order = [expr for expr in _dataflow(main) if _is_number(expr) and not is_closed(expr)]
    reasons = {each: _reason(each) for each in order if isinstance(each, Apply)}
    layers = [node for node, why in reasons.items() if node.op in LAYERS and why is None]
    _check_keep(keep, [reason.op for reason in reasons])
    for named in reasons:
        if named.op in keep:
            reasons[named] = "It is kept by its name."
    for word, place in (("first", 0), ("last", -1)):
        if word in keep and layers:
            reasons[layers[place]] = f"The {word} layer is kept."
    demanded = _demand(main, order, reasons)
    taken = {node for node, why in reasons.items() if why is None}
    points: dict[Expr, None] = {}
    for each in order:
        if each in taken:
            points.update(dict.fromkeys(map(origin, _data(each))))
    ordered = [expr for expr in _dataflow(main) if expr in points]
    rows = (*_rows(order, taken, points, reasons, demanded), *_others(main))
    return Annotated(
        known, tuple(ordered), {layer: LAYERS[layer.op] for layer in layers if layer in taken}, rows
    )


def _check_keep(keep: Collection[str], ops: Collection[str]) -> None:
    """Refuses unknown names in `keep`."""
    words = tuple(dict.fromkeys(("first", "last", *ops)))
    wrong = [
        Diagnostic(
            "unsupported",
            f"There is no operator {each!r} to be kept in floats.",
            None,
            f"one of {', '.join(words)}",
            repr(each),
            did_you_mean(each, words),
        )
        for each in keep
        if each not in words
    ]
    if wrong:
        raise UnsupportedError(*wrong)


def _others(main: Function) -> list[AnnotationRow]:
    """Layers of floats other than f32, which are unchanged."""
    rows = []
    for each in _dataflow(main):
        kind = type_of(each)
        if not isinstance(each, Apply) or each.op not in LAYERS or is_closed(each):
            continue
        if isinstance(kind, TensorType) and kind.dtype in OTHERS:
            why = "Only layers of f32 are quantised."
            rows.append(AnnotationRow(each.op, str(kind), OTHERS[kind.dtype], why))
    return rows


def tapped(of: Annotated) -> Module:
    """The module that gives the values of all points."""
    main = of.module.main_function()
    name = Var(NameSupply(of.module).name("tapped"), None)
    function = evolve(main, ret=None, body=Tuple(of.points), attrs=())
    return infer(build({**dict(of.module.items()), name: function}, name))


def _with_main(of: Module, main: Function) -> Module:
    values = [main if name is of.main else value for name, value in of.items()]
    return Module(of.names, tuple(values), of.main)


def with_body(of: Module, body: Expr) -> Module:
    """The module whose main function computes something else from the same inputs."""
    return infer(_with_main(of, evolve(of.main_function(), body=body)))


def _dataflow(main: Function) -> list[Expr]:
    """The values that are always computed, operands first: none in branches and closures."""
    order: list[Expr] = []
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(main.body, False)]
    while stack:
        node, left = stack.pop()
        if left:
            order.append(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        stack.append((node, True))
        stack.extend((expr, False) for expr in reversed(_inside(node)))
    return order


def _inside(node: Expr) -> tuple[Expr, ...]:
    match node:
        case Apply(_, args, _):
            return args
        case Tuple(items):
            return items
        case Project(value, _):
            return (value,)
        case _:
            return ()


def _is_number(of: Expr) -> bool:
    found = type_of(of)
    return isinstance(found, TensorType) and found.dtype is f32


def _data(of: Expr) -> tuple[Expr, ...]:
    """The non-constant operands of an operator."""
    assert isinstance(of, Apply)
    return tuple([arg for arg in of.args if not is_closed(arg)])


def origin(of: Expr) -> Expr:
    """The source of values that were only rearranged since."""
    while isinstance(of, Apply) and is_carrier(of) and _is_number(of.args[0]):
        of = of.args[0]
    return of


def _reason(of: Apply) -> str | None:
    """Why an operator is not computed in integers, or None if it can be."""
    data = _data(of)
    if not all(map(_is_number, of.args)):
        return "It reads other numbers than f32."
    if of.op in LAYERS:
        weight = type_of(of.args[1])
        assert isinstance(weight, TensorType)
        shape = static_shape(weight)
        if len(data) != 1 or data[0] is not of.args[0] or shape is None:
            return "Its weight is no constant."
        if of.op == "matmul" and len(shape) != 2:  # a matrix
            return "Its weight is no matrix."
        terms = int(np.prod(shape)) // max(shape[LAYERS[of.op]], 1)
        return None if 0 < terms * FARTHEST < SUM_LIMIT else "Its sums might leave 32 bits."
    if of.op in ("add", "concat"):
        return None if len(data) == len(of.args) else "One side is a constant."
    if of.op in MEANS:
        return _mean_reason(of)
    if of.op in TABLED:
        return None
    return NO_FORM


def _mean_reason(of: Apply) -> str | None:
    kind = type_of(of.args[0])
    assert isinstance(kind, TensorType)
    if static_shape(kind) is None:
        return "Its sizes are open."
    if of.op != "nn.avg_pool":
        return None
    if attr(of, "ceil_mode"):
        return "Its windows are not all as large."
    pads = sides("nn.avg_pool", attr(of, "padding"), len(kind.shape) - 2)
    if any(side for pair in pads for side in pair) and not attr(of, "count_include_pad"):
        return "Its windows are not all as large."
    return None


def _demand(main: Function, order: list[Expr], reasons: dict[Apply, str | None]) -> set[Expr]:
    """Values that become integers anyway; operators that are no layers are kept if theirs do not.

    Users come before their operands, so one pass suffices.
    """
    demanded: set[Expr] = set()
    for each in reversed(order):
        if not isinstance(each, Apply):
            continue
        if reasons[each] is None and each.op not in LAYERS and each not in demanded:
            reasons[each] = UNUSED
        passes = is_carrier(each) or each.op in BENT or _is_along(each)
        if reasons[each] is None or (passes and each in demanded):
            demanded.update(each.args)
    return demanded


def _is_along(of: Apply) -> bool:
    """Whether an operator adds a constant to a layer's result, or scales it by a positive one."""
    if of.op not in ("add", "multiply") or len(_data(of)) != 1:
        return False
    (fixed,) = [arg for arg in of.args if is_closed(arg)]
    values = value_of(fixed)
    return values is not None and (of.op == "add" or bool(np.all(values > 0)))


def _is_whole(of: Apply, points: dict[Expr, None], demanded: set[Expr]) -> bool:
    """Whether a constant along bytes is in integers: always with a layer's sums, else if asked."""
    (data,) = _data(of)
    if data not in points:
        return True
    (fixed,) = [type_of(arg) for arg in of.args if is_closed(arg)]
    assert isinstance(fixed, TensorType)
    shape = static_shape(fixed)
    single = shape is not None and int(np.prod(shape)) == 1
    return of in demanded and (of.op == "add" or single)


def _rows(
    order: list[Expr],
    taken: set[Apply],
    points: dict[Expr, None],
    reasons: dict[Apply, str | None],
    demanded: set[Expr],
) -> list[AnnotationRow]:
    """The report rows of operators; those computed with a layer belong to it."""
    whole: set[Expr] = set()  # in integers, before they are restored
    rows = []
    for each in order:
        if not isinstance(each, Apply):
            continue
        behind = [arg for arg in each.args if not is_closed(arg)]
        inside = bool(behind) and all(arg in whole or arg in points for arg in behind)
        bias = _is_along(each) and behind[0] in whole and _is_whole(each, points, demanded)
        bent = each.op in BENT and each in points
        carried = is_carrier(each) and origin(each) in points
        why = reasons[each]
        if why is None or (inside and (bias or bent or carried)):
            whole.add(each)
            rows.append(AnnotationRow(each.op, str(type_of(each)), "i8"))
        else:
            if why == NO_FORM and (each.op in BENT or is_carrier(each)):
                why = UNUSED if inside else "What it reads is in floats."
            rows.append(AnnotationRow(each.op, str(type_of(each)), "f32", why))
    return rows
