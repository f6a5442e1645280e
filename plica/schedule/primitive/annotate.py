"""Annotations of loops and blocks, by keys of `KEYS`."""

from __future__ import annotations

from typing import Final, Literal

from attrs import frozen

from plica.analysis.site import replace, with_parts
from plica.core import did_you_mean
from plica.ir.loop.statement import Annotations, For, Plain, annotated
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.problem import Problem

KEYS: Final[dict[str, type]] = {
    "cut_choices": bool,  # a loop: cut where a choice between values begins to be, or ceases
    "double_buffer": bool,  # a block: what it writes is held twice, so that it runs ahead
    "fetch": int,  # a loop: what it reads is fetched a given number of elements ahead of itself
    "fetch_next": tuple,  # a loop: shares of what the next of these loops will read are fetched
    "fetch_rows": int,  # a loop: what it reads is fetched a given number of rows ahead of itself
    "pragma": str,  # a word for the code generator
    "role": str,  # what a block is for, so that a trace finds it again
    "software_pipeline_order": tuple,  # a loop: the order of its statements in an iteration
    "software_pipeline_spare": int,  # a loop: turns for which what was read is not overwritten
    "software_pipeline_stage": tuple,  # a loop: how many iterations each statement runs behind
    "tensor_intrinsic": str,  # a block: the intrinsic that is to do it
    "unroll_explicit": bool,  # a loop: unrolled in terms, not in the code generator
}
"""What may be said, and the type of the value; other packages add theirs with `declare_key`."""


def declare_key(key: str, of: Literal["bool", "int", "float", "str", "tuple"]) -> None:
    """A key that annotations may have."""
    types = {"bool": bool, "int": int, "float": float, "str": str, "tuple": tuple}
    if KEYS.setdefault(key, types[of]) is not types[of]:
        raise ValueError(f"There is a key {key} of another type already.")


@primitive("annotate")
@frozen(eq=False)
class Annotate(Instruction):
    """Attach a key and a value to a loop or a block, for later steps and for lowering.

        before                      after  annotate(i, "unroll_explicit", True)
        for i in range(4): …        for i in range(4, unroll_explicit=True): …

    Preconditions:

    - `known-key`: a key of `KEYS`.
    - `typed-value`: a value of its type.
    - `not-annotated`: the key is not set yet.
    """

    target: Handle
    key: str
    value: bool | int | float | str | tuple[int, ...]

    def check(self, scene: Scene) -> Problem | None:
        where, said = notes_of(scene, self.target)
        if self.key not in KEYS:
            hint = did_you_mean(self.key, KEYS)
            return Problem("known-key", where, f"one of {', '.join(KEYS)}", repr(self.key), hint)
        if type(self.value) is not KEYS[self.key]:
            return Problem("typed-value", where, KEYS[self.key].__name__, repr(self.value))
        if self.key in dict(said):
            found = f"{self.key} = {dict(said)[self.key]!r}"
            hint = "Take it away with unannotate first."
            return Problem("not-annotated", where, f"nothing said of {self.key}", found, hint)
        return None

    def edit(self, scene: Scene) -> Edited:
        return said(scene, self.target, self.key, self.value)


@primitive("unannotate")
@frozen(eq=False)
class Unannotate(Instruction):
    """Remove a key from a loop or a block.

        before                                    after  unannotate(i, "unroll_explicit")
        for i in range(4, unroll_explicit=True)   for i in range(4): …

    Preconditions:

    - `annotated`: the key is set.
    """

    target: Handle
    key: str

    def check(self, scene: Scene) -> Problem | None:
        where, notes = notes_of(scene, self.target)
        if self.key not in dict(notes):
            found = ", ".join(key for key, _ in notes) or "nothing"
            return Problem("annotated", where, f"something said of {self.key}", found)
        return None

    def edit(self, scene: Scene) -> Edited:
        return said(scene, self.target, self.key, None)


def said(scene: Scene, target: Handle, key: str, value: Plain | None) -> Edited:
    """The kernel with an annotation of a loop or a block set; None removes it."""
    if target.sort == "loop":
        site = scene.loop(target)
        loop = site.node
        notes = annotated(loop.annotations, **{key: value})
        new = For(loop.var, loop.extent, loop.kind, loop.body, notes)
        return Edited(replace(scene.kernel, site, new))
    place = scene.block(target)
    notes = annotated(place.node.annotations, **{key: value})
    return Edited(replace(scene.kernel, place, with_parts(place.node, annotations=notes)))


def notes_of(scene: Scene, target: Handle) -> tuple[str, Annotations]:
    if target.sort == "loop":
        loop = scene.loop(target).node
        return f"the loop {loop.var.name}", loop.annotations
    block = scene.block(target).node
    return f"the block {block.label}", block.annotations


annotate = Annotate
unannotate = Unannotate
