"""The Turkish catalogue covers nested messages, and what it lacks stays English."""

import pytest

from hasat.feed.guard import Measure
from hasat.messages import is_translated, join, msg, translate
from support import message_catalogue

FOUND = message_catalogue.extract()


def test_the_source_code_is_searched_for_nested_messages() -> None:
    assert {"PK list", "the lists are the same"} <= FOUND.keys()


@pytest.mark.parametrize(
    ("english", "turkish"),
    [
        (
            msg(
                "The guard holds this run: {measures}. None of these changes was applied.",
                measures=join(
                    [
                        str(Measure("einvoice", msg("removed"), 49.9, 10)),
                        str(Measure(msg("PK list"), msg("fewer users"), 50, 10)),
                    ],
                    "; ",
                ),
            ),
            "einvoice: silinen %49,90 (sınır %10); PK listesi: eksilen kullanıcı %50,00",
        ),
        (
            join(
                [
                    msg("{count:,} parcels", count=1024),
                    msg("{share:.0%} of the area known", share=0.27),
                    msg("about {duration} to go", duration=msg("{count:.0f} s", count=33)),
                ],
                ", ",
            ),
            "1.024 parsel, alanın %27 kadarı biliniyor, yaklaşık 33",
        ),
    ],
)
def test_nested_messages_are_translated_as_a_whole(english: str, turkish: str) -> None:
    assert turkish in translate(english, "tr")


def test_what_is_not_in_the_catalogue_stays_english() -> None:
    message = msg("Nobody has translated {this}.", this="it")
    assert translate(message, "tr") == message
    assert not is_translated(message, "tr")
    assert not is_translated(msg("Not translated: {share:.1f}.", share=0.5), "tr")
    assert not is_translated(join([msg("No worker is alive."), message]), "tr")
