"""Executables, profiles and timings show themselves in notebooks."""

from __future__ import annotations

import numpy as np

import plica
from plica.op import nn
from plica.rewrite import holes, rewrite, rule

TEXT = "@plica.function\ndef main(x: Tensor[(3,), f32]):\n    return x + 1.0\n"


def test_what_a_notebook_shows() -> None:
    exe = plica.compile(plica.from_text(TEXT), cache=False)
    x = np.ones(3, np.float32)
    shown = exe._repr_html_()
    assert shown.startswith("<table>")
    assert "x: Tensor[(3,), f32]" in shown
    assert "-&gt;" in shown
    assert "<Executable" not in shown
    profile = exe.profile(x, runs=2)
    assert all(f"<td>{row.kernel}</td>" in profile._repr_html_() for row in profile.rows)
    assert plica.time(exe, x, rounds=1)._repr_html_().startswith("<pre>")


def test_terms_verdicts_and_derivations_are_shown_as_text() -> None:
    module = plica.from_text(TEXT)
    assert module._repr_html_() == f"<pre>{module}</pre>".replace("->", "-&gt;")
    (x,) = holes("x")
    known = rule("relu-relu", nn.relu(nn.relu(x)), nn.relu(x))
    assert "tested on" in plica.check(known, examples=5)._repr_html_()
    result, derivation = rewrite(module, [known])
    assert result is module
    assert derivation._repr_html_().startswith("<pre>")
