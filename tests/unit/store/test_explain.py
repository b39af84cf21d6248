"""What goes wrong with a server is said in one sentence that shows no password."""

import psycopg
import pytest

from hasat.errors import DatabaseError, SettingsError
from hasat.store.explain import cannot_connect, check_server, is_lost, label_of, parameters_of

URL = "postgresql://elif:gizli@db.example:6000/mirror"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (
            'connection failed: connection to server at "1.2.3.4", port 6000 failed: '
            'FATAL:  password authentication failed for user "elif"',
            "refused the login to mirror on db.example:6000 as elif: "
            "password authentication failed for user elif",
        ),
        (
            'connection failed: FATAL:  database "mirror" does not exist',
            "has no such database: database mirror does not exist",
        ),
        ("connection failed: FATAL:  sorry, too many clients already", "no more connections"),
        ("connection failed: FATAL:  the database system is starting up", "is not ready yet"),
        (
            'connection to server at "1.2.3.4", port 6000 failed: Connection refused\n\tIs the',
            "cannot be reached (mirror on db.example:6000 as elif): Connection refused.",
        ),
        (
            "failed to resolve host 'db.example': Name or service not known",
            "cannot be reached (mirror on db.example:6000 as elif): failed to resolve host",
        ),
    ],
)
def test_why_no_connection_could_be_made(said: str, sentence: str) -> None:
    error = cannot_connect(psycopg.OperationalError(said), URL)
    assert sentence in error.message
    assert error.remedy
    assert "\n" not in str(error)
    assert "gizli" not in str(error)


@pytest.mark.parametrize("url", ["postgresql://elif:gizli@h/db?nonsense=1", "elif:gizli", "x=y"])
def test_an_address_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parameters_of(url)
    assert "gizli" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_label_names_the_database_without_its_password() -> None:
    assert label_of(URL) == "mirror on db.example:6000 as elif"
    assert label_of("postgresql:///mirror?host=/run/pg") == "mirror on /run/pg"


def test_an_old_server_is_refused() -> None:
    check_server(150000, "UTF8", URL)
    with pytest.raises(DatabaseError, match="PostgreSQL 14; Hasat needs 15 or later"):
        check_server(140012, "UTF8", URL)


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN5"])
def test_a_database_that_cannot_hold_every_letter_is_refused(encoding: str) -> None:
    with pytest.raises(DatabaseError, match=f"encoding {encoding}; Hasat needs UTF8"):
        check_server(150000, encoding, URL)


def test_an_error_in_a_statement_is_not_a_lost_connection() -> None:
    assert is_lost(psycopg.OperationalError("the connection is lost"))
    assert is_lost(psycopg.errors.AdminShutdown("terminating connection"))
    assert not is_lost(psycopg.errors.LockNotAvailable("canceling statement"))
    assert not is_lost(psycopg.errors.UniqueViolation("duplicate key"))
    assert not is_lost(psycopg.ProgrammingError("no such thing"))
