"""A change as it is handed out, whichever way it was put together."""

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest

from hasat.api.routes.feed_pages import change_json, serialize_change
from hasat.feed.changes import Change, Kind
from hasat.feed.dataset import Dataset
from hasat.sources.gib.datasets import EINVOICE

PLAIN = Dataset("toys", "toy_shop", "toys")
AT = datetime(2026, 2, 19, 12, 0, 0, 123456, tzinfo=UTC)


def _body(dice: random.Random) -> dict[str, Any]:
    title = "".join(dice.choices('IİıiŞ"\\/\n\t{}[],:é中😀', k=dice.randrange(30)))
    alias = {"alias": title, "type": "PK", "creationTime": None}
    return {
        "identifier": "1234567890",
        "title": title,
        "accountType": None,
        "type": "OZEL",
        "firstCreationTime": "2019-05-01T10:00:00",
        "aliases": [alias] * dice.randrange(3),
    }


@pytest.mark.parametrize("dataset", [EINVOICE, PLAIN], ids=lambda dataset: dataset.name)
@pytest.mark.parametrize("include", ["", "before", "record", "before,record"])
def test_copied_text_says_the_same_as_fields_that_were_spelled(
    dataset: Dataset, include: str
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    wanted = frozenset(filter(None, include.split(",")))
    kinds: list[Kind] = ["added", "modified", "removed"]
    for seq, kind in enumerate(kinds * 50):
        body = None if kind == "removed" else _body(dice)
        before = None if kind == "added" else _body(dice)
        parsed = Change(seq, kind, "1234567890", body, before, AT, 7)
        texts = parsed._replace(
            body=None if body is None else json.dumps(body, ensure_ascii=False),
            before=None if before is None else json.dumps(before, ensure_ascii=False),
        )
        assert json.loads(change_json(dataset, texts, wanted)) == serialize_change(
            dataset, parsed, wanted
        )
