"""Order: a buffer that is an iteration's own may be made inside it."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.analysis.site import map_of, replace, with_body
from plica.ir.loop.statement import Alloc, For, Kernel, Stmt
from plica.ir.type.dim import dim_var
from plica.schedule import ScheduleRefused, block, compute_at, do, loops, record, split
from plica.schedule.do import Body
from plica.schedule.instruction import Scene
from plica.schedule.order import is_own, open_loops
from plica.schedule.replay import kernel_of
from tests.schedule.kernel import chain, matmul, product_and_relu, same_function, stencil

PROGRAMS = st.sampled_from(
    (
        (stencil(7), "B", "C"),
        (stencil(dim_var("size"), 2), "B", "C"),
        (product_and_relu(4, 3, 3), "A1", "C"),
        (product_and_relu(4, 3, 3), "C", "D"),
        (chain(6, lambda a, v: a[v] + 1, lambda a, v: a[v // 2 * 2]), "B1", "B2"),
    )
)


@given(PROGRAMS, st.sampled_from((2, 3, 4)), st.booleans(), st.data())
def test_what_is_its_own_may_be_made_inside(
    program: tuple[Kernel, str, str], factor: int, moves: bool, data: st.DataObject
) -> None:
    kernel, producer, consumer = program

    @do
    def schedule() -> Body:
        c = yield block(consumer)
        around = yield loops(c)
        yield split(data.draw(st.sampled_from(around)), (None, factor))
        around = yield loops(c)
        if moves:
            try:
                yield compute_at((yield block(producer)), data.draw(st.sampled_from(around)))
            except ScheduleRefused:
                return

    scheduled = kernel_of(record(schedule, kernel).module)[2]
    scene = Scene(scheduled, {})
    name = next(each for each in scene.map.buffers if str(each.name) == producer)
    for site in scene.map.loops.values():
        if is_own(scene, site, name):
            private = _private(scheduled, site.node, name)
            assert same_function(kernel, private, size=5)


def _private(kernel: Kernel, loop: For, buffer: object) -> Kernel:
    """The kernel with a buffer made anew in each iteration of a loop."""
    made = next(each for each in map_of(kernel).buffers if each is buffer)
    inside = For(loop.var, loop.extent, loop.kind, Alloc(made, loop.body), loop.annotations)
    kernel = replace(kernel, map_of(kernel).loops[loop.var], inside)
    body: Stmt = kernel.body
    around = []
    while isinstance(body, Alloc):
        if body.buffer is not made:
            around.append(body.buffer)
        body = body.body
    for each in reversed(around):
        body = Alloc(each, body)
    return with_body(kernel, body)


def test_open_loops_of_a_product() -> None:
    kernel = matmul()
    assert isinstance(kernel.body, For)
    variables = tuple(map_of(kernel).loops)
    (left,) = open_loops(kernel.body, variables).values()
    assert [str(var.name) for var in left] == ["k"]
