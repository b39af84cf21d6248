"""The limits of the built-in upstreams."""

import pytest

from hasat.budget import Lane, Upstream
from hasat.errors import SettingsError
from hasat.settings import Settings, load_settings
from hasat.sources.football.settings import football_upstream as football
from hasat.sources.tkgm.settings import tkgm_upstream as tkgm


def load(**environ: str) -> Settings:
    return load_settings(environ={"HASAT_HOME": "/nowhere", **environ})


def test_football_has_the_limits_of_its_seed() -> None:
    upstream = football(load())
    assert (upstream.zone, upstream.day_limit, upstream.target) == ("UTC", 75_000, 0.9)
    assert (upstream.minute_limit, upstream.minute_hard) == (280, 300)
    assert [lane.name for lane in upstream.lanes] == [
        "finalise",
        "daily",
        "details",
        "backfill",
        "verify",
    ]
    assert {lane.keep for lane in upstream.lanes[:-1]} == {7_500}
    assert upstream.lanes[-1].keep == 50_000
    assert not upstream.shadow


def test_football_follows_its_settings() -> None:
    upstream = football(
        load(
            HASAT_FOOTBALL_RATE_LIMITER_DAILY_LIMIT="7500",
            HASAT_FOOTBALL_RATE_LIMITER_MINUTE_SOFT_LIMIT="400",
            HASAT_FOOTBALL_RATE_LIMITER_EMERGENCY_STOP_THRESHOLD="0",
            HASAT_FOOTBALL_RATE_LIMITER_SHADOW="true",
            HASAT_FOOTBALL_VERIFICATION_MIN_DAILY_QUOTA="100",
        )
    )
    assert (upstream.day_limit, upstream.minute_limit, upstream.shadow) == (7_500, 300, True)
    assert [lane.keep for lane in upstream.lanes] == [0, 0, 0, 0, 100]


def test_a_larger_plan_needs_no_more_than_the_keys_of_the_seed() -> None:
    ultra = {"TOKEN_BUCKET_PER_MINUTE": "450", "MINUTE_SOFT_LIMIT": "430"}
    given = {f"HASAT_FOOTBALL_RATE_LIMITER_{name}": value for name, value in ultra.items()}
    upstream = football(load(**given))
    assert (upstream.minute_limit, upstream.minute_hard) == (430, 450)
    upstream = football(load(**given, HASAT_FOOTBALL_RATE_LIMITER_MINUTE_LIMIT="300"))
    assert (upstream.minute_limit, upstream.minute_hard) == (300, 300)


def test_tkgm_counts_points_for_each_endpoint() -> None:
    upstream = tkgm(load())
    assert upstream.zone == "Europe/Istanbul"
    assert upstream.each_endpoint is not None
    assert (upstream.each_endpoint.day, upstream.each_endpoint.seconds) == (2_000, 0.2)


def test_contradictory_limits_are_rejected() -> None:
    with pytest.raises(SettingsError, match="time zone"):
        Upstream("u", zone="Mars/Olympus")
    with pytest.raises(SettingsError, match="distinct names"):
        Upstream("u", lanes=(Lane("a"), Lane("a")))
    with pytest.raises(SettingsError, match="exceeds its hard limit"):
        Upstream("u", minute_limit=300, minute_hard=280)
