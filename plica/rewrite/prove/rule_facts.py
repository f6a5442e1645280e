"""What is known while a rule is read: unknown numbers, facts of shapes, and what is well formed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from plica.core import Name, Term
from plica.ir.loop.scalar import Scalar, ScalarVar
from plica.ir.type import DType
from plica.rewrite.packs.composite import own_dtype
from plica.rewrite.pattern import Derived, Hole
from plica.rewrite.prove.open_shape import OpenShape
from plica.rewrite.prove.open_tensor import OpenFold, OpenTensor, OpenTensors, Unprovable
from plica.rewrite.prove.shape_facts import ShapeFacts

Dtypes: TypeAlias = Mapping[str, DType | None]
"""The dtypes of holes: of tensors, and the values of settings that are dtypes or None."""
EMPTY: Final[Mapping[str, bool]] = MappingProxyType({})


class RuleFacts:
    """The facts of one rule with the dtypes of its holes: both sides are read with the same."""

    def __init__(
        self, dtypes: Dtypes, flags: Mapping[str, bool] = EMPTY, reorders: bool = False
    ) -> None:
        self.dtypes = dtypes
        self.flags = flags
        self.reorders = reorders
        """Whether sums of floats may be made in another order."""
        self.theorems: dict[str, None] = {}
        """The laws of the normal forms that were used."""
        self.facts = ShapeFacts(self.theorems)
        self.atoms: dict[tuple[Any, ...], ScalarVar] = {}
        self.keys: dict[Term, tuple[Any, ...]] = {}
        self.folds: dict[Scalar, OpenFold] = {}
        self.opaque: set[Scalar] = set()
        """Unknown numbers that operators with unknown attributes give."""
        self.positive: set[str] = set()
        """Constants whose elements are all above zero."""
        self.plain: set[str] = set()
        """Scalar constants that are neither nan nor -0.0."""
        self.not_above: dict[str, str] = {}
        """Scalar constants that are not above another."""
        self.assumes = True
        self.seen: set[tuple[Any, ...]] = set()
        self.memo = OpenTensors()
        self.cuts: dict[OpenTensor, tuple[OpenTensor, Any, Any, int]] = {}
        """Parts of splits: of what, into how many, along which axis, which of them."""
        self.splats: set[str] = set()
        self.turned: dict[str, Hole] = {}
        """Constants that have as many axes as an order, but for leading ones of size 1."""

    def atom(self, key: tuple[Any, ...], dtype: DType, hint: str) -> ScalarVar:
        """The unknown number of a key."""
        if key not in self.atoms:
            var = self.atoms[key] = ScalarVar(Name(hint, len(self.atoms)), dtype)
            self.keys[var] = key
        return self.atoms[key]

    def use(self, theorem: str) -> None:
        """Notes a law by which a normal form was made."""
        self.theorems[theorem] = None

    def dtype_of(self, name: str) -> DType:
        """The dtype of the tensor that fills a hole."""
        if (dtype := self.dtypes[name]) is None:
            raise Unprovable(f"{name} is no tensor")
        return dtype

    def flag(self, value: Any) -> Any:
        """The value of an attribute that is a condition, where it is decided."""
        return self.flags.get(value.name, value) if isinstance(value, Hole) else value

    def is_known(self, key: tuple[Any, ...]) -> bool:
        """Whether the left side or the guard says so."""
        return key in self.seen

    def value(self, value: Any) -> Any:
        """An attribute's value; a hole of a dtype has the dtype chosen for it."""
        if isinstance(value, Derived) and value.function is own_dtype:
            given, part = value.args
            return self.memo[part].dtype if (own := self.value(given)) is None else own
        return self.dtypes.get(value.name, value) if isinstance(value, Hole) else value

    def legal(self, key: tuple[Any, ...], what: str) -> None:
        """On the left side: remember a well-formed call; on the right side: it must be known."""
        if self.assumes:
            self.seen.add(key)
        elif key not in self.seen:
            raise Unprovable(f"{what} may not be well formed on the right side")

    def reshape(self, of: OpenTensor, shape: OpenShape) -> OpenTensor:
        """A tensor in another shape of as many elements."""
        if self.assumes:
            self.facts.learn_count(of.shape, shape)
        elif not self.facts.is_same_count(of.shape, shape):
            raise Unprovable("the right side may not have as many elements as that shape")
        change = self.facts.reshape
        return OpenTensor(of.dtype, shape, lambda index: of.at(change(index, shape, of.shape)))
