"""The Grafana board and the alerts use only metrics that Hasat exports."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from hasat.api.app import create_app
from hasat.cli.runtime import source_migrations
from hasat.jobs import Catalogue, platform_jobs
from hasat.settings import Settings
from hasat.sources.registry import all_sources
from hasat.store import MigrationSet, Store
from hasat.testing.http import app_client

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

DEPLOY = Path(__file__).parents[3] / "deploy"
_NAME = re.compile(r"\b(?:hasat|gibuserlist)_[a-z_]+\b")


def _asked_for() -> Iterator[tuple[str, str]]:
    board = json.loads((DEPLOY / "grafana" / "hasat.json").read_text("utf-8"))
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text("utf-8"))
    for rule in rules["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"]


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


async def test_every_metric_asked_for_is_told(settings: Settings, store: Store) -> None:
    sources = all_sources()
    app = create_app(settings, store, Catalogue.of(platform_jobs(), settings), sources)
    async with app_client(app) as client:
        await client.get("/healthz")
        text = (await client.get("/metrics")).text
    families = set(re.findall(r"^# HELP (\S+)", text, re.MULTILINE))
    families |= {f"{name}_bucket" for name in families}
    # Exported from the first synchronisation on.
    families |= {"gibuserlist_sync_last_sync_at_unix"}
    families |= {"gibuserlist_users_einvoice_count", "gibuserlist_users_edespatch_count"}
    asked = list(_asked_for())
    assert len(asked) > 15
    unknown = {(where, name) for where, expr in asked for name in _NAME.findall(expr)} - {
        (where, name) for where, _ in asked for name in families
    }
    assert not unknown
