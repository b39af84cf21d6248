"""Which migrations are pending, and which databases are refused."""

from pathlib import Path

import pytest

from hasat.errors import DatabaseError
from hasat.store.migrate import (
    Applied,
    AppliedMap,
    Migration,
    MigrationSet,
    checksum_of,
    known_migrations,
    pending,
)

ONE = Migration("parts", "0001_one.sql", "SELECT 1")
TWO = Migration("parts", "0002_two.sql", "SELECT 2")
THREE = Migration("parts", "0003_three.sql", "SELECT 3")


def _applied(*migrations: Migration) -> AppliedMap:
    return {(m.set_name, m.name): Applied(m.checksum, "9.9") for m in migrations}


def _files(folder: Path, *names: str) -> MigrationSet:
    for name in names:
        (folder / name).write_text("SELECT 1")
    return MigrationSet("parts", folder)


def test_what_was_applied_is_not_pending() -> None:
    assert pending([ONE, TWO, THREE], {}) == [ONE, TWO, THREE]
    assert pending([ONE, TWO, THREE], _applied(ONE)) == [TWO, THREE]
    assert pending([ONE, TWO], _applied(ONE, TWO)) == []


def test_a_set_that_is_no_longer_installed_is_left_alone() -> None:
    gone = Migration("gone", "0001_was_here.sql", "SELECT 1")
    assert pending([ONE], _applied(gone)) == [ONE]


def test_a_database_of_a_newer_hasat_is_refused() -> None:
    with pytest.raises(DatabaseError, match=r"newer Hasat \(9\.9, migration parts/0003_three"):
        pending([ONE, TWO], _applied(ONE, TWO, THREE))


def test_a_file_that_was_taken_away_is_refused() -> None:
    with pytest.raises(DatabaseError, match=r"0002_two\.sql.*does not know"):
        pending([ONE, THREE], _applied(ONE, TWO, THREE))


def test_a_file_that_came_in_between_is_refused() -> None:
    with pytest.raises(DatabaseError, match=r"0002_two\.sql is missing in the database"):
        pending([ONE, TWO, THREE], _applied(ONE, THREE))


def test_a_file_changed_after_it_was_applied_is_refused() -> None:
    changed = Migration("parts", "0001_one.sql", "SELECT 'other'")
    with pytest.raises(DatabaseError, match=r"cannot be upgraded.*0001_one\.sql") as caught:
        pending([changed, TWO], _applied(ONE))
    assert "hasat db backup FILE" in str(caught.value)
    assert "start over" in str(caught.value)


def test_line_ends_are_no_change() -> None:
    unix = Migration("parts", "0001_one.sql", "SELECT 1;\nSELECT 2;\n")
    windows = Migration("parts", "0001_one.sql", "SELECT 1;\r\nSELECT 2;\r\n")
    assert pending([windows], _applied(unix)) == []


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (("0001_a.sql", "0003_c.sql"), "jump from 0001 to 0003"),
        (("0002_b.sql",), "jump from 0000 to 0002"),
        (("0001_a.sql", "0001_b.sql"), "jump from 0001 to 0001"),
        (("1_a.sql",), "not named like"),
        (("0001-a.sql",), "not named like"),
    ],
)
def test_wrong_file_names_are_refused(
    tmp_path: Path, names: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(DatabaseError, match=sentence):
        known_migrations([_files(tmp_path, *names)])


def test_statements_may_lie_beside_migrations(tmp_path: Path) -> None:
    known = known_migrations([_files(tmp_path, "0001_a.sql", "find_all.sql")])
    assert [m.name for m in known if m.set_name == "parts"] == ["0001_a.sql"]


def test_platform_comes_before_sources_and_procrastinate_before_both(tmp_path: Path) -> None:
    order = [m.set_name for m in known_migrations([_files(tmp_path, "0001_a.sql")])]
    assert list(dict.fromkeys(order)) == ["procrastinate", "platform", "parts"]


def test_the_checksum_of_all_follows_every_file(tmp_path: Path) -> None:
    known = known_migrations([_files(tmp_path, "0001_a.sql")])
    (tmp_path / "0001_a.sql").write_text("SELECT 2")
    changed = known_migrations([MigrationSet("parts", tmp_path)])
    assert checksum_of(known) != checksum_of(changed)
