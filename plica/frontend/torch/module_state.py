"""Module state: everything besides inputs that a torch module's result depends on.

Traced code is valid while the module's state is unchanged: the `training` flags, hooks and
attributes of every submodule, the namespaces of non-torch classes, the contents of attributes
(containers, and objects with a `__dict__`, such as a config), and the identity, address and write
count of every tensor. Not covered: globals, closures, `__slots__`, elements of numpy arrays, and
writes that torch does not count (through `.data`).

A state is a flat list of references.  Checking it compares identities inside the interpreter,
without a Python loop over attributes; values are compared only where an object was replaced.

>>> from types import SimpleNamespace
>>> module = SimpleNamespace(scale=2.0, sizes=[3, 4])
>>> state = state_of(module)
>>> module.scale = float("2")
>>> state.holds()
True
>>> module.sizes.append(5)
>>> state.holds()
False
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from operator import attrgetter, eq, is_, methodcaller
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

if TYPE_CHECKING:
    import torch

MAX_OBJECTS: Final = 100_000
"""The maximum number of containers and objects tracked; further ones, in breadth-first order, are
compared by identity. Submodules are always tracked."""

_VALUES: Final = (bool, int, float, complex, str, bytes, type(None))
_CODE: Final = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType, logging.Logger)
_SEQUENCES: Final = (list, tuple, set, frozenset, deque)

_version = attrgetter("_version")
_address = methodcaller("data_ptr")


@frozen(eq=False)
class ModuleState:
    """References to all that a module's result depends on, as they were when it was read."""

    empty: tuple[Any, ...]  # Any: mappings and sequences
    mappings: tuple[Any, ...]  # Any: dicts, and namespaces of objects and classes
    keys: tuple[object, ...]  # of all mappings, one after the other
    views: tuple[Iterable[object], ...]
    values: tuple[object, ...]
    sequences: tuple[Any, ...]  # Any: lists, tuples, sets
    elements: tuple[object, ...]
    lengths: tuple[int, ...]  # of the mappings, then of the sequences
    objects: tuple[object, ...]
    classes: tuple[type, ...]
    counted: tuple[torch.Tensor, ...]
    writes: tuple[int, ...]
    placed: tuple[torch.Tensor, ...]
    addresses: tuple[int, ...]
    aliases: tuple[torch.Tensor, ...]  # while they live, no other tensor has one of the addresses

    def holds(self) -> bool:
        """Whether nothing was changed since."""
        return (
            not any(self.empty)
            and all(map(eq, map(len, chain(self.mappings, self.sequences)), self.lengths))
            and all(map(is_, map(type, self.objects), self.classes))
            and tuple(map(_version, self.counted)) == self.writes
            and tuple(map(_address, self.placed)) == self.addresses
            and _are_same(self.views, self.values)
            and _are_same(self.mappings, self.keys)
            and _are_same(self.sequences, self.elements)
        )

    def equals(self, other: ModuleState) -> bool:
        """Whether two states are the same but for containers that were replaced by equal ones."""
        return (
            self.lengths == other.lengths
            and len(self.empty) == len(other.empty)
            and _are_alike(self.keys, other.keys)
            and _are_alike(self.values, other.values)
            and _are_alike(self.elements, other.elements)
            and _are_alike(self.objects, other.objects)
            and self.classes == other.classes
            and _are_alike(self.counted, other.counted)
            and (self.writes, self.addresses) == (other.writes, other.addresses)
        )

    def changed(self) -> Iterator[str]:
        """The names of attributes and keys that were removed or have other values now."""
        entries = zip(self.keys, self.values, strict=True)
        for mapping, length in zip(self.mappings, self.lengths, strict=False):
            for key, before in islice(entries, length):
                if key not in mapping or not _is_alike(mapping[key], before):
                    yield str(key)


def state_of(root: object, *, tensors: bool = True) -> ModuleState:
    """The current state of a module and its submodules, optionally with its `tensors`."""
    every_mapping, every_sequence, objects, held = _reached(root)
    mappings, sequences = [*filter(None, every_mapping)], [*filter(None, every_sequence)]
    views = tuple([mapping.values() for mapping in mappings])
    counted = [tensor for tensor in held if tensors and not tensor.is_inference()]
    placed = [tensor for tensor in held if tensors and _has_address(tensor)]
    return ModuleState(
        tuple([each for each in (*every_mapping, *every_sequence) if not each]),
        tuple(mappings),
        tuple(chain.from_iterable(mappings)),
        views,
        tuple(chain.from_iterable(views)),
        tuple(sequences),
        tuple(chain.from_iterable(sequences)),
        tuple(map(len, chain(mappings, sequences))),
        tuple(objects),
        tuple(map(type, objects)),
        tuple(counted),
        tuple(map(_version, counted)),
        tuple(placed),
        tuple(map(_address, placed)),
        tuple([tensor.detach() for tensor in placed]),
    )


def _reached(root: object) -> tuple[list[Any], list[Any], list[object], list[torch.Tensor]]:
    """The mappings, sequences, other objects and tensors of a module; `Any` as there."""
    import torch
    from torch.nn.modules import module

    mappings: list[Any] = []
    sequences: list[Any] = []
    objects: list[object] = []
    tensors: list[torch.Tensor] = []
    seen: dict[int, object] = {}  # holding the objects keeps their ids apart
    modules: deque[object] = deque()
    others: deque[object] = deque()

    def follow(parts: Iterable[object]) -> None:
        for part in parts:
            if not isinstance(part, (*_VALUES, *_CODE)) and id(part) not in seen:
                seen[id(part)] = part
                (modules if isinstance(part, torch.nn.Module) else others).append(part)

    def enter(mapping: Any) -> None:
        mappings.append(mapping)
        follow(mapping.values())

    global_hooks = [each for name, each in vars(module).items() if name.startswith("_global_")]
    follow([root, *global_hooks])
    classes: set[type] = set()
    while modules or others:
        here = modules.popleft() if modules else others.popleft()
        if isinstance(here, torch.Tensor):
            tensors.append(here)
        elif isinstance(here, torch.nn.Module):
            objects.append(here)
            enter(vars(here))
            for kind in type(here).__mro__[:-1]:
                if kind not in classes and not kind.__module__.startswith("torch."):
                    classes.add(kind)
                    enter(vars(kind))
        elif len(mappings) + len(sequences) > MAX_OBJECTS:
            continue
        elif isinstance(here, dict):
            enter(here)
        elif isinstance(here, _SEQUENCES):
            sequences.append(here)
            follow(here)
        elif hasattr(here, "__dict__"):
            objects.append(here)
            enter(vars(here))
    return mappings, sequences, objects, tensors


@contextmanager
def watched(model: torch.nn.Module) -> Iterator[set[str]]:
    """Records the attribute names that a module changes while it is traced.

    Torch restores attributes after a trace; the state is read inside of it, without tensors, which
    are torch's stand-ins there.
    """
    changed: set[str] = set()
    states: list[ModuleState] = []

    def begin(*_: object) -> None:
        states.append(state_of(model, tensors=False))

    def end(*_: object) -> None:
        changed.update(states.pop().changed())

    hooks = [model.register_forward_pre_hook(begin, prepend=True), model.register_forward_hook(end)]
    try:
        yield changed
    finally:
        for hook in hooks:
            hook.remove()


def _has_address(tensor: torch.Tensor) -> bool:
    import torch

    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return plain and tensor.layout is torch.strided


def _are_same(containers: Iterable[Iterable[object]], before: tuple[object, ...]) -> bool:
    """Whether containers of equal lengths have their old contents."""
    if all(map(is_, chain.from_iterable(containers), before)):
        return True
    return all(map(_is_same, chain.from_iterable(containers), before))


def _is_same(now: object, before: object) -> bool:
    """Whether two objects are one, or equal plain values of one type."""
    if now is before:
        return True
    return type(now) is type(before) and isinstance(now, _VALUES) and repr(now) == repr(before)


def _are_alike(now: Iterable[object], before: Iterable[object]) -> bool:
    return all(map(_is_alike, now, before))


def _is_alike(now: object, before: object) -> bool:
    """Whether two objects are the same, or containers, which states list on their own."""
    return _is_same(now, before) or (
        type(now) is type(before) and isinstance(now, (dict, *_SEQUENCES))
    )
