"""The HTTP side without a port: a client that calls the app in this process."""

from typing import Any

import httpx2
from fastapi import FastAPI


def client_of(
    app: FastAPI, *, host: str = "127.0.0.1", address: str = "127.0.0.1", **options: Any
) -> httpx2.AsyncClient:
    """A client whose requests carry `host` as their Host and seem to come from `address`."""
    transport = httpx2.ASGITransport(app=app, client=(address, 50_000))
    return httpx2.AsyncClient(transport=transport, base_url=f"http://{host}", **options)


def undescribed(app: FastAPI) -> list[str]:
    """What the API's description of itself lacks: each operation has a summary, an example and
    its problems."""
    missing = []
    for path, methods in app.openapi()["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}"
            answers = operation["responses"]
            good = [answer for status, answer in answers.items() if status.startswith("2")]
            if not operation.get("summary"):
                missing.append(f"{name} has no summary")
            if not any(_has_example(answer) for answer in good):
                missing.append(f"{name} has no example answer")
            if not any(status.startswith(("4", "5")) for status in answers):
                missing.append(f"{name} declares no problem")
    return missing


def _has_example(answer: dict[str, Any]) -> bool:
    return any("example" in c or "examples" in c for c in answer.get("content", {}).values())
