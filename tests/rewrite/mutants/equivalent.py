# ruff: noqa: E501  # rows of a table
"""Mutants that are no mistakes: by a proof, or because a million cases did not tell them apart.

>>> from tests.rewrite.mutants.draw import named_mutants
>>> [proof_of(each) for each in named_mutants()]
[None, None, None]
"""

from __future__ import annotations

import random
import re
from math import prod
from typing import Final

from plica.core import IllTyped, Term, map_bottom_up, post_order
from plica.ir.contract import APPROX
from plica.ir.graph.expression import Apply, Expr, Var
from plica.ir.loop.scalar import Scalar
from plica.ir.type import DTYPES, TensorType, tensor, type_of
from plica.rewrite.check.data import TAPE, reader, sizes
from plica.rewrite.check.index import check_index
from plica.rewrite.check.instance import Instance
from plica.rewrite.check.probe import offered
from plica.rewrite.check.sample import samples
from plica.rewrite.check.trial import SidesDiffer, Trial
from plica.rewrite.check.verdict import Proved
from plica.rewrite.match import match
from plica.rewrite.mutate.mutant import Mutant
from tests.rewrite.mutants.draw import shipped
from tests.rewrite.mutants.rule_edit import right_of

GUARDS: Final[dict[str, str]] = {
    "joined": "the equation holds of all shapes, since broadcasting is associative; "
    "the guard keeps a constant from growing"
}
"""Guards about profitability, and why the rule is valid without them."""
# fmt: off
KNOWN: Final[dict[tuple[str, str], str]] = {
    ("tile-once", "any when of ones"): "x has the type of the tile only where nothing is repeated, or where nothing is there",
    **dict.fromkeys((("fast-softmax", "any dtypes of x"), ("fast-log-softmax", "any dtypes of x")), "its error is one of f32 in every float dtype, and 1e-4 is claimed; others have no softmax"),
    ("take-at-known-place", "any dtypes of n"): "an index is its number in every integer dtype, and take takes no others",
    **dict.fromkeys([(f"{name}-is-broadcast", f"argument of broadcast_to through {each}") for name in ("ones", "ones-like", "zeros", "zeros-like") for each in DTYPES], "zero and one are numbers of every dtype"),
    ("sign-negative", "product of the flip"): "signs are 1, 0, -1 and nan: no product is rounded",
    ("sign-negative", "product of the transpose"): "no product of signs is rounded",
    ("sign-negative", "sum of the flip"): "no sum of so few signs is rounded",
    ("sign-negative", "sum of the transpose"): "no sum of so few signs is rounded",
    ("reshape-of-widened", "any dtypes of n"): "a reshape moves elements, whatever they are",
    ("max-pool-pad-relu", "exact for signless_zero"): "relu gives no -0.0, every window has a number that it gave, and of zeros of both signs a maximum is 0.0",
    ("prod-of-all-reshaped", "fused for reassociates"): "a product is made in row-major order, which a reshape keeps",
    **dict.fromkeys([(f"conv-winograd-{size}", f"reassociates for {contract}") for size in ("2x2", "4x4", "2x3", "4x3") for contract in ("approx(0.0001)", "approx(1e-05)", "approx(1e-04)")], "an identity of real numbers, whose roundings are those of its parts"),
}
# fmt: on
"""Mutants of single rules that are right, and why."""
SHAPES: Final = ("full_like", "zeros_like", "ones_like")
"""Operators that ask an argument for its shape alone."""
FILLED: Final = frozenset({"full", "zeros", "ones", *SHAPES})
CASES: Final = 1_000_000
INSTANCES: Final = 12
LENGTH: Final = 1 << 14


def proof_of(mutant: Mutant) -> str | None:
    """Why a mutant is valid, or None."""
    if isinstance(mutant.rule.left, Scalar):
        verdict = check_index(mutant.rule)
        return str(verdict) if isinstance(verdict, Proved) else None
    if _gives_back(mutant):
        return "what it gives is the very term that it is given"
    if re.fullmatch(r"logical_(\w+) becomes bitwise_\1", mutant.what):
        return "a logical operator takes truth values alone, and of these the bits are the values"
    if any(mutant.what.startswith(f"argument of {name} through") for name in SHAPES):
        return "the elements of the argument are not asked for"
    if mutant.what == "elements one place on" and _is_filled(mutant):
        return "all elements are one number"
    known = KNOWN.get((mutant.base, mutant.what))
    if known is not None:
        return known
    if mutant.what.startswith("any dtypes of"):
        if mutant.base.startswith("bf16-") and mutant.rule.contract.level == APPROX:
            # bf16 has the exponents of f32: two arguments are rounded, and the result.
            return "three roundings of 2**-8 are within its contract, approx(2**-6)"
        if mutant.base.startswith(("bf16-split-", "f16-split-")):
            return "a part of what is cast is the cast of that part, whatever the dtype"
    lost = [why for guard, why in GUARDS.items() if mutant.what == f"no guard {guard}"]
    return lost[0] if lost else None


def _gives_back(mutant: Mutant) -> bool:
    """Whether both sides are one term: an operator has become that of the left side, say."""
    if mutant.kind != "operator" or mutant.rule.when is not None:
        return False
    ways = [(each, match(mutant.rule.left, each)) for each in _instances(mutant)]
    return bool(ways) and all(
        filled is not None and right_of(mutant.rule, filled) is each for each, filled in ways
    )


def _is_filled(mutant: Mutant) -> bool:
    """Whether a shifted tensor is constant, in every form it is written."""
    made = [mutant.rule.at(each) for each in _instances(mutant)]
    moved = [each for each in made if isinstance(each, Apply) and each.op == "roll"]
    return bool(moved) and all(_is_one_number(each.args[0]) for each in moved)


def _is_one_number(term: Expr) -> bool:
    if not isinstance(term, Apply):
        return False
    if term.op == "broadcast_to":
        inner = type_of(term.args[0])
        return isinstance(inner, TensorType) and not inner.shape
    return term.op in FILLED


def _instances(mutant: Mutant) -> list[Expr]:
    """Some terms that the left side of a mutant may match."""
    source = random.Random(mutant.name)
    found = [offered(mutant.rule, reader(source.randbytes(TAPE))) for _ in range(INSTANCES)]
    return [each.term for each in found if each is not None]


def cases_without_difference(mutant: Mutant, wanted: int = CASES) -> int:
    """On how many elements the sides agree, 0 where they differ or elements are not cases.

    For a removed guard, instances that it excluded count.
    """
    bases = {each.name: each for each in shipped()} if mutant.kind == "guard" else {}
    base = bases.get(mutant.base)
    source = random.Random(mutant.name)
    count = 0
    for _ in range(20 * wanted // LENGTH):
        made = offered(mutant.rule, reader(source.randbytes(TAPE)))
        large = None if made is None else _enlarged(made) or _batched(made)
        after = None if large is None else mutant.rule.at(large.term)
        if large is None or not isinstance(after, Expr) or not _keeps_cases(large, after):
            continue
        if base is not None and base.at(large.term) is not None:
            continue
        trial = Trial(mutant.rule, large, after)
        if trial.ill_made is not None:
            return 0
        for inputs in samples(trial.types, source.randrange(1 << 30)):
            if isinstance(trial.outcome(inputs), SidesDiffer):
                return 0
            count += LENGTH
        if count >= wanted:
            return count
    return 0


def _enlarged(made: Instance) -> Instance | None:
    """The instance on long vectors, or None if it has no floats."""
    types = [var.type for var in made.variables]
    floats = [each.dtype for each in types if isinstance(each, TensorType) and each.dtype.is_float]
    if not floats or len(floats) < len(types):
        return None
    others = [
        Var(var.name, tensor((LENGTH,), of)) for var, of in zip(made.variables, floats, strict=True)
    ]
    swap: dict[Term, Term] = dict(zip(made.variables, others, strict=True))
    term = map_bottom_up(lambda node: swap.get(node, node), made.term)
    arrays = next(iter(samples([(of, (LENGTH,)) for of in floats], 0)))
    large = Instance(term, tuple(zip(others, arrays, strict=True)), tuple(others))
    return large if _is_elementwise(term) else None


def _batched(made: Instance) -> Instance | None:
    """The instance with one more axis in front, along which everything is done alike."""
    types = [var.type for var in made.variables]
    shapes = [sizes(each) for each in types if isinstance(each, TensorType) and each.dtype.is_float]
    if not shapes or len(shapes) < len(types) or len({*shapes}) > 1 or not prod(shapes[0]):
        return None
    count = max(1, LENGTH // prod(shapes[0]))
    floats = [each.dtype for each in types if isinstance(each, TensorType)]
    others = [
        Var(var.name, tensor((count, *shapes[0]), of))
        for var, of in zip(made.variables, floats, strict=True)
    ]
    swap: dict[Term, Term] = dict(zip(made.variables, others, strict=True))
    term = map_bottom_up(lambda node: swap.get(node, node), made.term)
    if not _is_in_front(made.term, term, count):
        return None
    arrays = next(iter(samples([(of, (count, *shapes[0])) for of in floats], 0)))
    return Instance(term, tuple(zip(others, arrays, strict=True)), tuple(others))


def _is_in_front(one: Expr, many: Expr, count: int) -> bool:
    """Whether each operator works on the last axes alone: it has them counted from the end."""
    was_applied, applied = (
        [node for node in post_order(each) if isinstance(node, Apply)] for each in (one, many)
    )
    if len(was_applied) != len(applied):
        return False
    for before, after in zip(was_applied, applied, strict=True):
        counted = [value for name, value in after.attrs if name == "axis"]
        if len(counted) < len(after.attrs) or not all(
            isinstance(value, int) and value < 0 for value in counted
        ):
            return False
        try:
            was, made = type_of(before), type_of(after)
        except IllTyped:
            return False
        if not isinstance(was, TensorType) or not isinstance(made, TensorType):
            return False
        if sizes(made) != (count, *sizes(was)):
            return False
    return True


def _keeps_cases(large: Instance, after: Expr) -> bool:
    """Whether every element, or every row, of the result is a separate case."""
    if len(sizes_of(large)) > 1:
        return True  # its operators were looked at one by one
    return _is_elementwise(after)


def sizes_of(large: Instance) -> tuple[int, ...]:
    """The shape of the inputs, which is one."""
    return tuple(large.inputs[0][1].shape)


def _is_elementwise(term: Expr) -> bool:
    """Whether no operator has attributes but words, and each makes vectors of vectors."""
    for node in post_order(term):
        if not isinstance(node, Apply):
            continue
        try:
            shapes = [_length(arg) for arg in node.args]
            words = all(isinstance(value, str) for _, value in node.attrs)
            if not words or not shapes or max(shapes) != _length(node):
                return False
        except IllTyped:
            return False
    return True


def _length(of: Expr) -> int:
    found = type_of(of)
    assert isinstance(found, TensorType)
    whole = sizes(found)
    return -1 if len(whole) > 1 else whole[0] if whole else 0
