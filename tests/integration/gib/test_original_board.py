"""The Grafana board of the original service finds every metric and label here.

The expressions are those of its 25 panels. Panels about the .NET runtime have no counterpart.
"""

import re
from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from hasat.api.app import create_app
from hasat.api.keys import create_key
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.sources.gib.source import GIB
from hasat.sources.gib.sync.sync import synchronise
from hasat.store import MigrationSet, Store
from hasat.testing.http import app_client

pytestmark = pytest.mark.anyio

# Metric, labels that a panel selects or groups by, and values that a panel selects.
USED: dict[str, dict[str, tuple[str, ...]]] = {
    "gibuserlist_queries_total": {"type": (), "document_type": ("einvoice", "edespatch")},
    "gibuserlist_queries_errors_total": {},
    "gibuserlist_queries_duration_milliseconds_sum": {},
    "gibuserlist_queries_duration_milliseconds_count": {},
    "gibuserlist_queries_duration_milliseconds_bucket": {
        "le": ("+Inf",),
        "type": ("identifier", "search", "batch"),
    },
    "gibuserlist_sync_last_duration_seconds": {},
    "gibuserlist_cache_hits_total": {},
    "gibuserlist_cache_misses_total": {},
    "gibuserlist_process_uptime_seconds": {},
    "gibuserlist_users_einvoice_count": {},
    "gibuserlist_users_edespatch_count": {},
    "gibuserlist_mv_refresh_duration_seconds_bucket": {"le": ("+Inf",)},
    "gibuserlist_mv_refresh_errors_total": {},
    "gibuserlist_sync_changes_total": {"change_type": ("added", "modified", "removed")},
    "gibuserlist_sync_removal_skipped_total": {},
    "gibuserlist_auth_requests_total": {
        "client": ("reader",),
        "status": ("success", "failure"),
        "reason": (),
    },
    "http_server_request_duration_seconds_count": {
        "http_response_status_code": ("200", "404"),
        "http_route": ("/api/v1/einvoice/{identifier}",),
    },
    "http_server_request_duration_seconds_bucket": {"le": ("+Inf",)},
    "http_server_active_requests": {},
    "process_resident_memory_bytes": {},
    "process_virtual_memory_bytes": {},
    # Not on the board, but documented by the original.
    "gibuserlist_sync_total": {"status": ("success",)},
    "gibuserlist_sync_duration_seconds_bucket": {"le": ("+Inf",)},
    "gibuserlist_sync_users_processed_total": {"list_type": ("pk", "gb")},
    "gibuserlist_sync_active": {},
    "gibuserlist_sync_last_sync_at_unix": {},
}
USER = """<UserList><User><Identifier>1234567890</Identifier><Title>A</Title><Type>OZEL</Type>
<FirstCreationTime>2019-05-01T10:00:00</FirstCreationTime><Documents><Document type="Invoice">
<Alias><Name>urn:mail:a@b.tr</Name><CreationTime>2019-05-01T10:00:00</CreationTime></Alias>
</Document></Documents></User></UserList>"""


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return [MigrationSet("gib", files("hasat.sources.gib") / "migrations")]


@pytest.fixture
async def client(
    settings: Settings, store: Store, tmp_path: Path
) -> AsyncIterator[httpx2.AsyncClient]:
    paths = {box: tmp_path / f"{box}.xml" for box in ("PK", "GB")}
    for path in paths.values():
        path.write_text(USER, "utf-8")
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO jobs.run (job, trigger, queued_at, started_at, finished_at, state,"
            " outcome, detail) VALUES ('gib_sync', 'hand', now(), now(), now(), 'finished',"
            ' \'done\', \'{"seconds": 7.5, "lists": {"pk": {"users": 1}}}\')'
        )
    await synchronise(store, settings, paths, run=1)
    section = settings.authentication.model_copy(update={"enabled": True})
    settings = settings.model_copy(update={"authentication": section})
    app: FastAPI = create_app(settings, store, Catalogue.of([], settings), [GIB])
    async with app_client(app) as client:
        yield client


async def test_the_board_of_the_original_finds_its_metrics(
    client: httpx2.AsyncClient, store: Store
) -> None:
    _, token = await create_key(store, "reader")
    known = {"Authorization": f"Bearer {token}"}
    for path in ("/1234567890", "/1234567890", "/9999999999", "?search=a", ""):
        await client.get(f"/api/v1/einvoice{path}", headers=known)
    batch = {"identifiers": ["1234567890"]}
    await client.post("/api/v1/edespatch/batch", headers=known, json=batch)
    await client.get("/api/v1/einvoice/1234567890")
    text = (await client.get("/metrics")).text
    samples = [
        sample for family in text_string_to_metric_families(text) for sample in family.samples
    ]
    for name, labels in USED.items():
        found = [sample for sample in samples if sample.name == name]
        assert found, name
        for label, values in labels.items():
            assert all(label in sample.labels for sample in found), (name, label)
            assert set(values) <= {sample.labels[label] for sample in found}, (name, label)
    counted = {
        (sample.labels["type"], sample.labels["document_type"]): sample.value
        for sample in samples
        if sample.name == "gibuserlist_queries_total"
    }
    expected = {("identifier", "einvoice"): 3, ("search", "einvoice"): 2, ("batch", "edespatch"): 1}
    assert counted == {key: expected.get(key, 0) for key in counted}
    assert expected.keys() <= counted.keys()
    logins = {
        (sample.labels["client"], sample.labels["status"], sample.labels["reason"]): sample.value
        for sample in samples
        if sample.name == "gibuserlist_auth_requests_total"
    }
    assert logins == {
        ("reader", "success", ""): 6,
        ("anonymous", "failure", "not-known"): 1,
    }
    within = [s for s in samples if s.name == "gibuserlist_sync_duration_seconds_bucket"]
    assert [s.value for s in within][:2] == [0, 1]


async def test_histograms_are_cumulative(client: httpx2.AsyncClient) -> None:
    await client.get("/api/v1/einvoice/1234567890")
    text = (await client.get("/metrics")).text
    for family in text_string_to_metric_families(text):
        series: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                rest = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
                bound = (float(sample.labels["le"]), sample.value)
                series.setdefault(rest, []).append(bound)
        for bounds in series.values():
            assert bounds == sorted(bounds), family.name
            assert [n for _, n in bounds] == sorted(n for _, n in bounds), family.name
    names = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert len(names) == len(set(names))
