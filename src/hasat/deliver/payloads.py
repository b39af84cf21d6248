"""The requests that webhooks send: the original service's body and headers, or a Slack message.

They are signed in the original's way and by the Standard Webhooks specification.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from hasat import __version__
from hasat.clock import ISTANBUL
from hasat.deliver.events import Event
from hasat.deliver.webhook_endpoints import Endpoint
from hasat.settings.events import TEST, EventKind, event_kinds
from hasat.settings.platform_sections import Webhooks

_PREFIX = "whsec_"


@dataclass(frozen=True)
class Payload:
    """The body and headers of a request; the id is the same in every attempt."""

    body: bytes
    headers: Mapping[str, str]


def build_payload(
    event: Event,
    message_id: UUID,
    at: datetime,
    endpoint: Endpoint,
    webhooks: Webhooks,
    *,
    now: datetime,
) -> Payload:
    """Return the event in the endpoint's format; `now` is the time of the signature."""
    if endpoint.format == "slack":
        return Payload(encode(slack_body(event, at, endpoint, webhooks)), JSON_HEADERS)
    happened = at.astimezone(ISTANBUL).isoformat(timespec="microseconds")
    body = encode(
        {
            "eventType": event.kind,
            "severity": event.severity,
            "summary": event.summary,
            "timestamp": happened,
            "payload": {
                **event.payload,
                "serviceName": webhooks.service_name,
                "environment": webhooks.environment,
            },
        }
    )
    headers = {
        **JSON_HEADERS,
        "X-Webhook-Event": event.kind,
        "X-Webhook-Timestamp": happened,
        "X-Webhook-ServiceName": _header(webhooks.service_name),
        "X-Webhook-Environment": _header(webhooks.environment),
        **sign(body, message_id, endpoint.secret, now),
    }
    if endpoint.secret is not None:
        original = hmac.new(endpoint.secret.encode(), body, hashlib.sha256).hexdigest()
        headers["X-Webhook-Signature"] = f"sha256={original}"
    return Payload(body, headers)


def sign(body: bytes, message_id: UUID, secret: str | None, now: datetime) -> dict[str, str]:
    """Return the headers of Standard Webhooks; without a secret there is no signature."""
    stable_id, moment = f"msg_{message_id.hex}", str(int(now.timestamp()))
    headers = {"webhook-id": stable_id, "webhook-timestamp": moment}
    if secret is not None:
        signed = f"{stable_id}.{moment}.".encode() + body
        digest = hmac.new(signing_key(secret), signed, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers


def signing_key(secret: str) -> bytes:
    """Return the key of the Standard Webhooks signature.

    It is the Base64 text after `whsec_`; of any other secret it is the bytes themselves.
    """
    if secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX) + "==")
        except binascii.Error:
            pass
    return secret.encode()


JSON_HEADERS: Mapping[str, str] = {
    "Content-Type": "application/json; charset=utf-8",
    "User-Agent": f"Hasat/{__version__}",
}


def encode(value: Any) -> bytes:
    """Serialize a body as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _header(text: str) -> str:
    """Escape letters that are not ASCII as JSON does."""
    return json.dumps(text)[1:-1] if not text.isascii() else text


_COLOURS = {"Critical": "#dc3545", "Warning": "#fd7e14", "Info": "#2EB67D"}
# Slack rejects a text block of more than 3,000 characters.
_MAX_TEXT = 2_500


def slack_body(
    event: Event, at: datetime, endpoint: Endpoint, webhooks: Webhooks
) -> dict[str, Any]:
    """Return the body for an incoming webhook of Slack, in Turkish like the original's."""
    kind = TEST if event.kind == TEST.name else event_kinds().get(event.kind)
    # A source may have been uninstalled since.
    kind = kind or EventKind(event.kind, event.kind)
    title = kind.title
    facts = [
        f"📅 *{at.astimezone(ISTANBUL):%d.%m.%Y %H:%M}*",
        f"📍 *{escape_slack(webhooks.environment)}*",
        f"⏱️ *{escape_slack(event.payload.get('Duration', '-'))}*",
        f"🛠️ *Servis:* `{escape_slack(webhooks.service_name)}`",
    ]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": title, "emoji": True}},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": " | ".join(facts)}]},
        {"type": "divider"},
    ]
    sections = [
        _counts(heading, event.payload[name])
        for name, heading in kind.counts.items()
        if isinstance(event.payload.get(name), Mapping)
    ] or [escape_slack(event.summary)]
    if error := event.payload.get("Error"):
        sections.append(f"*❌ Hata:*\n```{escape_slack(error)}```")
    for text in sections:
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": text}})
        blocks.append({"type": "divider"})
    body: dict[str, Any] = {
        # Notifications and screen readers show this text instead of the blocks.
        "text": f"{title}: {escape_slack(event.summary)}",
        "attachments": [{"color": _COLOURS[event.severity], "blocks": blocks}],
    }
    if endpoint.channel:
        body["channel"] = endpoint.channel
    if endpoint.username:
        body["username"] = endpoint.username
    return body


def _counts(heading: str, counts: Mapping[str, Any]) -> str:
    total, added, removed, modified = (
        f"{counts.get(name, 0):,}".replace(",", ".")
        for name in ("TotalCount", "Added", "Removed", "Modified")
    )
    return (
        f"*{heading}*\n📊 Toplam: `{total}`  |  ✨ Yeni: {added}  |  "
        f"🗑️ _Silinen: {removed}_  |  🔄 _Değişen: {modified}_"
    )


def escape_slack(value: Any) -> str:
    """Escape a text so that Slack finds no link, mention or formatting in it."""
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "…"
