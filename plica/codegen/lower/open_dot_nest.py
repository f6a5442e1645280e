"""The loops of open dot products: what is copied and packed, then tiles of registers.

for b, groups of rows, blocks of outputs:
    for s in range(rows // 8):                  8 rows x 3 vectors of outputs, say
        acc[t, v, lane] = 0
        for q: acc[t, v] += dot(x[b, 8 * s + t, q], packed[b, n + v, q])
        out[b, 8 * s + t, n + v, lane] = f(acc)
    what is left of the rows has a tile of just this many
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from plica.codegen.lower.loop_order import loops_around, replaced
from plica.codegen.lower.nest import elements, open_sizes
from plica.codegen.lower.open_dot import OpenDot
from plica.codegen.lower.open_tile_choice import EACH, remainder_heights
from plica.core import Term, map_top_down, post_order, substitute
from plica.ir.loop import Each, Names, Stages, scalar as sc, statement as st
from plica.ir.type import dim, i32, known
from plica.schedule.default.machine import LINE, Machine

LONG: Final = 8
"""Terms of what is done with a sum, from which on it is not written out for each row of a tile."""

NOUGHT: Final = sc.index(0)


def dotted_rows(of: OpenDot, rest: Stages, machine: Machine) -> st.Kernel:
    """The loops of stages, less those that were made beforehand."""
    writer = _Writer(of, rest, machine)
    steps: list[st.Stmt] = []
    for each in rest.stages:
        assert isinstance(each, Each)
        if each.out is of.packed.buffer:
            steps.append(writer.packed(each))
        elif each.out is of.sums:
            steps.append(writer.summed())
        elif each.out is of.quads.buffer:
            steps.append(writer.copied(each))
        elif each.out is rest.result:
            steps.append(writer.tiles())
    params = (*rest.inputs, *rest.outputs)
    body = st.seq(*steps)
    return st.Kernel(open_sizes(params, body), params, len(rest.inputs), body)


class _Writer:
    """Writes the loops: what is summed and stored, and names in use."""

    def __init__(self, of: OpenDot, rest: Stages, machine: Machine) -> None:
        self.of, self.dot, self.machine, self.rest = of, of.dot, machine, rest
        self.names = Names(rest)
        self.product = of.product

    # --- what is made first ----------------------------------------------------------------------

    def copied(self, of: Each) -> st.Stmt:
        """Rows of the data in vectors: the last of them ends with the row."""
        product, value = self.product, of.value
        if product.data.indices[-1] is not product.quad:
            return elements(of, of.out, None, machine=self.machine)
        depth, room = product.count(product.quad), known(of.out.shape[-1]) or 0
        inside = value.then if isinstance(value, sc.Select) else value
        term, lanes = of.axes[-1], min(depth, self.machine.lanes(self.dot.dtype))
        start, lane = self.names.var("start"), self.names.var("lane")

        def some(first: sc.Scalar, count: int, what: sc.Scalar) -> st.Stmt:
            there: dict[Term, Term] = {term: first + lane}
            store = st.Store(of.out, (*of.axes[:-1], first + lane), substitute(what, there))
            return loops_around([(lane, sc.index(count))], store, "vectorized")

        whole = some(start * lanes, lanes, inside)
        steps: list[st.Stmt] = [st.For(start, sc.index(depth // lanes), "serial", whole)]
        if depth % lanes:
            steps.append(some(sc.index(depth - lanes), lanes, inside))
        if room > depth:
            steps.append(some(sc.index(depth), room - depth, sc.Lit(0, of.out.dtype)))
        around = list(zip(of.axes[:-1], of.out.shape[:-1], strict=True))
        return loops_around(around, st.seq(*steps))

    def packed(self, of: Each) -> st.Stmt:
        """The weight: vectors that lie in a line of a cache one after another, then what is left of
        outputs and of terms."""
        product, dot = self.product, self.dot
        value = self._inside(of.value)
        shared = len([each for each in product.around if each in product.weight.indices])
        block, quad, (lane, part) = of.axes[shared], of.axes[-3], of.axes[-2:]
        beside = list(zip(of.axes, of.out.shape, strict=True))[shared + 1 : -3]
        outputs, depth = product.count(product.lane), product.count(product.quad)
        whole, left = divmod(outputs, dot.lanes)
        quads, terms = divmod(depth, dot.terms)
        room = known(of.out.shape[-3]) or 0
        zero = sc.Lit(0, of.out.dtype)
        in_rows = product.weight.indices[-1] is product.lane

        def put(at: dict[Term, sc.Scalar], lanes: int, parts: int) -> st.Stmt:
            """One vector, of which so much is there."""
            steps: list[st.Stmt] = []
            for first, count, own, what in (
                (0, lanes, parts, value), (0, lanes, dot.terms - parts, zero),
                (lanes, dot.lanes - lanes, dot.terms, zero),
            ):  # fmt: skip
                if not count or not own:
                    continue
                later = parts if what is zero and not first else 0
                here: dict[Term, Term] = {**at, lane: dim(lane + first), part: dim(part + later)}
                indices = tuple([_at(each, here) for each in of.axes])
                store = st.Store(of.out, indices, substitute(what, here))
                if in_rows:  # lanes of several rows are brought side by side
                    inner = st.For(part, sc.index(own), "unrolled", store)
                    steps.append(st.For(lane, sc.index(count), "vectorized", inner))
                else:
                    order = [(lane, sc.index(count)), (part, sc.index(own))]
                    steps.append(loops_around(order, store, "vectorized"))
            return st.seq(*steps)

        def blocks(
            at: dict[Term, sc.Scalar], loop: list[tuple[sc.ScalarVar, sc.Scalar]], lanes: int
        ) -> st.Stmt:
            """All quads of some blocks."""
            steps = [loops_around([(quad, sc.index(quads)), *loop], put(at, lanes, dot.terms))]
            if terms:
                tail = {**at, quad: sc.index(quads)}
                steps.append(loops_around(loop, put(tail, lanes, terms)))
            done = quads + bool(terms)
            if room > done:
                none = {**at, quad: quad + done}
                steps.append(loops_around([(quad, sc.index(room - done)), *loop], put(none, 0, 0)))
            return st.seq(*steps)

        near = max(1, LINE // (dot.lanes * product.weight.buffer.dtype.bytes))
        group, many = self.names.var("group"), self.names.var("near")
        parts: list[st.Stmt] = []
        if whole // near:
            at: dict[Term, sc.Scalar] = {block: group * near + many}
            inside = blocks(at, [(many, sc.index(near))], dot.lanes)
            parts.append(st.For(group, sc.index(whole // near), "serial", inside))
        if whole % near:
            at = {block: sc.index(whole // near * near) + many}
            parts.append(blocks(at, [(many, sc.index(whole % near))], dot.lanes))
        if left:
            parts.append(blocks({block: sc.index(whole)}, [], left))
        around = list(zip(of.axes, of.out.shape, strict=True))[:shared]
        return loops_around([*around, *beside], st.seq(*parts))

    def _inside(self, value: sc.Scalar) -> sc.Scalar:
        """What is packed where a weight is: what is outside is written by itself."""
        if isinstance(value, sc.Cast) and isinstance(value.value, sc.Select):
            return sc.Cast(self._inside(value.value), value.dtype)
        while isinstance(value, sc.Select):
            value = value.then
        return value

    def summed(self) -> st.Stmt:
        """Sums of the weight: products by ones, so that an instruction adds them."""
        of, dot, names = self.of, self.dot, self.names
        sums = of.sums
        assert sums is not None
        acc = sc.Buffer(names.name("acc"), (sc.index(dot.lanes),), i32, "local")
        ones = sc.Buffer(names.name("ones"), (sc.index(dot.terms),), dot.dtype)
        axes = [names.var("a") for _ in sums.shape[:-1]]
        lane, part = names.var("lane"), names.var("part")
        starts = (*axes, *of.packed.indices[len(axes) : -2])
        call = st.Invoke(
            dot.intrinsic,
            (
                st.Region(ones, (NOUGHT,), (sc.index(dot.terms),)),
                self._lanes(starts),
                st.Region(acc, (NOUGHT,), (sc.index(dot.lanes),)),
            ),
        )
        begin, end = [
            loops_around([(lane, sc.index(dot.lanes))], each, "vectorized")
            for each in (
                st.Store(acc, (lane,), sc.Lit(0, i32)),
                st.Store(sums, (*axes, lane), sc.Load(acc, (lane,))),
            )
        ]
        body = st.Alloc(acc, st.seq(begin, self._terms(call), end))
        one = st.Store(ones, (part,), sc.Lit(1, dot.dtype))
        around = list(zip(axes, sums.shape[:-1], strict=True))
        filled = loops_around([(part, sc.index(dot.terms))], one, "vectorized")
        return st.Alloc(ones, st.seq(filled, loops_around(around, body)))

    def _lanes(self, starts: tuple[sc.Scalar, ...]) -> st.Region:
        """A vector of the packed weight."""
        ones = (sc.index(1),) * len(starts)
        last = (sc.index(self.dot.lanes), sc.index(self.dot.terms))
        return st.Region(self.of.packed.buffer, (*starts, NOUGHT, NOUGHT), (*ones, *last))

    def _terms(self, inside: st.Stmt) -> st.Stmt:
        """Something for all terms of a sum."""
        outer, _, written = self.of.inner
        extents = self._quads()
        loops = [(each, self.product.sizes[each]) for each in self.product.beside]
        loops += [(outer, extents[0]), (written, extents[1])]
        return loops_around(loops, inside, unrolled=(written,))

    def _quads(self) -> tuple[sc.Scalar, sc.Scalar]:
        """How many quads there are, and how many of them are written out."""
        count = known(self.of.packed.buffer.shape[-3]) or 0
        return sc.index(count // self.of.written), sc.index(self.of.written)

    # --- tiles -----------------------------------------------------------------------------------

    def tiles(self) -> st.Stmt:
        """All results: groups of rows, blocks of outputs, tiles of rows."""
        of, product = self.of, self.product
        count, wide = product.count(product.lane), of.tile.vectors * self.dot.lanes
        around = [(each, product.sizes[each]) for each in product.around]
        whole, left = divmod(count, wide)
        parts = [(whole, 0, wide)] * bool(whole) + [(1, whole, left)] * bool(left)
        return loops_around(around, st.seq(*[self._rows(*each) for each in parts]))

    def _rows(self, blocks: int, first_block: int, outputs: int) -> st.Stmt:
        """Blocks of a given number of outputs for all rows, a group of these after another."""
        of, names, steps = self.of, self.names, self.of.tile.steps
        size = self.product.sizes[self.product.row]
        group, first, count, column, strip, block = [
            names.var(each) for each in ("group", "first", "count", "column", "strip", "block")
        ]
        vector = dim((block + first_block) * of.tile.vectors)

        def made(rows: int, row: sc.Scalar) -> st.Stmt:
            return self._tile(rows, row, vector, outputs)

        parts: list[st.Stmt] = [
            st.For(strip, count // steps, "serial", made(steps, first + strip * steps))
        ]
        whole = count // steps * steps
        for n in remainder_heights(steps):
            asked: list[sc.Scalar] = [sc.Le(NOUGHT, column), sc.Le(column + n, size)]
            asked.append(sc.Le(column + n, first + count))
            begin = first + whole
            if steps <= EACH:  # there are no more
                asked.append(sc.Lt(first + count, column + (n + 1)))
            else:
                begin = begin + (count - whole) // (2 * n) * (2 * n)
            tile = st.Branch(reduce(sc.And, asked), made(n, column), st.NOTHING)
            parts.append(st.Bind(column, begin, tile))
        kind: st.LoopKind = "parallel" if of.shared else "serial"
        body: st.Stmt = loops_around([(block, sc.index(blocks))], st.seq(*parts), kind)
        body = st.Branch(sc.Le(first + count, size), body, st.NOTHING)  # it is
        many = sc.Min(size - first, sc.index(of.group))
        bound = st.Bind(first, group * of.group, st.Bind(count, many, body))
        return st.For(group, (size + (of.group - 1)) // of.group, "serial", bound)

    def _tile(self, rows: int, row: sc.Scalar, vector: sc.Scalar, outputs: int) -> st.Stmt:
        """The sums of a tile, and what is stored of them."""
        of, dot, names, product = self.of, self.dot, self.names, self.product
        near, beside, lane = (names.var(each) for each in ("near", "vector", "lane"))
        vectors = -(-outputs // dot.lanes)
        shape = (sc.index(rows), sc.index(vectors), sc.index(dot.lanes))
        acc = sc.Buffer(names.name("acc"), shape, i32, "local")
        loops = list(zip((near, beside, lane), shape, strict=True))
        written = (near, beside)
        here: dict[Term, Term] = {product.row: row + near}
        data = substitute(of.quads, {**here, of.inner[1]: NOUGHT})
        one = sc.index(1)
        vector_of: dict[Term, sc.Scalar] = {product.lane // dot.lanes: vector + beside}
        starts = tuple([vector_of.get(each, each) for each in of.packed.indices[:-2]])
        call = st.Invoke(
            dot.intrinsic,
            (
                st.Region(
                    data.buffer, data.indices,
                    (*[one] * (len(data.indices) - 1), sc.index(dot.terms)),
                ),
                self._lanes(starts),
                st.Region(acc, (near, beside, NOUGHT), (one, one, shape[-1])),
            ),
        )  # fmt: skip
        begin = st.Store(
            acc, (near, beside, lane), self._placed(of.start, row + near, vector + beside, lane)
        )
        steps: list[st.Stmt] = [
            loops_around(loops, begin, "vectorized", written),
            self._terms(loops_around(loops[:2], call, unrolled=written)),
        ]
        held = acc
        kept: tuple[sc.ScalarVar, ...] = ()
        if len(post_order(of.after.value)) > LONG and rows > 1:
            held = sc.Buffer(names.name("held"), shape, i32)
            moved = st.Store(held, (near, beside, lane), sc.Load(acc, (near, beside, lane)))
            steps.append(loops_around(loops, moved, "vectorized", written))
            kept = (near,)
        full, part = divmod(outputs, dot.lanes)
        for start, count, lanes in ((0, full, dot.lanes), (full, 1, part)):
            if not count or not lanes:
                continue
            which = dim(beside + start)
            store = self._stored(
                row + near, vector + which, lane, sc.Load(held, (near, which, lane))
            )
            order = [(near, shape[0]), (beside, sc.index(count)), (lane, sc.index(lanes))]
            unrolled = [each for each in written if each not in kept]
            steps.append(loops_around(order, store, "vectorized", unrolled))
        found = st.seq(*steps)
        for each in dict.fromkeys((acc, held)):
            found = st.Alloc(each, found)
        return found

    def _stored(
        self, row: sc.Scalar, vector: sc.Scalar, lane: sc.Scalar, total: sc.Scalar
    ) -> st.Stmt:
        """The store of a result, given where it is and its sum."""
        after = self.of.after

        def filled(node: Term) -> Term:
            return total if isinstance(node, sc.Load) and node.buffer is after.reduced else node

        value, *indices = [
            self._placed(each, row, vector, lane) for each in (after.value, *after.indices)
        ]
        return st.Store(self.rest.result, tuple(indices), map_top_down(filled, value))

    def _placed(
        self, of: sc.Scalar, row: sc.Scalar, vector: sc.Scalar, lane: sc.Scalar
    ) -> sc.Scalar:
        """A term over the axes of a sum where that is."""
        product, lanes = self.product, self.dot.lanes
        halves: dict[Term, sc.Scalar] = {product.lane // lanes: vector, product.lane % lanes: lane}
        there: dict[Term, Term] = {product.row: row, product.lane: vector * lanes + lane}
        return substitute(replaced(of, halves), there)


def _at(axis: sc.ScalarVar, here: dict[Term, Term]) -> sc.Scalar:
    found = here.get(axis, axis)
    assert isinstance(found, sc.Scalar)
    return found
