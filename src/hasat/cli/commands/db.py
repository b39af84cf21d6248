"""`hasat db`: the database for people who want to reach it themselves."""

import asyncio
import signal
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from hasat.cli import context, output
from hasat.cli.runtime import open_migrated_store, source_migrations
from hasat.errors import HasatError, UsageError
from hasat.feed.archive import write_archives
from hasat.feed.changes import is_filled
from hasat.messages import msg
from hasat.settings import Settings
from hasat.sources.registry import all_datasets
from hasat.store.audit import (
    AuditEntry,
    carry_over,
    command_actor,
    error_detail,
    is_there,
    read_all,
)
from hasat.store.backup import Client, back_up, restore
from hasat.store.embedded import EmbeddedServer
from hasat.store.store import bring_up_to_date, connect, reach

app = typer.Typer(no_args_is_help=True, help="The database: reach it, back it up, stop it.")

FileArgument = Annotated[Path, typer.Argument(help="The backup.", show_default=False)]


@app.command()
def url(ctx: typer.Context, json: output.JsonFlag = False) -> None:
    """Print the database's address, with its password if it has one.

    The embedded server is started if needed and stays up until `hasat db stop`, so that the address
    can be used.

    Examples: `hasat db url` · `psql "$(hasat db url)"` · `hasat db url --json`
    """
    found, embedded = context.run_async(_url(context.get_settings(ctx)))
    output.emit({"url": found, "embedded": embedded}, json=json, human=lambda: _line(found))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(ctx: typer.Context) -> None:
    """Open psql on the database; arguments are passed on.

    Examples: `hasat db psql` · `hasat db psql -c 'SELECT count(*) FROM jobs.run'`
    """
    raise typer.Exit(context.run_async(_psql(context.get_settings(ctx), ctx.args)))


@app.command()
def migrate(ctx: typer.Context, json: output.JsonFlag = False) -> None:
    """Bring the database up to date; every start does this by itself.

    Examples: `hasat db migrate` · `hasat db migrate --json`
    """
    applied = context.run_async(_migrate(context.get_settings(ctx)))
    output.emit(
        {"applied": applied},
        json=json,
        human=lambda: _line("\n".join(applied) or "The database is up to date."),
    )


@app.command()
def backup(ctx: typer.Context, file: FileArgument, json: output.JsonFlag = False) -> None:
    """Write the whole database to a file, while Hasat goes on working.

    Examples: `hasat db backup monday.dump` · `hasat db backup /backups/hasat.dump --json`
    """
    size = context.run_async(_backup(context.get_settings(ctx), file))
    output.emit(
        {"file": file.absolute(), "bytes": size},
        json=json,
        human=lambda: _line(f"Backed up to {file} ({size / 1e6:.1f} MB)."),
    )


@app.command(name="restore")
def restore_command(
    ctx: typer.Context,
    file: FileArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Replace what is there.")] = False,
    json: output.JsonFlag = False,
) -> None:
    """Put a backup in place of what is in the database; all of it or, on an error, nothing.

    Other Hasat processes must be stopped first. Followers start over, so every dataset is archived.

    Examples: `hasat db restore monday.dump` · `hasat db restore monday.dump --yes`
    """
    context.run_async(_restore(context.get_settings(ctx), file, replace=yes))
    output.emit(
        {"restored": file.absolute()}, json=json, human=lambda: _line(f"Restored from {file}.")
    )


@app.command()
def stop(
    ctx: typer.Context,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also while Hasat processes use it; those that go on working start it again.",
        ),
    ] = False,
    json: output.JsonFlag = False,
) -> None:
    """Stop the embedded server, if one is left running.

    Examples: `hasat db stop` · `hasat db stop --force`
    """
    stopped = context.run_async(_stop(context.get_settings(ctx), force=force))
    said = "The database server has stopped." if stopped else "The database server is not running."
    output.emit({"stopped": stopped}, json=json, human=lambda: _line(said))


async def _url(settings: Settings) -> tuple[str, bool]:
    async with reach(settings, leave_running=True) as reached, await connect(reached.url):
        return reached.url, reached.embedded


async def _psql(settings: Settings, arguments: list[str]) -> int:
    async with reach(settings) as reached:
        client = await Client.of(reached, settings.database.binaries)
        # Ctrl-C is psql's: it cancels the query, not the program that waits for psql.
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
        process = await asyncio.create_subprocess_exec(
            client.program("psql"), client.database, *arguments, env=client.environment
        )
        return await process.wait()


async def _migrate(settings: Settings) -> list[str]:
    async with reach(settings) as reached:
        return await bring_up_to_date(reached, source_migrations())


async def _backup(settings: Settings, file: Path) -> int:
    async with reach(settings) as reached:
        return await back_up(reached, file, settings.database.binaries)


async def _restore(settings: Settings, file: Path, *, replace: bool) -> None:
    """Restore, with the audit record continued: a backup has none of what happened after it."""
    entry = AuditEntry(command_actor(), "database.restore", file.name)
    async with reach(settings) as reached:
        async with await connect(reached.url) as connection:
            records = await read_all(connection)
        try:
            binaries = settings.database.binaries
            await restore(reached, file, binaries, source_migrations(), replace=replace)
        except HasatError as error:
            await _record_refusal(reached.url, entry, error)
            raise
        async with open_migrated_store(settings) as store:
            await carry_over(store, records)
            async with store.connection() as connection:
                await entry.write(connection)
        await _archive_all(settings)


async def _record_refusal(url: str, entry: AuditEntry, error: HasatError) -> None:
    entry.detail |= error_detail(error)
    async with await connect(url) as connection:
        if await is_there(connection):
            await entry.write(connection, "refused" if error.status < 500 else "failed")


async def _archive_all(settings: Settings) -> None:
    """Write what followers start over from; a worker makes up for what cannot be written now."""
    try:
        async with open_migrated_store(settings) as store:
            for dataset in all_datasets():
                async with store.connection() as connection:
                    if not await is_filled(connection, dataset.name):
                        continue
                try:
                    await write_archives(store, settings, dataset)
                except (HasatError, OSError) as error:
                    output.note(f"{dataset.name} could not be archived: {error}")
    except HasatError as error:
        output.note(f"The datasets could not be archived: {error}")


async def _stop(settings: Settings, *, force: bool) -> bool:
    if settings.database.url is not None:
        raise UsageError(
            msg("The database server was given by its address, so Hasat does not stop it."),
            remedy=msg("Stop it with its own tools."),
        )
    server = EmbeddedServer(settings.home, binaries=settings.database.binaries)
    return await server.stop(force=force)


def _line(text: str) -> Text:
    """A line that is never broken, so that it can be copied."""
    return Text(text, no_wrap=True, overflow="ignore")
