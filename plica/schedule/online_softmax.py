"""Online softmax: softmax between two products as one fold, so that no score is kept.

    s[i, k] = f(sum over d of q[i, d] * key[k, d])              the scores, as they were
    m[i]    = max over k of s[i, k]
    e[i, k] = exp(s[i, k] - m[i])
    t[i]    = sum over k of e[i, k]                        -->  m, t, a[i, j] = combine(s[i, k], 1, v[k, j])
    y[i, j] = sum over k of e[i, k] / t[i] * v[k, j]            y[i, j] = a[i, j] / t[i]

The greatest score, the sum of exponentials and the weighted sum are folded together.  Two triples
are joined by rescaling both to the greater of their greatest scores:

    (m, t, a) + (n, u, b) = (max(m, n), t * exp(m - max) + u * exp(n - max), a * … + b * …)

That is the law exp(s - m) = exp(s - n) * exp(n - m).  What follows of each weight is anything linear
in it that does not depend on k (a quotient, a guard): it is done to the sum.  What the scores are is
their own affair: scales, biases, masks and grouped heads stand in `f`, or in how sides are read.

Sums are joined in another order, and rounded elsewhere: the contract is `reassociates`.
"""  # noqa: E501  # equations are a line each

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from plica.core import Name, Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import Combine
from plica.ir.loop.stage import Each, Fold
from plica.ir.loop.stages import Names, Stages, inlined, loads, reductions, stages
from plica.ir.type import bf16, f16, f32, f64

Linear: TypeAlias = Callable[[sc.Scalar], sc.Scalar]  # an operation that distributes over a sum


def _rescaling() -> Combine:
    """Greatest, sum of exponentials and weighted sum of some scores, joined with those of others.

    Nothing exceeds minus infinity: a maximum of that value has no terms.
    """
    old, new = (
        tuple([sc.ScalarVar(Name(word, at), f32) for at in range(3)]) for word in ("old", "new")
    )
    most = sc.Max(old[0], new[0])

    def share(top: sc.Scalar) -> sc.Scalar:
        return sc.Select(
            sc.Eq(top, _LEAST), sc.Lit(0.0, f32), sc.Intrinsic("exp", (sc.Sub(top, most),))
        )

    joins = [old[at] * share(old[0]) + new[at] * share(new[0]) for at in (1, 2)]
    return Combine((_LEAST, sc.Lit(0.0, f32), sc.Lit(0.0, f32)), old, new, (most, *joins))


_LEAST: Final = sc.Lit(-math.inf, f32)

RESCALING: Final = _rescaling()
"""How the greatest of some scores, the sum of their exponentials and a weighted sum are joined."""


@lru_cache(maxsize=256)
def online_softmax(of: Stages) -> Stages | None:
    """Softmax between two products as one fold, or None for other stages."""
    every = [stage for stage in of.stages if isinstance(stage, Each)]
    if len(every) != len(of.stages) or len(of.outputs) != 1:
        return None
    inlined = folds_and_last(every)
    folds = [each for each in inlined if isinstance(each.value, sc.Reduce)]
    if len(folds) != 4:
        return None
    held, top, total, mixed = folds
    if inlined[-1] is mixed:  # nothing follows
        inlined.append(Each(mixed.out, mixed.axes, sc.Load(mixed.out, mixed.axes)))
    if len(inlined) != 5:
        return None
    if (product := _weighted(mixed, held)) is None:
        return None
    weight, value, key = product
    greatest = [load for load in loads(weight) if load.buffer is top.out]
    if len(set(greatest)) != 1:
        return None
    score = _reduced(top, greatest[0], key, "max")
    element = None if score is None else sc.Intrinsic("exp", (sc.Sub(score, greatest[0]),))
    sums = [load for load in loads(weight) if load.buffer is total.out]
    if score is None or element is None or len(set(sums)) > 1:
        return None
    if not sums or _reduced(total, sums[0], key, "sum") is not element:
        return None
    if (after := _linear(weight, element, key)) is None:
        return None
    return _folded(of, (held, mixed, inlined[-1]), (score, value, key), after, (top.out, total.out))


def folds_and_last(every: list[Each]) -> list[Each]:
    """The reducing stages and the last one; others are inlined."""
    held: dict[sc.Buffer, Each] = {}
    found: list[Each] = []
    for stage in every:
        value = inlined(stage.value, held)
        new = Each(stage.out, stage.axes, value)
        if reductions(value) or stage is every[-1]:
            found.append(new)
        else:
            held[stage.out] = new
    return found


def _weighted(mixed: Each, held: Each) -> tuple[sc.Scalar, sc.Scalar, sc.ScalarVar] | None:
    """Weights and what they weigh, of a sum of products along the scores."""
    whole = mixed.value
    if not isinstance(whole, sc.Reduce) or whole.combiner != "sum" or len(whole.axes) != 1:
        return None
    if not isinstance(whole.body, sc.Mul):
        return None
    sides = [whole.body.left, whole.body.right]
    reads = [any(load.buffer is held.out for load in loads(side)) for side in sides]
    if sum(reads) != 1:
        return None
    weight, value = sides if reads[0] else sides[::-1]
    return weight, value, whole.axes[0]


def _reduced(of: Each, at: sc.Load, key: sc.ScalarVar, word: str) -> sc.Scalar | None:
    """The reduction of a stage along the scores, at the place where it is read."""
    whole = of.value
    if not isinstance(whole, sc.Reduce) or whole.combiner != word or len(whole.axes) != 1:
        return None
    there: dict[Term, Term] = dict(zip(of.axes, at.indices, strict=True))
    body = whole.body
    if isinstance(body, sc.Cast) and body.dtype is f64:  # terms of f32 are added up in f64
        body = body.value
    return substitute(body, {**there, whole.axes[0]: key})


def _linear(of: sc.Scalar, element: sc.Scalar, key: sc.ScalarVar) -> Linear | None:
    """The operation on an element, if it distributes over a sum; else None."""
    steps: list[Linear] = []

    def is_free(term: sc.Scalar) -> bool:
        return key not in free_vars(term)

    while of is not element:
        match of:
            case sc.Div(left, right) if is_free(right):
                steps.append(lambda x, by=right: sc.Div(x, by))  # type: ignore[misc]  # a quotient
                of = left
            case sc.Mul(left, right) if is_free(right):
                steps.append(lambda x, by=right: sc.Mul(x, by))  # type: ignore[misc]  # a product
                of = left
            case sc.Mul(left, right) if is_free(left):
                steps.append(lambda x, by=left: sc.Mul(by, x))  # type: ignore[misc]  # a product
                of = right
            case sc.Select(condition, sc.Lit(value) as zero, other) if (
                is_free(condition) and value == 0
            ):
                steps.append(lambda x, c=condition, z=zero: sc.Select(c, z, x))  # type: ignore[misc]  # defaults bind the loop's values
                of = other
            case sc.Select(condition, other, sc.Lit(value) as zero) if (
                is_free(condition) and value == 0
            ):
                steps.append(lambda x, c=condition, z=zero: sc.Select(c, x, z))  # type: ignore[misc]  # defaults bind the loop's values
                of = other
            case sc.Cast(sc.Cast(inner, narrow), wide) if wide is f32 and narrow in (f16, bf16):
                of = inner  # rounded elsewhere
            case _:
                return None

    def whole(x: sc.Scalar) -> sc.Scalar:
        for step in reversed(steps):
            x = step(x)
        return x

    return whole


def _folded(
    of: Stages,
    parts: tuple[Each, Each, Each],
    terms: tuple[sc.Scalar, sc.Scalar, sc.ScalarVar],
    after: Linear,
    rows: tuple[sc.Buffer, sc.Buffer],
) -> Stages:
    """The scores, the fold, and its epilogue."""
    held, mixed, last = parts
    score, value, key = terms
    assert isinstance(mixed.value, sc.Reduce)
    names = Names(of)
    triple = tuple([sc.Buffer(names.name(word), mixed.out.shape, f32)
                    for word in ("greatest", "total", "mixed")])  # fmt: skip
    fold = Fold(
        triple, mixed.axes, (key,), mixed.value.extents, RESCALING, (score, sc.Lit(1.0, f32), value)
    )

    def filled(node: Term) -> Term:
        if not isinstance(node, sc.Load) or node.buffer is not mixed.out:
            return node
        there: Mapping[Term, Term] = dict(zip(mixed.axes, node.indices, strict=True))
        scalar = after(sc.Load(triple[2], mixed.axes))

        def told(inner: Term) -> Term:
            if isinstance(inner, sc.Load) and inner.buffer in rows:
                return sc.Load(triple[rows.index(inner.buffer)], mixed.axes)
            if isinstance(inner, sc.Cast) and sc.dtype_of(inner.value) is inner.dtype:
                return inner.value
            return inner

        return substitute(map_bottom_up(told, scalar), there)

    result = map_bottom_up(filled, last.value)
    return stages(of.inputs, (held, fold, Each(last.out, last.axes, result)))
