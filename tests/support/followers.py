"""Two followers as an integrator would write them, one per protocol, by the rules and no more.

Also a program: ``followers.py time|cursor ADDRESS DATASET FILE`` polls at random until killed.
"""

import gzip
import json
import random
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import httpx2

from support.feed_toys import state_digest


class Follower(ABC):
    """Records, the place in the feed and the numbers seen, in one file that is replaced whole."""

    page_size = 7

    def __init__(self, address: str, dataset: str, file: Path) -> None:
        self.client = httpx2.Client(base_url=f"{address}/api/v1/{dataset}/", timeout=30)
        self.file = file
        self.records: dict[str, Any] = {}
        self.place: str | None = None
        self.seen: list[int] = []
        """The number of the archive that it began with, then of every change applied."""
        if file.exists():
            kept = json.loads(file.read_text())
            self.records, self.place, self.seen = kept["records"], kept["place"], kept["seen"]

    def begin(self) -> None:
        """K1: take the newest archive."""
        answer = self.client.get("archives/latest", params={"format": "ndjson"})
        answer.raise_for_status()
        first, *lines = gzip.decompress(answer.content).splitlines()
        read = [json.loads(line) for line in lines]
        self.records = {one["key"]: one["body"] for one in read}
        self.seen = [json.loads(first)["head"]]
        self.place = self._place_of(answer)
        self.keep()

    def poll(self) -> int:
        """Everything that is new; how much that was. K4: begin again when the feed says so."""
        if self.place is None:
            self.begin()
        found = 0
        while True:
            query = self._query()
            answer = self.client.get("changes", params={**query, "include": "record"})
            if answer.status_code == 410:
                self.begin()
                return found
            answer.raise_for_status()
            page = answer.json()
            for change in page["changes"]:
                self._apply(change)
            found += len(page["changes"])
            if self._done(page):
                self.keep()
                return found

    def keep(self) -> None:
        draft = self.file.with_suffix(".draft")
        kept = {"records": self.records, "place": self.place, "seen": self.seen}
        draft.write_text(json.dumps(kept))
        draft.replace(self.file)

    @property
    def digest(self) -> str:
        return state_digest(self.records).hex()

    @property
    def complete(self) -> bool:
        """No number is missing, none came twice."""
        return self.seen == list(range(self.seen[0], self.seen[0] + len(self.seen)))

    def _apply(self, change: dict[str, Any]) -> None:
        self.seen.append(change["seq"])
        if change["changeType"] == "removed":
            self.records.pop(change["key"], None)
        else:
            self.records[change["key"]] = change["body"]

    @abstractmethod
    def _place_of(self, archive: httpx2.Response) -> str: ...

    @abstractmethod
    def _query(self) -> dict[str, Any]: ...

    @abstractmethod
    def _done(self, page: dict[str, Any]) -> bool: ...


class CursorFollower(Follower):
    """Goes on from the `next` of every page."""

    def _place_of(self, archive: httpx2.Response) -> str:
        return archive.headers["X-Hasat-Cursor"]

    def _query(self) -> dict[str, Any]:
        return {"after": self.place, "limit": self.page_size}

    def _done(self, page: dict[str, Any]) -> bool:
        self.place = page["next"]
        return bool(page["upToDate"])


class TimeFollower(Follower):
    """The original's protocol: all pages of a span, then `until` is the next `since`."""

    _page = 1

    def _place_of(self, archive: httpx2.Response) -> str:
        return archive.headers["X-Last-Sync-At"]

    def _query(self) -> dict[str, Any]:
        return {"since": self.place, "page": self._page, "pageSize": self.page_size}

    def _done(self, page: dict[str, Any]) -> bool:
        if self._page < page["totalPages"]:
            self._page += 1
            return False
        self._page = 1
        self.place = page["until"]
        return True


FOLLOWERS: dict[str, type[Follower]] = {"cursor": CursorFollower, "time": TimeFollower}


def main(kind: str, address: str, dataset: str, file: str) -> None:
    while True:
        try:
            FOLLOWERS[kind](address, dataset, Path(file)).poll()
        except httpx2.HTTPError as error:
            print(f"{kind}: {error!r}", flush=True)
        time.sleep(random.random() / 5)


if __name__ == "__main__":
    main(*sys.argv[1:])
