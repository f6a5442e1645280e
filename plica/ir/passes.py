"""Passes: one record for what is done at any level of the compiler, and pipelines of them as data.

A pass says why it exists, at which level it works (its kind), and which normal forms it takes and
gives.  A pipeline is a list of passes that prints, compares, composes and is edited; the pipeline
of a target is a pipeline that leads from a module to code.  Running one is `plica.ir.driver`.

>>> from attrs import evolve
>>> nothing = Pass("nothing", "An example.", lambda module: module)
>>> twice = Pipeline((nothing,)) + Pipeline((evolve(nothing, name="again"),))
>>> print(twice)
nothing  An example.
again    An example.
>>> twice.without("nothing").names
('again',)

A library ships a pass under the entry-point group `plica.passes`; a name in `insert` or `replace`
is looked for there, and among Plica's own passes that no pipeline holds by default.

Laws: `(a + b) + c == a + (b + c)`; `p.insert(x, after=n).without(x.name) == p`; editing leaves the
order of all other passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import partial
from typing import Any, Final, Literal, TypeAlias, get_args

from attrs import evolve, field, frozen

from plica.core import ExtensionGroup, Term, did_you_mean, post_order
from plica.ir.contract import DEFAULT_CONTRACT, Contract, exact, join
from plica.ir.graph.expression import Call, Constructor, Function, Var
from plica.ir.graph.module import Module
from plica.ir.type import infer
from plica.runtime.error import PlicaError

Form: TypeAlias = Callable[[Module], bool]

Kind: TypeAlias = Literal[
    "graph", "rules", "stages", "forms", "template", "schedule", "lower", "plan", "emit"
]
"""The levels of a pipeline, in order; graph passes and rules may alternate."""

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

OWN: Final[dict[str, str]] = {
    "saturate": "plica.rewrite.saturate.pass_:SATURATE",
    "place-devices": "plica.rewrite.device_placement:PLACE_DEVICES",
    "inline-composites": "plica.rewrite.partition:INLINE_COMPOSITES",
    "verify-kernels": "plica.codegen.lower.verify:VERIFY_KERNELS",
}
"""Where Plica's own passes are that no pipeline holds by default, as pyproject.toml registers
them."""


RENAMED: Final[dict[str, str]] = {
    "lanes": "narrow-lanes",
    "narrow": "narrow-indices",
    "once": "predicate-thread-0",
    "own": "register-promotion",
    "place": "sink-buffers",
    "runs": "ordered-sums",
}
"""What passes are called now, by the names they had."""


class PassError(PlicaError):
    """A pipeline cannot be what was asked for: a name is unknown, or a required pass is missing."""


_forms: Final[dict[str, Form]] = {}


def form(name: str, holds: Form) -> None:
    """Declare a normal form that passes may take or give."""
    if name in _forms:
        raise ValueError(f"There is a normal form {name} already.")
    _forms[name] = holds


def forms() -> tuple[str, ...]:
    """The names of all normal forms, sorted."""
    return tuple(sorted(_forms))


def has_form(name: str, module: Module) -> bool:
    """Whether a module is in a normal form."""
    return _forms[name](module)


@frozen(cache_hash=True)
class Pass:
    """A transformation; `before` and `after` name the normal forms it takes and gives.

    What `run` takes and gives follows from the kind:

        graph     Module -> Module
        rules     (History, setting) -> History (`plica.rewrite.rule_pass`)
        stages    (Module, job) -> groups of operators as stages (`plica.codegen.lower.candidate`)
        forms     groups -> groups in their first form
        template  groups -> groups with the trace of a candidate, then with the kernel of one that
                  can be lowered
        schedule  (Module, job) -> Program
        lower     Kernel -> Kernel
        plan      Program -> Plan
        emit      (Lowered, job) -> Artefact

    `requires` names passes that must come earlier in any pipeline that holds this one; with
    `if_changed` it runs only where the pass of that name changed something.

    `contract` bounds how far the pass moves floats: under a stricter one it is refused.  A pass
    that declares none is taken to keep the default of `compile`.  Rules, schedules and emission
    are given the contract asked for (`takes_contract`) and stay within it.
    """

    name: str
    why: str
    run: Callable[..., Any]  # Any: as the kind says
    requires: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    kind: Kind = "graph"
    if_changed: str = ""
    drops: tuple[str, ...] = ()
    """What of a program may be gone after it though it means something to somebody: `attributes` of
    functions whose calls it replaces by their bodies."""
    looks_for: tuple[Term, ...] = field(default=(), eq=False)
    """Patterns of what it changes: fuzzers make programs in which they occur."""
    contract: Contract = DEFAULT_CONTRACT

    def __attrs_post_init__(self) -> None:
        for name in (*self.before, *self.after):
            if name not in _forms:
                raise _unknown("normal form", name, forms())
        if self.kind not in KINDS:
            raise _unknown("kind of pass", self.kind, KINDS)

    @property
    def takes_contract(self) -> bool:
        """Whether it is given the contract asked for, in a setting or a job."""
        return self.kind in ("rules", "stages", "forms", "template", "schedule", "emit")

    def __call__(self, of: Any) -> Any:  # as the kind says
        return self.run(of)


exact_pass: Final = partial(Pass, contract=exact)  # a pass that moves no float


def function_pass(
    name: str,
    why: str,
    rewrite: Callable[[Function], Function],
    *,
    requires: tuple[str, ...] = (),
    before: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    contract: Contract = DEFAULT_CONTRACT,
) -> Pass:
    """A pass that treats every graph function by itself; the names keep their types."""

    def over(module: Module) -> Module:
        values = tuple(
            rewrite(value) if isinstance(value, Function) else value for value in module.values
        )
        return Module(module.names, values, module.main)

    return Pass(name, why, over, requires, before, after, contract=contract)


@frozen(cache_hash=True)  # pipelines are part of the keys of what is kept
class Pipeline:
    """Passes in order, each name once."""

    passes: tuple[Pass, ...] = ()

    def __attrs_post_init__(self) -> None:
        seen: set[str] = set()
        for pass_ in self.passes:
            if pass_.name in seen:
                message = f"The pass {pass_.name} is in the pipeline twice."
                raise PassError.of("duplicate-name", message)
            seen.add(pass_.name)

    def __add__(self, other: Pipeline) -> Pipeline:
        return Pipeline(self.passes + other.passes)

    def __iter__(self) -> Iterator[Pass]:
        return iter(self.passes)

    def __len__(self) -> int:
        return len(self.passes)

    def __str__(self) -> str:
        width = max((len(pass_.name) for pass_ in self.passes), default=0)
        return "\n".join(_line(pass_, width) for pass_ in self.passes)

    def table(self) -> str:
        """One line a pass: name, kind, float contract, why it is there, and what it waits for."""
        width = max((len(pass_.name) for pass_ in self.passes), default=0)
        words = ["as asked" if each.takes_contract else str(each.contract) for each in self.passes]
        wide = max(map(len, words), default=0)
        lines = []
        for pass_, word in zip(self.passes, words, strict=True):
            wait = f"  (if {pass_.if_changed} changed something)" if pass_.if_changed else ""
            head = f"{pass_.name:<{width}}  {pass_.kind:<8}  {word:<{wide}}"
            lines.append(f"  {head}  {pass_.why}{wait}")
        return "\n".join(lines)

    @property
    def contract(self) -> Contract:
        """The strictest contract it can be run under: the join of what its passes declare."""
        return join(each.contract for each in self.passes if not each.takes_contract)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.passes)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of its passes, in the order of levels."""
        here = {each.kind for each in self.passes}
        return tuple(kind for kind in KINDS if kind in here)

    def find(self, name: str) -> Pass:
        """The pass of that name."""
        for pass_ in self.passes:
            if pass_.name == name:
                return pass_
        raise _unknown("pass", name, self.names)

    def without(self, *names: str) -> Pipeline:
        """The same pipeline less some of its passes."""
        for name in names:
            self.find(name)
        return Pipeline(tuple(pass_ for pass_ in self.passes if pass_.name not in names))

    def only(self, *names: str) -> Pipeline:
        """Those of its passes, in its order."""
        for name in names:
            self.find(name)
        return Pipeline(tuple(pass_ for pass_ in self.passes if pass_.name in names))

    def of(self, *kinds: Kind) -> Pipeline:
        """The passes of some kinds."""
        return Pipeline(tuple(pass_ for pass_ in self.passes if pass_.kind in kinds))

    def insert(
        self, new: Pass | str, *, before: str | None = None, after: str | None = None
    ) -> Pipeline:
        """The same pipeline with one more pass, at the end or beside another.

        A name means an installed pass (`installed_pass`).
        """
        new = installed_pass(new) if isinstance(new, str) else new
        at = len(self.passes)
        if before is not None:
            at = self.names.index(self.find(before).name)
        elif after is not None:
            at = self.names.index(self.find(after).name) + 1
        return Pipeline((*self.passes[:at], new, *self.passes[at:]))

    def replace(self, name: str, new: Pass | str) -> Pipeline:
        """The same pipeline with another pass in the place of one."""
        old = self.find(name)
        new = installed_pass(new) if isinstance(new, str) else new
        return Pipeline(tuple(new if pass_ is old else pass_ for pass_ in self.passes))

    def until(self, name: str) -> Pipeline:
        """The passes up to one, that one included."""
        return Pipeline(self.passes[: self.names.index(self.find(name).name) + 1])


def diff(old: Pipeline, new: Pipeline) -> str:
    """What changed from one pipeline to another, a line per pass; empty if nothing did."""
    width = max((len(each.name) for each in (*old, *new)), default=0)
    a, b = [_line(pass_, width) for pass_ in old], [_line(pass_, width) for pass_ in new]
    lines: list[str] = []
    for kind, i, j, k, l in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():  # noqa: E741  # lines of b from k to l, as difflib names them
        if kind == "equal":
            lines += [f"  {line}" for line in a[i:j]]
        else:
            lines += [f"- {line}" for line in a[i:j]] + [f"+ {line}" for line in b[k:l]]
    changed = any(not line.startswith("  ") for line in lines)
    return "\n".join(lines) if changed else ""


def _line(each: Pass, width: int) -> str:
    return f"{each.name:<{width}}  {each.why}"


def renamed(of: Pass, name: str, why: str = "", if_changed: str = "") -> Pass:
    """The same pass once more, under another name, since a pipeline holds each name once."""
    return evolve(of, name=name, why=why or of.why, if_changed=if_changed)


INSTALLED: Final = ExtensionGroup(
    "plica.passes", "pass", Pass, OWN, lambda each: each.name,
    error=PassError, unknown="unknown-pass",
)  # fmt: skip
"""The passes that can be inserted by name."""


def installed_pass(name: str) -> Pass:
    """The pass of that name, Plica's own or of an installed library."""
    return INSTALLED.load(name)


def _unknown(what: str, name: str, known: Sequence[str]) -> PassError:
    message = f"There is no {what} {name!r}."
    listed = ", ".join(known)
    if (now := RENAMED.get(name)) in known:
        hint = f"It is called {now!r} now."
        return PassError.of("unknown-pass", message, expected=listed, suggestion=hint)
    return PassError.of(
        "unknown-pass", message, expected=listed or None, suggestion=did_you_mean(name, known)
    )


def _is_inferred(module: Module) -> bool:
    return infer(module) is module


def _is_first_order(module: Module) -> bool:
    """Every call names a definition, and functions are nothing but definitions."""
    return all(
        isinstance(call.callee, Var | Constructor)
        for value in module.values
        for call in post_order(value)
        if isinstance(call, Call)
    ) and not any(
        isinstance(inner, Function)
        for value in module.values
        for inner in post_order(value)
        if inner is not value
    )


form("inferred", _is_inferred)
form("first-order", _is_first_order)
