"""The messages of watch lists, in the form of each channel.

A webhook gets the changes as the feed publishes them, with `before` and `changedFields`. People get
a line for each change, in Turkish as in the messages of the platform.
"""

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any
from uuid import UUID

from hasat import __version__
from hasat.clock import ISTANBUL
from hasat.deliver.payloads import JSON_HEADERS, Payload, encode, escape_slack, sign
from hasat.deliver.watchlists.channels import Channel
from hasat.feed.changes import KINDS, Change, publish_change
from hasat.feed.dataset import Dataset

CHANGED = "watchlist.changed"
GAP = "watchlist.gap"
TEST = "watchlist.test"
WATCHLIST_KINDS = frozenset({CHANGED, GAP})
"""The kinds of events whose payload is a message of a watch list."""

_VERBS = {"added": "eklendi", "modified": "değişti", "removed": "silindi"}
_SIGNS = {"added": "➕", "modified": "✏️", "removed": "➖"}
_GAPS = {
    "expired": "Liste, değişikliklerin saklandığı süreden uzun bir süre geride kaldı.",
    "rebuilt": "Veri kümesi yeniden oluşturuldu ya da yedekten geri yüklendi.",
}
_MAX_LINES = 20
_MAX_MAIL_LINES = 1000
_MAX_FIELDS = 5
_MAX_VALUE = 80
# Limits of Slack (150 and 3,000 characters) and of Telegram (4,096).
_MAX_HEADING = 150
_MAX_SLACK_TEXT = 2_900
_MAX_TEXT = 3_500


@dataclass(frozen=True)
class WatchMessage:
    """One message of a list: its changes, or where the feed no longer reached back."""

    watchlist: str
    dataset: Dataset
    changes: Sequence[Change]
    gap: Mapping[str, Any] | None = None
    is_test: bool = False

    @classmethod
    def read(cls, payload: Mapping[str, Any], datasets: Mapping[str, Dataset]) -> "WatchMessage":
        """Return the message of a stored event."""
        name, rows = payload["dataset"], payload["changes"]
        gap = next((one["body"] for one in rows if one["kind"] == 0), None)
        changes = [_change(one) for one in rows if one["kind"] != 0]
        # A dataset whose source is no longer installed is shown in the common form.
        return cls(payload["watchlist"], datasets.get(name) or Dataset(name, "", ""), changes, gap)

    def public(self) -> dict[str, Any]:
        """Return the body of a webhook."""
        body: dict[str, Any] = {
            "type": TEST if self.is_test else CHANGED if self.gap is None else GAP,
            "watchlist": self.watchlist,
            "dataset": self.dataset.name,
        }
        if self.gap is not None:
            return body | {"gap": dict(self.gap)}
        return body | {"changes": [self._publish(one) for one in self.changes]}

    def _publish(self, change: Change) -> dict[str, Any]:
        return {
            **publish_change(self.dataset, change),
            "key": change.key,
            "before": change.before,
            "changedFields": change.fields,
        }

    @property
    def title(self) -> str:
        if self.gap is not None:
            return f"{self.watchlist}: bazı değişiklikler iletilemedi"
        if self.is_test:
            return f"{self.watchlist}: deneme mesajı"
        return f"{self.watchlist}: {len(self.changes)} değişiklik"

    def lines(self, most: int) -> list[str]:
        """Return the message as lines of text."""
        if self.gap is not None:
            return [
                f"{_GAPS[self.gap['reason']]} {self.dataset.name} veri kümesinin tamamını yeniden "
                "okuyun; sonraki değişiklikler iletilmeye devam edecek."
            ]
        if self.is_test:
            return ["Bu kanal, izleme listesinin değişikliklerini alıyor."]
        lines = [_line(one) for one in self.changes[:most]]
        if (more := len(self.changes) - most) > 0:
            lines.append(f"… ve {more} değişiklik daha")
        return lines


def _change(row: Mapping[str, Any]) -> Change:
    return Change(
        row["seq"],
        KINDS[row["kind"]],
        row["key"],
        row["body"],
        row["before"],
        datetime.fromisoformat(row["changedAt"]),
        0,
    )


def request_of(message: WatchMessage, message_id: UUID, channel: Channel, now: datetime) -> Payload:
    """Return the HTTP request for a webhook, Slack or Teams."""
    if channel.type == "slack":
        return Payload(encode(_slack_body(message)), JSON_HEADERS)
    if channel.type == "teams":
        return Payload(encode(_teams_body(message)), JSON_HEADERS)
    body = encode(message.public())
    return Payload(
        body, {**JSON_HEADERS, **sign(body, message_id, channel.settings.get("secret"), now)}
    )


def telegram_request(message: WatchMessage, chat: str) -> Payload:
    """Return the request `sendMessage` of the Bot API."""
    text = f"<b>{_html(message.title)}</b> ({_html(message.dataset.name)})"
    for line in message.lines(_MAX_LINES):
        if len(text) + len(_html(line)) >= _MAX_TEXT:
            text += "\n…"
            break
        text += f"\n{_html(line)}"
    body = {
        "chat_id": chat,
        "text": text,
        "parse_mode": "HTML",
        "link_preview_options": {"is_disabled": True},
    }
    return Payload(encode(body), JSON_HEADERS)


def mail_of(
    message: WatchMessage, message_id: UUID, recipients: Sequence[str], sender: str, now: datetime
) -> EmailMessage:
    """Return the e-mail; its Message-ID is the same in every attempt."""
    mail = EmailMessage()
    mail["Subject"] = " ".join(f"{message.title} ({message.dataset.name})".split())
    mail["From"] = sender
    mail["To"] = ", ".join(recipients)
    mail["Date"] = format_datetime(now.astimezone(ISTANBUL))
    host = sender.rpartition("@")[2].rstrip("> ")
    mail["Message-ID"] = f"<{message_id.hex}@{host}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Mailer"] = f"Hasat/{__version__}"
    lines = message.lines(_MAX_MAIL_LINES)
    mail.set_content("\n".join([message.title, "", *lines, ""]), cte="base64")
    rows = "".join(f"<li>{_html(line)}</li>" for line in lines)
    mail.add_alternative(
        f'<!doctype html><html lang="tr"><body><h2>{_html(message.title)}</h2>'
        f"<p>{_html(message.dataset.name)}</p><ul>{rows}</ul></body></html>",
        subtype="html",
        cte="base64",
    )
    return mail


def _slack_body(message: WatchMessage) -> dict[str, Any]:
    heading = f"{message.title} ({message.dataset.name})"
    text = "\n".join(message.lines(_MAX_LINES))
    return {
        "text": escape_slack(heading),
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": heading[:_MAX_HEADING]}},
            # Plain text: no link, mention or formatting of a record is interpreted.
            {"type": "section", "text": {"type": "plain_text", "text": text[:_MAX_SLACK_TEXT]}},
        ],
    }


def _teams_body(message: WatchMessage) -> dict[str, Any]:
    """Return an adaptive card, which workflows and incoming webhooks of Teams accept."""
    blocks: list[dict[str, Any]] = [
        {"type": "TextBlock", "text": message.title, "weight": "Bolder", "wrap": True},
        {"type": "TextBlock", "text": message.dataset.name, "isSubtle": True, "wrap": True},
    ]
    blocks += [
        # RichTextBlock shows text as it is, without Markdown.
        {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": line}]}
        for line in message.lines(_MAX_LINES)
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
    }
    return {
        "type": "message",
        "attachments": [
            {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
        ],
    }


def _line(change: Change) -> str:
    before, after = (one if isinstance(one, dict) else {} for one in (change.before, change.body))
    parts = [f"{_SIGNS[change.kind]} {_short(change.key)} {_VERBS[change.kind]}"]
    named, title = next(
        ((name, one) for name in ("title", "name") if (one := (after or before).get(name))),
        ("", ""),
    )
    if title and not (change.kind == "modified" and named in change.fields):
        parts.append(_short(title))
    if change.kind == "modified":
        fields = change.fields[:_MAX_FIELDS]
        parts.append("; ".join(_difference(one, before.get(one), after.get(one)) for one in fields))
    return " · ".join(parts)


def _difference(name: str, before: Any, after: Any) -> str:
    """Return a changed field as text: of lists, the elements that are gone or new."""
    if not (isinstance(before, list) and isinstance(after, list)):
        return f"{name}: {_short(before)} → {_short(after)}"
    gone = [f"− {_element(one)}" for one in before if one not in after]
    new = [f"+ {_element(one)}" for one in after if one not in before]
    if not (gone or new):
        return f"{name}: {_short(before)} → {_short(after)}"
    # A long list of one side does not hide the other.
    shown = [*gone[:_MAX_FIELDS], *new[:_MAX_FIELDS]]
    more = len(gone) + len(new) - len(shown)
    return f"{name}: {' '.join(shown)}{f' … ({more})' if more else ''}"


def _element(value: Any) -> str:
    """Return an element of a list: of an object, its values."""
    if isinstance(value, dict) and value:
        texts = (_short(one) for one in value.values() if one is not None)
        return ", ".join(texts)
    return _short(value)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= _MAX_VALUE else f"{text[: _MAX_VALUE - 1]}…"


def _html(text: str) -> str:
    return html.escape(text, quote=False)
