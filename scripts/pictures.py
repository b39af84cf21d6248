"""Start the demo in a temporary folder and take pictures of the pages.

Pages that do not exist are left out. `--soon` does not wait for the scenes of the demo.
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
# Name of the picture, page, language and colour scheme.
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
MAX_SECONDS = 900.0


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + MAX_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"Timed out: {what}.")
        time.sleep(1)


def get(path: str) -> httpx2.Response | None:
    try:
        return httpx2.get(f"{ADDRESS}{path}", timeout=30)
    except httpx2.HTTPError:
        return None


def count(dataset: str) -> int:
    response = get(f"/api/v1/{dataset}/digest")
    return int(response.json()["count"]) if response is not None and response.is_success else 0


def is_held() -> bool:
    response = get("/api/v1/status")
    return response is not None and any(s.get("heldRuns") for s in response.json()["sources"])


def take_pictures(browser: Browser) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, path, language, colours in SHOTS:
        context = browser.new_context(
            viewport={"width": 1280, "height": 860},
            device_scale_factor=1,
            locale="tr-TR" if language == "tr" else "en-GB",
            color_scheme="dark" if colours == "dark" else "light",
        )
        page = context.new_page()
        # Live pages keep a connection open, so the network never becomes idle.
        response = page.goto(f"{ADDRESS}{path}", wait_until="load")
        if response is not None and response.ok:
            # Drawing a map without a graphics card takes a while.
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
            until(lambda: count("einvoice") > 0 and count("fixtures") > 0, "the lists are loaded")
            until(lambda: count("parcels") > (20 if soon else 250), "the town is scanned")
            if not soon:
                until(is_held, "the guard holds a list")
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=os.environ["HASAT_CHROMIUM"],
                    args=["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"],
                )
                take_pictures(browser)
                browser.close()
        finally:
            demo.send_signal(signal.SIGTERM)
            demo.wait()


if __name__ == "__main__":
    main()
