"""Instructions: the steps of a schedule, as terms.

A primitive is one file: a term with its arguments, a `check` of its preconditions, and an `edit`
that may assume them. Instructions refer to loops, blocks and decided numbers by handles. A kind is
declared with `@primitive("name")`; packages declare their own and name their modules under the
entry-point group `plica.instructions`.

>>> kinds()["split"].__name__
'Split'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from random import Random
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar

from attrs import field, frozen

from plica.analysis.site import Map, Site, map_of
from plica.core import ExtensionGroup, Name, Term, field_names
from plica.core.encode import misfit
from plica.ir.contract import Contract, exact
from plica.ir.loop.scalar import ScalarVar
from plica.ir.loop.statement import Block, For, Kernel
from plica.runtime.error import Diagnostic, PlicaError, wrong_argument
from plica.runtime.late import load_all
from plica.schedule.handle import Handle, Output, Sort
from plica.schedule.problem import Problem

Decision: TypeAlias = tuple[int, ...]
Number: TypeAlias = int | Handle
"""A number in an instruction: written there, or decided by an earlier one."""

Gives: TypeAlias = Literal["any", "one", "several"]

LARGEST: Final = 1 << 62
"""Numbers in instructions are smaller than this, so that places can be reckoned with 64 bits."""

LOOP: Final[tuple[Sort, ...]] = ("loop",)
BLOCK: Final[tuple[Sort, ...]] = ("block",)
NUMBER: Final[tuple[Sort, ...]] = ("number",)

WANTED: Final[Mapping[str, tuple[Sort, ...]]] = {
    "loop": LOOP, "loops": LOOP,
    "block": BLOCK, "blocks": BLOCK, "consumers": BLOCK,
    "parent": ("block", "loop"), "target": ("loop", "block"),
    "number": NUMBER, "factors": NUMBER, "lengths": NUMBER,
}  # fmt: skip
"""The sort of handle in a field, by field name."""


@frozen(eq=False)
class Scene:
    """A kernel, and the objects of a trace's handles in it."""

    kernel: Kernel
    outputs: Mapping[Handle, Output]
    late: bool = False  # whether the legality of parallel loops is checked once, after all steps
    ended: bool = False  # whether sampling has ended with `enter_postproc`
    _made: dict[Instruction, Edited] = field(factory=dict, init=False)

    def after(self, step: Instruction) -> Edited:
        """The result of a step here, cached: some checks inspect the resulting kernel."""
        if (edited := self._made.get(step)) is None:
            edited = self._made[step] = step.edit(self)
        return edited

    @property
    def map(self) -> Map:
        return map_of(self.kernel)

    def loop(self, handle: Handle) -> Site[For]:
        """Where the loop is; the step that asks has been found to have it."""
        var = self.outputs[handle]
        assert isinstance(var, ScalarVar)
        return self.map.loops[var]

    def block(self, handle: Handle) -> Site[Block]:
        """Where the block is."""
        label = self.outputs[handle]
        assert isinstance(label, Name)
        return self.map.blocks[label]

    def number(self, number: Number) -> int:
        """The number meant."""
        if isinstance(number, int):
            return number
        found = self.outputs[number]
        assert isinstance(found, int)
        return found

    def missing(self, instruction: Instruction) -> Problem | None:
        """The problem if an instruction's handles are of another sort, or gone."""
        if (problem := ill_fitting(instruction)) is not None:
            return problem
        if self.ended and isinstance(instruction, Sampling):
            expected = "a decision before enter_postproc"
            return Problem("sampling", instruction.kind, expected, "it comes after that")
        for handle in instruction._children:
            if not isinstance(handle, Handle):
                continue
            if (found := self.outputs.get(handle)) is None:
                expected = "something an earlier step gave"
                return Problem("known-handle", f"a {handle.sort}", expected, repr(handle))
            if isinstance(found, int):
                continue
            here = self.map.blocks if isinstance(found, Name) else self.map.loops
            if found not in here:
                name = found if isinstance(found, Name) else found.name
                where = f"the {handle.sort} {name if name.index >= 0 else name.hint}"
                expected = f"a {handle.sort} that no earlier step has taken away"
                return Problem("alive", where, expected, "it is there no longer")
        return None


@frozen
class Edited:
    """The result of a step: the new kernel and its outputs."""

    kernel: Kernel
    outputs: tuple[Output, ...] = ()


class Instruction(Term):
    """A step; its fields are handles, numbers, words and terms.

    Three requirements: `check` returns None or the violated precondition with its place; `edit`
    after a successful `check` preserves the kernel's meaning; both depend only on the scene.
    """

    kind: ClassVar[str] = ""

    pure: ClassVar[bool] = False
    """Whether steps of this kind only look: they change no kernel, and unused ones can go."""

    ends_sampling: ClassVar[bool] = False
    """Whether nothing may be sampled after a step of this kind."""

    gives: ClassVar[Gives] = "any"
    """The value returned to a do-block: one handle, always a tuple, or (any) a tuple or none."""

    contract: ClassVar[Contract] = exact
    """How far a step of this kind may move a float at most: `exact` where work only moves."""

    wants: ClassVar[Mapping[str, tuple[Sort, ...]]] = WANTED
    """The sort of handle in each field; unnamed fields take any."""

    @classmethod
    def not_a_term(cls, given: object) -> TypeError:
        """A do-block passed another object where a handle is required."""
        message = f"{cls.kind} expects handles of blocks, loops or buffers."
        hint = 'c = yield block("C") gives that of a block, i, j = yield loops(c) those of loops.'
        return wrong_argument(message, "a handle, which a do-block receives", given, hint)

    def check(self, scene: Scene) -> Problem | None:
        """The first precondition that does not hold."""
        raise AssertionError(f"{type(self).__name__} checks nothing.")

    def keeps(self, scene: Scene) -> Contract:
        """The contract that the step keeps here, after a successful `check`."""
        return self.contract

    def edit(self, scene: Scene) -> Edited:
        """The kernel after the step; only asked for where `check` finds no problem."""
        raise AssertionError(f"{type(self).__name__} edits nothing.")


class Sampling(Instruction):
    """A step that decides numbers: they are recorded in the trace, and given to later steps."""

    pure = True

    def decide(self, scene: Scene, random: Random) -> Decision:
        """A decision of its support, drawn at random."""
        raise AssertionError(f"{type(self).__name__} decides nothing.")

    def accepts(self, scene: Scene, decision: Decision) -> Problem | None:
        """Why a recorded decision is not in the support, or None."""
        raise AssertionError(f"{type(self).__name__} accepts nothing.")

    def edit(self, scene: Scene) -> Edited:
        return Edited(scene.kernel)


@lru_cache(maxsize=4096)
def ill_fitting(what: Instruction) -> Problem | None:
    """The problem of an instruction whose fields no kernel could satisfy."""
    cls = type(what)
    names = field_names(cls)
    values = [getattr(what, name) for name in names]
    if (wrong := misfit(cls, values)) is not None:
        return Problem("fields", what.kind, "fields of the types it declares", wrong)
    for name, value in zip(names, values, strict=True):
        sorts = cls.wants.get(name)
        for each in _flat(value):
            if type(each) is int and abs(each) >= LARGEST:
                expected = f"numbers below {LARGEST}"
                return Problem("fields", f"{what.kind}, its {name}", expected, str(each))
            if sorts is not None and isinstance(each, Handle) and each.sort not in sorts:
                expected, found = f"a {' or a '.join(sorts)}", f"a {each.sort}"
                return Problem("handle-sort", f"{what.kind}, its {name}", expected, found)
    return None


def _flat(value: Any) -> list[Any]:  # Any: whatever the field of an instruction holds
    found, stack = list[Any](), [value]
    while stack:
        if isinstance(each := stack.pop(), tuple):
            stack.extend(reversed(each))
        else:
            found.append(each)
    return found


I = TypeVar("I", bound=type[Instruction])  # noqa: E741  # an instruction class

_kinds: Final[dict[str, type[Instruction]]] = {}


def primitive(kind: str) -> Callable[[I], I]:
    """Declares a kind of instruction; use it above `@frozen(eq=False)`."""

    def declare(cls: I) -> I:
        known = _kinds.setdefault(kind, cls)
        if known.__module__ != cls.__module__ or known.__qualname__ != cls.__qualname__:
            message = f"Two modules declare an instruction {kind!r}."
            found = f"{known.__module__} and {cls.__module__}"
            hint = f"Rename the one in {cls.__module__}: a package's kinds begin with its name."
            raise PlicaError(Diagnostic("name-clash", message, None, "one", found, hint))
        cls.kind = kind
        _kinds[kind] = cls
        return cls

    return declare


def kind_of(name: str) -> type[Instruction] | None:
    """The instruction kind of that name; other packages are loaded only for unknown names."""
    type_type = _kinds.get(name)
    return kinds().get(name) if type_type is None else type_type


def kinds() -> Mapping[str, type[Instruction]]:
    """Every kind of instruction by name, those of installed packages too.

    Sorted by name, independent of import order, so that seeded draws are equal in every process.
    """
    load_all("plica.schedule.primitive")
    every = {**_kinds, **{type_type.kind: type_type for type_type in INSTRUCTIONS.all()}}
    return dict(sorted(every.items()))


def _is_kind(of: object) -> bool:
    return isinstance(of, type) and issubclass(of, Instruction) and _kinds.get(of.kind) is of


INSTRUCTIONS: Final[ExtensionGroup[type[Instruction]]] = ExtensionGroup(
    "plica.instructions", "primitive", _is_kind, named=lambda each: each.kind, several=True
)
"""The kinds of instruction that libraries offer."""
