"""Processes of the version before go on while a new version migrates the database.

A migration may only add. One that cannot do with that says so in its first line, and the changelog
tells operators to stop everything first (docs/how-to/high-availability.md).
"""

import re

from hasat.console.runtime import source_migrations
from hasat.store.migrate import Migration, known_migrations

MARK = "-- Stop workers and servers first:"
FIRST_CHECKED = {"platform": 21}
FIRST_CHECKED_OF_SOURCES = 20
"""Migrations with lower numbers are older than the rule."""

BREAKING = re.compile(
    r"\bDROP\s+(TABLE|COLUMN|SCHEMA|TYPE)\b|\bRENAME\b|\bSET\s+NOT\s+NULL\b"
    r"|\bALTER\s+COLUMN\s+\S+\s+(SET\s+DATA\s+)?TYPE\b"
    r"|\bADD\s+COLUMN\s+[^,;]*\bNOT\s+NULL\b(?![^,;]*\b(DEFAULT|GENERATED)\b)",
    re.IGNORECASE,
)


def breaks(sql: str) -> str | None:
    """Return what processes of the version before may trip over; None if there is nothing."""
    found = BREAKING.search(re.sub(r"--[^\n]*", "", sql))
    return found[0] if found and not sql.startswith(MARK) else None


def _is_checked(migration: Migration) -> bool:
    first = FIRST_CHECKED.get(migration.set_name, FIRST_CHECKED_OF_SOURCES)
    return migration.immutable and int(migration.name.partition("_")[0]) >= first


def test_new_migrations_only_add_or_say_that_they_do_not() -> None:
    checked = filter(_is_checked, known_migrations(source_migrations()))
    assert {str(one): found for one in checked if (found := breaks(one.text))} == {}


def test_what_breaks_is_recognised() -> None:
    assert breaks("ALTER TABLE a DROP COLUMN b;")
    assert breaks("ALTER TABLE a RENAME b TO c;")
    assert breaks("ALTER TABLE a ALTER COLUMN b TYPE bigint;")
    assert breaks("ALTER TABLE a ADD COLUMN b int NOT NULL;")
    assert not breaks("ALTER TABLE a ADD COLUMN b int NOT NULL DEFAULT 0, ADD COLUMN c text;")
    assert not breaks("CREATE TABLE a (b int NOT NULL); -- DROP TABLE a")
    assert not breaks(f"{MARK} b has moved to c.\nALTER TABLE a DROP COLUMN b;")
