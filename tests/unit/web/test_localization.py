"""Texts, numbers and times of the pages in both languages."""

import re
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from starlette.requests import Request

from hasat.clock import system_clock
from hasat.console.runtime import build_catalogue
from hasat.demo.scenes import all_scenes
from hasat.fetch.outcomes import Outcome
from hasat.messages import LANGUAGES, is_translated
from hasat.settings import load_settings
from hasat.source.installed import all_sources
from hasat.sources.tkgm.scan.progress import QUALITY_LEVELS
from hasat.store.audit import ACTIONS
from hasat.web.labels import LABELS
from hasat.web.localization import Localizer, request_language
from hasat.web.site import build_site
from support import message_catalogue


def test_labels_and_scenes_are_in_the_catalogue() -> None:
    labels = {text for kind in build_site(all_sources()).labels.values() for text in kind.values()}
    scenes = {text for scene in all_scenes() for text in (scene.title, scene.text)}
    assert labels | scenes <= message_catalogue.extract().keys()


def test_jobs_and_sources_are_described_in_turkish() -> None:
    summaries = {job.summary for job in build_catalogue(load_settings(environ={})).jobs.values()}
    titles = {source.title for source in all_sources()}
    assert {text for text in summaries | titles if not is_translated(text, "tr")} == set()


def test_every_outcome_quality_and_action_has_a_label() -> None:
    assert {str(one) for one in Outcome} <= LABELS["request_outcome"].keys()
    assert set(QUALITY_LEVELS) <= build_site(all_sources()).labels["quality"].keys()
    assert set(ACTIONS) == LABELS["action"].keys()


def test_a_value_without_a_label_is_shown_as_is() -> None:
    assert Localizer("tr").label("check", "another_source") == "another_source"
    assert Localizer("tr").label("state", "held") == "Bekletildi"


@pytest.mark.parametrize(
    ("query", "cookie", "accepted", "expected"),
    [
        ("", "", "", "en"),
        ("", "", "tr-TR,tr;q=0.9,en;q=0.8", "tr"),
        ("", "", "de,en;q=0.8,tr;q=0.7", "en"),
        ("", "", "de, tr;q=0.5", "tr"),
        ("", "", "tr;q=nonsense", "en"),
        ("", "tr", "en", "tr"),
        ("lang=en", "tr", "tr", "en"),
        ("lang=xx", "", "tr", "tr"),
    ],
)
def test_the_language_comes_from_the_address_then_the_cookie_then_the_browser(
    query: str, cookie: str, accepted: str, expected: str
) -> None:
    headers = [(b"accept-language", accepted.encode())]
    if cookie:
        headers.append((b"cookie", f"hasat_lang={cookie}".encode()))
    scope = {"type": "http", "query_string": query.encode(), "headers": headers}
    assert request_language(Request(scope)) == expected


def test_numbers_and_durations_follow_the_language() -> None:
    english, turkish = Localizer("en"), Localizer("tr")
    assert (english.number(1234567.5, 1), turkish.number(1234567.5, 1)) == (
        "1,234,567.5",
        "1.234.567,5",
    )
    assert (english.percent(12), turkish.percent(12)) == ("12%", "%12")
    assert (english.duration(59.6), english.duration(61), english.duration(7200)) == (
        "1 min",
        "1 min 1 s",
        "2 h",
    )
    assert turkish.duration(90_061) == "1 gün 1 sa"


def test_times_follow_the_language_and_leave_out_the_date_of_today() -> None:
    english, turkish = (Localizer(one, ZoneInfo("Europe/Istanbul")) for one in LANGUAGES)
    at = datetime(2025, 11, 18, 9, 5, 7, tzinfo=UTC)
    assert (english.time(at), turkish.time(at)) == ("2025-11-18 12:05", "18.11.2025 12:05")
    assert turkish.time(at, "full") == "18.11.2025 12:05:07"
    assert turkish.time(at, "%H:%M") == "12:05"
    assert turkish.time(None) == "–"
    assert re.fullmatch(r"\d\d:\d\d:\d\d", turkish.time(system_clock()))
    assert turkish.day(date(2025, 11, 18)) == turkish.iso_date("2025-11-18T01:00") == "18.11.2025"
