"""`hasat keys` as a person types it."""

from pathlib import Path

import pytest

from hasat.api.keys import KeyCache
from hasat.store import Store
from hasat.testing.database import ThrowAwayDatabase
from support.processes import Commands

pytestmark = pytest.mark.any_server


@pytest.fixture
def hasat(database: ThrowAwayDatabase, tmp_path: Path) -> Commands:
    return Commands("keys", database.url, tmp_path, columns=100)


@pytest.mark.anyio
async def test_a_key_from_making_to_revoking(hasat: Commands, store: Store) -> None:
    assert "There are no keys" in hasat("list").stdout
    made = hasat("create", "grafana [bold]")
    token = made.stdout.strip()
    assert made.returncode == 0
    assert "not shown again" in made.stderr
    assert (await KeyCache(store).check(token)).name == "grafana [bold]"
    (key,) = hasat.json("list")
    assert (key["name"], key["scope"], key["state"]) == ("grafana [bold]", "read", "active")
    assert key["last_used_at"] is not None
    listed = hasat("list").stdout
    assert "grafana [bold]" in listed
    assert token.split("_", 2)[2] not in listed
    assert hasat("revoke", key["id"]).returncode == 0
    assert hasat("revoke", key["id"]).returncode == 3
    assert hasat.json("list")[0]["state"] == "revoked"


def test_scope_and_time_are_chosen(hasat: Commands) -> None:
    made = hasat.json("create", "ops", "--scope", "operate", "--expires", "90d")
    assert made["key"].startswith(f"hsk_{made['id']}_")
    assert (made["scope"], made["state"]) == ("operate", "active")
    assert made["expires_at"] > made["created_at"]


def test_the_rate_limit_is_chosen_changed_and_listed(hasat: Commands) -> None:
    made = hasat.json("create", "loader", "--per-minute", "6000")
    assert made["per_minute"] == 6000
    assert "6000" in hasat("list").stdout
    assert "120 requests a minute" in hasat("limit", "loader", "120").stdout
    assert hasat.json("list")[0]["per_minute"] == 120
    assert "unlimited requests" in hasat("limit", made["id"], "0").stdout
    assert hasat.json("limit", "loader", "default")["per_minute"] is None
    assert "600 (default)" in hasat("list").stdout
    hasat("create", "loader")
    ambiguous = hasat("limit", "loader", "5")
    assert ambiguous.returncode == 2
    assert made["id"] in ambiguous.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("create", "x", "--expires", "soon"), 2, "--expires 'soon' is not a duration"),
        (("create", "x", "--expires", "0d"), 2, "longer than zero"),
        (("create", "x", "--scope", "everything"), 2, "everything"),
        (("create", " "), 2, "1 to 100"),
        (("create", "x", "--per-minute", "-1"), 2, "--per-minute"),
        (("limit", "nobody", "5"), 1, "`hasat keys list` shows the keys"),
        (("limit", "nobody", "many"), 2, "'many' is not a whole number"),
        (("limit", "nobody", "1000001"), 2, "from 0 to 1000000"),
        (("revoke", "nosuchkey"), 1, "`hasat keys list` shows the ids"),
    ],
)
def test_what_cannot_be_done_is_said(
    hasat: Commands, words: tuple[str, ...], code: int, says: str
) -> None:
    done = hasat(*words)
    assert done.returncode == code
    assert says in done.stderr
    assert done.stdout == ""
