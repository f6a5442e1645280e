"""Templates: the texts of a new package, one row for each kind of extension.

`$name` is the name of the package, `$module` that of its module, `$words` its name in a sentence.
Each source is right as it stands, and small enough to be read before it is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen


@frozen
class Template:
    """A kind of extension: its group, the name of its entry point, its file, and the texts."""

    group: str
    point: str
    file: str
    record: str
    source: str
    use: str
    about: str


RULES: Final = '''\
"""Rules of $name."""

from plica import op
from plica.ir.type.term import tensor
from plica.rewrite import holes, pack, rule

x, s = holes("x s")


def same_shape(m):
    """A tensor that has the shape already; sizes that are known are plain integers."""
    return m.x if m.shape(x) == m.value(s) else None


def shaped(choose):
    """Sizes that go together: what fills the holes x and s."""
    sizes = choose(((2,), (2, 3), (1, 3, 2)))
    return {"x": tensor(sizes, choose(("f32", "i64"))), "s": sizes}


PACK = pack(
    "$name",
    rule("$name-floor-of-ceil", op.floor(op.ceil(x)), op.ceil(x)),
    rule("$name-reshape-itself", op.reshape(x, s), same_shape, instances=shaped),
    version="0.1",
    doc="Rules of $name.",
)
'''

RULES_USE: Final = """\
def test_a_model_is_rewritten() -> None:
    from $module.rules import PACK

    @plica.function
    def main(x: Tensor[(4,), f32]) -> Tensor[(4,), f32]:
        return op.floor(op.ceil(x))

    exe = plica.compile(main, packs=[PACK], cache=False)
    assert (exe(np.full(4, 0.5, np.float32)) == 1).all()
"""

OPERATOR: Final = '''\
"""Operators of $name: `op.$module.square_relu(x)`."""

import numpy as np

from plica import op
from plica.ir.loop.scalar import Max, like
from plica.ir.op.record import pointwise
from plica.ir.op.relation import FLOAT


def square_relu(x):
    """An element of the result, from the element of the argument at the same place."""
    positive = Max(x, like(0, x))
    return positive * positive


def slope(cotangent, result, x):
    """The cotangent of the argument, from that of the result."""
    return cotangent * 2.0 * op.maximum(x, 0.0)


def reference(x):
    """What it means, said a second time: `plica check` compares."""
    return np.maximum(x, 0) ** 2


SQUARE_RELU = pointwise(
    "$module.square_relu",
    ("x",),
    square_relu,
    "max(x, 0) squared.",
    admits=FLOAT,
    slope=slope,
    reference=reference,
)
'''

OPERATOR_USE: Final = """\
def test_a_model_uses_it() -> None:
    from $module.operators import SQUARE_RELU

    @plica.function
    def main(x: Tensor[(4,), f32]) -> Tensor[(4,), f32]:
        return SQUARE_RELU(x)

    x = np.array([-1, 0, 2, 3], np.float32)
    assert plica.compile(main, cache=False)(x).tolist() == [0, 0, 4, 9]
"""

PASS: Final = '''\
"""A pass of $name: a difference of floats becomes a sum."""

from plica import op
from plica.core.fold import map_bottom_up
from plica.ir.graph.expression import Apply
from plica.ir.passes import Pass
from plica.ir.type.infer import infer, type_of
from plica.ir.type.term import TensorType
from plica.rewrite import holes


def changed(node):
    """`a - b` as `a + (-b)`: the same bits."""
    match node:
        case Apply("subtract", (left, right)):
            of = type_of(node)
            if isinstance(of, TensorType) and of.dtype.is_float:
                return op.add(left, op.negative(right))
    return node


def run(module):
    """The whole module, each shared term once."""
    return infer(map_bottom_up(changed, module))


x, y = holes("x y")
PASS = Pass("$name", "Differences of floats become sums.", run, looks_for=(op.subtract(x, y),))
'''

PASS_USE: Final = """\
def test_it_stands_on_a_page() -> None:
    from $module.passes import PASS
    from plica.pipeline import page_of

    @plica.function
    def main(x: Tensor[(4,), f32], y: Tensor[(4,), f32]) -> Tensor[(4,), f32]:
        return x - y

    page = page_of("cpu").insert(PASS, before="fuse")
    x, y = np.full(4, 3, np.float32), np.full(4, 1, np.float32)
    assert (plica.compile(main, passes=page, cache=False)(x, y) == 2).all()
"""

PRIMITIVE: Final = '''\
"""$module.unrolled: a loop is unrolled by the code generator, whatever its extent is.

    before                      after
    for i in range(4): …        for i in unrolled(4): …

Preconditions: `plain-loop`, `short-loop`.
"""

from attrs import frozen

from plica.analysis.site import replace
from plica.ir.loop.statement import For
from plica.ir.type.dim import known
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.problem import Problem

LONGEST = 64


@primitive("$module.unrolled")
@frozen(eq=False)
class Unrolled(Instruction):
    """A loop of at most 64 iterations, one after another."""

    loop: Handle

    def check(self, scene: Scene) -> Problem | None:
        loop = scene.loop(self.loop).node
        where = f"the loop {loop.var.name}"
        if loop.kind != "serial":
            return Problem("plain-loop", where, "a serial loop", f"a loop of the kind {loop.kind}")
        extent = known(loop.extent)
        if extent is None or extent > LONGEST:
            return Problem("short-loop", where, f"at most {LONGEST} iterations", str(extent))
        return None

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.loop)
        loop = site.node
        new = For(loop.var, loop.extent, "unrolled", loop.body, loop.annotations)
        return Edited(replace(scene.kernel, site, new))
'''

PRIMITIVE_USE: Final = """\
def test_a_kernel_is_scheduled_with_it() -> None:
    from $module.primitives import Unrolled
    from plica.schedule import block, do, loops, replay, trace_of
    from plica.script import Buffer, grid
    from plica.script import block as in_block

    @plica.kernel
    def twice(A: Buffer[(4,), f32], B: Buffer[(4,), f32]):
        for i in grid(4):
            with in_block("B", spatial=(i,)):
                B[i] = A[i] * 2.0

    @do
    def unrolled():
        (i,) = yield loops((yield block("B")))
        yield Unrolled(i)

    assert "unrolled" in str(replay(trace_of(unrolled, twice), twice))
"""

TARGET: Final = '''\
"""The target $name: this processor, as one thread, without Winograd."""

from attrs import evolve, frozen

from plica.codegen.backend import Backend, backend_named, find_target

CPU = backend_named("cpu")


@frozen
class Target:
    """What code is made for."""

    backend = "$name"

    def describe(self):
        return "$name"


def here(job):
    """A job for this target as one for the processor that it is made of."""
    return evolve(job, target=find_target("cpu"), threads=1)


PAGE = CPU.page().without("winograd", "fold-winograd")

BACKEND = Backend(
    "$name",
    "This processor, as one thread, without Winograd.",
    lambda text: Target(),
    {"default": PAGE},
    build=lambda page, lowered, job: CPU.build(page, lowered, here(job)),
    texts=lambda lowered, job, artefact: CPU.texts(lowered, here(job), artefact),
    machine=lambda target: CPU.machine(find_target("cpu")),
    threaded=False,
)
'''

TARGET_USE: Final = """\
def test_its_page_has_no_winograd() -> None:
    from $module.target import BACKEND

    assert "winograd" not in BACKEND.page().names
"""

ACCELERATOR: Final = '''\
"""The accelerator $module: outer products of i16, two units, declared as data.

`move` copies rows in and out; `outer` adds the product of a column and a row to a tile of 8 x 8,
adds two tiles, shifts one, takes the greater or the lesser.  Encoder, assembler, simulators,
checker and the offloading of layers follow from the declaration.
"""

from plica.codegen.accel import declaration as d
from plica.core.name import Name
from plica.ir.loop.scalar import Buffer, Cast, Max, Min, ScalarVar, Select, ShiftRight, lit
from plica.ir.loop.tensor import compute
from plica.ir.type.dtype import i16, i32

COL, ROW = d.Scope("col", 64, (8,), i16), d.Scope("row", 64, (8,), i16)
TILE = d.Scope("tile", 32, (8, 8), i32)

common = d.pack(0, opcode=4, pop_prev=1, pop_next=1, push_prev=1, push_next=1)
moving = common + d.pack(8, sram=6, dram=24, size=10)
nested = common + d.pack(8, n=8, dst=5, dst_n=5, a=6, a_n=6, b=6, b_n=6, by=-14)

tile, also = d.Reach(("tile",), "dst", ("dst_n",)), d.Reach(("tile",), "a", ("a_n",))
col, row = d.Reach(("col",), "a", ("a_n",)), d.Reach(("row",), "b", ("b_n",))

t, c, r = d.element(TILE), d.element(COL), d.element(ROW)
u, by = Buffer(Name("other"), t.shape, t.dtype), ScalarVar(Name("by"), i32)
product = compute((t, c, r), t.shape, lambda i, j: t[i, j] + Cast(c[i], i32) * Cast(r[j], i32))
greater = compute((t, u), t.shape, lambda i, j: Max(t[i, j], u[i, j]))
total = compute((t, u), t.shape, lambda i, j: t[i, j] + u[i, j])
right = compute((t,), t.shape, lambda i, j: Select(by >= 0, ShiftRight(t[i, j], by), t[i, j]))
lesser = compute((t,), t.shape, lambda i, j: Min(by, t[i, j]))
zero = compute((), t.shape, lambda _i, _j: lit(0, i32))


def move(name, opcode, scope, way):
    """Elements that follow each other, in or out."""
    does = d.Move(scope, way, "sram", "dram", "size")
    return d.Operation(name, "move", moving, (("opcode", opcode),), does)


def sweep(name, opcode, meaning, *reads):
    """One loop over tiles."""
    does = d.Sweep(("n",), (), tile, reads, meaning)
    return d.Operation(name, "outer", nested, (("opcode", opcode),), does)


# fmt: off
MACHINE = d.Accelerator(
    "$module", 64, (COL, ROW, TILE), ("move", "outer"),
    (d.Queue("move", "outer", 4), d.Queue("outer", "move", 4)),
    (
        move("get.col", 0, "col", "in"), move("get.row", 1, "row", "in"),
        move("put", 2, "tile", "out"), move("get.tile", 8, "tile", "in"),
        sweep("multiply", 3, product, tile, col, row), sweep("greater", 4, greater, tile, also),
        sweep("total", 9, total, tile, also),
        sweep("shift", 10, right, tile), sweep("lesser", 11, lesser, tile),
        sweep("clear", 5, zero), d.Operation("wait", "outer", common, (("opcode", 6),), d.Idle()),
        d.Operation("end", "move", common, (("opcode", 7),), d.Idle(), carries=False),
    ), "end", timing=d.Timing(megahertz=50, bus=4),
)
'''

ACCELERATOR_USE: Final = """\
def test_its_instructions_have_names() -> None:
    from $module.machine import MACHINE

    assert "multiply" in [each.name for each in MACHINE.operations]
"""

FORM: Final = '''\
"""A form of $name: the same elements in the same order, behind an axis of length 1."""

from plica.ir.loop.scalar import Buffer, index
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, stages
from plica.schedule.form import Form, exact


def with_unit_axis(of, facts, machine):
    """Whatever can be made of some stages; nothing where the form does not apply."""
    match of.stages:
        case (Each(out, axes, value),):
            wider = Buffer(out.name, (index(1), *out.shape), out.dtype)
            yield stages(of.inputs, (Each(wider, (Names(of).var("unit"), *axes), value),))


FORM = Form("$name-unit-axis", "An axis of length 1 in front.", exact, with_unit_axis, rank=99)
'''

FORM_USE: Final = """\
def test_it_leaves_other_stages_alone() -> None:
    from $module.forms import FORM

    assert FORM.name == "$name-unit-axis"
"""

# fmt: off
KINDS: Final[Mapping[str, Template]] = {
    "rule-pack":   Template("plica.packs", "$name", "rules", "PACK", RULES, RULES_USE,
                            'plica.compile(model, packs=["$name"])'),
    "operator":    Template("plica.operators", "$module", "operators", "", OPERATOR, OPERATOR_USE,
                            "op.$module.square_relu(x), in Python, scripts and texts"),
    "pass":        Template("plica.passes", "$name", "passes", "PASS", PASS, PASS_USE,
                            'page_of("cpu").insert("$name", before="fuse")'),
    "primitive":   Template("plica.instructions", "$module", "primitives", "", PRIMITIVE,
                            PRIMITIVE_USE, "yield Unrolled(loop), in a do-block and in traces"),
    "form":        Template("plica.forms", "$name", "forms", "FORM", FORM, FORM_USE,
                            "default schedules and search try it"),
    "target":      Template("plica.targets", "$name", "target", "BACKEND", TARGET, TARGET_USE,
                            'plica.compile(model, target="$name")'),
    "accelerator": Template("plica.accelerators", "$module", "machine", "MACHINE", ACCELERATOR,
                            ACCELERATOR_USE, 'plica.compile(model, target="accel:$module")'),
}
# fmt: on
"""What `plica new KIND NAME` writes."""

PROJECT: Final = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "0.1"
description = "$about"
requires-python = ">=3.11"
dependencies = ["plica"]

[project.entry-points."$group"]
$point = "$where"

[tool.hatch.build.targets.wheel]
packages = ["$module"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

README: Final = """\
# $name

A $kind for Plica.

    pip install -e .          # then: $use
    plica check .             # holds what it offers to what it promises; needs no installation
    pytest                    # the same, and a model that uses it

What it offers is in `$module/$file.py`, and its entry point, group `$group`, in `pyproject.toml`.
"""

TESTS: Final = '''\
"""What $name offers is right, and used."""

from pathlib import Path

import numpy as np
import plica
import pytest
from plica import op
from plica.extending import check_package
from plica.script import Tensor, f32

VERDICTS = list(check_package(Path(__file__).parents[1], examples=$examples))


@pytest.mark.parametrize("verdict", VERDICTS, ids=[each.name for each in VERDICTS])
def test_it_is_right(verdict) -> None:
    assert verdict.good, f"{verdict}\\n{verdict.example}"


$use
'''
