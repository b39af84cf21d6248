"""Exchange rates and a company register."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from hasat.source import (
    Column,
    Dataset,
    Limits,
    PerKey,
    Section,
    Settings,
    Source,
    Upstream,
    WholeList,
    lazy,
    types,
)


class ExampleSettings(Section):
    """Exchange rates and a company register."""

    url: types.ApiUrl = Field("https://example.invalid", description="Address of the service.")
    api_key: types.Secret | None = Field(None, description="Key for the register.")
    companies: tuple[types.Name, ...] = Field((), description="Numbers of companies to mirror.")
    daily_requests: types.Count = Field(200, description="Requests a day to the register.")


def section(settings: Settings) -> ExampleSettings:
    return settings.section(ExampleSettings)


def upstream(settings: Settings) -> Upstream:
    daily = section(settings).daily_requests
    return Upstream("example_register", day_limit=daily, minute_limit=600)


def headers(settings: Settings) -> Mapping[str, str]:
    key = section(settings).api_key
    return {"X-Api-Key": key.get_secret_value()} if key else {}


def rates_of(file: Path) -> Iterable[Any]:
    return json.loads(file.read_bytes())["rates"]


def rate(one: Any) -> tuple[str, Any]:
    """Return key and body; a rate for which this raises is quarantined."""
    return one["code"], {"name": one["name"], "rate": float(one["rate"])}


def company(_number: str, body: bytes) -> Any:
    return json.loads(body)


RATES = Dataset(
    "example_rates",
    "example",
    "Exchange rates of the day",
    columns=(Column("name", summary="Name of the currency"), Column("rate", "number")),
    guard=Limits(modified=100),  # New rates are no sign of a broken list.
)
COMPANIES = Dataset(
    "example_companies",
    "example",
    "Companies of the register",
    columns=(Column("title", indexed=True), Column("founded", "date")),
)

SOURCE = Source(
    "example",
    "Exchange rates and companies",
    settings=ExampleSettings,
    datasets=(RATES, COMPANIES),
    strategies={
        "example_rates": WholeList(lambda s: f"{section(s).url}/rates", rates_of, rate),
        "example_companies": PerKey(
            lambda settings: section(settings).url,
            "/companies/{key}",
            company,
            keys=lambda settings: section(settings).companies,
            upstream=upstream,
            headers=headers,
        ),
    },
    lacks=lambda settings: None if section(settings).api_key else "Set HASAT_EXAMPLE_API_KEY.",
    pages=lazy("hasat_source_example.pages:PAGES"),
    commands=lazy("hasat_source_example.commands:app"),
    tools=lazy("hasat_source_example.tools:tools"),
    simulator=lazy("hasat_source_example.simulator:SIMULATOR"),
)
