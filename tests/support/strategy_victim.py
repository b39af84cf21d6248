"""A process that runs a strategy on the toys, to be killed: database, home, form and address."""

import asyncio
import json
import sys
from pathlib import Path

from hasat.budget import Lane, Upstream
from hasat.settings import load_settings
from hasat.store import open_store
from hasat.strategies import PerKey, WholeList, record_of
from hasat.testing.jobs import perform
from support.feed_toys import TOYS

UPSTREAM = Upstream(
    "toy_shop", day_limit=500, minute_limit=60_000, lanes=(Lane("daily"),), opening_seconds=0
)


def strategy_of(form: str, address: str) -> WholeList | PerKey:
    """Return the strategy that the process runs: `list` or `keys`."""
    if form == "keys":
        return PerKey(address, "/toys/{key}", lambda _, body: json.loads(body), upstream=UPSTREAM)
    return WholeList(
        f"{address}/list",
        lambda file: json.loads(file.read_bytes()),
        lambda one: record_of(one["key"], one),
        upstream=UPSTREAM,
        pauses=(0.0, 0.0),
    )


async def main(database_url: str, home: str, form: str, address: str) -> None:
    settings = load_settings(environ={"HASAT_HOME": home, "HASAT_DATABASE_URL": database_url})
    async with open_store(settings) as store:
        await perform(strategy_of(form, address).job(TOYS), store, settings)


if __name__ == "__main__":
    asyncio.run(main(str(sys.argv[1]), str(Path(sys.argv[2])), sys.argv[3], sys.argv[4]))
