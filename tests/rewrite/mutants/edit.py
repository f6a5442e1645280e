"""Edits of right sides: the mistakes that are made in one operator of a term."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from plica.core import IllTyped, post_order
from plica.ir.graph.expression import Apply, Const, Expr, const
from plica.ir.graph.operator import Mismatch, find
from plica.ir.type import DType, TensorType, bf16, bool_, dtype, f16, f32, f64, same_type, type_of
from plica.rewrite.check.data import sizes
from plica.rewrite.mutate.mutant import replaced
from plica.rewrite.mutate.term_edit import twins

Edit: TypeAlias = Callable[[Expr], Expr | None]
Named: TypeAlias = tuple[str, Edit]
Change: TypeAlias = Callable[[Apply], Expr | None]

NARROWER: Final[dict[DType, tuple[DType, ...]]] = {
    f64: (f32,), f32: (bf16, f16), f16: (bf16,),
    **{dtype(f"i{n}"): (dtype(f"i{n // 2}"), dtype("f32")) for n in (64, 32)},
    dtype("i16"): (dtype("i8"),), dtype("u64"): (dtype("u32"),), dtype("u32"): (dtype("u16"),),
    dtype("u16"): (dtype("u8"),),
}  # fmt: skip
"""The narrower dtypes that a value may be forced through."""
STRICT: Final = (
    ("less", "less_equal"), ("greater", "greater_equal"), ("less_equal", "less"),
    ("greater_equal", "greater"),
)  # fmt: skip


def operator_edits(sample: Expr) -> Iterator[Named]:
    """Another operator of the same arguments, attributes and result."""
    for node in _applied(sample):
        for name in twins(node.op):
            made = _renamed(name)(node)
            if made is not None and _like(made, node) is not None:
                yield f"{node.op} becomes {name}", _at_first(node.op, _renamed(name))


def axis_edits(sample: Expr) -> Iterator[Named]:
    """The next axis, or two axes changed round."""
    for node in _applied(sample):
        for attribute, value in node.attrs:
            if attribute in ("axis", "axes", "axis1") and value not in (None, ()):
                yield f"{attribute} of {node.op}", _at_first(node.op, _other_axis(attribute))


def dtype_edits(sample: Expr) -> Iterator[Named]:
    """A result, or an argument, cast through a narrower dtype."""
    if isinstance(of := type_of(sample), TensorType):
        for narrow in NARROWER.get(of.dtype, ()):
            yield f"through {narrow}", functools.partial(_through, narrow)
    for node in _applied(sample):
        for narrow in NARROWER.get(_dtype(node.args[0]), ()) if node.args else ():
            yield f"argument of {node.op} through {narrow}", _at_first(node.op, _first(narrow))


def boundary_edits(sample: Expr) -> Iterator[Named]:
    """One more or less: in a comparison, a window of elements, a bound, a constant."""
    for node in _applied(sample):
        for before, after in STRICT:
            if node.op == before:
                yield f"{before} becomes {after}", _at_first(before, _renamed(after))
        for attribute, _ in node.attrs:
            for step in (1, -1):
                change = functools.partial(_stepped, attribute, step)
                if change(node) is not None:
                    yield f"{attribute} of {node.op} {step:+}", _at_first(node.op, change)
        for at, arg in enumerate(node.args):
            if isinstance(arg, Const) and not arg.shape and arg.dtype is not bool_:
                change = functools.partial(_constant, at)
                yield f"constant of {node.op} +1", _at_first(node.op, change)
    if isinstance(type_of(sample), TensorType) and sizes(_tensor(sample))[-1:] > (1,):
        yield "elements one place on", _rolled


def broadcast_edits(sample: Expr) -> Iterator[Named]:
    """A broadcast left out, or one that lines axes up from the first, not from the last."""
    for node in _applied(sample):
        if node.op == "broadcast_to":
            yield "no broadcast", _at_first(node.op, lambda of: of.args[0])
            yield "broadcast from the first axis", _at_first(node.op, _source_first)
        elif len(node.args) == 2 and not node.attrs:
            yield f"{node.op} from the first axis", _at_first(node.op, first_axes)


def first_axes(node: Apply) -> Expr | None:
    """A binary operator whose smaller argument is lined up with the first axes of the other."""
    left, right = node.args
    a, b = _sizes(left), _sizes(right)
    if a is None or b is None or not a or not b:
        return None
    if len(a) == len(b):
        for at, (small, large) in enumerate(((a, b), (b, a))):
            if 1 in small and small[::-1] != small and small != large:
                turned = _reshaped(node.args[at], small[::-1])
                args = (turned, right) if at == 0 else (left, turned)
                return _like(Apply(node.op, args, node.attrs), node)
        return None
    if len(a) > len(b):
        args = (left, _reshaped(right, b + (1,) * (len(a) - len(b))))
    else:
        args = (_reshaped(left, a + (1,) * (len(b) - len(a))), right)
    return _like(Apply(node.op, args, node.attrs), node)


def _at_first(op: str, change: Change) -> Edit:
    """The change at the first use of an operator at which it can be made."""

    def edit(term: Expr) -> Expr | None:
        for node in post_order(term):
            if isinstance(node, Apply) and node.op == op:
                made = change(node)
                if made is not None and made is not node:
                    whole = replaced(term, node, made)
                    return whole if isinstance(whole, Expr) else None
        return None

    return edit


def _renamed(name: str) -> Change:
    """Another operator with the same attributes, where it reads them."""
    record = find(name)
    assert record is not None
    readers = {each.name: each.read for each in record.attributes}

    def change(node: Apply) -> Expr | None:
        if any(isinstance(readers[key](value), Mismatch) for key, value in node.attrs):
            return None
        return Apply(name, node.args, node.attrs)

    return change


def _other_axis(attribute: str) -> Change:
    def change(node: Apply) -> Expr | None:
        values = dict(node.attrs)
        found, shape = values[attribute], _sizes(node.args[0]) if node.args else None
        if shape is None or len(shape) < 2:
            return None
        if isinstance(found, int):
            values[attribute] = (found + 1) % len(shape)
        elif isinstance(found, tuple) and len(found) > 1:
            values[attribute] = (found[1], found[0], *found[2:])
            if node.op not in ("transpose", "slice"):  # there the order says something
                return None
        elif isinstance(found, tuple) and found:
            values[attribute] = ((found[0] + 1) % len(shape),)
        else:
            return None
        return Apply(node.op, node.args, tuple(sorted(values.items())))

    return change


def _through(narrow: DType, term: Expr) -> Expr | None:
    cast, of = find("cast"), type_of(term)
    assert cast is not None
    if not isinstance(of, TensorType) or narrow not in NARROWER.get(of.dtype, ()):
        return None
    if isinstance(term, Apply) and term.op == "cast" and _dtype(term.args[0]) is narrow:
        return None  # it comes from there
    return cast(cast(term, narrow), of.dtype)


def _first(narrow: DType) -> Change:
    def change(node: Apply) -> Expr | None:
        made = _through(narrow, node.args[0])
        return None if made is None else Apply(node.op, (made, *node.args[1:]), node.attrs)

    return change


SHIFTED: Final = ("shift", "k", "offset", "min", "max")


def _stepped(attribute: str, step: int, node: Apply) -> Expr | None:
    """An attribute one larger or smaller; windows are moved, so that results keep their size."""
    values = dict(node.attrs)
    found: Any = values.get(attribute)
    if attribute == "starts" and found and None not in (*found, *values["stops"]):
        values["starts"] = tuple(each + step for each in found)
        values["stops"] = tuple(each + step for each in values["stops"])
        if not all(isinstance(each, int) and each >= 0 for each in values["starts"]):
            return None
    elif attribute == "pad_width" and isinstance(found, tuple) and found:
        before, after = found[-1]
        if before + step < 0 or after - step < 0:
            return None
        values[attribute] = (*found[:-1], (before + step, after - step))
    elif attribute in SHIFTED and isinstance(found, int | float) and not isinstance(found, bool):
        values[attribute] = found + step
    elif attribute in SHIFTED and isinstance(found, tuple) and found:
        values[attribute] = (found[0] + step, *found[1:])
    else:
        return None
    return _like(Apply(node.op, node.args, tuple(sorted(values.items()))), node)


def _constant(at: int, node: Apply) -> Expr | None:
    of = node.args[at] if at < len(node.args) else None
    if not isinstance(of, Const) or of.shape or of.dtype is bool_:
        return None
    made = const((of.numpy() + 1).astype(of.dtype.numpy), of.dtype)
    return Apply(node.op, (*node.args[:at], made, *node.args[at + 1 :]), node.attrs)


def _rolled(term: Expr) -> Expr | None:
    roll = find("roll")
    assert roll is not None
    shape = _sizes(term)
    return None if not shape or shape[-1] < 2 else roll(term, (1,), (len(shape) - 1,))


def _source_first(node: Apply) -> Expr | None:
    inner, wide = _sizes(node.args[0]), _sizes(node)
    if not inner or wide is None or len(inner) == len(wide):
        return None
    turned = _reshaped(node.args[0], inner + (1,) * (len(wide) - len(inner)))
    return _like(Apply(node.op, (turned,), node.attrs), node)


def _reshaped(of: Expr, shape: tuple[int, ...]) -> Expr:
    reshape = find("reshape")
    assert reshape is not None
    return reshape(of, shape)


def _like(made: Expr, old: Expr) -> Expr | None:
    """The term where it has the type of another."""
    typed = _typed(made)
    return typed if typed is not None and same_type(type_of(typed), type_of(old)) else None


def _typed(made: Expr) -> Expr | None:
    try:
        type_of(made)
    except IllTyped:
        return None
    return made


def _applied(sample: Expr) -> list[Apply]:
    found: dict[str, Apply] = {}
    for node in post_order(sample):
        if isinstance(node, Apply):
            found.setdefault(node.op, node)
    return list(found.values())


def _tensor(of: Expr) -> TensorType:
    found = type_of(of)
    assert isinstance(found, TensorType)
    return found


def _dtype(of: Expr) -> DType:
    found = type_of(of)
    return found.dtype if isinstance(found, TensorType) else bool_


def _sizes(of: Expr) -> tuple[int, ...] | None:
    found = type_of(of)
    return sizes(found) if isinstance(found, TensorType) else None
