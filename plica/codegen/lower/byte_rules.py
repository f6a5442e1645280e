"""Byte rules: rules for bytes and low-bit numbers, selected by the processor's instructions.

They are imported for modules that cast or restore numbers alone (`about` of their passes).
"""

from __future__ import annotations

from collections.abc import Sequence

from plica.codegen.compilation import Job
from plica.rewrite.pack import Pack
from plica.rewrite.packs.byte_middle import byte_middles_for
from plica.rewrite.packs.byte_product import BYTE_PRODUCTS, few_bits_for
from plica.rewrite.packs.byte_window import byte_channels_for, byte_windows_for
from plica.rewrite.rule_pass import Setting
from plica.schedule.default.machine import GIVEN_ROWS, WINDOW_LANES, Machine


def bytes_on(setting: Setting) -> Sequence[Pack]:
    """Products of bytes as such, where the processor that the job is for has an instruction; those
    of floats by few bits."""
    machine = setting.machine if isinstance(setting, Job) else None
    if not isinstance(machine, Machine):
        return ()
    few = few_bits_for(machine.cache(2))
    if machine.dot is None:
        return (few,)
    channels = (byte_channels_for(WINDOW_LANES),) if machine.dot.windows else ()
    middles = byte_middles_for(GIVEN_ROWS)
    return (BYTE_PRODUCTS, middles, *channels, few)


def windows_on(setting: Setting) -> Sequence[Pack]:
    """Windows of bytes as rows, where the processor that the job is for multiplies bytes."""
    machine = setting.machine if isinstance(setting, Job) else None
    if not isinstance(machine, Machine) or machine.dot is None:
        return ()
    return (byte_windows_for(WINDOW_LANES if machine.dot.windows else 0),)


def floats_on(setting: Setting) -> Sequence[Pack]:
    """Byte windows in floats, if the processor takes windows directly only with contiguous
    channels, which they do not have."""
    machine = setting.machine if isinstance(setting, Job) else None
    has = isinstance(machine, Machine) and machine.dot is not None and machine.dot.windows
    return (byte_windows_for(),) if has else ()
