"""Checks the certificate of a derivation: that rules lead from one module to another.

This knows no rule, pattern or operator, and shares no code with what rewrites or proves.  It reads
terms as labelled nodes, and checks in one pass over the certificate that

- every node is used, and the first and last module have the digests that are said;
- each application of a rule replaces what its left side is, filled with the recorded matching, by
  what its right side is, filled with the same;
- the applications of a sweep, made at the places where it makes them, give the recorded term.

What it takes on trust is counted: passes, right sides and parts of them that are computed, and left
sides that match regions.  Whether a guard held is not asked.

>>> check_derivation({"version": 0}).problem
'The certificate is of version 0, and 1 is known.'
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, TypeAlias

VERSION: Final = 1

Json: TypeAlias = Any  # what json.loads gives
Value: TypeAlias = tuple[tuple[str, ...], tuple[int, ...]]
"""A value in a field: text, in which terms stand between the pieces."""

_SCALAR: Final = re.compile(r"Const\((?:bool|[a-z0-9_]+);\(\);(.*)\)", re.DOTALL)


@dataclass(frozen=True)
class CheckedDerivation:
    """What was checked and what was taken on trust, or the first problem."""

    problem: str = ""
    nodes: int = 0
    matched: int = 0  # applications whose left side was filled in again
    equations: int = 0  # those of them whose right side was, too
    derived: int = 0  # values in right sides that functions computed
    passes: int = 0
    trusted: int = 0  # applications of rules whose left sides match regions


class _Damaged(Exception):
    """Why a certificate proves nothing."""


def check_derivation(certificate: Json) -> CheckedDerivation:
    """Checks a certificate, as `json.loads` gives it."""
    if not isinstance(certificate, dict) or certificate.get("version") != VERSION:
        version = certificate.get("version") if isinstance(certificate, dict) else None
        problem = f"The certificate is of version {version}, and {VERSION} is known."
        return CheckedDerivation(problem)
    try:
        return _Checker(certificate).checked()
    except _Damaged as reason:
        return CheckedDerivation(str(reason))
    except (KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        return CheckedDerivation(f"The certificate is damaged: {type(error).__name__} {error}.")


@dataclass
class _Terms:
    """The nodes, each once."""

    nodes: list[Value] = field(default_factory=list)
    variables: list[bool] = field(default_factory=list)
    known: dict[Value, int] = field(default_factory=dict)

    def term(self, value: Value, variable: bool = False) -> int:
        """The number of a node, which may be a new one."""
        if value not in self.known:
            self.known[value] = len(self.nodes)
            self.nodes.append(value)
            self.variables.append(variable)
        return self.known[value]

    def rebuilt(self, node: int, kids: tuple[int, ...]) -> int:
        pieces, old = self.nodes[node]
        return node if kids == old else self.term((pieces, kids), self.variables[node])

    def digests(self) -> list[str]:
        """A digest of each node with all that is below it."""
        found: list[str] = []
        for (pieces, kids), variable in zip(self.nodes, self.variables, strict=True):
            whole = json.dumps([pieces, [found[kid] for kid in kids], variable])
            found.append(hashlib.sha256(whole.encode()).hexdigest()[:32])
        return found


@dataclass(frozen=True)
class _Step:
    """An application of a rule."""

    rule: int
    before: int
    after: int
    site: int
    whole: int
    inner: tuple[int, ...]


class _Checker:
    def __init__(self, certificate: dict[str, Json]) -> None:
        self.of = certificate
        self.terms = _Terms()
        self.done = CheckedDerivation()
        self.reached: set[int] = set()
        self.used_rules: set[int] = set()

    def checked(self) -> CheckedDerivation:
        """All checks, in order."""
        self._read_nodes()
        self._check_rules()
        here = self._index(self.of["root"])
        self.reached.add(here)
        for number, (kind, path, start, steps, after) in enumerate(self.of["groups"]):
            spine, inner = self._descend(here, tuple(path))
            if inner != start:
                raise _Damaged(f"Group {number} of steps starts at another term than it says.")
            here = self._ascend(spine, self._group(number, kind, steps, inner))
            if here != self._index(after):
                raise _Damaged(f"Group {number} of steps leads to another term than it says.")
            self.reached |= {here, start}
        if here != self._index(self.of["end"]):
            raise _Damaged("The steps lead to another module than the last.")
        if self.used_rules != set(range(len(self.of["rules"]))):
            raise _Damaged("A rule is described that no step uses.")
        self._check_reached()
        return replace(self.done, nodes=len(self.of["nodes"]))

    # --- terms and rules --------------------------------------------------------------------------

    def _read_nodes(self) -> None:
        for number, (pieces, kids, variable) in enumerate(self.of["nodes"]):
            if not all(type(kid) is int and 0 <= kid < number for kid in kids):
                raise _Damaged(f"Node {number} has children that do not come before it.")
            if len(pieces) != len(kids) + 1 or not all(isinstance(piece, str) for piece in pieces):
                raise _Damaged(f"Node {number} has text that does not fit its children.")
            if variable not in (0, 1):
                raise _Damaged(f"Node {number} is neither a variable nor none.")
            if self.terms.term((tuple(pieces), tuple(kids)), bool(variable)) != number:
                raise _Damaged(f"Node {number} is there twice.")
        found = self.terms.digests()
        for end, digest in (("root", "source"), ("end", "result")):
            if found[self._index(self.of[end])] != self.of[digest]:
                raise _Damaged(f"The {digest} has another digest than is said.")
        for node, digest in self.of["digests"]:
            if found[self._index(node)] != digest:
                raise _Damaged(f"Node {node} has another digest than is said.")
        self.told = {node for node, _ in self.of["digests"]}
        if len(self.told) != len(self.of["digests"]):
            raise _Damaged("A digest is there twice.")

    def _check_rules(self) -> None:
        names = [name for name, *_ in self.of["rules"]]
        for name, contract, kind, digest, alternatives in self.of["rules"]:
            says = json.dumps([name, contract, kind, alternatives])
            if hashlib.sha256(says.encode()).hexdigest()[:32] != digest:
                raise _Damaged(f"The rule {name} has another digest than is said.")
            if kind not in ("pass", "region", "computed", "equation"):
                raise _Damaged(f"The rule {name} is of no known kind.")
        if len({*names}) != len(names):
            raise _Damaged("Two rules have one name.")

    def _index(self, node: Json) -> int:
        if type(node) is not int or not 0 <= node < len(self.of["nodes"]):
            raise _Damaged(f"There is no node {node}.")
        return node

    def _check_reached(self) -> None:
        if self.told != self.reached:
            raise _Damaged("Other terms have digests than those that steps lead between.")
        stack = list(self.reached)
        while stack:
            for kid in self.terms.nodes[stack.pop()][1]:
                if kid not in self.reached:
                    self.reached.add(kid)
                    stack.append(kid)
        if not self.reached.issuperset(range(len(self.of["nodes"]))):
            raise _Damaged("A node is described that no term has.")

    # --- steps ------------------------------------------------------------------------------------

    def _group(self, number: int, kind: str, told: Json, inner: int) -> int:
        """The term after a group of steps."""
        steps = [self._step(each, kind) for each in told]
        if not steps:
            raise _Damaged(f"Group {number} has no steps.")
        if kind in ("once", "pass"):
            for step in steps:
                inner = self._replaced(inner, step)
        elif kind == "normal":
            inner = self._normal(inner, steps)
        elif kind in ("up", "down"):
            sites: dict[int, list[_Step]] = {}
            for site, chain in groupby(steps, lambda step: step.site):
                first, *others = chain
                if first.whole in sites or site != len(sites):
                    raise _Damaged("A sweep comes to one place twice.")
                sites[first.whole] = [first, *others]
            inner = self._swept(inner, sites, down=kind == "down")
        else:
            raise _Damaged(f"Group {number} is of no known kind.")
        return inner

    def _step(self, told: Json, kind: str) -> _Step:
        rule, alternative, before, after, matching, site, whole, inner = told
        if type(rule) is not int or not 0 <= rule < len(self.of["rules"]):
            raise _Damaged(f"A step uses a rule {rule} that is not described.")
        self.used_rules.add(rule)
        before, after = self._index(before), self._index(after)
        self.reached |= {before, after}
        name, _, of, _, alternatives = self.of["rules"][rule]
        if (of == "pass") != (kind == "pass"):
            raise _Damaged(f"{name} is no {kind}.")
        if of in ("pass", "region"):
            if matching or alternative or alternatives:
                raise _Damaged(f"{name} has a matching, though it matches no term.")
            passes = of == "pass"
            self.done = replace(
                self.done,
                passes=self.done.passes + passes,
                trusted=self.done.trusted + (not passes),
            )
        elif type(alternative) is not int or not 0 <= alternative < len(alternatives):
            raise _Damaged(f"{name} has no alternative {alternative}.")
        else:
            self._check_match(name, of, alternatives[alternative], (before, after), matching)
        if kind not in ("up", "down") and (site, whole, inner) != (0, None, []):
            raise _Damaged(f"A step of {name} has a place of its own.")
        whole = before if whole is None else self._index(whole)
        return _Step(rule, before, after, site, whole, tuple(inner))

    def _check_match(
        self, name: str, kind: str, sides: Json, ends: tuple[int, int], matching: dict[str, Json]
    ) -> None:
        """Fill both sides of a rule."""
        left, right = sides
        filling: dict[str, Value] = {}
        for hole, (pieces, kids) in matching.items():
            filling[hole] = (tuple(pieces), tuple(self._index(kid) for kid in kids))
        used: set[str] = set()
        before, after = ends
        if self._filled("l", left, filling, used) != (("", ""), (before,)):
            raise _Damaged(f"The left side of {name} is not what is replaced.")
        equation = kind == "equation"
        if equation and self._filled("r", right, filling, used) != (("", ""), (after,)):
            raise _Damaged(f"The right side of {name} is not what comes instead.")
        if used != {*filling}:
            raise _Damaged(f"The matching of {name} fills holes that it has not.")
        self.done = replace(
            self.done, matched=self.done.matched + 1, equations=self.done.equations + equation
        )

    def _filled(self, side: str, nodes: Json, filling: dict[str, Value], used: set[str]) -> Value:
        """A pattern with its holes filled; its nodes are in post-order."""
        made: list[Value] = []
        for number, (kind, text, kids) in enumerate(nodes):
            if kind in ("hole", "number", "derived"):
                name = text if kind == "hole" else f"{side}{number}"
                used.add(name)
                made.append(filling[name])
                if kind != "hole":
                    self._check_given(kind, text, made[-1])
            elif kind == "term":
                made.append(self._spliced(text, [made[kid] for kid in kids]))
            else:
                raise _Damaged(f"A pattern has a part of no known kind, {kind}.")
        return made[-1]

    def _check_given(self, kind: str, number: str, value: Value) -> None:
        """A number stands for a constant of any dtype; what is derived is counted."""
        if kind == "derived":
            self.done = replace(self.done, derived=self.done.derived + 1)
            return
        (node,) = value[1]
        text = "".join(self.terms.nodes[node][0])
        same = re.fullmatch(r"Literal\((.*)\)", text)
        match = same or _SCALAR.fullmatch(text)
        if match is None or not _is_number(match[1], number):
            raise _Damaged(f"A number {number} stands for {text[:40]}.")

    def _spliced(self, pieces: Json, kids: list[Value]) -> Value:
        """A node's text with values between its pieces, as a term."""
        if len(pieces) != len(kids) + 1:
            raise _Damaged("A pattern has text that does not fit its parts.")
        text, terms = [pieces[0]], list[int]()
        for piece, (inner, below) in zip(pieces[1:], kids, strict=True):
            text[-1] += inner[0]
            text += inner[1:]
            text[-1] += piece
            terms += below
        value = (tuple(text), tuple(terms))
        if value not in self.terms.known:
            raise _Damaged("A rule speaks of a term that is not there.")
        return ("", ""), (self.terms.known[value],)

    # --- places -----------------------------------------------------------------------------------

    def _descend(self, node: int, path: tuple[int, ...]) -> tuple[list[tuple[int, int]], int]:
        spine = []
        for at in path:
            if type(at) is not int or at < 0:
                raise _Damaged("A path leads nowhere.")
            spine.append((node, at))
            node = self.terms.nodes[node][1][at]
        return spine, node

    def _ascend(self, spine: list[tuple[int, int]], node: int) -> int:
        for parent, at in reversed(spine):
            kids = self.terms.nodes[parent][1]
            node = self.terms.rebuilt(parent, (*kids[:at], node, *kids[at + 1 :]))
        return node

    def _replaced(self, node: int, step: _Step) -> int:
        spine, found = self._descend(node, step.inner)
        if found != step.before:
            raise _Damaged(f"A step of {self.of['rules'][step.rule][0]} is at another place.")
        return self._ascend(spine, step.after)

    def _normal(self, root: int, steps: list[_Step]) -> int:
        """Replaces every occurrence, also those that come to be, children first."""
        table = {step.before: step for step in steps}
        if len(table) != len(steps):
            raise _Damaged("A sweep replaces one term twice.")
        terms, memo, unused = self.terms, dict[int, int](), {*table}
        stack: list[tuple[int, int]] = [(root, -1)]
        while stack:
            node, result = stack.pop()
            if result >= 0:
                memo[node] = memo[result]
                continue
            if node in memo:
                continue
            if terms.variables[node]:
                memo[node] = node
                continue
            if missing := [kid for kid in terms.nodes[node][1] if kid not in memo]:
                stack.append((node, -1))
                stack.extend((kid, -1) for kid in missing)
                continue
            new = terms.rebuilt(node, tuple(memo[kid] for kid in terms.nodes[node][1]))
            if new in memo:
                memo[node] = memo[new]
                continue
            if (step := table.get(new)) is None:
                memo[node] = memo[new] = new
                continue
            if new not in unused:  # it is replaced already, and that has not ended yet
                raise _Damaged("A sweep comes back to a term that it replaces.")
            unused.remove(new)
            if new != node:
                stack.append((node, step.after))
            stack += [(new, step.after), (step.after, -1)]
        if unused:
            raise _Damaged("A sweep has a step that it does not come to.")
        return memo[root]

    def _swept(self, root: int, sites: dict[int, list[_Step]], *, down: bool) -> int:
        """Replaces once at each term: parents first on the way `down`, otherwise children first."""
        terms, heads, memo, unused = self.terms, dict[int, int](), dict[int, int](), {*sites}

        def replaced(node: int) -> int:
            unused.discard(node)
            for step in sites.get(node, ()):
                node = self._replaced(node, step)
            return node

        stack = [(root, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                new = heads[node]
                if not terms.variables[new]:
                    new = terms.rebuilt(new, tuple(memo[kid] for kid in terms.nodes[new][1]))
                memo[node] = new if down else replaced(new)
            elif node not in heads:
                head = heads[node] = replaced(node) if down else node
                stack.append((node, True))
                if not down or not terms.variables[head]:
                    stack.extend((kid, False) for kid in reversed(terms.nodes[head][1]))
        if unused:
            raise _Damaged("A sweep has a step that it does not come to.")
        return memo[root]


def _is_number(text: str, number: str) -> bool:
    """Whether a constant's text is a number of a rule: of any dtype, but with the same sign."""
    words = {"True": "1", "False": "0"}
    if (text in words) != (number in words):
        return False
    found, wanted = (float(words.get(each, each)) for each in (text, number))
    return found == wanted and (found != 0 or text.startswith("-") == number.startswith("-"))
