"""Responses of every declared endpoint, in every form and damaged, go through to typed columns."""

import copy
import json
import os
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from psycopg import sql

from hasat.console.runtime import source_migrations
from hasat.settings import load_settings
from hasat.sources.football.endpoints import DATASETS
from hasat.sources.football.ingest.elements import extract
from hasat.sources.football.ingest.loader import UnreadableResponseError, load
from hasat.sources.football.ingest.raw_store import ApiResponse
from hasat.sources.football.ingest.rebuild import rebuild
from hasat.store import MigrationSet, Store
from support.football_forms import FORMS, Form, document
from support.mutations import Damage

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

SEED = int(os.environ.get("HASAT_TEST_SEED", random.SystemRandom().randrange(10**6)))
ROUNDS = 4


@pytest.fixture
def migrations() -> Sequence[MigrationSet]:
    return source_migrations()


async def _load(store: Store, form: Form, body: bytes) -> None:
    response = ApiResponse(form.path, form.parameters, body)
    await load(store, [response], run=None, retention_days=30)


async def _mirror(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Read every typed column of every dataset."""
    mirror = {}
    async with store.connection() as conn:
        for name, dataset in DATASETS.items():
            columns = [sql.SQL("m.key"), sql.SQL("m.body"), *(c.read("m") for c in dataset.columns)]
            query = sql.SQL("SELECT {} FROM {} AS m ORDER BY m.key").format(
                sql.SQL(", ").join(columns), dataset.table
            )
            mirror[name] = await (await conn.execute(query)).fetchall()
    return mirror


async def _quarantined(store: Store) -> list[str]:
    async with store.connection() as conn:
        rows = await conn.execute("SELECT reason FROM raw.set_aside WHERE source = 'football'")
        return [reason for (reason,) in await rows.fetchall()]


async def test_every_form_is_mirrored_and_rebuilt(store: Store) -> None:
    known: set[tuple[str, str]] = set()
    for form in FORMS:
        await _load(store, form, json.dumps(document(form)).encode())
        found = extract(form.path, form.parameters, form.rows)
        known |= {(element.dataset, element.key) for element in found.elements}
    mirror = await _mirror(store)
    assert Counter({name: len(rows) for name, rows in mirror.items()}) == Counter(
        name for name, _ in known
    )
    assert await _quarantined(store) == []
    await rebuild(store, load_settings(environ={}), approving=10**9)
    assert await _mirror(store) == mirror


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_damaged_forms_are_stored_or_quarantined(store: Store, number: int) -> None:
    seed = SEED + number
    print(f"HASAT_TEST_SEED={seed}")
    damage, chance = Damage(seed), random.Random(seed)
    for form in FORMS:
        whole = document(copy.deepcopy(form))
        rows = whole["response"]
        nested = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        # Lists of numbers and names, and the envelope, are damaged as well.
        body = damage.values(whole, nested if nested and chance.random() < 0.8 else [whole])
        if chance.random() < 0.1:
            body, _ = damage.transport(body)
        try:
            await _load(store, form, body)
        except UnreadableResponseError:
            assert await _quarantined(store)
    assert await _quarantined(store)
    mirror = await _mirror(store)
    await rebuild(store, load_settings(environ={}), approving=10**9)
    assert await _mirror(store) == mirror
