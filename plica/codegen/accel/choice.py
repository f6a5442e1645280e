"""Choices: the tiling of a layer, by asking the cycle simulator about those that are guessed best.

>>> from plica.codegen.accel.conv import Convolution
>>> from plica.codegen.accel.vta import vta
>>> best = choose(vta(), Convolution(32, 8, 8, 32, kernel=3, pad=1), trials=2)
>>> best.timed.cycles <= min(each.cycles for each in best.others)
True

The number of threads is chosen, too: in a memory-bound layer, one thread with larger tiles can beat
two.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from attrs import frozen

from plica.codegen.accel.conv import Convolution, ConvTiling, convolution
from plica.codegen.accel.cycle import Timed, simulate
from plica.codegen.accel.declaration import Accelerator
from plica.codegen.accel.instruction import BadInstruction, Stream
from plica.codegen.accel.stream import assure, build
from plica.codegen.accel.tiling import estimate, ranked
from plica.runtime.error import Diagnostic, Place, UnsupportedError

THREADS: Final = (2, 1)
TRIALS: Final = 6
"""How many tilings are simulated for each number of threads."""

MAX_TILINGS: Final = 100_000
"""After this many instructions no further tiling is simulated: of a machine whose elements are
small a large layer has more than that in one stream, and the guesses are in order."""


@frozen
class ChosenTiling:
    """A tiling, its stream, the timed stream, and the times of the other tilings."""

    tiling: ConvTiling
    stream: Stream
    timed: Timed
    others: tuple[Timed, ...]


@lru_cache(maxsize=256)
def choose(
    machine: Accelerator, of: Convolution, trials: int = TRIALS, known: ConvTiling | None = None
) -> ChosenTiling:
    """The best of some tilings for each number of threads, and of one that is known to be good.

    Its stream is checked.  A layer no tile of which fits is refused.
    """
    found: list[tuple[ConvTiling, Stream, Timed]] = []
    wrong: tuple[Diagnostic, ...] = ()
    guesses = [each for threads in THREADS for each in ranked(machine, of, threads, trials)]
    guesses.sort(key=lambda each: estimate(machine, of, each))
    if known is not None:
        guesses = [known, *[each for each in guesses if each != known]]
    spent = 0
    for tiling in guesses:
        if spent > MAX_TILINGS:
            break
        try:
            stream = build(machine, convolution(machine, of, tiling), checked=False)
        except BadInstruction as error:  # a stride that no field holds: other tiles may do
            wrong = error.diagnostics
            continue
        spent += len(stream.code)
        found.append((tiling, stream, simulate(machine, stream)))
    if not found:
        message = f"Not even the smallest tile of this layer fits into {machine.name}."
        shown = f"{of.channels} channels of {of.height} x {of.width}, a kernel of {of.kernel}"
        place = Place(node="convolution")
        first = Diagnostic("scope-capacity", message, place, None, shown)
        raise UnsupportedError(first, *wrong)
    tiling, stream, timed = min(found, key=lambda each: each[2].cycles)
    assure(machine, stream)
    return ChosenTiling(tiling, stream, timed, tuple([each for _, _, each in found]))
