"""Migrations: numbered SQL files, forward only, all that are pending in one transaction."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import psycopg
import structlog
from psycopg import AsyncConnection, IsolationLevel, sql
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from hasat import __version__
from hasat.errors import DatabaseError
from hasat.messages import msg
from hasat.store.queries import load_query

_LOCK_KEY = 0x6861736174  # "hasat"
_WAIT_FOR_MIGRATION_SECONDS = 60.0
# Short: other sessions queue up behind a migration that waits for a table.
_WAIT_FOR_TABLE_SECONDS = 10.0
_PROCRASTINATE = "procrastinate"
# Found without importing the package, which takes a tenth of a second.
_SPEC = find_spec(_PROCRASTINATE)
assert _SPEC is not None
_SCHEMA = Path(_SPEC.origin or "").parent / "sql" / "schema.sql"
migrations_path = _SCHEMA.parent / "migrations"

log = structlog.get_logger(__name__)


class Step(NamedTuple):
    """A statement that a declaration needs, and what it makes."""

    name: str
    statement: sql.Composed


Declaration = Callable[[AsyncConnection[TupleRow]], Awaitable[Sequence[Step]]]
"""Returns the statements that a migrated database still needs to match what is declared."""


@dataclass(frozen=True)
class MigrationSet:
    """A folder of files 0001_name.sql, 0002_name.sql, ... that belong together.

    What is declared instead of written as a file comes after all files.
    """

    name: str
    folder: Traversable | None
    declared: Declaration | None = None


@dataclass(frozen=True)
class Migration:
    """One migration file; only procrastinate may reword an old file of its own."""

    set_name: str
    name: str
    text: str
    immutable: bool = True

    @property
    def stop_reason(self) -> str | None:
        """Return why processes of the version before must stop first; None if they may go on."""
        first = self.text.partition("\n")[0]
        return first.removeprefix(_STOP_FIRST).strip() if first.startswith(_STOP_FIRST) else None

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.replace("\r\n", "\n").encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.set_name}/{self.name}"


@dataclass(frozen=True)
class Applied:
    """An applied migration, as the database records it."""

    checksum: str
    hasat_version: str


AppliedMap = Mapping[tuple[str, str], Applied]

_STOP_FIRST = "-- Stop workers and servers first:"
PLATFORM = MigrationSet("platform", files("hasat.store") / "migrations")


async def read_pending(
    connection: AsyncConnection[TupleRow], sets: Sequence[MigrationSet]
) -> list[Migration]:
    """Return the migrations that this version would apply, without applying one."""
    return pending(known_migrations(sets), await _applied(connection))


async def migrate(
    connection: AsyncConnection[TupleRow],
    sets: Sequence[MigrationSet],
    *,
    wait_seconds: float = _WAIT_FOR_MIGRATION_SECONDS,
) -> list[str]:
    """Apply pending migrations in one transaction and return their names.

    Of several processes that start at once, one migrates and the others wait.
    """
    known = known_migrations(sets)
    if not pending(known, await _applied(connection)) and not await _undeclared(connection, sets):
        return []
    # Each statement must see what the process that held the lock before has committed.
    await connection.set_isolation_level(IsolationLevel.READ_COMMITTED)
    current: Migration | None = None
    try:
        async with connection.transaction():
            await _prepare(connection, wait_seconds)
            steps = pending(known, await _applied(connection))
            scripts = _with_schema_of_procrastinate(steps)
            for current in scripts:
                await _apply(connection, current)
            await _record(connection, steps)
            current = None
            made = await _undeclared(connection, sets)
            for step in made:
                await connection.execute(step.statement)
    except psycopg.errors.LockNotAvailable as error:
        raise await _somebody_holds(connection, current) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise DatabaseError(
            msg(
                "The database role may not create what Hasat needs: {error}.", error=_message(error)
            ),
            remedy=msg(
                "Make the role the owner of the database (ALTER DATABASE ... OWNER TO "
                "...), or grant it CREATE on the database and on its schema public."
            ),
        ) from error
    except psycopg.Error as error:
        if connection.closed:
            raise
        what = f"The migration {current}" if current else "Migrating the database"
        raise DatabaseError(
            msg(
                "{what} failed and nothing was changed: {error}.", what=what, error=_message(error)
            ),
            remedy=msg("If the database also holds other things, give Hasat one of its own."),
        ) from error
    applied = [*map(str, scripts), *(step.name for step in made)]
    if applied:
        log.info("migrated the database", migrations=applied)
    return applied


def known_migrations(sets: Sequence[MigrationSet]) -> list[Migration]:
    """Return every migration in the order in which a new database gets them."""
    known = [
        Migration(_PROCRASTINATE, file.name, file.read_text("utf-8"), immutable=False)
        for file in sorted(migrations_path.glob("*.sql"))
    ]
    for migration_set in (PLATFORM, *sets):
        known += _read(migration_set)
    return known


def checksum_of(migrations: Sequence[Migration]) -> str:
    """Return a checksum that is equal if and only if new databases come out equal."""
    text = "\n".join(f"{migration} {migration.checksum}" for migration in migrations)
    schema = _SCHEMA.read_text("utf-8")
    return hashlib.sha256(f"{text}\n{schema}".encode()).hexdigest()


def pending(known: Sequence[Migration], applied: AppliedMap) -> list[Migration]:
    """Return the pending migrations; reject a database that does not match the files."""
    names = {(migration.set_name, migration.name) for migration in known}
    for set_name in {migration.set_name for migration in known}:
        newest = max(name for of_set, name in names if of_set == set_name)
        for of_set, name in sorted(applied):
            if of_set == set_name and (of_set, name) not in names:
                raise _unknown(f"{of_set}/{name}", applied[of_set, name], newer=name > newest)
    newest_applied = dict(sorted(applied))
    steps = []
    for migration in known:
        found = applied.get((migration.set_name, migration.name))
        if found is None:
            if migration.immutable and migration.name < newest_applied.get(migration.set_name, ""):
                raise DatabaseError(
                    msg(
                        "The migration {migration} is missing in the database, although later "
                        "ones were applied.",
                        migration=migration,
                    ),
                    remedy=msg(
                        "Restore a backup (hasat db restore FILE), or install the Hasat that "
                        "migrated this database."
                    ),
                )
            steps.append(migration)
        elif migration.immutable and found.checksum != migration.checksum:
            raise _not_upgradable(migration, found)
    return steps


def _not_upgradable(migration: Migration, applied: Applied) -> DatabaseError:
    return DatabaseError(
        msg(
            "This database cannot be upgraded: its migration {migration} (applied by "
            "Hasat {hasat_version}) is not the one of this Hasat {version}. It was "
            "made before migrations were frozen, or by changed files.",
            migration=migration,
            hasat_version=applied.hasat_version,
            version=__version__,
        ),
        remedy=msg(
            "Save what is in it with hasat db backup FILE, which works on such a "
            "database; the version that made it can restore the file. Then start "
            "over: set HASAT_HOME to a new folder or HASAT_DATABASE_URL to an empty "
            "database, and run hasat up. The sources are read again; the history of "
            "changes, API keys and runs are not taken over, and followers start "
            "again from an archive of the new epoch."
        ),
    )


def _unknown(name: str, applied: Applied, *, newer: bool) -> DatabaseError:
    if newer:
        return DatabaseError(
            msg(
                "This database was migrated by a newer Hasat ({hasat_version}, migration "
                "{name}); this is Hasat {version}.",
                hasat_version=applied.hasat_version,
                name=name,
                version=__version__,
            ),
            remedy=msg("Install that version or a later one, or restore an older backup."),
        )
    return DatabaseError(
        msg(
            "The database has the migration {name} (of Hasat {hasat_version}), which "
            "this Hasat {version} does not know.",
            name=name,
            hasat_version=applied.hasat_version,
            version=__version__,
        ),
        remedy=msg("Install the Hasat that migrated this database, or a later one."),
    )


async def _undeclared(
    connection: AsyncConnection[TupleRow], sets: Sequence[MigrationSet]
) -> list[Step]:
    """Return the statements that declarations need in a database with all migrations."""
    return [
        Step(f"{one.name}/{name}", statement)
        for one in sets
        if one.declared is not None
        for name, statement in await one.declared(connection)
    ]


def _read(migration_set: MigrationSet) -> list[Migration]:
    folder = migration_set.folder
    if folder is None:
        return []
    names = sorted(file.name for file in folder.iterdir() if file.name[0].isdigit())
    for name in names:
        if not re.fullmatch(r"\d{4}_[a-z0-9_]+\.sql", name):
            raise DatabaseError(
                msg(
                    "The migration file {migration_set}/{name} is not named like 0001_name.sql.",
                    migration_set=migration_set.name,
                    name=name,
                )
            )
    numbers = [0, *(int(name[:4]) for name in names)]
    for before, number in pairwise(numbers):
        if number != before + 1:
            raise DatabaseError(
                msg(
                    "The migrations of {migration_set} jump from {before:04} to {number:04}.",
                    migration_set=migration_set.name,
                    before=before,
                    number=number,
                ),
                remedy=msg(
                    "Number the files 0001, 0002, ... without gaps; if none was taken away, "
                    "reinstall Hasat."
                ),
            )
    return [
        Migration(migration_set.name, name, (folder / name).read_text("utf-8")) for name in names
    ]


async def _applied(connection: AsyncConnection[TupleRow]) -> AppliedMap:
    cursor = await connection.execute("SELECT to_regclass('public.hasat_migration') IS NULL")
    if await cursor.fetchone() == (True,):
        return {}
    cursor = await connection.execute(
        "SELECT set_name, name, checksum, hasat_version FROM public.hasat_migration"
    )
    return {(row[0], row[1]): Applied(row[2], row[3]) for row in await cursor.fetchall()}


async def _prepare(connection: AsyncConnection[TupleRow], wait_seconds: float) -> None:
    """Take the migration lock until the transaction ends."""
    await _limit_waiting(connection, wait_seconds)
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK_KEY])
    await _limit_waiting(connection, min(wait_seconds, _WAIT_FOR_TABLE_SECONDS))
    await connection.execute("SET LOCAL statement_timeout = 0")
    await connection.execute("SET LOCAL search_path = public")
    await connection.execute("SET LOCAL client_min_messages = warning")
    await connection.execute(load_query("hasat.store", "record_table"))


async def _limit_waiting(connection: AsyncConnection[TupleRow], seconds: float) -> None:
    milliseconds = str(round(seconds * 1000))
    await connection.execute("SELECT set_config('lock_timeout', %s, true)", [milliseconds])


def _with_schema_of_procrastinate(steps: Sequence[Migration]) -> list[Migration]:
    """Replace procrastinate's history by its schema for a new database."""
    history = [step for step in steps if step.set_name == _PROCRASTINATE]
    if len(history) < len(list(migrations_path.glob("*.sql"))):
        return list(steps)
    text = _SCHEMA.read_text("utf-8")
    schema = Migration(_PROCRASTINATE, "schema.sql", text)
    return [schema, *(step for step in steps if step.set_name != _PROCRASTINATE)]


async def _apply(connection: AsyncConnection[TupleRow], migration: Migration) -> None:
    await connection.execute(migration.text, prepare=False)
    if connection.info.transaction_status != TransactionStatus.INTRANS:
        raise DatabaseError(
            msg("The migration {migration} ends the transaction it runs in.", migration=migration),
            remedy=msg("Remove BEGIN and COMMIT from it."),
        )


async def _record(connection: AsyncConnection[TupleRow], steps: Sequence[Migration]) -> None:
    async with connection.cursor() as cursor:
        await cursor.executemany(
            "INSERT INTO public.hasat_migration (set_name, name, checksum, hasat_version)"
            " VALUES (%s, %s, %s, %s)",
            [(step.set_name, step.name, step.checksum, __version__) for step in steps],
        )


async def _somebody_holds(
    connection: AsyncConnection[TupleRow], current: Migration | None
) -> DatabaseError:
    cursor = await connection.execute(load_query("hasat.store", "open_transactions"))
    holders = ", ".join(row[0] for row in await cursor.fetchall())
    waited_for = f"a table that {current} changes" if current else "another Hasat that migrates"
    return DatabaseError(
        msg(
            "The database could not be migrated: {waited_for} is still locked{by}.",
            waited_for=waited_for,
            by=(msg(", probably by {holders}", holders=holders) if holders else ""),
        ),
        remedy=msg("Wait until that is done, or end it, and start again; nothing was changed."),
    )


def _message(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error)).splitlines()[0].rstrip(".")
