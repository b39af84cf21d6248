"""The pages speak two languages, both of them completely."""

import re
import string
from importlib.resources import files

import pytest
from starlette.requests import Request

from hasat.cli.runtime import build_catalogue
from hasat.fetch.outcomes import Outcome
from hasat.settings import load_settings
from hasat.sources.tkgm.scan.scan_request import QUALITY_LEVELS
from hasat.web.words import Words, language_of, texts

TEMPLATES = {
    file.name: file.read_text("utf-8") for file in (files("hasat.web") / "templates").iterdir()
}
CALLS = re.compile(r"""\bt\(\s*"([a-z0-9_.]+)"(\s*~)?""")
OPEN = re.compile(r"""\bt(?:\.maybe)?\(\s*"([a-z0-9_.]+)"\s*~""")


def test_every_text_is_there_in_both_languages_with_the_same_blanks() -> None:
    for name, (english, turkish) in texts().items():
        assert english.strip(), name
        assert turkish.strip(), name
        assert blanks(english) == blanks(turkish), name


def blanks(text: str) -> set[str | None]:
    return {field for _, field, _, _ in string.Formatter().parse(text)} - {None}


def test_every_text_of_a_template_exists_and_none_is_left_over() -> None:
    named = {
        name
        for source in TEMPLATES.values()
        for name, joined in CALLS.findall(source)
        if not joined
    }
    begun = tuple({name for source in TEMPLATES.values() for name in OPEN.findall(source)})
    assert named - texts().keys() == set()
    # Named by what is shown or by the code: `how.done`, `runs.title`, `unit.hour`.
    spare = {name for name in texts() if name not in named and not name.startswith(begun)}
    by_code = ("unit.", "problem.")
    assert {n for n in spare if not n.endswith(".title") and not n.startswith(by_code)} == set()


def test_every_job_outcome_and_quality_has_its_text() -> None:
    settings = load_settings(environ={})
    shown = {f"job.{name}": job.summary for name, job in build_catalogue(settings).jobs.items()}
    assert {name: texts()[name][0] for name in shown} == shown
    named = {f"ended.{one}" for one in Outcome} | {f"quality.{one}" for one in QUALITY_LEVELS}
    assert named <= texts().keys()


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
def test_the_address_decides_then_the_cookie_then_the_browser(
    query: str, cookie: str, accepted: str, expected: str
) -> None:
    headers = [(b"accept-language", accepted.encode())]
    if cookie:
        headers.append((b"cookie", f"hasat_lang={cookie}".encode()))
    scope = {"type": "http", "query_string": query.encode(), "headers": headers}
    assert language_of(Request(scope)) == expected


def test_numbers_and_spans_are_written_as_the_language_has_them() -> None:
    english, turkish = Words("en"), Words("tr")
    assert (english.number(1234567.5, 1), turkish.number(1234567.5, 1)) == (
        "1,234,567.5",
        "1.234.567,5",
    )
    assert (english.percent(12), turkish.percent(12)) == ("12 %", "%12")
    assert (english.span(59.6), english.span(61), english.span(7200)) == (
        "1 min",
        "1 min 1 s",
        "2 h",
    )
    assert turkish.span(90_061) == "1 gün 1 sa"
