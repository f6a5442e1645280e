"""Graph forms: which graph passes a model is compiled with, recorded as schedules are.

    GraphForm ::= GraphForm(without, within)     passes left out of the pipeline, and put into it

>>> form = GraphForm(without=("winograd",))
>>> GraphForm.from_text(form.text) == form, str(form), str(GraphForm())
(True, 'without winograd', 'as it is')
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from attrs import frozen

from plica.codegen.backend import AnyTarget, backend_of
from plica.codegen.compilation import Job, grouped
from plica.codegen.program_kind import without_loops
from plica.core import digest
from plica.ir.contract import Contract
from plica.ir.graph.module import Module
from plica.ir.passes import Pipeline
from plica.ir.type import infer
from plica.rewrite.history import begun
from plica.rewrite.pack import Pack
from plica.rewrite.rule_pass import advanced
from plica.search.record.record import Record

PREFIX: Final = "graph:"  # what the keys of models begin with; those of kernels do not
NAMED: Final = "graph"  # the form that such records name
OFFERED: Final = {
    "saturate": "simplify-again"
}  # passes no pipeline holds, and after which they come


@frozen
class GraphForm:
    """The passes removed from a pipeline, and those added to it."""

    without: tuple[str, ...] = ()
    within: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The form as a record has it."""
        return json.dumps({"without": self.without, "within": self.within})

    @staticmethod
    def from_text(text: str) -> GraphForm | None:
        """The form of a text, or None if it is invalid."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not isinstance(found, dict) or found.keys() != {"without", "within"}:
            return None
        if not all(_are_names(each) for each in found.values()):
            return None
        return GraphForm(tuple(found["without"]), tuple(found["within"]))

    def pipeline(self, of: Pipeline) -> Pipeline | None:
        """A pipeline in this form, or None if it lacks such passes."""
        if not {*self.without} <= {*choosable(of)} or not {*self.within} <= {*offered(of)}:
            return None
        found = of.without(*self.without) if self.without else of
        for each in self.within:
            found = found.insert(each, after=OFFERED[each])
        return found

    def __str__(self) -> str:
        left_out = [f"without {', '.join(self.without)}"] if self.without else []
        put_in = [f"with {', '.join(self.within)}"] if self.within else []
        return " and ".join([*left_out, *put_in]) or "as it is"


def _are_names(of: object) -> bool:
    return (
        isinstance(of, list) and len(of) <= MAX_NAMES and all(isinstance(each, str) for each in of)
    )


MAX_NAMES: Final = 64  # names of a form that is read


def choosable(pipeline: Pipeline) -> Iterator[str]:
    """The graph passes of a pipeline that may be left out: nothing later requires what they
    give."""
    needed = {name for pass_ in pipeline for name in (*pass_.before, *pass_.requires)}
    for each in pipeline.of("graph", "rules"):
        if not needed.intersection((each.name, *each.after)) and each.name not in MANDATORY_PASSES:
            yield each.name


MANDATORY_PASSES: Final = ("packs", "to-dataflow", "infer", "resolve", "decompose", "fuse")
"""Mandatory passes: the user's packs, the prerequisites of all others, and fusion."""


def offered(pipeline: Pipeline) -> Iterator[str]:
    """The passes that may be added to a pipeline."""
    for name, after in OFFERED.items():
        if after in pipeline.names and name not in pipeline.names:
            yield name


def graph_key(module: Module, contract: Contract, packs: Sequence[Pack]) -> str:
    """The key of a model for graph search: its digest, contract and packs."""
    text = f"{digest(module)} {contract} {[(pack.name, pack.version) for pack in packs]}"
    return PREFIX + hashlib.sha256(text.encode()).hexdigest()[:32]


def chosen_form(
    best: Mapping[str, Sequence[Record]],
    module: Module,
    contract: Contract,
    packs: Sequence[Pack],
    pipeline: Pipeline,
) -> GraphForm | None:
    """The fastest recorded form of a model, or None if none applies to this pipeline."""
    if not any(each.startswith(PREFIX) for each in best):
        return None
    for record in best.get(graph_key(module, contract, packs), ()):
        form = GraphForm.from_text(record.trace_json)
        if form is not None and form.pipeline(pipeline) is not None:
            return form
    return None


def alternatives(
    module: Module, contract: Contract, packs: Sequence[Pack], target: AnyTarget
) -> tuple[tuple[GraphForm, Module], ...]:
    """Forms of a model that group operators differently, with the results; the pipeline's is
    first."""
    backend = backend_of(target)
    pipeline, job = backend.pipeline(), Job(contract, tuple(packs), target, backend.machine(target))
    source = infer(without_loops(module))
    history = begun(source)
    does_something: list[str] = []
    for pass_ in pipeline.of("graph", "rules"):
        after = advanced(pass_, history, job)
        if after.module is not history.module:
            does_something.append(pass_.name)
        history = after
    may = set(choosable(pipeline))
    forms = [GraphForm((each,)) for each in does_something if each in may]
    forms += [GraphForm(within=(each,)) for each in offered(pipeline)]
    found = {digest(history.module): (GraphForm(), history.module)}
    for form in forms:
        edited = form.pipeline(pipeline)
        assert edited is not None  # it is made of this pipeline
        made = grouped(edited, begun(source), job).module
        found.setdefault(digest(made), (form, made))
    return tuple(found.values())
