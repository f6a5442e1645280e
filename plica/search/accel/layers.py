"""Layers of a model: tuned for an accelerator, each kind of layer once, and found again.

    tuned_layers(module, target, database, how)     searches, as `plica.tune` does for kernels
    recorded(database, machine, convolution)        the best tiling a database knows, if any

>>> from plica.codegen.accel.conv import Convolution
>>> from plica.codegen.accel.vta import osdi
>>> of = Convolution(32, 6, 6, 32, kernel=3, pad=1)
>>> with Database() as database:
...     before = recorded(database, osdi(), of)
...     course = searched(LayerTask(osdi(), of), trials=4, database=database)
...     after = recorded(database, osdi(), of)
>>> before, after == tiling_of(course.subject.space, course.best.point)
(None, True)
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, Final

from plica.codegen.accel.conv import Convolution, ConvTiling
from plica.codegen.accel.declaration import Accelerator
from plica.codegen.accel.offload import offload
from plica.codegen.accel.target import AccelTarget
from plica.codegen.accel.tiling import fits
from plica.codegen.llvm import toolchain
from plica.ir.graph.module import Module
from plica.schedule.trace import Trace
from plica.search.accel.cycles import CycleMeasurer, machine_name, policy, searched
from plica.search.accel.space import LayerTask, decided, layer_space, tiling_of
from plica.search.course import TuningSubject
from plica.search.progress import shown
from plica.search.record import versions
from plica.search.record.database import Database
from plica.search.record.source import RecordSource
from plica.search.target import Tuning
from plica.search.tune_loop import Run, tuned
from plica.search.tuned import Tuned, TuneOptions

__all__ = ["recorded", "searched", "tiling_of", "tuned_layers"]


def tuned_layers(
    module: Module, target: AccelTarget, database: Database, how: TuneOptions
) -> Tuned:
    """Searches tilings for the layers of a model that the accelerator accepts."""
    machine = target.machine
    names: dict[Convolution, str] = {}
    counts: Counter[Convolution] = Counter()
    for launch in offload(module, target).graph.launches:
        names.setdefault(launch.layer.convolution, launch.layer.shape)
        counts[launch.layer.convolution] += launch.layer.batch
    subjects = [
        TuningSubject(LayerTask(machine, of, name, counts[of]), layer_space(machine, of))
        for of, name in names.items()
    ]
    run = Run(
        policy(how.policy), CycleMeasurer(), database, machine_name(machine), how.seed, versions()
    )
    with shown(how.progress, how.trials, seconds=how.seconds) as listener:
        return Tuned(tuned(subjects, run, how.trials, seconds=how.seconds, listener=listener))


def recorded(database: RecordSource, machine: Accelerator, of: Convolution) -> ConvTiling | None:
    """The best recorded tiling of a layer that still fits, or None."""
    task = LayerTask(machine, of)
    for record in database.top(task.key, machine_name(machine), 1):
        if record.error:
            continue
        conv_tiling = decided(record.form, Trace.from_json(record.trace_json))
        if conv_tiling is not None and fits(machine, of, conv_tiling):
            return conv_tiling
    return None


# --- accelerators, as the search for tilings sees them -----------------------------------------


def _fingerprint(target: AccelTarget) -> str:
    return machine_name(target.machine)


def _compilers() -> tuple[tuple[str, str], ...]:
    return (("llvm", toolchain.llvm_version()),)


def _known(database: RecordSource, target: AccelTarget) -> Any:  # Any: a function of its layers
    return partial(recorded, database, target.machine)


ACCEL: Final = Tuning(_fingerprint, _compilers, whole=tuned_layers, known=_known)
