"""Equal answers about a taxpayer are equal bytes."""

from datetime import UTC, datetime
from itertools import permutations
from uuid import UUID

from hasat.sources.gib.check.answers import _read

HEADS = [
    (name, None, None, UUID(int=number), number, datetime(2026, 11, 2, tzinfo=UTC))
    for number, name in enumerate(("einvoice", "edespatch"))
]


def test_the_order_of_the_rows_does_not_matter() -> None:
    answers = {repr(_read(rows).answer("1234567890")) for rows in permutations(HEADS)}
    assert len(answers) == 1
