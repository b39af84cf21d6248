"""`hasat keys` and `hasat audit`: who may use the HTTP API, and who did what."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Literal

import typer
from rich.console import RenderableType

from hasat.api.keys import (
    CACHE_SECONDS,
    ApiKey,
    create_key,
    limit_key,
    list_keys,
    restrict_key,
    revoke_key,
)
from hasat.api.usage import MAX_DAYS, list_usage
from hasat.console import context, output
from hasat.console.runtime import run_with_store, with_audit
from hasat.console.tables import Column, local_time, outcome
from hasat.errors import UsageError
from hasat.messages import msg
from hasat.settings import Settings
from hasat.settings.types import parse_duration
from hasat.source.installed import all_datasets
from hasat.store.audit import list_audit
from hasat.text import MAX_EXACT_INTEGER

app = typer.Typer(help="Manage the keys of the HTTP API.", no_args_is_help=True)

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
    name: Annotated[str, typer.Argument(help="Name of the caller; shown in lists and logs.")],
    scope: Annotated[
        Literal["read", "operate"],
        typer.Option(help="Permissions; operate includes read."),
    ] = "read",
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="How long it is valid, e.g. 90d or 12h.")
    ] = None,
    per_minute: PerMinute = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(help="The only dataset that it may read; may be repeated."),
    ] = None,
    json: output.JsonFlag = False,
) -> None:
    """Create an API key. It is printed once and cannot be shown again.

    Examples: `hasat keys create grafana` · `hasat keys create ops --scope operate --expires 90d` ·
    `hasat keys create loader --per-minute 6000` · `hasat keys create erp --dataset einvoice`
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
            raise UsageError(msg("--expires must be longer than zero."))

    datasets = _known_datasets(dataset) if dataset else None
    create = with_audit(
        "key.create",
        name,
        lambda store: create_key(
            store, name, scope, lifetime, per_minute=per_minute, datasets=datasets
        ),
    )
    key, token = run_with_store(context.get_settings(ctx), create, creates=True)
    if not json:
        output.note(
            msg(
                "Key {key_id} for {name!r} ({scope}). Store it now: it is not shown again.",
                key_id=key.id,
                name=key.name,
                scope=key.scope,
            )
        )
    output.emit({**key.public(), "key": token}, json=json, human=lambda: token)


@app.command("list")
def list_(ctx: typer.Context, json: output.JsonFlag = False) -> None:
    """List the API keys, including revoked and expired ones.

    Examples: `hasat keys list` · `hasat keys list --json`
    """
    settings = context.get_settings(ctx)
    keys = run_with_store(settings, list_keys)
    output.emit([key.public() for key in keys], json=json, human=lambda: _table(keys, settings))


@app.command()
def limit(
    ctx: typer.Context,
    key: Annotated[str, typer.Argument(help="The id, or the name if only one active key has it.")],
    per_minute: Annotated[
        str, typer.Argument(metavar="N", help="Requests a minute, 0 for any number, or `default`.")
    ],
    json: output.JsonFlag = False,
) -> None:
    """Change the rate limit of an API key; running servers apply it within seconds.

    Examples: `hasat keys limit grafana 120` · `hasat keys limit k3v7qzt2ma default`
    """
    wanted = _parse_limit(per_minute)
    settings = context.get_settings(ctx)
    change = with_audit("key.limit", key, lambda store: limit_key(store, key, wanted))
    changed = run_with_store(settings, change)
    shown = _format_limit(changed, settings.serve.requests_per_minute)
    output.emit(
        changed.public(),
        json=json,
        human=lambda: msg(
            "Key {key_id} of {name!r}: {limit} requests a minute. "
            "Running servers apply it within {seconds:.0f} seconds.",
            key_id=changed.id,
            name=changed.name,
            limit=shown,
            seconds=CACHE_SECONDS,
        ),
    )


@app.command()
def datasets(
    ctx: typer.Context,
    key: Annotated[str, typer.Argument(help="The id, or the name if only one active key has it.")],
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DATASET]...", help="The only datasets that it may read."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="It may read all datasets.")] = False,
    json: output.JsonFlag = False,
) -> None:
    """Restrict an API key to some datasets; running servers apply it within seconds.

    Examples: `hasat keys datasets erp einvoice edespatch` · `hasat keys datasets erp --all`
    """
    if bool(names) == everything:
        raise UsageError(msg("Name the datasets that the key may read, or use --all."))
    wanted = _known_datasets(names) if names else None
    change = with_audit("key.datasets", key, lambda store: restrict_key(store, key, wanted))
    changed = run_with_store(context.get_settings(ctx), change)
    output.emit(
        changed.public(),
        json=json,
        human=lambda: msg(
            "Key {key_id} of {name!r} may read {datasets}. "
            "Running servers apply it within {seconds:.0f} seconds.",
            key_id=changed.id,
            name=changed.name,
            datasets=", ".join(changed.datasets or ()) or msg("all datasets"),
            seconds=CACHE_SECONDS,
        ),
    )


@app.command("usage")
def show_usage(
    ctx: typer.Context,
    days: Annotated[int, typer.Option(min=1, max=MAX_DAYS, help="Days, today included.")] = 30,
    json: output.JsonFlag = False,
) -> None:
    """Show the requests of each key and signing client by day, newest first.

    Examples: `hasat keys usage` · `hasat keys usage --days 7 --json`
    """
    settings = context.get_settings(ctx)
    found = run_with_store(
        settings, lambda store: list_usage(store, settings.jobs.timezone, days=days)
    )

    def human() -> RenderableType:
        if not found:
            return output.text([msg("No results.")])
        table = output.table(
            "day",
            "key",
            Column("caller", 1),
            Column("requests", numeric=True),
            Column("refused", numeric=True),
            Column("failed", numeric=True),
            Column("bytes", 2, numeric=True),
        )
        for one in found:
            counts = (one.requests, one.refused, one.failed, one.bytes)
            table.add_row(
                one.day.isoformat(),
                one.name or "",
                one.caller,
                *map(output.number, counts),
            )
        return table

    rows = [{**asdict(one), "day": one.day.isoformat()} for one in found]
    output.emit(rows, json=json, human=human)


@app.command()
def revoke(
    ctx: typer.Context,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id that `list` shows.")],
    json: output.JsonFlag = False,
) -> None:
    """Revoke an API key; running servers refuse it within seconds.

    Example: `hasat keys revoke k3v7qzt2ma`
    """
    revoke = with_audit("key.revoke", key_id, lambda store: revoke_key(store, key_id))
    key = run_with_store(context.get_settings(ctx), revoke)
    output.emit(
        key.public(),
        json=json,
        human=lambda: msg(
            "Revoked key {key_id} of {name!r}. "
            "Running servers refuse it within {seconds:.0f} seconds.",
            key_id=key.id,
            name=key.name,
            seconds=CACHE_SECONDS,
        ),
    )


def audit(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of records.")] = 50,
    actor: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only actions of this key or user.")
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(metavar="CODE", help="Only this code, or its first word: hold.approve, run."),
    ] = None,
    before: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_EXACT_INTEGER, help="Only records with a lower number."),
    ] = None,
    json: output.JsonFlag = False,
) -> None:
    """List recorded actions, newest first: who, from where, what, why and with what outcome.

    Examples: `hasat audit` · `hasat audit --action hold` · `hasat audit --actor ops --json`
    """
    from hasat.api.routes.audit import document

    settings = context.get_settings(ctx)
    found = run_with_store(
        settings,
        lambda store: list_audit(store, actor=actor, action=action, before=before, limit=limit),
    )

    def human() -> RenderableType:
        if not found:
            return output.text([msg("No results.")])
        table = output.table(
            Column("record", 3, numeric=True),
            "at",
            "actor",
            Column("by", 4),
            Column("from", 5),
            "action",
            Column("object", 1),
            "outcome",
            Column("reason", 2, wraps=True),
        )
        for one in found:
            cells = (one.actor, one.actor_kind, one.address, one.action, one.object)
            at = local_time(one.at, settings)
            table.add_row(str(one.id), at, *cells, outcome(one.outcome), one.reason or "")
        return table

    output.emit([document(one) for one in found], json=json, human=human)


def _known_datasets(names: Sequence[str]) -> Sequence[str]:
    known = {dataset.name for dataset in all_datasets()}
    if unknown := sorted(set(names) - known):
        raise UsageError(
            msg("There is no dataset {dataset!r}.", dataset=unknown[0]),
            remedy=msg("Known datasets: {datasets}.", datasets=", ".join(sorted(known))),
        )
    return names


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


def _format_limit(key: ApiKey, default: int) -> str:
    limit = default if key.per_minute is None else key.per_minute
    shown = output.number(limit, "d") if limit else msg("unlimited")
    return msg("{limit} (default)", limit=shown) if key.per_minute is None else shown


def _table(keys: Sequence[ApiKey], settings: Settings) -> RenderableType:
    if not keys:
        return output.text([msg("There are no keys. Create one with `hasat keys create NAME`.")])
    table = output.table(
        "id",
        "name",
        "scope",
        Column("datasets", 2, wraps=True),
        "state",
        Column("per minute", 3),
        Column("created", 5),
        Column("last used", 1),
        Column("expires", 4),
    )
    for key in keys:
        times = (key.created_at, key.last_used_at, key.expires_at)
        table.add_row(
            key.id,
            key.name,
            key.scope,
            ", ".join(key.datasets or ()) or msg("all"),
            outcome(key.state),
            _format_limit(key, settings.serve.requests_per_minute),
            *(local_time(time, settings) for time in times),
        )
    return table
