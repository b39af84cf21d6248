"""Reading of lists: files, records, quarantined Users and rejected lists."""

import io
import struct
import zipfile
from pathlib import Path

import pytest

from hasat.errors import HasatError
from hasat.sources.gib.lists import errors, list_file
from hasat.sources.gib.lists.errors import ListError
from hasat.sources.gib.lists.lines import decode_part
from hasat.sources.gib.lists.list_file import Limits, open_list
from hasat.sources.gib.lists.reader import Batch, Reader

DECLARATION = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


def user(identifier: str = "2970610282", title: str = "DİMAK", inside: str | None = None) -> str:
    documents = """<Documents>
            <Document type="Invoice">
                <Alias>
                    <Name>urn:mail:defaultpk@dimes.com.tr</Name>
                    <CreationTime>2019-07-22T13:58:28</CreationTime>
                </Alias>
            </Document>
        </Documents>"""
    return f"""
    <User>
        <Identifier>{identifier}</Identifier>
        <Title>{title}</Title>
        <Type>OZEL</Type>
        <FirstCreationTime>2017-11-30T23:25:33</FirstCreationTime>
        <AccountType>ENTEGRASYON</AccountType>
        {documents if inside is None else inside}
    </User>"""


def users(count: int) -> str:
    return "".join(user(f"{number:010d}", f"ŞİRKET {number}") for number in range(count))


def xml(content: str) -> bytes:
    return f"{DECLARATION}<UserList>{content}\n</UserList>\n".encode()


def packed(data: bytes, name: str = "newUserPkList.xml", more: tuple[str, ...] = ()) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for one in (name, *more):
            archive.writestr(one, data)
    return out.getvalue()


def read(data: bytes, limits: Limits | None = None) -> tuple[Reader, list[Batch]]:
    reader = Reader(open_list(io.BytesIO(data), "pk.zip", limits), 1)
    return reader, list(reader)


def identifiers(batches: list[Batch]) -> list[str]:
    return [decode_part(line).identifier for batch in batches for _, line in batch.new]


def quarantined(batches: list[Batch]) -> list[tuple[str | None, str]]:
    return [(one.identifier, one.reason) for batch in batches for one in batch.quarantined]


# ── files ───────────────────────────────────────────────────────────────────────────────────────


def test_a_zip_and_its_xml_read_alike_from_a_path_and_from_a_file(tmp_path: Path) -> None:
    data = xml(users(3))
    path = tmp_path / "pk.zip"
    path.write_bytes(packed(data))
    from_path = Reader(open_list(path), 1)
    expected = [batch.new for batch in from_path]
    assert [batch.new for batch in read(data)[1]] == expected
    assert [batch.new for batch in read(packed(data))[1]] == expected
    assert [batch.new for batch in read(b"\xef\xbb\xbf" + data)[1]] == expected
    assert from_path.tally.users == 3
    assert from_path.tally.bytes == len(data)


def test_a_zip_with_sizes_after_the_data_and_utf8_names_is_read() -> None:
    class Unseekable(io.RawIOBase):
        def __init__(self) -> None:
            self.written = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            self.written += memoryview(data).tobytes()  # type: ignore[arg-type]
            return len(memoryview(data))  # type: ignore[arg-type]

    out = Unseekable()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:  # type: ignore[arg-type]
        archive.writestr("newUserPkList.xml", xml(users(2)))
    data = bytearray(out.written)
    for signature, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.index(signature) + place
        flags = struct.unpack_from("<H", data, at)[0] | 0x800
        assert flags == 0x808
        struct.pack_into("<H", data, at, flags)
    assert len(identifiers(read(bytes(data))[1])) == 2


def test_other_files_in_the_archive_are_ignored() -> None:
    assert read(packed(xml(users(1)), more=("readme.txt",)))[0].tally.users == 1


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b"", errors.NotAListError, "an empty file"),
        (b"PK\x03\x04", errors.ArchiveError, "not a complete ZIP"),
        (packed(xml(users(1)))[:-30], errors.ArchiveError, "not a complete ZIP"),
        (packed(b"", "a.txt"), errors.ArchiveError, "0 XML files"),
        (packed(xml(users(1)), more=("b.XML",)), errors.ArchiveError, "2 XML files"),
        (b"<html><body>502</body></html>", errors.NotAListError, "'html'"),
        (b"<!DOCTYPE html><html/>", errors.NotAListError, "'html'"),
        (b"upstream timed out", errors.NotAListError, "not XML"),
        (b"<x:UserList xmlns:x='u'/>", errors.NotAListError, "'x:UserList'"),
        (b"<?xml version='1.0'?>\n", errors.TruncatedListError, "before its root"),
        (b"<!DOCTYPE UserList [<!ENTITY a 'b'>]><UserList/>", errors.ForbiddenMarkupError, "type"),
        (xml(""), errors.EmptyListError, "has no User"),
        (b"<UserList/>", errors.EmptyListError, "has no User"),
        (xml(users(2))[:-13], errors.TruncatedListError, "without its closing tag"),
        (xml(users(2))[:-200], errors.TruncatedListError, "without its closing tag"),
        (xml(users(2)) + b"<a/>", errors.DamagedListError, "content after its closing tag"),
        (xml(users(2)) + xml(users(2)), errors.DamagedListError, "Users after its closing tag"),
        (xml(users(2)).decode().encode("utf-16"), errors.ListEncodingError, "UTF-16"),
        (xml(users(2)).decode().encode("utf-16-le"), errors.ListEncodingError, "UTF-16"),
        (xml(users(3)).decode().encode("cp1254"), errors.ListEncodingError, "3 of its Users"),
        (
            xml(users(2)).replace(b"UTF-8", b"ISO-8859-9"),
            errors.ListEncodingError,
            "'ISO-8859-9'",
        ),
        (xml("<User><Identifier/></User>"), errors.DamagedListError, "is damaged"),
    ],
)
def test_an_unusable_list_is_rejected_with_a_reason(
    data: bytes, kind: type[ListError], text: str
) -> None:
    with pytest.raises(HasatError) as caught:
        read(data)
    assert type(caught.value) is kind
    assert text in caught.value.message
    assert "pk.zip" in caught.value.message
    assert "Nothing was changed" in (caught.value.remedy or "")


def test_a_wrong_checksum_rejects_the_archive() -> None:
    data = bytearray(packed(xml(users(50))))
    at = data.index(b"PK\x01\x02") + 16
    data[at] ^= 1
    with pytest.raises(errors.ArchiveError, match="CRC"):
        read(bytes(data))


def test_archives_that_expand_too_far_are_rejected() -> None:
    tight = packed(b"<UserList>" + b" " * 5_000_000 + b"</UserList>")
    with pytest.raises(errors.TooLargeError, match="times its size"):
        read(tight)
    forged = bytearray(tight)
    struct.pack_into("<I", forged, forged.index(b"PK\x01\x02") + 24, 1000)
    with pytest.raises(ListError):
        read(bytes(forged))
    with pytest.raises(errors.TooLargeError, match="more than 5000 bytes"):
        read(xml(users(50)), Limits(max_bytes=5000))


def test_a_missing_file_is_a_list_error(tmp_path: Path) -> None:
    with pytest.raises(ListError, match="No such file"):
        list(Reader(open_list(tmp_path / "pk.zip"), 1))


def test_an_endless_record_does_not_fill_the_memory() -> None:
    endless = b"<UserList><User>" + b"x" * 100_000
    with pytest.raises(errors.DamagedListError, match="more than 5000 bytes"):
        read(endless, Limits(max_record=5000))


# ── reader ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("block", [1, 7, 64, 1 << 18])
def test_blocks_may_end_anywhere(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(list_file, "BLOCK", block)
    reader, batches = read(xml(users(5)))
    assert identifiers(batches) == [f"{number:010d}" for number in range(5)]
    assert reader.tally.users == 5


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (f"<!-- {user('0000000001')} -->{user('0000000002')}", ["0000000002"]),
        (f"<!-- </User> -->{user('0000000002')}", ["0000000002"]),
        (
            f"{user('0000000001')}<![CDATA[</User>]]>{user('0000000002')}",
            ["0000000001", "0000000002"],
        ),
        (f"<?x </User> ?>{user('0000000002')}", ["0000000002"]),
        (
            user("0000000001", "<![CDATA[</User><User>]]>") + user("0000000002"),
            ["0000000001", "0000000002"],
        ),
        (
            user("0000000001", "A<!-- </User> -->B") + user("0000000002"),
            ["0000000001", "0000000002"],
        ),
        (
            user("0000000001").replace("</User>", "</User  >") + user("0000000002"),
            ["0000000001", "0000000002"],
        ),
        (
            f"<Made>2026</Made>{user('0000000001')}<Made/>{user('0000000002')}<Made/>",
            ["0000000001", "0000000002"],
        ),
        (user("0000000001").replace("</User>", "</User\n>"), ["0000000001"]),
    ],
)
def test_closing_tags_in_comments_and_cdata_are_not_cuts(content: str, expected: list[str]) -> None:
    _, batches = read(xml(content))
    assert identifiers(batches) == expected
    assert not quarantined(batches)


def test_content_between_users_is_counted() -> None:
    reader, _ = read(xml(f"<Made>2026</Made>{user('0000000001')}text{user('0000000002')}<Made/>"))
    assert reader.tally.unknown == {"Made": 2, "text": 1}


# ── quarantined ──────────────────────────────────────────────────────────────────────────────────

DAMAGES = {
    "a bare ampersand": (user("1111113261", "A & B"), "1111113261"),
    "an unknown entity": (user("1111113261", "A &nbsp; B"), "1111113261"),
    "a control character": (user("1111113261", "A \x01 B"), "1111113261"),
    "a tag not closed": (user("1111113261").replace("</Title>", ""), "1111113261"),
    "a comment not closed": (user("1111113261", "A <!-- B"), "1111113261"),
    "no end": (user("1111113261").replace("</User>", ""), "1111113261"),
    "no start": (user("1111113261").replace("<User>", ""), "1111113261"),
    "a misspelt end": (user("1111113261").replace("</User>", "</Uzer>"), "1111113261"),
    "a hole": (user("1111113261").replace("</Title>\n        <Type>OZEL</Type>", ""), "1111113261"),
    "a large hole": (user("1111113261")[:90] + user("2222222222")[-200:], None),
    "no identifier": (user(""), None),
    "two identifiers": (user("1111113261</Identifier><Identifier>2222222222"), None),
    "an open alias without name": (
        user(
            "1111113261",
            inside="<Documents><Document><Alias><Name/></Alias></Document></Documents>",
        ),
        "1111113261",
    ),
    "a User in a User": (user("1111113261", inside=user("2222222222")), None),
    "Users in something else": (f"<Group>{user('1111113261')}</Group>", None),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_unreadable_user_is_quarantined_alone(
    damage: str,
) -> None:
    broken, identifier = DAMAGES[damage]
    first, last = user("0000000001"), user("0000000002")
    for content in (broken + first + last, first + broken + last, first + last + broken):
        reader, batches = read(xml(content))
        assert sorted(identifiers(batches)) == ["0000000001", "0000000002"]
        assert [found for found, _ in quarantined(batches)] == [identifier]
        assert reader.tally.quarantined == 1


def test_a_quarantined_user_has_bytes_offset_and_reason() -> None:
    data = xml(user("0000000001") + user("1111113261", "A & B") + user("0000000002"))
    _, batches = read(data)
    (one,) = [one for batch in batches for one in batch.quarantined]
    assert data[one.offset : one.offset + len(one.raw)] == one.raw
    assert b"A & B" in one.raw
    assert one.raw.strip().endswith(b"</User>")
    assert "not well-formed" in one.reason


def test_one_user_in_another_encoding_is_quarantined() -> None:
    bad = user("1111113261", "DİŞ").encode("cp1254")
    data = xml(users(3)).replace(b"\n</UserList>", bad + b"\n</UserList>")
    _, batches = read(data)
    assert len(identifiers(batches)) == 3
    assert quarantined(batches) == [("1111113261", "its byte 67 is not UTF-8")]


def test_a_mostly_unreadable_list_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hasat.sources.gib.lists.tally.MAX_QUARANTINED", 5)
    broken = "".join(user(f"{number:010d}", "A & B") for number in range(8))
    with pytest.raises(errors.DamagedListError, match="is damaged"):
        read(xml(broken + users(3)))
