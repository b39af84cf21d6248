"""The check: registered or not, where to send, and which kind of invoice."""

import random
from pathlib import Path
from typing import Any

import httpx2
import pytest

from hasat.source import Source
from hasat.sources.gib.datasets import EDESPATCH, EINVOICE
from hasat.sources.gib.source import GIB
from hasat.store import MigrationSet, Store
from hasat.testing.database import ThrowAwayDatabase
from support.feed_toys import run
from support.gib_lists import MIGRATIONS, by_identifier, taxpayer_body
from support.processes import Commands

pytestmark = pytest.mark.anyio

ALIASES = [
    ("urn:mail:old@isik.tr", "PK", "2019-05-01T10:00:00"),
    ("urn:mail:sender@isik.tr", "GB", "2026-01-01T00:00:00"),
    ("urn:mail:new@isik.tr", "PK", "2024-02-01T10:00:00"),
    ("urn:mail:undated@isik.tr", "PK", None),
    ("urn:mail:dotted@isik.tr", "PK", "01.03.2020 10:00:00"),
]


@pytest.fixture
def migrations() -> list[MigrationSet]:
    return MIGRATIONS


@pytest.fixture
def sources() -> list[Source]:
    return [GIB]


def _body(identifier: str, title: str | None, aliases: list[Any] = ALIASES) -> dict[str, Any]:
    listed = [{"alias": name, "type": box, "creationTime": at} for name, box, at in aliases]
    return {**taxpayer_body(identifier, title), "aliases": listed}


async def _fill(store: Store) -> None:
    await run(
        store,
        by_identifier(
            _body("1234567890", "IŞIK A.Ş."),
            _body("10000000146", "AYŞE ÇAĞ", [ALIASES[1]]),
            _body("99-ODD", "ODD LTD"),
        ),
        dataset=EINVOICE,
    )
    await run(
        store,
        by_identifier(
            _body("1234567890", None, [ALIASES[0]]), _body("3680485737", "ÇINAR LTD", [ALIASES[0]])
        ),
        dataset=EDESPATCH,
    )


async def _versions(store: Store) -> dict[str, Any]:
    async with store.connection() as conn:
        rows = await conn.execute("SELECT dataset, epoch, seq FROM feed.head ORDER BY dataset")
        return {
            name: {"epoch": str(epoch), "seq": seq} for name, epoch, seq in await rows.fetchall()
        }


async def test_both_datasets_are_answered_at_once(client: httpx2.AsyncClient, store: Store) -> None:
    assert (await client.get("/api/v1/check/1234567890")).status_code == 503
    await _fill(store)
    response = await client.get("/api/v1/check/1234567890")
    assert response.status_code == 200, response.text
    answer = response.json()
    committed_at = answer["version"].pop("committedAt")
    assert committed_at == response.headers["X-Last-Sync-At"]
    assert answer == {
        "identifier": "1234567890",
        "valid": True,
        "kind": "VKN",
        "title": "IŞIK A.Ş.",
        "einvoice": {
            "registered": True,
            "since": "2019-05-01T10:00:00",
            "aliases": [
                {"alias": ALIASES[place][0], "type": "PK", "creationTime": ALIASES[place][2]}
                for place in (2, 4, 0, 3)
            ],
            "sendTo": "urn:mail:new@isik.tr",
        },
        "edespatch": {
            "registered": True,
            "since": "2019-05-01T10:00:00",
            "aliases": [
                {"alias": ALIASES[0][0], "type": "PK", "creationTime": "2019-05-01T10:00:00"}
            ],
            "sendTo": "urn:mail:old@isik.tr",
        },
        "invoiceKind": "e-Fatura",
        "version": await _versions(store),
    }
    known = {"If-None-Match": response.headers["ETag"]}
    assert (await client.get("/api/v1/check/1234567890", headers=known)).status_code == 304
    await run(store, by_identifier(_body("1234567890", "GÜNEŞ A.Ş.")), dataset=EINVOICE)
    changed = await client.get("/api/v1/check/1234567890", headers=known)
    assert (changed.status_code, changed.json()["title"]) == (200, "GÜNEŞ A.Ş.")
    assert changed.json()["version"]["einvoice"]["seq"] > answer["version"]["einvoice"]["seq"]


async def test_not_registered_is_an_answer(client: httpx2.AsyncClient, store: Store) -> None:
    await _fill(store)
    nowhere = {"registered": False, "since": None, "aliases": [], "sendTo": None}
    for identifier, valid, kind in (("4540536920", True, "VKN"), ("11111111111", False, "TCKN")):
        response = await client.get(f"/api/v1/check/{identifier}")
        answer = response.json()
        del answer["version"]
        assert response.status_code == 200
        assert answer == {
            "identifier": identifier,
            "valid": valid,
            "kind": kind,
            "title": None,
            "einvoice": nowhere,
            "edespatch": nowhere,
            "invoiceKind": "e-Arşiv",
        }
    # Listed for despatches only: no e-Fatura may be sent.
    only = (await client.get("/api/v1/check/3680485737")).json()
    assert (only["title"], only["invoiceKind"]) == ("ÇINAR LTD", "e-Arşiv")
    assert only["edespatch"]["sendTo"] == "urn:mail:old@isik.tr"
    # Listed without an alias that receives.
    sender = (await client.get("/api/v1/check/10000000146")).json()
    assert (sender["invoiceKind"], sender["einvoice"]["sendTo"]) == ("e-Fatura", None)
    assert sender["einvoice"]["registered"]


async def test_a_malformed_identifier_is_never_not_registered(
    client: httpx2.AsyncClient, store: Store
) -> None:
    await _fill(store)
    for text, likely in (
        ("123456789O", "1234567890"),
        ("l234567890", "1234567890"),
        ("1.234.567.890,00", "1234567890"),
        ("864387", "0000864387"),
        ("1.2E+09", None),
    ):
        response = await client.get(f"/api/v1/check/{text}")
        problem = response.json()
        assert (response.status_code, problem["code"]) == (400, "malformed-identifier"), text
        assert problem["params"]["likely"] == likely
    turkish = {"Accept-Language": "tr"}
    asked = ["864387", "3680485737", " 1234567890", "99-ODD", "3680485737", "x", "4540536920"]
    response = await client.post("/api/v1/check", json={"identifiers": asked}, headers=turkish)
    found = response.json()
    assert [item["identifier"] for item in found["items"]] == [
        "3680485737",
        "99-ODD",
        "3680485737",
        "4540536920",
    ]
    assert [(one["input"], one["likely"]) for one in found["malformed"]] == [
        ("864387", "0000864387"),
        (" 1234567890", "1234567890"),
        ("x", None),
    ]
    assert found["malformed"][0] == {
        "input": "864387",
        "reason": "6 haneli, 10 veya 11 değil",
        "likely": "0000864387",
    }
    # An odd identifier that is in a list is found under it.
    odd = (await client.get("/api/v1/check/99-ODD")).json()
    assert (odd["title"], odd["kind"], odd["valid"]) == ("ODD LTD", None, False)


async def test_many_are_answered_as_one_by_one(client: httpx2.AsyncClient, store: Store) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    pool = [f"{dice.randrange(10**10):010d}" for _ in range(60)]
    for dataset in (EINVOICE, EDESPATCH):
        state = [_body(one, f"T {one}", dice.sample(ALIASES, 3)) for one in dice.sample(pool, 30)]
        await run(store, by_identifier(*state), dataset=dataset)
    asked = dice.choices(pool, k=80)
    found = (await client.post("/api/v1/check", json={"identifiers": asked})).json()
    assert found["malformed"] == []
    assert found["items"] == [(await client.get(f"/api/v1/check/{one}")).json() for one in asked]


async def test_limits_of_a_check(client: httpx2.AsyncClient, store: Store) -> None:
    await _fill(store)
    numbers = [f"{n:010d}" for n in range(5001)]
    most = await client.post("/api/v1/check", json={"identifiers": numbers[:5000]})
    assert len(most.json()["items"]) == 5000
    for wrong in ({"identifiers": numbers}, {"identifiers": []}, {"identifiers": ["\0"]}, {}):
        refused = await client.post("/api/v1/check", json=wrong)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid-input")
    assert (await client.get("/api/v1/check/1234567890%00")).status_code == 400
    headers = {"Accept-Language": "tr", "Content-Type": "application/json"}
    unstorable = rb'{"identifiers": ["\u0000", "\ud800"]}'
    refused = await client.post("/api/v1/check", content=unstorable, headers=headers)
    assert [one["message"] for one in refused.json()["errors"]] == [
        "PostgreSQL'in saklayamadığı U+0000 karakterini içeriyor",
        "eşleşmeyen bir vekil (surrogate) kod içeriyor",
    ]
    described = (await client.get("/openapi.json")).json()["paths"]
    assert "422" not in described["/api/v1/check"]["post"]["responses"]


async def test_a_vkn_that_was_filled_with_a_zero_is_malformed(
    client: httpx2.AsyncClient, store: Store
) -> None:
    """A TCKN begins with no zero, so this is a VKN in a field of eleven characters."""
    await _fill(store)
    refused = await client.get("/api/v1/check/01234567890")
    assert (refused.status_code, refused.json()["code"]) == (400, "malformed-identifier")
    assert refused.json()["params"]["likely"] == "1234567890"
    many = await client.post("/api/v1/check", json={"identifiers": ["01234567890", "00000000000"]})
    assert [one["likely"] for one in many.json()["malformed"]] == ["1234567890"]
    assert [one["identifier"] for one in many.json()["items"]] == ["00000000000"]
    await run(store, by_identifier(_body("01234567890", "LİSTEDE")), dataset=EINVOICE)
    listed = await client.get("/api/v1/check/01234567890")
    assert listed.json()["einvoice"]["registered"] is True


async def test_the_command_answers_and_reports_malformed_identifiers(
    database: ThrowAwayDatabase, tmp_path: Path, store: Store
) -> None:
    hasat = Commands("gib", database.url, tmp_path, columns=200)
    assert "has no data yet" in hasat("check", "1234567890").stderr
    await _fill(store)
    good = hasat("check", "1234567890", "4540536920")
    assert good.returncode == 0
    for line in ("1234567890: e-Fatura", "send to urn:mail:new@isik.tr", "4540536920: e-Arşiv"):
        assert line in good.stdout
    mixed = hasat("check", "864387", "3680485737", "--json")
    assert mixed.returncode == 2
    assert "Did you mean 0000864387?" in mixed.stderr
    assert '"likely": "0000864387"' in mixed.stdout
    assert '"identifier": "3680485737"' in mixed.stdout
