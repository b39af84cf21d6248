"""Taxpayers to archive, and archives read back by other means than those that wrote them."""

import gzip
import json
import random
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet as pq

from hasat.feed.archive.manifest import Format
from hasat.feed.archive.snapshot import MirrorDamagedError, write_snapshot
from hasat.feed.dataset import Dataset
from hasat.feed.reconcile import Version
from hasat.settings import Settings
from hasat.sources.gib.datasets import EINVOICE
from hasat.store import MigrationSet, Store
from support.feed_toys import State, run

GIB = MigrationSet("gib", files("hasat.sources.gib") / "migrations")

TITLES = ("IŞIK & OĞLU", "ÇAĞ <LTD>", 'İ"nci"', "a\tb", "C:\\x", "son\r\nra", "y­umuşak", "😀]]>")


def taxpayers(count: int, dice: random.Random) -> State:
    """Taxpayers with all that is odd about some of them."""
    return {
        (key := f"{number * 7:010d}"): {
            "identifier": key,
            "title": f"{dice.choice(TITLES)} {number}" if dice.random() < 0.95 else None,
            "accountType": dice.choice(["GIBPORTAL", "", None]),
            "type": dice.choice(["OZEL", "KAMU"]),
            "firstCreationTime": "2019-07-22T13:58:28",
            "aliases": [
                {
                    "alias": f"urn:mail:box{one}@{number}.com.tr",
                    "type": dice.choice(["PK", "GB"]),
                    "creationTime": dice.choice(["2020-01-01T00:00:00", None]),
                }
                for one in range(dice.choice([1, 1, 1, 2, 5]))
            ],
        }
        for number in range(count)
    }


async def sync(store: Store, state: State, dataset: Dataset = EINVOICE) -> Version:
    """A run that saw these taxpayers."""
    return await run(store, state, dataset=dataset)


def read_ndjson(data: bytes) -> tuple[dict[str, Any], State]:
    header, *lines = map(json.loads, gzip.decompress(data).decode().splitlines())
    keys = [line["key"] for line in lines]
    assert keys == sorted(set(keys)), "not in the order of keys"
    return header, {line["key"]: line["body"] for line in lines}


def read_parquet(path: Path) -> tuple[dict[str, Any], State]:
    table = pq.read_table(path)
    facts = {
        k.decode().removeprefix("hasat."): v.decode() for k, v in table.schema.metadata.items()
    }
    rows = table.to_pylist()
    return facts, {row["key"]: json.loads(row["body"]) for row in rows}


def read_xml(data: bytes) -> tuple[dict[str, str], State]:
    root = ElementTree.fromstring(gzip.decompress(data))  # noqa: S314 - our own file
    assert root.tag == "GibUserList"
    return root.attrib, {body["identifier"]: body for body in map(_taxpayer, root)}


def _taxpayer(user: ElementTree.Element) -> dict[str, Any]:
    aliases = user.find("Aliases")
    assert aliases is not None
    return {
        "identifier": _text(user, "Identifier"),
        "title": _text(user, "Title"),
        "accountType": _text(user, "AccountType"),
        "type": _text(user, "Type"),
        "firstCreationTime": _text(user, "FirstCreationTime"),
        "aliases": [
            {
                "alias": _text(alias, "Name"),
                "type": _text(alias, "Type"),
                "creationTime": _text(alias, "CreationTime"),
            }
            for alias in aliases
        ],
    }


def _text(parent: ElementTree.Element, name: str) -> str | None:
    found = parent.find(name)
    return None if found is None else found.text or ""


def files_in(settings: Settings) -> set[str]:
    """Every file in the folder of archives, drafts too."""
    folder = settings.home / settings.archives.base_path
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return {str(path.relative_to(folder)) for path in found}


def peak_of_writing(url: str, folder: Path) -> int:
    """Megabytes that this process needed at the most after writing an archive."""
    paths: dict[Format, Path] = {
        "xml": folder / "x",
        "ndjson": folder / "n",
        "parquet": folder / "p",
    }
    # Records inserted here do not fit the head; the writer reports that after the last one.
    with suppress(MirrorDamagedError):
        write_snapshot(url, EINVOICE, paths)
    # Not ru_maxrss, which a process takes over from the one that started it.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024
