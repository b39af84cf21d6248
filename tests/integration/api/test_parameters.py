"""Every operation of the API rejects a parameter that it does not declare."""

import re

import pytest

from hasat.api.app import create_app
from hasat.jobs import Catalogue
from hasat.settings import Settings
from hasat.source.installed import all_sources
from hasat.store import Store
from hasat.testing.http import app_client

pytestmark = pytest.mark.anyio


async def test_every_operation_rejects_a_parameter_it_does_not_declare(
    settings: Settings, store: Store
) -> None:
    app = create_app(settings, store, Catalogue.of([], settings), all_sources())
    accepted, tried = [], 0
    async with app_client(app) as client:
        for path, operations in app.openapi()["paths"].items():
            if not path.startswith("/api/v1/"):
                continue
            for method, operation in operations.items():
                tried += 1
                answer = await client.request(
                    method,
                    re.sub(r"\{[^}]*\}", "1", path),
                    params={"nonsense": "1"},
                    json={} if "requestBody" in operation else None,
                )
                problem = answer.json()
                if (answer.status_code, problem.get("code")) != (400, "unknown-parameter"):
                    accepted.append(f"{method} {path}: {answer.status_code}")
                declared = [
                    one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"
                ]
                assert all(f"`{name}`" in problem["remedy"] for name in declared), problem
                assert "400" in operation["responses"], f"{method} {path}"
    assert tried > 50
    assert not accepted
