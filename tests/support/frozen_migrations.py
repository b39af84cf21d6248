"""The list of migration files that may never change, and the command that adds new ones to it."""

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from hasat.console.runtime import source_migrations
from hasat.store.migrate import known_migrations

LOCK = Path(__file__).parents[1] / "upgrade" / "migrations.lock"


def present() -> dict[str, str]:
    """Return the checksum of every migration file of the platform and the built-in sources."""
    known = known_migrations(source_migrations())
    return {str(one): one.checksum for one in known if one.immutable}


def listed(lock: Path = LOCK) -> list[tuple[str, str]]:
    """Return the entries of the list: the name of a file and its checksum."""
    entries = []
    for line in lock.read_text("utf-8").splitlines():
        name, checksum = line.split()
        entries.append((name, checksum))
    return entries


def violations(entries: list[tuple[str, str]], files: Mapping[str, str]) -> list[str]:
    """Return a sentence for every listed file that is not what it was when it landed."""
    names = Counter(name for name, _ in entries)
    found = [f"{name} is listed twice: remove one line." for name, n in names.items() if n > 1]
    for name, checksum in entries:
        if name not in files:
            found.append(
                f"{name} is listed but does not exist. Never remove or renumber a migration that "
                "landed; if it has not landed yet, delete its line."
            )
        elif files[name] != checksum:
            found.append(
                f"{name} was edited. Never edit a migration that landed: databases that applied "
                "it would be refused. Undo the edit and add the next number; if it has not landed "
                "yet, delete its line and run scripts/freeze-migrations."
            )
    return found


def unlisted(entries: list[tuple[str, str]], files: Mapping[str, str]) -> dict[str, str]:
    """Return the files that the list does not have yet."""
    names = {name for name, _ in entries}
    return {name: checksum for name, checksum in files.items() if name not in names}


def freeze(lock: Path = LOCK) -> int:
    """Add new files to the list, unless a listed one differs."""
    files = present()
    entries = listed(lock) if lock.exists() else []
    if wrong := violations(entries, files):
        print("\n".join(wrong), file=sys.stderr)
        return 1
    new = unlisted(entries, files)
    lines = sorted(f"{name} {checksum}\n" for name, checksum in [*entries, *new.items()])
    lock.write_text("".join(lines), "utf-8")
    print("\n".join(f"Added {name}." for name in new) or "Nothing to add.")
    return 0


if __name__ == "__main__":
    sys.exit(freeze())
