"""`hasat replica`: a verified copy of a dataset of another Hasat."""

from dataclasses import asdict
from math import inf
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hasat.console import context, output
from hasat.errors import NotFoundError, NothingToDoError, UsageError
from hasat.messages import msg
from hasat.settings import Settings

if TYPE_CHECKING:
    from hasat.replica import Replica, Report

_PATIENCE_SECONDS = 120.0


def replica(
    ctx: typer.Context,
    dataset: Annotated[str, typer.Argument(help="The dataset, e.g. einvoice.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="TARGET", help="Where to store it: sqlite:///FILE or postgresql://..."
        ),
    ],
    source: Annotated[
        str | None, typer.Option("--from", metavar="URL", help="The Hasat server to follow.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Exit once it is up to date.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every row with the server's state digest.")
    ] = False,
    get: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Print one record of the replica; sends no request."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="API key of the server; better in HASAT_REPLICA_KEY."),
    ] = None,
    json: output.JsonFlag = False,
) -> None:
    """Copy a dataset of a Hasat server into your own database and keep it up to date.

    Loads the newest archive, then follows the changes until Ctrl-C. It may be killed at any moment.
    With --once it exits 0 if something was new (or verified) and 3 if nothing was. It exits 1 if
    the server is unreachable for two minutes or --verify finds a difference; the next start then
    loads everything again.

    Examples: `hasat replica einvoice --from https://hasat.example --to sqlite:///taxpayers.db` ·
    `hasat replica einvoice --to sqlite:///taxpayers.db --get 1234567890`
    """
    from hasat.replica import Replica

    settings = context.get_settings(ctx)
    if get is not None:
        output.emit(_get_record(to, dataset, get), json=True, human=lambda: "")
    elif source is None:
        raise UsageError(
            msg("--from is missing."),
            remedy=msg("Add --from with the URL of a Hasat server, or --get KEY to read a record."),
        )
    else:
        following = Replica(
            dataset,
            source,
            to,
            key=key or _key_of(settings),
            report=output.note,
            patience=_PATIENCE_SECONDS if once else inf,
        )
        with context.umask(context.umask_for(ctx)):
            code = context.run_async(_run(following, once=once, verify=verify, json=json))
        raise typer.Exit(code)


async def _run(following: "Replica", *, once: bool, verify: bool, json: bool) -> int:
    async with following:
        report = await (following.verify() if verify else following.catch_up())
        if verify:
            output.note(msg("All rows are equal to those of the server."))
        _show(report, json=json)
        if once:
            return 0 if report.new or verify else NothingToDoError.exit_code
        async for report in following.follow():
            _show(report, json=json)
    return 0


def _show(report: "Report", *, json: bool) -> None:
    output.emit(
        {**asdict(report), "new": report.new},
        json=json,
        human=lambda: msg(
            "{dataset} is up to date: {records:,} records at change {seq:,}, "
            "{changes:,} changes applied.",
            dataset=report.dataset,
            records=report.records,
            seq=report.seq,
            changes=report.changes,
        ),
    )


def _get_record(to: str, dataset: str, key: str) -> Any:
    from hasat.replica import open_target

    target = open_target(to, dataset, must_exist=True)
    try:
        state = target.state()
        body = target.get(key)
    finally:
        target.close()
    if body is None:
        raise NotFoundError(
            msg(
                "{dataset} has no record {key!r} as of change {seq:,}.",
                dataset=dataset,
                key=key,
                seq=state.seq,
            )
        )
    return body


def _key_of(settings: Settings) -> str | None:
    key = settings.replica.key
    return None if key is None else key.get_secret_value()
