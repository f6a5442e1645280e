"""The pipeline: from a module to something one can call."""

from plica.pipeline.accel import on_accelerator
from plica.pipeline.cpu import assemble, build
from plica.pipeline.face import faced, interface
from plica.pipeline.gpu import assemble_for_gpu, on_gpu
from plica.pipeline.lowered import Lowered, arranged, lower, record, sequenced
from plica.pipeline.option import contract_of, find_target, packs_of, read_records, target_of
from plica.pipeline.whole import compile

__all__ = [
    "Lowered",
    "arranged",
    "assemble",
    "assemble_for_gpu",
    "build",
    "compile",
    "contract_of",
    "faced",
    "find_target",
    "interface",
    "lower",
    "on_accelerator",
    "on_gpu",
    "packs_of",
    "read_records",
    "record",
    "sequenced",
    "target_of",
]
