"""Every recorded response becomes records without loss."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hasat.feed.encoding import canonical
from hasat.sources.football.ingest.elements import extract
from hasat.sources.football.ingest.envelope import read_envelope
from hasat.sources.football.ingest.scopes import BLOCKS
from support.samples import football_samples, sample_id


def _flattened(endpoint: str, response: Any) -> Counter[bytes]:
    """Return the elements of a response, found in the simplest way."""
    rows = response if isinstance(response, list) else [response]
    if endpoint == "standings":
        rows = [line for row in rows for group in row["league"]["standings"] for line in group]
    if endpoint == "fixtures/players":
        rows = [player for row in rows for player in row["players"]]
    if endpoint == "fixtures":
        plain = [{k: v for k, v in row.items() if k not in BLOCKS} for row in rows]
        inner = [_flattened(f"fixtures/{b}", row[b]) for row in rows for b in BLOCKS if row.get(b)]
        return sum(inner, Counter(map(canonical, plain)))
    return Counter(map(canonical, rows))


@pytest.mark.parametrize("path", football_samples(), ids=sample_id)
def test_nothing_of_a_response_is_lost(path: Path) -> None:
    body = path.read_bytes()
    envelope = read_envelope(body)
    published = json.loads(body)
    assert envelope.response == published["response"]
    if path.parent.name == "errors":
        assert envelope.errors
        return
    assert not envelope.errors
    found = extract(envelope.get, envelope.parameters, envelope.response)
    assert not found.unreadable
    keys = [(element.dataset, element.key) for element in found.elements]
    assert len(set(keys)) == len(keys)
    if envelope.get == "status":
        assert not found.elements
        return
    assert Counter(canonical(element.body) for element in found.elements) == _flattened(
        envelope.get, envelope.response
    )
