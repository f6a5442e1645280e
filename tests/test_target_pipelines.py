"""Pages: one list of passes for each target, edited as values, driven and checked by one driver."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, strategies as st

import plica
from plica.codegen.backend import EFFORTS
from plica.codegen.compilation import emitted, lowered
from plica.codegen.compilation_check import StateChecks
from plica.codegen.lower.candidate import Groups, TracedGroup
from plica.codegen.lower.shared_passes import lowerable_groups
from plica.codegen.pass_run import KernelCount, PassLog
from plica.core.binding import substitute
from plica.core.diagnostic import CompilerBug
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Function, Var, const
from plica.ir.graph.module import Module
from plica.ir.loop.scalar import index
from plica.ir.loop.statement import For, Kernel, Seq, Store, seq
from plica.ir.op import find
from plica.ir.passes import KINDS, RENAMED, Pass, PassError, Pipeline
from plica.ir.text.script import from_text
from plica.ir.type.term import TensorType, static_shape
from plica.pipeline import job_for, lower, page_of, pipeline_of, target_of
from plica.rewrite import PatternMatch, holes, pack, reassociates, rule, swept_down, swept_up
from plica.rewrite.fuzz import fuzz
from plica.rewrite.partition import partitioning
from plica.rewrite.rule_pass import rules
from plica.rewrite.saturate.pass_ import cheapest
from plica.runtime.error import PlicaError, UnsupportedError
from tests.conftest import Golden
from tests.strategies import inputs_for, static_modules

HEADER = """
import plica
from plica import op
from plica.op import nn
from plica.script import Tensor, f32

"""
SOURCE = (
    HEADER
    + """
@plica.function
def main(x: Tensor[(8, 32), f32], w: Tensor[(32, 16), f32]) -> Tensor[(8, 16), f32]:
    return nn.relu(op.matmul(x, w)) + 1.0
"""
)
LARGER = SOURCE.replace("(8, ", "(80, ")
CHAIN = (
    HEADER
    + """
@plica.function
def main(
    a: Tensor[(64, 2), f32], b: Tensor[(2, 64), f32], v: Tensor[(64, 1), f32]
) -> Tensor[(64, 1), f32]:
    return op.matmul(op.matmul(a, b), v)
"""
)
PLACED = (
    HEADER
    + """
@plica.function
def main(a: Tensor[(4,), f32]) -> Tensor[(4,), f32]:
    return op.exp(op.on_device(op.exp(a), 'gpu')) + 1.0
"""
)
x, y, z = holes("x y z")


def matrices(found: PatternMatch) -> bool:
    return all(len(found.shape(each)) == 2 for each in (x, y, z))


REGROUP = pack(
    "regroup",
    rule("regroup", (x @ y) @ z, x @ (y @ z), when=matrices, float=reassociates),
    version="0",
)
CPU = pipeline_of("cpu")
PIPELINES = {
    "cpu": CPU,
    "cpu_objects": pipeline_of("cpu", objects=True),
    "cuda": pipeline_of("cuda:sm_90"),
    "accel": pipeline_of("accel"),
    "cpu_fast": pipeline_of("cpu", "fast"),
}


def arrays(module: Module) -> list[Any]:
    random = np.random.default_rng(0)
    found = []
    for each in module.main_function().params:
        assert isinstance(each.type, TensorType)
        shape = static_shape(each.type)
        assert shape is not None
        found.append(random.standard_normal(shape).astype(np.float32))
    return found


def assert_right(source: str, pipeline: Pipeline) -> None:
    """A pipeline gives code that computes what the module means."""
    module = from_text(source)
    given_ = arrays(module)
    found = plica.compile(module, passes=pipeline, cache=False)(*given_)
    np.testing.assert_allclose(
        np.asarray(found), np.asarray(plica.interpret(module, *given_)), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("name", PIPELINES)
def test_the_pipelines_as_text(name: str, golden: Golden) -> None:
    golden(PIPELINES[name].table() + "\n", name)


@pytest.mark.parametrize("name", PIPELINES)
def test_every_pass_says_why_in_a_sentence(name: str) -> None:
    assert all(each.why.endswith(".") for each in PIPELINES[name])
    assert len(PIPELINES[name].kinds) <= 9
    levels = [max(1, KINDS.index(each.kind)) for each in PIPELINES[name]]
    assert levels == sorted(levels)


@given(st.sampled_from(CPU.names), st.sampled_from(CPU.names))
def test_laws_of_editing(one: str, other: str) -> None:
    mine = Pass("mine", "An example.", lambda of: of)
    assert CPU.insert(mine, after=one).without("mine") == CPU
    assert CPU.insert(mine, before=one).until("mine").without("mine") == Pipeline(
        CPU.passes[: CPU.names.index(one)]
    )
    assert CPU.replace(one, CPU.find(one)) == CPU
    assert CPU.without(one).without(*({other} - {one})) == CPU.without(*{one, other})
    assert CPU.insert(mine, after=one).names.index("mine") == CPU.names.index(one) + 1


@given(st.data())
def test_optional_passes_may_all_be_left_out(data: st.DataObject) -> None:
    """Meaning does not depend on what only makes code faster."""
    optional = ("inference", "simplify", "fold-constants", "scale", "transposed", "padding",
                "simplify-again", "merge-common", "remove-dead", "winograd", "hoist", "tidy",
                "partition", "in-place", "reuse")  # fmt: skip
    off = data.draw(st.sets(st.sampled_from(optional), max_size=6))
    of = data.draw(static_modules())
    args = data.draw(inputs_for(of))
    found = plica.compile(of, disabled=sorted(off), cache=False)(*args)
    for ours, meant in zip(_flat(found), _flat(plica.interpret(of, *args)), strict=True):
        np.testing.assert_allclose(ours, np.asarray(meant), rtol=1e-3, atol=1e-3)


def _flat(value: Any) -> list[Any]:
    return [leaf for item in value for leaf in _flat(item)] if isinstance(value, tuple) else [value]


def test_the_former_name_still_works() -> None:
    assert page_of is pipeline_of


def test_a_pass_of_ones_own_runs_where_it_is_put() -> None:
    seen: list[str] = []

    def noted(kind: str) -> Any:
        def look(of: Any) -> Any:
            seen.append(kind)
            return of

        return look

    pipeline = CPU.insert(Pass("after-fuse", "Looks.", noted("graph")), after="fuse")
    pipeline = pipeline.insert(
        Pass("in-kernels", "Looks.", noted("kernel"), kind="lower"), after="tidy"
    )
    assert_right(SOURCE, pipeline)
    assert seen[0] == "graph"
    assert "kernel" in seen


def test_what_is_disabled_does_not_run_and_changes_the_code() -> None:
    module = from_text(SOURCE)
    plain = plica.compile(module)
    assert plica.compile(module, disabled=("fuse",)) is not plain
    assert plica.compile(module) is plain
    apart = plica.compile(module, disabled=("fuse",), cache=False)
    assert apart.source("kernel").count("def ") > plain.source("kernel").count("def ")


@pytest.mark.parametrize("effort", EFFORTS)
def test_every_effort_gives_right_code(effort: str) -> None:
    module = from_text(SOURCE)
    given_ = arrays(module)
    found = plica.compile(module, effort=effort, cache=False)(*given_)
    np.testing.assert_allclose(np.asarray(found), plica.interpret(module, *given_), rtol=1e-4)


def test_efforts_and_pages_are_told_apart_in_the_cache() -> None:
    module = from_text(SOURCE)
    one, other = plica.compile(module), plica.compile(module, effort="fast")
    assert one is not other
    assert plica.compile(module, effort="fast") is other
    mine = CPU.insert(Pass("mine", "Nothing.", lambda of: of), after="fuse")
    first = plica.compile(module, passes=mine)
    assert first is not one
    assert plica.compile(module, passes=mine) is first


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"disabled": ("winogrand",)}, "unknown-pass", "Did you mean 'winograd'?"),
        ({"effort": "fats"}, "unsupported", "Did you mean 'fast'?"),
        ({"passes": "cpu"}, "unknown-pass", "pipeline_of"),
        ({"passes": CPU.until("fuse")}, "missing-pass", "pipeline_of"),
        ({"passes": CPU, "effort": "fast"}, "unsupported", "passes or effort"),
        ({"disabled": ("emit-llvm",)}, "missing-pass", "emit"),
        ({"disabled": ("resolve",)}, "missing-pass", "resolve"),
    ],
)
def test_refusals(options: dict[str, Any], code: str, words: str) -> None:
    with pytest.raises(PlicaError) as caught:
        plica.compile(from_text(SOURCE), **options, cache=False)
    assert caught.value.code == code
    assert words in str(caught.value)


def test_a_pass_has_its_place() -> None:
    lost = Pass("lost", "A pass over kernels.", lambda of: of, kind="lower")
    with pytest.raises(PassError) as caught:
        plica.compile(from_text(SOURCE), passes=CPU.insert(lost, after="simplify"))
    assert caught.value.code == "misplaced-pass"
    with pytest.raises(PassError, match="kind of pass"):
        Pass("odd", "Odd.", lambda of: of, kind="grahp")  # type: ignore[arg-type]


def test_unknown_names_are_refused_with_what_is_near() -> None:
    with pytest.raises(PassError, match="verify-kernels"):
        CPU.insert("verify-kernel")
    with pytest.raises(UnsupportedError, match="no programs with data"):
        pipeline_of("cuda:sm_90", objects=True)


# --- rules by strategies, and what stands beside the road --------------------------------------


@pytest.mark.parametrize("by", [swept_up, swept_down, cheapest()])
def test_packs_are_driven_by_any_strategy(by: Any) -> None:
    pipeline = CPU.insert(
        rules("regroup", "Products from the right.", REGROUP, by), after="simplify"
    )
    assert_right(CHAIN, pipeline)
    made = lower(from_text(CHAIN), pipeline=pipeline)
    assert "regroup" in [step.rule.name for step in made.derivation.steps]


def test_saturation_takes_the_cheapest_form_and_leaves_what_is_best() -> None:
    pipeline = CPU.insert(rules("cheapest", "…", REGROUP, cheapest()), after="simplify")
    program = lower(from_text(CHAIN), pipeline=pipeline).program
    assert sum(slot.bytes for slot in program.space("temporary")) < 64 * 64 * 4
    assert_right(SOURCE, CPU.insert("saturate", after="simplify-again"))


def test_partitions_are_fused_as_all_else() -> None:
    matmul, relu = find("matmul"), find("nn.relu")
    assert matmul is not None
    assert relu is not None
    cut = partitioning(relu(matmul(x, y)), "block")
    pipeline = CPU.insert(cut, after="remove-dead")
    assert_right(SOURCE, pipeline)
    assert_right(SOURCE, pipeline.insert("inline-composites", after=cut.name))


def test_placement_compiles() -> None:
    assert_right(PLACED, CPU.insert("place-devices", after="to-dataflow"))


def test_kernels_are_verified_on_the_page() -> None:
    pipeline = CPU.insert("verify-kernels", after="schedule")
    assert_right(SOURCE, pipeline)
    broken = pipeline.insert(Pass("break", "Wrong.", _beyond, kind="lower"), after="schedule")
    with pytest.raises(CompilerBug, match="not shown"):
        lower(from_text(SOURCE), pipeline=broken, target=target_of("cpu"))


# --- checks between passes ---------------------------------------------------------------------


def _beyond(kernel: Kernel) -> Kernel:
    """A kernel all of whose stores go one too far."""
    from plica.core.fold import map_bottom_up

    def moved(node: Any) -> Any:
        if isinstance(node, Store):
            return evolve(node, indices=(node.indices[0] + 1, *node.indices[1:]))
        return node

    made = map_bottom_up(moved, kernel)
    assert isinstance(made, Kernel)
    return made


def _ill_typed(module: Module) -> Module:
    main = module.main_function()
    body = Apply("add", (main.body, const(np.zeros((3, 5), np.float32))))
    return Module(module.names, (evolve(main, body=body),), module.main)


def _unbound(kernel: Kernel) -> Kernel:
    return evolve(kernel, params=kernel.params[1:], inputs=kernel.inputs - 1)


@pytest.mark.parametrize(
    ("guilty", "after"),
    [
        (Pass("bad-graph", "Wrong.", _ill_typed), "fuse"),
        (Pass("bad-kernel", "Wrong.", _unbound, kind="lower"), "compact"),
    ],
)
def test_the_guilty_pass_is_named(guilty: Pass, after: str) -> None:
    pipeline = CPU.insert(guilty, after=after)
    with pytest.raises(CompilerBug, match=f"After {guilty.name}"):
        lower(from_text(SOURCE), target=target_of("cpu"), pipeline=pipeline, checks=StateChecks())


def _one_row(kernel: Kernel) -> Kernel:
    """A kernel whose outermost loops run at once, and store where the first turn does."""
    from plica.core.fold import map_bottom_up

    def meeting(node: Any) -> Any:
        if not isinstance(node, For):
            return node
        here = {node.var: index(0)}
        body: Any = map_bottom_up(
            lambda each: substitute(each, here) if isinstance(each, Store) else each, node.body
        )
        return For(node.var, node.extent, "parallel", body)

    parts = kernel.body.stmts if isinstance(kernel.body, Seq) else (kernel.body,)
    return evolve(kernel, body=seq(*[meeting(each) for each in parts]))


def test_a_pass_that_makes_a_race_is_named() -> None:
    guilty = Pass("one-row", "Wrong.", _one_row, kind="lower")
    pipeline = CPU.insert(guilty, after="blocks-to-loops")
    with pytest.raises(CompilerBug, match=r"(?s)After one-row: .*Iterations 0 and 1 of the loop"):
        lower(from_text(LARGER), target=target_of("cpu"), pipeline=pipeline, checks=StateChecks())


def test_fuzzing_native_code_blames_the_pass() -> None:
    pipeline = CPU.insert(Pass("bad-graph", "Wrong.", _ill_typed), after="fuse")

    def native(module: Module, inputs: Any) -> Any:
        lower(module, target=target_of("cpu"), pipeline=pipeline, checks=StateChecks())

    found = fuzz((), examples=20, native=native, every=1).finding
    assert found is not None
    assert (found.kind, found.stage) == ("ill-formed", "bad-graph")


def test_an_access_out_of_bounds_is_blamed_where_proofs_are_asked_for() -> None:
    pipeline = CPU.insert(Pass("too-far", "Wrong.", _beyond, kind="lower"), after="schedule")
    with pytest.raises(CompilerBug, match="After too-far"):
        lower(
            from_text(SOURCE), target=target_of("cpu"), pipeline=pipeline, checks=StateChecks(True)
        )


@given(static_modules())
def test_every_pass_keeps_modules_and_kernels_well_formed(of: Module) -> None:
    lower(of, target=target_of("cpu"), checks=StateChecks())


def test_gpu_pages_are_checked_too() -> None:
    lower(from_text(SOURCE), target=target_of("cuda:sm_90"), checks=StateChecks(True))


# --- pass runs --------------------------------------------------------------------------------


def test_hops_say_what_each_pass_took_and_gave() -> None:
    ticks = count()
    log, kernels = PassLog(lambda: float(next(ticks))), KernelCount()
    target = target_of("cpu")
    job, module = job_for(target), from_text(SOURCE)
    made = lowered(CPU, module, job, (log, kernels))
    emitted(CPU, made, job, (log, kernels))
    names = [each.name for each in log.runs]
    folds = ("fold-winograd", "fold-widened")  # there is nothing to fold
    assert names == [name for name in CPU.names if name not in folds]
    for one, other in zip(log.runs, log.runs[1:], strict=False):
        assert one.output == other.input
    assert len(log.kinds) <= 9
    assert all(each.seconds == 1.0 for each in log.runs)
    assert kernels.emitted == len(made.program.kernels) == 1
    assert kernels.built >= kernels.emitted
    title = ["pass", "kind", "input", "output", "ms", "kernels"]
    assert str(log).splitlines()[0].split() == title
    again = lowered(CPU, module, job)
    assert again.program == made.program  # whoever watches changes nothing


CANDIDATES = ("stages", "forms", "template", "lowerable")


def test_kernels_come_about_in_passes_of_their_own() -> None:
    ticks = count()
    log = PassLog(lambda: float(next(ticks)))
    module, job = from_text(SOURCE), job_for(target_of("cpu"))
    made = lowered(CPU, module, job, (log,))
    apart = {each.name: each for each in log.runs if each.name in CANDIDATES}
    assert tuple(apart) == CANDIDATES
    assert [each.kernels for each in apart.values()] == [1] * 4
    assert apart["forms"].output != apart["forms"].input
    assert apart["template"].output != apart["template"].input
    assert made.program == lowered(CPU, module, job).program  # at once, where nobody watches
    assert [each.trace for each in made.program.origins] == [
        each.trace for each in lowered(CPU, module, job).program.origins
    ]


def test_what_was_passed_over_is_told_by_the_pass_that_did() -> None:
    def hopeless(groups: Groups) -> Groups:
        """As if no candidate could be lowered."""
        steps = {
            key: evolve(each.staged.steps, lower=lambda _, kernel: "it is Friday")
            for key, each in groups.items()
            if isinstance(each, TracedGroup)
        }
        return lowerable_groups({
            key: evolve(each, staged=evolve(each.staged, steps=steps[key]))
            if isinstance(each, TracedGroup) else each
            for key, each in groups.items()
        })  # fmt: skip

    pipeline = CPU.replace("lowerable", evolve(CPU.find("lowerable"), run=hopeless))
    log = PassLog(lambda: 0.0)
    made = lowered(pipeline, from_text(SOURCE), job_for(target_of("cpu")), (log,))
    told = {each.name: each.passed_over for each in log.runs if each.passed_over}
    assert set(told) == {"lowerable"}
    assert all(each.endswith("it is Friday") for each in told["lowerable"])
    assert told["lowerable"][0] in str(log)
    assert made.program.origins == (None,)  # plain loops are left
    again = lowered(pipeline, from_text(SOURCE), job_for(target_of("cpu")))
    assert again.program == made.program  # an edited pipeline is run as it is


def test_forms_are_left_out_with_what_needs_them_alone() -> None:
    with pytest.raises(PassError, match="template requires forms"):
        plica.compile(from_text(SOURCE), disabled=("forms",), cache=False)
    pipeline = CPU.without(*CANDIDATES)
    module, job = from_text(SOURCE), job_for(target_of("cpu"))
    assert lowered(pipeline, module, job).program == lowered(CPU, module, job).program


@pytest.mark.parametrize("old", sorted(RENAMED))
def test_a_former_name_is_told_with_the_one_of_now(old: str) -> None:
    pipeline = next(each for each in (CPU, PIPELINES["cuda"]) if RENAMED[old] in each.names)
    with pytest.raises(PassError, match=f"It is called '{RENAMED[old]}' now"):
        pipeline.without(old)


def test_a_simple_module_needs_no_name() -> None:
    main = Var(Name("main"), None)
    v = Var(Name("x"), plica.from_text(SOURCE).main_function().params[0].type)
    from plica.ir.graph.module import module

    made = plica.compile(module({main: Function((), (), (v,), None, v * 2.0)}, main), effort="fast")
    assert np.asarray(made(np.ones((8, 32), np.float32))).sum() == 512


NAMESAKE = """
# plica 1
import plica
from plica import op
from plica.op import nn
from plica.script import Tensor, f32


@plica.function
def main(x: Tensor[("SIZE", "SIZE"), f32]) -> Tensor[("SIZE", "SIZE"), f32]:
    return op.exp(nn.softmax(nn.dense(x, x)))
"""


@pytest.mark.parametrize("size", ["i", "k"])
def test_a_size_may_be_called_as_an_axis_is(size: str) -> None:
    module = from_text(NAMESAKE.replace("SIZE", size))
    lower(module, target=target_of("cpu"), checks=StateChecks())
