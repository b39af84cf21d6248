"""The Grafana board and the alerts use only metrics that Hasat exports."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from hasat.api.app import create_app
from hasat.console.runtime import source_migrations
from hasat.jobs import Catalogue, Job, Outcome, RunContext, platform_jobs
from hasat.settings import Settings
from hasat.source import Source
from hasat.source.installed import all_sources
from hasat.store import MigrationSet, Store
from hasat.testing.http import app_client
from support.feed_toys import TOYS, make_table, run

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

DEPLOY = Path(__file__).parents[3] / "deploy"
_NAME = re.compile(r"\bhasat_[a-z_]+\b")


def _asked_for() -> Iterator[tuple[str, str]]:
    board = json.loads((DEPLOY / "grafana" / "hasat.json").read_text("utf-8"))
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text("utf-8"))
    for rule in rules["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"]


async def _stock(_: RunContext) -> Outcome:
    return Outcome()


_STOCK = Job("stock_toys", _stock, "toys", cron="0 3 * * *", source="toy_shop")


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
    asked = list(_asked_for())
    assert len(asked) > 15
    unknown = {(where, name) for where, expr in asked for name in _NAME.findall(expr)} - {
        (where, name) for where, _ in asked for name in families
    }
    assert not unknown


def test_the_board_and_the_alerts_name_no_source() -> None:
    named = [
        (where, expr) for where, expr in _asked_for() for one in all_sources() if one.name in expr
    ]
    assert not named


async def test_every_dataset_and_hold_is_exported(settings: Settings, store: Store) -> None:
    await make_table(store)
    await run(store, {f"toy {n}": {} for n in range(3)})
    await run(store, {"toy 1": {}})
    async with store.connection() as conn:
        await conn.execute(
            "INSERT INTO feed.hold (id, job, source, datasets, params, runs, preview)"
            " VALUES (7, 'stock_toys', 'toy_shop', '{toys}', '{}', '{7}', '{}')"
        )
    shop = Source("toy_shop", "A toy shop", datasets=(TOYS,), jobs=(_STOCK,))
    app = create_app(settings, store, Catalogue.of([_STOCK], settings), [shop])
    async with app_client(app) as client:
        text = (await client.get("/metrics")).text
    assert 'hasat_dataset_records{dataset="toys",source="toy_shop"} 1.0' in text
    assert 'hasat_dataset_changes_total{dataset="toys",source="toy_shop"} 2.0' in text
    assert 'hasat_dataset_last_commit_timestamp_seconds{dataset="toys"' in text
    assert 'hasat_holds_waiting{source="toy_shop"} 1.0' in text
    assert 'hasat_source_scheduled{source="toy_shop"} 1.0' in text


def test_every_alert_has_a_promise() -> None:
    page = (DEPLOY.parent / "docs/how-to/watch.md").read_text("utf-8")
    table = page.partition("## Alerts")[2].partition("## Grafana")[0]
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text("utf-8"))
    alerts = {rule["alert"] for rule in rules["groups"][0]["rules"]}
    assert set(re.findall(r"`(Hasat\w+)`", table)) == alerts
    assert all(rule["annotations"]["summary"] for rule in rules["groups"][0]["rules"])
