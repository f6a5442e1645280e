"""The pipeline: from a module to something one can call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plica.runtime.late import lazily

__all__ = [
    "Lowered", "arranged", "assemble", "build", "compile", "contract_of", "job_for", "lower",
    "packs_of", "page_of", "pipeline_of", "read_records", "record", "sequenced", "target_of",
]  # fmt: skip

if TYPE_CHECKING:
    from plica.codegen.compilation import Lowered, record
    from plica.pipeline.compiled import (
        arranged,
        assemble,
        build,
        job_for,
        lower,
        page_of,
        pipeline_of,
        sequenced,
    )
    from plica.pipeline.front import compile
    from plica.pipeline.option import contract_of, packs_of, read_records, target_of
else:
    lazily(__name__)
