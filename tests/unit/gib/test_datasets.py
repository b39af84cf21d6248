"""Taxpayers in the original's XML are well-formed, whatever the title."""

import random
import sys
from typing import Any
from xml.etree import ElementTree

from hypothesis import given, settings
from hypothesis import strategies as st

from hasat.sources.gib.datasets import XML


def body(title: str | None, alias: str = "urn:mail:x") -> dict[str, Any]:
    return {
        "identifier": "0010030481",
        "title": title,
        "accountType": None,
        "type": "OZEL",
        "firstCreationTime": "2019-07-22T13:58:28",
        "aliases": [{"alias": alias, "type": "PK", "creationTime": "2019-07-22T13:58:28"}],
    }


def test_xml_has_the_form_of_the_original() -> None:
    assert XML.record({**body("A & B"), "accountType": "GIBPORTAL"}) == (
        "<User><Identifier>0010030481</Identifier><Title>A &amp; B</Title>"
        "<AccountType>GIBPORTAL</AccountType><Type>OZEL</Type>"
        "<FirstCreationTime>2019-07-22T13:58:28</FirstCreationTime><Aliases><Alias>"
        "<Name>urn:mail:x</Name><Type>PK</Type><CreationTime>2019-07-22T13:58:28</CreationTime>"
        "</Alias></Aliases></User>"
    )


def test_null_has_no_element_and_empty_text_has_one() -> None:
    assert "<Title>" not in XML.record(body(None))
    assert "<Title></Title>" in XML.record(body(""))


FORBIDDEN = {*map(chr, range(32)), "\ufffe", "\uffff"} - {"\t", "\n", "\r"}


@settings(max_examples=300)
@given(st.text(max_size=40), st.text(max_size=20))
def test_every_text_that_xml_allows_is_read_back(title: str, alias: str) -> None:
    user = ElementTree.fromstring(XML.record(body(title, alias)))  # noqa: S314 - our own
    for path, text in (("Title", title), ("Aliases/Alias/Name", alias)):
        expected = "".join("\ufffd" if char in FORBIDDEN else char for char in text)
        assert (user.find(path).text or "") == expected  # type: ignore[union-attr]


def test_every_character_can_be_written() -> None:
    dice = random.Random(0)
    for number in dice.sample(range(sys.maxunicode + 1), 20_000):
        if not 0xD800 <= number <= 0xDFFF:
            ElementTree.fromstring(XML.record(body(f"a{chr(number)}b")))  # noqa: S314 - our own
