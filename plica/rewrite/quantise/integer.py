"""Integer modules: quantisation and dequantisation around operators is removed.

>>> from plica.core.name import Name
>>> from plica.ir.type.dtype import f32, i8
>>> from plica.ir.graph.expression import Function, Var, const
>>> from plica.ir.graph.module import module
>>> from plica.ir.op.quantise import dequantise, quantise
>>> from plica.ir.op.shape import reshape
>>> from plica.ir.type.term import tensor
>>> x, main = Var(Name("x"), tensor((2, 3), "i8")), Var(Name("main"), None)
>>> s, z = const(0.5, f32), const(0, i8)
>>> body = quantise(reshape(dequantise(x, s, z), (6,)), s, z)
>>> done = to_integers(module({main: Function((), (), (x,), None, body)}, main)).module
>>> done.main_function().body is reshape(x, (6,))
True

The rules are `recognise` and `realise`; what they leave in floats stays between a `dequantise` and
a `quantise`.

>>> [rule.name for rule in RECOGNISE]
['see-quantise', 'see-quantise-at-zero', 'see-dequantise', 'see-dequantise-at-zero']
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from plica.core import post_order
from plica.ir.graph import Apply, Module
from plica.ir.graph.expression import Const, Expr, const
from plica.ir.op.elementwise import cast, clip, round_
from plica.ir.op.quantise import dequantise, quantise
from plica.ir.type import DType, TensorType, f32, i8, i32, infer, type_of, u8
from plica.rewrite.closed import closed, is_closed, value_of
from plica.rewrite.graph import find_pass
from plica.rewrite.history import History, begun
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.pattern import hole, holes
from plica.rewrite.quantise.annotate import LAYERS, AnnotationRow
from plica.rewrite.quantise.realise import REALISE
from plica.rewrite.quantise.word import STEP

BEFORE: Final = ("to-dataflow",)
AFTER: Final = ("merge-common", "remove-dead")
QUANTISED: Final = ("quantise", "dequantise")


def to_integers(module: Module, ties_up: bool = False) -> History:
    """The module in integers as far as rules apply, with its steps.

    Floats may move to the next step: see Note [Steps] in `plica.rewrite.quantise.realise`.  With
    `ties_up` all of it rounds as a shift does, whatever the model says.
    """
    history = begun(infer(module))
    for name in BEFORE:
        history = history.through(find_pass(name))
    history = history.under(RECOGNISE)
    history = (history.under(TIES_UP) if ties_up else history).under(REALISE)
    for name in AFTER:
        history = history.through(find_pass(name))
    return history


def is_marked(history: History) -> bool:
    """Whether something was quantised in the module that a history began with."""
    main = history.module.main_function()
    seen = [step.rule.name for step in history.derivation.steps]
    return any(name.startswith(("see-", "integer-", "rescale-")) for name in seen) or any(
        isinstance(node, Apply) and node.op in QUANTISED for node in post_order(main.body)
    )


def said(module: Module) -> tuple[AnnotationRow, ...]:
    """The report rows of a module that is already quantised."""
    rows = []
    for node in post_order(infer(module).main_function().body):
        if not isinstance(node, Apply) or node.op in QUANTISED or is_closed(node):
            continue
        kind = type_of(node)
        if isinstance(kind, TensorType) and kind.dtype is f32:
            rows.append(AnnotationRow(node.op, str(kind), "f32", "It is not between bytes."))
        elif node.op not in ("cast", "clip", "right_shift", "fixed_multiply"):
            rows.append(AnnotationRow(node.op, str(kind), "i8"))
    return tuple(rows)


def float_layers(module: Module) -> int:
    """How many layers of a module are computed in floats."""
    found = 0
    for _, function in infer(module).functions():
        for node in post_order(function):
            if isinstance(node, Apply) and node.op in LAYERS:
                kind = type_of(node)
                found += isinstance(kind, TensorType) and kind.dtype is f32
    return found


x: Any = hole("x", dtypes=f32)
q: Any = hole("q", dtypes=(i8, u8, i32))
s: Any = closed("s", dtypes=f32)
z: Any = closed("z", dtypes=(f32, i32))
o: Any = closed("o", dtypes=(i8, u8, i32))
low, high, into = holes("low high into")


def holds(m: PatternMatch) -> bool:
    """Whether the bounds are whole numbers of the dtype."""
    if not isinstance(m.into, DType) or m.into not in (i8, u8):
        return False
    bottom, top = m.into.bounds
    if m.low is None or m.high is None or not bottom <= m.low <= m.high <= top:
        return False
    return bool(int(m.low) == m.low and int(m.high) == m.high)


def seen(m: PatternMatch) -> Expr | None:
    """The operator that rounds."""
    if not holds(m):
        return None
    zero = Const(m.into, (), b"\0")
    if "z" in m.filling:
        array = value_of(m.z)
        if array is None or not _is_of(array, m.into):
            return None
        zero = const(array.astype(m.into.numpy), m.into)
    ends = (int(m.low), int(m.high))
    plain = (None, None) if ends == tuple(map(int, m.into.bounds)) else ends
    return quantise(m.x, m.s, zero, "even", *plain)


def _is_of(values: Any, dtype: DType) -> bool:
    bottom, top = dtype.bounds
    wide = values.astype(np.float64)
    return bool(np.all((wide == np.rint(wide)) & (wide >= bottom) & (wide <= top)))


def restored(m: PatternMatch) -> Expr | None:
    """The operator that gives numbers back."""
    if "z" not in m.filling:
        return dequantise(m.q, m.s, const(0, _dtype(m.q)))
    if (array := value_of(m.z)) is None:
        return None
    own = _dtype(m.q)
    kind = own if _is_of(array, own) else i32
    return dequantise(m.q, m.s, const(array.astype(kind.numpy), kind))


def _dtype(of: Expr) -> DType:
    kind = type_of(of)
    assert isinstance(kind, TensorType)
    return kind.dtype


def tied_up(m: PatternMatch) -> Expr:
    """The same step, but the upper one in the middle of two."""
    return quantise(m.x, m.s, m.o, "up", m.low, m.high)


# fmt: off
RECOGNISE: Final[Pack] = pack(
    "recognise",
    rule("see-quantise",           cast(clip(round_(x / s) + z, low, high), into), seen),
    rule("see-quantise-at-zero",   cast(clip(round_(x / s), low, high), into),     seen),
    rule("see-dequantise",         cast(cast(q, i32) - z, f32) * s,                restored),
    rule("see-dequantise-at-zero", cast(q, f32) * s,                               restored),
    version="1",
    doc="Quantisation that was written out in arithmetic becomes its operators again.",
)

TIES_UP: Final[Pack] = pack(
    "ties-up",
    rule("tie-up", quantise(x, s, o, "even", low, high), tied_up, float=STEP),
    version="1",
    doc="Numbers in the middle of two steps go to the upper one, as with a shift to the right.",
)
# fmt: on
