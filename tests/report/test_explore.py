"""`plica explore` in a real browser: the slider, search, selection, forks, traces, serving."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import onnx
import pytest

import plica
from plica.cli import main
from plica.cli.explore import replayed, subject, whole
from plica.cli.model import here
from plica.frontend.onnx.writer import to_onnx
from plica.frontend.zoo import mlp
from plica.report import model_view, page
from plica.report.future import future, rest_of
from plica.report.serve import server
from plica.schedule import block, do, loops, reorder, split, trace_of, unroll, vectorize
from tests.report.browser import Browser, installed
from tests.report.model import compiled_small, studied
from tests.report.test_page import data_of, viewed

KERNEL = """
import plica
from plica.script import Buffer, block, f32, grid, init

@plica.kernel
def matmul(A: Buffer[(16, 16), f32], B: Buffer[(16, 16), f32], C: Buffer[(16, 16), f32]):
    for i, j, k in grid(16, 16, 16):
        with block("C", spatial=(i, j), reduce=(k,)):
            with init():
                C[i, j] = 0.0
            C[i, j] += A[i, k] * B[k, j]
"""


@do
def tiled(rows: int) -> Any:
    c = yield block("C")
    i, j, k = yield loops(c)
    i0, i1 = yield split(i, (None, rows))
    yield reorder(i0, k, i1, j)
    yield vectorize(j)
    yield unroll(i1)


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    kernel = plica.from_text(KERNEL)
    (tmp_path / "k.py").write_text(KERNEL)
    for rows in (4, 8):
        trace = trace_of(tiled(rows), kernel)
        (tmp_path / f"{rows}.json").write_text(trace.to_json())
    return tmp_path


def explored(*words: str) -> dict[str, Any]:
    """The one view of a page that the command writes."""
    assert main(["explore", *words]) == 0
    (found,) = data_of(Path(words[-1]).read_text())["views"]
    assert isinstance(found, dict)
    return found


# --- what is on the page ------------------------------------------------------------------------


def test_two_traces_side_by_side_with_effects_and_a_fork(traces: Path) -> None:
    one, other, program, out = (str(traces / name) for name in ("4.json", "8.json", "k.py", "p"))
    view = explored(one, "--program", program, "--against", other, "--fork", "4", "-o", out)
    assert [each["name"] for each in view["kernels"]] == ["4.json", "8.json", "without step 4"]
    (hunk,) = view["hunks"]["0,1"]
    assert "(None, 4) -> (None, 8)" in hunk["edits"][0]
    assert any(line.startswith("+") for line in hunk["effect"])
    assert hunk["before"] != hunk["after"]
    assert len(view["pairs"]["0,1"]) == 6
    timed = [frame for frame in view["kernels"][0]["film"] if frame[0] == "schedule"]
    assert all(frame[4] for frame in timed)  # seconds at every step
    assert any("vectorized" in line for line in view["lines"])


def test_an_artefact_shows_its_record_and_its_kernels(tmp_path: Path) -> None:
    exe = compiled_small("dqn").executable
    exe.save(tmp_path / "m.plica")
    view = explored(str(tmp_path / "m.plica"), "-o", str(tmp_path / "p.html"))
    record = exe.artefact.record()
    assert len(view["stages"]) == len(record.stages)
    assert {each["name"] for each in view["kernels"]} == {t.kernel for t in record.traces}


def test_a_future_without_a_step_never_takes_its_rule() -> None:
    made = compiled_small("transformer")
    steps = made.lowered.derivation.steps
    number, name = next((n, s.rule.name) for n, s in enumerate(steps, 1) if not s.rule.is_pass)
    found = future(made, number)
    assert not found["refused"]
    assert name not in [frame[0] for frame in found["graph"]["frames"]]
    assert found["title"] == f"without {name}"
    assert len(found["facts"]) == len(viewed("dqn")["facts"])


def test_a_future_without_fusion_has_more_kernels() -> None:
    made = compiled_small("dqn")
    found = future(made, len(made.lowered.derivation.steps))
    assert len(found["launches"]) > len(studied("dqn").rows)
    assert "fuse" not in rest_of(plica.pipeline.pipeline_of("cpu"), made, 1).without("fuse").names


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["MODEL", "--fork", "0"], "no step 0"),
        (["MODEL", "--fork", "99999"], "no step 99999"),
        (["TRACE"], "the kernel that it schedules"),
        (["TRACE", "--program", "KERNEL", "--fork", "6"], "no step 6"),
        (["MODEL", "--serve", "-o", "x.html"], "exclude each other"),
        (["none.onnx"], "none.onnx"),
    ],
)
def test_refusals(
    words: list[str], said: str, traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(to_onnx(mlp((8, 6, 3))), traces / "m.onnx")
    names = {"MODEL": "m.onnx", "TRACE": "4.json", "KERNEL": "k.py"}
    given = [str(traces / names[each]) if each in names else each for each in words]
    assert main(["explore", *given]) != 0
    assert said in capsys.readouterr().err


# --- in a browser -------------------------------------------------------------------------------

needs_browser = pytest.mark.skipif(
    installed() is None, reason="no Chromium is installed (Debian: apt-get install chromium)"
)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path) as found:
        yield found
        assert found.errors == []


@pytest.mark.slow
@needs_browser
def test_mobilenet_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    """The slider, search, a kernel with its operators and assembly, a fork, questions."""
    view = viewed("mobilenet_v1")
    steps = view["graph"]["frames"]
    path = tmp_path / "page.html"
    path.write_text(page([view]), encoding="utf-8")
    assert path.stat().st_size < 5_000_000
    browser.open(path.as_uri())
    assert browser.count(".box") == len(boxes_at(view, len(steps)))
    assert browser.count("table.kernels tbody tr") == len(view["launches"])

    browser.fill("#slider", "1")  # the first rule: before and after
    assert view["graph"]["frames"][0][0] in browser.text("#where")
    browser.key("b")
    assert browser.count("svg.graph") == 2
    assert browser.count(".box.made") == len(view["graph"]["frames"][0][5])
    browser.key("b")

    name = view["graph"]["names"][str(view["graph"]["origins"][view["launches"][3]["node"]][0][0])]
    browser.fill("#search", name.split(", ")[0])
    assert browser.count(".box.hit") >= 1
    browser.click("#found button")
    assert name.split(", ")[0] in browser.text("#inspector")

    browser.click('tr[data-launch="3"]')  # a kernel: operators, loops and assembly in one selection
    launch = view["launches"][3]
    for node in launch["nodes"]:
        assert browser.text("#sources").count(f"{node} ") == 1  # as often as the model has it
    browser.click('[data-tab="assembly"]')
    kernel = view["kernels"][launch["kernel"]]["name"]
    assert browser.text("#assembly").startswith(kernel)
    browser.key("l")
    assert "for " in browser.text("#stage .code")
    assert browser.count(".line.add") + browser.count(".line") > 3
    browser.click('[data-panel="memory"]')
    assert browser.count('.tenant.on[data-launch="3"]') >= 1
    browser.click('[data-panel="roofline"]')
    assert browser.count('circle.on[data-launch="3"]') == 1

    browser.click('[data-panel="ask"]')
    browser.fill("#question", "impact conv-scale")
    assert "conv-scale was used" in browser.text("#answer")
    browser.fill("#question", f"became {name.split(', ')[0]}")
    assert "computed by" in browser.text("#answer")

    for key in ("g", "Home", "ArrowRight", "j", "k", "f", "End", "Escape"):
        browser.key(key)
    browser.size(420, 900)
    assert browser.run("document.documentElement.scrollWidth") <= 420


@needs_browser
def test_an_address_shows_a_step_of_a_kernel(browser: Browser, tmp_path: Path) -> None:
    view = viewed("mobilenet_v1")
    path = tmp_path / "page.html"
    path.write_text(page([view]), encoding="utf-8")
    browser.open(f"{path.as_uri()}#launch=3&step=2")
    assert view["graph"]["frames"][1][0] in browser.text("#where")
    assert browser.count('tr[data-launch="3"].on') == 1
    browser.key("ArrowRight")
    browser.until("location.hash.includes('step=3')")
    assert browser.run("location.hash").startswith("#view=0&kernel=")
    browser.run("location.hash = '#step=1&launch=999&kernel=x'")  # what there is not is left out
    browser.until("location.hash.includes('view=0')")
    assert view["graph"]["frames"][0][0] in browser.text("#where")


@needs_browser
def test_two_futures_in_a_browser(browser: Browser, tmp_path: Path) -> None:
    made = compiled_small("dqn")
    futures = [future(made, len(made.lowered.derivation.steps))]
    path = tmp_path / "page.html"
    path.write_text(page([model_view(studied("dqn"), futures=futures)]), encoding="utf-8")
    browser.open(path.as_uri())
    browser.click('[data-panel="futures"]')
    browser.until("document.querySelectorAll('.futures .box').length > 0")
    assert "without fuse" in browser.text("#future")
    assert browser.count(".futures .box.made") > len(futures[0]["launches"]) // 2
    assert str(len(futures[0]["launches"])) in browser.text("#future table")


def boxes_at(view: dict[str, Any], step: int) -> dict[int, list[int]]:
    """The nodes of a view's graph after a given number of steps."""
    now = dict(view["graph"]["start"])
    for _, _, _, gone, changed, _ in view["graph"]["frames"][:step]:
        now = {node: reads for node, reads in now.items() if node not in gone} | dict(changed)
    return now


@needs_browser
def test_a_served_page_forks_live(browser: Browser, traces: Path) -> None:
    from plica.cli import parser

    arguments = parser().parse_args(
        ["explore", str(traces / "4.json"), "--program", str(traces / "k.py"), "--serve"]
    )
    views, answers = subject(arguments)
    with serving(views, answers) as port:
        browser.open(f"http://127.0.0.1:{port}/")
        browser.click('[data-tab="trace"]')
        browser.fill("#inspector textarea", views[0]["kernels"][0]["trace"].replace(
            "(None, 4)", "(None, 2)"))  # fmt: skip
        browser.click("#inspector details button")
        browser.until("document.querySelector('#inspector details .steps')")
        assert "forked" in browser.text("#inspector details")


@pytest.mark.parametrize("found", [None, "1", 1.5, True])
def test_questions_without_a_number_are_refused(found: object) -> None:
    with pytest.raises(plica.InputError, match="lacks the number 'step'"):
        whole({"step": found}, "step")


# --- serving ------------------------------------------------------------------------------------


class serving:  # reads as a word, as in `with serving(views, answers)`
    """A server that runs for a while."""

    def __init__(self, views: Any, answers: Any) -> None:
        self._server = server(views, answers)

    def __enter__(self) -> int:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return int(self._server.server_address[1])

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_a_server_answers_its_own_page_only() -> None:
    def refuse(asked: Any) -> Any:
        return replayed(str(asked["trace"]), kernel, machine)

    from plica.codegen.backend import backend_of
    from plica.schedule.replay import kernel_of

    kernel = kernel_of(plica.from_text(KERNEL))[2]
    machine = backend_of(here()).machine(here())
    with serving([viewed("dqn")], {"replay": refuse}) as port:

        def ask(method: str, path: str, body: str = "", **headers: str) -> tuple[int, bytes]:
            connection = HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request(
                method, path, body, {k.replace("_", "-"): v for k, v in headers.items()}
            )
            answer = connection.getresponse()
            return answer.status, answer.read()

        code, text = ask("GET", "/")
        assert code == 200
        word = data_of(text.decode())["live"]
        assert ask("GET", "/", Host="example.org")[0] == 403
        assert ask("GET", "/etc/passwd")[0] == 404
        assert ask("POST", "/replay", "{}")[0] == 403  # it does not say the word
        assert ask("POST", "/replay", "{}", X_Plica=word, Host="example.org:80")[0] == 403
        assert ask("POST", "/nothing", "{}", X_Plica=word)[0] == 400
        assert ask("POST", "/replay", "[1]", X_Plica=word)[0] == 400
        assert ask("POST", "/replay", "not json", X_Plica=word)[0] == 400
        code, said = ask("POST", "/replay", json.dumps({"trace": "import os"}), X_Plica=word)
        assert code == 200
        assert "refused" in json.loads(said)
