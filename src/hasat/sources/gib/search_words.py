"""Words of titles: the words of a search, common abbreviations, and words that many titles have."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from hasat.text import fold

ABBREVIATIONS: Final = {
    "as": "anonim sirketi",
    "ltd": "limited",
    "sti": "sirketi",
    "san": "sanayi",
    "tic": "ticaret",
    "ith": "ithalat",
    "ihr": "ihracat",
    "ins": "insaat",
    "muh": "muhendislik",
    "paz": "pazarlama",
    "taah": "taahhut",
    "teks": "tekstil",
    "nak": "nakliyat",
    "hiz": "hizmetleri",
    "koop": "kooperatifi",
}
"""Folded abbreviations and the words they stand for; gib.search_words has the same."""

_COMMON: Final = frozenset(
    {*ABBREVIATIONS, "a", "s", "o", "ve", "veya", "ile", "sirket", "dis", "ic", "turizm", "gida"}
    | {word for words in ABBREVIATIONS.values() for word in words.split()}
)
# Short ones are too similar to words of names.
_LONG_COMMON = sorted(word for word in _COMMON if len(word) > 5)
_MIN_LETTERS = 4
_MARKS = re.compile(r"[.,/&()'\"-]+")
_DOMAIN = re.compile(r"@?[\w-]+(?:\.[\w-]+)*\.[a-z]{2,}|[^@\s]+@[^@\s]+")


@dataclass(frozen=True)
class SearchWord:
    """A word of a search: as it was typed, or as all of its parts, each in one of its forms."""

    typed: str
    parts: tuple[tuple[str, ...], ...]


def search_words(text: str) -> Sequence[SearchWord]:
    """Return the words of a search text, folded."""
    return [SearchWord(word, _parts(word)) for word in fold(text).split()]


def distinctive_text(text: str) -> str:
    """Return the distinctive words of a title; all of them if none is distinctive."""
    words = [part for word in search_words(text) for (part, *_) in word.parts]
    return " ".join([word for word in words if not _is_common(word)] or words)


def _is_common(word: str) -> bool:
    """Return whether many titles have a word, or the word that it misspells (`sirkeit`)."""
    return word in _COMMON or bool(get_close_matches(word, _LONG_COMMON, n=1, cutoff=0.8))


def has_letters(text: str) -> bool:
    """Return whether a text has enough letters to be compared with titles."""
    return sum(map(str.isalpha, text)) >= _MIN_LETTERS


def is_address(text: str) -> bool:
    """Return whether a text looks like an alias or a domain."""
    return _DOMAIN.fullmatch(text.strip().lower()) is not None


def _parts(word: str) -> tuple[tuple[str, ...], ...]:
    pieces = [piece for piece in _MARKS.split(word) if piece]
    if len(pieces) > 1 and all(len(piece) == 1 for piece in pieces):
        pieces = ["".join(pieces)]
    return tuple(
        (piece, ABBREVIATIONS[piece]) if piece in ABBREVIATIONS else (piece,) for piece in pieces
    )
