"""The API does what its own description says, on a real port, whatever it is sent."""

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import hypothesis
import pytest
import schemathesis
from anyio.from_thread import BlockingPortal
from fastapi import APIRouter, Depends, Query
from hypothesis.errors import Unsatisfiable
from pydantic import BaseModel
from schemathesis.core.result import Ok

from hasat.api.app import create_app
from hasat.api.keys import create_key
from hasat.errors import GoneError, NotFoundError
from hasat.http.listener import Listener, bind
from hasat.http.routes import Caller, declare_responses, require
from hasat.jobs import Catalogue, platform_jobs
from hasat.settings import Settings
from hasat.source import Source
from hasat.store import open_store
from hasat.testing.database import ThrowAwayDatabase

pytestmark = pytest.mark.any_server

LIMITS = hypothesis.settings(
    max_examples=25,
    deadline=None,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)

TOY = APIRouter(tags=["toys"])


class Toys(BaseModel):
    names: list[str]


@TOY.get(
    "/toys/{number}", summary="A toy", responses=declare_responses(7, GoneError, NotFoundError)
)
async def toy(number: int, page: Annotated[int, Query(ge=1, le=9)] = 1, name: str = "") -> int:
    if number == 0:
        raise GoneError("It is gone.")
    if number < 0:
        raise NotFoundError(f"There is no toy {number} on page {page} named {name!r}.")
    return number


@TOY.post("/toys", summary="Add toys", responses=declare_responses(1))
async def add(toys: Toys, _: Annotated[Caller, Depends(require("operate"))]) -> int:
    return len(toys.names)


@dataclass(frozen=True)
class Served:
    url: str
    key: str


@asynccontextmanager
async def _serving(settings: Settings) -> AsyncIterator[Served]:
    async with open_store(settings) as store:
        _, key = await create_key(store, "tester", "operate")
        source = Source("toys", "Toys", routers=lambda: (TOY,))
        catalogue = Catalogue.of(platform_jobs(), settings)
        socket = bind("127.0.0.1", 0)
        listener = Listener(create_app(settings, store, catalogue, (source,)), socket)
        await listener.start()
        try:
            yield Served(f"http://127.0.0.1:{socket.getsockname()[1]}", key)
        finally:
            listener.drain()
            await listener.wait_closed()


@pytest.fixture
def served(
    background: BlockingPortal, database: ThrowAwayDatabase, tmp_path: Path
) -> Iterator[Served]:
    """A server that wants to know its callers, without a limit on how often they ask."""
    settings = database.settings(tmp_path)
    settings = settings.model_copy(
        update={
            "authentication": settings.authentication.model_copy(update={"enabled": True}),
            "serve": settings.serve.model_copy(update={"requests_per_minute": 0}),
        }
    )
    with background.wrap_async_context_manager(_serving(settings)) as served:
        yield served


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_every_operation_keeps_its_promise(
    served: Served, mode: schemathesis.GenerationMode
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    schema = schemathesis.openapi.from_url(f"{served.url}/openapi.json")
    # The key is given below; whether it is needed is one of the checks.
    schema.config.generation.update(with_security_parameters=False)
    # A good request may ask for what is no longer kept, or name parameters that exclude another.
    accepted = schema.config.checks.positive_data_acceptance
    accepted.expected_statuses = [*accepted.expected_statuses, "400", "410"]
    tried = []
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        tried.append(operation.label)

        @hypothesis.seed(seed)
        @LIMITS
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def keeps_its_promise(case: schemathesis.Case[Any]) -> None:
            case.call_and_validate(headers={"X-API-Key": served.key})

        with suppress(Unsatisfiable):  # an operation without input cannot be called wrongly
            keeps_its_promise()
    assert {"GET /api/v1/status", "POST /api/v1/toys", "GET /readyz"} <= set(tried)
