"""Long sentences and words of no field in the documentation: `python docs/check_prose.py [FILE …]`.

Prints one line per page, `sentences over the limit, foreign words, path`, then every finding with
its line. Tables, headings, code blocks and comments are not read; an inline code span, a link
target or a number is one word.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
MAX_WORDS: Final = 35
BLOCK_START: Final = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
"""A list item, which is a paragraph of its own."""
NOT_PROSE: Final = re.compile(r"\s*(?:\||#|!\[|<|---|\[[^\]]+\]:)")
"""Table rows, headings, pictures, HTML, rules and link definitions."""
SENTENCE_END: Final = re.compile(r"(?<!e\.g)(?<!i\.e)(?<!vs)(?<!cf)[.!?][\"')*_]*\s+")
FOREIGN: Final = re.compile(
    r"\b(rooms?|houses?|roads?|(?<!Hugging )faces?|trunks?|abreast|so many|nobody named"
    r"|takes? (?:its|their) leave|a number of f32|(?:a|the|one|each) turned|gone on otherwise"
    r"|pages? of passes|stands? beside|for its sake|it is asked|are asked|is asked"
    r"|is told|are told|was told|told of|by way of|somebody|whoever|of one's own|in turns"
    r"|held against|held to|reckoned|wherefrom|therein|thereof)\b",
    re.IGNORECASE,
)
"""Metaphors and phrases for which the field has a term."""


@dataclass(frozen=True)
class Finding:
    """A sentence that is too long or has a foreign word: its line, and why."""

    path: Path
    line: int
    why: str
    sentence: str


def pages() -> tuple[Path, ...]:
    """README, CONTRIBUTING, CHANGELOG and every page of `docs/`."""
    top = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")]
    return (*top, *sorted(ROOT.glob("docs/**/*.md")))


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """The paragraphs and list items of a page, each with the number of its first line."""
    start, lines, fence = 0, list[str](), ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        mark = re.match(r"\s*(```+|~~~+)", line)
        inside = bool(fence)
        if mark and (not fence or line.strip() == fence):
            fence = "" if fence else mark[1]
        code = bool(mark) or inside or (not lines and line.startswith("    "))
        prose = not (code or NOT_PROSE.match(line) or not line.strip())
        if lines and (not prose or BLOCK_START.match(line)):
            yield start, " ".join(lines)
            lines = []
        if prose:
            start = start if lines else number
            lines.append(BLOCK_START.sub("", line, count=1).strip())


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph; a code span is `code`, and a link is its text.

    >>> sentences("See [the page](x.md). `a. b` and 1.5 are `c`.")
    ['See the page.', 'code and 1.5 are code.']
    """
    plain = re.sub(r"`+[^`]+`+", "code", paragraph)
    plain = re.sub(r"\bcode(?: code)+\b", "code", plain)  # a list of names
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    ends = [0, *(each.end() for each in SENTENCE_END.finditer(plain)), len(plain)]
    return [plain[a:b].strip() for a, b in pairwise(ends) if plain[a:b].strip()]


def words(sentence: str) -> int:
    """How many words a sentence has; signs alone are none.

    >>> words("One word - and 2.5x more.")
    5
    """
    return sum(any(c.isalnum() for c in word) for word in sentence.split())


def findings(path: Path) -> list[Finding]:
    """What is to be mended on a page."""
    found = []
    for line, paragraph in paragraphs(path.read_text(encoding="utf-8")):
        for each in sentences(paragraph):
            if (count := words(each)) > MAX_WORDS:
                found.append(Finding(path, line, f"{count} words", each))
            found += [Finding(path, line, word[0], each) for word in FOREIGN.finditer(each)]
    return found


def main(paths: tuple[Path, ...]) -> int:
    """Print the findings; the exit code is 1 if there are any."""
    by_page = {path: findings(path) for path in paths}
    for path, found in by_page.items():
        long = sum(each.why.endswith(" words") for each in found)
        print(f"{long:4} {len(found) - long:4}  {path}")
    for each in (finding for found in by_page.values() for finding in found):
        print(f"{each.path}:{each.line}: {each.why}: {each.sentence}")
    return int(any(by_page.values()))


if __name__ == "__main__":
    raise SystemExit(main(tuple(map(Path, sys.argv[1:])) or pages()))
