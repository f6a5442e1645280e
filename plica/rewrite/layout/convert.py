"""Conversion: a whole module brought to the layouts that some operators like best.

    before:  def f(x): return nn.relu(nn.conv(x, w)) + x
    after:   def f(x):
                 t = transpose(x, (0, 2, 3, 1))
                 return transpose(nn.relu(nn.conv_laid(t, w', …)) + t, (0, 3, 1, 2))

Every value is carried in the layout of its producer; operators that can compute there do
(`plica.rewrite.layout.move`), and a value is transformed only for a consumer that cannot. So
transforms occur only at the edges of a region: a chain of convolutions has one at its start and one
at its end. Constants are folded, so weights are transformed at compile time. A `transpose` costs
nothing: it is another layout of its operand.

If the blocks of a layout do not divide a convolution's channels (the three of an image), that side
stays unblocked.

Laws: the meaning is preserved up to the order of sums (`reassociates`), and exactly if no sum was
reordered; `convert_layout(convert_layout(m, d), d) is convert_layout(m, d)`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from plica.core import IllTyped, Term, did_you_mean
from plica.ir.graph import Apply, Attrs, Expr, Function, Module, Project, Tuple, Var, find
from plica.ir.loop.fusion_kind import kind
from plica.ir.loop.layout import Layout, as_it_is, layout_of, permuted, show_layout
from plica.ir.loop.scalar import Scalar, index
from plica.ir.op.laid import LAID, UNLAID, logical_axes, words_of
from plica.ir.type import TensorType, type_of
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.fold import fold_constants
from plica.rewrite.graph.walk import expressions, map_functions, operands, with_operands
from plica.rewrite.layout.move import OPENED, Moved, moved
from plica.rewrite.layout.rules import LAYOUT
from plica.rewrite.layout.transform import reshape, shape_of, transform
from plica.rewrite.pack import rewrite
from plica.runtime.error import Diagnostic

Desired: TypeAlias = Mapping[str, "str | Sequence[str]"]
"""For an operator the layout of its data and, if necessary, of its weight, and of its result if it
differs from the data's."""

_RANKS: Final = (3, 4, 5)


def convert_layout(
    module: Module, desired: Desired, wants: Callable[[Apply], bool] = lambda _: True
) -> Module:
    """The module with the layouts in `desired`, for the operators in `wants`.

    `{"nn.conv": "NHWC"}`, `{"nn.conv": ("NHWC", "OHWI")}` or `{"nn.conv": "NCHW8c"}`; operators of
    another rank than the layout's are unchanged.
    """
    wanted = {_known(op): _words(op, given) for op, given in desired.items()}
    converter = LayoutConverter(wanted, wants=wants)

    def convert(_: Var, function: Function) -> Function:
        new = converter.function(function)
        if new is function:
            return function
        tidy, _steps = rewrite(new, LAYOUT)
        assert isinstance(tidy, Function)
        return tidy

    before = to_dataflow(module)
    after = map_functions(before, convert)
    return before if after is before else fold_constants(after)


def _known(op: str) -> str:
    record = find(op)
    name = op if record is None else UNLAID.get(record.name, record.name)
    if name not in LAID:
        raise IllTyped(
            Diagnostic(
                "unsupported",
                f"{op} has no form for other layouts.",
                expected=f"one of {', '.join(sorted(LAID))}",
                found=op,
                suggestion=did_you_mean(op, LAID),
            )
        )
    return name


def _words(op: str, given: str | Sequence[str]) -> tuple[str, ...]:
    """The words asked for; refuses those that are layouts of no rank."""
    words = (given,) if isinstance(given, str) else tuple(given)
    letters = {rank: logical_axes(_known(op), rank) for rank in _RANKS}
    if 1 <= len(words) <= (len(letters[4]) if len(letters[4]) > 2 else 1):  # data and result alike
        for each in letters.values():
            if all(isinstance(layout_of(*pair), Layout) for pair in zip(words, each, strict=False)):
                return words
    raise IllTyped(
        Diagnostic(
            "bad-layout",
            f"{op} cannot have its tensors in these layouts.",
            expected=f"words such as {', '.join(letters[4][:-1])} in any order, with blocks",
            found=", ".join(map(repr, words)),
        )
    )


class LayoutConverter:
    """The forms of every value that are at hand, in this layout and that."""

    def __init__(
        self,
        desired: Mapping[str, tuple[str, ...]],
        exact: bool = False,
        wants: Callable[[Apply], bool] = lambda _: True,
    ) -> None:
        self.desired = desired
        self.wants = wants
        self.exact = exact  # whether sums must keep their order
        self.plain_forms: dict[Expr, Expr] = {}
        self.forms: dict[Expr, dict[Layout, Expr]] = {}
        self.made: dict[Expr, Layout] = {}  # where that is another than the program's own
        self.several: dict[Expr, tuple[Expr, tuple[Layout, ...]]] = {}  # operators of many results

    def function(self, function: Function) -> Function:
        """A function with a converted body; its interface is unchanged."""
        self.visit_all(function)
        made = self.plain(function)
        assert isinstance(made, Function)
        return made

    def visit_all(self, root: Expr) -> None:
        for node in expressions(root):
            if node not in self.plain_forms and node not in self.made and node not in self.several:
                self.visit(node)

    # --- forms of values -------------------------------------------------------------------------

    def plain(self, node: Expr) -> Expr:
        """The value as the program has it."""
        if node not in self.plain_forms:
            self.plain_forms[node] = self._unlaid(node)
        return self.plain_forms[node]

    def _unlaid(self, node: Expr) -> Expr:
        if node in self.several:
            expr, layouts = self.several[node]
            of = type_of(node)
            items = []
            for at, layout in enumerate(layouts):
                shape = of.items[at].shape  # type: ignore[union-attr]  # a tuple of tensors
                items.append(transform(Project(expr, at), layout, as_it_is(len(shape)), shape))
            return Tuple(tuple(items))
        layout, shape = self.made[node], shape_of(node)
        return transform(self.forms[node][layout], layout, as_it_is(len(shape)), shape)

    def at(self, node: Expr, layout: Layout) -> Expr:
        """The value in a layout."""
        if layout.is_identity:
            return self.plain(node)
        forms = self.forms.setdefault(node, {})
        if layout not in forms:
            source = self.made.get(node)
            for above in reversed(self._widened(node, layout)):
                way = _pointwise(above, layout)
                assert way is not None  # as all above were found
                args = [self.plain(arg) if wanted is None else self.at(arg, wanted)
                        for arg, wanted in zip(above.args, way.args, strict=True)]  # fmt: skip
                self.forms.setdefault(above, {})[layout] = Apply(way.op, tuple(args), way.attrs)
        if layout not in forms:
            form = self.plain(node) if source is None else forms[source]
            source = as_it_is(layout.rank) if source is None else source
            forms[layout] = transform(form, source, layout, shape_of(node))
        return forms[layout]

    def _widened(self, node: Expr, layout: Layout) -> list[Apply]:
        """The elementwise casts from narrower types that produce a value, the value first: layouts
        are changed before them, because that moves fewer bytes."""
        above: list[Apply] = []
        narrowest, count = _bytes(node), 0
        while isinstance(node, Apply) and node not in self.made:
            wide = [arg for arg in node.args if shape_of(arg) == shape_of(node)]
            way = _pointwise(node, layout) if len(wide) == 1 else None
            if way is None or any(type_of(arg) is None for arg in node.args):
                break
            above.append(node)
            node = wide[0]
            if _bytes(node) < narrowest:
                narrowest, count = _bytes(node), len(above)
        return above[:count]

    def keep(self, node: Expr, layout: Layout, form: Expr) -> None:
        """Note in which layout a value is made."""
        if layout.is_identity:
            self.plain_forms[node] = form
        else:
            self.forms[node] = {layout: form}
            self.made[node] = layout

    # --- one node --------------------------------------------------------------------------------

    def visit(self, node: Expr) -> None:
        """Find the layout in which a node whose parts have been visited is made."""
        if isinstance(node, Project) and node.value in self.several:
            expr, layouts = self.several[node.value]
            self.keep(node, layouts[node.index], Project(expr, node.index))
        elif not isinstance(node, Apply) or not self._converted(node):
            self.plain_forms[node] = with_operands(
                node, tuple([self.plain(part) for part in operands(node)])
            )
            if isinstance(node, Apply) and node.op == "transpose":
                self._remember_source(node)

    def _converted(self, node: Apply) -> bool:
        types = []
        for arg in node.args:
            of = type_of(arg)
            if not isinstance(of, TensorType):
                return False
            types.append(of)
        asked = UNLAID.get(node.op, node.op) in self.desired and self.wants(node)
        if asked and self._desired(node, types):
            return True
        found = [self.made.get(arg) for arg in node.args]
        layouts = Counter(each for each in found if each is not None)
        for layout, _ in layouts.most_common():  # of equally many the first
            if node.op == "transpose":
                self._transposed(node, layout)
                return True
            way = moved(node.op, node.attrs, tuple(types), layout)
            if way is not None and (way.exact or not self.exact):
                self._move(node, way, layout)
                return True
        return bool(layouts) and node.op in OPENED and self._opened(node)

    def _move(self, node: Apply, way: Moved, layout: Layout) -> None:
        args = []
        for arg, wanted in zip(node.args, way.args, strict=True):
            if wanted is None:
                args.append(self.plain(arg))
                continue
            if missing := wanted.rank - len(shape_of(arg)):
                args.append(self._lifted(arg, wanted, missing))
            else:
                args.append(self.at(arg, wanted))
        made = Apply(way.op, tuple(args), way.attrs)
        if isinstance(type_of(node), TensorType):
            self.keep(node, way.results[0], made)
        else:
            self.several[node] = made, way.results

    def _lifted(self, arg: Expr, layout: Layout, missing: int) -> Expr:
        """An argument of lower rank, with axes of size 1 in front."""
        shape: tuple[Scalar, ...] = (index(1),) * missing + shape_of(arg)
        lifted = reshape(self.plain(arg), shape)
        return transform(lifted, as_it_is(layout.rank), layout, shape)

    def _opened(self, node: Apply) -> bool:
        """An operator that is a term over others, converted as that term."""
        record = find(node.op)
        if record is None or record.decompose is None:
            return False
        inner = record.decompose(dict(node.attrs), *node.args)
        self.visit_all(inner)
        layout = self.made.get(inner, as_it_is(len(shape_of(inner))))
        self.keep(node, layout, self.at(inner, layout))
        return True

    # --- transposes: other layouts of what they transpose ----------------------------------------

    def _transposed(self, node: Apply, layout: Layout) -> None:
        """The same storage under other names of the axes."""
        names = _names(node, layout.rank)
        self.keep(node, layout.renamed(names), self.at(node.args[0], layout))

    def _remember_source(self, node: Apply) -> None:
        """A transposed value is at hand untransposed as well."""
        rank = len(shape_of(node))
        layout = permuted(_names(node, rank))
        if not layout.is_identity:
            self.forms[node] = {layout: self.plain(node.args[0])}

    # --- operators that were asked for -----------------------------------------------------------

    def _desired(self, node: Apply, types: Sequence[TensorType]) -> bool:
        """A node in the layout that was asked for; False where it cannot be."""
        op = UNLAID.get(node.op, node.op)
        attrs = tuple(attr for attr in node.attrs if attr[0] != "layouts")
        given = words_of(dict(node.attrs)) if node.op in UNLAID else None
        rank = len(types[0].shape)
        letters = logical_axes(op, rank)
        own = [as_it_is(rank)] * len(letters) if given is None else _read(given, letters)
        chosen = None if own is None else self._choose(op, types, own, letters, type_of(node))
        if own is None or chosen is None:
            return False
        made = self._form(op, attrs, letters, chosen)
        args = []
        for arg, layout, mine in zip(node.args, chosen, own, strict=False):
            args.append(self.at(arg, layout.renamed([mine.positions(a)[0] for a in range(rank)])))
        result = chosen[-1].renamed([own[-1].positions(a)[0] for a in range(rank)])
        self.keep(node, result, Apply(made[0], tuple(args), made[1]))
        return True

    def _choose(
        self,
        op: str,
        types: Sequence[TensorType],
        own: Sequence[Layout],
        letters: Sequence[str],
        result: Term,
    ) -> tuple[Layout, ...] | None:
        """The layouts of the arguments and of the result of an operator that was asked for."""
        words = self.desired[op]
        layouts = _read(words, letters)
        if layouts is None or not all(each.is_permutation for each in own):
            return None
        assert isinstance(result, TensorType)
        shapes = [
            tuple(of.shape[mine.positions(a)[0]] for a in range(mine.rank))
            for of, mine in zip((*types, result), own, strict=True)
        ]
        data = layouts[0]
        chosen = [_fitting(data, shapes[0])]
        if len(letters) > 2:
            given = layouts[1] if len(layouts) > 1 else _kernel(data, letters)
            chosen.append(_fitting(given, shapes[1]))
        layout = layouts[-1] if len(layouts) == len(letters) else data
        return (*chosen, _fitting(layout, shapes[-1]))

    def _form(
        self, op: str, attrs: Attrs, letters: Sequence[str], layouts: Sequence[Layout]
    ) -> tuple[str, Attrs]:
        """The operator's name and attributes in its layouts; its own where all are as they were."""
        if all(layout.is_identity for layout in layouts):
            return op, attrs
        words = tuple(show_layout(*pair) for pair in zip(layouts, letters, strict=True))
        return LAID[op].name, tuple(sorted((*attrs, ("layouts", words))))


def _read(words: Sequence[str], letters: Sequence[str]) -> list[Layout] | None:
    found = [layout_of(*pair) for pair in zip(words, letters, strict=False)]
    layouts = [each for each in found if isinstance(each, Layout)]
    return layouts if len(layouts) == len(found) else None


def _bytes(of: Expr) -> int:
    """How wide the elements of a value are."""
    found = type_of(of)
    return found.dtype.bytes if isinstance(found, TensorType) else 0


def _pointwise(of: Apply, layout: Layout) -> Moved | None:
    """An elementwise operator in a layout, or None for other operators."""
    types = [type_of(arg) for arg in of.args]
    tensors = tuple([each for each in types if isinstance(each, TensorType)])
    if len(tensors) != len(types) or any(
        len(tensor.shape) not in (0, layout.rank) for tensor in tensors
    ):
        return None
    record = find(of.op)
    if record is None or record.compute is None:
        return None
    if kind(record, dict(of.attrs), *tensors) not in ("elementwise", "broadcast"):
        return None
    way = moved(of.op, of.attrs, tensors, layout)
    return way if way is not None and way.exact and way.results == (layout,) else None


def _fitting(layout: Layout, shape: Iterable[Scalar]) -> Layout:
    """The layout without the blocks of axes that they do not divide."""
    sizes = list(shape)
    axes = []
    for axis, block in layout.axes:
        one = Layout(tuple((0, b) for a, b in layout.axes if a == axis))
        if not block or one.shape_of([sizes[axis]]) is not None:
            axes.append((axis, block))
    return Layout(tuple(axes))


def _kernel(data: Layout, letters: Sequence[str]) -> Layout:
    """The weight layout for a data layout: `OIHW8i8o` with `NCHW8c`, else `HWIO`."""
    weight = letters[1]
    inner, outer = weight.index("I"), weight.index("O")
    if data.order == tuple(range(data.rank)):
        axes = [(axis, 0) for axis in range(data.rank)]
    else:
        axes = [(axis, 0) for axis in data.order if axis > 1] + [(inner, 0), (outer, 0)]
    blocks = data.blocks(1)
    axes += [(inner, block) for block in blocks] + [(outer, block) for block in blocks]
    return Layout(tuple(axes))


def _names(node: Apply, rank: int) -> list[int]:
    """For each axis of the transposed operand, its axis in the result."""
    axes = dict(node.attrs)["axes"]
    order = list(range(rank))[::-1] if axes is None else [axis % rank for axis in axes]
    return [order.index(axis) for axis in range(rank)]
