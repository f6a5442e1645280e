"""Default packages: records that come with Plica, taken where no database is given.

A package is named by the fingerprint of the machine it was measured on
(`cpu-x86_64-icelake-server-2-….records`, as `plica records export` writes it); a compilation takes
the one of its own machine, if there is one.  `PLICA_RECORDS=off` leaves all of them out.

>>> default_records(Path("nowhere"), "cpu-x86_64-z80-1-0") is None
True
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from plica.search.choice import Records, records_of
from plica.search.record.database import Database
from plica.search.record.package import SUFFIX, unpacked


@lru_cache(maxsize=16)
def default_records(folder: Path, fingerprint: str) -> Records | None:
    """The records of a machine, None where there is no package for it."""
    path = folder / f"{fingerprint}{SUFFIX}"
    if not path.exists():
        return None
    with Database() as found:
        found.put_all(unpacked(path.read_text(encoding="utf-8")))
        return records_of(found, fingerprint)
