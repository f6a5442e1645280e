"""Distinct names: binders are renamed all at once, and nothing else changes."""

from __future__ import annotations

import numpy as np

from plica.analysis.site import distinct, map_of
from plica.core.digest import digest
from plica.core.name import Name
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Buffer, ScalarVar
from plica.ir.loop.statement import For, Kernel, Seq, Store, block, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import dim
from plica.ir.type.dtype import i32, i64


def test_a_new_name_may_be_the_old_one_of_the_next_variable() -> None:
    x, y, z = buffer("x", (2, 3), i32), buffer("y", (2, 3), i32), buffer("z", (2, 3), i32)
    i, j = axis("i"), axis("j")
    v, v1, v2 = (axis("v", number) for number in range(3))

    def nest(first: ScalarVar, second: ScalarVar, out: Buffer) -> For:
        store = Store(out, (first, second), x[first, second])
        inside = block(str(out.name), (first, second), (2, 3), "ss", (i, j), store)
        return For(i, dim(2), "serial", For(j, dim(3), "serial", inside))

    # The second block's variables are used already, and the fresh names begin with its own.
    kernel = Kernel((), (x, y, z), 1, seq(nest(v, v1, y), nest(v1, v2, z)))
    made = distinct(kernel)
    assert digest(made) == digest(kernel)
    data = np.arange(6, dtype=np.int32).reshape(2, 3)
    for found in run_kernel(made, (data,)):
        assert np.array_equal(found, data)
    assert distinct(made) is made


def test_each_statement_stays_where_it_was_when_a_group_is_taken_apart() -> None:
    out = buffer("out", (4,), i64)
    i = axis("i")

    def more(number: int) -> For:
        return For(i, dim(4), "serial", Store(out, (i,), out[i] * 3 + number))

    begin = For(i, dim(4), "serial", Store(out, (i,), i))
    kernel = Kernel((), (out,), 0, Seq((Seq((begin, more(1))), more(2), Seq((more(3), more(4))))))
    (found,) = run_kernel(distinct(kernel), ())
    assert found.tolist() == [((((n * 3 + 1) * 3 + 2) * 3 + 3) * 3 + 4) for n in range(4)]


def test_a_copy_never_takes_a_name_that_a_later_binder_has() -> None:
    out = buffer("out", (2,), i64)
    i, i_1 = axis("i"), axis("i", 1)

    def nest(var: ScalarVar, label: str) -> For:
        return For(var, dim(2), "serial", block(label, (), (), "", (), Store(out, (var,), var)))

    made = distinct(Kernel((), (out,), 0, seq(nest(i, "b"), nest(i, "b"), nest(i_1, "c"))))
    sites = map_of(made)
    assert sites.blocks[Name("c")].loops[0].var == i_1
    assert len(sites.loops) == len(sites.blocks) == 3
