"""A publisher of taxpayer lists: who is listed now, and the ZIPs that say so.

Nobody is kept in memory but as a number; a list is written to disk a few hundred records at a time.
"""

import random
import zipfile
from array import array
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, cast

from hasat.sources.gib.simulator.taxpayers import LAYOUTS, Alias, Layout, Taxpayer, taxpayer

Box = Literal["PK", "GB"]
BOXES: tuple[Box, Box] = ("PK", "GB")

# What six hours change among a million and a half taxpayers.
CHURN_AMONG = 1_500_000
ADDED, MODIFIED, REMOVED = 167, 222, 48

# Below this a list is written before two more processes would have started.
_WORTH_PROCESSES = 60_000
# Beyond so many, an entry may need the 64-bit sizes that the publisher's ZIPs do without.
_MAY_BE_HUGE = 1_500_000


class Wish(NamedTuple):
    """How a list is to be written: in which order, and which of its records (all, if not said)."""

    shuffle: int | None = None
    records: slice = slice(None)


AS_USUAL = Wish()


class Publisher:
    """Who is on the lists now; `step` lets six hours pass, `write` publishes."""

    def __init__(
        self, taxpayers: int, seed: int = 1, layout: Layout = LAYOUTS["published"]
    ) -> None:
        self.seed = seed
        self.layout = layout
        self.numbers = array("L", range(taxpayers))
        self.versions: dict[int, int] = {}
        self._next = taxpayers
        self._dice = random.Random(seed)  # noqa: S311 - a simulation

    def step(self, churn: float = 1.0) -> dict[str, int]:
        """Add, change and remove taxpayers, `churn` times the usual share of each."""
        factor = churn * len(self.numbers) / CHURN_AMONG
        counts = {
            name: max(1, round(number * factor))
            for name, number in (("added", ADDED), ("modified", MODIFIED), ("removed", REMOVED))
        }
        self.change(**counts)
        return counts

    def change(self, added: int = 0, modified: int = 0, removed: int = 0) -> None:
        """Add, change and remove exactly so many."""
        touched = self._dice.sample(range(len(self.numbers)), modified + removed)
        for place in touched[:modified]:
            number = self.numbers[place]
            self.versions[number] = self.versions.get(number, 0) + 1
        for place in sorted(touched[modified:], reverse=True):
            # The last one takes the place: the lists are in no order anyway.
            last = self.numbers.pop()
            if place < len(self.numbers):
                self.numbers[place] = last
        self.numbers.extend(range(self._next, self._next + added))
        self._next += added

    def taxpayers(self, shuffle: int | None = None) -> Iterator[Taxpayer]:
        """Everybody now listed, in the order of publication or in one of the seed `shuffle`."""
        numbers = self.numbers
        if shuffle is not None:
            numbers = array("L", self.numbers)
            random.Random(shuffle).shuffle(numbers)  # noqa: S311 - a simulation
        for number in numbers:
            yield taxpayer(self.seed, number, self.versions.get(number, 0), self.layout)

    def xml(self, box: Box, wish: Wish = AS_USUAL) -> Iterator[bytes]:
        """One list, a few hundred records at a time."""
        render = _indented if self.layout.indent else _compact
        line = "\n" if self.layout.indent else ""
        yield f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<UserList>{line}'.encode()
        listed = (
            (one, documents)
            for one in self.taxpayers(wish.shuffle)
            if (documents := one.pk if box == "PK" else one.gb)
        )
        records = islice(listed, wish.records.start, wish.records.stop, wish.records.step)
        while some := list(islice(records, 500)):
            yield "".join(render(one, documents) for one, documents in some).encode()
        yield b"</UserList>\n"

    def write_list(self, path: Path, box: Box, wish: Wish = AS_USUAL) -> None:
        """One list as a ZIP whose sizes stand after the data, as the publisher writes them."""
        with (
            path.open("wb") as file,
            zipfile.ZipFile(cast(BinaryIO, _Unseekable(file)), "w") as archive,
        ):
            entry = zipfile.ZipInfo(f"newUser{box.title()}List.xml", (2026, 2, 19, 3, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            huge = len(self.numbers) > _MAY_BE_HUGE
            with archive.open(entry, "w", force_zip64=huge) as out:
                for block in self.xml(box, wish):
                    out.write(block)

    def write(self, folder: Path, wish: Wish = AS_USUAL) -> dict[Box, Path]:
        """Both lists; large ones each by a process of its own."""
        paths = {box: folder / f"newUser{box.title()}Listxml.zip" for box in BOXES}
        if len(self.numbers) < _WORTH_PROCESSES:
            for box, path in paths.items():
                self.write_list(path, box, wish)
            return paths
        with ProcessPoolExecutor(len(BOXES), mp_context=get_context("spawn")) as pool:
            writing = [pool.submit(self.write_list, path, box, wish) for box, path in paths.items()]
            for task in writing:
                task.result()
        return paths


class _Unseekable:
    """A file that can only be written on, which makes zipfile write data descriptors."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def _indented(one: Taxpayer, documents: dict[str, list[Alias]]) -> str:
    account = f"        <AccountType>{one.account_type}</AccountType>\n" if one.account_type else ""
    return (
        f"    <User>\n        <Identifier>{one.identifier}</Identifier>\n"
        f"        <Title>{one.title}</Title>\n        <Type>{one.type}</Type>\n"
        f"        <FirstCreationTime>{one.created}</FirstCreationTime>\n{account}"
        "        <Documents>\n"
        + "".join(
            f'            <Document type="{kind}">\n'
            + "".join(
                f"                <Alias>\n                    <Name>{alias.name}</Name>\n"
                f"                    <CreationTime>{alias.created}</CreationTime>\n"
                + (
                    f"                    <DeletionTime>{alias.deleted}</DeletionTime>\n"
                    if alias.deleted
                    else ""
                )
                + "                </Alias>\n"
                for alias in aliases
            )
            + "            </Document>\n"
            for kind, aliases in documents.items()
        )
        + "        </Documents>\n    </User>\n"
    )


def _compact(one: Taxpayer, documents: dict[str, list[Alias]]) -> str:
    return "".join(map(str.strip, _indented(one, documents).splitlines()))
