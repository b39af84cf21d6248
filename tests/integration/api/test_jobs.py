"""Queueing a run for a worker, from the command line and over HTTP; jobs and runs over HTTP."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import FastAPI
from pydantic import Field

from hasat.api.app import create_app
from hasat.api.keys import create_key
from hasat.errors import AlreadyRunningError
from hasat.jobs import Catalogue, Job, Outcome, RunContext, Worker, platform_jobs
from hasat.jobs.queue import queue_run
from hasat.jobs.runs import get_run, list_runs
from hasat.settings import Settings
from hasat.store import Store
from hasat.testing.database import ThrowAwayDatabase
from hasat.testing.http import app_client, undocumented_operations
from support.processes import Commands

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]


async def report(context: RunContext) -> Outcome:
    return Outcome(detail=dict(context.params))


JOBS = (
    Job(
        "count_toys",
        report,
        "Counts toys.",
        params={"region": "a"},
        options={"most": Annotated[int, Field(ge=1, le=20)], "area": object},
    ),
    Job("paint_toys", report, "Paints toys.", enabled=False, overlap="queue", options={}),
)


@pytest.fixture
def catalogue(settings: Settings) -> Catalogue:
    return Catalogue.of([*platform_jobs(), *JOBS], settings)


@pytest.fixture
def app(settings: Settings, store: Store, catalogue: Catalogue) -> FastAPI:
    return create_app(settings, store, catalogue, ())


async def test_the_token_of_an_address_among_the_parameters_is_not_shown(
    client: httpx2.AsyncClient, store: Store
) -> None:
    address = "https://x.example/list?token=s3cr3t"
    answer = await client.post("/api/v1/jobs/count_toys/runs", json={"params": {"area": address}})
    assert answer.status_code == 202
    listed = await client.get("/api/v1/runs")
    for shown in (answer.text, listed.text, (await client.get("/api/v1/jobs")).text):
        assert "x.example" in shown
        assert "s3cr3t" not in shown
    assert (await get_run(store, answer.json()["id"])).params["area"] == address


async def test_a_run_is_queued_and_a_worker_does_it(
    client: httpx2.AsyncClient, store: Store, settings: Settings, catalogue: Catalogue
) -> None:
    answer = await client.post("/api/v1/jobs/count_toys/runs", json={"params": {"most": 3}})
    assert answer.status_code == 202
    queued = answer.json()
    assert answer.headers["location"] == f"/api/v1/runs/{queued['id']}"
    assert (queued["state"], queued["trigger"]) == ("queued", "hand")
    assert queued["params"] == {"region": "a", "most": 3}
    worker = Worker(catalogue, store, settings, poll_seconds=0.05)
    working = asyncio.create_task(worker.run())
    async with asyncio.timeout(30):
        while True:
            run = (await client.get(answer.headers["location"])).json()
            if run["state"] == "finished":
                break
            await asyncio.sleep(0.05)
    worker.stop_now()
    await working
    assert (run["outcome"], run["detail"]) == ("done", {"region": "a", "most": 3})
    listed = (await client.get("/api/v1/runs", params={"job": "count_toys"})).json()["runs"]
    assert [one["id"] for one in listed] == [run["id"]]
    assert (await client.get("/api/v1/runs", params={"open": True})).json() == {"runs": []}


async def test_without_a_body_the_jobs_own_parameters_count(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/api/v1/jobs/count_toys/runs")
    assert (answer.status_code, answer.json()["params"]) == (202, {"region": "a"})


async def test_jobs_are_listed_with_what_they_take(client: httpx2.AsyncClient) -> None:
    jobs = {one["name"]: one for one in (await client.get("/api/v1/jobs")).json()["jobs"]}
    assert set(jobs) == {"count_toys", "paint_toys", *(job.name for job in platform_jobs())}
    parameters = {one["name"]: one for one in jobs["count_toys"]["parameters"]}
    assert parameters["most"]["takes"] == "a whole number from 1 to 20"
    assert parameters["region"]["default"] == "a"
    assert jobs["paint_toys"]["enabled"] is False


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"most": 0}, ["most", "from 1 to 20"]),
        ({"most": 10**30}, ["most", "from 1 to 20"]),
        ({"most": "3"}, ["most", "a whole number"]),
        ({"most": True}, ["most", "a whole number"]),
        ({"mots": 3}, ["mots", "Did you mean 'most'?"]),
        ({"region": "a\0"}, ["U+0000"]),
        ({"area": {"deep": [{"\0": 1}]}}, ["U+0000"]),
        ({"area": 1, "region": None, "": 2}, ["no parameter ''"]),
    ],
)
async def test_bad_parameters_are_refused_and_nothing_is_queued(
    client: httpx2.AsyncClient, store: Store, params: dict[str, Any], named: list[str]
) -> None:
    answer = await client.post("/api/v1/jobs/count_toys/runs", json={"params": params})
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (400, "bad-request")
    for part in named:
        assert part in f"{problem['detail']} {problem['remedy']}"
    assert await list_runs(store) == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"params": {"region": "\\ud800"}}',
        b'{"params": {"area": ' + b"[" * 5000 + b"]" * 5000 + b"}}",
        b'{"params": {"area": NaN}}',
        b'{"params": [1]}',
        b'{"parms": {}}',
        b"[]",
        b"{",
    ],
)
async def test_no_body_breaks_the_server(
    client: httpx2.AsyncClient, store: Store, body: bytes
) -> None:
    answer = await client.post(
        "/api/v1/jobs/count_toys/runs",
        content=body,
        headers={"Content-Type": "application/json"},
    )
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    assert await list_runs(store) == []


async def test_an_unknown_job_is_a_404_with_the_nearest_name(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/api/v1/jobs/count_toy/runs", json={})
    assert answer.status_code == 404
    assert answer.json()["remedy"] == "Did you mean 'count_toys'?"
    assert (await client.get("/api/v1/runs/99")).status_code == 404


async def test_a_busy_job_is_not_queued_twice_unless_its_runs_wait_for_each_other(
    client: httpx2.AsyncClient, store: Store
) -> None:
    async def post(job: str) -> httpx2.Response:
        return await client.post(f"/api/v1/jobs/{job}/runs")

    answers = await asyncio.gather(*(post("count_toys") for _ in range(5)))
    assert sorted(one.status_code for one in answers) == [202, 409, 409, 409, 409]
    [queued] = await list_runs(store, job="count_toys")
    refused = next(one for one in answers if one.status_code == 409).json()
    assert refused["code"] == "already-running"
    assert f"Run {queued.id} of count_toys" in refused["detail"]
    # Also a disabled one can be queued.
    assert [(await post("paint_toys")).status_code for _ in range(2)] == [202, 202]


async def test_only_who_may_operate_queues(app: FastAPI, store: Store) -> None:
    tokens = {
        "read": (await create_key(store, "reader"))[1],
        "operate": (await create_key(store, "operator", "operate"))[1],
    }
    async with app_client(app, address="192.0.2.7") as stranger:
        for scope, status in (("read", 403), ("operate", 202)):
            who = {"Authorization": f"Bearer {tokens[scope]}"}
            answer = await stranger.post("/api/v1/jobs/count_toys/runs", headers=who)
            assert answer.status_code == status, answer.text
    assert len(await list_runs(store)) == 1


async def test_the_api_describes_them(app: FastAPI) -> None:
    assert undocumented_operations(app) == []


async def test_approvals_and_the_like_still_wait_their_turn(
    store: Store, catalogue: Catalogue
) -> None:
    first = await queue_run(store, catalogue, "count_toys")
    second = await queue_run(store, catalogue, "count_toys", {"most": 2})
    assert second.params == {"region": "a", "most": 2}
    with pytest.raises(AlreadyRunningError, match=f"Run {first.id} of count_toys"):
        await queue_run(store, catalogue, "count_toys", behind_others=False)


async def test_the_command_queues_instead_of_running(
    database: ThrowAwayDatabase, store: Store, tmp_path: Path
) -> None:
    hasat = Commands("jobs", database.url, tmp_path, columns=100)
    queued = hasat("run", "housekeeping", "--queue", "--json")
    assert queued.returncode == 0, queued.stderr
    run = json.loads(queued.stdout)
    assert (run["job"], run["state"]) == ("housekeeping", "queued")
    assert (await get_run(store, run["id"])).state == "queued"
    assert "No worker is running" in queued.stderr
    again = hasat("run", "housekeeping", "--queue")
    assert again.returncode == 3
    assert f"Run {run['id']} of housekeeping is already queued or running" in again.stderr
    assert hasat("run", "housekeeping", "--queue", "--param", "x=1").returncode == 2
    assert "Did you mean 'housekeeping'?" in hasat("run", "housekeping", "--queue").stderr
    assert len(await list_runs(store)) == 1
