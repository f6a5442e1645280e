"""Units of dynamic programs: one object for all routines, and one for each kernel."""

from __future__ import annotations

from functools import partial

from plica.codegen.dynamic.program import DynamicProgram
from plica.codegen.llvm import pool, toolchain
from plica.codegen.llvm.dynamic.fold import routines_text, whole_text
from plica.codegen.llvm.line_map import write_source
from plica.codegen.llvm.region import Callee
from plica.codegen.llvm.unit import (
    FAILS,
    SHARES,
    ObjectOptions,
    entry_key,
    entry_of,
    kernel_key,
    kernel_symbol,
    made,
    stored_entry,
)
from plica.codegen.program import function_name
from plica.codegen.target import Target
from plica.core import digest
from plica.runtime.store import ArtefactStore


def units(
    program: DynamicProgram,
    target: Target,
    contract: bool = False,
    store: ArtefactStore | None = None,
    signless: bool = False,
) -> tuple[bytes, ...]:
    """The objects of a counted program, from the store where it has them.

    For another machine all is one object: each is made in a process of its own.
    """
    if target.triple != toolchain.host().triple:
        return (made(whole_text(program, target, contract, signless), target, store),)
    callees: list[Callee] = []
    objects: dict[str, bytes] = {}
    shares = False
    options = ObjectOptions(target, contract, signless)
    for number in range(len(program.kernels)):
        kernel = program.kernels[number]
        named = options.named(function_name(program.names[number], digest(kernel)))
        key = kernel_key(kernel, None, named)
        name = kernel_symbol(key, named.label)
        if named.label:
            write_source(kernel, named.label, target)
        make = partial(entry_of, kernel, None, name, named)
        entry = stored_entry(store, key, make, program.names[number])
        if entry is None:
            entry = make()
            if store is not None:
                store.put(entry_key(key), entry)
        objects[name] = entry[1:]
        callees.append(Callee(name, bool(entry[0] & FAILS)))
        shares = shares or bool(entry[0] & SHARES)
    texts = [routines_text(program, callees, target)]
    if shares:
        texts.append(f'target triple = "{target.triple}"\n' + pool.text(target.triple))
    return (*[made(text, target, store) for text in texts], *objects.values())
