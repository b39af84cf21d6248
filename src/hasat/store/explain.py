"""What psycopg and libpq say, as one sentence with a remedy; never a password."""

from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from hasat.errors import DatabaseAwayError, DatabaseError, SettingsError
from hasat.messages import msg
from hasat.store import home
from hasat.store.embedded.binaries import OLDEST_MAJOR

_EMBEDDED_REMEDY = msg("Hasat starts it again by itself; try again.")


def parameters_of(url: str) -> dict[str, str]:
    """Parse the parameters of a URL; libpq's own error might show the password."""
    try:
        return {key: str(value) for key, value in conninfo_to_dict(url).items()}
    except psycopg.Error:
        raise SettingsError(
            msg("The address of the database server cannot be read."),
            remedy=msg(
                "Write HASAT_DATABASE_URL as "
                "postgresql://user:password@host:5432/database, with special characters "
                "percent-encoded."
            ),
        ) from None


def label_of(url: str) -> str:
    """Return a label of the database for people."""
    found = parameters_of(url)
    place = found.get("hostaddr") or found.get("host") or "the local socket"
    if "port" in found and not place.startswith("/"):
        place = f"{place}:{found['port']}"
    user = found.get("user")
    database = found.get("dbname") or user or "the default database"
    return f"{database} on {place}{f' as {user}' if user else ''}"


def cannot_connect(error: psycopg.Error, url: str) -> DatabaseError:
    """Return the error for a failed connection; libpq gives a text here, but no code."""
    said = _first_line(error)
    label = label_of(url)
    if "password" in said or "authentication" in said or "no pg_hba.conf entry" in said:
        return DatabaseError(
            msg("PostgreSQL refused the login to {label}: {said}.", label=label, said=said),
            remedy=msg("Check the user and the password in HASAT_DATABASE_URL."),
        )
    if said.startswith("database ") and said.endswith("does not exist"):
        return DatabaseError(
            msg("PostgreSQL has no such database: {said} ({label}).", said=said, label=label),
            remedy=msg("Create it (createdb), or correct HASAT_DATABASE_URL."),
        )
    if "too many clients" in said or "remaining connection slots" in said:
        return DatabaseAwayError(
            msg(
                "PostgreSQL accepts no more connections to {label}: {said}.", label=label, said=said
            ),
            remedy=msg("Raise its max_connections, or lower Hasat's pool size."),
        )
    if "starting up" in said or "shutting down" in said or "recovery" in said:
        return DatabaseAwayError(
            msg("PostgreSQL is not ready yet ({label}): {said}.", label=label, said=said),
            remedy=msg("Try again in a moment."),
        )
    return DatabaseAwayError(
        msg("PostgreSQL cannot be reached ({label}): {said}.", label=label, said=said),
        remedy=msg("Check that the server runs and that HASAT_DATABASE_URL is right."),
    )


def check_server(server_version: int, encoding: str | None, url: str) -> None:
    """Reject a server that is too old, or a database that is not UTF-8.

    The version is libpq's, such as 150004.
    """
    if server_version < OLDEST_MAJOR * 10000:
        raise DatabaseError(
            msg(
                "The server of {url} is PostgreSQL {server_version}; Hasat needs "
                "{oldest_major} or later.",
                url=label_of(url),
                server_version=server_version // 10000,
                oldest_major=OLDEST_MAJOR,
            ),
            remedy=msg("Upgrade it, or leave HASAT_DATABASE_URL empty to use the embedded one."),
        )
    if encoding not in (None, "UTF8"):
        raise DatabaseError(
            msg(
                "The database {url} has the encoding {encoding}; Hasat needs UTF8.",
                url=label_of(url),
                encoding=encoding,
            ),
            remedy=msg("Make one: createdb --encoding=UTF8 --template=template0 NAME"),
        )


def is_lost(error: psycopg.Error) -> bool:
    """Return whether the error means that the server or the connection is lost."""
    code = error.sqlstate
    if code is None:
        return isinstance(error, psycopg.OperationalError)
    # 25P03: PostgreSQL ended the session of a process that was frozen in a transaction.
    # 25006: the server became a standby while we were connected to it.
    return code in ("25P03", "25006") or code.startswith(("08", "57P"))


def sentence(error: psycopg.Error, label: str, *, embedded: bool) -> DatabaseError | None:
    """Return the error for a problem of the server; None for an error of the statement."""
    match error.sqlstate:
        case "53100":
            return disk_full(error, label, embedded=embedded)
        case "53200":
            return DatabaseError(
                msg(
                    "PostgreSQL is out of memory ({label}): {error}.",
                    label=label,
                    error=_first_line(error),
                ),
                remedy=msg(
                    "Give its machine more memory, or run fewer jobs at a time; the "
                    "transaction was undone, and nothing that was stored is lost."
                ),
            )
        case "53300":
            return DatabaseAwayError(
                msg(
                    "PostgreSQL accepts no more connections ({label}): {error}.",
                    label=label,
                    error=_first_line(error),
                ),
                remedy=msg("Raise its max_connections, or lower database.pool_size."),
            )
        case str(code) if code.startswith("53"):
            return DatabaseError(
                msg(
                    "PostgreSQL is short of resources ({label}): {error}.",
                    label=label,
                    error=_first_line(error),
                ),
                remedy=msg("See the server's log; the transaction was undone."),
            )
    return lost(error, label, embedded=embedded) if is_lost(error) else None


def lost(error: psycopg.Error, label: str, *, embedded: bool) -> DatabaseError:
    if embedded and home.is_short(Path(label)):
        # A server that cannot write its log exits; the reason is only in that log.
        return disk_full(error, label, embedded=True)
    return DatabaseAwayError(
        msg(
            "The connection to PostgreSQL was lost ({label}): {error}.",
            label=label,
            error=_first_line(error),
        ),
        remedy=_EMBEDDED_REMEDY if embedded else msg("Check that the server runs, and try again."),
    )


def disk_full(error: psycopg.Error, label: str, *, embedded: bool) -> DatabaseError:
    where = f" on {home.mount_of(Path(label))}" if embedded else " on the database server"
    return DatabaseError(
        msg("PostgreSQL's disk is full ({label}): {error}.", label=label, error=_first_line(error)),
        remedy=msg(
            "Free some space{where} and try again; the transaction was undone, and "
            "nothing that was stored is lost.",
            where=where,
        ),
    )


def _first_line(error: psycopg.Error) -> str:
    text = (error.diag.message_primary or str(error) or type(error).__name__).splitlines()[0]
    # libpq writes host and port before the reason.
    for prefix in ("FATAL: ", " failed: ", "connection is bad: ", "connection failed: "):
        _, found, point = text.rpartition(prefix)
        if found and point.strip():
            text = point
            break
    return text.strip().rstrip(".").replace('"', "")
