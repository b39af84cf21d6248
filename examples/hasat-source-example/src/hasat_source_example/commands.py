"""The commands `hasat example ...`."""

import typer

from hasat.source import add_keys, get_settings, run_with_store
from hasat_source_example import COMPANIES

app = typer.Typer(no_args_is_help=True, help="Exchange rates and a company register.")


@app.callback()
def group() -> None:
    """Make `watch` a command of a group."""


@app.command()
def watch(ctx: typer.Context, numbers: list[str]) -> None:
    """Mirror more companies, from the next run on; such as `hasat example watch 1001 1002`."""
    settings = get_settings(ctx)
    added = run_with_store(settings, lambda store: add_keys(store, COMPANIES, numbers))
    print(f"{added} new companies")
