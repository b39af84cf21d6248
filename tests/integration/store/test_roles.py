"""deploy/postgres/roles.sql: no role is a superuser, the owner migrates, the reader only reads."""

import shutil
from pathlib import Path
from uuid import uuid4

import anyio
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from hasat.settings import load_settings
from hasat.store import open_store

ROLES = Path(__file__).parents[3] / "deploy/postgres/roles.sql"

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(shutil.which("psql") is None, reason="no psql on this machine"),
]


async def test_the_owner_migrates_and_the_reader_reads(server_url: str, tmp_path: Path) -> None:
    # The server is shared with other tests.
    name = f"roles_{uuid4().hex[:12]}"
    script = tmp_path / "roles.sql"
    text = ROLES.read_text("utf-8")
    script.write_text(text.replace("hasat_reader", f"{name}_reader").replace("hasat", name))
    passwords = ("--set", "owner_password=owner", "--set", "reader_password=reader")
    options = ("--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", *passwords)
    admin = make_conninfo(server_url, dbname="postgres")
    try:
        await anyio.run_process(["psql", *options, "--file", str(script), admin])
        given = conninfo_to_dict(server_url)
        place = {key: given[key] for key in ("host", "port") if key in given}
        owner = make_conninfo(**place, user=name, password="owner", dbname=name)
        reader = make_conninfo(**place, user=f"{name}_reader", password="reader", dbname=name)
        settings = load_settings(
            environ={"HASAT_HOME": str(tmp_path / "home"), "HASAT_DATABASE_URL": owner}
        )
        async with open_store(settings, []):
            pass
        with psycopg.connect(reader) as conn:
            roles = conn.execute(
                "SELECT rolsuper, rolcreatedb, rolcreaterole, rolreplication FROM pg_roles"
                " WHERE rolname = ANY(%s)",
                [[name, f"{name}_reader"]],
            ).fetchall()
            assert roles == [(False,) * 4] * 2
            assert conn.execute("SELECT count(*) FROM jobs.run").fetchone() == (0,)
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                conn.execute("DELETE FROM jobs.run")
        with psycopg.connect(reader, autocommit=True) as conn:
            conn.execute("SET default_transaction_read_only = off")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                conn.execute("DELETE FROM jobs.run")
    finally:
        with psycopg.connect(admin, autocommit=True) as conn:
            conn.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
            conn.execute(f"DROP ROLE IF EXISTS {name}_reader")
            conn.execute(f"DROP ROLE IF EXISTS {name}")
