"""The channels of watch lists: where their messages go, as callers declare and see them."""

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from hasat.errors import UsageError
from hasat.fetch.addresses import PrivateAddressError, is_allowed
from hasat.messages import msg
from hasat.settings import Settings
from hasat.settings.types import check_http_url
from hasat.text import HIDDEN, MAX_EXACT_INTEGER, mask_address

MAX_CHANNELS = 10
_MAX_RECIPIENTS = 50
_ADDRESS = re.compile(
    r"[^\s@<>\"(),:;\\\[\]]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
)
_CHAT = re.compile(r"-?[0-9]{1,20}|@[A-Za-z][A-Za-z0-9_]{3,31}")


_Url = Annotated[str, Field(max_length=2000)]


class _Channel(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    id: int | None = Field(
        default=None,
        ge=1,
        le=MAX_EXACT_INTEGER,
        description="A channel that the list has: what is left out or masked stays as it is.",
    )


class WebhookChannel(_Channel):
    """Signed HTTP requests by the Standard Webhooks specification."""

    type: Literal["webhook"]
    url: _Url | None = None
    secret: str | None = Field(default=None, min_length=1, max_length=500)


class SlackChannel(_Channel):
    """An incoming webhook of Slack."""

    type: Literal["slack"]
    url: _Url | None = None


class TeamsChannel(_Channel):
    """An incoming webhook of Microsoft Teams."""

    type: Literal["teams"]
    url: _Url | None = None


class EmailChannel(_Channel):
    """E-mail."""

    type: Literal["email"]
    to: list[Annotated[str, Field(max_length=320)]] = Field(
        min_length=1, max_length=_MAX_RECIPIENTS, examples=[["muhasebe@example.com"]]
    )


class TelegramChannel(_Channel):
    """A chat with the bot of this installation."""

    type: Literal["telegram"]
    chat: str | int = Field(examples=["-1001234567890"], description="Its number or @name.")


NewChannel = Annotated[
    WebhookChannel | SlackChannel | TeamsChannel | EmailChannel | TelegramChannel,
    Field(discriminator="type"),
]
"""A channel as a caller declares it."""


class Channel(BaseModel):
    """A stored channel; its settings may contain secrets, `public` does not."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    watchlist: int
    type: Literal["webhook", "email", "slack", "teams", "telegram"]
    settings: dict[str, Any] = Field(repr=False)
    endpoint: str

    def public(self) -> dict[str, Any]:
        """Return the fields that may be shown: addresses masked, no secret."""
        shown: dict[str, Any] = {"id": self.id, "type": self.type}
        if "url" in self.settings:
            shown["url"] = _masked(self.type, self.settings["url"])
        if self.type == "webhook":
            shown["signed"] = bool(self.settings.get("secret"))
        return shown | {
            name: self.settings[name] for name in ("to", "chat") if name in self.settings
        }

    @property
    def place(self) -> str:
        """Return where it leads to, for people: a host, addresses or a chat."""
        if "url" in self.settings:
            return urlsplit(self.settings["url"]).hostname or ""
        return ", ".join(self.settings.get("to", ())) or str(self.settings.get("chat", ""))


def _masked(kind: str, url: str) -> str:
    """Hide what may be secret in an address: of Slack's and Teams' the whole path."""
    if kind == "webhook":
        return mask_address(url)
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/{HIDDEN}"


def stored_settings(
    channel: WebhookChannel | SlackChannel | TeamsChannel | EmailChannel | TelegramChannel,
    known: Mapping[int, Channel],
    settings: Settings,
) -> dict[str, Any]:
    """Return what to store of a declared channel; raise UsageError if it cannot be used."""
    given = channel.model_dump(exclude={"id", "type"}, exclude_none=True)
    if "chat" in given:
        given["chat"] = str(given["chat"])
    if channel.id is not None:
        before = known.get(channel.id)
        if before is None or before.type != channel.type:
            raise UsageError(
                msg(
                    "The list has no {type} channel with the id {id}.",
                    type=channel.type,
                    id=channel.id,
                ),
                remedy=msg("Leave `id` out to add a channel."),
            )
        if given.get("url") == before.public().get("url"):
            given.pop("url", None)
        given = before.settings | given
    if channel.type in ("webhook", "slack", "teams"):
        _check_url(channel.type, given.get("url"), settings)
        if not given.get("secret", "").isprintable():
            raise UsageError(msg("The secret of a channel contains control characters."))
    elif channel.type == "email" and (
        wrong := [one for one in given["to"] if not _is_address(one)]
    ):
        raise UsageError(msg("{address!r} is not an e-mail address.", address=wrong[0][:100]))
    elif channel.type == "telegram" and not _CHAT.fullmatch(given["chat"]):
        raise UsageError(
            msg("{chat!r} is not a Telegram chat.", chat=given["chat"][:100]),
            remedy=msg("Give its number, or a name such as @channel."),
        )
    elif channel.type == "email" and settings.smtp.url is None:
        raise UsageError(
            msg("This installation sends no e-mail."),
            remedy=msg("The operator sets HASAT_SMTP_URL and HASAT_SMTP_FROM."),
        )
    elif channel.type == "telegram" and settings.telegram.token is None:
        raise UsageError(
            msg("This installation has no Telegram bot."),
            remedy=msg("The operator sets HASAT_TELEGRAM_TOKEN."),
        )
    return given


def _is_address(text: str) -> bool:
    return text.isprintable() and ".." not in text and _ADDRESS.fullmatch(text) is not None


def _check_url(kind: str, url: str | None, settings: Settings) -> None:
    if url is None:
        raise UsageError(
            msg("The {type} channel has no `url`.", type=kind),
            remedy=msg("Give the address that receives the messages."),
        )
    try:
        check_http_url(url)
        if not url.isprintable():
            raise ValueError("contains control characters")
    except ValueError as error:
        raise UsageError(
            msg("The `url` of the {type} channel {error}.", type=kind, error=error)
        ) from None
    if HIDDEN in url:
        raise UsageError(
            msg("The `url` of the {type} channel is masked.", type=kind),
            remedy=msg("Give the whole address, or the `id` of the channel it belongs to."),
        )
    host = urlsplit(url).hostname or ""
    try:
        address = ip_address(host)
    except ValueError:
        # A name is resolved and checked whenever something is sent to it.
        return
    if not is_allowed(address, settings.webhooks.private_networks):
        raise PrivateAddressError(host)


def channels_of(channels: Sequence[Channel], watchlist: int) -> list[Channel]:
    """Return the channels of one list."""
    return [one for one in channels if one.watchlist == watchlist]
