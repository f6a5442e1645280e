"""Consistency: everything that is wrong with the declaration of an accelerator.

>>> opcode = parts.Field("opcode", 0, 3)
>>> end = parts.Operation("end", "unit", (opcode,), (("opcode", 9),), parts.Idle())
>>> wrong = faults("toy", 8, (), ("unit",), (), (end,), "end", None, parts.Timing())
>>> [each.message for each in wrong]
["The fixed value of 'opcode' does not fit."]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import get_args

from plica.analysis.index.bounds import bounds
from plica.analysis.index.context import EMPTY
from plica.codegen.accel import part as parts
from plica.core import did_you_mean, post_order
from plica.ir.loop import Compute, Load, Reduce, ScalarVar
from plica.ir.type import shape_of
from plica.runtime.error import Diagnostic, Place


def faults(  # noqa: PLR0917  # a machine is these things
    name: str,
    bits: int,
    scopes: tuple[parts.Scope, ...],
    units: tuple[str, ...],
    queues: tuple[parts.Queue, ...],
    operations: tuple[parts.Operation, ...],
    finish: str,
    micro: parts.Micro | None,
    timing: parts.Timing,
) -> list[Diagnostic]:
    """Everything that is wrong with a declaration."""
    found = _Faults(name, {each.name: each for each in scopes}, micro)
    if not 0 < bits <= parts.MAX_BITS:
        found.refuse("", "An instruction has too many bits.", f"1 to {parts.MAX_BITS}", str(bits))
    found.words("accelerator", [name])
    found.words("scope", [each.name for each in scopes])
    found.words("unit", units)
    found.words("operation", [operation.name for operation in operations])
    for scope in scopes:
        if scope.depth < 1 or any(size < 1 for size in scope.shape):
            found.refuse(
                scope.name, "A scope holds nothing.", "sizes of at least 1", f"{scope.depth}"
            )
    found.queues(units, queues)
    if min(timing.megahertz, timing.bus, timing.ports) < 1:
        found.refuse(
            "", "A clock, a bus or a number of ports is not positive.", "at least 1", "less"
        )
    if min(timing.issue, timing.fill, timing.latency, timing.row) < 0:
        found.refuse("", "Nothing takes less than no cycles.", "at least 0", str(timing))
    if micro is not None:
        found.micro_operations(micro, operations)
    for operation in operations:
        found.known(operation.name, "unit", operation.unit, units)
        found.operation(operation, bits)
    for first, one in enumerate(operations):
        for other in operations[first + 1 :]:
            if _alike(one, other):
                pair = f"{one.name} and {other.name}"
                found.refuse("", "Two operations cannot be told apart.", "other fixed fields", pair)
    if found.known("", "operation", finish, [operation.name for operation in operations]):
        last = next(operation for operation in operations if operation.name == finish)
        if not isinstance(last.does, parts.Idle):
            does = type(last.does).__name__
            found.refuse(finish, "The last operation does something.", "Idle", does)
    return found.wrong


class _Faults:
    """The faults found so far; local to `faults`."""

    def __init__(
        self, name: str, scopes: dict[str, parts.Scope], micro: parts.Micro | None
    ) -> None:
        self.name, self.scopes, self.micro = name, scopes, micro
        self.wrong: list[Diagnostic] = []

    def refuse(
        self, where: str, message: str, expected: str, found: str, hint: str | None = None
    ) -> None:
        place = Place(node=f"{self.name}.{where}" if where else self.name)
        self.wrong.append(Diagnostic("bad-accelerator", message, place, expected, found, hint))

    def known(self, where: str, kind: str, word: str, words: Iterable[str]) -> bool:
        """Reports an unknown name."""
        among = list(words)
        if word not in among:
            hint = did_you_mean(word, among)
            some = ", ".join(among) or "none"
            self.refuse(where, f"There is no {kind} {word!r}.", some, word, hint)
        return word in among

    def words(self, kind: str, words: Sequence[str]) -> None:
        """Names are words with dots between, each given once: assembly is made of them."""
        article = "an" if kind[0] in "aeiou" else "a"
        for word in words:
            if not all(part.isidentifier() for part in word.split(".")):
                message = f"The name of {article} {kind} is no word."
                self.refuse("", message, "words with dots between", repr(word))
        for word in sorted({each for each in words if words.count(each) > 1}):
            self.refuse(
                word,
                f"{article.capitalize()} {kind} is declared twice.",
                "once",
                f"{words.count(word)} times",
            )

    def queues(self, units: Sequence[str], queues: Sequence[parts.Queue]) -> None:
        seen: set[tuple[str, str]] = set()
        for queue in queues:
            shown = f"{queue.source} -> {queue.target}"
            ends = [units.index(each) for each in (queue.source, queue.target) if each in units]
            if len(ends) < 2 or abs(ends[0] - ends[1]) != 1:
                self.refuse("", "A queue joins no neighbours.", " < ".join(units), shown)
            if queue.depth < 1:
                self.refuse("", "A queue has no room.", "a depth of at least 1", str(queue.depth))
            if (queue.source, queue.target) in seen:
                self.refuse("", "A queue is declared twice.", "one from a unit to another", shown)
            seen.add((queue.source, queue.target))

    def micro_operations(self, micro: parts.Micro, operations: Sequence[parts.Operation]) -> None:
        if not self.known("micro", "scope", micro.scope, self.scopes):
            return
        scope = self.scopes[micro.scope]
        if scope.shape or scope.dtype.kind not in ("int", "uint"):
            shown = f"{scope.dtype}{list(scope.shape)}"
            self.refuse("micro", "A micro-operation is no whole number.", "one integer", shown)
        self.fields("micro", micro.fields, min(8 * scope.bytes, parts.WORD))
        for field in micro.fields:
            if field.signed:
                self.refuse("micro", "A place is below zero.", "an unsigned field", field.name)
        moves = [each.does for each in operations if isinstance(each.does, parts.Move)]
        if not any(move.scope == micro.scope and move.way == "in" for move in moves):
            self.refuse("micro", "Nothing loads the micro-operations.", "a move into it", "none")

    def fields(self, where: str, fields: Sequence[parts.Field], bits: int) -> None:
        end, before = 0, ""
        for field in sorted(fields, key=lambda each: each.at):
            last = field.at + field.bits - 1
            shown = f"{field.name} at {field.at} to {last}"
            if field.bits < 1:
                self.refuse(where, "A field has no bits.", "at least 1", shown)
            if field.at < end:
                message = f"The fields {before!r} and {field.name!r} overlap."
                self.refuse(where, message, f">= {end}", shown)
            if last >= bits:
                message = f"The field {field.name!r} ends beyond the word."
                self.refuse(where, message, f"< {bits}", shown)
            if field.at // parts.WORD != last // parts.WORD:
                message = f"The field {field.name!r} crosses a word."
                self.refuse(where, message, f"{parts.WORD} bits", shown)
            if not field.name.isidentifier():
                self.refuse(where, "The name of a field is no word.", "a word", repr(field.name))
            end, before = max(end, last + 1), field.name
        words = [each.name for each in fields]
        if len(set(words)) < len(words):
            self.refuse(where, "Two fields have one name.", "other names", ", ".join(words))

    def operation(self, each: parts.Operation, bits: int) -> None:
        at = each.name
        self.fields(at, each.fields, bits)
        fields = [field.name for field in each.fields]
        for word, value in each.fixed:
            if self.known(at, "field", word, fields):
                field = each.fields[fields.index(word)]
                if not field.least <= value <= field.most:
                    room = f"{field.least} to {field.most}"
                    message = f"The fixed value of {word!r} does not fit."
                    self.refuse(at, message, room, str(value))
        if each.interval < 1:
            message = "A turn takes less than one cycle."
            self.refuse(at, message, "an interval of at least 1", str(each.interval))
        if isinstance(each.does, parts.Move):
            self.move(each, each.does)
        elif isinstance(each.does, parts.Sweep):
            self.sweep(each, each.does)

    def operand(self, each: parts.Operation, word: str, signed: bool = False) -> bool:
        """Whether a word is a field that an instruction is free to fill."""
        if not self.known(each.name, "field", word, [field.name for field in each.fields]):
            return False
        free = {field.name: field for field in each.operands}
        if word not in free:
            message = f"The field {word!r} is fixed, or a flag."
            self.refuse(each.name, message, ", ".join(free) or "none", word)
        elif free[word].signed and not signed:
            message = f"The field {word!r} counts, and could be below zero."
            self.refuse(each.name, message, "an unsigned field", word)
        return word in free

    def move(self, each: parts.Operation, does: parts.Move) -> None:
        at = each.name
        known = [self.known(at, "scope", each, self.scopes) for each in (does.scope, does.memory)]
        if all(known) and self.scopes[does.scope].shape != self.scopes[does.memory].shape:
            one, two = (list(self.scopes[each].shape) for each in (does.scope, does.memory))
            message = "Elements that a move makes of others have another shape."
            self.refuse(at, message, str(one), str(two))
        self.known(at, "way", does.way, get_args(parts.Way))
        words = (does.sram, does.dram, does.width, does.rows, does.stride, *does.pads)
        given = [word for word in words if word]
        for word in dict.fromkeys(given):
            self.operand(each, word)
        if len(does.pads) not in (0, 4) or bool(does.rows) != bool(does.stride):
            message = "A move has four pads or none, rows and a stride or neither."
            shown = f"{len(does.pads)} pads, rows {does.rows!r}, a stride {does.stride!r}"
            self.refuse(at, message, "4 pads or 0", shown)
        if not (does.sram and does.dram and does.width) or not all(does.pads):
            message = "A move has a place in its scope, a place in memory and a width."
            self.refuse(at, message, "names of fields", ", ".join(map(repr, words)))
        for word in dict.fromkeys(word for word in given if given.count(word) > 1):
            message = f"A move uses the field {word!r} for two things."
            self.refuse(at, message, "a field for each", ", ".join(given))

    def sweep(self, each: parts.Operation, does: parts.Sweep) -> None:
        at = each.name
        if len(does.micro) not in (0, 2) or (does.micro and self.micro is None):
            message = "A sweep over micro-operations names its first and last."
            self.refuse(at, message, "two fields, and micro-operations", str(does.micro))
            return
        counted = (*does.loops, *does.micro)
        for word in counted:
            self.operand(each, word)
        if len(set(counted)) < len(counted):
            message = "Two loops of a sweep are one field."
            self.refuse(at, message, "a field for each", ", ".join(counted))
        if does.latency < 1:
            message = "What is written is there before its turn."
            self.refuse(at, message, "a latency of at least 1", str(does.latency))
        there = [self.reach(each, does, reach) for reach in (does.writes, *does.reads)]
        if all(there):
            self.meaning(each, does)

    def reach(self, each: parts.Operation, does: parts.Sweep, reach: parts.Reach) -> bool:
        """Checks that the scopes of a reach exist, and its fields."""
        at = each.name
        if self.micro is not None and does.micro:
            self.known(at, "field", reach.base, [field.name for field in self.micro.fields])
        else:
            self.operand(each, reach.base, signed=True)
        for word in reach.strides:
            self.operand(each, word, signed=True)
        if len(reach.strides) != len(does.loops):
            self.refuse(at, "A sweep has a stride for each loop.", str(does.loops), str(reach))
        there = [self.known(at, "scope", word, self.scopes) for word in reach.scopes]
        many = reach is does.writes  # what is written may go to others too
        if not there or (len(there) > 1 and not many and reach.scopes != does.writes.scopes):
            message = "What is read is in one scope."
            self.refuse(at, message, "one scope", ", ".join(reach.scopes) or "none")
            return False
        return all(there)

    def meaning(self, each: parts.Operation, does: parts.Sweep) -> None:
        """Whether the meaning reads and gives elements as the scopes hold them."""
        at, meaning = each.name, does.meaning
        for reach, given in zip(does.reads, meaning.inputs, strict=False):
            wanted = parts.element(self.scopes[reach.scopes[0]])
            if (given.shape, given.dtype) != (wanted.shape, wanted.dtype):
                message = f"The meaning reads {given.name} as another element."
                self.refuse(
                    at, message, _kind(wanted.shape, wanted.dtype), _kind(given.shape, given.dtype)
                )
        if len(does.reads) != len(meaning.inputs):
            message = "The meaning reads another number of elements."
            self.refuse(at, message, str(len(does.reads)), str(len(meaning.inputs)))
        first, *others = [self.scopes[word] for word in does.writes.scopes]
        wanted = parts.element(first)
        if (meaning.shape, meaning.dtype) != (wanted.shape, wanted.dtype):
            message = f"The meaning gives another element than {first.name} holds."
            self.refuse(
                at, message, _kind(wanted.shape, wanted.dtype), _kind(meaning.shape, meaning.dtype)
            )
        for other in others:
            if other.shape != first.shape:
                message = f"What is written to {first.name} does not fit {other.name}."
                self.refuse(at, message, str(first.shape), str(other.shape))
        self.body(each, meaning)

    def body(self, each: parts.Operation, meaning: Compute) -> None:
        """Checks that variables are fields, and reads are inside their elements."""
        at = each.name
        fields = {field.name: field for field in each.operands}
        context = EMPTY
        nodes = list(post_order(meaning.body))
        bound = dict(zip(meaning.axes, meaning.shape, strict=True))
        for node in nodes:
            if isinstance(node, Reduce):
                bound |= dict(zip(node.axes, node.extents, strict=True))
        for var, extent in bound.items():
            context = context.loop(var, extent)
        for node in nodes:
            if isinstance(node, ScalarVar) and node not in bound:
                word = str(node.name)
                if self.operand(each, word, signed=True):
                    context = context.within(node, fields[word].least, fields[word].most)
        for node in nodes:
            if not isinstance(node, Load):
                continue
            if node.buffer not in meaning.inputs:
                message = f"The meaning reads {node.buffer.name}, which is none of its inputs."
                some = ", ".join(str(one.name) for one in meaning.inputs) or "none"
                self.refuse(at, message, some, str(node.buffer.name))
                continue
            sizes = shape_of(node.buffer.shape, {}) or ()
            for axis, (place, size) in enumerate(zip(node.indices, sizes, strict=False)):
                low, high = bounds(place, context)
                if low is None or high is None or low < 0 or high >= size:
                    message = f"The meaning reads {node.buffer.name} outside of its element."
                    shown = f"{'?' if low is None else low} to {'?' if high is None else high}"
                    self.refuse(at, message, f"0 to {size - 1} along axis {axis}", shown)


def _kind(shape: object, dtype: object) -> str:
    sizes = [getattr(size, "value", size) for size in shape] if isinstance(shape, tuple) else shape
    return f"{dtype}{sizes}"


def _alike(one: parts.Operation, other: parts.Operation) -> bool:
    """Whether some word could be an instruction of both."""
    theirs = {field.name: field for field in other.fields}
    ours = {field.name: field for field in one.fields}
    fixed = dict(other.fixed)
    for word, value in one.fixed:
        if word in fixed and ours.get(word) is theirs.get(word) and fixed[word] != value:
            return False
    return True
