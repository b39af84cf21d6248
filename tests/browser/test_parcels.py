"""The parcel map in a real browser."""

import json
import re
from collections.abc import Iterator
from importlib.resources import files

import pytest
from anyio.from_thread import BlockingPortal
from playwright.sync_api import Browser, Page, expect

from hasat.source.installed import all_sources
from hasat.store import MigrationSet, open_store
from hasat.testing.database import throw_away_database
from support.browser_errors import BrowserErrors
from support.parcels import SOUTH, STEP, WEST, publish_features, street
from support.processes import TIMEOUT_SECONDS, Installation, eventually

# All browser tests share one worker process.
pytestmark = pytest.mark.xdist_group("browser")

PATIENCE = TIMEOUT_SECONDS * 1000
# The number of colours of a canvas, sampled on a coarse grid.
COLOURS = """canvas => {
  const copy = document.createElement("canvas");
  copy.width = 200; copy.height = 100;
  const paper = copy.getContext("2d");
  paper.drawImage(canvas, 0, 0, copy.width, copy.height);
  const { data } = paper.getImageData(0, 0, copy.width, copy.height);
  const seen = new Set();
  for (let i = 0; i < data.length; i += 4) seen.add(data.slice(i, i + 3).join());
  return seen.size;
}"""


@pytest.fixture(scope="module")
def town(
    tmp_path_factory: pytest.TempPathFactory, background: BlockingPortal, server_url: str
) -> Iterator[Installation]:
    """An installation that serves, with the street in its mirror."""
    if not (files("hasat.web") / "static/islands/map.js").is_file():
        pytest.skip("the islands were not built: npm's registry could not be reached")
    installation = Installation(tmp_path_factory.mktemp("town") / "home")
    sets = [MigrationSet(one.name, one.migrations) for one in all_sources() if one.migrations]

    async def fill() -> None:
        async with open_store(database.settings(installation.home), sets) as store:
            await publish_features(store, street())

    with background.wrap_async_context_manager(throw_away_database(server_url, sets)) as database:
        installation.environ["HASAT_DATABASE_URL"] = database.url
        installation.start("serve")
        eventually(installation.ready, "it serves")
        background.call(fill)
        yield installation
        installation.end()


def box(west: float, south: float, east: float, north: float) -> str:
    sides = (WEST + west * STEP, SOUTH + south * STEP, WEST + east * STEP, SOUTH + north * STEP)
    return ",".join(f"{side:.5f}" for side in sides)


def status(page: Page) -> str:
    return page.locator("[data-map=status]").text_content() or ""


def open_map(page: Page, address: str) -> None:
    page.goto(address)
    line = page.locator("[data-map=status]")
    expect(line).to_have_text(re.compile(r"\d parcels in view"), timeout=PATIENCE)
    canvas = page.locator("canvas")
    eventually(lambda: canvas.evaluate(COLOURS) > 3, "the map shows parcels")


def test_the_map_shows_parcels_their_history_and_the_estimate_of_a_drawn_area(
    town: Installation, browser: Browser, browser_errors: BrowserErrors
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, locale="en")
    browser_errors.of(page)
    open_map(page, f"{town.address}/parcels")
    assert status(page).startswith("26 ")
    page.get_by_label("Colour by").select_option("age")
    expect(page.locator("[data-map=legend]")).to_contain_text("Under a week")

    open_map(page, f"{town.address}/parcels?area={box(2.1, 0.1, 2.9, 0.9)}")
    frame = page.locator("canvas").bounding_box()
    assert frame is not None
    middle = {"x": frame["width"] / 2, "y": frame["height"] / 2}
    page.locator("canvas").click(position=middle)
    details = page.locator("[data-map=details]")
    expect(details).to_contain_text("1162/101/3", timeout=PATIENCE)
    expect(details).to_contain_text("Remzi Oğuz Arık")
    expect(details.locator("ol")).to_contain_text("Added", timeout=PATIENCE)

    _keeps_its_size(page)
    page.get_by_role("button", name="Show all").click()
    expect(page.locator("[data-map=status]")).to_have_text(re.compile("^26 "), timeout=PATIENCE)
    draw = page.get_by_role("button", name="Draw area")
    hint = page.locator("[data-map=hint]")
    for pressed in ("true", "false", "true"):
        draw.click()
        expect(draw).to_have_attribute("aria-pressed", pressed)
        expect(hint).to_be_visible(visible=pressed == "true")
    expect(hint).to_be_in_viewport()
    for x, y in ((0.2, 0.2), (0.5, 0.2), (0.5, 0.8)):
        page.locator("canvas").click(position={"x": frame["width"] * x, "y": frame["height"] * y})
    with page.expect_navigation(timeout=PATIENCE):
        page.keyboard.press("Enter")
    expect(page.get_by_text("Requests needed")).to_be_visible()
    assert page.get_by_role("textbox").input_value().count(",") == 3
    # The software renderer warns about slow reads.
    assert [one for one in browser_errors if "GPU stall" not in one] == []


def test_a_search_opens_a_parcel_and_a_wrong_area_keeps_map_and_input(
    town: Installation, browser: Browser
) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, locale="en")
    open_map(page, f"{town.address}/parcels")
    page.get_by_role("searchbox", name="ada/parsel").fill("101/3")
    page.get_by_role("searchbox", name="ada/parsel").press("Enter")
    details = page.locator("[data-map=details]")
    expect(details).to_contain_text("1162/101/3", timeout=PATIENCE)
    # What is in view now, not at first.
    box = page.locator("[data-map=download] [name=bbox]")
    before = box.input_value()
    page.get_by_role("button", name="Zoom in").click()
    eventually(lambda: box.input_value() != before, "the download follows the map")
    with page.expect_download(timeout=PATIENCE) as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "parcels.gpkg"

    area = page.get_by_label(re.compile("^Area"))
    area.fill("39.9,32.85,39.91,32.86")
    area.press("Enter")
    expect(page.get_by_role("alert").first).to_contain_text("swapped", timeout=PATIENCE)
    assert area.input_value() == "39.9,32.85,39.91,32.86"
    expect(page.locator("canvas")).to_be_visible()

    file = {"name": "area.kml", "mimeType": "text/xml", "buffer": b"<gpx/>"}
    page.locator("form[action='/parcels/area'] [type=file]").set_input_files(file)
    page.get_by_role("button", name="Upload area").click()
    expect(page.locator("form[action='/parcels/area'] .notice")).to_contain_text(
        "not KML", timeout=PATIENCE
    )
    corners = [[32.85, 39.9], [32.852, 39.9], [32.852, 39.901], [32.85, 39.9]]
    content = json.dumps({"type": "Polygon", "coordinates": [corners]}).encode()
    file = {"name": "area.geojson", "mimeType": "application/json", "buffer": content}
    page.locator("form[action='/parcels/area'] [type=file]").set_input_files(file)
    page.get_by_role("button", name="Upload area").click()
    expect(page.get_by_text("Requests needed")).to_be_visible(timeout=PATIENCE)
    assert area.input_value() == "area.geojson"


def _keeps_its_size(page: Page) -> None:
    """A moment without size, as during a screenshot of the whole page, does not resize the map."""
    size = "canvas => [canvas.clientWidth, canvas.clientHeight]"
    canvas = page.locator("canvas")
    before = canvas.evaluate(size)
    frame = page.locator("[data-map=frame]")
    for shown in ("none", ""):
        frame.evaluate(
            "(frame, shown) => new Promise((seen) => { frame.style.display = shown;"
            " requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(seen, 0))); })",
            shown,
        )
    assert canvas.evaluate(size) == before
    page.set_viewport_size({"width": 1000, "height": 900})
    eventually(lambda: canvas.evaluate(size)[0] < before[0], "the map follows the window")
    page.set_viewport_size({"width": 1280, "height": 900})
    eventually(lambda: canvas.evaluate(size) == before, "the map follows the window back")


def test_the_page_fits_a_phone_and_works_without_scripts(
    town: Installation, browser: Browser
) -> None:
    context = browser.new_context(viewport={"width": 375, "height": 800}, java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{town.address}/parcels?area={box(0.1, 0.1, 2.9, 0.9)}&lang=tr")
    expect(page.get_by_text("Harita için JavaScript")).to_be_visible()
    expect(page.get_by_role("link", name="101/2", exact=True)).to_be_visible()
    expect(page.get_by_text("Gereken istek")).to_be_visible()
    context.close()
    page = browser.new_page(viewport={"width": 375, "height": 800}, locale="en")
    open_map(page, f"{town.address}/parcels")
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
