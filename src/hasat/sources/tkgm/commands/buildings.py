"""`hasat tkgm buildings`: the blocks and building units of a parcel."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group, RenderableType

from hasat.console import context, output
from hasat.console.runtime import open_migrated_store
from hasat.errors import NotFoundError
from hasat.messages import msg

if TYPE_CHECKING:
    from hasat.sources.tkgm.registry.wire import ParcelKey


def buildings(
    ctx: typer.Context,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="mahalleId/adaNo/parselNo, such as 1162/2705/15.")
    ],
    json: output.JsonFlag = False,
) -> None:
    """Fetch the blocks and building units of a parcel from TKGM, and store them.

    It takes a request, and one more for each block (tkgm.registry.url). The job `tkgm_buildings`
    does the same for all condominiums in an area. Exits 1 where there are none.

    Example: `hasat tkgm buildings 1162/2705/15`
    """
    from hasat.sources.tkgm.buildings.job import parse_key

    settings = context.get_settings(ctx)
    number = parse_key(key)

    async def fetch() -> dict[str, Any] | None:
        from hasat.sources.tkgm.buildings.fetch import fetch_buildings, publish_buildings
        from hasat.sources.tkgm.registry.client import open_direct

        async with (
            open_migrated_store(settings) as store,
            open_direct(store, settings) as direct,
        ):
            record = await fetch_buildings(store, direct, number, run=None)
            await publish_buildings(store, {number: record}, run=None)
            return record

    record = context.run_async(fetch())
    if record is None:
        raise NotFoundError(
            msg("The registry has no building units for {key}.", key=key),
            remedy=msg("Only condominiums (Kat Mülkiyeti, Kat İrtifakı) have them."),
        )
    output.emit(record, json=json, human=lambda: _render(number, record))


def _render(number: "ParcelKey", record: dict[str, Any]) -> RenderableType:
    mahalle, ada, parsel = number
    title = msg(
        "{parcel}: {units:,} units in {blocks:,} blocks",
        parcel=f"{mahalle}/{ada}/{parsel}",
        units=record["unitCount"],
        blocks=len(record["blocks"]),
    )
    table = output.table("block", "no", "floor", "entrance", "use")
    for block in record["blocks"]:
        for unit in block["units"]:
            texts = (block["blok"], *(unit[name] for name in ("no", "kat", "giris", "nitelik")))
            table.add_row(*(str(text or "") for text in texts))
    return Group(output.text([title]), table)
