"""Typing state: what inference knows about the parts of an expression.

Not here: which instances exist (`plica.ir.type.type_checker`), and what a node requires of its
parts (`plica.ir.type.typing_rule`).

Reports: the errors found in one definition, each with its place.

Terms carry no places (equal terms are one object), so places are looked up separately: that of the
node, of the nearest enclosing node that has one, or the name of the definition.

>>> from plica.ir.graph.expression import Literal, Tuple
>>> inner = Tuple(())
>>> outer = Tuple((inner,))
>>> report = ErrorReport("f", (outer,), {outer: Place("f.py", 3, 5)})
>>> report.error("cannot-infer", "Nothing says what this is.", inner)
>>> print(report.errors[0])
f.py:3:5: Nothing says what this is. [cannot-infer]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from plica.core import Term, did_you_mean, post_order
from plica.ir.graph.expression import Apply, Const, Constructor, Expr, Function, Literal, Var
from plica.ir.graph.operator import Mismatch
from plica.ir.op import names
from plica.ir.type.refresh import Refresher, is_untyped
from plica.ir.type.term import FuncType, Type, TypeTerm, Unknown
from plica.ir.type.unify import Clash, Solver
from plica.ir.type.unknown import POISON, blanked, rename_types, unknowns
from plica.runtime.error import Diagnostic, Place

Places: TypeAlias = Mapping[Term, Place]
# A leaf may stand in many places and is one term, so the place of its user says more.
_LEAVES: Final = (Var, Const, Literal, Constructor)
_LARGE: Final = 200


class ErrorReport:
    """Errors of one definition; the same error is reported once."""

    def __init__(self, name: str, roots: Iterable[Term] = (), places: Places | None = None) -> None:
        self.name = name
        self.roots = tuple(roots)
        self.places: Places = {} if places is None else places
        self._found: dict[Diagnostic, None] = {}
        self._around: dict[Term, Term] | None = None

    @property
    def errors(self) -> tuple[Diagnostic, ...]:
        """All errors, in order."""
        return tuple(self._found)

    def error(
        self,
        code: str,
        message: str,
        node: Term,
        user: Term | None = None,
        *,
        expected: object = None,
        found: object = None,
        suggestion: str | None = None,
        other: Term | None = None,
    ) -> None:
        """Report an error at `node`, a part of `user`; `other` is the second place it concerns."""
        place = self.place(node, user)
        if other is not None:
            beside = self.place(other, user)
            if beside != place and beside.line is not None:
                message += f" The other place is {beside}."
        self._found[
            Diagnostic(code, message, place, described(expected), described(found), suggestion)
        ] = None

    def mismatch(self, mismatch: Mismatch, node: Term) -> None:
        """Report that an operator does not fit its arguments."""
        self.error(
            mismatch.code,
            mismatch.message,
            node,
            expected=mismatch.expected,
            found=mismatch.found,
            suggestion=mismatch.suggestion,
        )

    def unknown_operator(self, apply: Apply, node: Term) -> None:
        """Report a name that no operator has."""
        message = f"There is no operator {apply.op!r}."
        self.error("unknown-operator", message, node, suggestion=did_you_mean(apply.op, names()))

    def place(self, node: Term, user: Term | None = None) -> Place:
        """Where a node was written."""
        if user is not None and (isinstance(node, _LEAVES) or node not in self.places):
            node = user
        if not self.places:
            return Place(node=self.name)
        seen: set[Term] = set()
        while node not in self.places:
            if self._around is None:
                self._around = {}
                for term in post_order(*self.roots):
                    for kid in term._children:
                        self._around.setdefault(kid, term)
            seen.add(node)
            around = self._around.get(node)
            if around is None or around in seen:
                return Place(node=self.name)
            node = around
        return self.places[node]


def described(what: object) -> str | None:
    """A type or another value in words; unknown parts are shown as `unknown`."""
    if what is None:
        return None
    if not isinstance(what, TypeTerm):
        return str(what)
    size: dict[Term, int] = {}
    for node in post_order(what):
        size[node] = 1 + sum([size[kid] for kid in node._children])
    if size[what] > _LARGE:
        return f"{type(what).__name__} of {size[what]} parts"
    return str(blanked(what))  # type: ignore[arg-type]  # every type term is a type


Instance: TypeAlias = int
Rule: TypeAlias = "Callable[[TypingState, Instance], Type | None]"  # None: it has to wait


class TypingState:
    """The instances of one expression, or of several functions that use one another."""

    def __init__(self, report: ErrorReport, outer: Mapping[Var, Type] | None = None) -> None:
        self.report = report
        self.solver = Solver()
        self.refresher = Refresher()
        self.outer = {} if outer is None else outer  # the types of untyped definitions
        self.slots: dict[Var, Type] = {}  # the types of untyped variables
        self.nodes: list[Expr] = []
        self.types: list[Type | None] = []  # None: a number that has not been used yet
        self.kids: list[tuple[Instance, ...]] = []
        self.arguments: dict[Instance, tuple[Type, ...]] = {}  # the type arguments of calls
        self.whose: dict[Unknown, tuple[str, Term]] = {}  # what an unknown is the type of
        self._opened: dict[Term, Term] = {}
        self.closed = False  # whether somebody else reports variables that nothing binds

    def new(self, node: Expr, kids: tuple[Instance, ...], of: Type | None) -> Instance:
        """One more instance."""
        self.nodes.append(node)
        self.types.append(of)
        self.kids.append(kids)
        return len(self.nodes) - 1

    def typed(self, instance: Instance) -> Type:
        """The current type of an instance."""
        if (of := self.types[instance]) is None:
            of = self.types[instance] = self.solver.fresh_weak(self.literal(instance).value)
        return self.solver.find(of)

    def literal(self, instance: Instance) -> Literal:
        """The node of an instance that is a number."""
        node = self.nodes[instance]
        assert isinstance(node, Literal)
        return node

    def signature(self, of: Function) -> FuncType:
        """The type of a function as far as it says it; unknowns for the rest."""
        params = []
        for param in of.params:
            if is_untyped(param):
                self.slots[param] = self.open(param.type, f"The type of {self.name(param)}", of)
                params.append(self.slots[param])
            else:
                assert param.type is not None
                params.append(param.type)
        ret = self.open(of.ret, "The type the function returns", of)
        return FuncType(of.dims, of.types, tuple(params), ret)

    def open(self, of: Type | None, what: str, user: Term) -> Type:
        """A type with fresh unknowns for the parts that an annotation leaves open."""
        if of is None:
            unknown = self.solver.fresh()
            self.whose[unknown] = what, user
            return unknown
        if self.solver.is_known(of):
            return of
        for each in unknowns(of):
            if isinstance(each, Unknown) and each not in self._opened:
                self._opened[each] = self.open(None, what, user)
        return rename_types(of, self._opened)

    def name(self, var: Var) -> str:
        """A variable as the program calls it."""
        original = self.original(var)
        return str(original.name) if isinstance(original, Var) else str(var.name)

    def original(self, node: Term) -> Term:
        """A node as the program has it."""
        return self.refresher.original(node)

    # --- what must hold --------------------------------------------------------------------

    def flow(self, value: Instance, expected: Type, user: Term, message: str) -> bool:
        """Ask that a value has a type; a polymorphic function may be used at one of its types."""
        found = self.typed(value)
        if found is expected:
            return True
        self.solver.site = user
        if isinstance(found, FuncType) and (found.dims or found.types):
            wanted = self.solver.find(expected)
            if not (isinstance(wanted, FuncType) and (wanted.dims or wanted.types)):
                found, _ = self.solver.instantiate(found)
        else:
            found = self.types[value] or found  # with the unknowns that lead to it, and their sites
        if (clash := self.solver.unify(found, expected)) is None:
            return True
        self.clash(clash, self.nodes[value], user, message)
        return False

    def clash(
        self, clash: Clash, node: Term, user: Term, message: str, other: Term | None = None
    ) -> None:
        """Report a clash at `node`, a part of `user`, and the other place that took part in it."""
        if other is None and clash.site is not user:
            other = clash.site
        self.report.error(
            clash.code,
            f"{message} {clash.why}".strip(),
            self.original(node),
            self.original(user),
            expected=clash.expected,
            found=clash.found,
            other=None if other is None else self.original(other),
        )
        self.spoil(clash.found)
        self.spoil(clash.expected)

    def spoil(self, of: Type) -> None:
        """What took part in an error is no reason for another one."""
        of = self.solver.resolve(of)
        if not self.solver.is_known(of):
            for unknown in unknowns(of):
                if isinstance(unknown, Unknown):
                    self.solver.unify(unknown, POISON)

    # --- what has to wait ------------------------------------------------------------------

    def start(self, rule: Rule, instance: Instance) -> bool:
        """Apply a rule now; False if it waits, and its result is an unknown for the time being."""
        if (of := rule(self, instance)) is None:
            self.types[instance] = self.solver.fresh()
            return False
        self.types[instance] = of
        if of is POISON:
            self._spoil_parts(instance)
        return True

    def settle(self) -> None:
        """Take up what waited for something that is known now."""
        solver = self.solver
        while solver.ready:
            ready, solver.ready = solver.ready, []
            for rule, instance in ready:
                if (of := rule(self, instance)) is None:
                    continue
                unknown, node = self.types[instance], self.nodes[instance]
                assert unknown is not None
                solver.site = node
                if (clash := solver.unify(of, unknown)) is not None:
                    self.clash(clash, node, node, "A value is used at another type than it has.")
                elif of is POISON:
                    self._spoil_parts(instance)

    def _spoil_parts(self, instance: Instance) -> None:
        for kid in self.kids[instance]:
            of = self.types[kid]
            if of is not None and not self.solver.is_known(of):
                self.spoil(of)

    # --- the end ---------------------------------------------------------------------------

    def conclude(self) -> None:
        """Applies defaults, and reports what stays unknown."""
        solver = self.solver
        for instance, of in enumerate(self.types):
            if of is None:
                self.typed(instance)
        numbers = iter(list(solver.weak))
        while True:
            self.settle()
            before = len(solver.sizes)
            for clash, site in solver.recheck():
                assert site is not None
                self.clash(clash, site, site, "Dims that must agree do not.")
            if solver.ready or len(solver.sizes) != before:
                continue
            undecided = next((number for number in numbers if solver.find(number) is number), None)
            if undecided is None:
                break
            solver.default(undecided)
        for _, _, _, _, at in solver.equations:
            assert at is not None
            self._cannot("The sizes of this cannot be inferred.", at)
        solver.freeze()
        self._undecided()

    def _undecided(self) -> None:
        """Reports each unknown once, where an annotation could have determined it."""
        solver = self.solver
        for instance, type_ in enumerate(self.types):
            assert type_ is not None
            solver.site = self.nodes[instance]
            solver.resolve(type_)
        for why, site in solver.huge.values():
            node = self.nodes[-1] if site is None else site
            message = f"A dim of this is out of range: {why}"
            self.report.error("shape-conflict", message, self.original(node))
        said: set[Term] = {POISON}
        for type_, site in list(solver.endless.values()):
            message = "A type cannot be a part of itself: the type of this would contain itself."
            node = self.nodes[-1] if site is None else site
            self.report.error("type-conflict", message, self.original(node))
            said.update(unknowns(solver.resolve(type_)))
        for unknown, (what, user) in self.whose.items():
            of = solver.resolve(unknown)
            if not solver.is_known(of):
                new = [term for term in unknowns(of) if term not in said]
                if new and POISON not in unknowns(of):
                    self._cannot(f"{what} cannot be inferred.", user)
                said.update(new)
        if self.report.errors:
            return
        for instance, type_ in enumerate(self.types):
            assert type_ is not None
            open_ = solver.first_unknown(solver.resolve(type_))
            if open_ is not None and open_ is not POISON:
                self._cannot("The type of this cannot be inferred.", self.nodes[instance])
                return

    def _cannot(self, message: str, node: Term) -> None:
        hint = "Annotate it with a type."
        self.report.error("cannot-infer", message, self.original(node), suggestion=hint)
