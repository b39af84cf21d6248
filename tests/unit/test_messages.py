"""Messages: English texts that can be translated after they were written."""

import copy
import json
import string
from datetime import UTC, date, datetime

import pytest

from hasat import messages
from hasat.errors import NotFoundError
from hasat.messages import Message, join, msg, translate
from support import message_catalogue

TURKISH = {
    "There is no run {run}.": "{run} numaralı çalıştırma yok.",
    "{count:,} rows since {at}": "{at} tarihinden beri {count:,} satır",
    "{share:.1%} done": "{share:.1%} bitti",
    "{dataset}: {why}.": "{dataset}: {why}.",
    "too many": "çok fazla",
}
AT = datetime(2026, 11, 18, 9, 5, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _turkish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "catalogue", lambda language: TURKISH)


def test_a_message_is_its_english_text() -> None:
    message = msg("There is no run {run}.", run=12345)
    assert message == "There is no run 12345."
    assert json.dumps({"message": message}) == '{"message": "There is no run 12345."}'


@pytest.mark.parametrize(
    ("message", "turkish"),
    [
        (msg("There is no run {run}.", run=12345), "12345 numaralı çalıştırma yok."),
        (
            msg("{count:,} rows since {at}", count=1234567, at=AT),
            "18.11.2026 09:05 tarihinden beri 1.234.567 satır",
        ),
        (msg("{share:.1%} done", share=0.125), "%12,5 bitti"),
        (msg("{dataset}: {why}.", dataset="parcels", why=msg("too many")), "parcels: çok fazla."),
        (join([msg("too many"), "as the upstream said"], "; "), "çok fazla; as the upstream said"),
        (msg("Nobody translated {this}.", this="it"), "Nobody translated it."),
    ],
)
def test_a_message_is_translated_where_it_is_shown(message: Message, turkish: str) -> None:
    assert translate(message, "tr") == turkish
    assert translate(message, "en") == message


def test_a_message_survives_storage() -> None:
    why = msg("{dataset}: {why}.", dataset="x", why=msg("too many"))
    message = msg("{why} {at} {day} {count:,}", why=why, at=AT, day=date(2026, 1, 2), count=3)
    stored = json.loads(json.dumps(message.to_json()))
    for again in (Message.from_json(stored), copy.deepcopy(message)):
        assert (again, again.template, again.params) == (message, message.template, message.params)


def test_secrets_are_hidden_in_parameters_at_any_depth() -> None:
    message = msg("{a} and {b}", a="secret", b=msg("the {c}", c="secret"))
    assert (
        messages.change_text(message, lambda text: text.replace("secret", "***"))
        == "*** and the ***"
    )


def test_the_text_of_an_error_is_a_message_of_both_sentences() -> None:
    error = NotFoundError(msg("There is no run {run}.", run=7), remedy=msg("too many"))
    assert str(error) == "There is no run 7. too many"
    wrapped = msg("{dataset}: {why}.", dataset="x", why=error)
    assert translate(wrapped, "tr") == "x: 7 numaralı çalıştırma yok. çok fazla."


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "tr_TR.UTF-8"}, "tr"),
        ({"LANG": "tr_TR.UTF-8", "LC_ALL": "C"}, "en"),
        ({"LANG": "tr_TR.UTF-8", "LC_MESSAGES": "en_GB.UTF-8"}, "en"),
        ({"LC_ALL": "C.UTF-8", "HASAT_LANG": "tr"}, "tr"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
    ],
)
def test_a_terminal_has_a_language(environment: dict[str, str], language: str) -> None:
    assert messages.language_of_environment(environment) == language


def test_every_message_of_the_source_has_a_turkish_translation() -> None:
    turkish = message_catalogue.translations()
    assert [text for text in message_catalogue.extract() if not turkish.get(text)] == []


def test_the_turkish_catalogue_has_no_stale_entries() -> None:
    assert message_catalogue.translations().keys() - message_catalogue.extract().keys() == set()


def test_a_translation_has_the_placeholders_of_its_message() -> None:
    wrong = {
        text: turkish
        for text, turkish in message_catalogue.translations().items()
        if _placeholders(text) != _placeholders(turkish)
    }
    assert wrong == {}


def _placeholders(text: str) -> list[tuple[str, str, str]]:
    """Return name, conversion and format of every placeholder, sorted."""
    parsed = string.Formatter().parse(text)
    return sorted(
        (name, how or "", spec or "") for _, name, spec, how in parsed if name is not None
    )
