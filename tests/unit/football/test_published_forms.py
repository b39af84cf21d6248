"""Every form of a response that the API documents becomes records without loss."""

import json
from collections import Counter
from typing import Any

import pytest

from hasat.sources.football.endpoints import ENDPOINTS, find_endpoint
from hasat.sources.football.ingest.elements import extract
from hasat.sources.football.ingest.envelope import read_envelope
from support.football_forms import FORMS, Form, document, form_id

ENVELOPES: dict[str, dict[str, Any]] = {
    "as documented": {},
    "errors are an empty object": {"errors": {}},
    "pages are counted from 0": {"paging": {"current": 0, "total": 1}},
    "a page after the last": {"paging": {"current": 4, "total": 3}},
    "without paging": {"paging": None},
    "results are a text": {"results": "many"},
}


@pytest.mark.parametrize("envelope", ENVELOPES.values(), ids=ENVELOPES)
@pytest.mark.parametrize("form", FORMS, ids=form_id)
def test_form_becomes_records(form: Form, envelope: dict[str, Any]) -> None:
    read = read_envelope(json.dumps(document(form, **envelope)))
    assert not read.errors
    found = extract(read.get, read.parameters, read.response)
    assert not found.unreadable
    keys = Counter((element.dataset, element.key) for element in found.elements)
    assert keys.total() == len(keys) == form.records
    declared = find_endpoint(form.path, form.parameters)
    assert declared is not None
    assert declared.dataset.name in {name for name, _ in keys} or not form.records


def test_every_endpoint_has_a_form_or_an_example() -> None:
    """What has neither is never read in these tests."""
    found = {find_endpoint(form.path, form.parameters) for form in FORMS}
    named = {one.name for one in found if one is not None}
    assert {one.name for one in ENDPOINTS if one.example is None} <= named


def test_requests_for_all_leagues_do_not_replace_those_for_one() -> None:
    """A player's figures of a season in all leagues have another key than those in one."""
    [row] = next(form.rows for form in FORMS if form.parameters.keys() == {"id", "season"})
    parameters = ({"league": "61", "season": "2019"}, {"id": "276", "season": "2019"})
    keys = [extract("players", given, [row]).elements[0].key for given in parameters]
    assert keys == ["61:2019:276", ":2019:276"]


def test_absences_of_several_players_have_the_keys_of_single_requests() -> None:
    absence = {"type": "Suspended", "start": "2020-02-26", "end": None}
    single = extract("sidelined", {"player": "276"}, [absence])
    several = extract("sidelined", {"players": "7-276"}, [{"id": 276, "sidelined": [absence]}])
    assert several.elements == single.elements
    assert single.scopes
    assert not several.scopes
