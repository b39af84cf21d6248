"""A town of taxpayers whose lists change from a seed, and what the mirror must then hold."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from hasat.settings import Settings
from hasat.sources.gib.sync.sync import synchronise
from hasat.sources.gib.sync.task import SyncReport
from hasat.store import MigrationSet, Store

MIGRATIONS = [MigrationSet("gib", files("hasat.sources.gib") / "migrations")]
KINDS = {"einvoice": "Invoice", "edespatch": "DespatchAdvice"}


@dataclass
class User:
    """One User of one list: document type -> {alias: creation time}."""

    title: str
    created: str
    documents: dict[str, dict[str, str]] = field(default_factory=dict)

    def xml(self, identifier: str, dice: random.Random) -> str:
        documents = list(self.documents.items()) or [("Invoice", {})]
        dice.shuffle(documents)
        inside = ""
        for kind, aliases in documents:
            entries = list(aliases.items())
            dice.shuffle(entries)
            inside += f'<Document type="{kind}">'
            for alias, created in entries:
                inside += f"<Alias><Name>{alias}</Name><CreationTime>{created}</CreationTime>"
                inside += "</Alias>\n"
            if not entries or dice.random() < 0.2:
                inside += (
                    "<Alias><Name>urn:mail:eski</Name><CreationTime>2015-01-01T00:00:00"
                    "</CreationTime><DeletionTime>2016-01-01T00:00:00</DeletionTime></Alias>"
                )
            inside += "</Document>"
        return (
            f"<User><Identifier>{identifier}</Identifier><Title>{escape(self.title)}</Title>"
            f"<Type>OZEL</Type><FirstCreationTime>{self.created}</FirstCreationTime>"
            f"<AccountType>GIBPORTAL</AccountType><Documents>{inside}</Documents></User>"
        )


Lists = dict[str, dict[str, User]]


def simple_bodies(lists: Lists, dataset: str) -> dict[str, dict[str, Any]]:
    """What a dataset must hold, by the issue's words and nothing else."""
    found = {}
    for identifier in lists["PK"].keys() | lists["GB"].keys():
        users = {box: lists[box][identifier] for box in ("PK", "GB") if identifier in lists[box]}
        aliases = [
            {"alias": alias, "type": box, "creationTime": created}
            for box, user in users.items()
            for alias, created in user.documents.get(KINDS[dataset], {}).items()
        ]
        if aliases:
            lead = users.get("PK") or users["GB"]
            found[identifier] = {
                "identifier": identifier,
                "title": lead.title,
                "accountType": "GIBPORTAL",
                "type": "OZEL",
                "firstCreationTime": min(user.created for user in users.values()),
                "aliases": sorted(aliases, key=lambda alias: (alias["alias"], alias["type"])),
            }
    return found


class Town:
    """Taxpayers that come, change and go; everything from one seed."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.dice = random.Random(seed)
        self.lists: Lists = {"PK": {}, "GB": {}}
        self.folder = folder
        self._numbers = count(1)
        self._files = count(1)

    def moment(self) -> str:
        return (datetime(2018, 1, 1) + timedelta(minutes=self.dice.randrange(10**6))).isoformat()  # noqa: DTZ001

    def user(self, number: int) -> User:
        kinds = self.dice.choice([["Invoice"], ["Invoice", "DespatchAdvice"], ["DespatchAdvice"]])
        if number % 2:
            # A type of document that Hasat does not know, and half the list does.
            kinds = [*kinds, "Receipt"]
        return User(
            self.dice.choice(["IŞIK & OĞLU", "ÇAĞ <LTD>", "İnci", "a\tb"]) + f" {number}",
            self.moment(),
            {kind: {f"urn:mail:box{number}@x.com.tr": self.moment()} for kind in kinds},
        )

    def grow(self, number: int) -> None:
        for _ in range(number):
            this = next(self._numbers)
            identifier = f"{this:011d}" if this % 10 == 0 else f"{this:010d}"
            for box in self.dice.choice([["PK"], ["PK", "GB"], ["GB"]]):
                self.lists[box][identifier] = self.user(this)

    def churn(self) -> None:
        for box in ("PK", "GB"):
            for identifier in self.dice.sample(sorted(self.lists[box]), 6):
                what = self.dice.randrange(4)
                user = self.lists[box][identifier]
                if what == 0:
                    del self.lists[box][identifier]
                elif what == 1:
                    user.title = user.title.swapcase()
                elif what == 2:
                    kind = self.dice.choice([*KINDS.values(), "Receipt"])
                    user.documents.setdefault(kind, {})[f"urn:{self.dice.random()}"] = self.moment()
                else:
                    user.documents.pop(self.dice.choice(list(KINDS.values())), None)
        self.grow(self.dice.randrange(4))

    def publish(self, tamper: Callable[[str, str], str] = lambda box, xml: xml) -> dict[str, Path]:
        """Write both lists, in any order and with any indentation."""
        paths = {}
        for box, users in self.lists.items():
            entries = list(users.items())
            self.dice.shuffle(entries)
            gap = self.dice.choice(["", "\n", "\n    "])
            xml = "".join(gap + user.xml(identifier, self.dice) for identifier, user in entries)
            paths[box] = self.folder / f"{box}-{next(self._files)}.xml"
            paths[box].write_text(tamper(box, f"<UserList>{xml}\n</UserList>"), "utf-8")
        return paths


async def bodies(store: Store, dataset: str) -> dict[str, Any]:
    async with store.connection() as conn:
        rows = await (await conn.execute(f"SELECT key, body FROM core.{dataset}")).fetchall()
    return dict(rows)


class Sync:
    """Runs with numbers of their own; what most tests repeat."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self._runs = count(1)

    async def __call__(self, lists: dict[str, Path], **options: Any) -> SyncReport:
        return await synchronise(self.store, self.settings, lists, run=next(self._runs), **options)

    async def matches(self, lists: Lists) -> bool:
        for dataset in KINDS:
            assert await bodies(self.store, dataset) == simple_bodies(lists, dataset)
        return True


def lenient(settings: Settings) -> Settings:
    """One unreadable User of a hundred would be held by the guard."""
    return settings.model_copy(
        update={"gib": settings.gib.model_copy(update={"max_rejects_percent": 50.0})}
    )
