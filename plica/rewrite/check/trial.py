"""One instance of a rule on trial: both sides interpreted on data sets, compared by the contract.

Both sides form one module, so a data set costs one run. Contracts are tested as follows. `exact`
and `signless_zero`: equal bits. `fused` and `reassociates`: an equation of real numbers, so the
sides must also agree in f64 to f64's precision; and where no product rounds, `fused` changes
nothing. If an intermediate exceeds the range of a narrower float, only f64 is compared, and the
case is counted separately; except if the right side turns finite constants into infinities on its
own, which is a defect.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import attrs
import numpy as np

from plica.core import EvaluationError, Term, free_vars, name_of, post_order
from plica.ir.contract import fused, signless_zero
from plica.ir.graph.expression import Apply, Const, Expr, Tuple
from plica.ir.interpret.interpreter import interpret
from plica.ir.op.record import tensor_of
from plica.ir.type import DType, TensorType, type_of
from plica.rewrite.check.compare import array_in_f64, difference, in_f64, widened
from plica.rewrite.check.instance import Instance
from plica.rewrite.check.probe import ill_formed, types_differ
from plica.rewrite.check.product import products_are_exact, sums_of_products
from plica.rewrite.check.report import closed
from plica.rewrite.check.sample import Sets
from plica.rewrite.rule import Rule

Inputs: TypeAlias = Sequence[np.ndarray[Any, Any]]

MARGIN: Final = 2.0**20
"""The distance from the ends of a range that data keep if no wider dtype exists."""


@attrs.frozen
class SidesDiffer:
    """A difference of two sides, with both values; on the f64 instance if it exists."""

    made: Instance
    after: Term
    left: Any
    right: Any
    reason: str


@attrs.frozen
class SidesAgree:
    """Two sides that agree; `overflowed` where only f64 could tell, `has_value` if the left has."""

    overflowed: bool = False
    has_value: bool = True


class Trial:
    """An instance, its right side, and the values of both."""

    def __init__(self, rule: Rule, made: Instance, after: Term) -> None:
        self.rule, self.made, self.after = rule, made, after

    @cached_property
    def ill_made(self) -> str | None:
        """Why the right side can't stand for the left, whatever the data are."""
        wrong = ill_formed(self.after) or types_differ(self.made.term, self.after)
        if wrong is not None:
            return wrong
        beyond = free_vars(self.after) - free_vars(self.made.term)
        loose = sorted(str(name_of(each)) for each in beyond)
        if not loose:
            return None
        return f"the right side speaks of {', '.join(loose)}, which nothing binds there"

    @cached_property
    def types(self) -> Sets:
        """The dtypes and shapes of the inputs."""
        return [(tensor_of(var).dtype, array.shape) for var, array in self.made.inputs]

    @cached_property
    def constants(self) -> tuple[np.ndarray[Any, Any], ...]:
        """The constants of the left side, which data may be compared with or added to."""
        return tuple(each.numpy() for each in post_order(self.made.term) if isinstance(each, Const))

    @cached_property
    def wide(self) -> Trial | None:
        """The trial in f64, or None if nothing is narrower or it is ill-typed.

        A rule that is about narrow floats alone does not apply there: its right side is widened.
        """
        made = widened(self.made)
        if made is None:
            return None
        after = self.rule.at(made.term)
        after = in_f64(self.after) if after is None else after
        if not isinstance(after, Expr):
            return None
        trial = Trial(self.rule, made, after)
        return trial if trial.ill_made is None else None

    def outcome(self, inputs: Inputs) -> SidesDiffer | SidesAgree:
        """Whether the sides agree on these arrays."""
        try:
            found = self.values(inputs)
        except EvaluationError:
            return self._failure(inputs)
        contract = self.rule.contract
        reason = self.apart(found, inputs)
        if contract <= signless_zero:
            return self._answer(inputs, found, reason)
        if (
            reason is None
            and contract is fused
            and products_are_exact(self._known_values(found, inputs))
        ):
            reason = difference(found[0], found[1], signless_zero, 0.0)
        wide = self.wide
        if wide is None:
            far = self._leaves_range(found, inputs, MARGIN) or _overflows(found[2:], inputs)
            if reason is not None and far and not self._constants_overflow(found):
                return SidesAgree(overflowed=True)
            return self._answer(inputs, found, reason)
        again = [array_in_f64(array) for array in inputs]
        try:
            widely = wide.values(again)
        except EvaluationError:
            return self._answer(inputs, found, reason)
        apart = wide.apart(widely, again)
        if reason is None and apart is not None and contract.rel == 0:
            return wide._answer(again, widely, f"in f64 {apart}")
        if reason is None or self._constants_overflow(found):
            return self._answer(inputs, found, reason)
        if apart is not None and _overflows(widely[2:], again):
            return SidesAgree(overflowed=True)
        if apart is None and (
            self._leaves_range(widely, again) or _overflowed(found[2:], widely[2:])
        ):
            return SidesAgree(overflowed=True)
        return self._answer(inputs, found, reason)

    def values(self, inputs: Inputs) -> tuple[Any, ...]:
        """The values of the left side, the right side and, if the contract needs them, all
        intermediates."""
        found: tuple[Any, ...] = interpret(self._module, *inputs)
        return found

    def apart(self, found: Sequence[Any], inputs: Inputs) -> str | None:
        """Why the values of the sides differ under the contract, or None.

        Sums inside of operators may cancel, so their products count before a difference does.
        """
        contract = self.rule.contract
        sides, longer = (found[0], found[1]), max(1, self._longer)
        if contract <= signless_zero:
            return difference(*sides, contract, 0.0)
        reason = difference(*sides, contract, longer * self._heaviest(found, inputs))
        if reason is None:
            return None
        inside = sums_of_products(self._known_values(found, inputs))
        return difference(*sides, contract, longer * inside) if inside else reason

    def _heaviest(self, found: Sequence[Any], inputs: Inputs) -> float:
        """The largest sum of magnitudes among intermediates and inputs."""
        heaviest = 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for value in (*found[2:], *inputs):
                sizes = np.abs(value.astype(np.float64))
                heaviest = max(heaviest, float(sizes[np.isfinite(sizes)].sum()))
        return heaviest

    def at(self, inputs: Inputs) -> Instance:
        """The instance with other data."""
        pairs = zip((var for var, _ in self.made.inputs), inputs, strict=True)
        return attrs.evolve(self.made, inputs=tuple(pairs))

    def _answer(
        self, inputs: Inputs, found: Sequence[Any], reason: str | None
    ) -> SidesDiffer | SidesAgree:
        if reason is None:
            return SidesAgree()
        return SidesDiffer(self.at(inputs), self.after, found[0], found[1], reason)

    def _failure(self, inputs: Inputs) -> SidesDiffer | SidesAgree:
        """What it means that a side fails: nothing where the left side has no value either."""
        try:
            left = interpret(closed(self.made.term, self.made), *inputs)
        except EvaluationError:
            return SidesAgree(has_value=False)
        assert isinstance(self.after, Expr)
        try:
            interpret(closed(self.after, self.made), *inputs)
        except EvaluationError as error:
            reason = f"the right side fails: {error}"
            return SidesDiffer(self.at(inputs), self.after, left, None, reason)
        return SidesAgree(has_value=False)  # a part that neither side looks at

    @cached_property
    def _parts(self) -> tuple[Expr, ...]:
        """The tensors both sides are made of; none that speaks of a variable bound in them."""
        if self.rule.contract <= signless_zero:
            return ()
        sides = (_parts_of(self.made.term, self.made), _parts_of(self.after, self.made))
        return tuple(dict.fromkeys(each for side in sides for each in side))

    @cached_property
    def _longer(self) -> int:
        sides = (self.made.term, self.after)
        return max(len(_parts_of(side, self.made)) for side in sides)

    @cached_property
    def _module(self) -> Any:
        assert isinstance(self.after, Expr)
        return closed(Tuple((self.made.term, self.after, *self._parts)), self.made)

    @cached_property
    def _folded(self) -> tuple[int, ...]:
        """Which parts the right side alone makes of finite constants, the left side not."""
        if not all(map(_is_finite, self.constants)):
            return ()
        before = set(post_order(self.made.term))
        return tuple(
            at for at, part in enumerate(self._parts) if part not in before and not free_vars(part)
        )

    def _constants_overflow(self, found: Sequence[Any]) -> bool:
        """Whether constants alone overflow on the right side: that affects all data."""
        return any(not _is_finite(found[2 + at]) for at in self._folded)

    def _known_values(self, found: Sequence[Any], inputs: Inputs) -> dict[Expr, Any]:
        """The values of parts and variables."""
        values: dict[Expr, Any] = dict(zip(self._parts, found[2:], strict=True))
        return values | dict(zip((var for var, _ in self.made.inputs), inputs, strict=True))

    def _leaves_range(self, values: Sequence[Any], inputs: Inputs, margin: float = 1.0) -> bool:
        """Whether a part is too large or too small for the narrowest float that occurs."""
        floats = [of for of in _dtypes(self.made.term, self.after) if of.is_float]
        greatest = min((of.greatest for of in floats), default=np.inf) / margin
        # Below this precision is lost.
        least = max((_least(of) for of in floats), default=0.0) * margin
        with np.errstate(invalid="ignore"):
            for value in (*values[2:], *inputs):
                sizes = np.abs(value.astype(np.float64))
                far = (sizes > greatest) & (sizes < np.inf) | (sizes < least) & (sizes > 0)
                if np.any(far):
                    return True
        return False


def _least(of: DType) -> float:
    """The least number of a float's range that still has all its digits when it is halved."""
    return float(2.0 ** (2 - (1 << of.row.exponent - 1) + of.row.digits))


def _is_finite(value: np.ndarray[Any, Any]) -> bool:
    return bool(np.all(np.isfinite(value.astype(np.float64))))


def _overflows(parts: Sequence[Any], inputs: Inputs) -> bool:
    """Whether an intermediate of finite inputs is not finite: no wider float can decide."""
    with np.errstate(invalid="ignore", over="ignore"):
        return all(map(_is_finite, inputs)) and not all(map(_is_finite, parts))


def _overflowed(narrow: Sequence[Any], wide: Sequence[Any]) -> bool:
    """Whether a part is not finite that is so in f64: a sum may leave the range on its way."""
    return any(
        bool(np.any(~np.isfinite(a.astype(np.float64)) & np.isfinite(b.astype(np.float64))))
        for a, b in zip(narrow, wide, strict=False)
        if a.shape == b.shape
    )


def _parts_of(side: Term, made: Instance) -> list[Expr]:
    known = frozenset(made.variables)
    return [
        node
        for node in post_order(side)
        if isinstance(node, Apply | Const)
        and isinstance(type_of(node), TensorType)
        and free_vars(node) <= known
    ]


def _dtypes(*sides: Term) -> list[DType]:
    """The dtypes that terms and their parts have."""
    found: dict[DType, None] = {}
    for side in sides:
        for node in post_order(side):
            of = type_of(node) if isinstance(node, Expr) else None
            if isinstance(of, TensorType):
                found[of.dtype] = None
    return list(found)
