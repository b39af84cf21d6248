"""Damage to JSON responses, by seed: what any upstream may send one day.

    damage = Damage(seed)
    body = damage.values(document, rows)     # one bad value inside some of the rows
    body = damage.transport(body)            # wrong encodings, cut short, not JSON at all

Every function returns bytes as they go over the wire, so that also what no Python value can say
(duplicate keys, NaN, lone surrogates) is among them.
"""

import gzip
import json
import random
from collections.abc import Iterator, MutableMapping, MutableSequence, Sequence
from typing import Any

# JSON tokens, as they stand in a document.
BAD_VALUES: tuple[bytes, ...] = (
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1.5",
    b"-0.0",
    b"2147483648",
    b"9223372036854775808",
    b"1" + b"0" * 400,
    b"9" * 5000,
    b"1e400",
    b"-1e400",
    b"1e-400",
    b"NaN",
    b"Infinity",
    b"[]",
    b"{}",
    b'[{"id": 1}]',
    b'{"": null}',
    b'{"a": 1, "a": 2}',
    b'{"\\u0000": 1}',
    b'""',
    b'"0000-00-00"',
    b'"10000-01-01"',
    b'"2026-02-30"',
    b'"2026-01-01T24:00:00+99:99"',
    b'"\\u0000"',
    b'"\\ud800"',
    b'"caf\xe9"',
    b'"\xed\xa0\x80"',
    '"\'; DROP TABLE x; -- %s %(a)s {} \\\\ \U0001f600"'.encode(),
    b'"' + b"".join(b"%04x" % n for n in range(3000)) + b'"',
    b'{"a":' * 300 + b"1" + b"}" * 300,
    b"[" * 3000 + b"]" * 3000,
)

BAD_COUNTS: tuple[str, ...] = (
    "99999999999999999999",
    "9" * 5000,
    "-1",
    "NaN",
    "1e9",
    "many",
    "",
    "10, x",
    "0x10",
    "+5",
)


class Damage:
    """Chooses by its seed; the same seed damages the same document in the same way."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def values(self, document: Any, rows: Sequence[Any], most: int = 3) -> bytes:
        """Serialize a document with bad values in some of these parts of it."""
        tokens: dict[str, bytes] = {}
        for row in self._random.sample(list(rows), min(len(rows), self._random.randint(1, most))):
            places = list(_places(row))
            if places:
                container, name = self._random.choice(places)
                mark = f"damaged-{len(tokens)}"
                tokens[mark] = self._random.choice(BAD_VALUES)
                container[name] = mark
        body = json.dumps(document).encode()
        for mark, token in tokens.items():
            body = body.replace(f'"{mark}"'.encode(), token)
        return body

    def transport(self, body: bytes) -> tuple[bytes, dict[str, str]]:
        """Damage a whole body: the bytes, and headers that belong to them."""
        text = body.decode(errors="replace")
        choices: list[tuple[bytes, dict[str, str]]] = [
            (b"", {}),
            (body[: self._random.randrange(len(body) + 1)], {}),
            (text.encode("utf-16"), {"content-type": "application/json; charset=utf-16"}),
            (text.encode("utf-8-sig"), {"content-type": "text/html; charset=latin-1"}),
            (body + b"\xff\xfe", {}),
            (b"<html>502 Bad Gateway</html>", {"content-type": "text/html"}),
            (gzip.compress(body)[:-12], {"content-encoding": "gzip"}),
            (body, {"content-encoding": "gzip"}),
            (b"[]", {}),
            (b"null", {}),
            (b'"text"', {}),
            (b"[" * 100_000, {}),
        ]
        return self._random.choice(choices)

    def headers(self, names: Sequence[str]) -> dict[str, str]:
        """Give some of these headers values that are no counts."""
        chosen = [name for name in names if self._random.random() < 0.7]
        return {name: self._random.choice(BAD_COUNTS) for name in chosen}


def _places(
    part: Any,
) -> Iterator[tuple[MutableMapping[Any, Any] | MutableSequence[Any], Any]]:
    """Every place inside of a value where another value can stand."""
    named = part.items() if isinstance(part, dict) else enumerate(part)
    for name, value in list(named):
        yield part, name
        if isinstance(value, dict | list):
            yield from _places(value)
