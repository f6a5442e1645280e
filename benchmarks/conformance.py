"""The standard's own test cases, compiled: what passes with nothing compiled at a call.

    python benchmarks/conformance.py [--part K/N] [--seconds S] [--json FILE]
    python benchmarks/conformance.py --target cuda [--part K/N] [--seconds S] [--json FILE]
    python benchmarks/conformance.py --merge FILE …

On a processor all cases are run and held to `tests/frontend/onnx/conformance.txt`; on another
target those that pass there.  A case counts as passed where its numbers are right and nothing was
compiled at the call.  With --part every Nth case is run, so that several processes share the list;
--merge adds up what they wrote.  With --seconds no case is begun later than that, and those that
were not are counted as `not begun`.  Ends with 1 where a number is wrong or a case that passed is
refused.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from plica.runtime.error import PlicaError
from tests.frontend.onnx.conformance import CATEGORIES, cases, compiled_verdict_of, recorded

Row = tuple[str, str, str]
"""A case, what became of it, and why."""


def verdict(name: str, target: str) -> tuple[str, str]:
    """What becomes of a case on a target, and the code of what refused it."""
    try:
        return compiled_verdict_of(cases()[name], target), ""
    except PlicaError as error:
        return "refused", error.diagnostics[0].code
    except AssertionError as error:
        return "wrong", str(error).splitlines()[0][:120] if str(error) else "differs"


def told(rows: list[Row]) -> int:
    """The sums for each category, and every case whose verdict is another than was written down."""
    known = recorded()
    worse = 0
    for name, word, why in sorted(rows):
        if word != known[name].verdict:
            print(f"{word:12} {name} {why}")
            worse += word in ("wrong", "refused")
    count = Counter((known[name].category, word) for name, word, _ in rows)
    words = sorted({word for _, word in count})
    print(f"{'':<50}{'cases':>7}" + "".join(f"{word:>13}" for word in words))
    for category, (meaning, _) in reversed(CATEGORIES.items()):
        sums = [count[category, word] for word in words]
        print(f"{meaning:<50}{sum(sums):>7}" + "".join(f"{each:>13}" for each in sums))
    sums = [sum(count[category, word] for category in CATEGORIES) for word in words]
    print(f"{'all':<50}{sum(sums):>7}" + "".join(f"{each:>13}" for each in sums))
    begun = [(name, word) for name, word, _ in rows if word != "not begun"]
    able = [word for name, word in begun if known[name].verdict == "passed"]
    if able:
        share = able.count("passed") / len(able)
        print(f"of {len(able)} begun that are written down as passing {share:.1%} passed")
    return 1 if worse else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--json")
    parser.add_argument("--merge", nargs="+", default=[])
    asked = parser.parse_args()
    if asked.merge:
        read = [json.loads(Path(each).read_text(encoding="utf-8")) for each in asked.merge]
        return told([tuple(row) for rows in read for row in rows])
    part, parts = map(int, asked.part.split("/"))
    known = recorded()
    every = asked.target == "cpu"
    names = [name for name in sorted(cases()) if every or known[name].verdict == "passed"]
    end = time.monotonic() + asked.seconds
    rows: list[Row] = []
    for name in names[part::parts]:
        late = time.monotonic() > end
        rows.append((name, "not begun", "") if late else (name, *verdict(name, asked.target)))
        if asked.json:  # whole at any time: who waits may lose patience
            new = Path(f"{asked.json}.new")
            new.write_text(json.dumps(rows), encoding="utf-8")
            new.replace(asked.json)
    return told(rows)


if __name__ == "__main__":
    sys.exit(main())
