# ruff: noqa: E501  # a page of text
"""docs/onnx.md is the table of operators and the figures of conformance, written down."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from plica.frontend.onnx.convert import MAX_BRANCH_POINTS
from plica.frontend.onnx.expand import has_definition
from plica.frontend.onnx.fuzz.kind import KINDS
from plica.frontend.onnx.row.repeat import MOST_TURNS
from plica.frontend.onnx.table import LEARNED_REASONS, REASONS, TABLE, TABLES
from plica.frontend.recurrence import MOST_STEPS
from plica.pipeline.code_for_sizes import MAX_EXECUTABLES
from tests.frontend.onnx.conformance import recorded, table

PAGE = Path(__file__).parents[3] / "docs" / "onnx.md"
HEAD = """# ONNX models

`plica.from_onnx(source, dims=None, fixed=None)` reads a path, the bytes of a file or a `ModelProto`
and gives a module, which `plica.compile` and `plica.interpret` take. Operators of the versions 6 to
{newest} are read, each with the meaning of its version.

- Inputs keep their names; the names of outputs are the attribute `outputs` of the main function.
- A symbolic dim of the file is one of the module; `dims={{"batch": 1}}` gives it a number. A name
  that no script can hold (`batch size`) becomes one that can (`batch_size`), and both may be given;
  a dim without a name is called after its input and axis (`x_0`). Exporters give one name to axes
  that differ: a call whose inputs contradict a name compiles the model once more, with a dim for
  each axis of that name, and warns; if the model does not type that way, the call is refused.
- A branch of `If` that does not type is refused only in a call that takes it, with the node and
  the type error.
- Shapes that a model computes (`Shape`, `Gather`, `Concat`, `Reshape` …) are followed while it is
  read. A shape, an axis or a count that depends on elements of an input is refused with
  `plica.frontend.onnx.NeedsValue`, whose `inputs` names them; `fixed={{"shape": array}}` gives such
  inputs values, and they are no inputs of the module then. `plica.compile` does that by itself.
- A tensor that the file stores is a constant, also where the file lists it among its inputs;
  `fixed` takes another value for it, of the same type.
- A loop whose turns are known while the model is read, and are no more than {turns}, is written
  out, and so are a scan and a recurrent network of up to {steps} steps: code and the time to
  compile it grow with the turns. Every other one is a function that calls itself, which
  `plica.interpret` and `plica.compile` run, with what its turns collect: one code for any number
  of them.
- Functions of the model, and operators that the standard defines by others, are read in place.
- Tensors may lie in files in the folder of the model, nowhere else.
- A sequence that goes in or comes out is a list of arrays, whose shapes may differ; an optional is
  an array, such a list, or `None`. Inside, a list is its elements in a row and a table of their
  shapes (`plica.runtime.ragged`), so one code serves lists of any length, and artefacts take and
  give lists, too. A loop of unknown length appends to the sequences that it carries, no more; where
  it does more, it is compiled at the call.
- Trees and linear models of `ai.onnx.ml` have labels that are integers. Where onnxruntime and the
  standard's reference disagree about what a file says (two classes with a weight for each, a
  transform of one score), it is refused.
- Everything that is not supported is listed at once, with the names of the nodes. Strings, sparse
  tensors, random numbers and training are refused.

## Sizes and values that are known at a call

`plica.compile(model)` takes a module, the path of an ONNX file, or a `ModelProto`, and compiles at
once; `exe.stats.at_call` counts what was compiled at a call, which on processors is 0 but for the
last row here:

- Sizes: one code serves every size of the symbolic dims of the inputs; `exe.at(...)` makes code for
  the sizes of some arrays alone.
- Values that decide sizes: inputs that hold shapes, axes or counts, what depends on all elements
  (`NonZero`, `Unique`, `Compress`, `NonMaxSuppression`, `TopK`), branches whose sides differ in
  size, loops whose length is known when they run. The program is cut where a size becomes known,
  into segments of one code each; artefacts hold all of them. A Fourier transform (`DFT`, `STFT`)
  whose length is only known then takes a product with a matrix of that length squared.
- Ranks: where the number of axes of a tensor depends on a size or a value (`Squeeze` without axes
  of an open size, which may be 1, branches whose sides differ in rank) the model is read once for
  each answer, up to {forks} such questions, and a call chooses. An output may be of another rank
  each time. A call for which the model has no meaning (an axis that is not there) is refused.
- Compiled when it is called, once for each choice of the values that decide, the {most} used last
  kept: shapes and axes in vectors of open length, ranks that a loop of unknown length carries
  or collects and that are only known inside of it, and more such questions than that.
- `plica compile M.onnx --dim batch=4 --input shape=shape.npy -o M.plica` gives a dim its number and
  an input its value for good.

Bounds, steps, pads, repeats and sizes that are computed from open sizes may be negative: a bound of
`Slice` counts from the end and is clamped as the standard says, `Range` and `Slice` give empty
tensors, a negative pad cuts off. A negative size is refused at the call (`input-shape`), wherever in
the model it arises: no operator computes with one. A 0 that `Reshape` computes copies the axis of its
input, unless the reshape only splits or merges neighbouring axes: there it is a size of 0. A -1 must be
written in the model.

Where a model's operators allow it there is one code for every size ([open.md](open.md)), and none
of this is needed.

## Integers from floats

Under the default contract floats may be off by some last bits. An integer or a truth value made of
them (`QuantizeLinear`, `Round`, `Floor`, `Cast`, a comparison) must not depend on how a division is
carried out: a quotient that is rounded, cast to an integer or compared, also after elements have been
moved, stays a division where its dividend is made of inputs and constants by operators with one
correctly rounded result (moves, `Add`, `Mul`, `Div`, `Sqrt`, `Max` …). Elsewhere a division by a
constant is a product with its reciprocal. What comes from a sum, a contraction or a transcendental
function has free last bits, and so has a quotient by what a row shares that is itself an output of the
model; `contract="fused"` or stricter keeps every division.

## Where onnxruntime differs

What the standard leaves open, or onnxruntime does otherwise, on x86-64 (`tests/frontend/onnx/test_verdict.py`
holds Plica's column):

| case | onnxruntime | onnx.reference | Plica | why |
| --- | --- | --- | --- | --- |
| `ReduceMean` of an empty axis, floats | 0 | nan | nan | 0 / 0; the standard calls it undefined |
| the same of integers | 0 | the least integer | 0 | there is no nan to give |
| the other reductions of an empty axis | their neutral element | the same | the same | the standard says so |
| `MeanVarianceNormalization` of one element, or of equal ones | nan | 0 | 0 | the standard adds 1e-9 to the deviation |
| `ArgMin`, `ArgMax` of an empty axis | refused | refused | refused | there is no index |
| `GlobalAveragePool` of an empty axis | refused | nan | refused | a pool takes a window of something |
| `Cast` of a float out of range to an integer | wraps, or the least integer | the same | the nearest integer, 0 for nan | undefined by the standard; the same on every target |
| `Cast` of an integer out of range | wraps | wraps | wraps | the standard says so |
| `QuantizeLinear` of nan | the least integer | the least integer | nan is 0 before the zero point is added and the sum saturates | undefined by the standard |
| `QuantizeLinear` of ties | half to even | half to even | half to even | the standard says so |
| `ReduceLogSumExp`, `ReduceLogSum` of integers | rounds towards 0 | refused | rounds towards 0 | a result of the input's type |
| `Pow` of integers, beyond the type | the least integer | wraps | wraps | as products do |
| `Pow` of integers, a negative power | 0, that of 1 and -1 is exact, that of 0 the least integer | refused | 0, that of 1 and -1 is exact | the quotient rounded towards 0 |
| `Pow` of a negative integer, a fractional power | the least integer | the least integer | 0 | a cast of nan |
| `Unique` with nan | leaves nan out | keeps one | keeps one | nan is an element |
| `Unique` with `sorted=0` | in order of appearance | sorted | in order of appearance | the standard says so |
| `Compress`, a condition longer than the axis | its rest is not used | refused | its rest is not used | harmless |
| `CenterCropPad` to a negative size | empty | refused | refused | no tensor has one |
| `Reshape` with `allowzero`, 0 and -1 | some shape | refused | refused | the standard forbids it |
| `CumSum`, `ReduceSum` of an empty tensor along an axis that is not there | empty | refused | refused | the axis is wrong whatever the sizes are |

## Hostile files

A file is data from outside. Truncated, cyclic and ill-typed models, tensors of more than 2^40
bytes or 64 axes, functions and graphs that unfold without end, and tensors that lie outside of the
model's folder are refused with the name of the node. Tests read such models in a process with
little memory and time, and thousands of models with bytes changed at random.

`plica fuzz onnx --examples 500` makes random models of {kinds} kinds of nodes, versions 13 and
later, some with an open batch, and holds them to onnxruntime, interpreted and compiled; a model
that goes wrong is made as small as it can be and saved. onnxruntime answers in a process of its
own: a model that ends this one, or that it has no answer for in a minute, counts as not taken.

## Conformance

The standard's own test cases that come with data (onnx {version}): {total} of {cases} give the
right result, {special} of them with inputs fixed that hold shapes, axes or counts; all others are
refused, and none is wrong. All that pass are right compiled too, through `plica.compile` alone.
`tests/frontend/onnx/conformance.txt` lists them; `make conformance` runs them.

{categories}

The tables are made by `pytest tests/frontend/onnx/test_page.py --update-golden`.

"""


def text() -> str:
    schemas = [
        each for each in onnx.defs.get_all_schemas() if each.domain == "" and not each.deprecated
    ]
    newest = onnx.defs.onnx_opset_version()
    names = sorted(each.name for each in schemas)
    rows, added, learned = map(sorted, (TABLE, TABLES["com.microsoft"], TABLES["ai.onnx.ml"]))
    others = [name for name in names if name not in TABLE and name not in REASONS]
    defined = [name for name in others if has_definition(name, newest, "")]
    refused = [name for name in names if name not in TABLE and name not in defined]
    *rows_, whole = table(recorded().values())
    head = HEAD.format(
        newest=newest,
        version=onnx.__version__,
        most=MAX_EXECUTABLES,
        forks=MAX_BRANCH_POINTS,
        kinds=len(KINDS),
        turns=MOST_TURNS,
        steps=MOST_STEPS,
        cases=f"{whole[1]:,}",
        total=f"{whole[2]:,}",
        special=whole[3],
        categories=categories([*rows_, whole]),
    )
    parts = {
        f"## Operators with a row of their own ({len(rows)})": rows,
        f"## Operators read by the standard's definition ({len(defined)})": defined,
        f"## Operators of onnxruntime (`com.microsoft`, {len(added)})": added,
        f"## Operators of classical learning (`ai.onnx.ml`, {len(learned)})": learned,
    }
    tables = [f"{title}\n\n{wrapped(each)}" for title, each in parts.items()]
    refused += sorted(LEARNED_REASONS)
    title = f"## Operators of the standard that are refused ({len(refused)})"
    return head + "\n\n".join([*tables, f"{title}\n\n{reasons(refused)}"]) + "\n"


def categories(rows: list[tuple[str, int, int, int, int]]) -> str:
    lines = [
        "| cases | all | right | of these with inputs fixed | refused |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, each))} |" for each in rows)])


def reasons(names: list[str]) -> str:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault({**REASONS, **LEARNED_REASONS}[name], []).append(f"`{name}`")
    lines = ["| why | operators |", "|---|---|"]
    return "\n".join([*lines, *(f"| {why} | {' '.join(each)} |" for why, each in found.items())])


def wrapped(names: list[str]) -> str:
    lines, line = [], ""
    for name in names:
        word = f"`{name}`"
        if len(line) + len(word) + 1 > 100:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return "\n".join([*lines, line])


def test_the_page_is_the_table(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(text())
    page = PAGE.read_text()
    if f"(onnx {onnx.__version__})" not in page:
        pytest.skip("the page was made with another version of onnx")
    assert page == text()


def test_every_row_is_an_operator_of_some_version() -> None:
    learned = {each.name for each in onnx.defs.get_all_schemas() if each.domain == "ai.onnx.ml"}
    assert {*TABLES["ai.onnx.ml"]} | {*LEARNED_REASONS} == learned
    known = {each.name for each in onnx.defs.get_all_schemas_with_history() if each.domain == ""}
    known |= {"SimplifiedLayerNormalization"}  # onnxruntime adds it to the standard's own domain
    assert set(TABLE) <= known


def test_a_reason_is_given_for_what_is_refused_and_for_nothing_else() -> None:
    newest = onnx.defs.onnx_opset_version()
    schemas = [each for each in onnx.defs.get_all_schemas() if each.domain == ""]
    names = {each.name for each in schemas if not each.deprecated}
    assert set(REASONS) <= names
    assert not set(REASONS) & set(TABLE)
    known = {name for name in names if name in TABLE or has_definition(name, newest, "")}
    assert names - known <= set(REASONS)
