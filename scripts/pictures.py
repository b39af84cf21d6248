"""Start the demo in a folder of its own, let its story happen, and take pictures of the pages.

A page that this version does not have is left out. `--soon` does not wait for the story.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
from playwright.sync_api import Browser, sync_playwright

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
PORT = 8797
ADDRESS = f"http://127.0.0.1:{PORT}"
# What each picture shows: its name, the page, and the reader's language and colours.
SHOTS = (
    ("overview", "/", "en", "light"),
    ("overview.tr", "/", "tr", "light"),
    ("overview-dark", "/", "en", "dark"),
    ("quota", "/quota", "en", "light"),
    ("runs", "/runs", "en", "light"),
    ("changes", "/changes?dataset=einvoice", "en", "light"),
    ("parcels", "/parcels", "en", "light"),
    ("parcels.tr", "/parcels", "tr", "light"),
    ("football", "/football", "en", "light"),
    ("taxpayers", "/taxpayers", "en", "light"),
    ("delivery", "/delivery", "en", "light"),
    ("doctor", "/doctor", "en", "light"),
)
LONGEST_SECONDS = 900.0


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"This did not happen: {what}.")
        time.sleep(1)


def told(path: str) -> httpx2.Response | None:
    try:
        return httpx2.get(f"{ADDRESS}{path}", timeout=30)
    except httpx2.HTTPError:
        return None


def count(dataset: str) -> int:
    answer = told(f"/api/v1/{dataset}/digest")
    return int(answer.json()["count"]) if answer is not None and answer.is_success else 0


def held() -> bool:
    answer = told("/api/v1/status")
    return answer is not None and any(s.get("heldRuns") for s in answer.json()["sources"])


def take(browser: Browser) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, path, language, colours in SHOTS:
        context = browser.new_context(
            viewport={"width": 1280, "height": 860},
            device_scale_factor=1,
            locale="tr-TR" if language == "tr" else "en-GB",
            color_scheme="dark" if colours == "dark" else "light",
        )
        page = context.new_page()
        # Pages that stay live never fall silent, so the load is what is waited for.
        answer = page.goto(f"{ADDRESS}{path}", wait_until="load")
        if answer is not None and answer.ok:
            # A map is drawn without a graphics card, tile by tile.
            page.wait_for_timeout(20_000 if page.locator("canvas").count() else 3_000)
            page.screenshot(path=PICTURES / f"{name}.png", animations="disabled")
            print(f"{name}.png")
        context.close()


def main() -> None:
    soon = "--soon" in sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="hasat-pictures-") as folder:
        demo = subprocess.Popen(
            [sys.executable, "-m", "hasat", "--set", f"home={folder}/demo", "demo"],
            env=os.environ | {"HASAT_PORT": str(PORT)},
        )
        try:
            until(lambda: count("einvoice") > 0 and count("fixtures") > 0, "the lists come in")
            until(lambda: count("parcels") > (20 if soon else 250), "the town is scanned")
            if not soon:
                until(held, "the guard holds a list")
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=os.environ["HASAT_CHROMIUM"],
                    args=["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"],
                )
                take(browser)
                browser.close()
        finally:
            demo.send_signal(signal.SIGTERM)
            demo.wait()


if __name__ == "__main__":
    main()
