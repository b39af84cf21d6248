"""The channels of watch lists: what each receives, over real sockets."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from standardwebhooks import Webhook

from hasat.deliver.watchlists.channels import Channel
from hasat.deliver.watchlists.delivery import attempt
from hasat.deliver.watchlists.messages import WatchMessage
from hasat.deliver.webhooks import AttemptResult
from hasat.feed.dataset import Dataset
from hasat.settings import Settings, load_settings
from support.mail_server import MailServer, mail_server
from support.receivers import Receiver, answer, receiving

pytestmark = [pytest.mark.anyio, pytest.mark.any_server]

ID = UUID(int=7)
DATASETS = {"toys": Dataset("toys", "toy_shop", "toys, for tests")}
HOSTILE = "<!channel> *bold* [link](https://evil.example) <b>x</b> & \r\nBcc: x@evil.example"


def message(*rows: dict[str, Any], watchlist: str = "müşteriler") -> WatchMessage:
    payload = {"watchlist": watchlist, "dataset": "toys", "changes": list(rows)}
    return WatchMessage.read(json.loads(json.dumps(payload)), DATASETS)


def row(seq: int = 1, key: str = "a", **more: Any) -> dict[str, Any]:
    return {
        "seq": seq,
        "kind": 2,
        "key": key,
        "body": {"title": "YENİ A.Ş."},
        "before": {"title": "ESKİ A.Ş."},
        "changedAt": "2026-02-19T12:00:00.5+00:00",
        **more,
    }


def channel(kind: Any, **settings: Any) -> Channel:
    return Channel(id=3, watchlist=1, type=kind, settings=settings, endpoint="watchlist:x:3")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def mails() -> Iterator[MailServer]:
    with mail_server() as server:
        yield server


def settings_with(tmp_path: Path, **environ: str) -> Settings:
    return load_settings(
        environ={
            "HASAT_HOME": str(tmp_path),
            "HASAT_WEBHOOKS_PRIVATE_NETWORKS": "127.0.0.0/8",
            "HASAT_WEBHOOKS_HTTP_TIMEOUT_SECONDS": "20",
            **environ,
        }
    )


async def sent(one: Channel, settings: Settings, what: WatchMessage | None = None) -> AttemptResult:
    return await attempt(one, what or message(row()), ID, settings, datetime.now(UTC))


async def test_a_webhook_is_signed_by_the_standard(tmp_path: Path, receiver: Receiver) -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    result = await sent(
        channel("webhook", url=receiver.url, secret=secret), settings_with(tmp_path)
    )
    assert result.error is None
    [got] = receiver.received
    body = Webhook(secret).verify(got.body, dict(got.headers))
    assert got.id == f"msg_{ID.hex}"
    assert body == {
        "type": "watchlist.changed",
        "watchlist": "müşteriler",
        "dataset": "toys",
        "changes": [
            {
                "seq": 1,
                "changeType": "modified",
                "changedAt": "2026-02-19T15:00:00.500000",
                "key": "a",
                "body": {"title": "YENİ A.Ş."},
                "before": {"title": "ESKİ A.Ş."},
                "changedFields": ["title"],
            }
        ],
    }


async def test_slack_and_teams_show_hostile_texts_as_they_are(
    tmp_path: Path, receiver: Receiver
) -> None:
    hostile = message(row(key=HOSTILE, body={"title": HOSTILE}), watchlist="a&b")
    for kind in ("slack", "teams"):
        result = await sent(channel(kind, url=receiver.url), settings_with(tmp_path), hostile)
        assert result.error is None
    slack, teams = [got.json for got in receiver.received]
    assert slack["text"] == "a&amp;b: 1 değişiklik (toys)"
    # Plain text has no links, mentions or formatting.
    assert {block["text"]["type"] for block in slack["blocks"]} == {"plain_text"}
    [card] = [one["content"] for one in teams["attachments"]]
    assert card["type"] == "AdaptiveCard"
    [line] = [one for one in card["body"] if one["type"] == "RichTextBlock"]
    assert "<!channel>" in line["inlines"][0]["text"]


async def test_long_messages_fit_the_limits_of_each_service(
    tmp_path: Path, receiver: Receiver
) -> None:
    settings = settings_with(
        tmp_path,
        HASAT_TELEGRAM_TOKEN="7:secret",
        HASAT_TELEGRAM_BASE_URL=receiver.url.removesuffix("/hook"),
    )
    long = message(*(row(n, f"&{'k' * 199}", body={"title": "&" * 500}) for n in range(500)))
    for one in (
        channel("slack", url=receiver.url),
        channel("teams", url=receiver.url),
        channel("telegram", chat="@somewhere"),
    ):
        assert (await sent(one, settings, long)).error is None
    slack, teams, telegram = [got.json for got in receiver.received]
    assert max(len(block["text"]["text"]) for block in slack["blocks"]) <= 3000
    assert len(json.dumps(teams)) < 28_000
    assert len(telegram["text"]) <= 4096
    assert "değişiklik daha" in json.dumps(teams, ensure_ascii=False)


async def test_telegram_gets_html_and_its_token_stays_secret(
    tmp_path: Path, receiver: Receiver
) -> None:
    settings = settings_with(
        tmp_path,
        HASAT_TELEGRAM_TOKEN="7:verysecrettoken",
        HASAT_TELEGRAM_BASE_URL=receiver.url.removesuffix("/hook"),
    )
    one = channel("telegram", chat="-1001")
    assert (await sent(one, settings, message(row(key="<a>")))).error is None
    [got] = receiver.received
    assert (got.json["chat_id"], got.json["parse_mode"]) == ("-1001", "HTML")
    assert "&lt;a&gt; değişti · title: ESKİ A.Ş. → YENİ A.Ş." in got.json["text"]
    receiver.behave = lambda *_: answer(403, b'{"description": "bot was kicked"}')
    refused = await sent(one, settings)
    assert refused.error is not None
    assert "bot was kicked" in refused.error
    assert "verysecrettoken" not in refused.error
    receiver.close()
    unreachable = await sent(one, settings)
    assert "verysecrettoken" not in str(unreachable.error)
    assert "verysecrettoken" not in repr(settings)


def test_a_changed_list_shows_what_is_gone_and_new_of_whom() -> None:
    old, new = ({"type": "PK", "alias": f"urn:mail:{one}@a.example"} for one in ("old", "new"))
    kept = [{"type": "GB", "alias": f"urn:mail:gb{number}@a.example"} for number in range(30)]
    before, body = ({"title": "A A.Ş.", "aliases": [*kept, one]} for one in (old, new))
    assert message(row(before=before, body=body)).lines(20) == [
        "✏️ a değişti · A A.Ş. · aliases: − PK, urn:mail:old@a.example + PK, urn:mail:new@a.example"
    ]
    [many] = message(row(before=before, body={**before, "aliases": []})).lines(20)
    assert "− GB, urn:mail:gb4@a.example … (26)" in many
    [order] = message(row(before={"aliases": [1, 2]}, body={"aliases": [2, 1]})).lines(20)
    assert order == "✏️ a değişti · aliases: [1, 2] → [2, 1]"


async def test_an_e_mail_reaches_its_recipients_with_a_stable_id(
    tmp_path: Path, mails: MailServer
) -> None:
    url = mails.url.replace("smtp://", "smtp://me%40example.com:p%40ss%20word@")
    settings = settings_with(
        tmp_path, HASAT_SMTP_URL=url, HASAT_SMTP_FROM="Hasat <hasat@example.com>"
    )
    one = channel("email", to=["a@example.com", "b@example.com"])
    assert (
        await sent(one, settings, message(row(), row(2, HOSTILE, kind=3, body=None)))
    ).error is None
    [mail] = mails.accepted
    assert mails.logins == [("me@example.com", "p@ss word")]
    assert mail["Subject"] == "müşteriler: 2 değişiklik (toys)"
    assert mail["From"] == "Hasat <hasat@example.com>"
    assert mail["X-Envelope-To"] == "a@example.com, b@example.com"
    assert mail["Message-ID"] == f"<{ID.hex}@example.com>"
    assert mail["Bcc"] is None
    plain, html = mail.get_body(("plain",)), mail.get_body(("html",))
    assert plain is not None
    assert html is not None
    assert "✏️ a değişti · title: ESKİ A.Ş. → YENİ A.Ş." in plain.get_content()
    assert "<b>x</b>" not in html.get_content()


async def test_a_mail_server_that_refuses_or_is_away_is_a_failed_attempt(
    tmp_path: Path, mails: MailServer
) -> None:
    settings = settings_with(
        tmp_path, HASAT_SMTP_URL=mails.url, HASAT_SMTP_FROM="hasat@example.com"
    )
    one = channel("email", to=["a@example.com"])

    def respond(mail: EmailMessage) -> str:
        return "451 greylisted"

    mails.respond = respond
    refused = await sent(one, settings)
    assert (refused.status, refused.is_final) == (451, False)
    assert "greylisted" in str(refused.error)
    assert mails.accepted == []
    wrong = settings_with(
        tmp_path,
        HASAT_SMTP_URL=mails.url.replace("smtp://", "smtp://me:wrongsecret@"),
        HASAT_SMTP_FROM="hasat@example.com",
    )
    denied = await sent(one, wrong)
    assert denied.status == 535
    assert "wrongsecret" not in str(denied.error)
    away = settings_with(
        tmp_path, HASAT_SMTP_URL="smtp://127.0.0.1:9", HASAT_SMTP_FROM="hasat@example.com"
    )
    assert (await sent(one, away)).error is not None


async def test_no_channel_reaches_a_private_address(tmp_path: Path, receiver: Receiver) -> None:
    settings = load_settings(
        environ={
            "HASAT_HOME": str(tmp_path),
            "HASAT_TELEGRAM_TOKEN": "7:secret",
            "HASAT_TELEGRAM_BASE_URL": receiver.url.removesuffix("/hook"),
        }
    )
    for one in (
        channel("webhook", url=receiver.url),
        channel("slack", url=receiver.url.replace("127.0.0.1", "localhost")),
        channel("teams", url=receiver.url.replace("127.0.0.1", "[::ffff:127.0.0.1]")),
        channel("telegram", chat="1"),
    ):
        result = await sent(one, settings)
        assert result.error is not None
        assert "nothing was sent" in result.error
    assert receiver.received == []
