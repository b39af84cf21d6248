"""A single pass over a list that parses only the records that are not known yet.

The stream is cut after every ``</User>``. If each piece is white space and one well-formed User,
then by XML's grammar the list is well-formed and has exactly these Users: there is no other way to
parse the same bytes. So every piece is either parsed completely (`read_line`, or expat inside a
root), or has the same bytes as one that was (its fingerprint is known; see `fingerprints.py`). Any
other piece is irregular, in one of three ways:

- expat rejects it: the list is damaged there. The readable elements are read, the others are
  quarantined, and reading continues after the piece.
- expat accepts it and it is complete: it contains more than one User (`<User/>`, a comment, an
  unknown element), and its elements are read.
- it is incomplete: a comment, a CDATA section or another element spans the cut. Then expat parses
  the whole list; if it is well-formed, expat's Users are used, otherwise this piece is damaged.

Readable records with doubts (see `users.py`) wait in a file until the list has ended, because only
then is it known which doubts the whole list shares.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain, pairwise
from tempfile import SpooledTemporaryFile
from typing import IO

import numpy as np

from hasat.messages import msg
from hasat.sources.gib.lists.errors import DamagedListError, TruncatedListError
from hasat.sources.gib.lists.fingerprints import SIZE, KnownFingerprints, fingerprints_of
from hasat.sources.gib.lists.lines import encode_part, read_line
from hasat.sources.gib.lists.list_file import ListFile, read_prolog
from hasat.sources.gib.lists.markup import (
    USER,
    Element,
    MalformedError,
    OpenEndedError,
    UnreadableError,
    is_well_formed,
    iter_elements,
    parse_elements,
    readable_identifier,
)
from hasat.sources.gib.lists.records import QuarantinedUser
from hasat.sources.gib.lists.tally import (
    BATCH_SIZE,
    Batch,
    Doubtful,
    Tally,
    check_tally,
    settle_doubtful,
    store_doubtful,
)
from hasat.sources.gib.lists.users import read_user, remains_of_user

END = b"</User>"
_ROOT_END = b"</UserList"
_USER_START = re.compile(rb"<User(?=[\s/>])").finditer
# The lengths of all records in the first bytes of a list are measured, later those of every 16th.
_ALL_LENGTHS, _SAMPLING = 1024**2, 16
_IN_MEMORY = 4 * 1024**2
_MAX_REASONS = 5
_NUMBER_OUTSIDE = "a number that may be an identifier is between Users"
_NUMBER = re.compile(rb"[0-9]{10}").search


class SpanningMarkupError(Exception):
    """The list is well-formed, but an element spans the cut after this piece."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class Reader:
    """One pass over a list; its results are valid once the iteration has ended without error.

    Several processes can share a list: the reader of `share` (1, 3) reads every third block, from
    the second on. The caller then combines the tallies, calls `accept_shared_doubts`, settles each
    `doubtful` file with `settle_doubtful` and calls `check_tally`; a SpanningMarkupError means that
    one reader must read all of the list.

    `agreed` are the doubts that earlier lists have shared.
    """

    def __init__(
        self,
        file: ListFile,
        seed: int,
        known: KnownFingerprints | None = None,
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
        # None until an irregular piece requires the check.
        self._damaged: bool | None = None

    def __iter__(self) -> Iterator[Batch]:
        tally = self.tally
        with ExitStack() as stack:
            doubtful = self._doubtful or stack.enter_context(SpooledTemporaryFile(_IN_MEMORY))
            for batch in self._batches():
                tally.count(batch)
                if tally.is_mostly_unreadable:
                    break
                store_doubtful(batch.doubtful, doubtful)
                yield batch
            else:
                if self._shares > 1:
                    return
                tally.accept_shared_doubts()
                yield from settle_doubtful(doubtful, tally)
        check_tally(tally, self.file.name)

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
                    batch = self._read_pieces(pieces, offset)
                except SpanningMarkupError as spanning:
                    if self._shares > 1:
                        raise
                    cut = pieces[: spanning.index]
                    yield self._read_pieces(cut, offset)
                    yield from self._read_with_expat(offset + _length(cut))
                    return
                yield batch
            offset += len(data) - len(carry)
            if len(carry) > self.file.limits.max_record:
                raise DamagedListError(
                    msg(
                        "{file} has a User of more than {max_record} bytes at byte {offset}.",
                        file=self.file.name,
                        max_record=self.file.limits.max_record,
                        offset=offset,
                    )
                )
        if self._share == 0:
            yield self._read_tail(carry, offset)

    def _read_pieces(self, pieces: list[bytes], offset: int) -> Batch:
        """Return the Users of these pieces, without parsing the known ones."""
        self.tally.lengths.extend(map(len, pieces[:: 1 if offset < _ALL_LENGTHS else _SAMPLING]))
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
                self._read_irregular(pieces, index, offset, fingerprint, batch)
        if self._known is not None and places is not None:
            self._known.mark(places)
        return batch

    def _read_irregular(
        self, pieces: list[bytes], index: int, offset: int, fingerprint: bytes, batch: Batch
    ) -> None:
        """Add the Users of an irregular piece to the batch."""
        content = pieces[index] + END
        place = offset + _length(pieces[:index])
        try:
            elements, text = parse_elements(content)
        except MalformedError:
            self._damaged = True
        except OpenEndedError:
            if self._damaged is None:
                self._damaged = not is_well_formed(self.file.blocks(), self.file.limits.max_record)
            if not self._damaged:
                raise SpanningMarkupError(index) from None
        else:
            if len(elements) == 1 and not text and elements[0].name == USER:
                self._read_user(elements[0], content, place, fingerprint, batch)
            else:
                self._read_elements(elements, text, content, place, batch)
            return
        self._salvage(content, place, batch)

    def _read_user(
        self, user: Element, raw: bytes, offset: int, fingerprint: bytes, batch: Batch
    ) -> None:
        try:
            found = read_user(user)
        except UnreadableError as error:
            batch.quarantined.append(QuarantinedUser(raw, offset, error.reason, error.identifier))
            return
        line = encode_part(found.part)
        if self.tally.agreed.issuperset(found.doubts):
            batch.new.append((fingerprint, line))
            return
        quarantined = QuarantinedUser(
            raw, offset, "; ".join(found.doubts[:_MAX_REASONS]), found.owner
        )
        batch.doubtful.append(Doubtful(fingerprint, line, found.doubts, quarantined))

    def _read_elements(
        self, elements: list[Element], text: bool, content: bytes, offset: int, batch: Batch
    ) -> None:
        """Add elements that are not alone between two cuts, one by one."""
        if text:
            batch.unknown["text"] += 1
            if _NUMBER(_between(elements, content)):
                batch.quarantined.append(QuarantinedUser(content, offset, _NUMBER_OUTSIDE, None))
        for element in elements:
            raw = content[element.start : element.end]
            place = offset + element.start
            if element.name != USER and not element.contains_user:
                batch.unknown[element.name] += 1
                if remains_of_user(element):
                    doubt = f"{element.name[:60]!r} stands where a User should"
                    quarantined = QuarantinedUser(raw, place, doubt, readable_identifier(raw))
                    batch.doubtful.append(Doubtful(b"", None, (doubt,), quarantined))
            elif element.name != USER:
                reason = f"Users are inside a {element.name}"
                batch.quarantined.append(QuarantinedUser(raw, place, reason, None))
            else:
                self._read_single(element, raw, place, batch)

    def _read_single(self, user: Element, raw: bytes, offset: int, batch: Batch) -> None:
        # The zero byte distinguishes it from the fingerprint of a piece, which has no closing tag.
        fingerprint = fingerprints_of([b"\0" + raw], self._seed)
        if self._known is not None:
            places = self._known.find(fingerprint)
            if places[0] >= 0:
                self._known.mark(places)
                batch.seen += 1
                return
        self._read_user(user, raw, offset, fingerprint, batch)

    def _salvage(self, content: bytes, offset: int, batch: Batch) -> None:
        """Read the readable elements of a damaged fragment and quarantine the others."""
        if _ROOT_END in content:
            raise DamagedListError(
                msg(
                    "{file} has Users after its closing tag, at byte {offset}.",
                    file=self.file.name,
                    offset=offset + content.index(_ROOT_END),
                )
            )
        cuts = [0, *(match.start() for match in _USER_START(content)), len(content)]
        for start, end in pairwise(cuts):
            if content[start:end].strip():
                self._read_fragment(content[start:end], offset + start, batch)

    def _read_fragment(self, content: bytes, offset: int, batch: Batch) -> None:
        try:
            elements, text = parse_elements(content)
        except (MalformedError, OpenEndedError) as error:
            reason = str(error)
            try:
                content.decode()
            except UnicodeDecodeError as wrong:
                batch.undecodable += 1
                reason = f"its byte {wrong.start} is not UTF-8"
            found = QuarantinedUser(content, offset, reason, readable_identifier(content))
            batch.quarantined.append(found)
        else:
            self._read_elements(elements, text, content, offset, batch)

    def _read_with_expat(self, offset: int) -> Iterator[Batch]:
        """Read the rest of a list that cannot be cut at its closing tags."""
        batch = Batch()
        longest = self.file.limits.max_record
        for place, raw, is_text in iter_elements(self._blocks(), offset, longest):
            if is_text:
                batch.quarantined.append(QuarantinedUser(raw, place, _NUMBER_OUTSIDE, None))
            else:
                self._read_fragment(raw, place, batch)
            if batch.users >= BATCH_SIZE:
                yield batch
                batch = Batch()
        yield batch

    def _read_tail(self, tail: bytes, offset: int) -> Batch:
        """Read the bytes after the last cut, usually only the root's closing tag."""
        batch = Batch()
        try:
            elements, text = parse_elements(tail, closed=True)
        except MalformedError as error:
            end = tail.rfind(_ROOT_END)
            if end < 0:
                raise TruncatedListError(
                    msg(
                        "{file} ends at byte {offset} without its closing tag.",
                        file=self.file.name,
                        offset=offset + len(tail),
                    )
                ) from error
            try:
                parse_elements(tail[end:], closed=True)
            except MalformedError:
                raise DamagedListError(
                    msg(
                        "{file} has content after its closing tag, at byte {offset}.",
                        file=self.file.name,
                        offset=offset + end,
                    )
                ) from error
            self._salvage(tail[:end], offset, batch)
        else:
            self._read_elements(elements, text, tail, offset, batch)
        return batch


def _between(elements: list[Element], content: bytes) -> bytes:
    """Return the bytes outside the outermost elements."""
    edges = [0, *(edge for one in elements for edge in (one.start, one.end)), len(content)]
    return b"\n".join(content[edges[at] : edges[at + 1]] for at in range(0, len(edges), 2))


def _length(pieces: list[bytes]) -> int:
    return sum(map(len, pieces)) + len(pieces) * len(END)
