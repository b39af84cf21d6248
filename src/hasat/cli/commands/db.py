"""`hasat db`: connect to the database, migrate it, back it up, stop it."""

import asyncio
import secrets
import signal
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from hasat.console import context, output
from hasat.console.runtime import check_database, open_migrated_store, source_migrations
from hasat.errors import HasatError, UsageError
from hasat.feed.archive import write_archives
from hasat.feed.changes import is_filled
from hasat.messages import msg
from hasat.receipts.carrying import CarriedReceipts, export_receipts, import_receipts
from hasat.settings import Settings
from hasat.source.installed import all_datasets
from hasat.store import Store
from hasat.store.audit import (
    AuditEntry,
    carry_over,
    command_actor,
    error_detail,
    has_audit_table,
    read_all,
)
from hasat.store.backup import Client, back_up, restore
from hasat.store.embedded.server import EmbeddedServer
from hasat.store.migrate import read_pending
from hasat.store.store import bring_up_to_date, connect, reach

app = typer.Typer(
    no_args_is_help=True, help="Connect to the database, back it up, restore it, stop it."
)

FileArgument = Annotated[Path, typer.Argument(help="The backup file.", show_default=False)]


@app.command()
def url(ctx: typer.Context, json: output.JsonFlag = False) -> None:
    """Print the URL of the database, with its password if it has one.

    Starts the embedded server if needed and leaves it running until `hasat db stop`.

    Examples: `hasat db url` · `psql "$(hasat db url)"` · `hasat db url --json`
    """
    found, embedded = context.run_async(_url(context.get_settings(ctx)))
    output.emit({"url": found, "embedded": embedded}, json=json, human=lambda: _line(found))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(ctx: typer.Context) -> None:
    """Open psql on the database; arguments are passed to psql.

    Examples: `hasat db psql` · `hasat db psql -c 'SELECT count(*) FROM jobs.run'`
    """
    raise typer.Exit(context.run_async(_psql(context.get_settings(ctx), ctx.args)))


@app.command()
def migrate(
    ctx: typer.Context,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list what would be applied.")
    ] = False,
    json: output.JsonFlag = False,
) -> None:
    """Apply the pending migrations; every start does this too.

    With --dry-run, list them and say whether processes of the old version may run meanwhile
    (`rolling`); exit code 4 means that they must stop first.

    Examples: `hasat db migrate` · `hasat db migrate --dry-run --json`
    """
    if dry_run:
        pending = context.run_async(_pending(context.get_settings(ctx)))
        output.emit({"pending": pending}, json=json, human=lambda: _line(_describe(pending)))
        if not all(one["rolling"] for one in pending):
            raise typer.Exit(4)
        return
    applied = context.run_async(_migrate(context.get_settings(ctx)))
    output.emit(
        {"applied": applied},
        json=json,
        human=lambda: _line("\n".join(applied) or msg("The database is up to date.")),
    )


@app.command()
def backup(ctx: typer.Context, file: FileArgument, json: output.JsonFlag = False) -> None:
    """Write the whole database to a file; Hasat may run meanwhile.

    Examples: `hasat db backup monday.dump` · `hasat db backup /backups/hasat.dump --json`
    """
    size = context.run_async(_backup(context.get_settings(ctx), file))
    output.emit(
        {"file": file.absolute(), "bytes": size},
        json=json,
        human=lambda: _line(
            msg("Backed up to {file} ({size:,.1f} MB).", file=file, size=size / 1e6)
        ),
    )


@app.command(name="restore")
def restore_command(
    ctx: typer.Context,
    file: FileArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Replace the data in the database.")] = False,
    json: output.JsonFlag = False,
) -> None:
    """Replace the database with a backup; on an error nothing changes.

    Stop other Hasat processes first. Consumers start over, so every dataset is archived.

    Examples: `hasat db restore monday.dump` · `hasat db restore monday.dump --yes`
    """
    context.run_async(_restore(context.get_settings(ctx), file, replace=yes))
    output.emit(
        {"restored": file.absolute()},
        json=json,
        human=lambda: _line(msg("Restored from {file}.", file=file)),
    )


@app.command()
def stop(
    ctx: typer.Context,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also while Hasat processes use it; those that keep running start it again.",
        ),
    ] = False,
    json: output.JsonFlag = False,
) -> None:
    """Stop the embedded server if it is running.

    Examples: `hasat db stop` · `hasat db stop --force`
    """
    stopped = context.run_async(_stop(context.get_settings(ctx), force=force))
    text = (
        msg("The database server has stopped.")
        if stopped
        else msg("The database server is not running.")
    )
    output.emit({"stopped": stopped}, json=json, human=lambda: _line(text))


async def _url(settings: Settings) -> tuple[str, bool]:
    async with reach(settings, leave_running=True) as reached, await connect(reached.url):
        return reached.url, reached.embedded


async def _psql(settings: Settings, arguments: list[str]) -> int:
    check_database(settings)
    async with reach(settings) as reached:
        client = await Client.of(reached, settings.database.binaries)
        # Ctrl-C is for psql, which cancels its query; this process must survive it.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
        process = await asyncio.create_subprocess_exec(
            client.program("psql"), client.database, *arguments, env=client.environment
        )
        return await process.wait()


async def _migrate(settings: Settings) -> list[str]:
    async with reach(settings) as reached:
        return await bring_up_to_date(reached, source_migrations())


async def _pending(settings: Settings) -> list[dict[str, Any]]:
    async with reach(settings) as reached, await connect(reached.url) as connection:
        found = await read_pending(connection, source_migrations())
    return [
        {"name": str(one), "rolling": one.stop_reason is None, "reason": one.stop_reason}
        for one in found
    ]


def _describe(pending: list[dict[str, Any]]) -> str:
    if not pending:
        return output.localize(msg("The database is up to date."))
    lines = [f"{one['name']}  {output.shown(one['reason'] or '')}".rstrip() for one in pending]
    if all(one["rolling"] for one in pending):
        end = msg("Workers and servers of the old version may run meanwhile.")
    else:
        end = msg("Stop all workers and servers of the old version first.")
    return "\n".join([*lines, output.localize(end)])


async def _backup(settings: Settings, file: Path) -> int:
    check_database(settings)
    async with reach(settings) as reached:
        return await back_up(reached, file, settings.database.binaries)


async def _restore(settings: Settings, file: Path, *, replace: bool) -> None:
    """Restore a backup and keep the audit records and receipts that are newer than it."""
    entry = AuditEntry(command_actor(), "database.restore", file.name)
    async with reach(settings) as reached:
        async with await connect(reached.url) as connection:
            records = await read_all(connection)
            receipts = await export_receipts(connection, _receipts_file(settings))
        try:
            binaries = settings.database.binaries
            await restore(reached, file, binaries, source_migrations(), replace=replace)
        except HasatError as error:
            if receipts is not None:
                receipts.file.unlink()
            await _record_refusal(reached.url, entry, error)
            raise
        async with open_migrated_store(settings) as store:
            await carry_over(store, records)
            await _carry_receipts(store, receipts)
            async with store.connection() as connection:
                await entry.write(connection)
        await _archive_all(settings)


def _receipts_file(settings: Settings) -> Path:
    return settings.home / f"receipts-before-restore-{secrets.token_hex(4)}.tsv"


async def _carry_receipts(store: Store, receipts: CarriedReceipts | None) -> None:
    if receipts is None:
        return
    if await import_receipts(store, receipts):
        receipts.file.unlink()
        return
    output.note(
        msg(
            "The receipts of the replaced database do not continue those of the backup; they are "
            "in {file}.",
            file=receipts.file,
        )
    )


async def _record_refusal(url: str, entry: AuditEntry, error: HasatError) -> None:
    entry.detail |= error_detail(error)
    async with await connect(url) as connection:
        if await has_audit_table(connection):
            await entry.write(connection, "refused" if error.status < 500 else "failed")


async def _archive_all(settings: Settings) -> None:
    """Archive every dataset, so that consumers can start over; a worker retries what fails."""
    try:
        async with open_migrated_store(settings) as store:
            for dataset in all_datasets():
                async with store.connection() as connection:
                    if not await is_filled(connection, dataset.name):
                        continue
                try:
                    await write_archives(store, settings, dataset)
                except (HasatError, OSError) as error:
                    output.note(
                        msg("Cannot archive {dataset}: {error}", dataset=dataset.name, error=error)
                    )
    except HasatError as error:
        output.note(msg("Cannot archive the datasets: {error}", error=error))


async def _stop(settings: Settings, *, force: bool) -> bool:
    if settings.database.url is not None:
        raise UsageError(
            msg("Hasat does not stop a server that is configured by its URL."),
            remedy=msg("Stop it with its own tools."),
        )
    server = EmbeddedServer(settings.home, binaries=settings.database.binaries)
    return await server.stop(force=force)


def _line(text: str) -> Text:
    """Return a line that is never wrapped, so that it can be copied."""
    return Text(output.shown(text), no_wrap=True, overflow="ignore")
