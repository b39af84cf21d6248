"""Backups by pg_dump, restored in one transaction: the old data or the backup's, never a mix."""

import asyncio
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from psycopg import sql
from psycopg.conninfo import make_conninfo

from hasat.errors import ConflictError, DatabaseError, HasatError, NothingToDoError, UsageError
from hasat.messages import msg
from hasat.store.embedded.binaries import client_program
from hasat.store.explain import parameters_of
from hasat.store.home import disk_full, is_disk_full, is_short
from hasat.store.migrate import (
    Applied,
    AppliedMap,
    MigrationSet,
    known_migrations,
    pending,
)
from hasat.store.queries import load_query
from hasat.store.store import Reached, connect

_MAGIC = b"PGDMP"
_NO_SPACE = "No space left"
_LOCK_WAIT_SECONDS = 10
# Schemas of what an extension needs that another server may lack; opening the store makes them.
_DERIVED = "*_gis"
# An administrator installs it, so a backup neither needs it nor brings it.
_FOREIGN = re.compile(
    r"^[0-9; ]+(EXTENSION|COMMENT|TABLE DATA|ACL) .*\b(postgis\w*|spatial_ref_sys)\b"
)
_NOT_RESTORED = msg("The database could not be restored; it is as it was before")
# A newer pg_restore sets this whatever the server's version, among its first lines.
_HEADER_LINES = 30
_UNKNOWN_BEFORE_17 = b"SET transaction_timeout = 0;\n"


class Client:
    """How PostgreSQL's own programs reach a database; no password appears in a process list."""

    def __init__(self, url: str, binaries: Path | None, server_major: int) -> None:
        parameters = parameters_of(url)
        password = parameters.pop("password", None)
        self.database = f"--dbname={make_conninfo(**parameters)}"
        self.environment = os.environ | {"LC_MESSAGES": "C"}
        if password is not None:
            self.environment["PGPASSWORD"] = password
        self.server_major = server_major
        self._binaries = binaries

    @classmethod
    async def of(cls, reached: Reached, binaries: Path | None) -> "Client":
        async with await connect(reached.url) as connection:
            return cls(reached.url, binaries, connection.info.server_version // 10000)

    def program(self, name: str) -> str:
        return client_program(name, self._binaries, self.server_major)


async def back_up(reached: Reached, file: Path, binaries: Path | None) -> int:
    """Write the database to a file, which appears only when it is complete; returns its size."""
    if file.is_dir():
        raise UsageError(
            msg("{file} is a folder.", file=file), remedy=msg("Name the file to write in it.")
        )
    async with await connect(reached.url) as connection:
        cursor = await connection.execute("SELECT to_regclass('public.hasat_migration') IS NULL")
        if await cursor.fetchone() == (True,):
            raise NothingToDoError(msg("The database is still empty; there is nothing to back up."))
    client = await Client.of(reached, binaries)
    unfinished = file.with_name(f"{file.name}.part")
    try:
        # Private before pg_dump opens it: the data may name people.
        os.close(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(unfinished.parent, "the backup") from error
        raise UsageError(
            msg(
                "Cannot write {unfinished}: {strerror}.",
                unfinished=unfinished,
                strerror=error.strerror,
            ),
            remedy=msg("Name a file in a folder that exists and that you may write to."),
        ) from error
    try:
        await _run(
            client,
            client.program("pg_dump"),
            "--format=custom",
            "--no-owner",
            f"--exclude-schema={_DERIVED}",
            f"--lock-wait-timeout={_LOCK_WAIT_SECONDS}s",
            f"--file={unfinished}",
            client.database,
        )
        size = unfinished.stat().st_size
        unfinished.rename(file)
    except DatabaseError as error:
        # pg_dump does not say which disk is full; it may be the server's.
        if _NO_SPACE in error.message and is_short(unfinished.parent):
            raise disk_full(unfinished.parent, "the backup") from error
        raise
    finally:
        unfinished.unlink(missing_ok=True)
    return size


async def restore(
    reached: Reached,
    file: Path,
    binaries: Path | None,
    migrations: Sequence[MigrationSet] = (),
    *,
    replace: bool = False,
) -> None:
    """Replace the database with a backup.

    A backup that this version cannot upgrade is rejected before anything is replaced.
    """
    client = await Client.of(reached, binaries)
    pg_restore = client.program("pg_restore")
    await _check(client, pg_restore, file)
    pending(known_migrations(migrations), await _applied_in(client, pg_restore, file))
    async with await connect(reached.url) as connection:
        cursor = await connection.execute(load_query("hasat.store", "other_users"))
        if others := ", ".join(row[0] for row in await cursor.fetchall()):
            raise ConflictError(
                msg(
                    "Other Hasat processes are connected to the database: {others}.", others=others
                ),
                remedy=msg("Stop them first."),
            )
        cursor = await connection.execute(load_query("hasat.store", "is_empty"))
        if await cursor.fetchone() != (True,) and not replace:
            raise UsageError(
                msg(
                    "The database ({reached}) is not empty; all that Hasat has in it would "
                    "be replaced by {file}.",
                    reached=reached.label,
                    file=file,
                ),
                remedy=msg(
                    "Add --yes if that is what you want; hasat db backup keeps a copy first."
                ),
            )
        await _load(client, pg_restore, file, [one.name for one in migrations])
        await connection.execute("ANALYZE")


async def _check(client: Client, pg_restore: str, file: Path) -> None:
    try:
        with file.open("rb") as stream:
            beginning = stream.read(len(_MAGIC))
    except OSError as error:
        raise UsageError(
            msg("Cannot read {file}: {strerror}.", file=file, strerror=error.strerror)
        ) from error
    contents = ""
    if beginning == _MAGIC:
        contents = await _run(client, pg_restore, "--list", str(file))
    if "TABLE DATA public hasat_migration" not in contents:
        raise UsageError(
            msg("{file} is not a backup of a Hasat database.", file=file),
            remedy=msg("Backups are written by hasat db backup FILE."),
        )


async def _applied_in(client: Client, pg_restore: str, file: Path) -> AppliedMap:
    """Return the migrations that the backed-up database had applied."""
    table = ("--data-only", "--schema=public", "--table=hasat_migration", "--file=-")
    script = await _run(client, pg_restore, *table, str(file))
    columns, _, rows = script.partition("COPY public.hasat_migration (")[2].partition(
        ") FROM stdin;\n"
    )
    names = columns.split(", ")
    applied = {}
    for line in rows.partition("\n\\.\n")[0].splitlines():
        row = dict(zip(names, line.split("\t"), strict=True))
        applied[row["set_name"], row["name"]] = Applied(row["checksum"], row["hasat_version"])
    return applied


async def _load(client: Client, pg_restore: str, file: Path, sources: Sequence[str]) -> None:
    """Feed the backup to psql as a script that ends with COMMIT only if all of it was read.

    A source's own schema has its name; it goes, with tables that are newer than the backup.
    """
    contents = await _run(client, pg_restore, "--list", str(file))
    wanted = [line for line in contents.splitlines() if not _FOREIGN.match(line)]
    with tempfile.NamedTemporaryFile("w", prefix="hasat-restore-", suffix=".list") as chosen:
        chosen.write("\n".join(wanted))
        chosen.flush()
        listed = f"--use-list={chosen.name}"
        script = await asyncio.create_subprocess_exec(
            *(pg_restore, "--clean", "--if-exists", "--no-owner", listed, "--file=-", str(file)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=client.environment,
        )
        await _play(client, pg_restore, script, sources)


async def _play(
    client: Client, pg_restore: str, script: asyncio.subprocess.Process, sources: Sequence[str]
) -> None:
    """Feed the output of pg_restore to psql."""
    # From the same folder: the script may use what only this version's psql knows.
    psql = await asyncio.create_subprocess_exec(
        *(str(Path(pg_restore).with_name("psql")), "--no-psqlrc", "--quiet", "--output=/dev/null"),
        *("--set=ON_ERROR_STOP=1", client.database),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=client.environment,
    )
    try:
        _, script_said, psql_said = await asyncio.gather(
            _feed(script, psql, client.server_major, sources),
            _read_all(script.stderr),
            _read_all(psql.stderr),
        )
        codes = await script.wait(), await psql.wait()
    except BaseException:
        for process in (script, psql):
            if process.returncode is None:
                process.kill()
            await process.wait()
        raise
    # A negative code: we ended pg_restore because psql had stopped reading, and psql says why.
    if codes[0] > 0:
        raise _failed(_NOT_RESTORED, script_said)
    if codes[1]:
        raise _failed(_NOT_RESTORED, psql_said)


async def _feed(
    script: asyncio.subprocess.Process,
    psql: asyncio.subprocess.Process,
    server_major: int,
    sources: Sequence[str],
) -> None:
    if script.stdout is None or psql.stdin is None:
        raise HasatError(msg("PostgreSQL's programs could not be connected."))
    psql.stdin.write(
        f"BEGIN; SET LOCAL lock_timeout = '{_LOCK_WAIT_SECONDS}s';\n"
        f"SET LOCAL client_min_messages = warning;\n{load_query('hasat.store', 'wipe')}\n".encode()
    )
    for name in sources:
        drop = sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE;\n").format(sql.Identifier(name))
        psql.stdin.write(drop.as_string().encode())
    try:
        for _ in range(_HEADER_LINES):
            line = await script.stdout.readline()
            if line != _UNKNOWN_BEFORE_17 or server_major >= 17:
                psql.stdin.write(line)
        while piece := await script.stdout.read(1 << 16):
            psql.stdin.write(piece)
            await psql.stdin.drain()
        if await script.wait() == 0:
            psql.stdin.write(f"\n{load_query('hasat.store', 'new_epoch')}\nCOMMIT;\n".encode())
        psql.stdin.close()
        await psql.stdin.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        script.kill()
        await script.stdout.read()


async def _read_all(stream: asyncio.StreamReader | None) -> str:
    return (await stream.read()).decode(errors="replace") if stream else ""


async def _run(client: Client, program: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=client.environment,
    )
    try:
        output, said = await process.communicate()
    except BaseException:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        backing_up = "--format=custom" in arguments
        what = msg("The database could not be backed up") if backing_up else _NOT_RESTORED
        raise _failed(what, said.decode(errors="replace"))
    return output.decode(errors="replace")


def _failed(what: str, said: str) -> DatabaseError:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error: " in line.lower()]
    reason = next(iter(errors or lines), msg("no reason was given"))
    remedy = msg("Free some space on the server's disk.") if _NO_SPACE in said else None
    return DatabaseError(
        msg("{what}: {reason}.", what=what, reason=reason.removesuffix(".")), remedy=remedy
    )
