"""Detection of new and gone records by fingerprints, independent of order and repetition."""

import io
import os
import random

from hasat.sources.gib.lists.fingerprints import KnownFingerprints, fingerprints_of
from hasat.sources.gib.lists.lines import decode_part
from hasat.sources.gib.lists.list_file import open_list
from hasat.sources.gib.lists.reader import Reader


def _each(fingerprints: bytes) -> set[bytes]:
    return {fingerprints[at : at + 16] for at in range(0, len(fingerprints), 16)}


def test_new_and_gone_fingerprints_equal_set_differences() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for _ in range(200):
        pool = [dice.randbytes(16) for _ in range(dice.randint(1, 60))]
        # The limits of the range, and halves that several share.
        pool += [bytes(16), b"\xff" * 16, b"\xff" * 8 + bytes(8), pool[0][:8] + bytes(8)]
        last = dice.choices(pool, k=dice.randint(0, 80))
        current = dice.choices(pool, k=dice.randint(0, 80))
        known = KnownFingerprints(b"".join(last))
        indexes = known.find(b"".join(current))
        known.mark(indexes)
        new = {one for one, index in zip(current, indexes, strict=True) if index < 0}
        gone = _each(known.gone())
        assert new >= set(current) - set(last)
        assert gone >= set(last) - set(current)
        # If first halves collide, a record may count as new and as gone: parsed again, never lost.
        twins = {one for one in pool if sum(other[:8] == one[:8] for other in pool) > 1}
        assert new <= set(current) - set(last) | twins
        assert gone <= set(last) - set(current) | twins


def test_a_repeated_fingerprint_is_not_gone() -> None:
    a, b, c, d = (os.urandom(16) for _ in range(4))
    known = KnownFingerprints(a + b + a + c)
    assert len(known) == 3
    known.mark(known.find(a + d + a))
    assert _each(known.gone()) == {b, c}


def _list(*titles: str) -> bytes:
    users = "".join(
        f"<User><Identifier>{number:010d}</Identifier><Title>{title}</Title><Type>OZEL</Type>"
        "<FirstCreationTime>2020-01-01T00:00:00</FirstCreationTime><Documents>"
        '<Document type="Invoice"><Alias><Name>urn:mail:pk</Name>'
        "<CreationTime>2020-01-01T00:00:00</CreationTime></Alias></Document></Documents></User>"
        for number, title in enumerate(titles)
    )
    return f"<UserList>{users}</UserList>".encode()


def _run(data: bytes, known: KnownFingerprints) -> list[str | None]:
    return _titles(Reader(open_list(io.BytesIO(data)), 5, known))


def _titles(reader: Reader) -> list[str | None]:
    return [decode_part(line).title for batch in reader for _, line in batch.new]


def test_only_changed_records_are_parsed_again() -> None:
    known = KnownFingerprints(b"")
    assert _run(_list("A", "B & C".replace("&", "&amp;")), known) == ["A", "B & C"]
    first = Reader(open_list(io.BytesIO(_list("A", "B", "C"))), 5)
    seen = b"".join(fingerprint for batch in first for fingerprint, _ in batch.new)
    known = KnownFingerprints(seen)
    reader = Reader(open_list(io.BytesIO(_list("A", "b", "C", "D"))), 5, known)
    assert _titles(reader) == ["b", "D"]
    assert reader.tally.users == 4
    assert known.gone() == seen[16:32]


def test_fingerprints_depend_on_the_seed() -> None:
    assert fingerprints_of([b"a", b"b"], 1) != fingerprints_of([b"a", b"b"], 2)
    assert len(fingerprints_of([b"a", b"b"], 1)) == 32
