"""schedule: instructions, traces, replay."""

from plica.schedule.do import do, record, trace_of
from plica.schedule.handle import Handle
from plica.schedule.instruction import Instruction, Sampling, kinds, primitive
from plica.schedule.primitive import *  # noqa: F403  # every primitive is public
from plica.schedule.primitive import __all__ as _primitives
from plica.schedule.problem import Problem, ScheduleRefused
from plica.schedule.replay import replay
from plica.schedule.trace import Step, Trace

__all__ = [  # noqa: PLE0604  # the primitives' names are strings
    "Handle",
    "Instruction",
    "Problem",
    "Sampling",
    "ScheduleRefused",
    "Step",
    "Trace",
    "do",
    "kinds",
    "primitive",
    "record",
    "replay",
    "trace_of",
    *_primitives,
]
