"""The page of records: every listed dataset, sorted and paged by its columns, with downloads."""

from collections.abc import AsyncIterator
from dataclasses import replace
from importlib.resources import files

import httpx2
import pytest

from hasat.api.app import create_app
from hasat.jobs import Catalogue
from hasat.pages import SourcePages
from hasat.settings import Settings
from hasat.source import Column, Source
from hasat.store import Store
from hasat.testing.http import app_client
from hasat.web.app import add_pages
from support.feed_toys import TOYS, make_table, run

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

BROWSER = {"Accept": "text/html"}
PRICED = replace(
    TOYS,
    columns=(
        Column("price", "number", summary="Price in the shop"),
        Column("sold", "boolean"),
        Column("since", "timestamp"),
    ),
)
TEMPLATES = files("hasat.sources.gib") / "templates"
HIDDEN = replace(TOYS, name="unlisted", listed=False)


@pytest.fixture
async def client(store: Store, settings: Settings) -> AsyncIterator[httpx2.AsyncClient]:
    await make_table(store)
    await make_table(store, HIDDEN)
    state = {
        f"toy{number:02}": {"price": number % 7, "sold": number % 2 == 0, "since": "2026-01-02"}
        for number in range(60)
    }
    await run(store, {**state, '<b>"&': {"price": 100}}, dataset=PRICED)
    sources = [Source("toy_shop", "Toys", datasets=(PRICED, HIDDEN))]
    catalogue = Catalogue.of([], settings)
    app = create_app(settings, store, catalogue, sources)
    add_pages(app, settings, store, catalogue, sources)
    async with app_client(app) as client:
        yield client


async def test_the_pages_of_a_sorted_list_have_every_record_once(
    client: httpx2.AsyncClient,
) -> None:
    first = (await client.get("/records.json?sort=-price")).json()
    assert (first["dataset"], first["columns"][1]["sorted"]) == ("toys", "descending")
    assert first["records"][0]["key"] == '<b>"&'
    assert [one["sort"] for one in first["columns"]] == [
        "key",
        "price",
        "sold",
        "since",
        "changedAt",
    ]
    second = (await client.get(f"/records.json?sort=-price&after={first['next']}")).json()
    keys = [one["key"] for one in (*first["records"], *second["records"])]
    assert (len(keys), len(set(keys)), second["next"]) == (61, 61, None)
    prices = [one["values"][0] for one in (*first["records"], *second["records"])]
    assert prices == sorted(prices, reverse=True)


async def test_the_page_shows_values_and_downloads(client: httpx2.AsyncClient) -> None:
    page = (await client.get("/records?prefix=toy0", headers=BROWSER)).text
    assert page.count('<td class="named"><a href="/changes/record?dataset=toys&amp;key=toy0') == 10
    assert 'title="Price in the shop"' in page
    download = "/api/v1/toys?format=csv&key.prefix=toy0"
    assert f'href="{download.replace("&", "&amp;")}"' in page
    assert (await client.get(download)).text.count("\n") == 11
    turkish = {**BROWSER, "Accept-Language": "tr"}
    assert '<td class="cell">hayır</td>' in (await client.get("/records", headers=turkish)).text


async def test_filters_are_typed_and_apply_to_the_downloads(client: httpx2.AsyncClient) -> None:
    query = "f.price.gte=5&f.sold=true&f.since.lte=2026-01-02&sort=-price&f.gone=1"
    found = (await client.get(f"/records.json?{query}")).json()
    assert {one["values"][1] for one in found["records"]} == {True}
    assert min(one["values"][0] for one in found["records"]) == 5
    assert found["total"] == len(found["records"]) == 8
    # The last day counts to its end, also in the parameters of the API.
    rows = (await client.get(f"/api/v1/toys?format=csv&{found['apiQuery']}")).text
    assert rows.count("\n") == 9
    page = (await client.get(f"/records?{query}", headers=BROWSER)).text
    assert "Filters (3)" in page
    assert 'name="f.price.gte" value="5"' in page
    for wrong in ("f.price.gte=cheap", "f.sold=maybe"):
        assert (await client.get(f"/records?{wrong}", headers=BROWSER)).status_code == 400, wrong
    nothing = (await client.get("/records?f.price.gte=1000", headers=BROWSER)).text
    assert "No record matches." in nothing
    assert "Clear filters" in nothing


async def test_keys_are_escaped_and_hidden_datasets_stay_hidden(client: httpx2.AsyncClient) -> None:
    page = (await client.get('/records?prefix=<b>"%26', headers=BROWSER)).text
    assert "<b>" not in page
    assert "key=%3Cb%3E%22%26" in page
    assert "unlisted" not in page
    for wrong, status in (
        ("dataset=unlisted", 404),
        ("dataset=none", 404),
        ("sort=colour", 400),
        ("after=x", 400),
        ("prefix=%00", 400),
    ):
        assert (await client.get(f"/records?{wrong}", headers=BROWSER)).status_code == status, wrong


async def test_the_largest_dataset_is_shown_first_and_own_lists_are_linked(
    store: Store, settings: Settings
) -> None:
    await make_table(store)
    await make_table(store, HIDDEN)
    small = replace(TOYS, name="small")
    await make_table(store, small)
    await run(store, {f"toy{number}": {"price": number} for number in range(3)})
    pages = SourcePages((), TEMPLATES, lists={HIDDEN.name: "/all-of-them"})
    sources = [Source("toy_shop", "Toys", datasets=(small, HIDDEN, TOYS), pages=lambda: pages)]
    catalogue = Catalogue.of([], settings)
    app = create_app(settings, store, catalogue, sources)
    add_pages(app, settings, store, catalogue, sources)
    async with app_client(app) as client:
        assert (await client.get("/records.json")).json()["dataset"] == TOYS.name
        own = await client.get(f"/records?dataset={HIDDEN.name}", headers=BROWSER)
        assert own.status_code == 200
        assert 'href="/all-of-them"' in own.text
