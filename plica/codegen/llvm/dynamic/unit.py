"""Units of dynamic programs: one object for all routines, and one for each kernel.

As in static programs (`plica.codegen.llvm.unit`), a kernel's object is known by what it is made
from, and taken from the store where it is there.
"""

from __future__ import annotations

from typing import Final

from plica.codegen.dynamic.program import Program
from plica.codegen.llvm import pool, toolchain
from plica.codegen.llvm.dynamic.fold import kernel_text, routines_text, whole_text
from plica.codegen.llvm.fold import Callee, alone
from plica.codegen.llvm.unit import fingerprint
from plica.codegen.target import Target
from plica.core.digest import digest
from plica.runtime.store import Store, key_of

_OBJECT: Final = b"\x7fELF"
_FAILS: Final = 1
_SHARES: Final = 2


def units(
    program: Program,
    target: Target,
    contract: bool = False,
    store: Store | None = None,
    signless: bool = False,
) -> tuple[bytes, ...]:
    """The objects of a counted program, from the store where it has them.

    For another machine all is one object: each is made in a process of its own.
    """
    if target.triple != toolchain.host().triple:
        return (_made(whole_text(program, target, contract, signless), target, store),)
    callees: list[Callee] = []
    objects: dict[str, bytes] = {}
    shares = False
    machine = _machine(target)
    for number in range(len(program.kernels)):
        options = f"None {contract and target.has_fma} {signless}"
        key = key_of("kernel", digest(program.kernels[number]), options, *machine)
        name = f"k.{key[:24]}"
        entry = store.get(key) if store is not None else None
        if entry is None or not entry.startswith(_OBJECT, 1):
            text = kernel_text(program, number, name, target, contract, signless)
            flags = _FAILS * text.can_fail | _SHARES * text.shares
            entry = bytes([flags]) + toolchain.emit(alone(text, name, target), target)
            if store is not None:
                store.put(key, entry)
        objects[name] = entry[1:]
        callees.append(Callee(name, bool(entry[0] & _FAILS)))
        shares = shares or bool(entry[0] & _SHARES)
    texts = [routines_text(program, callees, target)]
    if shares:
        texts.append(f'target triple = "{target.triple}"\n' + pool.text(target.triple))
    return (*[_made(text, target, store) for text in texts], *objects.values())


def _made(text: str, target: Target, store: Store | None) -> bytes:
    """The object of a text."""
    if store is None:
        return toolchain.emit(text, target)
    key = key_of("text", text, *_machine(target))
    found = store.get(key)
    if found is None or not found.startswith(_OBJECT):
        found = toolchain.emit(text, target)
        store.put(key, found)
    return found


def _machine(target: Target) -> tuple[str, ...]:
    """What else the code depends on."""
    features = ",".join(target.features)
    return target.triple, target.cpu, features, str(target.vector_bits), fingerprint()
