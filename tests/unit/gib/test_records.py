"""Records: parsing, merging of both lists, and the published body."""

import io
import random
from itertools import permutations
from typing import Any

import pytest

from hasat.feed.encoding import canonical
from hasat.sources.gib.lists.lines import (
    decode_part,
    encode_part,
    identifier_of,
    published_bodies,
    read_line,
)
from hasat.sources.gib.lists.list_file import open_list
from hasat.sources.gib.lists.markup import parse_elements
from hasat.sources.gib.lists.reader import Reader
from hasat.sources.gib.lists.records import (
    DOCUMENT_OF,
    Part,
    Taxpayer,
    earlier,
    merge,
    parse_time,
    published_body,
)
from hasat.sources.gib.lists.users import read_user
from hasat.sources.gib.sync.partitions import partition, read_partition

EARLY, LATE = "2014-03-19T10:54:25", "2019-07-22T13:58:28"


def part_in(inside: str) -> Part:
    """Return the part in a User; parsed by both paths where the fast one applies."""
    record = f"<User>{inside}</User>".encode()
    (element,), _ = parse_elements(record)
    part, doubts = read_user(element)
    line = read_line(record.removesuffix(b"</User>"))
    assert line is None or (decode_part(line) == part and not doubts)
    assert decode_part(encode_part(part)) == part
    return part


def user(documents: str = "", title: str = "<Title>T</Title>", account: str = "") -> str:
    return (
        f"<Identifier>0010030481</Identifier>{title}<Type>OZEL</Type>"
        f"<FirstCreationTime>{EARLY}</FirstCreationTime>{account}"
        f"<Documents>{documents}</Documents>"
    )


def document(*aliases: str, kind: str = "Invoice") -> str:
    return f'<Document type="{kind}">{"".join(aliases)}</Document>'


def alias(name: str, created: str = EARLY, more: str = "") -> str:
    return f"<Alias><Name>{name}</Name><CreationTime>{created}</CreationTime>{more}</Alias>"


def closed(name: str, created: str = EARLY) -> str:
    return alias(name, created, f"<DeletionTime>{LATE}</DeletionTime>")


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ("", {}),
        (document(), {}),
        (document(alias("a")), {"Invoice": (("a", EARLY),)}),
        (document(closed("a")), {}),
        (document(alias("a"), closed("a", LATE)), {"Invoice": (("a", EARLY),)}),
        (document(alias("a", LATE), alias("a", EARLY)), {"Invoice": (("a", EARLY),)}),
        (
            document(alias("B"), alias("a"), alias("b")),
            {"Invoice": (("B", EARLY), ("a", EARLY), ("b", EARLY))},
        ),
        (document(alias(" urn:mail:x@y.tr ")), {"Invoice": (("urn:mail:x@y.tr", EARLY),)}),
        (document(alias("\u00a0a\u00a0")), {"Invoice": (("a", EARLY),)}),
        (document(alias("a</Name><Name>b")), {"Invoice": (("a", EARLY), ("b", EARLY))}),
        (document(alias("a", more="<DeletionTime/>")), {"Invoice": (("a", EARLY),)}),
        (document("<Alias><Name>a</Name></Alias>"), {"Invoice": (("a", None),)}),
        (document(alias("a"), kind="Receipt"), {"Receipt": (("a", EARLY),)}),
        ("<Document>" + alias("a") + "</Document>", {"": (("a", EARLY),)}),
        (
            document(alias("a"))
            + document(alias("b"), kind="DespatchAdvice")
            + document(alias("c")),
            {"Invoice": (("a", EARLY), ("c", EARLY)), "DespatchAdvice": (("b", EARLY),)},
        ),
    ],
)
def test_the_active_aliases_of_a_record(documents: str, expected: dict[str, Any]) -> None:
    assert part_in(user(documents)).documents == expected


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("<Title>A &amp; B &lt;C&gt; &#304;&#x15E;</Title>", "A & B <C> İŞ"),
        ("<Title>  A\tB  C\u00ad </Title>", "  A\tB  C\u00ad "),
        ("<Title>A\r\nB</Title>", "A\nB"),
        ("<Title><![CDATA[A & <B>]]></Title>", "A & <B>"),
        ("<Title>İIıi</Title>", "İIıi"),
        ("<Title/>", ""),
        ("", None),
    ],
)
def test_titles_are_stored_verbatim(written: str, title: str | None) -> None:
    assert part_in(user(title=written)).title == title


def test_unknown_values_and_elements_are_stored() -> None:
    part = part_in(
        user(document(alias("a")), account="<AccountType>Özel 2</AccountType><Note>x</Note>")
    )
    assert part.account_type == "Özel 2"
    assert part.extra == (("Note", "x"),)
    assert part_in(user()).account_type is None


def test_the_older_format_has_one_record_per_alias() -> None:
    def record(name: str, created: str, more: str = "") -> Part:
        return part_in(
            f"<Identifier>0010030481</Identifier><Alias>{name}</Alias><Title>T</Title>"
            f"<Type>Özel</Type><FirstCreationTime>{EARLY}</FirstCreationTime>"
            f"<AliasCreationTime>{created}</AliasCreationTime>{more}"
        )

    parts = [
        record("b", LATE, "<AccountType>1</AccountType>"),
        record("a", EARLY),
        record("c", EARLY, f"<DeletionTime>{LATE}</DeletionTime>"),
    ]
    assert all(part.flat for part in parts)
    assert published_body(merge(parts, []), "einvoice") == {
        "identifier": "0010030481",
        "title": "T",
        "accountType": "1",
        "type": "Özel",
        "firstCreationTime": EARLY,
        "aliases": [
            {"alias": "a", "type": "PK", "creationTime": EARLY},
            {"alias": "b", "type": "PK", "creationTime": LATE},
        ],
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (EARLY, "2014-03-19 10:54:25"),
        ("2014-03-19T07:54:25Z", "2014-03-19 09:54:25"),
        ("2020-03-19T07:54:25.5+00:00", "2020-03-19 10:54:25.500000"),
        ("19.03.2014 10:54:25", "2014-03-19 10:54:25"),
        ("2014-03-19", "2014-03-19 00:00:00"),
        ("yesterday", "None"),
        ("0001-01-01T00:00:00+23:59", "None"),
        ("", "None"),
    ],
)
def test_times_are_parsed_in_every_known_format(text: str, expected: str) -> None:
    assert str(parse_time(text)) == expected


def test_earlier_is_independent_of_the_order() -> None:
    times = [None, EARLY, LATE, "01.01.2015 00:00:00", "yesterday", "2014-03-19T07:00:00Z"]
    for one, two in permutations(times, 2):
        assert earlier(one, two) == earlier(two, one)
    assert earlier("yesterday", LATE) == LATE
    assert earlier("01.01.2015 00:00:00", LATE) == "01.01.2015 00:00:00"


def _part(**changes: Any) -> Part:
    usual = Part("1234567890", "T", "OZEL", "GIBPORTAL", LATE, {"Invoice": (("a", LATE),)})
    return usual._replace(**changes)


def test_merge_prefers_pk_and_the_earliest_creation_time() -> None:
    gb = _part(title="T2", type="KAMU", account_type="X", first_creation_time=EARLY)
    found = published_body(merge([_part()], [gb]), "einvoice")
    assert found == {
        "identifier": "1234567890",
        "title": "T",
        "accountType": "GIBPORTAL",
        "type": "OZEL",
        "firstCreationTime": EARLY,
        "aliases": [
            {"alias": "a", "type": "GB", "creationTime": LATE},
            {"alias": "a", "type": "PK", "creationTime": LATE},
        ],
    }
    assert published_body(merge([_part(account_type=None)], [gb]), "einvoice") == {
        **found,
        "accountType": "X",
    }
    assert published_body(merge([], [gb]), "einvoice") == {
        **found,
        "title": "T2",
        "type": "KAMU",
        "accountType": "X",
        "aliases": found["aliases"][:1],
    }
    assert published_body(merge([_part()], [gb]), "edespatch") is None


def _canonical_body(taxpayer: Taxpayer, dataset: str = "einvoice") -> bytes | None:
    found = published_body(taxpayer, dataset)
    return None if found is None else canonical(found)


def _check_published(pk: list[Part], gb: list[Part]) -> None:
    """Check that lines are published as their parts are."""
    taxpayer = merge(pk, gb)
    bodies = {name: _canonical_body(taxpayer, name) for name in DOCUMENT_OF}
    found = published_bodies([encode_part(part) for part in pk], [encode_part(part) for part in gb])
    assert found == {name: body for name, body in bodies.items() if body is not None}


def test_merge_is_independent_of_the_order() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for _ in range(300):
        parts = [
            _part(
                title=dice.choice(("A", "B", "", None)),
                type=dice.choice(("OZEL", None)),
                account_type=dice.choice(("X", "Y", None)),
                first_creation_time=dice.choice((EARLY, LATE, "?", None)),
                documents={
                    kind: tuple(
                        (name, dice.choice((EARLY, LATE, None)))
                        for name in sorted(dice.sample(("a", "a!", 'a"', "a b", "ağ", "A"), 3))
                    )
                    for kind in dice.sample(("Invoice", "DespatchAdvice"), dice.randint(0, 2))
                },
            )
            for _ in range(dice.choice((1, 2, 2, 2, 3, 4)))
        ]
        for cut in range(len(parts) + 1):
            _check_published(parts[:cut], parts[cut:])
        other = dice.sample(parts, len(parts))
        cut = dice.randint(0, 1)
        assert merge(parts[cut:], parts[:cut]) == merge(
            [part for part in other if part in parts[cut:]] if cut else other, parts[:cut]
        )


def test_published_lines_are_canonical_json() -> None:
    hard = _part(title='"\\\n\t\x7f\u2028\U0001f600/é', account_type=None)
    for parts in ([hard], [_part(title=None)], [_part(documents={"Invoice": (('"', None),)})]):
        _check_published(parts, [])
        _check_published([], parts)
        _check_published(parts, parts)
    assert published_body(merge([_part(documents={})], []), "einvoice") is None
    assert published_bodies([encode_part(_part(documents={}))], []) == {}


def test_every_published_field_is_in_the_canonical_body() -> None:
    bodies = {
        _canonical_body(merge([part], []))
        for part in (
            _part(),
            _part(identifier="1234567891"),
            _part(title="t"),
            _part(title=""),
            _part(title=None),
            _part(title="TOZEL", type=""),
            _part(type="KAMU"),
            _part(account_type=None),
            _part(first_creation_time=EARLY),
            _part(documents={"Invoice": (("A", LATE),)}),
            _part(documents={"Invoice": (("a", EARLY),)}),
            _part(documents={"Invoice": (("a", LATE), ("b", LATE))}),
        )
    } | {_canonical_body(merge([], [_part()]))}
    assert len(bodies) == 13


def test_partitions_group_the_lines_of_both_lists(tmp_path: Any) -> None:
    def numbered(start: int) -> bytes:
        records = "".join(
            f"<User>{user(document(alias('a'))).replace('0010030481', f'{number:010d}')}</User>"
            for number in [*range(start, start + 300), start]
        )
        return f"<UserList>{records}<User>&x;</User></UserList>".encode()

    for box, start in (("PK", 0), ("GB", 200)):
        shelved = partition(open_list(io.BytesIO(numbered(start))), tmp_path, box, 1, 7)
        assert shelved.tally.users == 301
        assert len(shelved.quarantined) == 1
    found = {
        identifier_of(token): (len(pk), len(gb))
        for number in range(7)
        for token, (pk, gb) in read_partition(tmp_path, number).taxpayers.items()
    }
    assert len(found) == 500
    assert found["0000000000"] == (2, 0)
    assert found["0000000200"] == (1, 2)
    assert found["0000000299"] == (1, 1)
    assert found["0000000499"] == (0, 1)


def test_white_space_does_not_change_a_record() -> None:
    text = user(document(alias("a"), closed("b")) + document(alias("c"), kind="DespatchAdvice"))
    spread = text.replace("><", ">\n \t<")
    assert part_in(text) == part_in(spread)
    data = f"<UserList><User>{text}</User>\n<User>{spread}</User></UserList>".encode()
    lines = [line for batch in Reader(open_list(io.BytesIO(data)), 1) for _, line in batch.new]
    assert lines[0] == lines[1]
