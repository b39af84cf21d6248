"""Responses of any shape: nothing raises, nothing is lost, and encodings agree."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hasat.errors import BrokenAnswerError
from hasat.feed.encoding import canonical
from hasat.sources.football.ingest.elements import extract
from hasat.sources.football.ingest.envelope import encode, read_envelope
from hasat.sources.football.ingest.scopes import scopes_containing

ODD = st.sampled_from(
    [
        None,
        "",
        0,
        -1,
        10**30,
        True,
        1.5,
        1e300,
        4e-5,
        -0.0,
        "55%",
        "%s",
        [],
        {},
        {"": ""},
        "x" * 700,
    ]
)
TEXT = st.text(st.characters(codec=None), max_size=5)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ID = ODD | st.integers(0, 9)


def object_with(**fields: Any) -> st.SearchStrategy[Any]:
    """Generate objects with these fields, any of which may be malformed or missing."""
    return st.fixed_dictionaries({}, optional={n: v | ODD for n, v in fields.items()}) | ANYTHING


WHO = object_with(id=ID, name=TEXT)
EVENT = object_with(time=object_with(elapsed=ID, extra=ID), team=WHO, player=WHO, type=TEXT)
BLOCK = object_with(team=WHO, startXI=ANYTHING)
PLAYERS = object_with(team=WHO, players=st.lists(object_with(player=WHO), max_size=3))
ABOUT = object_with(id=ID, timestamp=ID)
LEAGUE = object_with(id=ID, season=ID)
ROWS: dict[str, st.SearchStrategy[Any]] = {
    "timezone": TEXT | ANYTHING,
    "countries": object_with(name=TEXT),
    "leagues": object_with(league=WHO, seasons=ANYTHING),
    "teams": object_with(team=WHO, venue=ANYTHING),
    "fixtures/events": EVENT,
    "fixtures/lineups": BLOCK,
    "fixtures/statistics": BLOCK,
    "injuries": object_with(player=WHO, team=WHO, fixture=ABOUT, league=LEAGUE),
    "players/topscorers": object_with(player=WHO, statistics=ANYTHING),
    "teams/statistics": object_with(team=WHO, league=LEAGUE),
}
PARAMETERS = {"league": "39", "season": "2024", "fixture": "7"}


@pytest.mark.parametrize("endpoint", ROWS)
@given(data=st.data())
@settings(max_examples=60)
def test_element_is_a_record_or_quarantined(endpoint: str, data: st.DataObject) -> None:
    rows = data.draw(st.lists(ROWS[endpoint], min_size=1, max_size=4))
    found = extract(endpoint, PARAMETERS, rows)
    kept = [*(one.body for one in found.elements), *(one.body for one in found.unreadable)]
    assert sorted(map(repr, kept)) == sorted(map(repr, rows))
    assert not {one.dataset for one in found.unreadable} & {c.dataset for c in found.scopes}
    for element in found.elements:
        assert len(element.key.encode(errors="replace")) < 2_600
        assert list(scopes_containing(element))


@given(
    st.lists(
        object_with(
            fixture=ABOUT,
            league=LEAGUE,
            events=st.lists(EVENT, max_size=3),
            lineups=st.lists(BLOCK, max_size=3),
            statistics=st.lists(BLOCK, max_size=3),
            players=st.lists(PLAYERS, max_size=3),
        ),
        max_size=3,
    )
)
@settings(max_examples=150)
def test_scopes_of_malformed_matches_cover_only_readable_ones(rows: list[Any]) -> None:
    found = extract("fixtures", {"ids": "7"}, rows)
    fixtures = [one for one in found.elements if one.dataset == "fixtures"]
    lost = [one for one in found.unreadable if one.dataset == "fixtures"]
    assert len(fixtures) + len(lost) == len(rows)
    for element in found.elements:
        assert list(scopes_containing(element))


@given(ANYTHING, ANYTHING, ANYTHING, ANYTHING)
@settings(max_examples=200)
def test_envelope_of_any_shape_is_read_or_refused(
    errors: Any, parameters: Any, paging: Any, response: Any
) -> None:
    document = {"errors": errors, "parameters": parameters, "paging": paging, "response": response}
    document["results"] = paging
    envelope = read_envelope(json.dumps(document))
    assert envelope.page >= 1
    assert envelope.pages >= 1
    assert all(isinstance(text, str) for text in envelope.errors.values())
    spellings = {
        encode(envelope.document),
        encode(envelope.document, integers_only=envelope.integers_only),
    }
    assert spellings == {canonical(envelope.document)}
    # The stored document is read as the same.
    again = read_envelope(json.dumps(envelope.document, ensure_ascii=False))
    assert (again.document, again.repaired) == (envelope.document, False)
    assert b"\\u0000" not in encode(again.document).replace(b"\\\\", b"")


@pytest.mark.parametrize("text", ["[" * 200_000, "{", b"\xff"])
def test_invalid_json_is_refused(text: str | bytes) -> None:
    body = text if isinstance(text, bytes) else f'{{"errors": [], "response": {text}}}'
    with pytest.raises(BrokenAnswerError):
        read_envelope(body)


@pytest.mark.parametrize(
    "value",
    [
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"9" * 5000,
        b'"\\u0000"',
        b'"\\ud800"',
        b'"\x00"',
        b'"\xed\xa0\x80"',
        b'"caf\xe9"',
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 500 + b"1" + b"}" * 500,
    ],
    ids=lambda value: repr(value[:12]),
)
def test_unstorable_value_does_not_affect_others(value: bytes) -> None:
    body = b'{"errors": [], "response": [{"id": 7}, {"odd": %b}, {"id": 1.5}]}' % value
    envelope = read_envelope(body)
    assert envelope.repaired
    first, odd, last = envelope.response
    assert (first, last) == ({"id": 7}, {"id": 1.5})
    assert "\ufffd" in str(odd)
    json.dumps(envelope.document, allow_nan=False).encode()
    assert read_envelope(canonical(envelope.document)).document == envelope.document


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_other_encodings_of_json_are_read(encoding: str) -> None:
    body = '{"errors": [], "response": ["Fenerbahçe", "\\u0000"]}'.encode(encoding)
    assert read_envelope(body).response == ["Fenerbahçe", "\ufffd"]
