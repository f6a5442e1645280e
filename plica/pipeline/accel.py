"""Models whose integer layers run on an accelerator, and the rest as native code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING

from plica import __version__
from plica.codegen.accel.target import AccelTarget
from plica.codegen.llvm import toolchain
from plica.ir.infer import infer
from plica.ir.module import Module
from plica.ir.type import TupleType
from plica.runtime.executable import Executable
from plica.search.record import Database

if TYPE_CHECKING:
    from plica.runtime.accel.executable import AccelExecutable

from plica.pipeline.face import faced, slots_of


def on_accelerator(
    module: Module,
    target: AccelTarget,
    native: Callable[[Module], Executable],
    database: Database | str | PathLike[str] | None = None,
) -> AccelExecutable:
    """A model whose integer layers run on an accelerator, and the rest as native code.

    Tilings of a `database` are taken where they are the best.
    """
    # Few ask for it, and it is much: everybody else should not wait for it.
    from plica.codegen.accel.offload import assembled, offload, tunings
    from plica.runtime.accel.executable import AccelExecutable
    from plica.search.accel.layers import recorded

    split = offload(module, target)
    parts = [native(each.module) for each in split.stages]
    main = infer(module).main_function()
    assert main.ret is not None
    takes = TupleType(tuple([param.type for param in main.params if param.type is not None]))
    face = faced(main, slots_of("input", takes), slots_of("output", main.ret))
    versions = (("llvm", toolchain.llvm_version()), ("plica", __version__))
    made_of = partial(assembled, split, [each.artefact for each in parts], face, versions)
    if database is None:
        whole, tuning = made_of(), tunings(split)
    elif isinstance(database, Database):
        known = partial(recorded, database, target.machine)
        whole, tuning = made_of(known), tunings(split, known)
    else:
        with Database(database) as opened:
            known = partial(recorded, opened, target.machine)
            whole, tuning = made_of(known), tunings(split, known)
    made = iter(parts)
    texts: dict[str, Callable[[], str]] = {
        kind: partial(_joined, parts, kind) for kind in ("kernel", "llvm", "asm")
    }
    texts["tuning"] = lambda: tuning
    return AccelExecutable(whole, lambda _: next(made), texts)


def _joined(parts: Sequence[Executable], kind: str) -> str:
    """The sources of all native parts, one after the other."""
    return "\n".join([each.source(kind) for each in parts])
