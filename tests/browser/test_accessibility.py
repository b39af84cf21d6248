"""Every page without a violation that axe finds, in both languages and both colour schemes."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page
from starlette.routing import compile_path

from hasat.messages import LANGUAGES
from hasat.source.installed import all_sources
from hasat.web.site import build_site
from support.browser_errors import BrowserErrors
from support.processes import Installation, eventually

pytestmark = pytest.mark.xdist_group("browser")

# Pages that are not part of the site.
OTHERS = ("/login", "/docs", "/nothing-here")
CONTRAST = {"runOnly": ["color-contrast"]}
LINKS = """() => [...document.querySelectorAll("main a[href]")]
  .map((one) => new URL(one.getAttribute("href"), location).href)"""


def test_no_page_has_an_accessibility_violation(
    hosted: Installation, browser: Browser, browser_errors: BrowserErrors, tmp_path: Path
) -> None:
    """The pages of one record, run or list are found by the links of the other pages."""
    hosted.environ["HASAT_FOOTBALL_TRACKED_LEAGUES"] = '[{"id": 203, "season": 2026}]'
    for part, (first, last) in {"first": (0, 40), "more": (0, 42), "half": (0, 20)}.items():
        lists = tmp_path / f"{part}.xml"
        users = "".join(_user(number, part) for number in range(first, last))
        lists.write_text(f"<UserList>{users}</UserList>", "utf-8")
        hosted.call("gib", "sync", "--pk", str(lists), "--gb", str(lists))
    hosted.call("keys", "create", "erp")
    hosted.start("serve")
    eventually(hosted.ready, "it serves")
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, locale="en-GB", bypass_csp=True
    )
    page = context.new_page()
    browser_errors.of(page)
    page.request.get(f"{hosted.address}/api/v1/einvoice/1000000000?receipt=true")
    pages = build_site(all_sources()).pages
    found: dict[str, str] = {one.path: one.path for one in pages if "{" not in one.path}
    found["/records"] = "/records?dataset=fixtures"
    found["/changes"] = "/changes?dataset=einvoice"
    found["/changes/record"] = "/changes/record?dataset=einvoice&key=1000000000"
    violations: list[str] = []
    done: set[str] = set()
    while waiting := [path for path in found if path not in done]:
        for path in waiting:
            done.add(path)
            violations += _violations(page, hosted.address, found[path])
            for link in page.evaluate(LINKS):
                address = link.removeprefix(hosted.address)
                for one in pages:
                    if compile_path(one.path)[0].match(address.partition("?")[0]):
                        found.setdefault(one.path, address)
    for path in OTHERS:
        violations += _violations(page, hosted.address, path)
    assert violations == []
    assert {"/runs/{run}", "/receipts/{id}"} <= done
    # A page of something that is not stored yet is a 404, which the console reports.
    expected = ("status of 404", "GPU stall")
    assert [one for one in browser_errors if not any(text in one for text in expected)] == []
    context.close()


def _user(number: int, part: str) -> str:
    title = f"DENİZ {number} A.Ş." if part == "first" or number else "DENİZ ŞUBE A.Ş."
    return (
        f"<User><Identifier>{1000000000 + number}</Identifier><Title>{title}</Title>"
        "<Type>OZEL</Type><FirstCreationTime>2019-05-01T10:00:00</FirstCreationTime><Documents>"
        f'<Document type="Invoice"><Alias><Name>urn:mail:pk@d{number}.example</Name>'
        "<CreationTime>2019-05-01T10:00:00</CreationTime></Alias></Document></Documents></User>"
    )


def _violations(page: Page, address: str, path: str) -> list[str]:
    """Check a page completely in each language, and its colours in the dark, too."""
    found: list[str] = []
    for language in LANGUAGES:
        separator = "&" if "?" in path else "?"
        page.emulate_media(color_scheme="light")
        page.goto(f"{address}{path}{separator}lang={language}")
        found += _check(page, f"{path} in {language}")
    page.emulate_media(color_scheme="dark")
    return found + _check(page, f"{path} in the dark", CONTRAST)


def _check(page: Page, what: str, options: dict[str, list[str]] | None = None) -> list[str]:
    response = Axe().run(page, options=options).response
    return [
        f"{what}: {one['id']} at {node['target']}: {node['failureSummary']}"
        for one in response["violations"]
        for node in one["nodes"][:3]
    ]
