"""Tensors end to end: concatenations, and the parts of splits that undo them."""

from __future__ import annotations

from typing import Any

from plica.ir.loop.scalar import Scalar
from plica.rewrite.prove.open_shape import SCALAR, MappedIndex, MappedShape, OpenIndex
from plica.rewrite.prove.open_tensor import IllTypedRule, OpenTensor, Unprovable
from plica.rewrite.prove.rule_facts import RuleFacts


def joined_parts(reading: RuleFacts, parts: list[OpenTensor], axis: Any) -> OpenTensor:
    """Tensors end to end; a concatenation of concatenations has all their parts."""
    if len({open_tensor.dtype for open_tensor in parts}) != 1:
        raise IllTypedRule("the parts of concat have one dtype")
    flat = [
        piece
        for part in parts
        for piece in (part.parts if part.parts and part.axis == axis else (part,))
    ]
    if len(flat) == 1:
        return flat[0]
    cuts = [reading.cuts.get(open_tensor) for open_tensor in flat]
    if cuts[0] is not None:
        whole = cuts[0][0]
        if cuts == [(whole, len(flat), axis, number) for number in range(len(flat))]:
            return whole
    shapes = tuple(open_tensor.shape for open_tensor in flat)
    if reading.assumes:
        reading.seen.add(("concat", axis, shapes))
    elif not any(
        each[:2] == ("concat", axis) and _is_run(shapes, each[2]) for each in reading.seen
    ):
        raise Unprovable("a concat may not be well formed on the right side")
    shape = MappedShape("concat", (axis, *shapes), SCALAR)
    dtype = flat[0].dtype

    def at(index: OpenIndex) -> Scalar:
        places = [MappedIndex(index, "concat", (axis, i, *shapes), open_tensor.shape)
                  for i, open_tensor in enumerate(flat)]  # fmt: skip
        key = tuple(open_tensor.at(place) for open_tensor, place in zip(flat, places, strict=True))
        return reading.atom(("concat", axis, index, shapes, key), dtype, "joined")

    return OpenTensor(dtype, shape, at, tuple(flat), axis)


def part_of_split(
    reading: RuleFacts, of: OpenTensor, given: dict[str, Any], number: int
) -> OpenTensor:
    """A part of a split: of what was concatenated at the cut, what was there before."""
    sections, axis = given["indices_or_sections"], given["axis"]
    if sections == 1:
        return of
    if reading.is_known(("split", sections, axis, of.shape)) and number == 0:
        return of
    shapes = tuple(part.shape for part in of.parts)
    known = (("split", sections, axis, *shapes), ("split", sections, axis, *shapes[:1]))
    if len(shapes) == 2 and of.axis == axis and any(map(reading.is_known, known)):
        return of.parts[number]
    key = (("sections", sections), ("axis", axis), ("number", number))
    reading.legal(("part", sections, axis, of.shape), "a split of another shape")
    shape = MappedShape("split", key, of.shape)
    open_tensor = OpenTensor(
        of.dtype, shape, lambda index: of.at(MappedIndex(index, "split", key, of.shape))
    )
    reading.cuts[open_tensor] = (of, sections, axis, number)
    return open_tensor


def _is_run(part: tuple[Any, ...], whole: tuple[Any, ...]) -> bool:
    """Whether a sequence is a run of another."""
    return any(whole[at : at + len(part)] == part for at in range(len(whole)))
