"""Taxpayers, their changes and the decision about a hold."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser_errors import BrowserErrors
from support.processes import Installation, eventually

pytestmark = pytest.mark.xdist_group("browser")


def test_a_taxpayer_is_found_copied_and_watched_and_a_hold_is_decided(
    hosted: Installation, browser: Browser, browser_errors: BrowserErrors, tmp_path: Path
) -> None:
    for part, count in (("first", 40), ("more", 41), ("half", 20)):
        lists = tmp_path / f"{part}.xml"
        lists.write_text(f"<UserList>{_users(count, part)}</UserList>", "utf-8")
        hosted.call("gib", "sync", "--pk", str(lists), "--gb", str(lists))
    hosted.start("serve")
    eventually(hosted.ready, "it serves")
    context = browser.new_context(
        viewport={"width": 1280, "height": 900},
        locale="en-GB",
        permissions=["clipboard-read", "clipboard-write"],
    )
    page = context.new_page()
    browser_errors.of(page)
    _follow_a_change(page, hosted.address)
    _check_phone(page, hosted.address)
    _decide(page, hosted)
    assert browser_errors == []
    context.close()


def _users(count: int, part: str) -> str:
    return "".join(
        f"<User><Identifier>{1000000000 + number}</Identifier><Title>DENİZ {number} A.Ş.</Title>"
        "<Type>OZEL</Type><FirstCreationTime>2019-05-01T10:00:00</FirstCreationTime><Documents>"
        f'<Document type="Invoice">{_alias("pk", number)}'
        f"{_alias('pk2', number) if not number and part == 'more' else ''}</Document></Documents>"
        "</User>"
        for number in range(count)
    )


def _alias(name: str, number: int) -> str:
    return (
        f"<Alias><Name>urn:mail:{name}@d{number}.example</Name>"
        "<CreationTime>2019-05-01T10:00:00</CreationTime></Alias>"
    )


def _follow_a_change(page: Page, address: str) -> None:
    """From the changes of a dataset to the card of a taxpayer, its aliases and a watch list."""
    page.goto(f"{address}/changes?dataset=einvoice")
    page.locator("select[name=kind]").select_option("modified")
    expect(page).to_have_url(re.compile("kind=modified"))
    row = page.get_by_role("row", name="DENİZ 0 A.Ş.")
    expect(row.locator("ins").first).to_have_text(re.compile(r"urn:mail:pk2@d0\.example · "))
    expect(row.locator("del")).to_have_count(0)
    expect(page.get_by_text("DENİZ 40 A.Ş.")).to_have_count(0)
    row.get_by_role("link", name="DENİZ 0 A.Ş.").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("DENİZ 0 A.Ş.")
    expect(page.get_by_text("Not listed", exact=True)).to_have_count(1)
    page.get_by_role("button", name="Copy urn:mail:pk2@d0.example").first.click()
    eventually(lambda: _copied(page) == "urn:mail:pk2@d0.example", "the alias is copied")
    page.get_by_role("button", name="Copy link").click()
    eventually(lambda: _copied(page) == page.url, "the link is copied")
    page.get_by_text("Download", exact=True).click()
    page.keyboard.press("Escape")
    expect(page.get_by_text("Download", exact=True)).to_be_focused()
    expect(page.get_by_role("link", name="History XLSX").first).to_be_hidden()
    page.get_by_text("Download", exact=True).click()
    with page.expect_download() as download:
        page.get_by_role("link", name="History XLSX").first.click()
    assert download.value.suggested_filename.endswith(".xlsx")
    page.get_by_role("button", name="Issue receipt").click()
    expect(page).to_have_url(re.compile("/receipts/"))
    page.go_back()
    page.get_by_role("link", name="Watch", exact=True).click()
    expect(page.get_by_label("Keys, one in each line")).to_have_value("1000000000")
    expect(page.get_by_label("Dataset")).to_have_value("einvoice")


def _copied(page: Page) -> str:
    return str(page.evaluate("navigator.clipboard.readText()"))


def _check_phone(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    for path in (
        "/records?dataset=parcels",
        "/changes?dataset=einvoice",
        "/changes/record?dataset=einvoice&key=1000000000",
        "/taxpayers/1000000000",
        "/taxpayers/9999999999",
        f"/runs/{_held(page, address)}",
    ):
        for language in ("en", "tr"):
            separator = "&" if "?" in path else "?"
            page.goto(f"{address}{path}{separator}lang={language}")
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.goto(f"{address}/?lang=en")
    page.set_viewport_size({"width": 1280, "height": 900})


def _held(page: Page, address: str) -> int:
    [hold] = page.request.get(f"{address}/api/v1/holds?state=waiting").json()["holds"]
    return int(hold["id"])


def _decide(page: Page, installation: Installation) -> None:
    """Approving needs the number of removals; a written reason survives updates of the page."""
    number = _held(page, installation.address)
    page.goto(f"{installation.address}/runs/{number}")
    expect(page.locator("main section").first).to_have_id("guard")
    expect(page.locator("#guard .effect .figure")).to_have_text("41 → 20 records")
    approve = page.get_by_role("button", name="Approve and apply")
    expect(approve).to_be_disabled()
    typed = page.get_by_label("To approve, type the number of removed records: 21")
    typed.fill("20")
    expect(approve).to_be_disabled()
    typed.fill("21")
    expect(approve).to_be_enabled()
    typed.press("Enter")
    expect(approve).to_be_focused()
    expect(page).to_have_url(re.compile(f"/runs/{number}$"))
    reason = page.get_by_label("Reason")
    reason.fill("half of the list is missing")
    page.get_by_role("heading", level=1).click()
    # A change elsewhere updates the open page.
    page.evaluate("document.addEventListener('hasat:updated', () => { window.updated = true; })")
    installation.call("jobs", "run", "housekeeping")
    eventually(lambda: page.evaluate("window.updated === true"), "the page is updated")
    expect(reason).to_have_value("half of the list is missing")
    page.get_by_role("button", name="Reject").click()
    expect(page.locator("#guard .mark").first).to_have_text("Rejected")
    expect(page.locator("#guard")).to_contain_text("half of the list is missing")
    expect(page.locator("#state .mark")).to_have_class(re.compile("neutral"))
    page.goto(f"{installation.address}/runs")
    expect(page.locator("#list .mark.warning")).to_have_count(0)
    holds = page.request.get(f"{installation.address}/api/v1/holds/{number}").json()
    assert (holds["state"], holds["reason"]) == ("rejected", "half of the list is missing"), (
        json.dumps(holds)
    )
