"""`hasat demo`: it loads its data and prints what to look at."""

import signal

from support.processes import Installation, eventually


def test_the_demo_loads_its_data_and_names_its_scenes(installation: Installation) -> None:
    # Another installation on this machine is not touched.
    installation.environ |= {
        "DATABASE_URL": "postgresql://x@127.0.0.1:9/prod",
        "HASAT_HOST": "0.0.0.0",  # noqa: S104
    }
    demo = installation.start("demo")
    eventually(lambda: "What to look at" in installation.output(), "it says what to look at")
    page = installation.get("/")
    assert page is not None
    assert "Half a list arrives" in page.text

    def has(dataset: str, least: int) -> bool:
        response = installation.get(f"/api/v1/{dataset}/digest")
        return response is not None and response.is_success and response.json()["count"] >= least

    for dataset, least in (("einvoice", 3_500), ("fixtures", 300), ("parcels", 20)):
        eventually(lambda d=dataset, n=least: has(d, n), f"{dataset} come in")
    assert "merkeztest.gib.gov.tr" not in installation.output()
    another = installation.call("demo")
    assert another.returncode == 1
    assert f"is already running at {installation.address}" in another.stderr
    assert has("einvoice", 3_500)
    # The scan is still running; it ends with everything else.
    demo.send_signal(signal.SIGINT)
    assert demo.wait(60) == 0
    assert "Traceback" not in installation.output()
