"""HTTP routes of taxpayers, in the original service's form."""

from collections.abc import AsyncIterator
from importlib.resources import files
from pathlib import Path

import httpx2
import pytest

from hasat.api.app import create_app
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.sources.gib.settings import GibSettings
from hasat.sources.gib.source import GIB
from hasat.sources.gib.sync.sync import synchronise
from hasat.store import MigrationSet, Store
from hasat.testing.http import app_client, undocumented_operations

pytestmark = pytest.mark.anyio

MIGRATIONS = [MigrationSet("gib", files("hasat.sources.gib") / "migrations")]
USER = """<User><Identifier>{id}</Identifier><Title>{title}</Title><Type>OZEL</Type>
<FirstCreationTime>2019-05-01T10:00:00</FirstCreationTime><Documents><Document type="Invoice">
<Alias><Name> urn:mail:pk@{id}.tr</Name><CreationTime>2019-05-01T10:00:00</CreationTime></Alias>
</Document></Documents></User>"""


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return MIGRATIONS


def _write(folder: Path, *titles: str) -> dict[str, Path]:
    users = [USER.format(id=f"{1234567890 + n}", title=title) for n, title in enumerate(titles)]
    paths = {}
    for box in ("PK", "GB"):
        paths[box] = folder / f"{box}.xml"
        paths[box].write_text(f"<UserList>{''.join(users)}</UserList>", "utf-8")
    return paths


@pytest.fixture
async def client(
    settings: Settings, store: Store, tmp_path: Path
) -> AsyncIterator[httpx2.AsyncClient]:
    app = create_app(settings, store, Catalogue.of([], settings), [GIB])
    async with app_client(app) as client:
        for path in ("", "/1234567890", "/1234567890?asOf=2026-01-01", "/1234567890/history"):
            assert (await client.get(f"/api/v1/einvoice{path}")).status_code == 503
        lists = _write(tmp_path, "IŞIK A.Ş.", "ÇAĞ LTD")
        await synchronise(store, settings, lists, run=1)
        yield client


async def test_a_lookup_has_the_form_of_the_original(client: httpx2.AsyncClient) -> None:
    response = await client.get("/api/v1/einvoice/1234567890")
    assert response.status_code == 200
    assert response.headers["X-Last-Sync-At"]
    found = response.json()
    assert found["title"] == "IŞIK A.Ş."
    assert found["accountType"] is None
    assert found["aliases"] == [
        {"name": "urn:mail:pk@1234567890.tr", "type": box, "creationTime": "2019-05-01T10:00:00"}
        for box in ("GB", "PK")
    ]
    assert (found["identifierKind"], found["identifierValid"]) == ("VKN", True)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("einvoice/9999999999", 404, "not-a-taxpayer"),
        ("edespatch/1234567890", 404, "not-a-taxpayer"),
        ("einvoice/12345", 400, "malformed-identifier"),
        ("einvoice/12345/history", 400, "malformed-identifier"),
        ("einvoice/%20123456789", 400, "malformed-identifier"),
        ("einvoice/changes?only=12345", 400, "malformed-identifier"),
        ("einvoice/changes/stream?only=12345", 400, "malformed-identifier"),
        ("einvoce/1234567890", 404, "no-such-path"),
        ("1234567890", 404, "no-such-path"),
    ],
)
async def test_every_failed_lookup_has_a_code(
    client: httpx2.AsyncClient, path: str, status: int, code: str
) -> None:
    response = await client.get(f"/api/v1/{path}")
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert response.json()["type"] == f"/problems/{code}"


async def test_a_mangled_identifier_returns_the_likely_one(
    client: httpx2.AsyncClient,
) -> None:
    for path in ("einvoice/864387", "einvoice/864387/history", "einvoice/changes?only=864387"):
        problem = (await client.get(f"/api/v1/{path}")).json()
        assert problem["remedy"] == "Did you mean 0000864387?", path
    watched = {"only": ["1234567890", "864387"]}
    problem = (await client.post("/api/v1/einvoice/changes", json=watched)).json()
    assert problem["code"] == "malformed-identifier"


async def test_lookup_by_registration_time(client: httpx2.AsyncClient) -> None:
    path = "/api/v1/einvoice/1234567890?firstCreationTime="
    assert (await client.get(f"{path}2019-05-01T10:00:00")).status_code == 200
    before = await client.get(f"{path}2019-05-01 09:59:59", headers={"Accept-Language": "tr"})
    assert before.status_code == 404
    assert before.json()["detail"] == (
        "1234567890, o tarihte einvoice için etkin bir mükellef değildi."
    )
    assert (await client.get(f"{path}soon")).status_code == 400


async def test_batch_lookup(client: httpx2.AsyncClient) -> None:
    wanted = ["1234567891", "0000000000", "1234567890", "1234567891"]
    response = await client.post("/api/v1/einvoice/batch", json={"identifiers": wanted})
    found = response.json()
    assert [item["identifier"] for item in found["items"]] == ["1234567891", "1234567890"]
    assert found["notFound"] == ["0000000000"]
    assert (found["totalRequested"], found["totalFound"]) == (3, 2)
    assert found["malformed"] == []
    too_many = [f"{n:010d}" for n in range(1001)]
    rejected = await client.post("/api/v1/einvoice/batch", json={"identifiers": too_many})
    assert rejected.status_code == 400


async def test_batch_lookup_separates_malformed_from_not_found(
    client: httpx2.AsyncClient,
) -> None:
    wanted = ["864387", " 0000864387", "123456789", "1234567890", "9999999999", "", "x" * 500]
    response = await client.post("/api/v1/einvoice/batch", json={"identifiers": wanted})
    assert response.status_code == 200, response.text
    found = response.json()
    assert [item["identifier"] for item in found["items"]] == ["1234567890"]
    assert found["notFound"] == ["9999999999"]
    assert (found["totalRequested"], found["totalFound"]) == (7, 1)
    assert [(one["input"], one["likely"], one["likelyValid"]) for one in found["malformed"]] == [
        ("864387", "0000864387", False),
        (" 0000864387", "0000864387", False),
        ("123456789", "0123456789", True),
        ("", None, None),
        ("x" * 500, None, None),
    ]
    assert all(one["reason"] for one in found["malformed"])


async def test_a_search_has_the_form_of_the_original(client: httpx2.AsyncClient) -> None:
    response = await client.get("/api/v1/einvoice", params={"search": "ışık"})
    assert response.status_code == 200
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Last-Sync-At"]
    found = response.json()
    assert [item["title"] for item in found["items"]] == ["IŞIK A.Ş."]
    assert found["items"][0]["aliases"][0]["name"] == "urn:mail:pk@1234567890.tr"
    assert (found["totalCount"], found["page"], found["pageSize"]) == (1, 1, 20)
    everyone = (await client.get("/api/v1/einvoice", params={"pageSize": 1, "page": 2})).json()
    assert [item["title"] for item in everyone["items"]] == ["IŞIK A.Ş."]
    assert everyone["totalCount"] == 2
    by_alias = {"alias": "PK@1234567891.tr"}
    (holder,) = (await client.get("/api/v1/einvoice", params=by_alias)).json()["items"]
    assert holder["title"] == "ÇAĞ LTD"
    assert (await client.get("/api/v1/edespatch", params=by_alias)).json()["totalCount"] == 0


async def test_the_first_search_builds_the_index(client: httpx2.AsyncClient) -> None:
    async def is_ready() -> bool:
        (gib,) = (await client.get("/api/v1/status")).json()["sources"]
        ready: bool = gib["searchReady"]
        assert ready == (not gib["remarks"])
        return ready

    assert not await is_ready()
    first = (await client.get("/api/v1/einvoice", params={"search": "a"})).json()
    assert await is_ready()
    assert (await client.get("/api/v1/einvoice", params={"search": "a"})).json() == first


@pytest.mark.parametrize("query", ["search=" + "x" * 201, "pageSize=0", "pageSize=101", "page=0"])
async def test_a_search_beyond_the_limits_is_rejected(
    client: httpx2.AsyncClient, query: str
) -> None:
    assert (await client.get(f"/api/v1/einvoice?{query}")).status_code == 400


@pytest.mark.parametrize(
    "path",
    ["?search=%00", "?alias=a%00", "/changes?only=%00", "/%00/history", "?search=%ff", "/%00"],
)
async def test_characters_that_postgresql_cannot_store_are_a_client_error(
    client: httpx2.AsyncClient, path: str
) -> None:
    response = await client.get(f"/api/v1/einvoice{path}")
    assert response.status_code in {200, 400}, response.text
    headers = {"Content-Type": "application/json"}
    for route, field in (("batch", "identifiers"), ("changes", "only")):
        for letter in ("\\u0000", "\\ud800"):
            body = f'{{"{field}": ["{letter}"]}}'
            rejected = await client.post(f"/api/v1/einvoice/{route}", content=body, headers=headers)
            assert rejected.status_code == 400, body


async def test_lookup_at_a_given_time(
    client: httpx2.AsyncClient, store: Store, settings: Settings, tmp_path: Path
) -> None:
    path = "/api/v1/einvoice/1234567890"
    first = await client.get(path)
    lists = _write(tmp_path, "IŞIK HOLDİNG A.Ş.", "ÇAĞ LTD", "YENİ LTD")
    loose = {"max_modified_percent": 100.0, "max_added_percent": 100.0}
    gib = settings.section(GibSettings).model_copy(update=loose)
    await synchronise(store, settings.model_copy(update={"gib": gib}), lists, run=2)
    now = await client.get(path)
    known = {"If-None-Match": now.headers["ETag"]}
    assert (await client.get(path, headers=known)).status_code == 304
    assert now.headers["ETag"] != first.headers["ETag"]
    assert now.json()["title"] == "IŞIK HOLDİNG A.Ş."
    before = {"asOf": first.headers["X-Last-Sync-At"]}
    assert (await client.get(path, params=before)).json() == first.json()
    new = "/api/v1/einvoice/1234567892"
    assert (await client.get(new)).status_code == 200
    assert (await client.get(new, params=before)).status_code == 404
    long_ago = await client.get(path, params={"asOf": "2001-01-01"})
    assert (long_ago.status_code, long_ago.json()["code"]) == (410, "feed-expired")
    assert (await client.get(path, params={"asOf": "then"})).status_code == 400
    (story,) = (await client.get(f"{path}/history")).json()["history"]
    assert (story["before"]["title"], story["after"]["title"], story["fields"]) == (
        "IŞIK A.Ş.",
        "IŞIK HOLDİNG A.Ş.",
        ["title"],
    )


async def test_the_original_metrics_are_exposed(client: httpx2.AsyncClient) -> None:
    def value(text: str, name: str) -> float:
        (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
        return float(line.split()[1])

    lookups = 'gibuserlist_queries_total{document_type="einvoice",type="identifier"}'
    before = value((await client.get("/metrics")).text, lookups)
    await client.get("/api/v1/einvoice/1234567890")
    metrics = (await client.get("/metrics")).text
    assert value(metrics, lookups) == before + 1
    assert value(metrics, "gibuserlist_users_einvoice_count") == 2
    assert value(metrics, "gibuserlist_users_edespatch_count") == 0
    assert value(metrics, "gibuserlist_sync_last_sync_at_unix") > 1.7e9
    assert 'gibuserlist_sync_changes_total{change_type="removed"} 0.0' in metrics


async def test_status_and_health_include_the_lists(client: httpx2.AsyncClient) -> None:
    status = (await client.get("/api/v1/status")).json()
    assert (status["eInvoiceUserCount"], status["eDespatchUserCount"]) == (2, 0)
    assert status["lastSyncAt"]
    assert [source["name"] for source in status["sources"]] == ["gib"]
    health = (await client.get("/health")).json()
    assert health["checks"]["sync_freshness"]["status"] == "Healthy"


async def test_every_route_of_the_source_is_described(
    client: httpx2.AsyncClient, settings: Settings, store: Store
) -> None:
    assert (
        undocumented_operations(create_app(settings, store, Catalogue.of([], settings), [GIB]))
        == []
    )
    paths = (await client.get("/openapi.json")).json()["paths"]
    for dataset in ("einvoice", "edespatch"):
        suffixes = ("/changes", "/changes/stream", "/digest", "/{key}/history", "/batch", "")
        for suffix in (*suffixes, "/{identifier}"):
            assert f"/api/v1/{dataset}{suffix}" in paths
