"""An event as Slack shows it: Block Kit, in Turkish, as the original service's messages are."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from hasat.clock import ISTANBUL
from hasat.deliver.endpoints import Endpoint
from hasat.deliver.event import Event
from hasat.settings.source_tree import Webhooks

_COLOURS = {"Critical": "#dc3545", "Warning": "#fd7e14", "Info": "#2EB67D"}
_TITLES = {
    "SyncCompleted": "✅ GİB Senkronizasyon Raporu",
    "SyncFailed": "❌ GİB Senkronizasyon Hatası",
    "SyncPartial": "⚠️ GİB Senkronizasyon Kısmi",
    "RemovalGuardTriggered": "🛡️ Silme Koruması Tetiklendi",
    "MvRefreshFailed": "🔄 Arşiv Yazılamadı",
    "HealthStatusChanged": "💚 Sağlık Durumu Değişti",
    "DatasetChanged": "📥 Veri Kümesi Değişti",
    "Test": "👋 Deneme Mesajı",
}
_LISTS = {"EInvoice": "🧾 e-Fatura Kullanıcıları", "EDespatch": "📦 e-İrsaliye Kullanıcıları"}
# Slack refuses a text block that is longer than 3,000 characters.
_MOST_TEXT = 2_500


def slack_body(
    event: Event, at: datetime, endpoint: Endpoint, webhooks: Webhooks
) -> dict[str, Any]:
    """The body of a request to an incoming webhook of Slack."""
    title = _TITLES.get(event.kind, event.kind)
    facts = [
        f"📅 *{at.astimezone(ISTANBUL):%d.%m.%Y %H:%M}*",
        f"📍 *{_plain(webhooks.environment)}*",
        f"⏱️ *{_plain(event.payload.get('Duration', '-'))}*",
        f"🛠️ *Servis:* `{_plain(webhooks.service_name)}`",
    ]
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": title, "emoji": True}},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": " | ".join(facts)}]},
        {"type": "divider"},
    ]
    sections = [
        _counts(heading, event.payload[name])
        for name, heading in _LISTS.items()
        if isinstance(event.payload.get(name), Mapping)
    ] or [_plain(event.summary)]
    if error := event.payload.get("Error"):
        sections.append(f"*❌ Hata:*\n```{_plain(error)}```")
    for text in sections:
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": text}})
        blocks.append({"type": "divider"})
    body: dict[str, Any] = {
        # What phones and screen readers show instead of the blocks.
        "text": f"{title}: {_plain(event.summary)}",
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


def _plain(value: Any) -> str:
    """A text in which Slack finds no link, mention or formatting of its own."""
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text if len(text) <= _MOST_TEXT else text[:_MOST_TEXT] + "…"
