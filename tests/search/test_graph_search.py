"""Forms of a graph: every one means the same, the fastest is recorded, and compiling takes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import plica
from plica.codegen.backend import backend_of, find_target
from plica.ir.graph.module import Module
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.runtime.error import UnsupportedError
from plica.runtime.executable import Executable
from plica.search import graph_search
from plica.search.graph_form import (
    NAMED,
    GraphForm,
    alternatives,
    choosable,
    chosen_form,
    graph_key,
    offered,
)
from plica.search.graph_search import GraphTuned, changed, tuned_graph
from plica.search.record import Database, fingerprint
from plica.search.record.order import IN_PLACE
from plica.search.record.record import record
from plica.search.task import tasks_of

PADDED = """
import plica
from plica import op
from plica.script import Tensor, f32

@plica.function
def main(x: Tensor[(1, 4, 6, 6), f32], w: Tensor[(8, 4, 3, 3), f32]) -> Tensor[(1, 8, 6, 6), f32]:
    return op.nn.relu(op.nn.conv(op.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), w))
"""
BACKEND = backend_of(find_target("cpu"))
ONE_THREAD = BACKEND.with_threads(find_target("cpu"), 1)
PIPELINE = BACKEND.pipeline()
APART = GraphForm(("padding",))
"""The pad of `PADDED` is a kernel of its own."""


@pytest.fixture(scope="module")
def padded() -> Module:
    found = plica.from_text(PADDED)
    assert isinstance(found, Module)
    return found


def in_form(module: Module, form: GraphForm) -> Executable:
    made = plica.compile(module, threads=1, cache=False, passes=form.pipeline(PIPELINE))
    assert isinstance(made, Executable)
    return made


WORDS = (*PIPELINE.names, "saturate", "", "nobody's", '\u00e9"')
NAMES = st.lists(st.sampled_from(WORDS), max_size=3, unique=True).map(tuple)


@given(without=NAMES, within=NAMES)
def test_forms_are_read_as_they_were_written(
    without: tuple[str, ...], within: tuple[str, ...]
) -> None:
    form = GraphForm(without, within)
    assert GraphForm.from_text(form.text) == form
    known = {*without} <= {*choosable(PIPELINE)} and {*within} <= {*offered(PIPELINE)}
    assert (form.pipeline(PIPELINE) is not None) == known


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"without": "fuse", "within": []}', '{"without": [1], "within": []}']
)
def test_what_is_no_form_is_not_read(text: str) -> None:
    assert GraphForm.from_text(text) is None


def test_all_forms_mean_the_same_and_group_otherwise(padded: Module) -> None:
    found = alternatives(padded, DEFAULT_CONTRACT, (), ONE_THREAD)
    forms = [form for form, _ in found]
    assert forms[0] == GraphForm()
    assert APART in forms
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(s, np.float32) for s in ((1, 4, 6, 6), (8, 4, 3, 3)))
    wanted = in_form(padded, GraphForm())(x, w)
    for form in forms[1:]:
        np.testing.assert_allclose(in_form(padded, form)(x, w), wanted, rtol=1e-4, atol=1e-5)


def test_only_kernels_that_differ_are_reckoned(padded: Module) -> None:
    found = dict(alternatives(padded, DEFAULT_CONTRACT, (), ONE_THREAD))
    usual, apart = (
        tasks_of(found[form], ONE_THREAD, DEFAULT_CONTRACT) for form in (GraphForm(), APART)
    )
    assert changed(usual, usual, ONE_THREAD) == 1.0
    assert changed(usual, apart, ONE_THREAD) == pytest.approx(1 / changed(apart, usual, ONE_THREAD))


def searched(module: Module, monkeypatch: pytest.MonkeyPatch, part: float) -> GraphTuned:
    """A search in which every form takes a part of the time of the pipeline."""

    def calls(
        pipeline: Sequence[Executable], other: Sequence[Executable], values: Any
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return (1.0, 1.01, 0.99), (part, 1.01 * part, 0.99 * part)

    monkeypatch.setattr(graph_search, "calls", calls)
    monkeypatch.setattr(graph_search, "WORTH", 1e9)
    return tuned_graph(
        module, DEFAULT_CONTRACT, (), ONE_THREAD, lambda form: in_form(module, form), ()
    )


def test_the_fastest_form_is_recorded_and_compiled(
    padded: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = searched(padded, monkeypatch, 0.5)
    assert found.form in [each.form for each in found.trials if each.seconds == 0.5]
    with Database() as database:
        for each in found.records:
            database.put(each)
        best = {each.key: [each] for each in found.records if each.cost == 0.5}
        assert chosen_form(best, padded, DEFAULT_CONTRACT, (), PIPELINE) == found.form
        made = plica.compile(padded, threads=1, cache=False, database=database)
    wanted = in_form(padded, found.form)
    assert [row.kernel for row in made.artefact.record().traces] == [
        row.kernel for row in wanted.artefact.record().traces
    ]


def test_the_page_stays_where_nothing_is_clearly_faster(
    padded: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = searched(padded, monkeypatch, 0.999)
    assert found.form == GraphForm()
    assert [each.trace_json for each in found.records] == [GraphForm().text]
    assert "as it is" in str(found)


def test_a_record_that_is_no_form_of_the_page_changes_nothing(padded: Module) -> None:
    key, here = graph_key(padded, DEFAULT_CONTRACT, ()), fingerprint(ONE_THREAD)
    with Database() as database:
        for text in (GraphForm(("emit-llvm",)).text, "{}"):
            database.put(record(key, here, text, NAMED, (1e-9,), policy=IN_PLACE))
        made = plica.compile(padded, threads=1, cache=False, database=database)
    usual = plica.compile(padded, threads=1, cache=False)
    assert made.artefact.objects == usual.artefact.objects


def test_forms_of_a_kernel_are_refused(tmp_path: Path) -> None:
    kernel = """
import plica
from plica.script import Buffer, block, f32, grid

@plica.kernel
def doubled(A: Buffer[(8,), f32], B: Buffer[(8,), f32]):
    for i in grid(8):
        with block("B", spatial=(i,)):
            B[i] = A[i] * 2.0
"""
    with pytest.raises(UnsupportedError, match="passes over a graph"):
        plica.tune(plica.from_text(kernel), "cpu", 1, tmp_path / "t.db", graph=True)
