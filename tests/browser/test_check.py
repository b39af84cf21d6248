"""The upload of a list of customers in a real browser."""

import csv
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from support.browser_errors import BrowserErrors
from support.processes import Installation, eventually

pytestmark = pytest.mark.xdist_group("browser")

USER = """<User><Identifier>1234567890</Identifier><Title>IŞIK A.Ş.</Title><Type>OZEL</Type>
<FirstCreationTime>2019-05-01T10:00:00</FirstCreationTime><Documents><Document type="Invoice">
<Alias><Name>urn:mail:pk@isik.tr</Name><CreationTime>2019-05-01T10:00:00</CreationTime></Alias>
</Document></Documents></User>"""


def test_a_list_is_uploaded_and_downloaded(
    hosted: Installation, browser: Browser, browser_errors: BrowserErrors, tmp_path: Path
) -> None:
    lists = tmp_path / "list.xml"
    lists.write_text(f"<UserList>{USER}</UserList>", "utf-8")
    synced = hosted.call("gib", "sync", "--pk", str(lists), "--gb", str(lists))
    assert synced.returncode == 0, synced.stderr
    customers = tmp_path / "müşteriler.csv"
    customers.write_text("Ad;VKN\n=1+1;1234567890\nx;864387\n", "utf-8")
    hosted.start("serve")
    eventually(hosted.ready, "it serves")
    context = browser.new_context(locale="tr-TR")
    page = context.new_page()
    browser_errors.of(page)
    page.goto(f"{hosted.address}/check")
    page.get_by_label("Dosya").set_input_files(customers)
    page.get_by_label("Sonuç").select_option("csv")
    with page.expect_download() as download:
        page.get_by_role("button", name="Listeyi denetle").click()
    assert download.value.suggested_filename == "müşteriler-checked.csv"
    download.value.save_as(tmp_path / "result.csv")
    text = (tmp_path / "result.csv").read_text("utf-8-sig")
    rows = list(csv.reader(text.splitlines(), delimiter=";"))
    assert rows[1][:3] == ["'=1+1", "1234567890", "yes"]
    assert rows[2][-1] == "6 haneli, 10 veya 11 değil; olası numara 0000864387"
    expect(page.get_by_role("status")).to_contain_text("2 kayıt · e-Fatura 1 · e-Arşiv 0 · 1 bozuk")
    customers.write_text("Ad;Adres\nx;y\n", "utf-8")
    page.get_by_label("Dosya").set_input_files(customers)
    page.get_by_role("button", name="Listeyi denetle").click()
    expect(page.get_by_role("status")).to_contain_text("VKN ya da TCKN sütunu yok")
    # A refused file is an error for the page, not for the console.
    assert browser_errors == []
    context.close()
