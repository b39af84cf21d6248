"""An event as a message: the original service's body and headers, signed in its way and by the
Standard Webhooks specification."""

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
from hasat.deliver.endpoints import Endpoint
from hasat.deliver.event import Event
from hasat.deliver.slack import slack_body
from hasat.settings.source_tree import Webhooks

_PREFIX = "whsec_"


@dataclass(frozen=True)
class Message:
    """What is sent: the same id in every try, so that a receiver can drop doubles."""

    body: bytes
    headers: Mapping[str, str]


def message_of(
    event: Event,
    message_id: UUID,
    at: datetime,
    endpoint: Endpoint,
    webhooks: Webhooks,
    *,
    now: datetime,
) -> Message:
    """The event in the endpoint's format; `now` is when it is signed."""
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": _AGENT}
    if endpoint.format == "slack":
        return Message(_encoded(slack_body(event, at, endpoint, webhooks)), headers)
    happened = at.astimezone(ISTANBUL).isoformat(timespec="microseconds")
    body = _encoded(
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
    stable_id, moment = f"msg_{message_id.hex}", str(int(now.timestamp()))
    headers |= {
        "X-Webhook-Event": event.kind,
        "X-Webhook-Timestamp": happened,
        "X-Webhook-ServiceName": _header(webhooks.service_name),
        "X-Webhook-Environment": _header(webhooks.environment),
        "webhook-id": stable_id,
        "webhook-timestamp": moment,
    }
    if endpoint.secret is not None:
        original = hmac.new(endpoint.secret.encode(), body, hashlib.sha256).hexdigest()
        headers["X-Webhook-Signature"] = f"sha256={original}"
        signed = f"{stable_id}.{moment}.".encode() + body
        digest = hmac.new(signing_key(endpoint.secret), signed, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return Message(body, headers)


def signing_key(secret: str) -> bytes:
    """The key of the Standard Webhooks signature: what follows `whsec_`, decoded; a secret that is
    not of that form counts by its own bytes."""
    if secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX) + "==")
        except binascii.Error:
            pass
    return secret.encode()


_AGENT = f"Hasat/{__version__}"


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _header(text: str) -> str:
    """Header values are ASCII; other letters are escaped as in JSON."""
    return json.dumps(text)[1:-1] if not text.isascii() else text
