"""The rights that Hasat's database role needs, as docs/how-to/operate.md names them."""

import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import pytest

from hasat.console.runtime import source_migrations
from hasat.errors import DatabaseError
from hasat.store.migrate import migrate
from hasat.store.store import connect
from hasat.testing.database import throw_away_database

pytestmark = pytest.mark.anyio


@dataclass
class Guest:
    """A role without any rights, an empty database, and that database's address for the role."""

    role: str
    admin: str
    url: str

    async def grant(self, *statements: str) -> None:
        async with await connect(self.admin) as connection:
            name = connection.info.dbname
            for statement in statements:
                await connection.execute(statement.format(role=self.role, database=name))

    async def migrate(self) -> list[str]:
        async with await connect(self.url) as connection:
            return await migrate(connection, source_migrations())


@pytest.fixture
async def guest(server_url: str) -> AsyncIterator[Guest]:
    role = f"hasat_test_{secrets.token_hex(6)}"
    async with await connect(server_url) as admin:
        await admin.execute(f"CREATE ROLE {role} LOGIN NOSUPERUSER")
        try:
            async with throw_away_database(server_url, None) as empty:
                parts = urlsplit(empty.url)
                place = parts.netloc.rpartition("@")[2]
                url = urlunsplit(parts._replace(netloc=f"{role}@{place}"))
                yield Guest(role, empty.url, url)
        finally:
            await admin.execute(f"DROP ROLE {role}")


async def test_the_owner_of_the_database_needs_nothing_more(guest: Guest) -> None:
    await guest.grant("ALTER DATABASE {database} OWNER TO {role}")
    assert await guest.migrate()
    assert await guest.migrate() == []


async def test_creating_in_database_and_public_is_enough(guest: Guest) -> None:
    await guest.grant(
        "GRANT CREATE ON DATABASE {database} TO {role}",
        "GRANT CREATE ON SCHEMA public TO {role}",
    )
    assert await guest.migrate()


@pytest.mark.parametrize(
    "right", ["CREATE ON DATABASE {database} TO {role}", "CREATE ON SCHEMA public TO {role}"]
)
async def test_one_of_the_two_is_not_enough(guest: Guest, right: str) -> None:
    await guest.grant(f"GRANT {right}")
    with pytest.raises(DatabaseError, match="may not create what Hasat needs"):
        await guest.migrate()
