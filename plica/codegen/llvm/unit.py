"""Units: the object files of a program, one for each kernel, so that what did not change is kept.

A kernel's object is known by what it is made from: the kernel itself (not its name, nor where it
is used), the machine, and the compiler.  So editing one operator of a model compiles the kernels
that contain it and what calls them, and nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, TypeAlias

from attrs import frozen

from plica.codegen.llvm import peak, pool, toolchain
from plica.codegen.llvm.fold import (
    Callee,
    alone,
    fold,
    kernel_text,
    regions_text,
    variants,
)
from plica.codegen.llvm.kernel import Text
from plica.codegen.open_memory_plan import AnyPlan
from plica.codegen.program import Program
from plica.codegen.target import Target
from plica.core.digest import digest
from plica.runtime.host import cores
from plica.runtime.store import ArtefactStore, key_of

OBJECT: Final = b"\x7fELF"  # what every object in the store begins with
FAILS: Final = 1
SHARES: Final = 2


@frozen
class Units:
    """The objects of a program, and the names of the kernels that had to be compiled."""

    objects: tuple[bytes, ...]
    compiled: tuple[str, ...]


def units(  # noqa: PLR0917  # as `fold`, and where objects are kept
    program: Program,
    plan: AnyPlan,
    target: Target,
    contract: bool = False,
    store: ArtefactStore | None = None,
    signless: bool = False,
    level: int = 2,
) -> Units:
    """The objects of a program, from the store where it has them; LLVM improves them by `level`.

    For another machine all is one object: each is made in a process of its own.
    """
    if target.triple != toolchain.host().triple:
        whole = fold(program, plan, target, contract, signless)
        return Units((made(whole, target, store),), program.names)
    callees: dict[tuple[int, int | None], Callee] = {}
    objects: dict[str, Callable[[], bytes]] = {}
    compiled: list[str] = []
    shares = False
    with _beside() as later:
        for variant in variants(program, plan):
            number, over = variant
            options = f"{over} {contract and target.has_fma} {signless} {level}"
            key = key_of("kernel", digest(program.kernels[number]), options, *facts_of(target))
            name = f"k.{key[:24]}"
            write = partial(kernel_text, program, variant, name, target, contract, signless)
            again = partial(entry_of, write, name, target, contract, level)
            entry = None if store is None else store.found(key, again, program.names[number])
            if entry is None or not entry.startswith(OBJECT, 1):  # one of another kind, too
                compiled.append(program.names[number])
                text = write()
                flags = _flags(text)
                objects[name] = later(
                    partial(_kept, key, text, name, target, contract, store, level)
                )
            else:
                flags = entry[0]
                objects[name] = partial(bytes, entry[1:])
            callees[variant] = Callee(name, bool(flags & FAILS))
            shares = shares or bool(flags & SHARES)
        done = [each() for each in objects.values()]
    every = [made(regions_text(program, plan, target, callees), target, store), *done]
    every.append(made(peak.text(target), target, store))
    if shares:
        head = f'target triple = "{target.triple}"\n'
        every.append(made(head + pool.text(target.triple), target, store))
    return Units(tuple(every), tuple(compiled))


Later: TypeAlias = Callable[[Callable[[], bytes]], Callable[[], bytes]]
"""Begins to make some bytes; what it gives waits for them."""


@contextmanager
def _beside() -> Iterator[Later]:
    """LLVM works on one kernel while the next is folded, where there is a core for each.

    More than one thread would not help: llvmlite lets one in at a time.
    """
    if cores() < 2:
        yield lambda make: make
        return
    with ThreadPoolExecutor(max_workers=1) as worker:
        yield lambda make: worker.submit(make).result


def _flags(text: Text) -> int:
    """What callers of a kernel have to know."""
    return FAILS * text.can_fail | SHARES * text.shares


def entry_of(
    write: Callable[[], Text], name: str, target: Target, contract: bool, level: int = 2
) -> bytes:
    """The entry of a kernel, made from nothing but the kernel."""
    text = write()
    return bytes([_flags(text)]) + toolchain.emit(
        alone(text, name, target, contract), target, level
    )


def _kept(  # noqa: PLR0917  # a kernel, and where its object is kept
    key: str,
    text: Text,
    name: str,
    target: Target,
    contract: bool,
    store: ArtefactStore | None,
    level: int,
) -> bytes:
    """The object of a kernel, which is put into the store."""
    found = toolchain.emit(alone(text, name, target, contract), target, level)
    if store is not None:
        store.put(key, bytes([_flags(text)]) + found)
    return found


def made(text: str, target: Target, store: ArtefactStore | None) -> bytes:
    """The object of a text."""
    if store is None:
        return toolchain.emit(text, target)
    key = key_of("text", text, *facts_of(target))
    found = store.found(key, partial(toolchain.emit, text, target), "the code of a text")
    if found is None or not found.startswith(OBJECT):
        found = toolchain.emit(text, target)
        store.put(key, found)
    return found


def facts_of(target: Target) -> tuple[str, ...]:
    """What else the code depends on."""
    features = ",".join(target.features)
    return target.triple, target.cpu, features, str(target.vector_bits), fingerprint()


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """The compiler itself: the version of LLVM, and what Plica's files say, its version in them."""
    whole = hashlib.sha256(toolchain.llvm_version().encode())
    folder = Path(__file__).parents[2]
    for path in sorted(folder.rglob("*.py")):
        whole.update(path.relative_to(folder).as_posix().encode())
        whole.update(path.read_bytes())
    return whole.hexdigest()
