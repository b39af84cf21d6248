"""`hasat quota`: the request budgets of the upstreams."""

import asyncio
import os
from collections.abc import Sequence
from datetime import datetime
from json import dumps
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hasat.budget import Quota
from hasat.budget import reopen as reopen_day
from hasat.clock import zone
from hasat.console import context, output
from hasat.console.runtime import open_existing_store, with_audit
from hasat.console.tables import Column, outcome
from hasat.errors import NotFoundError, UsageError
from hasat.messages import format_time, join, language_of_environment, msg
from hasat.settings import Settings
from hasat.store import Store

_WATCH_SECONDS = 2.0
_BAR_WIDTH = 30


def quota(
    ctx: typer.Context,
    upstream: Annotated[str | None, typer.Argument(help="Only this upstream.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    reopen: Annotated[
        bool, typer.Option("--reopen", help="Reopen the day that the upstream closed.")
    ] = False,
    json: output.JsonFlag = False,
) -> None:
    """Show the requests left at each upstream, the jobs that spent them, and the forecast.

    With `--watch --json` prints one document per line, every two seconds. With `--reopen` sends
    requests again although the upstream responded that the day's limit is reached.

    Examples: `hasat quota` · `hasat quota UPSTREAM --watch` · `hasat quota UPSTREAM --reopen`
    """
    settings = context.get_settings(ctx)
    if reopen and upstream is None:
        raise UsageError(
            msg("--reopen needs an upstream."), remedy=msg("hasat quota UPSTREAM --reopen")
        )

    async def read() -> list[Quota]:
        async with open_existing_store(settings) as store:
            quotas = await _read(store, settings, upstream)
            if not reopen or upstream is None:
                return quotas
            reopening = with_audit(
                "quota.reopen", upstream, lambda store: reopen_day(store, upstream)
            )
            await reopening(store)
            return await _read(store, settings, upstream)

    if watch:
        context.run_async(_watch(settings, upstream, json=json))
        return
    from hasat.api.routes.quota import document

    quotas = context.run_async(read())
    output.emit(document(quotas), json=json, human=lambda: _render(quotas))


async def _read(store: Store, settings: Settings, upstream: str | None) -> list[Quota]:
    from hasat.upstreams import read_all_quotas

    quotas = await read_all_quotas(store, settings)
    if upstream is None:
        return quotas
    chosen = [each for each in quotas if each.windows.upstream == upstream]
    if not chosen:
        known = ", ".join(each.windows.upstream for each in quotas)
        raise NotFoundError(
            msg("There is no upstream {upstream!r}.", upstream=upstream),
            remedy=msg("Known upstreams: {known}.", known=known),
        )
    return chosen


async def _watch(settings: Settings, upstream: str | None, *, json: bool) -> None:
    from hasat.api.routes.quota import document

    async with open_existing_store(settings) as store:
        if json:
            while True:
                print(dumps(document(await _read(store, settings, upstream))), flush=True)
                await asyncio.sleep(_WATCH_SECONDS)
        with Live(console=Console(highlight=False), auto_refresh=False) as live:
            while True:
                live.update(_render(await _read(store, settings, upstream)), refresh=True)
                await asyncio.sleep(_WATCH_SECONDS)


def _render(quotas: Sequence[Quota]) -> RenderableType:
    parts: list[RenderableType] = []
    for each in quotas:
        parts.append(output.text(_headlines(each)))
        if each.spenders or each.windows.day_limit is not None:
            parts.append(_lanes(each))
        if each.spenders:
            parts.append(_spenders(each))
        if each.endpoints:
            parts.append(_endpoints(each))
    return Group(*parts)


def _headlines(quota: Quota) -> list[str]:
    w = quota.windows
    local = w.now.astimezone(zone(w.zone))
    time = format_time(local, language_of_environment(os.environ), seconds=True)
    lines = [f"{w.upstream}  {time} {local.tzname()}"]
    if w.shadow:
        lines.append(msg("  SHADOW: requests are counted, none is refused"))
    if (limit := w.effective_limit) is not None and w.remaining is not None:
        lines.append(
            msg(
                "  day     {bar} {spent:,} of {limit:,} spent, {left:,} left, target {target:.0%}",
                bar=_bar(limit - w.remaining, limit),
                spent=w.spent,
                limit=limit,
                left=w.remaining,
                target=w.target,
            )
        )
    if w.exhausted_at:
        until = msg("until the day ends")
        if w.recheck_at:
            until = msg("re-checked at {time}", time=_time(quota, w.recheck_at))
        stopped = _time(quota, w.exhausted_at)
        lines.append(msg("  STOPPED by the upstream at {time}, {until}", time=stopped, until=until))
    if w.plan is not None:
        lines.append(msg("  the upstream allows {count:,} a day", count=w.plan))
    if w.foreign_use:
        foreign = w.foreign_use
        lines.append(msg("  {count:,} were spent by other users of the same key", count=foreign))
    if w.written_off:
        lost = w.written_off
        lines.append(msg("  {count:,} are written off after crashes of the database", count=lost))
    if w.minute_limit is not None:
        minute = msg(
            "  minute  {bar} {spent:,} of {limit:,}",
            bar=_bar(w.last_minute, w.minute_limit),
            spent=w.last_minute,
            limit=w.minute_limit,
        )
        if w.minute_rate is not None and w.minute_rate < w.minute_limit:
            slowed = msg("slowed to {rate:.0f}", rate=w.minute_rate)
            minute = join([minute, slowed], ", ")
        lines.append(minute)
    if w.paused_until:
        lines.append(msg("  PAUSED until {time}", time=_time(quota, w.paused_until)))
    if quota.forecast is not None:
        lines.append(msg("  forecast: {sentence}", sentence=quota.forecast.sentence))
    return lines


def _lanes(quota: Quota) -> Table:
    table = output.table(
        "lane",
        "spent",
        "available",
        Column("reserved for others", 1),
        "reserved",
        Column("waits", 2),
        "refused",
        numeric=True,
    )
    for lane in quota.lanes:
        table.add_row(
            msg("{lane} (paced)", lane=lane.name) if lane.paced else lane.name,
            output.number(lane.spent),
            "" if lane.may_spend is None else output.number(lane.may_spend),
            output.number(lane.kept_for_others),
            output.number(lane.keep),
            msg("{count:,} ({seconds:,.0f} s)", count=lane.waits, seconds=lane.waited_seconds),
            output.number(lane.refusals),
        )
    return table


def _spenders(quota: Quota) -> Table:
    table = output.table("job", "lane", "spent", "requests", "refused", numeric=True)
    for each in quota.spenders:
        table.add_row(
            each.job,
            each.lane,
            *map(output.number, (each.spent, each.grants, each.refusals)),
        )
    return table


def _endpoints(quota: Quota) -> Table:
    table = output.table("endpoint", "spent", "of", "state", numeric=True)
    for each in quota.endpoints:
        state: str | Text = ""
        if each.exhausted_at:
            state = outcome("exhausted")
        elif each.rest_until:
            state = msg("cooldown until {time}", time=_time(quota, each.rest_until))
        limit = "" if each.day_limit is None else output.number(each.day_limit)
        table.add_row(each.name, output.number(each.spent), limit, state)
    return table


def _time(quota: Quota, moment: datetime) -> str:
    local = moment.astimezone(zone(quota.windows.zone))
    return f"{local:%H:%M:%S} {local.tzname()}"


def _bar(used: int, limit: int) -> str:
    filled = min(_BAR_WIDTH, round(_BAR_WIDTH * used / limit)) if limit else _BAR_WIDTH
    return "█" * filled + "░" * (_BAR_WIDTH - filled)
