"""A simulated publisher of taxpayer lists: its current taxpayers, and the ZIPs that it writes.

A taxpayer is only a number in memory; lists are written to disk in blocks of 500 records.
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

# Changes in six hours among a million and a half taxpayers.
CHURN_AMONG = 1_500_000
ADDED, MODIFIED, REMOVED = 167, 222, 48

# Shorter lists are written sooner than a process starts.
_MIN_USERS_FOR_PROCESSES = 60_000
# Longer lists may need 64-bit sizes, which the publisher's ZIPs do not have.
_MAX_USERS_32_BIT = 1_500_000


class ListVariant(NamedTuple):
    """The order of a written list, by the seed `shuffle`, and a slice of its records."""

    shuffle: int | None = None
    records: slice = slice(None)


WHOLE_LIST = ListVariant()


class Publisher:
    """The taxpayers on the lists; `step` simulates six hours, `write` publishes."""

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
        """Add, change and remove exact numbers of taxpayers."""
        touched = self._dice.sample(range(len(self.numbers)), modified + removed)
        for place in touched[:modified]:
            number = self.numbers[place]
            self.versions[number] = self.versions.get(number, 0) + 1
        for place in sorted(touched[modified:], reverse=True):
            # Fill the gap with the last one, because the lists are not sorted.
            last = self.numbers.pop()
            if place < len(self.numbers):
                self.numbers[place] = last
        self.numbers.extend(range(self._next, self._next + added))
        self._next += added

    def taxpayers(self, shuffle: int | None = None) -> Iterator[Taxpayer]:
        """Yield all taxpayers, in the order of publication or shuffled by a seed."""
        numbers = self.numbers
        if shuffle is not None:
            numbers = array("L", self.numbers)
            random.Random(shuffle).shuffle(numbers)  # noqa: S311 - a simulation
        for number in numbers:
            yield taxpayer(self.seed, number, self.versions.get(number, 0), self.layout)

    def xml(self, box: Box, variant: ListVariant = WHOLE_LIST) -> Iterator[bytes]:
        """Yield one list in blocks of 500 records."""
        render = _indented if self.layout.indent else _compact
        line = "\n" if self.layout.indent else ""
        yield f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<UserList>{line}'.encode()
        listed = (
            (one, documents)
            for one in self.taxpayers(variant.shuffle)
            if (documents := one.pk if box == "PK" else one.gb)
        )
        records = islice(listed, variant.records.start, variant.records.stop, variant.records.step)
        while some := list(islice(records, 500)):
            yield "".join(render(one, documents) for one, documents in some).encode()
        yield b"</UserList>\n"

    def write_list(self, path: Path, box: Box, variant: ListVariant = WHOLE_LIST) -> None:
        """Write one list as a ZIP with data descriptors, as the publisher does."""
        with (
            path.open("wb") as file,
            zipfile.ZipFile(cast(BinaryIO, _Unseekable(file)), "w") as archive,
        ):
            entry = zipfile.ZipInfo(f"newUser{box.title()}List.xml", (2026, 2, 19, 3, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            huge = len(self.numbers) > _MAX_USERS_32_BIT
            with archive.open(entry, "w", force_zip64=huge) as out:
                for block in self.xml(box, variant):
                    out.write(block)

    def write(self, folder: Path, variant: ListVariant = WHOLE_LIST) -> dict[Box, Path]:
        """Write both lists, large ones in two processes."""
        paths = {box: folder / f"newUser{box.title()}Listxml.zip" for box in BOXES}
        if len(self.numbers) < _MIN_USERS_FOR_PROCESSES:
            for box, path in paths.items():
                self.write_list(path, box, variant)
            return paths
        with ProcessPoolExecutor(len(BOXES), mp_context=get_context("spawn")) as pool:
            writing = [
                pool.submit(self.write_list, path, box, variant) for box, path in paths.items()
            ]
            for task in writing:
                task.result()
        return paths


class _Unseekable:
    """A write-only file, for which zipfile writes data descriptors."""

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
