"""Elements: a side of a rule as the scalar at an arbitrary place of its result.

Each operator means its own record: an elementwise operator the scalar function that it is defined
by, an operator that only moves elements another place of its argument.  What fills a hole is a
tensor of any shape, read at a place; two reads are the same number where hole and place are.

The left side is taken to be well formed, and what it says of shapes is learnt; the right side must
follow from that, or there is no proof (`Unprovable`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from plica.core import Term, map_bottom_up, post_order
from plica.ir.graph.expression import Apply, Const, Expr, If, Literal, Project
from plica.ir.graph.operator import Mismatch, Operator, find
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.scalar import Combiner, Load, Scalar, Select
from plica.ir.loop.tensor import Compute, buffer
from plica.ir.type import DType, TensorType, bool_, f32
from plica.rewrite.instantiate import is_value
from plica.rewrite.packs.axes import composed, explicit_order, flipped, remaining
from plica.rewrite.packs.canonical import clipped_twice
from plica.rewrite.packs.rearrange import are_zeros, is_zero
from plica.rewrite.packs.shape import is_explicit, is_identity, is_order
from plica.rewrite.pattern import Derived, Hole, Rest
from plica.rewrite.prove.contraction import (
    CHANNELS,
    DOMAINS,
    TOTALS,
    contracted,
    einsum,
    scaled_by_channels,
    total_of_shift,
)
from plica.rewrite.prove.derived import (
    TRIANGLES,
    number_of,
    one_number_of,
    read_derived,
    shape_of,
    triangle_of,
    turned_back_of,
)
from plica.rewrite.prove.join import joined_parts, part_of_split
from plica.rewrite.prove.open_shape import (
    NOWHERE,
    SCALAR,
    AxisSet,
    MappedIndex,
    MappedShape,
    NamedShape,
    OpenIndex,
    OpenShape,
    differing,
    unpermuted,
)
from plica.rewrite.prove.open_tensor import IllTypedRule, OpenTensor, Unprovable, constant
from plica.rewrite.prove.parameter import PARAMETRIC, clipped_twice_of, demanded, with_parameters
from plica.rewrite.prove.reduction import FOLDS, flip_axes, reduced
from plica.rewrite.prove.rule_facts import RuleFacts

ELEMENTWISE: Final = frozenset(("cast", "where"))
"""Elementwise operators that are not registered as such."""

MOVES: Final = frozenset(
    ("roll", "tile", "repeat", "slice", "nn.upsample", "nn.space_to_depth",
     "nn.depth_to_space", "swapaxes", "moveaxis")
)  # fmt: skip
"""Operators of one argument whose elements are each one of its elements."""

IDENTITIES: Final[Mapping[str, tuple[str, Any, Any]]] = {
    "transpose": ("axes", NotImplemented, is_identity),
    "repeat": ("repeats", 1, NotImplemented),
    "nn.upsample": ("scale", 1, NotImplemented),
    "roll": ("shift", NotImplemented, are_zeros),
    "pad": ("pad_width", NotImplemented, is_zero),
}
"""The attribute that decides, the value, and the demand on a hole that make an identity."""

RUNNING: Final[Mapping[str, Combiner]] = {"cumsum": "sum", "cumprod": "prod"}
INVERSES: Final = frozenset(
    (("nn.depth_to_space", "nn.space_to_depth"), ("nn.space_to_depth", "nn.depth_to_space"))
)
"""Operators that undo one another, if their blocks are the same."""
KEEPS_SHAPE: Final = frozenset(("roll",))
FLATTENS: Final = frozenset(("nn.flatten", "ravel", "squeeze", "expand_dims", "reshape", "stack"))
"""Operators that keep row-major positions; the shape depends on attributes and the old shape."""
FILLS: Final[dict[str, int | None]] = {
    "zeros_like": 0, "ones_like": 1, "full_like": None, "zeros": 0, "ones": 1, "full": None,
}  # fmt: skip
PLACES: Final = ("iota", "iota_like")
COPIES: Final = ("nn.dropout",)  # operators that give their argument, whatever their attributes


class RuleReading(RuleFacts):
    """One rule with the dtypes of its holes: both sides are read with the same facts and atoms."""

    def left(self, term: Expr) -> OpenTensor:
        """The left side, which is well formed: what it says of shapes is learnt.

        It is read twice, since what is learnt late changes normal forms.
        """
        self.tensor(term)
        self.memo.clear()
        open_tensor = self.tensor(term)
        self.memo.clear()
        self.assumes = False
        return open_tensor

    def tensor(self, term: Term) -> OpenTensor:
        """What a part of a side is."""
        for node in post_order(term):
            if node in self.memo or not isinstance(node, Expr):
                continue
            if (open_tensor := self._read(node)) is not None:
                self.memo[node] = open_tensor
        return self.memo[term]

    def _read(self, node: Expr) -> OpenTensor | None:
        """A part as a tensor; None for settings and parts that only their users can read."""
        match node:
            case Hole(name):
                return None if self.dtypes.get(name) is None else self._hole(node)
            case Const(dtype, ()):
                return constant(node.numpy()[()].item(), dtype)
            case Literal(bool() as value):
                return constant(value, bool_)
            case Literal() | Apply("split"):
                return None
            case If(condition, then, orelse):
                return self._if(*(self.memo[expr] for expr in (condition, then, orelse)))
            case Rest(name):  # tensors end to end are one tensor
                shape, dtype = NamedShape(name), self.dtype_of(name)
                return OpenTensor(
                    dtype, shape, lambda index: self.atom(("hole", name, index), dtype, name)
                )
            case Derived(function, (Expr() as part, axes)) if function is flipped:
                return self._flip(self.memo[part], flip_axes(self, axes, self.memo[part].shape))
            case Derived(function) if function in CHANNELS:
                return scaled_by_channels(self, node)
            case Derived(function) if function in TOTALS:
                return total_of_shift(self, node)
            case Derived(function) if function is clipped_twice:
                return clipped_twice_of(self, node)
            case Derived():
                return read_derived(self, node)
            case Project(Apply("split", (part,), given), number):
                return part_of_split(self, self.memo[part], dict(given), number)
            case Apply(name, args, _):
                record = find(name)
                assert record is not None
                return self._apply(record, args, node)
        raise Unprovable(f"{type(node).__name__} is not modelled")

    def _hole(self, node: Hole) -> OpenTensor:
        constraint = node.constraint
        scalar = constraint.ranks == (0,) or constraint.shape == ()
        if self.assumes and constraint.ranks is not None and len(constraint.ranks) == 1:
            self.seen.add(("rank", *constraint.ranks, self.facts.named(NamedShape(node.name))))
        shape = SCALAR if scalar else self.facts.named(NamedShape(node.name))
        name, dtype = node.name, self.dtype_of(node.name)
        if name in self.splats:
            return one_number_of(self, name)
        if (order := self.turned.get(name)) is not None:
            back, permute = turned_back_of(self, name), self.facts.permute
            return OpenTensor(
                dtype,
                self.facts.permuted(back.shape, order),
                lambda index: back.at(permute(index, order, back.shape)),
            )
        return OpenTensor(
            dtype, shape,
            lambda index: demanded(self, name, self.atom(("hole", name, index), dtype, name)),
        )  # fmt: skip

    # --- operators --------------------------------------------------------------------------------

    def _apply(self, record: Operator, args: tuple[Expr, ...], node: Apply) -> OpenTensor:
        given = dict(node.attrs)
        if record.name != "concat" and any(isinstance(arg, Rest) for arg in args):
            raise Unprovable(f"{record.name} of any number of arguments")
        if record.pointwise or record.name in ELEMENTWISE:
            return self._pointwise(record, given, self._operands(record, args))
        if record.name in FILLS and args:
            of = self.memo[args[0]]
            return self._fill(record.name, given, of.shape, of.dtype)
        if record.name in FILLS:
            return self._fill(record.name, given, shape_of(self, given["shape"]), f32)
        if record.name in DOMAINS and not any(isinstance(expr, Literal) for expr in args):
            return contracted(self, record, given, [self.memo[expr] for expr in args])
        if record.name in PLACES:
            shape = self.memo[args[0]].shape if args else shape_of(self, given["shape"])
            return self._places(given["axis"], self.value(given["dtype"]), shape)
        if record.name == "einsum":
            return einsum(self, given, [self.memo[expr] for expr in args])
        if record.name == "concat":
            return joined_parts(self, [self.memo[expr] for expr in args], given["axis"])
        if len(args) != 1 or isinstance(args[0], Literal):
            raise Unprovable(f"{record.name} is not modelled")
        of = self.memo[args[0]]
        if record.name in COPIES:
            return of
        values = tuple(given.values())
        attributes = tuple(sorted((it for it in values if isinstance(it, Hole)), key=repr))
        if _is_identity(record.name, given) or self.is_known(("identity", attributes, of.shape)):
            self.legal((record.name, values, of.shape), f"{record.name} of another shape")
            return of
        if any(self.is_known(("repeats ones", value, of.shape)) for value in values):
            self.legal((record.name, values, of.shape), f"{record.name} of another shape")
            return self.broadcast(of, MappedShape(record.name, tuple(given.items()), of.shape))
        if record.name in RUNNING and given["exclusive"] in (True, False):
            return self._running(record.name, of, given)
        if record.name in TRIANGLES:
            return triangle_of(self, of, record.name, given["k"])
        if record.name == "flip":
            return self._flip(of, flip_axes(self, given["axis"], of.shape))
        match record.name:
            case "broadcast_to":
                return self._broadcast(of, given["shape"])
            case "transpose":
                return self._transpose(of, given["axes"])
            case name if name in FLATTENS:
                return self._flatten(name, of, given)
            case name if name in MOVES:
                return self._move(name, of, given)
            case name if name in FOLDS:
                return reduced(self, record, of, given["axis"], given["keepdims"])
        raise Unprovable(f"{record.name} is not modelled")

    def _operands(self, record: Operator, args: tuple[Expr, ...]) -> list[OpenTensor]:
        """The arguments; a literal has the dtype of its neighbours."""
        group = range(len(args)) if record.like is None else record.like
        of = next((self.memo[args[i]].dtype for i in group if not isinstance(args[i], Literal)),
                  None)  # fmt: skip
        found = []
        for arg in args:
            if not isinstance(arg, Literal):
                found.append(self.memo[arg])
                continue
            if of is None or not is_value(arg.value, of):
                raise IllTypedRule(f"{arg.value!r} is no value of {of}")
            found.append(constant(arg.value, of))
        return found

    def _pointwise(
        self, record: Operator, given: dict[str, Any], args: list[OpenTensor]
    ) -> OpenTensor:
        shapes = [open_tensor.shape for open_tensor in args]
        if self.assumes:
            self.facts.learn_together(shapes)
        elif not all(self.facts.is_together(a, b) for a in shapes for b in shapes):
            raise Unprovable(f"the arguments of {record.name} may not broadcast together")
        shape = self.facts.broadcast(shapes)
        values = {name: self.value(value) for name, value in given.items()}
        meaning, dtype = self._meaning(record, values, args)
        project = self.facts.project
        return OpenTensor(
            dtype, shape,
            lambda index: meaning([arg.at(project(index, shape, arg.shape)) for arg in args]),
        )  # fmt: skip

    def _meaning(
        self, record: Operator, given: dict[str, Any], args: list[OpenTensor]
    ) -> tuple[Callable[[list[Scalar]], Scalar], DType]:
        """The scalar function of an elementwise operator, and the dtype of its result."""
        unknown = any(isinstance(value, Hole | Derived) for value in given.values())
        if unknown and record.name not in PARAMETRIC:
            return self._opaque(record, given, args)
        plain = {attribute.name: attribute.default for attribute in record.attributes}
        types = [TensorType((), arg.dtype) for arg in args]
        result = record.relation(plain if unknown else given, *types)
        if isinstance(result, Mismatch):
            raise IllTypedRule(result.message)
        if unknown:
            return with_parameters(self, record.name, given, args[0].dtype), args[0].dtype
        assert isinstance(result, TensorType)
        buffers = [buffer(f"operand{i}", (), arg.dtype) for i, arg in enumerate(args)]
        assert record.compute is not None
        made = record.compute(given, *buffers)
        assert isinstance(made, Compute)
        body = made.body

        def meaning(elements: list[Scalar]) -> Scalar:
            loads: dict[Term, Term] = {
                Load(each, ()): value for each, value in zip(buffers, elements, strict=True)
            }
            scalar = map_bottom_up(lambda node: loads.get(node, node), body)
            assert isinstance(scalar, Scalar)
            return scalar

        return meaning, result.dtype

    def _opaque(
        self, record: Operator, given: dict[str, Any], args: list[OpenTensor]
    ) -> tuple[Callable[[list[Scalar]], Scalar], DType]:
        """An elementwise operator whose attribute is a hole: an unknown function of its operands.

        Legal where it stands on the left side with the same attributes and dtypes.
        """
        if record.name == "cast":
            raise Unprovable("cast to an unknown dtype")
        dtypes = tuple(arg.dtype for arg in args)
        key = (record.name, tuple(given.items()), dtypes)
        self.legal(key, f"{record.name} of other attributes or dtypes")
        dtype = dtypes[0]

        def meaning(elements: list[Scalar]) -> Scalar:
            var = self.atom((*key, tuple(elements)), dtype, "opaque")
            self.opaque.add(var)
            return var

        return meaning, dtype

    def _if(self, condition: OpenTensor, then: OpenTensor, orelse: OpenTensor) -> OpenTensor:
        if self.assumes:
            self.facts.learn_same(then.shape, orelse.shape)
        if condition.dtype is not bool_ or then.dtype is not orelse.dtype:
            raise IllTypedRule("the branches of if have one dtype")
        shape = then.shape
        return OpenTensor(
            then.dtype, shape,
            lambda index: Select(condition.at(NOWHERE), then.at(index), orelse.at(index)),
        )  # fmt: skip

    def _fill(self, name: str, given: dict[str, Any], shape: OpenShape, own: DType) -> OpenTensor:
        """A shape filled with a number."""
        value = given["value"] if FILLS[name] is None else FILLS[name]
        dtype = self.value(given["dtype"])
        number = number_of(self, value, own if dtype is None else dtype)
        return OpenTensor(number.dtype, shape, lambda _: number.at(NOWHERE))

    def _places(self, axis: Any, dtype: Any, shape: OpenShape) -> OpenTensor:
        """The index along an axis at each place."""
        if not isinstance(dtype, DType):
            raise Unprovable("places of an unknown dtype")
        key = ("places", axis, dtype, shape)
        self.legal(key, "places along another axis")
        return OpenTensor(dtype, shape, lambda index: self.atom((*key, index), dtype, "place"))

    # --- arrangements -----------------------------------------------------------------------------

    def _broadcast(self, of: OpenTensor, given: Any) -> OpenTensor:
        return self.broadcast(of, shape_of(self, given))

    def broadcast(self, of: OpenTensor, shape: OpenShape) -> OpenTensor:
        """A tensor broadcast to a shape."""
        if self.assumes:
            self.facts.learn_below(of.shape, shape)
        elif not self.facts.is_below(of.shape, shape):
            raise Unprovable("the right side may not broadcast to that shape")
        project = self.facts.project
        return OpenTensor(of.dtype, shape, lambda index: of.at(project(index, shape, of.shape)))

    def _transpose(self, of: OpenTensor, order: Any) -> OpenTensor:
        order = self._order(order, of.shape)
        explicit = isinstance(order, tuple) and all(each >= 0 for each in order)
        if isinstance(order, Hole):
            explicit = order.constraint.when is is_order
        if self.assumes and explicit:
            self.facts.learn_rank(of.shape, order)
        if self.assumes and isinstance(order, tuple):
            self.seen.add(("rank", len(order), unpermuted(of.shape)))
        self._transposable(of.shape, order, explicit)
        shape, permute = self.facts.permuted(of.shape, order), self.facts.permute
        return OpenTensor(of.dtype, shape, lambda index: of.at(permute(index, order, of.shape)))

    def _transposable(self, shape: OpenShape, order: Any, explicit: bool) -> None:
        if isinstance(order, Derived) and order.function is composed:
            inner, outer = order.args
            self._transposable(shape, inner, True)
            self._transposable(self.facts.permuted(shape, inner), outer, True)
        elif isinstance(order, tuple) and self.is_known(("rank", len(order), unpermuted(shape))):
            if sorted(order) != [*range(len(order))]:
                raise Unprovable(f"{order} is no order of axes")
        elif not ((explicit or isinstance(order, Derived)) and self.facts.fits(shape, order)):
            self.legal(("transpose", order, shape), "a transpose")

    def _order(self, order: Any, shape: OpenShape) -> Any:
        """An order of axes; one written out for a shape is that order."""
        match order:
            case Derived(function, (given, part)) if function is explicit_order:
                return given if self.memo[part].shape is unpermuted(shape) else order
            case Derived(function, (inner, outer)) if function is composed:
                inner = self._order(inner, shape)
                return composed(inner, self._order(outer, self.facts.permuted(shape, inner)))
            case Derived(function, (given, axes, kept)) if function is remaining:
                flag = self.flag(kept)
                return given if flag is True else remaining(given, axes, flag)
        return order

    def _flatten(self, name: str, of: OpenTensor, given: dict[str, Any]) -> OpenTensor:
        wanted = given.get("shape")
        if isinstance(wanted, Hole) and wanted.constraint.when is is_explicit:
            return self.reshape(of, shape_of(self, wanted))
        key = tuple(given.items())
        old = self.facts.count_of(of.shape) if name in ("reshape", "ravel") else of.shape
        self.legal((name, key, old), f"{name} of another shape")
        shape = MappedShape(name, key, old)
        self.facts.learn_count(of.shape, shape)
        return self.reshape(of, shape)

    def _move(self, name: str, of: OpenTensor, given: dict[str, Any]) -> OpenTensor:
        key = tuple(given.items())
        self.legal((name, key, of.shape), f"{name} of another shape")
        shape = of.shape if name in KEEPS_SHAPE else MappedShape(name, key, of.shape)
        before = of.shape
        if isinstance(before, MappedShape) and _undoes(
            (before.operator, before.attributes), (name, key)
        ):
            shape = before.of

        def at(index: OpenIndex) -> Scalar:
            if isinstance(index, MappedIndex) and _undoes(
                (name, key), (index.operator, index.attributes)
            ):
                return of.at(index.index)
            place = MappedIndex(index, name, key, of.shape)
            return of.at(NOWHERE if of.shape is SCALAR else place)

        return OpenTensor(of.dtype, shape, at)

    def _running(self, name: str, of: OpenTensor, given: dict[str, Any]) -> OpenTensor:
        """A running total along an axis of size 1: of its only element, or of those before it."""
        if not self.is_known(("one", given["axis"], of.shape)):
            raise Unprovable(f"{name} is not modelled")
        unit, join = MEANING[RUNNING[name]]
        start = unit(of.dtype)
        if given["exclusive"]:
            return OpenTensor(of.dtype, of.shape, lambda _: start)
        return OpenTensor(of.dtype, of.shape, lambda index: join(start, of.at(index)))

    def _flip(self, of: OpenTensor, axes: AxisSet) -> OpenTensor:
        """A tensor flipped; of a flip, along the axes of exactly one of the two."""
        for axis in axes:
            self.legal(("flip", axis), "a flip of other axes")

        def at(index: OpenIndex) -> Scalar:
            turned = tuple(axis for axis in axes if axis not in self.facts.ones)
            if isinstance(index, MappedIndex) and index is MappedIndex(
                index.index, "flip", index.attributes, of.shape
            ):
                turned = differing(turned, index.attributes)
                index = index.index
            return of.at(MappedIndex(index, "flip", turned, of.shape) if turned else index)

        return OpenTensor(of.dtype, of.shape, at)


def _is_identity(name: str, given: Mapping[str, Any]) -> bool:
    """Whether attributes say that an operator changes nothing."""
    if name not in IDENTITIES:
        return False
    attribute, plain, demand = IDENTITIES[name]
    value = given[attribute]
    return value.constraint.when is demand if isinstance(value, Hole) else value == plain


def _undoes(first: tuple[str, Any], second: tuple[str, Any]) -> bool:
    """Whether the second of two operators undoes the first."""
    if (first[0], second[0]) not in INVERSES:
        return False
    one, other = dict(first[1]), dict(second[1])
    turned = one.get("column_row_depth", False), other.get("column_row_depth", False)
    return one["block"] == other["block"] and turned == (False, False)
