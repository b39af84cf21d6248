"""Recorded taxpayer lists, with all their irregularities."""

import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hasat.feed.encoding import canonical
from hasat.sources.gib.lists.lines import decode_part, encode_part, published_bodies
from hasat.sources.gib.lists.list_file import open_list
from hasat.sources.gib.lists.reader import Reader
from hasat.sources.gib.lists.records import DOCUMENT_OF, Part, merge, published_body
from support.samples import REASON, SHARED, sample_folders, sample_id

SAMPLES = SHARED / "gib"
ODDITIES = SAMPLES / "gibtest_pk_oddities_subset_vkn_only.xml"
LISTS = [
    path
    for folder in sample_folders("gib")
    for path in sorted(folder.glob("*.xml"))
    if not path.name.startswith("fragment_")
]
every_list = pytest.mark.parametrize("path", LISTS, ids=sample_id)
needs_real_lists = pytest.mark.skipif(not SAMPLES.is_dir(), reason=REASON)


def _parts(path: Path) -> dict[str, Part]:
    reader = Reader(open_list(path), 1)
    parts = _parts_in(reader)
    assert len(parts) == reader.tally.users
    assert reader.tally.quarantined == 0
    return parts


def _parts_in(reader: Reader) -> dict[str, Part]:
    found = [decode_part(line) for batch in reader for _, line in batch.new]
    return {part.identifier: part for part in found}


def _tagged(tag: str) -> list[str]:
    index = json.loads((SAMPLES / "gibtest_pk_oddities_index.json").read_text())
    return [entry["identifier"] for entry in index if tag in entry["tags"]]


@every_list
def test_every_record_equals_what_elementtree_finds(path: Path) -> None:
    parts = _parts(path)
    users = ElementTree.parse(path).getroot().findall("User")  # noqa: S314 - a recorded sample
    assert list(parts) == [user.findtext("Identifier") for user in users]
    for user in users:
        part = parts[user.findtext("Identifier", "")]
        assert part.title == user.findtext("Title")
        assert part.type == user.findtext("Type")
        assert part.account_type == user.findtext("AccountType")
        assert part.first_creation_time == user.findtext("FirstCreationTime")
        active: dict[str, dict[str, str]] = {}
        for document in user.iterfind("Documents/Document"):
            for alias in document.iterfind("Alias"):
                if alias.find("DeletionTime") is None:
                    times = active.setdefault(document.attrib["type"], {})
                    name = alias.findtext("Name", "").strip()
                    time = alias.findtext("CreationTime", "")
                    times[name] = min(time, times.get(name, time))
        assert part.documents == {
            kind: tuple(sorted(times.items())) for kind, times in active.items()
        }
        assert not part.extra


@needs_real_lists
def test_irregular_records_are_read() -> None:
    parts = _parts(ODDITIES)
    assert all(parts[one].type == "KAMU" for one in _tagged("kamu"))
    assert all(one.startswith("0") for one in _tagged("leading_zero"))
    assert all("&" in (parts[one].title or "") for one in _tagged("title_amp"))
    assert all("Invoice" not in parts[one].documents for one in _tagged("despatch_only"))
    for one in _tagged("all_deleted"):
        assert None in (
            published_body(merge([parts[one]], []), "einvoice"),
            published_body(merge([parts[one]], []), "edespatch"),
        )
    for one in _tagged("alias_ws"):
        names = [name for kind in parts[one].documents.values() for name, _ in kind]
        assert names == [name.strip() for name in names]


@every_list
def test_lines_are_published_as_their_parts_are(path: Path) -> None:
    for part in _parts(path).values():
        taxpayer = merge([part], [part])
        expected = {
            dataset: canonical(found)
            for dataset in DOCUMENT_OF
            if (found := published_body(taxpayer, dataset)) is not None
        }
        assert published_bodies([encode_part(part)], [encode_part(part)]) == expected


@every_list
def test_order_and_closed_aliases_do_not_change_parts(path: Path) -> None:
    root = ElementTree.parse(path).getroot()  # noqa: S314 - a recorded sample
    for user in root:
        for document in user.iterfind("Documents/Document"):
            closed = [one for one in document if one.find("DeletionTime") is not None]
            for alias in closed[: len(document) - 1]:
                document.remove(alias)
            document[:] = list(document)[::-1]
    root[:] = list(root)[::-1]
    other = Reader(open_list(io.BytesIO(ElementTree.tostring(root, "utf-8"))), 1)
    changed = _parts_in(other)
    assert changed == _parts(path)


@needs_real_lists
def test_the_current_and_the_older_format() -> None:
    (current,) = _parts(SAMPLES / "fragment_current_format.xml").values()
    assert current.documents["Invoice"] == (
        ("urn:mail:defaultpk@dimes.com.tr", "2019-07-22T13:58:28"),
    )
    (older,) = _parts(SAMPLES / "fragment_legacy_flat_format.xml").values()
    assert older.flat
    assert older.type == "Özel"
    assert older.documents == {
        "Invoice": (("urn:mail:defaultpk@abalioglu.com.tr", "2020-03-12T15:41:37"),)
    }
