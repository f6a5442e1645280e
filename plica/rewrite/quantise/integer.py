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
"""

from __future__ import annotations

from typing import Final

from plica.core import post_order
from plica.ir.graph import Apply, Module
from plica.ir.type import TensorType, f32, infer, type_of
from plica.rewrite.closed import is_closed
from plica.rewrite.graph import find_pass
from plica.rewrite.history import History, begun
from plica.rewrite.quantise.annotate import LAYERS, AnnotationRow
from plica.rewrite.quantise.realise import REALISE
from plica.rewrite.quantise.recognise import RECOGNISE, TIES_UP

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
    seen = [each.rule.name for each in history.derivation.steps]
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
