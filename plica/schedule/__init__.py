"""schedule: instructions, traces, replay, and tools that work on traces."""

from plica.schedule.adapt import adapter
from plica.schedule.bisect import Culprit, bisect
from plica.schedule.blame import Share, blame
from plica.schedule.diff import Difference, apply, diff
from plica.schedule.do import decided, do, record, trace_of
from plica.schedule.effect import Effect, effects
from plica.schedule.handle import Handle
from plica.schedule.instruction import Instruction, Sampling, kinds, primitive
from plica.schedule.merge import Conflict, Conflicts, merge
from plica.schedule.minimise import minimise
from plica.schedule.normalise import normalise
from plica.schedule.primitive import *  # noqa: F403  # every primitive is public
from plica.schedule.primitive import __all__ as _primitives
from plica.schedule.problem import Problem, ScheduleRefused
from plica.schedule.python_text import term
from plica.schedule.replay import replay
from plica.schedule.report import Fate, Report
from plica.schedule.spelling import spell
from plica.schedule.trace import Step, Trace
from plica.schedule.transport import Transported, transport

__all__ = [  # noqa: PLE0604  # the primitives' names are strings
    "Conflict",
    "Conflicts",
    "Culprit",
    "Difference",
    "Effect",
    "Fate",
    "Handle",
    "Instruction",
    "Problem",
    "Report",
    "Sampling",
    "ScheduleRefused",
    "Share",
    "Step",
    "Trace",
    "Transported",
    "adapter",
    "apply",
    "bisect",
    "blame",
    "decided",
    "diff",
    "do",
    "effects",
    "spell",
    "kinds",
    "merge",
    "minimise",
    "normalise",
    "primitive",
    "record",
    "replay",
    "term",
    "trace_of",
    "transport",
    *_primitives,
]
