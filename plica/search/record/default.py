"""Default packages: records that come with Plica, taken where no database is given.

A package is a file in `package_files`, named by a digest of what its machine is like
(`plica.pipeline.option.package_name`); a compilation takes the one of its own machine, if there is
one.  It holds schedules that won over a default, each with that default: where the default of today
is another, nobody knows whether they still would, and they are left alone.  `PLICA_RECORDS=off`
leaves all of them out.
"""

from __future__ import annotations

from functools import lru_cache

from attrs import evolve

from plica.search.choice import Records, records_of
from plica.search.record.database import Database
from plica.search.record.package import unpacked


@lru_cache(maxsize=16)
def default_records(text: str, fingerprint: str) -> Records:
    """The records of a package that are of one machine."""
    with Database() as found:
        found.put_all(unpacked(text))
        return evolve(records_of(found, fingerprint), unasked=True)
