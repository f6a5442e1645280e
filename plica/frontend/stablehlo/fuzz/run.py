"""Random programs as StableHLO: XLA and the reader compute what the module means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from plica.codegen.open_fuzz.case import Case, arrays_for, open_cases
from plica.codegen.open_fuzz.judge import difference_from, truths_of
from plica.core import post_order
from plica.frontend.stablehlo.importer import from_stablehlo
from plica.frontend.stablehlo.writer import to_stablehlo
from plica.ir.graph.expression import Apply
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.rewrite.check.report import as_comment, text
from plica.rewrite.fuzz.driver import ByStrategy, Campaign, Say, Skipped, Tally
from plica.rewrite.fuzz.judge import CRASHES, crash
from plica.rewrite.fuzz.report import Finding, FuzzReport
from plica.runtime.error import EvaluationError, InputError, UnsupportedError

Array: TypeAlias = np.ndarray[Any, Any]
Peer: TypeAlias = Callable[..., Sequence[Array]]  # what a text computes from arrays

TRIES: Final = 60  # how many smaller programs are tried for one that goes wrong


def fuzz(
    peer: Peer,
    examples: int = 200,
    seed: int = 0,
    *,
    first: int = 0,
    most: int = 6,
    say: Say | None = None,
) -> FuzzReport[Finding]:
    """A number of programs of up to `most` operators, until the first finding."""

    def oracle(case: Case, number: int, tally: Tally) -> Finding | Skipped | None:
        sizes = case.sizes[number % len(case.sizes)]
        try:
            found = judged(case.module, sizes, peer)
        except (InputError, EvaluationError) as error:
            return Skipped(error.diagnostics[0].message)
        body = case.module.main_function().body
        tally["operators"].update(node.op for node in post_order(body) if isinstance(node, Apply))
        if isinstance(found, UnsupportedError):
            tally["refused"][found.diagnostics[0].message] += 1
            return None
        if found is None:
            return None
        who, reason = found
        return Finding("meaning", who, reason, as_pytest(case.module, sizes, reason))

    campaign = Campaign(
        Finding,
        ByStrategy(lambda _: open_cases(most), lambda case: (case.module, str(case.sizes)), TRIES),
        oracle,
        counters={"refused": (), "operators": (), "skipped": ()},
    )
    return campaign.run(examples, seed, first=first, say=say)


def judged(
    of: Module, sizes: Mapping[str, int], peer: Peer
) -> tuple[str, str] | UnsupportedError | None:
    """Who computes something else and what, or why the module is not written."""
    arrays = arrays_for(of, sizes)
    expected = _flat(interpret(of, *arrays))
    truths = truths_of(of, arrays, sizes)
    try:
        written = to_stablehlo(of, sizes=sizes)
    except UnsupportedError as error:
        return error
    except CRASHES as error:
        return "writer", crash(error)
    readers: dict[str, Callable[[], Any]] = {
        "XLA": lambda: peer(written, *arrays),
        "reader": lambda: interpret(from_stablehlo(written), *arrays),
    }
    for who, run in readers.items():
        try:
            found = _flat(run())
        except CRASHES as error:
            return who, crash(error)
        if (wrong := difference_from(found, expected, truths)) is not None:
            return who, wrong
    return None


def _flat(of: Any) -> tuple[Array, ...]:  # Any: an array, or several
    return tuple([np.asarray(each) for each in (of if isinstance(of, tuple | list) else (of,))])


def as_pytest(of: Module, sizes: Mapping[str, int], reason: str) -> str:
    """A test that fails as long as something else is computed."""
    return f'''import plica
from plica.frontend.stablehlo.fuzz.run import judged
from plica.frontend.stablehlo.fuzz.run import run

{as_comment(reason)}
SOURCE = """
{text(of)}
"""


def test_stablehlo() -> None:
    assert judged(plica.from_text(SOURCE), {dict(sizes)}, run) is None
'''


def run(text: str, *arrays: Any) -> list[np.ndarray[Any, Any]]:
    """The results of the main function of a module."""
    import jax
    from jax._src import xla_bridge
    from jax._src.lib import xla_client  # type: ignore[attr-defined]  # it is there

    backend: Any = xla_bridge.get_backend("cpu")
    device = backend.local_devices()[0]
    with jax.enable_x64(True):
        devices = xla_client.DeviceList((device,))
        loaded = backend.compile_and_load(text, devices, xla_client.CompileOptions())
        given = [jax.device_put(array, device) for array in arrays]
        found = loaded.execute_sharded(given).disassemble_into_single_device_arrays()
        return [np.asarray(each[0]) for each in found]
