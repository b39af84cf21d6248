"""Which kind of target an address means."""

import re
from pathlib import Path

from hasat.errors import UsageError
from hasat.messages import msg
from hasat.replica.postgres import PostgresTarget
from hasat.replica.sqlite import SqliteTarget
from hasat.replica.target import Target

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


def open_target(address: str, dataset: str, *, must_exist: bool = False) -> Target:
    """Open the database of `sqlite:///file` or `postgresql://...`.

    With `must_exist` no file is created, for callers that only read.
    """
    if not _NAME.fullmatch(dataset) or dataset == "hasat_replica":
        raise UsageError(msg("{dataset!r} cannot be the name of a dataset.", dataset=dataset))
    scheme, _, rest = address.partition("://")
    if scheme in {"postgresql", "postgres"}:
        return PostgresTarget(dataset, address)
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        return SqliteTarget(dataset, Path(rest[1:]), must_exist=must_exist)
    raise UsageError(
        msg("A replica is kept in a SQLite file or in PostgreSQL."),
        remedy=msg(
            "Write sqlite:///taxpayers.db, sqlite:////var/lib/taxpayers.db or postgresql://...."
        ),
    )
