"""`hasat config`: show, check and document the settings."""

from typing import Annotated

import typer
from rich.text import Text

from hasat.console import context, output
from hasat.errors import SettingsError, UsageError
from hasat.messages import join, msg

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Show, check and document the settings.

Examples: `hasat config show --origin` · `hasat config check` · `hasat config reference`""",
)


@app.command()
def show(
    ctx: typer.Context,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY]...", help="Settings or sections; all when none is named."),
    ] = None,
    origin: Annotated[
        bool, typer.Option("--origin", help="Show the origin of each value.")
    ] = False,
    json: output.JsonFlag = False,
) -> None:
    """Show the settings in force; secrets are hidden.

    Examples: `hasat config show serve jobs.timezone` · `hasat config show --origin` ·
    `hasat config show --json webhooks`
    """
    from hasat.settings.reference import as_text, shown_values

    settings = context.get_settings(ctx)
    values = _select(shown_values(settings), keys or [])
    origins = {key: settings.origin(key) for key in values}

    def human() -> Text:
        rows = [[key, as_text(value)] for key, value in values.items()]
        if not rows:
            return output.text([msg("No job has changed settings.")])
        if origin:
            rows = [[*row, str(origins[row[0]])] for row in rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
        # Alignment stops at 60 characters, so that one long value does not push all off the screen.
        widths = [min(width, 60) for width in widths]
        lines = ("  ".join([*map(str.ljust, row, widths), row[-1]]) for row in rows)
        return Text("\n".join(lines))

    whole = {
        key: {"value": value, "origin": origins[key].kind, "where": origins[key].where}
        for key, value in values.items()
    }
    output.emit(whole if origin else values, json=json, human=human)


@app.command()
def check(ctx: typer.Context, json: output.JsonFlag = False) -> None:
    """Check flags, environment, files, and the jobs they name, and report all problems at once.

    Exits 0 if the settings are valid and 2 otherwise. Remarks name settings without effect.

    Examples: `hasat config check` · `hasat --config ./deploy/config.example config check --json`
    """
    from hasat.console.runtime import build_catalogue

    try:
        settings = context.get_settings(ctx)
        catalogue = build_catalogue(settings)
    except SettingsError as error:
        if not json:
            raise
        problems = error.message.splitlines()
        output.emit({"problems": problems, "files": [], "remarks": []}, json=True, human=str)
        raise typer.Exit(error.exit_code) from error
    files, remarks = list(settings.files), [*settings.remarks, *catalogue.remarks]

    def human() -> str:
        for remark in remarks:
            output.note(remark)
        valid = msg("The settings are valid.")
        if not files:
            return join([valid, msg("There are no configuration files.")])
        return join([valid, msg("Read {files}.", files=", ".join(files))])

    output.emit({"problems": [], "files": files, "remarks": remarks}, json=json, human=human)


@app.command()
def reference() -> None:
    """Print the reference of all settings, as Markdown.

    Example: `hasat config reference > docs/reference/settings.md`
    """
    from hasat.settings.reference import reference

    print(reference(), end="")


def _select(values: dict[str, object], wanted: list[str]) -> dict[str, object]:
    """Return the settings with these names or in these sections; all if none is named."""
    from hasat.settings.tree import sections
    from hasat.settings.values import did_you_mean

    chosen: dict[str, object] = {} if wanted else values
    for name in wanted:
        found = {k: v for k, v in values.items() if k == name or k.startswith(f"{name}.")}
        if not found and name != "jobs.schedule":
            meant = did_you_mean(name, [*values, *sections()])
            raise UsageError(
                msg("There is no setting or section {name!r}{meant}", name=name, meant=meant)
            )
        chosen |= found
    return chosen
