"""The picture of the README: `python docs/draw_pipeline.py` writes docs/picture/pipeline.svg.

The boxes are the levels of a program, with some of the passes that lead to each, by the names that
the pipeline of the processor has for them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from plica.pipeline import pipeline_of
from plica.report.page import element, raw

FILE: Final = Path(__file__).resolve().parent / "picture" / "pipeline.svg"
WIDE: Final = 980
LEVELS: Final = (
    ("Module", "a graph: typed, pure", ("graph", "rules")),
    ("Stages", "tensors, one from another", ("stages", "forms")),
    ("Kernel", "loops, blocks, buffers", ("schedule",)),
    ("Kernel", "plain loops, flat buffers", ("lower",)),
    ("Code", "LLVM, CUDA, C99, …", ("plan", "emit")),
)
PASSES: Final = {
    "graph": ("simplify", "fold-constants", "scale", "merge-common", "winograd", "fuse"),
    "lower": ("blocks-to-loops", "compact", "unroll", "vectorise", "flatten", "reuse"),
    "plan": ("plan-memory", "emit-llvm"),
}
"""Some of the passes of each kind; a name that is gone is an error."""
SAID: Final = {
    "stages": ("form rules: padding,", "packing, tiles, Winograd"),
    "schedule": ("a trace: by default,", "by hand, or by search"),
}
STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#1b2330}.soft{fill:#5d6878;font-size:11px}"
    ".box{fill:#f4f6f9;stroke:#1f62ad;stroke-width:1.5}.way{stroke:#d9480f;stroke-width:1.5;fill:none}"
    ".law{fill:#1c7c4a;font-size:12px}"
    "@media(prefers-color-scheme:dark){text{fill:#e4e9f0}.soft{fill:#96a2b2}.box{fill:#1a212b;"
    "stroke:#6fb1f2}.way{stroke:#ff922b}.law{fill:#63c793}}"
)


def drawn() -> str:
    """The picture as text."""
    pipeline = pipeline_of("cpu")
    gap, wide, high = 196, 168, 64
    parts: list[raw] = [element("style", raw(STYLE))]
    for number, (name, note, kinds) in enumerate(LEVELS):
        x = 14 + number * gap
        parts.append(element("rect", x=x, y=20, width=wide, height=high, rx=8, class_="box"))
        parts.append(element("text", name, x=x + 12, y=46))
        parts.append(element("text", note, x=x + 12, y=66, class_="soft"))
        if number:
            way = f"M{x - gap + wide} 52H{x - 3}m-7 -5l7 5l-7 5"
            parts.append(element("path", d=way, class_="way"))
        lines = list(SAID.get(kinds[0], ()))
        names = [pipeline.find(each).name for each in PASSES.get(kinds[0], ())]
        lines += [", ".join(names[at : at + 2]) for at in range(0, len(names), 2)]
        parts += [
            element("text", line, x=x + 12, y=106 + 16 * at, class_="soft")
            for at, line in enumerate(lines)
        ]
    law = (
        "every rule, form, step and pass keeps what the interpreters say; every one leaves a trace"
    )
    parts.append(element("text", law, x=14, y=176, class_="law"))
    return element("svg", *parts, xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDE} 190",
                   width=WIDE, height=190, role="img") + "\n"  # fmt: skip


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(drawn(), encoding="utf-8")
