"""A migration that landed never changes: every database that applied it depends on that."""

from pathlib import Path

import pytest

from support import frozen_migrations
from support.frozen_migrations import freeze, listed, present, unlisted, violations


def test_no_landed_migration_was_edited_removed_or_renumbered() -> None:
    assert violations(listed(), present()) == []


def test_every_migration_is_listed() -> None:
    assert not unlisted(listed(), present()), "Run scripts/freeze-migrations and commit the list."


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({}, "parts/0001_one.sql is listed but does not exist"),
        ({"parts/0002_one.sql": "aa"}, "parts/0001_one.sql is listed but does not exist"),
        ({"parts/0001_one.sql": "bb"}, "parts/0001_one.sql was edited"),
    ],
)
def test_the_list_is_never_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], sentence: str
) -> None:
    lock = tmp_path / "migrations.lock"
    lock.write_text("parts/0001_one.sql aa\n")
    monkeypatch.setattr(frozen_migrations, "present", lambda: files)
    assert freeze(lock) == 1
    assert lock.read_text() == "parts/0001_one.sql aa\n"
    assert sentence in violations(listed(lock), files)[0]


def test_new_files_are_added_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = tmp_path / "migrations.lock"
    lock.write_text("parts/0002_two.sql bb\n")
    files = {"parts/0003_three.sql": "cc", "parts/0002_two.sql": "bb", "parts/0001_one.sql": "aa"}
    monkeypatch.setattr(frozen_migrations, "present", lambda: files)
    assert freeze(lock) == 0
    assert dict(listed(lock)) == files
    assert lock.read_text().splitlines() == sorted(lock.read_text().splitlines())


def test_a_file_listed_twice_is_reported() -> None:
    entries = [("parts/0001_one.sql", "aa"), ("parts/0001_one.sql", "aa")]
    assert "listed twice" in violations(entries, dict(entries))[0]
