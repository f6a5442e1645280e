"""`plica fuzz prove`: mutants of proved rules, none of which may be proved if it is wrong."""

from __future__ import annotations

import argparse
import json
from typing import Any, Final

from plica.cli.named_pack import named_packs
from plica.cli.option import positive
from plica.cli.progress import progress

EPILOG: Final = """\
examples:
  plica fuzz prove --examples 100 --pack logic --pack motion
  plica fuzz prove --seed 7 --json
"""

PACKS: Final = ("algebra", "cast", "logic", "motion", "reduction")


def add_verb(verbs: Any) -> None:  # Any: what argparse's subparsers are has no public name
    """The verb with its options."""
    parser = verbs.add_parser(
        "prove", help="wrong rules made of proved ones, none of which may be proved",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--examples", type=positive, default=100, help="number of mutants (100)")
    parser.add_argument("--instances", type=positive, default=60,
                        help="instances that a mutant is tried on (60)")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="random seed (0)")
    parser.add_argument("--pack", action="append", metavar="PACK",
                        help=f"mutate this pack; repeatable ({', '.join(PACKS)})")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(verb=fuzz_prover)


def fuzz_prover(arguments: argparse.Namespace) -> int:
    """Try mutants; exit code 1 where a wrong one is proved."""
    from plica.rewrite.prove.fuzz import drawn_mutants, judged_mutant

    names = arguments.pack or PACKS
    rules = list(dict.fromkeys(r for name in names for pack in named_packs(name) for r in pack))
    rows: list[dict[str, Any]] = []
    with progress("mutants", arguments.examples) as say:
        for mutant in drawn_mutants(rules, arguments.examples, arguments.seed):
            say(mutant.base)
            found = judged_mutant(mutant, arguments.instances, arguments.seed)
            rows.append({
                "mutant": mutant.name, "verdict": found.word, "proof": str(found.proof or ""),
                "refutation": str(found.refutation or ""),
            })  # fmt: skip
    wrong = [row for row in rows if row["verdict"] == "error"]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return 1 if wrong else 0
    counts = {word: sum(row["verdict"] == word for row in rows) for word in
              ("refuted", "still right", "open", "error")}  # fmt: skip
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    for row in rows:
        if row["verdict"] != "refuted":
            print(f"{row['verdict']}: {row['mutant']}: {row['proof']} {row['refutation']}".rstrip())
    return 1 if wrong else 0
