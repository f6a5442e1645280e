"""The page: a study as one HTML file that needs nothing else, no network and no other file.

>>> any(word in STYLE + SCRIPT for word in ("http", "url(", "import", "src="))
False
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from plica.ir.graph.expression import Expr
from plica.report.chart import memory, roofline
from plica.report.graph import draw
from plica.report.study import LaunchRow, Study
from plica.report.svg import element, joined, raw
from plica.rewrite.fuse import REASONS

STYLE: Final = """
:root{--ink:#1c2430;--soft:#5b6675;--line:#d9dfe7;--paper:#fff;--wash:#f5f7fa;--mark:#d9480f;
--main:#2563a8}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#98a4b3;--line:#313a46;--paper:#141a22;
--wash:#1c242e;--mark:#ff922b;--main:#74b3f0}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1180px;padding:24px;background:var(--paper);color:var(--ink);
font:14px/1.5 system-ui,sans-serif}
h1{font-size:24px;margin:0}h2{font-size:18px;margin:36px 0 8px}p{max-width:80ch}
.facts{display:flex;flex-wrap:wrap;gap:10px;margin:16px 0}
.facts div{background:var(--wash);border:1px solid var(--line);border-radius:6px;padding:8px 14px}
.facts b{display:block;font-size:17px}.facts span{color:var(--soft)}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:3px 8px;border-bottom:1px solid var(--line);vertical-align:top}
th{position:sticky;top:0;background:var(--paper);cursor:pointer;white-space:nowrap}
td.n,th.n{text-align:right}
tr.on,tr:hover{background:var(--wash)}tr.on{outline:2px solid var(--mark)}
td code,.rules{font-size:12px;color:var(--soft)}
.scroll{overflow:auto;max-height:640px;border:1px solid var(--line);border-radius:6px}
svg text{font:11px system-ui,sans-serif;fill:var(--ink)}svg .note{fill:var(--soft);font-size:10px}
.box rect{fill:var(--wash);stroke:var(--soft)}.box.fused rect{stroke:var(--main);stroke-width:2}
.box.input rect{stroke-dasharray:4 3}.box.on rect{fill:var(--mark);fill-opacity:.35}
.edge{fill:none;stroke:var(--soft);stroke-opacity:.6}
.chart{max-width:100%;height:auto}.grid{stroke:var(--line)}.tick,.axis{text-anchor:middle}
.axis.left{text-anchor:start}.roof{fill:none;stroke:var(--mark);stroke-width:2}
.kernel{fill:var(--main);fill-opacity:.45;stroke:var(--main)}.kernel.on{fill:var(--mark)}
.tenant{stroke:var(--paper);stroke-width:.5}
details{margin:6px 0}summary{cursor:pointer;padding:4px 0}
.yes{color:var(--main)}.no{color:var(--soft)}
"""

SCRIPT: Final = """
const all = (query) => [...document.querySelectorAll(query)];
const within = (place, query) => [...place.closest('section').querySelectorAll(query)];
function choose(row) {
  const number = row.dataset.kernel, names = new Set(JSON.parse(row.dataset.nodes));
  all('.on').forEach((each) => each.classList.remove('on'));
  row.classList.add('on');
  within(row, `circle[data-kernel="${number}"]`).forEach((each) => each.classList.add('on'));
  within(row, '.box[data-nodes]').forEach((box) => {
    if (box.dataset.nodes.split(', ').some((name) => names.has(name))) box.classList.add('on');
  });
}
all('tr[data-kernel]').forEach((row) => row.addEventListener('click', () => choose(row)));
all('circle[data-kernel]').forEach((dot) => dot.addEventListener('click', () => {
  const [row] = within(dot, `tr[data-kernel="${dot.dataset.kernel}"]`);
  choose(row); row.scrollIntoView({block: 'center'});
}));
all('table.sort').forEach((table) => all('th').filter((th) => table.contains(th))
  .forEach((th, column) => th.addEventListener('click', () => {
    const body = table.tBodies[0], up = th.dataset.up !== '1';
    const key = (row) => row.cells[column].dataset.key ?? row.cells[column].textContent;
    th.dataset.up = up ? '1' : '0';
    [...body.rows].sort((a, b) => (up ? 1 : -1) *
      key(a).localeCompare(key(b), undefined, {numeric: true})).forEach((r) => body.append(r));
  })));
document.body.dataset.ready = 'yes';
"""


def page(*studies: Study) -> str:
    """The whole page: a section for each model."""
    head = joined(
        raw('<meta charset="utf-8">'),
        raw('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", f"Plica: {', '.join(each.name for each in studies)}"),
        element("style", raw(STYLE)),
    )
    script = element("script", raw(SCRIPT))
    sections = [_section(each) for each in studies]
    body = element("body", *sections, script)
    return f"<!DOCTYPE html>\n{element('html', element('head', head), body, lang='en')}\n"


def _section(of: Study) -> raw:
    facts = (
        ("a call", f"{of.run * 1e3:.3f} ms"),
        ("kernels launched", str(len(of.rows))),
        ("compiling", f"{of.lowering + of.building:.2f} s"),
        ("weights", f"{of.constants / 1e6:.2f} MB"),
        ("workspace", f"{of.workspace / 1e6:.2f} MB"),
        ("machine at best", f"{of.roof.gflops:.0f} GFLOP/s, {of.roof.levels[-1][1]:.0f} GB/s"),
        ("threads", str(of.threads)),
        ("float contract", of.contract),
    )
    cells = [element("div", element("b", value), element("span", name)) for name, value in facts]
    return element(
        "section",
        element("h1", of.name),
        element("p", f"Compiled for {of.target}."),
        element("div", *cells, class_="facts"),
        element("h2", "Kernels"),
        element(
            "p",
            "Every kernel in the order it runs, the nodes of the model it computes, and what it "
            "costs a call. Click one to see its nodes in the graphs below; click a head to sort.",
        ),
        element("div", _kernels(of.rows), class_="scroll"),
        *_passed_over(of),
        element("h2", "Roofline"),
        element(
            "p",
            "A circle is a kernel, as large as its time. The lines are what the machine does at "
            "best from each of its memories; a kernel is held to the nearest that has room for it.",
        ),
        roofline(of.rows, of.roof),
        element("h2", "Memory plan"),
        element(
            "p",
            f"Which bytes of the workspace ({of.plan.size:,} in all) each value has, and when.",
        ),
        memory(of.plan, of.steps),
        element("h2", "Fusion"),
        element("p", "Every edge between two operators: one kernel or two, and why."),
        element("div", _fusion(of), class_="scroll"),
        element("h2", "Stages"),
        element("p", "The graph as it was read, and after each stage that changed it."),
        *_stages(of),
        data_model=of.name,
    )


def _passed_over(of: Study) -> list[raw]:
    """Schedules that could not be lowered, where there are any."""
    if not of.passed_over:
        return []
    items = [element("li", each) for each in of.passed_over]
    return [element("h2", "Schedules passed over"), element("ul", *items)]


def _table(head: Sequence[tuple[str, bool]], rows: Sequence[str], sort: bool = False) -> raw:
    """A table; the heads say which columns hold numbers."""
    first = [element("th", word, class_="n" if number else None) for word, number in head]
    return element(
        "table",
        element("thead", element("tr", *first)),
        element("tbody", joined(*rows)),
        class_="sort" if sort else None,
    )


def _kernels(rows: Sequence[LaunchRow]) -> raw:
    whole = sum(row.seconds for row in rows) or 1.0
    made: list[raw] = []
    for row in rows:
        because = f"{', '.join(row.operators)}"
        rules = element("div", f"rules: {', '.join(row.rules)}", class_="rules")
        made.append(
            element(
                "tr",
                element("td", str(row.number), class_="n"),
                element("td", element("code", row.kernel)),
                element(
                    "td",
                    element("div", ", ".join(row.nodes) or because),
                    rules if row.rules else "",
                ),
                element("td", " x ".join(map(str, row.shape)) or "scalar"),
                _cell(f"{row.seconds * 1e6:.1f}", row.seconds * 1e9),
                _cell(f"{row.seconds / whole:.1%}", row.seconds * 1e9),
                _cell(f"{row.gflops:.2f}", row.gflops * 1e3),
                _cell(f"{row.intensity:.2f}", row.intensity * 1e3),
                _cell(f"{row.roof:.0%}", row.roof * 1e3),
                data_kernel=row.number,
                data_nodes=json.dumps(row.nodes),
            )
        )
    head = (
        ("#", True), ("kernel", False), ("nodes of the model", False), ("result", False),
        ("µs", True), ("share", True), ("GFLOP/s", True), ("FLOP/byte", True), ("roof", True),
    )  # fmt: skip
    return _table(head, made, sort=True)


def _cell(text: str, key: float) -> raw:
    return element("td", text, class_="n", data_key=f"{key:.0f}")


def _fusion(of: Study) -> raw:
    rows = [
        element(
            "tr",
            element("td", str(each.producer)),
            element("td", str(each.consumer)),
            element("td", "yes" if each.fused else "no", class_="yes" if each.fused else "no"),
            element(
                "td",
                REASONS[each.reason] + (f" ({each.because})" if each.because else ""),
            ),
        )
        for each in of.decisions
    ]
    return _table((("from", False), ("to", False), ("one kernel", False), ("why", False)), rows)


def _stages(of: Study) -> list[raw]:
    def mark(term: Expr) -> str:
        return ", ".join(of.nodes.get(term, ()))

    found: list[raw] = []
    for number, stage in enumerate(of.stages):
        counts = ", ".join(f"{count} {name}" for name, count in stage.operators)
        rules = ", ".join(f"{name} ({count})" for name, count in stage.rules)
        about = element("p", counts + (f". Rules used: {rules}." if rules else "."))
        shown = raw(" open") if number == len(of.stages) - 1 else raw("")
        summary = element("summary", f"{number}. {stage.name}")
        picture = element("div", draw(stage.module, mark), class_="scroll")
        found.append(raw(f"<details{shown}>{summary}{about}{picture}</details>"))
    return found
