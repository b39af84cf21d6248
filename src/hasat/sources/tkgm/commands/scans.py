"""`hasat tkgm scans`: the scans so far, and deleting one."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType

from hasat.console import context, output
from hasat.console.runtime import run_with_store, with_audit
from hasat.console.tables import local_time
from hasat.messages import msg
from hasat.text import MAX_EXACT_INTEGER

if TYPE_CHECKING:
    from hasat.settings import Settings
    from hasat.store import Store


def scans(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many scans to show.")] = 20,
    delete: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_EXACT_INTEGER,
            metavar="ID",
            help="Delete a scan and its stored responses; its parcels stay.",
        ),
    ] = None,
    json: output.JsonFlag = False,
) -> None:
    """Show the scans of areas, newest first, or delete one.

    A scan that runs is not deleted. Examples: `hasat tkgm scans` · `hasat tkgm scans --delete 3`
    """
    settings = context.get_settings(ctx)

    async def work(store: "Store") -> list[dict[str, Any]]:
        from hasat.sources.tkgm.geometry import geodesic_area, parse_area
        from hasat.sources.tkgm.queries import list_scans
        from hasat.sources.tkgm.scan.records import delete_scan

        if delete is not None:
            await with_audit("scan.delete", str(delete), lambda store: delete_scan(store, delete))(
                store
            )
        found = []
        for one in await list_scans(store, limit):
            area = parse_area(one.area)
            found.append(
                {
                    "id": one.id,
                    "startedAt": one.began_at,
                    "finishedAt": one.finished_at,
                    "quality": one.method.get("quality", one.method.get("method")),
                    "areaKm2": round(geodesic_area(area) / 1e6, 4),
                    "bbox": [round(side, 5) for side in area.bounds],
                    "queries": one.queries,
                    "parcels": one.found,
                    "atLeast": one.at_least,
                    "missingNumbers": one.missing_numbers,
                }
            )
        return found

    rows = run_with_store(settings, work)
    output.emit(rows, json=json, human=lambda: _render(rows, delete, settings))


def _render(
    rows: list[dict[str, Any]], deleted: int | None, settings: "Settings"
) -> RenderableType:
    if deleted is not None:
        text = msg("Scan {scan} is deleted. Its parcels are still stored.", scan=deleted)
        return output.text([text])
    if not rows:
        return output.text([msg("No scans yet. `hasat tkgm scan` starts one.")])
    table = output.table("scan", "started", "km²", "queries", "parcels", "at least", "area")
    for row in rows:
        at_least = "" if row["atLeast"] is None else output.number(row["atLeast"], ".1%")
        state = at_least if row["finishedAt"] else msg("not complete")
        table.add_row(
            str(row["id"]),
            local_time(row["startedAt"], settings),
            output.number(row["areaKm2"], ",.2f"),
            output.number(row["queries"]),
            output.number(row["parcels"]),
            state,
            ",".join(f"{side:g}" for side in row["bbox"]),
        )
    return table
