"""`hasat keys`: who may use the HTTP API."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from hasat.api.keys import CACHE_SECONDS, ApiKey, create_key, limit_key, list_keys, revoke_key
from hasat.cli import manners
from hasat.cli.house import acting, open_house
from hasat.errors import UsageError
from hasat.messages import msg
from hasat.settings import Settings
from hasat.settings.kinds import parse_duration

app = typer.Typer(help="Who may use the HTTP API.", no_args_is_help=True)

MAX_PER_MINUTE = 1_000_000
PerMinute = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=MAX_PER_MINUTE,
        help="Requests a minute, 0 for any number; serve.requests_per_minute if not given.",
    ),
]


@app.command()
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="Who will use it; shown in lists and logs.")],
    scope: Annotated[
        Literal["read", "operate"],
        typer.Option(help="What it may do; operate includes read."),
    ] = "read",
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it is valid, e.g. 90d or 12h.")
    ] = None,
    per_minute: PerMinute = None,
    json: manners.JsonFlag = False,
) -> None:
    """Make an API key. It is printed once and cannot be shown again.

    Examples: `hasat keys create grafana` · `hasat keys create ops --scope operate --expires 90d` ·
    `hasat keys create loader --per-minute 6000`
    """
    lifetime = None
    if expires is not None:
        try:
            lifetime = parse_duration(expires)
        except ValueError as error:
            raise UsageError(
                msg("--expires {expires!r} {error}.", expires=expires, error=error)
            ) from error
        if not lifetime:
            raise UsageError(msg("--expires must be longer than no time at all."))

    async def make(settings: Settings) -> tuple[ApiKey, str]:
        async with open_house(settings) as store:
            create = acting(
                "key.create",
                name,
                lambda store: create_key(store, name, scope, lifetime, per_minute=per_minute),
            )
            return await create(store)

    key, token = manners.run_async(make(manners.settings_of(ctx)))
    if not json:
        manners.note(
            f"The key {key.id} for {key.name!r} ({key.scope}). Keep it now: it is not shown again."
        )
    manners.emit({**key.public(), "key": token}, json=json, human=lambda: Text(token))


@app.command("list")
def list_(ctx: typer.Context, json: manners.JsonFlag = False) -> None:
    """List the API keys, the revoked and expired ones too.

    Examples: `hasat keys list` · `hasat keys list --json`
    """

    async def read(settings: Settings) -> list[ApiKey]:
        async with open_house(settings) as store:
            return await list_keys(store)

    settings = manners.settings_of(ctx)
    keys = manners.run_async(read(settings))
    default = settings.serve.requests_per_minute
    manners.emit([key.public() for key in keys], json=json, human=lambda: _table(keys, default))


@app.command()
def limit(
    ctx: typer.Context,
    key: Annotated[str, typer.Argument(help="The id, or the name if only one active key has it.")],
    per_minute: Annotated[
        str, typer.Argument(metavar="N", help="Requests a minute, 0 for any number, or `default`.")
    ],
    json: manners.JsonFlag = False,
) -> None:
    """Change the rate limit of an API key; running servers apply it within seconds.

    Examples: `hasat keys limit grafana 120` · `hasat keys limit k3v7qzt2ma default`
    """
    wanted = _parse_limit(per_minute)

    async def change(settings: Settings) -> ApiKey:
        async with open_house(settings) as store:
            apply = acting("key.limit", key, lambda store: limit_key(store, key, wanted))
            return await apply(store)

    settings = manners.settings_of(ctx)
    changed = manners.run_async(change(settings))
    shown = _shown_limit(changed, settings.serve.requests_per_minute)
    manners.emit(
        changed.public(),
        json=json,
        human=lambda: Text(
            f"The key {changed.id} of {changed.name!r}: {shown} requests a minute. "
            f"Running servers apply it within {CACHE_SECONDS:.0f} seconds."
        ),
    )


@app.command()
def revoke(
    ctx: typer.Context,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `list` shows.")],
    json: manners.JsonFlag = False,
) -> None:
    """Revoke an API key; running servers refuse it within seconds.

    Example: `hasat keys revoke k3v7qzt2ma`
    """

    async def end(settings: Settings) -> ApiKey:
        async with open_house(settings) as store:
            revoke = acting("key.revoke", key_id, lambda store: revoke_key(store, key_id))
            return await revoke(store)

    key = manners.run_async(end(manners.settings_of(ctx)))
    manners.emit(
        key.public(),
        json=json,
        human=lambda: Text(
            f"Revoked the key {key.id} of {key.name!r}. "
            f"Servers that run refuse it within {CACHE_SECONDS:.0f} seconds."
        ),
    )


def _parse_limit(text: str) -> int | None:
    if text == "default":
        return None
    if re.fullmatch("[0-9]{1,7}", text) is None or int(text) > MAX_PER_MINUTE:
        raise UsageError(
            msg(
                "{text!r} is not a whole number from 0 to {max_per_minute}, or `default`.",
                text=text,
                max_per_minute=MAX_PER_MINUTE,
            )
        )
    return int(text)


def _shown_limit(key: ApiKey, default: int) -> str:
    limit = default if key.per_minute is None else key.per_minute
    return f"{limit or 'unlimited'}{' (default)' if key.per_minute is None else ''}"


def _table(keys: Sequence[ApiKey], default: int) -> RenderableType:
    if not keys:
        return Text("There are no keys yet. Make one with `hasat keys create NAME`.")
    table = Table(box=None, pad_edge=False)
    for heading in (
        "id",
        "name",
        "scope",
        "state",
        "per minute",
        "created",
        "last used",
        "expires",
    ):
        table.add_column(heading)
    for key in keys:
        days = (_shown(time) for time in (key.created_at, key.last_used_at, key.expires_at))
        table.add_row(
            key.id, Text(key.name), key.scope, key.state, _shown_limit(key, default), *days
        )
    return table


def _shown(time: datetime | None) -> str:
    return f"{time.astimezone():%Y-%m-%d}" if time else "-"
