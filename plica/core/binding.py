"""Binding: which variables a term binds, which are free in it, and substitution.

A class declares what it binds in `binds`; a class with `variable = True` is a variable, identified
by its `name`. The variables of a binding field are those found in it without looking inside a
variable (a variable's own type may mention dims bound elsewhere).

Laws: `substitute(t, {}) is t`; `free_vars(substitute(t, {x: e}))` is `free_vars(t) - {x}`, plus
`free_vars(e)` where `x` was free; no free variable of `e` is ever captured.

# Note [Large sets]
Each node remembers its free variables, which makes substitution touch only what it changes.  But
in `let x1 = ..; ..; let xn = ..; (x1, .., xn)` the sets together have n^2 elements.  So a set of
more than `LIMIT` variables is not remembered: the node is marked `LARGE`, and the set is computed
again when somebody asks for it, by one walk in which a parent takes over its child's set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

from plica.core.collector import paused
from plica.core.fold import post_order
from plica.core.name import Name, fresh
from plica.core.term import MANY, MIXED, ONE, Term, field_kinds, field_names, rebuild

T = TypeVar("T", bound=Term)
NOTHING: Final[frozenset[Term]] = frozenset()
LIMIT: Final = 64
LARGE: Final[frozenset[Any]] = frozenset({"more than LIMIT variables"})


def variables_of(value: Term | tuple[Term, ...]) -> list[Term]:
    """The variables a binding field introduces, in order, each once."""
    if isinstance(value, Term) and type(value).variable:
        return [value]
    found: dict[Term, None] = {}
    stack = list(reversed(value)) if isinstance(value, tuple) else [value]
    while stack:
        node = stack.pop()
        if type(node).variable:
            found[node] = None
        elif not type(node).mentioned:
            stack.extend(reversed(node._children))
    return list(found)


def bound_by(node: Term) -> list[tuple[str, tuple[str, ...], list[Term]]]:
    """For each binding field: its name, the fields it scopes over, its variables."""
    return [(name, scope, variables_of(getattr(node, name))) for name, scope in type(node).binds]


def fields_of_children(node: Term) -> Iterator[tuple[str, Term]]:
    """Each child with the field it sits in, in the order of `children`."""
    cls = node.__class__
    if (fixed := _fixed_fields.get(cls)) is None:
        kinds = zip(field_names(cls), field_kinds(cls), strict=True)
        fixed = _fixed_fields[cls] = (
            ()
            if MANY in field_kinds(cls) or MIXED in field_kinds(cls)
            else tuple([name for name, kind in kinds if kind is ONE])
        )
    return zip(fixed, node._children, strict=True) if fixed else _fields_of_children(node)


_fixed_fields: Final[dict[type[Term], tuple[str, ...]]] = {}  # () where their number varies


def _fields_of_children(node: Term) -> Iterator[tuple[str, Term]]:
    kids = iter(node._children)
    cls = type(node)
    for name, kind in zip(field_names(cls), field_kinds(cls), strict=True):
        if kind is ONE:
            yield name, next(kids)
        elif kind is MANY:
            for _ in getattr(node, name):
                yield name, next(kids)
        elif kind is MIXED:
            for _ in range(_count(getattr(node, name))):
                yield name, next(kids)


def shadowed_in(node: Term) -> dict[str, frozenset[Term]]:
    """For each field of a binding node, the variables that are bound inside it."""
    hidden: dict[str, frozenset[Term]] = {}
    for own, scope, variables in bound_by(node):
        for name in (own, *scope):
            hidden[name] = hidden.get(name, NOTHING).union(variables)
    return hidden


def free_vars(term: Term) -> frozenset[Term]:
    """The variables that occur in `term` and are not bound in it."""
    known = term._free
    if known is None or known is LARGE:
        known = _free_below(term)
    return known | {term} if term.__class__.variable else known


def _free_below(term: Term) -> frozenset[Term]:
    """The free variables of a term's fields, computed without the memo."""
    if term._free is None:
        _settle(term)
    known = cast("frozenset[Term]", term._free)
    if known is LARGE:
        known = _large(term)
        remember_free(term, known)
    return known


def _settle(term: Term) -> None:
    """Give every node below `term` its set or the mark LARGE.

    A variable caches the free variables of its fields only: including itself would make a reference
    cycle.
    """
    with paused():
        unsure = _settle_each(term)
    if unsure:  # above a large set there may be small ones again
        remember_free(term, _large(term))


def _settle_each(term: Term) -> bool:
    """Every node from its children; whether a set was too large to be sure."""
    unsure = False
    stack: list[tuple[Term, Iterator[Term]]] = []  # terms around, and kids still to visit
    node, kids = term, iter(term._children)
    while True:
        for kid in kids:
            if kid._free is not None:
                continue
            if inner := kid._children:
                stack.append((node, kids))
                node, kids = kid, iter(inner)
                break
            remember_free(kid, NOTHING)
        else:
            found = _free_here(node)
            unsure = unsure or found is LARGE
            remember_free(node, found if len(found) <= LIMIT else LARGE)
            if not stack:
                return unsure
            node, kids = stack.pop()


def _free_here(node: Term) -> frozenset[Any]:
    """From the sets of the children; LARGE where one of theirs is."""
    cls = type(node)
    free: Any  # not None: the children come first
    if cls.binds:
        hidden = shadowed_in(node)
        parts = []
        for name, kid in fields_of_children(node):
            if kid._free is LARGE:
                return LARGE
            free = kid._free | {kid} if kid.__class__.variable else kid._free  # type: ignore[operator]  # no plan: a function
            parts.append(free - hidden[name] if name in hidden else free)
        return NOTHING.union(*parts)
    result: frozenset[Any] = NOTHING
    for kid in node._children:
        if kid._free is LARGE:
            return LARGE
        free = kid._free
        if kid.__class__.variable:
            free = free | {kid} if free else frozenset((kid,))
        elif not free or free is result:
            continue
        # Keep the object when nothing is new: long chains then share one set.
        if not result or result < free:
            result = free
        elif not free <= result:
            result = result | free
            if len(result) > LIMIT:
                return LARGE
    return result


def _large(root: Term) -> frozenset[Any]:
    """The set of a node marked LARGE; nodes below it that turn out small are unmarked."""
    region = _region(root)
    uses = Counter([kid for node in region for kid in dict.fromkeys(node._children)])
    sets: dict[Term, set[Any]] = {}
    for node in region:
        hidden = shadowed_in(node) if type(node).binds else {}
        scopes: dict[Term, list[frozenset[Any]]] = {}
        for name, kid in fields_of_children(node):
            scopes.setdefault(kid, []).append(hidden.get(name, NOTHING))
        mine: set[Any] = set()
        for kid, shadows in scopes.items():
            shadow = frozenset.intersection(*shadows)
            theirs: Any = sets.get(kid)
            if theirs is None:
                free = cast("frozenset[Any]", kid._free)
                mine |= ((free | {kid}) if type(kid).variable else free) - shadow
                continue
            uses[kid] -= 1
            if not uses[kid]:
                del sets[kid]
                theirs -= shadow
                mine, theirs = (theirs, mine) if len(theirs) > len(mine) else (mine, theirs)
                mine |= theirs
            else:
                mine |= theirs - shadow
        sets[node] = mine
        if len(mine) <= LIMIT:
            remember_free(node, frozenset(mine))
    return frozenset(sets[root])


def _region(root: Term) -> list[Term]:
    """The nodes marked LARGE that are reached from `root` through such nodes, children first."""
    done: set[Term] = set()
    order: list[Term] = []
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        if node.__class__ is tuple:
            order.append(node[0])
        elif node not in done:
            done.add(node)
            stack.append((node,))
            stack.extend([kid for kid in node._children if kid._free is LARGE])
    return order


def substitute(term: T, mapping: Mapping[Any, Term]) -> T:
    """Replace free variables, renaming bound ones where they would capture.

    A substitute has the grammar of its variable, so the result has the grammar of the input.

    Any: the keys are variables, of whichever class the caller has (maps are invariant in them).
    """
    # So that every node below has its set, or is known to have a large one.
    if not mapping or free_vars(term).isdisjoint(mapping):
        return term
    if term in mapping:
        return cast(T, mapping[term])
    with paused():
        return cast(T, _substitute(term, mapping))


def _substitute(term: Term, mapping: Mapping[Any, Term]) -> Term:
    scopes = _Scopes(term, dict(mapping))
    memos = scopes.memos
    plans: dict[tuple[Term, int], tuple[int, ...]] = {}
    stack: list[tuple[Term, int, bool]] = [(term, 0, False)]
    push = stack.append
    while stack:
        node, context, leaving = stack.pop()
        memo = memos[context]
        if leaving:
            kids = node._children
            if node.__class__.binds:
                inner = plans.pop((node, context))
                new = tuple([memos[c][kid] for kid, c in zip(kids, inner, strict=True)])
            else:
                new = tuple([memo[kid] for kid in kids])
            memo[node] = node if new == kids else rebuild(node, new)
            continue
        if node in memo:
            continue
        push((node, context, True))
        if node.__class__.binds:
            inner = plans[node, context] = scopes.enter(node, context)
            below: Iterable[tuple[Term, int]] = zip(node._children, inner, strict=True)
        else:
            below = [(kid, context) for kid in node._children if kid not in memo]
        for kid, there in below:
            known = scopes.known[there]
            if kid in known:
                memos[there][kid] = known[kid]
            elif (free := kid._free) is not LARGE and cast("frozenset[Term]", free).isdisjoint(
                known
            ):
                memos[there][kid] = kid
            else:
                push((kid, there, False))
    return memos[0][term]


def rename(variable: T, name: Name) -> T:
    """The same variable under another name."""
    cls = variable.__class__
    fields = [name if each == "name" else getattr(variable, each) for each in field_names(cls)]
    return cls(*fields)


def name_of(variable: Term) -> Name:
    """The name of a variable."""
    return cast(Any, variable).name  # type: ignore[no-any-return]  # every variable has one


class _Scopes:
    """The substitution that applies in each scope of one term: the mapping minus shadowed
    variables, plus renamed bound variables."""

    def __init__(self, term: Term, mapping: dict[Term, Term]) -> None:
        self.term = term
        self.known: list[dict[Term, Term]] = [mapping]
        self.memos: list[dict[Term, Term]] = [{}]
        self._arriving: list[frozenset[Term] | None] = [None]  # found where there are binders
        self.variables: set[Term] | None = None  # all in the term, once a name must be found
        self.names: set[Name] = set()

    def enter(self, node: Term, context: int) -> tuple[int, ...]:
        """The context for each child of a binding node."""
        known = self.known[context]
        bound = list(dict.fromkeys(v for _, _, variables in bound_by(node) for v in variables))
        if known.keys().isdisjoint(bound) and self.clear(context, bound):
            return (context,) * len(node._children)  # mostly: nothing is hidden, nothing captured
        hidden = shadowed_in(node)
        renamed = self.renamings(node, context, bound, hidden)
        made: dict[frozenset[Term], int] = {}
        plan = []
        for name, _ in fields_of_children(node):
            shadow = hidden.get(name, NOTHING)
            if shadow.isdisjoint(known) and shadow.isdisjoint(renamed):
                plan.append(context)
                continue
            if shadow not in made:
                inner = {v: e for v, e in known.items() if v not in shadow}
                inner.update((v, e) for v, e in renamed.items() if v in shadow)
                made[shadow] = len(self.known)
                self.known.append(inner)
                self.memos.append({})
                self._arriving.append(None)
            plan.append(made[shadow])
        return tuple(plan)

    def clear(self, context: int, bound: list[Term]) -> bool:
        """Whether no bound variable would capture anything, or become another one."""
        known = self.known[context]
        return self.arriving(context).isdisjoint(bound) and all(
            cast("frozenset[Term]", v._free).isdisjoint(known) for v in bound
        )

    def renamings(
        self, node: Term, context: int, bound: list[Term], hidden: dict[str, frozenset[Term]]
    ) -> dict[Term, Term]:
        """New names for bound variables that would capture: something that arrives, or, where
        the substitution changes the variable itself (its type), something that was here."""
        known = self.known[context]
        if self.clear(context, bound):
            return {}
        free = cast("frozenset[Term]", node._free)
        relevant = known.keys() if free is LARGE else free.intersection(known)
        arriving = _all_free(known[v] for v in relevant)
        renamed: dict[Term, Term] = {}
        for own, _, variables in bound_by(node):
            # A variable's type may mention variables bound with it: `fn[n](x: Tensor[n])`.
            inner = {v: e for v, e in known.items() if v not in hidden[own]} | renamed
            for variable in variables:
                inside = tuple([substitute(kid, inner) for kid in variable._children])
                moved = rebuild(variable, inside)
                others = arriving if moved is variable else arriving.union(self.everything())
                if variable not in renamed and (variable in arriving or moved in others):
                    renamed[variable] = rename(moved, self.unused(variable))
        return renamed

    def arriving(self, context: int) -> frozenset[Term]:
        """The free variables of the substitutes."""
        if (terms := self._arriving[context]) is None:
            terms = self._arriving[context] = _all_free(self.known[context].values())
        return terms

    def everything(self) -> set[Term]:
        """All variables of the term, bound or free."""
        if self.variables is None:
            self.variables = {term for term in post_order(self.term) if type(term).variable}
            arriving = self.arriving(0)
            self.names = {name_of(term) for term in self.variables.union(arriving)}
        return self.variables

    def unused(self, variable: Term) -> Name:
        """A name like that of the variable which nothing in sight has."""
        self.everything()
        name = fresh(name_of(variable), self.names)
        self.names.add(name)
        return name


def _all_free(terms: Iterable[Term]) -> frozenset[Term]:
    return NOTHING.union(*map(free_vars, terms))


def _count(value: object) -> int:
    if isinstance(value, Term):
        return 1
    return sum(map(_count, value)) if isinstance(value, tuple) else 0


remember_free: Final = cast(Any, Term.__dict__["_free"]).__set__
