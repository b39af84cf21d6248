"""`hasat demo` as a newcomer meets it: it fills itself, and there is something to follow."""

import signal

from house import House, eventually


def test_the_demo_fills_itself_from_a_publisher_of_its_own(house: House) -> None:
    # Whatever else is set up on this machine is left alone.
    house.environ |= {"DATABASE_URL": "postgresql://x@127.0.0.1:9/prod", "HASAT_HOST": "0.0.0.0"}  # noqa: S104
    demo = house.start("demo")
    eventually(lambda: "Stop with Ctrl-C" in house.said(), "it says what to look at")

    def synchronised() -> bool:
        answer = house.get("/api/v1/status")
        return answer is not None and (answer.json()["eInvoiceUserCount"] or 0) > 9_000

    eventually(synchronised, "the first lists are in")
    changes = house.get("/api/v1/einvoice/changes?limit=5")
    assert changes is not None
    assert changes.status_code == 200
    assert "merkeztest.gib.gov.tr" not in house.said()
    demo.send_signal(signal.SIGTERM)
    assert demo.wait(60) == 0
