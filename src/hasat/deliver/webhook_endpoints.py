"""Webhook endpoints, as the settings declare them."""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from hasat.errors import NotFoundError, SettingsError
from hasat.messages import msg
from hasat.settings import Settings
from hasat.settings.types import check_http_url


@dataclass(frozen=True)
class Endpoint:
    """A receiver of events. The address may be a secret: show only `host`."""

    name: str
    url: str
    format: Literal["http", "slack"]
    secret: str | None = None
    timeout_seconds: float = 10.0
    notify_on: tuple[str, ...] = ()
    channel: str | None = None
    username: str | None = None

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    def accepts(self, kind: str) -> bool:
        """Return whether it receives this kind of event.

        Without a filter that is every kind but DatasetChanged, which the original service does not
        have and its receivers do not expect.
        """
        if self.notify_on:
            return kind in self.notify_on
        return kind != "DatasetChanged"


def endpoints_of(settings: Settings) -> tuple[Endpoint, ...]:
    """Return the enabled endpoints in the order of the settings."""
    webhooks = settings.webhooks
    if not webhooks.enabled:
        return ()
    found = []
    if webhooks.slack.enabled:
        slack = webhooks.slack
        assert slack.webhook_url is not None
        found.append(
            Endpoint(
                "slack",
                slack.webhook_url.get_secret_value(),
                "slack",
                notify_on=slack.notify_on,
                channel=slack.channel,
                username=slack.username,
            )
        )
    if webhooks.http.enabled:
        http = webhooks.http
        assert http.url is not None
        secret = http.secret.get_secret_value() if http.secret else None
        url = http.url.get_secret_value()
        found.append(Endpoint("http", url, "http", secret, http.timeout_seconds, http.notify_on))
    found += [
        Endpoint(
            one.name,
            one.url.get_secret_value(),
            one.format,
            one.secret.get_secret_value() if one.secret else None,
            one.timeout_seconds,
            one.notify_on,
            username=webhooks.slack.username if one.format == "slack" else None,
        )
        for one in webhooks.endpoints
    ]
    for endpoint in found:
        _check(endpoint)
    return tuple(found)


def find_endpoint(settings: Settings, name: str) -> Endpoint:
    """Return the enabled endpoint with that name."""
    endpoints = endpoints_of(settings)
    for endpoint in endpoints:
        if endpoint.name == name:
            return endpoint
    names = ", ".join(endpoint.name for endpoint in endpoints)
    raise NotFoundError(
        msg("There is no webhook endpoint named {name!r}.", name=name),
        remedy=(
            msg("Enabled endpoints: {names}.", names=names)
            if names
            else msg(
                "No endpoint is enabled; set webhooks.enabled and webhooks.http or webhooks.slack."
            )
        ),
    )


def _check(endpoint: Endpoint) -> None:
    try:
        check_http_url(endpoint.url)
    except ValueError as error:
        raise SettingsError(
            msg(
                "The address of the webhook endpoint {endpoint!r} {error}.",
                endpoint=endpoint.name,
                error=error,
            )
        ) from None
