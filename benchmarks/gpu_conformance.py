"""The standard's own test cases on a GPU: what the processor passes, compiled for `cuda`.

    python benchmarks/gpu_conformance.py [--part K/N] [--target cuda] [--json FILE]
    python benchmarks/gpu_conformance.py --merge FILE …

A case counts as passed where its numbers are right and nothing was compiled at the call.  With
--part every Nth case is run, so that several processes share the list; --merge adds up what they
wrote.  Ends with 1 where a number is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from plica.runtime.error import PlicaError
from tests.frontend.onnx.conformance import cases, compiled_verdict_of, recorded

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
    """The sums, and every case that did not pass."""
    count = Counter(word for _, word, _ in rows)
    for name, word, why in sorted(rows):
        if word != "passed":
            print(f"{word:12} {name} {why}")
    share = count["passed"] / max(1, len(rows))
    print(f"{len(rows)} cases that pass on a processor: {dict(count)}, {share:.1%} passed")
    return 1 if count["wrong"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--json")
    parser.add_argument("--merge", nargs="+", default=[])
    asked = parser.parse_args()
    if asked.merge:
        read = [json.loads(Path(each).read_text(encoding="utf-8")) for each in asked.merge]
        return told([tuple(row) for rows in read for row in rows])
    part, parts = map(int, asked.part.split("/"))
    names = [name for name, of in recorded().items() if of.verdict == "passed" and name in cases()]
    rows: list[Row] = []
    for name in names[part::parts]:
        rows.append((name, *verdict(name, asked.target)))
        if asked.json:
            Path(asked.json).write_text(json.dumps(rows), encoding="utf-8")
    return told(rows)


if __name__ == "__main__":
    sys.exit(main())
