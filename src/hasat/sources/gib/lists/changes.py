"""Comparison of a list with the last run: new records, those that are gone, and unreadable ones.

This module runs in worker processes, so it imports nothing that they do not need.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from hasat.sources.gib.lists.fingerprints import SIZE, KnownFingerprints
from hasat.sources.gib.lists.lines import StoredLine, identifier_of, token_of
from hasat.sources.gib.lists.list_file import open_list
from hasat.sources.gib.lists.reader import Reader
from hasat.sources.gib.lists.records import QuarantinedUser
from hasat.sources.gib.lists.tally import Tally

# Records that are gone need only their fingerprint, so more of them fit into memory.
_GONE_PER_NEW = 6


@dataclass(frozen=True)
class Unreadable:
    """The taxpayers whose removal a list cannot justify, because a record is unreadable."""

    identifiers: frozenset[str] = frozenset()
    unidentified: bool = False
    """Whether an unreadable record may belong to any taxpayer."""

    @classmethod
    def of(cls, quarantined: list[QuarantinedUser]) -> "Unreadable":
        named = frozenset(one.identifier for one in quarantined if one.identifier is not None)
        return cls(named, any(one.identifier is None for one in quarantined))

    def __bool__(self) -> bool:
        return bool(self.identifiers) or self.unidentified

    def lines_after(
        self, identifier: str, old: list[StoredLine], gone: set[bytes], new: list[StoredLine]
    ) -> list[StoredLine]:
        """Return the lines of a taxpayer in a list after a run.

        A taxpayer with an unreadable record keeps the lines that are gone, for one of them may be
        it. If an unreadable record has no identifier, no taxpayer is removed from the list.
        """
        if identifier in self.identifiers:
            return [*old, *new]
        if self.unidentified and not new:
            return old
        return [*(line for line in old if line[0] not in gone), *new]


@dataclass
class ListChanges:
    """The changes of a list since the last run; `too_many` if they are too many to hold."""

    tally: Tally
    new: dict[str, list[StoredLine]] = field(default_factory=dict)
    gone: set[bytes] = field(default_factory=set)
    quarantined: list[QuarantinedUser] = field(default_factory=list)
    too_many: bool = False


def read_changes(
    path: Path,
    name: str,
    fingerprints: bytes,
    seed: int,
    agreed: frozenset[str],
    max_new: int,
) -> ListChanges:
    """Read a list and compare it with the last run; called in a worker process."""
    known = KnownFingerprints(fingerprints)
    reader = Reader(open_list(path, name), seed, known, agreed=agreed)
    new: defaultdict[str, list[StoredLine]] = defaultdict(list)
    changes = ListChanges(reader.tally)
    count = 0
    for batch in reader:
        changes.quarantined += batch.quarantined
        for found in batch.new:
            new[identifier_of(token_of(found[1]))].append(found)
        count += len(batch.new) + len(batch.doubtful)
        if count > max_new:
            return ListChanges(reader.tally, too_many=True)
    changes.new = dict(new)
    gone = known.gone()
    if len(gone) > _GONE_PER_NEW * max_new * SIZE:
        return ListChanges(reader.tally, too_many=True)
    changes.gone = {gone[at : at + SIZE] for at in range(0, len(gone), SIZE)}
    return changes
