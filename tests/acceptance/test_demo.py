"""`hasat demo` as a newcomer meets it: it fills itself, and says what to look at."""

import signal

from support.house import House, eventually


def test_the_demo_loads_its_data_and_names_its_scenes(house: House) -> None:
    # Whatever else is set up on this machine is left alone.
    house.environ |= {"DATABASE_URL": "postgresql://x@127.0.0.1:9/prod", "HASAT_HOST": "0.0.0.0"}  # noqa: S104
    demo = house.start("demo")
    eventually(lambda: "What to look at" in house.said(), "it says what to look at")
    page = house.get("/")
    assert page is not None
    assert "Half a list arrives" in page.text

    def has(dataset: str, least: int) -> bool:
        answer = house.get(f"/api/v1/{dataset}/digest")
        return answer is not None and answer.is_success and answer.json()["count"] >= least

    for dataset, least in (("einvoice", 3_500), ("fixtures", 300), ("parcels", 20)):
        eventually(lambda d=dataset, n=least: has(d, n), f"{dataset} come in")
    assert "merkeztest.gib.gov.tr" not in house.said()
    another = house.call("demo")
    assert another.returncode == 1
    assert f"is already running at {house.address}" in another.stderr
    assert has("einvoice", 3_500)
    # In the middle of the scan: it is ended with everything else.
    demo.send_signal(signal.SIGINT)
    assert demo.wait(60) == 0
    assert "Traceback" not in house.said()
