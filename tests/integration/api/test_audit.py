"""The audit record: every action that changes state leaves one, and none can be changed."""

import json
import os
import pwd
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
import typer.main
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from mcp.client import Client
from psycopg.types.json import Jsonb
from typer.core import TyperGroup
from typer.testing import CliRunner, Result

from hasat.api.keys import create_key
from hasat.cli import app as command_line
from hasat.console.runtime import build_catalogue, source_migrations
from hasat.errors import ConflictError, UnavailableError
from hasat.jobs import run_in_foreground
from hasat.jobs.queue import queue_run
from hasat.mcp.server import ToolServers
from hasat.settings import Settings
from hasat.source import Tool, ToolContext
from hasat.source.installed import all_sources
from hasat.store import MigrationSet, Store, open_store
from hasat.store.audit import (
    ACTIONS,
    MAX_TEXT,
    Actor,
    AuditRecord,
    audited,
    carry_over,
    list_audit,
    read_all,
    record_action,
)
from hasat.testing.database import ThrowAwayDatabase
from hasat.testing.http import app_client
from hasat.web.login import MAX_REFUSALS_PER_MINUTE
from hasat.web.site import build_site
from support.complete_app import complete_app

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

OWN = {"Origin": "http://127.0.0.1", "Accept": "text/html"}
ME = pwd.getpwuid(os.getuid()).pw_name
OPS = Actor("ops", "key", "192.0.2.7", "key:abc")

READ_ONLY_ROUTES = {
    "/api/v1/check": "checks many taxpayers",
    "/api/v1/check/file": "checks the taxpayers of a file",
    "/api/v1/{dataset}/batch": "looks many records up",
    "/api/v1/{dataset}/changes": "reads changes of a long watch list",
}
OWN_RECORD = {"/login", "/logout"}
"""Routes for callers who are not known yet; tests below show that they are recorded."""

READ_ONLY_COMMANDS = {
    "archive list",
    "archive verify",
    "audit",
    "config check",
    "config reference",
    "config show",
    "doctor",
    "football fixtures",
    "football match",
    "football price",
    "football scorers",
    "football table",
    "gib check",
    "gib lookup",
    "gib runs",
    "gib search",
    "gib show",
    "holds list",
    "holds show",
    "jobs history",
    "jobs list",
    "jobs show",
    "keys list",
    "keys usage",
    "receipt check",
    "receipt list",
    "receipt show",
    "receipt verify",
    "tkgm export",
    "tkgm workers",
    "webhooks dead-letters",
    "webhooks deliveries",
    "watchlists list",
    "watchlists show",
    "webhooks list",
    "webhooks show",
}
NO_STATE_OF_THE_DATABASE = {
    "db backup": "reads the database",
    "db migrate": "every start does it",
    "db psql": "PostgreSQL's own access; its log has the statements",
    "db stop": "stops a process; the database does not change",
    "db url": "prints an address",
    "demo": "has a home of its own",
    "mcp": "a server; its tools are recorded one by one",
    "replica": "writes to another database",
    "serve": "a server; its actions are recorded one by one",
    "sim gib": "a simulator",
    "sim list": "a simulator",
    "sim run": "a simulator",
    "sim demo": "a simulator",
    "source new": "writes a folder for the author of a source",
    "tkgm buildings": "a lookup; requests are in the ledger",
    "tkgm endpoint": "a server that stores nothing",
    "tkgm list": "a lookup; requests are in the ledger",
    "tkgm parcel": "a lookup; requests are in the ledger",
    "tkgm places": "a lookup; requests are in the ledger",
    "up": "servers and workers",
    "watchlists test": "sends test messages; changes nothing",
    "webhooks test": "sends a test message; changes nothing",
    "worker": "a worker; scheduled runs are in jobs.run",
}
# What each command that changes state is called with here, and the records it leaves, newest first.
RECORDED_COMMANDS: dict[str, tuple[Sequence[str], Sequence[tuple[str, str, str]]]] = {
    "archive write": (
        ["einvoice"],
        [("archive.write", "einvoice", "failed"), ("archive.write", "einvoice", "started")],
    ),
    "db restore": (["no-such-file.dump"], [("database.restore", "no-such-file.dump", "refused")]),
    "football rebuild": (
        [],
        [("football.rebuild", "2", "done"), ("football.rebuild", "football", "started")],
    ),
    "holds approve": (["7", "--reason", "why"], [("hold.approve", "7", "refused")]),
    "holds reject": (["1", "--reason", "why"], [("hold.reject", "1", "done")]),
    "holds undo": (["99", "--reason", "why"], [("run.undo", "2", "done")]),
    "gib sync": (["--pk", "/no/such", "--gb", "/no/such"], [("run.start", "2", "done")]),
    "jobs retry": (["99", "--reason", "why"], [("run.retry", "99", "refused")]),
    "jobs run": (["housekeeping", "--reason", "why"], [("run.start", "2", "done")]),
    "jobs stop": (["99", "--reason", "why"], [("run.stop", "99", "refused")]),
    "keys create": (["grafana"], [("key.create", "*", "done")]),
    "keys datasets": (["nosuchkey", "--all"], [("key.datasets", "nosuchkey", "refused")]),
    "keys revoke": (["nosuchkey"], [("key.revoke", "nosuchkey", "refused")]),
    "keys limit": (["nosuchkey", "60"], [("key.limit", "nosuchkey", "refused")]),
    "quota": (["football", "--reopen"], [("quota.reopen", "football", "done")]),
    "rebuild": (
        ["fixtures"],
        [("dataset.rebuild", "2", "done"), ("dataset.rebuild", "fixtures", "started")],
    ),
    "receipt rotate": ([], [("receipt.rotate", "", "refused")]),
    "tkgm scan": (
        ["32.8,39.8,32.81,39.81", "--workers", "workers.json", "--max-queries", "1"],
        [
            ("scan.start", "32.8,39.8,32.81,39.81", "refused"),
            ("scan.start", "32.8,39.8,32.81,39.81", "started"),
        ],
    ),
    "tkgm scans": (["--delete", "7"], [("scan.delete", "7", "refused")]),
    "watchlists add": (["none", "1"], [("watchlist.keys", "none", "refused")]),
    "watchlists create": (
        ["mine", "--dataset", "einvoice", "--key", "1234567890"],
        [("watchlist.create", "mine", "done")],
    ),
    "watchlists delete": (["none"], [("watchlist.delete", "none", "refused")]),
    "watchlists import": (["none", "README.md"], [("watchlist.keys", "none", "refused")]),
    "watchlists remove": (["none", "1"], [("watchlist.keys", "none", "refused")]),
    "webhooks replay": (["--all"], [("delivery.replay", "all", "done")]),
}


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


@pytest.fixture
def app(settings: Settings, store: Store) -> FastAPI:
    """A server on loopback, where every caller may operate."""
    return complete_app(settings, store)


@pytest.fixture
async def guarded(settings: Settings, store: Store) -> AsyncIterator[httpx2.AsyncClient]:
    """A server where callers need a key."""
    serve = settings.serve.model_copy(update={"host": "192.0.2.10"})
    app = complete_app(settings.model_copy(update={"serve": serve}), store)
    async with app_client(app) as client:
        yield client


async def hold(store: Store) -> None:
    """Store run 1, held by the guard, with its input on another machine."""
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO jobs.run (job, trigger, state, outcome, started_at, finished_at)"
            " VALUES ('gib_sync', 'hand', 'finished', 'held', now(), now())"
        )
        await conn.execute(
            "INSERT INTO feed.hold (id, job, source, datasets, params, runs, preview)"
            " VALUES (1, 'gib_sync', 'gib', '{einvoice,edespatch}', '{}', '{1}', %s)",
            [Jsonb({})],
        )
        await conn.execute(
            "INSERT INTO feed.held_input (run, name, path, sha256, size, machine)"
            " SELECT 1, name, name, '', 0, 'attic-1' FROM unnest(ARRAY['PK', 'GB']) AS name"
        )


async def newest(store: Store) -> AuditRecord:
    [record] = await list_audit(store, limit=1)
    return record


def summarise(record: AuditRecord) -> tuple[str, str, str]:
    return record.action, record.object, record.outcome


# That nothing is missing


async def test_every_route_that_changes_state_is_recorded(settings: Settings, store: Store) -> None:
    """A route with another method than GET is audited, or listed above with a reason."""
    names = {one.name for source in all_sources() for one in source.datasets}
    found = {}
    for route in iter_route_contexts(complete_app(settings, store).routes):
        if not (route.methods or set()) - {"GET", "HEAD"}:
            continue
        dependencies = [one.dependency for one in route.dependencies]
        codes = [one.audit_action for one in dependencies if hasattr(one, "audit_action")]
        path = str(route.path_format)
        for name in names:
            path = path.replace(f"/api/v1/{name}/", "/api/v1/{dataset}/")
        found[path] = codes
    listed = READ_ONLY_ROUTES.keys() | OWN_RECORD
    assert {path for path, codes in found.items() if not codes} == listed
    assert {code for codes in found.values() for code in codes} <= _codes()


async def test_every_form_of_a_page_has_a_code_and_every_code_a_text() -> None:
    site = build_site(all_sources())
    assert {form.audit for form in site.actions} <= _codes()
    assert _codes() == site.labels["action"].keys()


def _codes() -> set[str]:
    return {*ACTIONS, *(code for source in all_sources() for code in source.actions)}


async def test_every_tool_that_operates_has_a_code(settings: Settings, store: Store) -> None:
    shop = ToolContext(store, settings, build_catalogue(settings))
    assistant = ToolServers(shop, all_sources())
    reading, operating = [
        {tool.name for tool in await server.list_tools()} for server in assistant.servers
    ]
    assert assistant.operating.audited == operating - reading

    async def change() -> Any: ...

    with pytest.raises(ValueError, match="audit code"):
        Tool(change, "operate")


def commands() -> set[str]:
    root = typer.main.get_command(command_line)
    assert isinstance(root, TyperGroup)
    return set(_below(root, ""))


def _below(group: TyperGroup, path: str) -> list[str]:
    context = typer.Context(group)
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = isinstance(command, TyperGroup)
        found += _below(command, f"{path}{name} ") if inner else [f"{path}{name}"]
    return found


def test_every_command_is_recorded_or_listed_as_one_that_changes_nothing() -> None:
    parts = [set(RECORDED_COMMANDS), READ_ONLY_COMMANDS, set(NO_STATE_OF_THE_DATABASE)]
    assert set.union(*parts) == commands()
    assert sum(map(len, parts)) == len(commands())


def call(database: ThrowAwayDatabase, home: Path, *words: str) -> Result:
    environ = {"HASAT_HOME": str(home), "HASAT_DATABASE_URL": database.url}
    return CliRunner().invoke(command_line, words, env=environ)


@pytest.mark.parametrize("command", sorted(RECORDED_COMMANDS))
def test_each_command_that_changes_state_leaves_a_record(
    command: str,
    database: ThrowAwayDatabase,
    tmp_path: Path,
    background: Any,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("workers.json").write_text('{"api_key": "k", "workers": ["http://127.0.0.1:9"]}')

    async def no_scan(*_args: Any, **_options: Any) -> Any:
        raise ConflictError("No endpoint is asked in this test.")

    monkeypatch.setattr("hasat.sources.tkgm.commands.scan.run_scan", no_scan)

    async def prepare() -> None:
        async with open_store(settings, source_migrations()) as store:
            await hold(store)

    background.call(prepare)
    words, expected = RECORDED_COMMANDS[command]
    call(database, tmp_path, *command.split(), *words)
    listed = call(database, tmp_path, "audit", "--json")
    records = json.loads(listed.stdout)
    any_name = any(name == "*" for _, name, _ in expected)
    found = [(one["action"], "*" if any_name else one["object"], one["outcome"]) for one in records]
    assert found == list(expected), records
    assert {(one["actor"], one["actorKind"], one["address"]) for one in records} == {
        (ME, "cli", socket.gethostname())
    }
    assert {one["reason"] for one in records} == {"why" if "--reason" in words else None}


# What a record says


async def test_the_api_records_who_from_where_what_and_why(
    guarded: httpx2.AsyncClient, store: Store
) -> None:
    key, token = await create_key(store, "ops", "operate")
    bearer = {"Authorization": f"Bearer {token}"}
    body = {"params": {}, "reason": "after the outage"}
    queued = await guarded.post("/api/v1/jobs/housekeeping/runs", json=body, headers=bearer)
    assert queued.status_code == 202, queued.text
    page = (await guarded.get("/api/v1/audit", headers=bearer)).json()
    assert page["next"] is None
    [record] = page["records"]
    assert record.pop("at") is not None
    assert record == {
        "id": record["id"],
        "actor": "ops",
        "actorKind": "key",
        "address": "127.0.0.1",
        "action": "run.queue",
        "object": str(queued.json()["id"]),
        "reason": "after the outage",
        "outcome": "done",
        "detail": {
            "caller": f"key:{key.id}",
            "job": "housekeeping",
            "params": {},
            "path": "/api/v1/jobs/housekeeping/runs",
        },
    }


async def test_what_is_refused_is_recorded_too(guarded: httpx2.AsyncClient, store: Store) -> None:
    _, reads = await create_key(store, "grafana")
    _, operates = await create_key(store, "ops", "operate")
    path = "/api/v1/jobs/no_such_job/runs"
    for token, status, code in ((reads, 403, "not-allowed"), (operates, 404, "not-found")):
        response = await guarded.post(path, headers={"Authorization": f"Bearer {token}"})
        assert response.status_code == status
        record = await newest(store)
        assert summarise(record) == ("run.queue", "no_such_job", "refused")
        assert record.detail["error"] == code
    wrong = await guarded.post(
        "/api/v1/jobs/housekeeping/runs",
        json={"parms": 1},
        headers={"Authorization": f"Bearer {operates}"},
    )
    assert wrong.status_code == 422
    assert (await newest(store)).outcome == "refused"


async def test_each_route_is_recorded_once(client: httpx2.AsyncClient, store: Store) -> None:
    for path, expected in (
        ("/api/v1/quota/football/reopen", ("quota.reopen", "football", "done")),
        ("/api/v1/dead-letters/replay", ("delivery.replay", "all", "done")),
        ("/api/v1/deliveries/7/replay", ("delivery.replay", "7", "refused")),
    ):
        # A budget is known once it was read.
        await client.get("/api/v1/quota")
        before = len(await list_audit(store))
        await client.post(path)
        assert summarise(await newest(store)) == expected
        assert len(await list_audit(store)) == before + 1
        assert (await newest(store)).actor_kind == "local"


async def test_only_who_may_operate_reads_the_record(
    guarded: httpx2.AsyncClient, store: Store
) -> None:
    _, token = await create_key(store, "grafana")
    bearer = {"Authorization": f"Bearer {token}"}
    for path in ("/api/v1/audit", "/audit", "/audit.json"):
        assert (await guarded.get(path)).status_code == 401, path
        assert (await guarded.get(path, headers=bearer)).status_code == 403, path
    assert 'href="/audit"' not in (await guarded.get("/quota", headers=bearer | OWN)).text


async def test_the_list_is_filtered_and_paged(client: httpx2.AsyncClient, store: Store) -> None:
    for number in range(5):
        for actor, action in ((OPS, "run.stop"), (Actor("ali", "cli", "attic"), "key.create")):
            async with audited(store, actor, action, number):
                pass
    seen: list[str] = []
    query = "actor=ops&action=run&limit=2"
    path: str | None = f"/api/v1/audit?{query}"
    while path:
        page = (await client.get(path)).json()
        assert {(one["actor"], one["action"]) for one in page["records"]} == {("ops", "run.stop")}
        seen += [one["object"] for one in page["records"]]
        path = page["next"] and f"/api/v1/audit?{query}&before={page['next']}"
    assert seen == ["4", "3", "2", "1", "0"]
    assert (await client.get("/api/v1/audit?action=ru")).json()["records"] == []
    unknown = await client.get("/api/v1/audit?actr=ops")
    assert (unknown.status_code, unknown.json()["code"]) == (400, "unknown-parameter")


async def test_an_approval_is_recorded_as_one_whichever_way_it_is_given(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await hold(store)
    page = (await client.get("/runs/1", headers=OWN)).text
    assert 'formaction="/runs/1/approve"' in page
    decided = await client.post("/runs/1/approve", data={"reason": "checked"}, headers=OWN)
    assert decided.status_code == 303
    record = await newest(store)
    assert (*summarise(record), record.reason) == ("hold.approve", "1", "done", "checked")
    run = int(decided.headers["location"].rpartition("/")[2])
    assert record.detail["run"] == run
    await client.post(f"/runs/{run}/stop", headers=OWN)
    assert summarise(await newest(store)) == ("run.stop", str(run), "done")
    await client.post("/api/v1/holds/1/approve")
    assert summarise(await newest(store)) == ("hold.approve", "1", "done")
    await client.post("/runs/1/reject", data={"reason": "half a list"}, headers=OWN)
    record = await newest(store)
    assert (*summarise(record), record.reason) == ("hold.reject", "1", "done", "half a list")
    await client.post("/runs/1/reject", headers=OWN)
    assert summarise(await newest(store)) == ("hold.reject", "1", "refused")


async def test_logins_and_logouts_are_recorded_without_the_key(
    guarded: httpx2.AsyncClient, store: Store
) -> None:
    key, token = await create_key(store, "ops", "operate")
    wrong = f"{token[:-4]}aaaa"
    for given in (wrong, "nonsense"):
        failed = await guarded.post("/login", data={"key": given}, headers=OWN)
        assert failed.status_code == 401
        record = await newest(store)
        assert (*summarise(record), record.actor_kind) == ("login", "", "refused", "anonymous")
        assert given not in str(record)
    entered = await guarded.post("/login", data={"key": token}, headers=OWN)
    record = await newest(store)
    assert (record.action, record.outcome) == ("login", "done")
    assert (record.actor, record.actor_kind, record.address) == ("ops", "login", "127.0.0.1")
    assert record.detail["key"] == key.id
    assert token not in str(record)
    cookies = {"Cookie": entered.headers["set-cookie"].partition(";")[0]}
    await guarded.post("/runs", data={"job": "housekeeping"}, headers=OWN | cookies)
    acted = await newest(store)
    assert (acted.action, acted.actor, acted.actor_kind) == ("run.queue", "ops", "login")
    await guarded.post("/logout", headers=OWN | cookies)
    left = await newest(store)
    assert (left.action, left.actor, left.object) == ("logout", "ops", record.object)
    await guarded.post("/logout", headers=OWN | cookies)
    assert (await newest(store)).id == left.id, "no login was ended"


async def test_a_flood_of_wrong_keys_does_not_bury_the_other_records(
    guarded: httpx2.AsyncClient, store: Store
) -> None:
    _, token = await create_key(store, "ops", "operate")
    for number in range(MAX_REFUSALS_PER_MINUTE + 20):
        failed = await guarded.post("/login", data={"key": f"hsk_guess_{number}"}, headers=OWN)
        assert failed.status_code == 401
    refused = await list_audit(store, action="login", limit=1000)
    assert MAX_REFUSALS_PER_MINUTE <= len(refused) < MAX_REFUSALS_PER_MINUTE + 20
    await guarded.post("/login", data={"key": token}, headers=OWN)
    assert summarise(await newest(store))[::2] == ("login", "done")


async def test_the_page_shows_filters_and_pages(client: httpx2.AsyncClient, store: Store) -> None:
    for number in range(60):
        async with audited(store, OPS, "run.stop", number + 1, reason="<i>why</i>"):
            pass
    await client.post("/runs", data={"job": "no_such_job"}, headers=OWN)
    english = (await client.get("/audit", headers=OWN)).text
    assert "<h1>Audit log</h1>" in english
    assert "There is no job named" in english
    assert "&lt;i&gt;why&lt;/i&gt;" in english
    assert 'href="/runs/60"' in english
    assert 'href="/audit"' in english
    turkish = (await client.get("/audit", headers={**OWN, "Accept-Language": "tr"})).text
    assert "<h1>Denetim kaydı</h1>" in turkish
    assert "Çalıştırmayı durdur" in turkish
    first = (await client.get("/audit.json?actor=ops&action=run.stop")).json()
    assert (len(first["records"]), first["actor"]) == (50, "ops")
    older = first["olderThan"]
    second = (await client.get(f"/audit.json?actor=ops&before={older}")).json()
    assert (len(second["records"]), second["olderThan"]) == (10, None)
    assert "No action matches." in (await client.get("/audit?actor=nobody", headers=OWN)).text


async def test_tools_record_who_calls_them(settings: Settings, store: Store) -> None:
    await hold(store)
    shop = ToolContext(store, settings, build_catalogue(settings))
    assistant = ToolServers(shop, all_sources())
    async with Client(assistant.operating) as client:
        answer = await client.call_tool("run_job", {"job_name": "housekeeping"})
        assert not answer.is_error, answer.content
        record = await newest(store)
        assert summarise(record) == ("run.queue", "2", "done")
        assert (record.actor, record.actor_kind) == (ME, "mcp")
        assert record.detail["tool"] == "run_job"
        await client.call_tool("reject_hold", {"run_id": 1, "reason": "half a list"})
        record = await newest(store)
        assert (*summarise(record), record.reason) == ("hold.reject", "1", "done", "half a list")
        for tool, arguments, code in (
            ("stop_run", {"run_id": 99}, "not-found"),
            ("stop_run", {"run_id": "x"}, "bad-request"),
            ("stop_run", {"run": 99}, "bad-request"),
        ):
            assert (await client.call_tool(tool, arguments)).is_error
            record = await newest(store)
            assert (record.action, record.outcome) == ("run.stop", "refused")
            assert record.detail["error"] == code
    async with Client(assistant.reading) as client:
        assert (await client.call_tool("stop_run", {"run_id": 2})).is_error
        record = await newest(store)
        assert (*summarise(record), record.detail["error"]) == (
            "run.stop",
            "2",
            "refused",
            "not-allowed",
        )
    before = len(await list_audit(store))
    async with Client(assistant.reading) as client:
        await client.call_tool("get_job_status", {})
    assert len(await list_audit(store)) == before


# How it is written


async def test_change_and_record_are_one_transaction(store: Store) -> None:
    """A change that is rolled back leaves the record of a failure, never that of a success."""
    with pytest.raises(ConflictError):
        async with audited(store, OPS, "run.queue", "a"), store.connection() as conn:
            await record_action(conn, "b")
            raise ConflictError("No.")
    assert [summarise(one) for one in await list_audit(store)] == [("run.queue", "b", "refused")]
    with pytest.raises(UnavailableError):
        async with audited(store, OPS, "run.queue", "c"):
            async with store.connection() as conn:
                await record_action(conn, "d")
            # The change was committed: that it could not be shown afterwards does not undo it.
            raise UnavailableError("Later.")
    assert summarise(await newest(store)) == ("run.queue", "d", "done")
    with pytest.raises(ZeroDivisionError):
        async with audited(store, OPS, "run.queue", "e"):
            _ = 1 / 0
    record = await newest(store)
    assert (record.outcome, record.detail["error"]) == ("failed", "ZeroDivisionError")


async def test_what_nobody_asked_for_is_not_recorded(settings: Settings, store: Store) -> None:
    catalogue = build_catalogue(settings)
    await queue_run(store, catalogue, "housekeeping")
    assert await list_audit(store) == []
    async with audited(store, OPS, "run.start", "housekeeping"):
        run = await run_in_foreground(catalogue, store, settings, "housekeeping")
    assert [one.action for one in await list_audit(store)] == ["run.start"]
    assert run.id == int((await newest(store)).object)


async def test_secrets_and_what_cannot_be_stored_stay_out(store: Store) -> None:
    params = {
        "pk": "https://ali:hunter2@lists.example/a?token=hunter2&page=1",
        "n": float("nan"),
        "deep": [[[[[[1]]]]]],
        "many": list(range(1000)),
        "bad": "\0\ud800",
    }
    async with audited(store, OPS, "run.queue", "x" * 2000, reason="\0", params=params):
        pass
    record = await newest(store)
    assert "hunter2" not in str(record)
    assert len(record.object) == MAX_TEXT
    assert record.detail["params"]["bad"] == "?"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE jobs.audit SET actor = 'nobody'",
        "DELETE FROM jobs.audit",
        "TRUNCATE jobs.audit",
        "SELECT set_config('hasat.audit_retention', 'on', true); DELETE FROM jobs.audit",
    ],
)
async def test_records_are_append_only(store: Store, statement: str) -> None:
    async with audited(store, OPS, "run.stop", 1):
        pass
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="append-only"):
        async with store.connection() as conn:
            await conn.execute(statement.encode())
    assert summarise(await newest(store)) == ("run.stop", "1", "done")


async def test_housekeeping_deletes_what_is_past_its_retention(
    settings: Settings, store: Store
) -> None:
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO jobs.audit (token, at, actor, actor_kind, address, action, outcome)"
            " SELECT gen_random_uuid(), now() - make_interval(days => age), 'ops', 'key', '-',"
            " 'run.stop', 'done' FROM unnest(ARRAY[800, 731, 729, 1]) AS age"
        )
    run = await run_in_foreground(build_catalogue(settings), store, settings, "housekeeping")
    assert run.detail["forget_audit"] == 2
    async with store.connection() as conn:
        # Whatever is asked for, 30 days stay.
        await conn.execute("SELECT jobs.forget_audit(-1000000)")
    assert len(await list_audit(store)) == 1


def test_a_restore_is_recorded_and_loses_no_record(
    database: ThrowAwayDatabase, tmp_path: Path
) -> None:
    assert call(database, tmp_path, "keys", "create", "before").exit_code == 0
    backup = str(tmp_path / "monday.dump")
    assert call(database, tmp_path, "db", "backup", backup).exit_code == 0
    assert call(database, tmp_path, "keys", "create", "after").exit_code == 0
    assert call(database, tmp_path, "db", "restore", backup).exit_code == 1, "without --yes"
    assert call(database, tmp_path, "db", "restore", backup, "--yes").exit_code == 0
    records = json.loads(call(database, tmp_path, "audit", "--json").stdout)
    found = [(one["action"], one["outcome"], one["detail"].get("name")) for one in records]
    assert found == [
        ("database.restore", "done", None),
        ("database.restore", "refused", None),
        ("key.create", "done", "after"),
        ("key.create", "done", "before"),
    ]


async def test_a_restored_database_gets_the_records_that_its_backup_lacks(store: Store) -> None:
    for number in range(2):
        async with audited(store, OPS, "run.stop", number):
            pass
    async with store.connection() as conn:
        records = await read_all(conn)
    newer = {**records[1], "token": "00000000-0000-4000-8000-000000000001", "object": "2"}
    await carry_over(store, [*records, newer])
    assert [one.object for one in await list_audit(store)] == ["2", "1", "0"]
