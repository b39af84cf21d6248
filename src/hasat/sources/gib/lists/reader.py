"""A list's byte stream, split into records without parsing it, and why that is safe.

The stream is cut after every ``</User>``. If each piece is white space and one well-formed User,
then by XML's grammar the list is well-formed and has exactly these Users, whatever the pieces
contain: no second reading of the same bytes exists. So every piece is either read in full
(`read_line`, or expat inside of a root), or has the same bytes as one that was (its fingerprint is
known; see `fingerprints.py`). Any other piece is odd, and then one of three things holds:

- expat refuses it where it stands: the list is damaged there. What is legible is read, the rest
  set aside, and the list goes on after it.
- expat accepts it and it ends there: it holds something beside one User (`<User/>`, a comment,
  an unknown element), which is read.
- it does not end there: a comment, a CDATA section or another element reaches beyond the cut.
  Then expat reads the whole list; if it is well-formed, expat's Users are the list's, else this
  piece is damaged.

Records that can be read but raise doubts (see `users.py`) wait in a file until the list has ended:
only then is it known which doubts the whole list shares.
"""

import pickle
import re
import statistics
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from tempfile import SpooledTemporaryFile
from typing import IO, NamedTuple

import numpy as np

from hasat.messages import msg
from hasat.sources.gib.lists.errors import (
    DamagedListError,
    EmptyListError,
    ListEncodingError,
    TruncatedListError,
)
from hasat.sources.gib.lists.fingerprints import SIZE, Known, fingerprints_of
from hasat.sources.gib.lists.lines import line_of, read_line
from hasat.sources.gib.lists.list_file import ListFile, read_prolog
from hasat.sources.gib.lists.markup import (
    USER,
    Element,
    MalformedError,
    OpenEndedError,
    UnreadableError,
    is_well_formed,
    legible_identifier,
    outermost_elements,
    whole_elements,
)
from hasat.sources.gib.lists.records import SetAside
from hasat.sources.gib.lists.users import agreed_doubts, read_user, remains_of_user

END = b"</User>"
_ROOT_END = b"</UserList"
_USER_START = re.compile(rb"<User(?=[\s/>])").finditer
# Beyond so many, a list of which more is set aside than read is not worth going on with.
_MANY = 10_000
# The lengths of all records in a list's first bytes tell what is usual, later on those of some.
_ALL_LENGTHS, _SOME = 1024**2, 16
_IN_MEMORY = 4 * 1024**2
_REASONS = 5
_NUMBER_OUTSIDE = "a number that may be an identifier stands between Users"
_NUMBER = re.compile(rb"[0-9]{10}").search


class Doubtful(NamedTuple):
    """A record that can be read, and why that may not be all it was meant to say.

    Without a line, it is no User but may be what is left of one.
    """

    fingerprint: bytes
    line: bytes | None
    doubts: tuple[str, ...]
    set_aside: SetAside


@dataclass
class Batch:
    """Some of a list: how many Users were seen before, the lines of new ones, those set aside."""

    seen: int = 0
    new: list[tuple[bytes, bytes]] = field(default_factory=list)
    set_aside: list[SetAside] = field(default_factory=list)
    doubtful: list[Doubtful] = field(default_factory=list)
    undecodable: int = 0
    strange: Counter[str] = field(default_factory=Counter)

    @property
    def users(self) -> int:
        """All readable ones."""
        return self.seen + len(self.new)


@dataclass
class Tally:
    """What a whole list had; complete when the reading has ended.

    `strange` counts what stands between Users and is none; `undecodable` those Users among the
    ones set aside that are not UTF-8. `doubtful` are the records not yet decided on, `doubts` why,
    and `agreed` the doubts that are no longer any. `lengths` are those of all or some records.
    """

    users: int = 0
    set_aside: int = 0
    undecodable: int = 0
    bytes: int = 0
    strange: Counter[str] = field(default_factory=Counter)
    doubtful: int = 0
    doubts: Counter[str] = field(default_factory=Counter)
    agreed: frozenset[str] = frozenset()
    lengths: "array[int]" = field(default_factory=lambda: array("L"), repr=False)

    @property
    def usual_length(self) -> int:
        """The median length of a record: no single one moves it, however long."""
        return round(statistics.median(self.lengths)) if self.lengths else 0

    def count(self, batch: Batch) -> None:
        self.users += batch.users
        self.set_aside += len(batch.set_aside)
        self.undecodable += batch.undecodable
        self.strange.update(batch.strange)
        self.doubtful += len(batch.doubtful)
        for one in batch.doubtful:
            self.doubts.update(one.doubts)

    def agree(self) -> None:
        """Accept the doubts that the whole list shares; called when all of it was read."""
        self.agreed |= agreed_doubts(self.doubts, self.users + self.doubtful)

    def and_also(self, other: "Tally") -> "Tally":
        """Both shares of one list; each has counted all its bytes."""
        return Tally(
            self.users + other.users,
            self.set_aside + other.set_aside,
            self.undecodable + other.undecodable,
            self.bytes,
            self.strange + other.strange,
            self.doubtful + other.doubtful,
            self.doubts + other.doubts,
            self.agreed,
            self.lengths + other.lengths,
        )


class ReachesOnError(Exception):
    """The list is well-formed, but not to be cut at this piece."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class Reader:
    """One pass over a list. Only when the iteration has ended without error may it be used.

    Several processes can share a list: the reader of `share` (1, 3) reads every third block, from
    the second on. Then the sum of all tallies has to `agree`, each one's `doubtful` file be settled
    with it (`settled`) and `conclude` be called; and ReachesOnError means that one reader must read
    it all.

    `agreed` are the doubts that earlier lists have shared.
    """

    def __init__(
        self,
        file: ListFile,
        seed: int,
        known: Known | None = None,
        share: tuple[int, int] = (0, 1),
        agreed: frozenset[str] = frozenset(),
        doubtful: IO[bytes] | None = None,
    ) -> None:
        self.file = file
        self.tally = Tally(agreed=agreed)
        self._doubtful = doubtful
        self._seed = seed
        self._known = known
        self._share, self._shares = share
        # None until some piece makes it necessary to know.
        self._damaged: bool | None = None

    def __iter__(self) -> Iterator[Batch]:
        tally = self.tally
        with ExitStack() as stack:
            doubtful = self._doubtful or stack.enter_context(SpooledTemporaryFile(_IN_MEMORY))
            for batch in self._batches():
                tally.count(batch)
                if tally.set_aside > max(_MANY, tally.users + tally.doubtful):
                    break
                for one in batch.doubtful:
                    pickle.dump(one, doubtful)
                yield batch
            else:
                if self._shares > 1:
                    return
                tally.agree()
                yield from settled(doubtful, tally)
        conclude(tally, self.file.name)

    def _blocks(self) -> Iterator[bytes]:
        self.tally.bytes = 0
        for block in self.file.blocks():
            self.tally.bytes += len(block)
            yield block

    def _batches(self) -> Iterator[Batch]:
        blocks = self._blocks()
        prolog = read_prolog(blocks, self.file.name)
        offset = prolog.offset
        carry = b""
        for number, block in enumerate(chain((prolog.rest,), blocks)):
            data = carry + block
            if number % self._shares != self._share:
                carry = data[data.rfind(END) + len(END) :] if END in data else data
            else:
                pieces = data.split(END)
                carry = pieces.pop()
                try:
                    batch = self._batch(pieces, offset)
                except ReachesOnError as odd:
                    if self._shares > 1:
                        raise
                    cut = pieces[: odd.index]
                    yield self._batch(cut, offset)
                    yield from self._carefully(offset + _length(cut))
                    return
                yield batch
            offset += len(data) - len(carry)
            if len(carry) > self.file.limits.max_record:
                raise DamagedListError(
                    msg(
                        "{file} has a User of more than {max_record} bytes, from byte {offset} on.",
                        file=self.file.name,
                        max_record=self.file.limits.max_record,
                        offset=offset,
                    )
                )
        if self._share == 0:
            yield self._tail(carry, offset)

    def _batch(self, pieces: list[bytes], offset: int) -> Batch:
        """What these pieces hold; the known ones among them are not read."""
        self.tally.lengths.extend(map(len, pieces[:: 1 if offset < _ALL_LENGTHS else _SOME]))
        fingerprints = fingerprints_of(pieces, self._seed)
        places = None if self._known is None else self._known.find(fingerprints)
        unseen = range(len(pieces)) if places is None else np.flatnonzero(places < 0).tolist()
        batch = Batch(len(pieces) - len(unseen))
        lines = map(read_line, [pieces[index] for index in unseen])
        for index, line in zip(unseen, lines, strict=True):
            fingerprint = fingerprints[index * SIZE : (index + 1) * SIZE]
            if line is not None:
                batch.new.append((fingerprint, line))
            else:
                self._odd(pieces, index, offset, fingerprint, batch)
        if self._known is not None and places is not None:
            self._known.mark(places)
        return batch

    def _odd(
        self, pieces: list[bytes], index: int, offset: int, fingerprint: bytes, batch: Batch
    ) -> None:
        """Add what this piece holds to the batch."""
        content = pieces[index] + END
        place = offset + _length(pieces[:index])
        try:
            elements, text = outermost_elements(content)
        except MalformedError:
            self._damaged = True
        except OpenEndedError:
            if self._damaged is None:
                self._damaged = not is_well_formed(self.file.blocks(), self.file.limits.max_record)
            if not self._damaged:
                raise ReachesOnError(index) from None
        else:
            if len(elements) == 1 and not text and elements[0].name == USER:
                self._user(elements[0], content, place, fingerprint, batch)
            else:
                self._each(elements, text, content, place, batch)
            return
        self._salvage(content, place, batch)

    def _user(
        self, user: Element, raw: bytes, offset: int, fingerprint: bytes, batch: Batch
    ) -> None:
        try:
            found = read_user(user)
        except UnreadableError as error:
            batch.set_aside.append(SetAside(raw, offset, error.reason, error.identifier))
            return
        line = line_of(found.part)
        if self.tally.agreed.issuperset(found.doubts):
            batch.new.append((fingerprint, line))
            return
        aside = SetAside(raw, offset, "; ".join(found.doubts[:_REASONS]), found.owner)
        batch.doubtful.append(Doubtful(fingerprint, line, found.doubts, aside))

    def _each(
        self, elements: list[Element], text: bool, content: bytes, offset: int, batch: Batch
    ) -> None:
        """Elements that do not stand alone between two cuts, one by one."""
        if text:
            batch.strange["text"] += 1
            if _NUMBER(_between(elements, content)):
                batch.set_aside.append(SetAside(content, offset, _NUMBER_OUTSIDE, None))
        for element in elements:
            raw = content[element.start : element.end]
            place = offset + element.start
            if element.name != USER and not element.holds_user:
                batch.strange[element.name] += 1
                if remains_of_user(element):
                    doubt = f"{element.name[:60]!r} stands where a User should"
                    aside = SetAside(raw, place, doubt, legible_identifier(raw))
                    batch.doubtful.append(Doubtful(b"", None, (doubt,), aside))
            elif element.name != USER:
                reason = f"Users stand inside of a {element.name}"
                batch.set_aside.append(SetAside(raw, place, reason, None))
            else:
                self._alone(element, raw, place, batch)

    def _alone(self, user: Element, raw: bytes, offset: int, batch: Batch) -> None:
        # The zero byte keeps an element's fingerprint apart from that of a piece without its end.
        fingerprint = fingerprints_of([b"\0" + raw], self._seed)
        if self._known is not None:
            places = self._known.find(fingerprint)
            if places[0] >= 0:
                self._known.mark(places)
                batch.seen += 1
                return
        self._user(user, raw, offset, fingerprint, batch)

    def _salvage(self, content: bytes, offset: int, batch: Batch) -> None:
        """Read what is legible of a damaged stretch and set the rest aside."""
        if _ROOT_END in content:
            raise DamagedListError(
                msg(
                    "{file} goes on with Users after its end, at byte {offset}.",
                    file=self.file.name,
                    offset=offset + content.index(_ROOT_END),
                )
            )
        cuts = [0, *(match.start() for match in _USER_START(content)), len(content)]
        for start, end in pairwise(cuts):
            if content[start:end].strip():
                self._stretch(content[start:end], offset + start, batch)

    def _stretch(self, content: bytes, offset: int, batch: Batch) -> None:
        try:
            elements, text = outermost_elements(content)
        except (MalformedError, OpenEndedError) as error:
            reason = str(error)
            try:
                content.decode()
            except UnicodeDecodeError as wrong:
                batch.undecodable += 1
                reason = f"its byte {wrong.start} is not UTF-8"
            found = SetAside(content, offset, reason, legible_identifier(content))
            batch.set_aside.append(found)
        else:
            self._each(elements, text, content, offset, batch)

    def _carefully(self, offset: int) -> Iterator[Batch]:
        """The rest of a list that cannot be cut at its closing tags."""
        batch = Batch()
        longest = self.file.limits.max_record
        for place, raw, is_text in whole_elements(self._blocks(), offset, longest):
            if is_text:
                batch.set_aside.append(SetAside(raw, place, _NUMBER_OUTSIDE, None))
            else:
                self._stretch(raw, place, batch)
            if batch.users >= _MANY:
                yield batch
                batch = Batch()
        yield batch

    def _tail(self, tail: bytes, offset: int) -> Batch:
        """What follows the last cut: the root's end, and nothing but it in any usual list."""
        batch = Batch()
        try:
            elements, text = outermost_elements(tail, closed=True)
        except MalformedError as error:
            end = tail.rfind(_ROOT_END)
            if end < 0:
                raise TruncatedListError(
                    msg(
                        "{file} ends at byte {offset} without having closed its root.",
                        file=self.file.name,
                        offset=offset + len(tail),
                    )
                ) from error
            try:
                outermost_elements(tail[end:], closed=True)
            except MalformedError:
                raise DamagedListError(
                    msg(
                        "{file} does not end where its root does, at byte {offset}.",
                        file=self.file.name,
                        offset=offset + end,
                    )
                ) from error
            self._salvage(tail[:end], offset, batch)
        else:
            self._each(elements, text, tail, offset, batch)
        return batch


def settled(doubtful: IO[bytes], tally: Tally) -> Iterator[Batch]:
    """Decide on the doubtful records in a file by what the whole list agreed on."""
    doubtful.seek(0)
    batch = Batch()
    while True:
        try:
            one: Doubtful = pickle.load(doubtful)  # noqa: S301 - written by a Reader
        except EOFError:
            break
        if not tally.agreed.issuperset(one.doubts):
            aside = one.set_aside
            # The guard holds a list with so many; their bytes are in it.
            enough = tally.set_aside + len(batch.set_aside) >= _MANY
            batch.set_aside.append(replace(aside, raw=b"") if enough else aside)
        elif one.line is not None:
            batch.new.append((one.fingerprint, one.line))
        if len(batch.new) + len(batch.set_aside) >= _MANY:
            tally.count(batch)
            yield batch
            batch = Batch()
    tally.count(batch)
    tally.doubtful = 0
    yield batch


def conclude(tally: Tally, name: str) -> None:
    """Refuse a list of which, all in all, too little is legible."""
    if tally.undecodable * 2 > tally.users + tally.set_aside:
        raise ListEncodingError(
            msg(
                "{name} is not written in UTF-8: {undecodable} of its Users are not.",
                name=name,
                undecodable=tally.undecodable,
            )
        )
    if not tally.users and not tally.set_aside:
        raise EmptyListError(msg("{name} names nobody.", name=name))
    if not tally.users or tally.set_aside > max(_MANY, tally.users):
        raise DamagedListError(
            msg(
                "{name} is hardly legible: {set_aside} Users are not, {users} are.",
                name=name,
                set_aside=tally.set_aside,
                users=tally.users,
            )
        )


def _between(elements: list[Element], content: bytes) -> bytes:
    """What stands outside of the outermost elements."""
    edges = [0, *(edge for one in elements for edge in (one.start, one.end)), len(content)]
    return b"\n".join(content[edges[at] : edges[at + 1]] for at in range(0, len(edges), 2))


def _length(pieces: list[bytes]) -> int:
    return sum(map(len, pieces)) + len(pieces) * len(END)
