"""`hasat audit`: who did what, from where, why, when and with what outcome."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from hasat.cli import manners
from hasat.cli.house import in_house
from hasat.clock import zone
from hasat.store.audit import list_audit


def add_to(app: typer.Typer) -> None:
    app.command()(audit)


def audit(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at the most.")] = 50,
    actor: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only of this key or user.")
    ] = None,
    action: Annotated[
        str | None,
        typer.Option(metavar="CODE", help="Only this code, or its first word: hold.approve, run."),
    ] = None,
    before: Annotated[
        int | None, typer.Option(min=1, max=2**62, help="Only records with a lower number.")
    ] = None,
    json: manners.JsonFlag = False,
) -> None:
    """List recorded actions, newest first: who, from where, what, why and with what outcome.

    Examples: `hasat audit` · `hasat audit --action hold` · `hasat audit --actor ops --json`
    """
    from hasat.api.audit import document

    settings = manners.settings_of(ctx)
    found = in_house(
        settings,
        lambda store: list_audit(store, actor=actor, action=action, before=before, limit=limit),
    )

    def human() -> Table | Text:
        if not found:
            return Text("No results.")
        table = Table(box=None, pad_edge=False)
        for heading in (
            "record",
            "at",
            "actor",
            "by",
            "from",
            "action",
            "object",
            "outcome",
            "reason",
        ):
            table.add_column(heading)
        for one in found:
            at = one.at.astimezone(zone(settings.jobs.timezone))
            cells = (one.actor, one.actor_kind, one.address, one.action, one.object, one.outcome)
            table.add_row(
                str(one.id),
                f"{at:%Y-%m-%d %H:%M:%S}",
                *map(Text, cells),
                Text(one.reason or ""),
            )
        return table

    manners.emit([document(one) for one in found], json=json, human=human)
