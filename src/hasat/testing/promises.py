"""The promises of the platform as tests that every source passes.

from hasat.testing import conformance

class TestBank(conformance(SOURCE)):
    overrides = {"pause_seconds": 0}

The source must be installed, and have a simulator with settings or a part in the demo.
"""

import json
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
import typer.main
from psycopg import sql

from hasat.api.diagnostics import check_database
from hasat.errors import SettingsError
from hasat.feed.archive import write_archives
from hasat.feed.holds import get_hold, list_holds
from hasat.jobs import Run
from hasat.jobs.approvals import apply_hold
from hasat.messages import LANGUAGES
from hasat.replica import Replica
from hasat.settings import load_settings
from hasat.settings.reference import reference, shown_values
from hasat.settings.tree import Leaf, leaves
from hasat.source import Source, ToolContext
from hasat.source.installed import check_collisions, installed_sources
from hasat.source.parts import broken_parts
from hasat.testing.http import app_client, undocumented_operations
from hasat.testing.mirror import Mirror, open_mirror
from hasat.web.site import build_site

FORMATS = ("json", "ndjson", "csv", "xlsx", "parquet")
_BROWSER = {"Accept": "text/html"}
_UNEXPECTED = "The job stopped with an unexpected error"
_STEP_SECONDS = 120.0


def conformance(source: Source) -> "type[Conformance]":
    """Return the tests of a source, as a class to derive a test class from."""
    mark = [pytest.mark.anyio, pytest.mark.xdist_group(f"conformance of {source.name}")]
    return type("Conformance", (Conformance,), {"source": source, "pytestmark": mark})


class Conformance:
    """The promises; the tests of one class share a mirror and are executed in order."""

    source: ClassVar[Source]
    overrides: ClassVar[Mapping[str, Any]] = {}
    """Settings of the source for these tests, in addition to those for its simulator."""
    half_list: ClassVar[str] = "half-list"
    """The fault of the simulator that publishes far too few records."""
    half_list_params: ClassVar[Mapping[str, Any]] = {}
    """Parameters with which the jobs request lists again that they have already loaded."""

    @pytest.fixture(scope="class")
    @classmethod
    def anyio_backend(cls) -> str:
        return "asyncio"

    @pytest.fixture(scope="class")
    @classmethod
    async def mirror(
        cls, hasat_server_url: str, tmp_path_factory: pytest.TempPathFactory
    ) -> AsyncIterator[Mirror]:
        """The source with its first records."""
        folder = tmp_path_factory.mktemp(cls.source.name)
        async with open_mirror(cls.source, hasat_server_url, folder, cls.overrides) as mirror:
            await mirror.load()
            yield mirror

    @pytest.fixture
    async def empty_mirror(self, hasat_server_url: str, tmp_path: Path) -> AsyncIterator[Mirror]:
        """The source before its first run."""
        async with open_mirror(self.source, hasat_server_url, tmp_path, self.overrides) as mirror:
            yield mirror

    def test_it_is_installed(self) -> None:
        installed = installed_sources()
        assert self.source.name in {one.name for one in installed.sources}, installed.broken
        check_collisions(installed.sources)

    def test_every_part_can_be_loaded(self) -> None:
        assert broken_parts(self.source) == []

    def test_every_setting_is_documented(self) -> None:
        missing = [leaf.key for leaf in self._settings() if not leaf.field.description]
        assert missing == []
        page = reference()
        assert [leaf.key for leaf in self._settings() if leaf.names[0] not in page] == []

    def test_secrets_are_masked(self, tmp_path: Path) -> None:
        for leaf in self._settings():
            if not leaf.secret or leaf.shape != "text":
                continue
            token = secrets.token_hex(12)
            environ = {"HASAT_HOME": str(tmp_path), "HASAT_CONFIG": str(tmp_path)}
            try:
                settings = load_settings(environ={**environ, leaf.names[0]: token})
            except SettingsError:
                token = f"https://example.invalid/{token}"
                settings = load_settings(environ={**environ, leaf.names[0]: token})
            assert token in settings.secrets(), f"{leaf.key} is not masked in logs"
            shown = json.dumps(shown_values(settings), default=str)
            assert token not in shown + repr(settings), leaf.key

    def test_every_command_has_help(self) -> None:
        if self.source.commands is None:
            pytest.skip("the source has no commands")
        group = typer.main.get_group(self.source.commands())
        missing = [name for name, command in _commands(group, "") if not command.help]
        assert missing == []

    def test_every_action_is_labelled(self) -> None:
        pages = self.source.pages() if self.source.pages else None
        audited = [action.audit for action in pages.actions] if pages else []
        labels = build_site([self.source]).labels["action"]
        assert [code for code in audited if code not in labels] == []

    async def test_the_first_records_are_loaded(self, mirror: Mirror) -> None:
        assert mirror.first, "no run was started"
        assert [
            describe(run) for run in mirror.first if run.outcome not in ("done", "nothing")
        ] == []
        assert await mirror.records(), "no dataset has a record"

    async def test_every_request_has_a_grant(self, mirror: Mirror) -> None:
        assert 0 < mirror.requests <= await self._granted(mirror)

    async def test_its_routes_and_tools_are_documented(self, mirror: Mirror) -> None:
        pytest.importorskip("mcp", reason="the extra mcp is not installed")
        from hasat.mcp.server import ToolServers

        assert undocumented_operations(mirror.app()) == []
        context = ToolContext(mirror.store, mirror.settings, mirror.catalogue)
        servers = ToolServers(context, [self.source])
        tools = {tool.name: tool for tool in await servers.operating.list_tools()}
        own = [tool.run.__name__ for tool in self.source.tools(context)]
        assert [name for name in own if not tools[name].description] == []

    async def test_every_dataset_is_served_in_every_format(self, mirror: Mirror) -> None:
        app = mirror.app()
        paths = app.openapi()["paths"]
        async with app_client(app) as client:
            for name in await mirror.records():
                changes = await client.get(f"/api/v1/{name}/changes")
                assert changes.status_code == 200, changes.text
                listed = paths.get(f"/api/v1/{name}", {}).get("get", {}).get("parameters", ())
                # The source may have a list of its own, with other formats.
                for form in FORMATS if "format" in {one["name"] for one in listed} else ():
                    path = f"/api/v1/{name}?format={form}&limit=5"
                    response = await client.get(path)
                    assert response.status_code == 200, f"{path}: {response.text}"
                    assert response.content, path

    async def test_its_pages_are_shown_in_every_language(self, mirror: Mirror) -> None:
        site = build_site([self.source])
        of_records = {address.partition("?")[0] for address in site.records.values()}
        own = self.source.pages().pages if self.source.pages else ()
        paths = [page.path for page in own if "{" not in page.path and page.path not in of_records]
        paths += ["/", "/quota", "/doctor"]
        for dataset in self.source.datasets:
            paths += [f"/{page}?dataset={dataset.name}" for page in ("changes", "records")]
            query = sql.SQL("SELECT min(key) FROM {}").format(dataset.table)
            if (key := await mirror.value(query)) is not None:
                paths.append(site.record_address(dataset.name, key))
        await self._check_pages(mirror, [*paths, *(f"/runs/{run.id}" for run in mirror.first)])

    async def test_it_is_healthy(self, mirror: Mirror) -> None:
        async with app_client(mirror.app()) as client:
            response = await client.get("/health")
            assert response.status_code == 200, response.text
            metrics = (await client.get("/metrics")).text
            assert f'hasat_source_configured{{source="{self.source.name}"}} 1.0' in metrics
        found = await check_database(mirror.store, mirror.settings, [self.source])
        assert [one for one in found if one.grade == "failure"] == []

    async def test_a_replica_is_equal(self, mirror: Mirror, tmp_path: Path) -> None:
        await self._archive(mirror)
        async with mirror.serve() as address:
            for name in await mirror.records():
                target = f"sqlite:///{tmp_path}/{name}.db"
                async with Replica(name, address, target, patience=60) as replica:
                    await replica.catch_up()
            mirror.simulation.clock.advance(_STEP_SECONDS)
            assert [describe(run) for run in await mirror.run_again() if is_broken(run)] == []
            for name, records in (await mirror.records()).items():
                target = f"sqlite:///{tmp_path}/{name}.db"
                async with Replica(name, address, target, patience=60) as replica:
                    report = await replica.verify()
                assert report.records == records

    async def test_a_rebuild_from_stored_responses_changes_nothing(self, mirror: Mirror) -> None:
        assert (await mirror.records()).keys() <= self.source.rebuilds.keys()
        before = await mirror.heads()
        for dataset, rebuild in self.source.rebuilds.values():
            summary = await rebuild(mirror.store, mirror.settings, dataset)
            assert {result.how for result in summary.datasets} == {"intact"}
        assert await mirror.heads() == before

    async def test_a_rebuild_restores_lost_and_damaged_records(self, mirror: Mirror) -> None:
        before = await mirror.heads()
        name, records = max((await mirror.records()).items(), key=lambda one: one[1])
        dataset, rebuild = self.source.rebuilds[name]
        for change in (
            "DELETE FROM {table} WHERE key = (SELECT min(key) FROM {table})",
            "UPDATE {table} SET body = '{{}}' WHERE key = (SELECT max(key) FROM {table})",
        ):
            async with mirror.store.connection() as conn:
                await conn.execute(sql.SQL(change).format(table=dataset.table))
        summary = await rebuild(mirror.store, mirror.settings, dataset)
        [result] = [one for one in summary.datasets if one.dataset == name]
        assert (result.how, result.records, result.repaired) == ("repaired", records, 2)
        assert await mirror.heads() == before

    async def test_a_spent_day_sends_no_request(self, mirror: Mirror) -> None:
        before = mirror.requests
        await self._exhaust(mirror, await mirror.store.now())
        runs = await mirror.run_again()
        await self._exhaust(mirror, None)
        assert [describe(run) for run in runs if is_unexpected(run)] == []
        assert mirror.requests == before

    async def test_half_a_list_is_held_and_applied_when_approved(self, mirror: Mirror) -> None:
        if self.half_list not in mirror.simulation.faults.known:
            pytest.skip(f"its simulator has no fault {self.half_list}")
        heads, records = await mirror.heads(), await mirror.records()
        mirror.simulation.faults.switch_on(self.half_list)
        runs = await mirror.run_again(**self.half_list_params)
        assert "held" in {run.outcome for run in runs}, [describe(run) for run in runs]
        assert await mirror.heads() == heads
        [hold] = await list_holds(mirror.store, state="waiting")
        await self._check_pages(mirror, ["/", f"/runs/{hold.id}"])
        applied = await apply_hold(mirror.store, mirror.settings, mirror.catalogue, hold.id)
        assert applied.outcome == "done", describe(applied)
        assert (await get_hold(mirror.store, hold.id)).state == "approved"
        now = await mirror.records()
        assert all(now.get(name, 0) < records[name] for name in hold.datasets)

    async def test_broken_responses_stop_nothing(self, empty_mirror: Mirror) -> None:
        empty_mirror.simulation.faults.switch_on("garbage", times=2)
        runs = await empty_mirror.load()
        empty_mirror.simulation.clock.advance(_STEP_SECONDS)
        runs += await empty_mirror.run_again()
        assert [describe(run) for run in runs if is_unexpected(run)] == []
        assert await empty_mirror.records(), "the job does not recover from a broken response"

    async def test_a_killed_run_is_continued(self, mirror: Mirror, empty_mirror: Mirror) -> None:
        half = mirror.first_requests // 2
        mirror = empty_mirror
        mirror.gate.close(after=half)
        await mirror.part.loading.start(mirror.store, mirror.settings, mirror.catalogue)
        worker = await mirror.start_worker()
        try:

            async def is_stopped() -> bool:
                assert worker.returncode is None, "the worker ended"
                return mirror.gate.stopped.is_set()

            await mirror.until(is_stopped)
        finally:
            worker.kill()
            await worker.wait()
        mirror.gate.open()
        await mirror.work_off()
        runs = await mirror.runs()
        assert [describe(run) for run in runs if run.outcome not in ("done", "nothing")] == []
        assert max(run.attempt for run in runs) > 1
        assert await mirror.records()
        assert mirror.requests <= await self._granted(mirror)

    async def _check_pages(self, mirror: Mirror, paths: Sequence[str]) -> None:
        async with app_client(mirror.app()) as client:
            for path in paths:
                for language in LANGUAGES:
                    headers = {**_BROWSER, "Accept-Language": language}
                    response = await client.get(path, headers=headers)
                    assert response.status_code == 200, f"{path}: {response.text[-2000:]}"

    def _settings(self) -> Iterator[Leaf]:
        return (one for one in leaves().values() if one.key.startswith(f"{self.source.name}."))

    async def _granted(self, mirror: Mirror) -> int:
        return int(await mirror.value("SELECT count(*) FROM budget.request"))

    async def _archive(self, mirror: Mirror) -> None:
        for dataset in self.source.datasets:
            if dataset.name in await mirror.records():
                await write_archives(mirror.store, mirror.settings, dataset)

    async def _exhaust(self, mirror: Mirror, at: datetime | None) -> None:
        """Close the day of every upstream, and make all watched keys due."""
        async with mirror.store.connection() as conn:
            await conn.execute("UPDATE budget.day SET exhausted_at = %s", [at])
            await conn.execute("UPDATE budget.endpoint_day SET exhausted_at = %s", [at])
            await conn.execute("UPDATE feed.watched_key SET attempted_at = NULL")


def is_broken(run: Run) -> bool:
    return run.outcome in ("failed", "set_aside", "interrupted")


def is_unexpected(run: Run) -> bool:
    """Return whether the job raised an error that says nothing to an operator."""
    return (run.message or "").startswith(_UNEXPECTED)


def describe(run: Run) -> str:
    return f"{run.job} {run.params}: {run.outcome}, {run.message or run.error}"


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield f"{prefix}{name}", command
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
