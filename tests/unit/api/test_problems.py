"""What leaves the server: problems with a code and a way on, headers on every answer, no internals.

The database is away in these tests: none of this may need it.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import httpx2
import psycopg
import pytest
from fastapi import APIRouter, Query
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse
from starlette.types import Message
from structlog.testing import capture_logs

from hasat.api.app import create_app
from hasat.api.problems import problem_types
from hasat.errors import DatabaseError, GoneError, HasatError, OutOfQuotaError
from hasat.http.routes import body_limit, declare_responses
from hasat.http.validation import describe_invalid
from hasat.jobs import Catalogue
from hasat.messages import is_translated, msg, translate
from hasat.settings import Settings, load_settings
from hasat.source import Source
from hasat.store import Store
from hasat.testing.http import app_client, undocumented_operations

pytestmark = pytest.mark.anyio

TOY = APIRouter()
SECRET_DETAIL = "the inner workings"


class Words(BaseModel):
    words: list[str]
    times: int = 1


@TOY.get("/toys/{number}", summary="A toy", responses=declare_responses({"number": 7}, GoneError))
async def toy(number: int, page: Annotated[int, Query(ge=1)] = 1) -> dict[str, int]:
    if number == 13:
        raise GoneError("Toy 13 was given away.", remedy="Take toy 14.")
    if number == 14:
        raise OutOfQuotaError("No toys before midnight.")
    return {"number": number, "page": page}


@TOY.get("/broken", summary="A fault", responses=declare_responses({}))
async def broken() -> None:
    raise RuntimeError(SECRET_DETAIL)


@TOY.get("/lost", summary="The database goes away", responses=declare_responses({}))
async def lost() -> None:
    raise psycopg.OperationalError(SECRET_DETAIL)


@TOY.get("/range", summary="An exception of the framework", responses=declare_responses({}))
async def unsatisfiable() -> None:
    raise HTTPException(416, "There are only 10 bytes.", headers={"Content-Range": "bytes */10"})


@TOY.get("/stream", summary="Half an answer, then a fault", responses=declare_responses("x"))
async def stream() -> StreamingResponse:
    async def parts() -> AsyncIterator[bytes]:
        yield b"first"
        raise RuntimeError(SECRET_DETAIL)

    return StreamingResponse(parts(), media_type="text/plain")


@TOY.get("/endless", summary="A stream without an end", responses=declare_responses("x"))
async def endless() -> StreamingResponse:
    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield b"more"

    return StreamingResponse(parts(), media_type="text/plain", headers={"X-Kind": "endless"})


@TOY.post("/words", summary="Take words", responses=declare_responses(1))
async def words(given: Words) -> int:
    return len(given.words)


@TOY.post("/words/many", summary="Take many words", responses=declare_responses(1))
@body_limit(3_000_000)
async def many_words(given: Words) -> int:
    return len(given.words)


@TOY.get("/kept", summary="May be cached", responses=declare_responses("x"))
async def kept() -> StreamingResponse:
    return StreamingResponse(
        iter([b"x"]), headers={"Cache-Control": "max-age=60", "Referrer-Policy": "no-referrer"}
    )


class StoreAway(Store):
    """A store whose database is never there."""

    def __init__(self) -> None:
        self.url = "postgresql://127.0.0.1:1/nowhere?connect_timeout=1"
        self.embedded = False
        self.reads = self

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[TupleRow]]:
        raise DatabaseError("PostgreSQL cannot be reached (toys on db.internal).", remedy="Wait.")
        yield


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(environ={"HASAT_HOME": str(tmp_path)})


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    source = Source("toys", "Toys", routers=lambda: (TOY,))
    app = create_app(settings, StoreAway(), Catalogue.of((), settings), (source,))
    async with app_client(app) as client:
        yield client


def problem(answer: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["cache-control"] == "no-store"
    body: dict[str, Any] = answer.json()
    assert body["type"] == f"/problems/{code}"
    assert body["code"] == code
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    assert body["instance"] == answer.request.url.path
    assert body["requestId"] == answer.headers["x-request-id"]
    return body


async def test_texts_come_in_the_language_that_the_client_accepts(
    client: httpx2.AsyncClient,
) -> None:
    for accepted, language in (("tr-TR, en;q=0.5", "tr"), ("de", "en")):
        answer = await client.get("/api/v1/problems", headers={"Accept-Language": accepted})
        body = problem(answer, 404, "no-such-path")
        assert answer.headers["content-language"] == language
        assert "Accept-Language" in answer.headers["vary"]
        assert body["params"] == {"path": "/api/v1/problems"}
        expected = msg("There is no operation at {path}.", path="/api/v1/problems")
        assert body["detail"] == translate(expected, language)


async def test_errors_keep_their_words(client: httpx2.AsyncClient) -> None:
    body = problem(await client.get("/api/v1/toys/13"), 410, "gone")
    assert (body["detail"], body["remedy"]) == ("Toy 13 was given away.", "Take toy 14.")
    problem(await client.get("/api/v1/toys/14"), 503, "out-of-quota")


async def test_what_does_not_exist(client: httpx2.AsyncClient) -> None:
    for path in ("/nothing", "/api/v1/nothing", "/api/v1/status/", "/"):
        problem(await client.get(path), 404, "no-such-path")
    problem(await client.get("/problems/nothing"), 404, "not-found")
    misspelt = problem(await client.get("/api/v1/tois/7"), 404, "no-such-path")
    assert misspelt["remedy"].startswith("Did you mean /api/v1/toys?")


async def test_every_route_names_its_methods(client: httpx2.AsyncClient) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    assert "/api/v1/words" in paths
    for template, operations in paths.items():
        path = template.replace("{number}", "1").replace("{code}", "gone")
        allowed = {method.upper() for method in operations}
        if "GET" in allowed:
            allowed.add("HEAD")
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - allowed:
            answer = await client.request(method, path)
            problem(answer, 405, "method-not-allowed")
            assert set(answer.headers["allow"].split(", ")) == allowed


async def test_values_that_cannot_be_used_are_listed_but_not_repeated(
    client: httpx2.AsyncClient,
) -> None:
    body = problem(await client.get("/api/v1/toys/seven?page=0"), 422, "invalid-input")
    assert {(entry["in"], entry["field"]) for entry in body["errors"]} == {
        ("path", "number"),
        ("query", "page"),
    }
    assert "seven" not in body["detail"]
    answer = await client.post("/api/v1/words", json={"words": ["a", 2], "times": "often"})
    body = problem(answer, 422, "invalid-input")
    assert [entry["field"] for entry in body["errors"]] == ["words.1", "times"]
    assert all(set(entry) == {"in", "field", "message"} for entry in body["errors"])


async def test_invalid_values_are_explained_in_the_language_of_the_caller(
    client: httpx2.AsyncClient,
) -> None:
    turkish = {"Accept-Language": "tr"}
    answer = await client.get("/api/v1/toys/seven?page=0", headers=turkish)
    body = problem(answer, 422, "invalid-input")
    assert body["detail"] == "path.number: Değer tam sayı olmalı; query.page: Değer en az 1 olmalı."
    answer = await client.post("/api/v1/words", content=b"{", headers=turkish)
    assert [entry["message"] for entry in problem(answer, 422, "invalid-input")["errors"]] == [
        "Değer bir nesne olmalı"
    ]


class Everything(BaseModel):
    """A field for each kind of value that requests have."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[str, Field(min_length=2, max_length=3, pattern="^a")]
    number: Annotated[int, Field(gt=1, lt=5)]
    share: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    flag: bool
    names: Annotated[list[str], Field(min_length=1, max_length=2)]
    words: dict[str, int]
    kind: Literal["a", "b"]
    day: date
    at: datetime
    id: UUID


WRONG: dict[str, list[Any]] = {
    "text": [1, "a", "aaaa", "bb"],
    "number": ["x", 1, 5, 2.5, "9" * 5000],
    "share": ["x", -1, 2, "inf"],
    "flag": ["x", []],
    "names": ["x", [], ["a"] * 3],
    "words": [[], {"a": "x"}],
    "kind": ["c"],
    "day": ["x", []],
    "at": ["x", []],
    "id": ["x", 1],
    "unknown": [1],
}


@pytest.mark.parametrize(("field", "value"), [(one, v) for one in WRONG for v in WRONG[one]])
def test_every_kind_of_invalid_value_has_a_translation(field: str, value: object) -> None:
    with pytest.raises(ValidationError) as raised:
        Everything.model_validate({field: value})
    for error in raised.value.errors():
        text = describe_invalid(error)
        assert is_translated(text, "tr"), text
        assert "{" not in translate(text, "tr")


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"", b"[1]", b'{"words": NaN}', b"null"])
async def test_a_body_that_is_not_what_was_asked_for(
    client: httpx2.AsyncClient, content: bytes
) -> None:
    answer = await client.post(
        "/api/v1/words", content=content, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code in {400, 422}
    problem(answer, answer.status_code, answer.json()["code"])


async def test_a_fault_of_ours_shows_nothing_but_an_id_that_is_in_the_log(
    client: httpx2.AsyncClient,
) -> None:
    with capture_logs() as logs:
        answer = await client.get("/api/v1/broken", headers={"X-Request-Id": "support-case-17"})
    body = problem(answer, 500, "unexpected")
    assert body["requestId"] == "support-case-17"
    assert "support-case-17" in body["detail"]
    assert SECRET_DETAIL not in answer.text
    (fault,) = [line for line in logs if line["log_level"] == "error"]
    assert SECRET_DETAIL in str(fault["exc_info"])


async def test_a_database_that_goes_away_in_the_middle_is_a_503(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.get("/api/v1/lost")
    problem(answer, 503, "database-unavailable")
    assert SECRET_DETAIL not in answer.text


async def test_an_exception_of_the_framework_keeps_its_headers(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/api/v1/range")
    problem(answer, 416, "http-416")
    assert answer.headers["content-range"] == "bytes */10"
    assert (await client.get("/problems/http-416")).json()["status"] == 416


async def test_without_a_database_probes_and_descriptions_are_served(
    client: httpx2.AsyncClient,
) -> None:
    for path in ("/healthz", "/openapi.json", "/docs", "/docs.css", "/problems", "/problems/gone"):
        assert (await client.get(path)).status_code == 200
    body = problem(await client.get("/readyz"), 503, "database-unavailable")
    assert body["remedy"] == "Wait."
    problem(await client.get("/api/v1/status"), 503, "database-unavailable")
    metrics = await client.get("/metrics")
    assert metrics.status_code == 200
    assert "hasat_database_up 0.0" in metrics.text
    assert 'hasat_http_requests_total{method="GET",route="/healthz",status="200"}' in metrics.text
    health = await client.get("/health")
    assert health.status_code == 503
    assert health.json()["status"] == "Unhealthy"
    assert "cannot be reached" in health.json()["checks"]["postgresql"]["description"]


async def test_every_kind_of_problem_can_be_looked_up(client: httpx2.AsyncClient) -> None:
    listed = (await client.get("/problems")).json()
    assert {"not-found", "gone", "key-expired", "unexpected"} <= {kind["code"] for kind in listed}
    for kind in listed:
        answer = await client.get(f"/problems/{kind['code']}")
        assert answer.json() == kind
        assert len(kind["meaning"].split()) > 3


async def test_a_kind_of_problem_that_a_source_defines_is_explained_too(
    client: httpx2.AsyncClient,
) -> None:
    class ToyLockedError(HasatError):
        """The toy is locked away until the weekend."""

        code = "toy-locked"

    answer = await client.get("/problems/toy-locked")
    assert answer.json()["meaning"] == ToyLockedError.__doc__
    assert "toy-locked" in problem_types()


# --- headers -----------------------------------------------------------------------------------

PINNED = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'",
    "referrer-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@pytest.mark.parametrize(
    "path",
    ["/healthz", "/docs", "/nothing", "/api/v1/toys/1", "/api/v1/toys/x", "/api/v1/broken"],
)
async def test_every_answer_is_dressed(client: httpx2.AsyncClient, path: str) -> None:
    with capture_logs():
        headers = (await client.get(path)).headers
    assert {name: headers.get(name) for name in PINNED} == PINNED
    assert len(headers["x-request-id"]) == 16


@pytest.mark.parametrize(
    ("address", "sent"),
    [
        ("http://192.0.2.10", None),
        ("https://192.0.2.10", "same-origin"),
        ("http://[::1]", "same-origin"),
    ],
)
async def test_what_browsers_refuse_on_plain_addresses_is_not_sent_there(
    client: httpx2.AsyncClient, address: str, sent: str | None
) -> None:
    headers = (await client.get(f"{address}/healthz")).headers
    assert headers.get("cross-origin-opener-policy") == sent
    assert headers["x-frame-options"] == "DENY"


async def test_what_a_route_says_about_itself_stays(client: httpx2.AsyncClient) -> None:
    headers = (await client.get("/api/v1/kept")).headers
    assert headers["cache-control"] == "max-age=60"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize("sane", ["0f8e2c1d9ab34e57", "support-case-17", "a.b_c-" + "d" * 50])
async def test_a_sane_request_id_is_kept(client: httpx2.AsyncClient, sane: str) -> None:
    answer = await client.get("/healthz", headers={"X-Request-Id": sane})
    assert answer.headers["x-request-id"] == sane


@pytest.mark.parametrize(
    "odd", ["short", "x" * 65, "two words long", "<script>alert(1)", "e=mc2 \t"]
)
async def test_an_odd_request_id_is_replaced(client: httpx2.AsyncClient, odd: str) -> None:
    answer = await client.get("/healthz", headers={"X-Request-Id": odd})
    assert answer.headers["x-request-id"] != odd


async def test_the_page_loads_nothing_from_elsewhere(client: httpx2.AsyncClient) -> None:
    page = (await client.get("/docs")).text
    assert "/api/v1/toys/{number}" in page
    assert "://" not in page
    assert "<script" not in page
    assert "style=" not in page


# --- shape of requests ---------------------------------------------------------------------------


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_that_is_too_large_is_refused(
    client: httpx2.AsyncClient, announced: bool
) -> None:
    body = json.dumps({"words": ["x" * 1_100_000]}).encode()
    assert (await _post(client, "/api/v1/words/many", body, announced)).json() == 1
    problem(await _post(client, "/api/v1/words", body, announced), 413, "body-too-large")
    body = json.dumps({"words": ["x" * 3_100_000]}).encode()
    problem(await _post(client, "/api/v1/words/many", body, announced), 413, "body-too-large")


async def _post(
    client: httpx2.AsyncClient, path: str, body: bytes, announced: bool
) -> httpx2.Response:
    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 65_536):
            yield body[start : start + 65_536]

    content = body if announced else parts()
    headers = {"Content-Type": "application/json"}
    return await client.post(path, content=content, headers=headers)


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/toys/1", "/api/v1/endless", "/nothing"])
async def test_head_has_the_headers_of_get_and_no_body(
    client: httpx2.AsyncClient, path: str
) -> None:
    head = await client.head(path)
    assert head.content == b""
    if path == "/api/v1/endless":
        assert head.headers["x-kind"] == "endless"
    else:
        get = await client.get(path)
        assert head.status_code == get.status_code
        if get.status_code == 200:
            assert head.headers["content-length"] == get.headers["content-length"]


async def test_a_fault_in_the_middle_of_a_stream_leaves_it_unfinished(settings: Settings) -> None:
    source = Source("toys", "Toys", routers=lambda: (TOY,))
    app = create_app(settings, StoreAway(), Catalogue.of((), settings), (source,))
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"spec_version": "2.4"},
        "method": "GET",
        "path": "/api/v1/stream",
        "raw_path": b"/api/v1/stream",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "client": ("127.0.0.1", 1),
    }
    with capture_logs() as logs:
        await app(scope, receive, send)
    assert [line["event"] for line in logs] == ["request.failed", "request"]
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[-1]["more_body"] is True


async def test_websockets_are_turned_away(settings: Settings) -> None:
    app = create_app(settings, StoreAway(), Catalogue.of((), settings), ())
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app({"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008, "reason": "not served here"}]


# --- what is written down ------------------------------------------------------------------------


async def test_one_line_per_request_without_its_query(client: httpx2.AsyncClient) -> None:
    with capture_logs() as logs:
        await client.get("/api/v1/toys/7?page=2&token=hush")
    (line,) = [line for line in logs if line["event"] == "request"]
    assert line["method"] == "GET"
    assert line["path"] == "/api/v1/toys/7"
    assert line["status"] == 400
    assert line["client"] == "local"
    assert line["milliseconds"] >= 0
    assert "hush" not in str(logs)


async def test_metrics_count_by_the_route_as_declared(client: httpx2.AsyncClient) -> None:
    for number in range(5):
        await client.get(f"/api/v1/toys/{number}")
        await client.get(f"/made/up/{number}")
    await client.request("BREW", "/api/v1/toys/1")
    text = (await client.get("/metrics")).text
    counted = "hasat_http_requests_total{"
    assert f'{counted}method="GET",route="/api/v1/toys/{{number}}",status="200"}} 5.0' in text
    assert f'{counted}method="GET",route="unmatched",status="404"}} 5.0' in text
    assert f'{counted}method="other",route="/api/v1/toys/{{number}}",status="405"}} 1.0' in text
    assert "made/up" not in text
    assert 'hasat_http_request_seconds_count{method="GET",route="unmatched"} 5.0' in text


async def test_every_operation_is_described(settings: Settings) -> None:
    source = Source("toys", "Toys", routers=lambda: (TOY,))
    app = create_app(settings, StoreAway(), Catalogue.of((), settings), (source,))
    assert undocumented_operations(app) == []
    operation = app.openapi()["paths"]["/api/v1/toys/{number}"]["get"]
    expected = {"200", "400", "401", "403", "410", "422", "429", "500", "503"}
    assert expected == set(operation["responses"])


async def test_what_lacks_a_description_is_named(settings: Settings) -> None:
    bare = APIRouter()

    @bare.get("/bare")
    async def bare_route() -> int:
        return 1

    source = Source("bare", "Bare", routers=lambda: (bare,))
    app = create_app(settings, StoreAway(), Catalogue.of((), settings), (source,))
    assert undocumented_operations(app) == ["GET /api/v1/bare has no example response"]


# --- what is written for people ------------------------------------------------------------------

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "http.md"


def test_every_kind_of_problem_is_documented() -> None:
    ours = [kind for kind in problem_types().values() if kind.code != "toy-locked"]
    page = PAGE.read_text("utf-8")
    for kind in ours:
        row = next(
            line for line in page.splitlines() if line.startswith("|") and f"`{kind.code}`" in line
        )
        assert str(kind.status) in row


async def test_every_path_metric_and_header_is_documented(client: httpx2.AsyncClient) -> None:
    page = PAGE.read_text("utf-8")
    paths = (await client.get("/openapi.json")).json()["paths"]
    for path in paths:
        assert f"`{path}`" in page or path == "/problems/{code}" or path.startswith("/api/v1/")
    for line in (await client.get("/metrics")).text.splitlines():
        if line.startswith("# TYPE hasat_"):
            name = line.split()[2].removesuffix("_created")
            assert name in page, name
    for name, value in PINNED.items():
        assert name in page.lower()
        assert value in page
