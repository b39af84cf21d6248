"""Taxpayer lists generated from a seed, the expected mirror, and taxpayers loaded directly."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from hasat.feed.encoding import canonical, pack
from hasat.feed.reconcile import Reconcile
from hasat.settings import Settings
from hasat.sources.gib.datasets import DATASETS, EDESPATCH, EINVOICE
from hasat.sources.gib.settings import GibSettings
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
        content = ""
        for kind, aliases in documents:
            entries = list(aliases.items())
            dice.shuffle(entries)
            content += f'<Document type="{kind}">'
            for alias, created in entries:
                content += f"<Alias><Name>{alias}</Name><CreationTime>{created}</CreationTime>"
                content += "</Alias>\n"
            if not entries or dice.random() < 0.2:
                content += (
                    "<Alias><Name>urn:mail:eski</Name><CreationTime>2015-01-01T00:00:00"
                    "</CreationTime><DeletionTime>2016-01-01T00:00:00</DeletionTime></Alias>"
                )
            content += "</Document>"
        return (
            f"<User><Identifier>{identifier}</Identifier><Title>{escape(self.title)}</Title>"
            f"<Type>OZEL</Type><FirstCreationTime>{self.created}</FirstCreationTime>"
            f"<AccountType>GIBPORTAL</AccountType><Documents>{content}</Documents></User>"
        )


Lists = dict[str, dict[str, User]]


def expected_bodies(lists: Lists, dataset: str) -> dict[str, dict[str, Any]]:
    """Return the expected bodies of a dataset, by a second, simple implementation."""
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


class Taxpayers:
    """Taxpayers that are added, changed and removed at random, from one seed."""

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
            # A document type that Hasat does not know, and that half of the list has.
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
        """Write both lists, in random order and with random indentation."""
        paths = {}
        for box, users in self.lists.items():
            entries = list(users.items())
            self.dice.shuffle(entries)
            gap = self.dice.choice(["", "\n", "\n    "])
            xml = "".join(gap + user.xml(identifier, self.dice) for identifier, user in entries)
            paths[box] = self.folder / f"{box}-{next(self._files)}.xml"
            paths[box].write_text(tamper(box, f"<UserList>{xml}\n</UserList>"), "utf-8")
        return paths


async def mirrored_bodies(store: Store, dataset: str) -> dict[str, Any]:
    async with store.connection() as conn:
        rows = await (await conn.execute(f"SELECT key, body FROM core.{dataset}")).fetchall()
    return dict(rows)


class SyncRunner:
    """Runs syncs with consecutive run numbers."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.settings = settings
        self._runs = count(1)

    async def __call__(self, lists: dict[str, Path], **options: Any) -> SyncReport:
        return await synchronise(self.store, self.settings, lists, run=next(self._runs), **options)

    async def check_mirror(self, lists: Lists) -> None:
        """Assert that both datasets are what the lists contain."""
        for dataset in KINDS:
            assert await mirrored_bodies(self.store, dataset) == expected_bodies(lists, dataset)


def lenient(settings: Settings) -> Settings:
    """Return settings with which the guard lets unreadable Users pass."""
    return settings.model_copy(
        update={
            "gib": settings.section(GibSettings).model_copy(update={"max_rejects_percent": 50.0})
        }
    )


def taxpayer_body(identifier: str, title: str | None, *aliases: str) -> dict[str, Any]:
    """Return a published body."""
    return {
        "identifier": identifier,
        "title": title,
        "accountType": "GIBPORTAL",
        "type": "OZEL",
        "firstCreationTime": "2019-05-01T10:00:00",
        "aliases": [
            {"alias": alias, "type": "PK", "creationTime": "2019-05-01T10:00:00"}
            for alias in aliases
        ],
    }


def by_identifier(*bodies: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {body["identifier"]: body for body in bodies}


async def load_mirror(store: Store, state: dict[str, dict[str, Any]]) -> None:
    """Load the mirror as the first sync does: everything at once, without triggers."""
    rows = pack((key, canonical(body)) for key, body in state.items())
    async with Reconcile.begin(store, DATASETS) as work:
        async with work.loading(EINVOICE) as write:
            await write(rows)
        async with work.loading(EDESPATCH):
            pass
        await work.write(run=None, retention_days=30)
