"""Words of titles: the words of a search, common abbreviations, and words that many titles have."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache
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
_MIN_LIKENESS = 0.6
_COMMON_WEIGHT = 0.2
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


@dataclass(frozen=True)
class TitleRank:
    """How well a title matches a misspelt text."""

    score: float
    is_likely: bool
    """Whether the title has a word like each one of the text."""


class TitleRanking:
    """Compares a text with titles word by word, in any order and with abbreviations."""

    def __init__(self, text: str) -> None:
        self._words = _written_out(text)

    def rank(self, title: str) -> TitleRank:
        """Return how well a title matches."""
        rest = _written_out(title)
        unmatched = sum(map(_weight, rest))
        total = unmatched + sum(map(_weight, self._words))
        likenesses: dict[str, float] = {}
        # Equal words first: a misspelt word is none of them.
        for word in self._words:
            if word in rest:
                rest.remove(word)
                likenesses[word] = 1.0
        for word in self._words:
            if word in likenesses or not rest:
                continue
            closest = max(rest, key=lambda other: _likeness(word, other))
            likeness = _likeness(word, closest)
            if likeness >= _MIN_LIKENESS:
                rest.remove(closest)
                likenesses[word] = likeness
        matched = sum(_weight(word) * likenesses.get(word, 0.0) for word in self._words)
        return TitleRank(
            2 * matched / total if total else 0.0, all(word in likenesses for word in self._words)
        )


def _written_out(text: str) -> list[str]:
    """Return the words of a text, with its abbreviations written out."""
    return [word for one in search_words(text) for forms in one.parts for word in forms[-1].split()]


def _weight(word: str) -> float:
    return _COMMON_WEIGHT if _is_common(word) else 1.0


@lru_cache(maxsize=10_000)
def _likeness(word: str, other: str) -> float:
    """Return how much of two words is the same, from 0 to 1."""
    return SequenceMatcher(None, word, other, autojunk=False).ratio()


@lru_cache(maxsize=10_000)
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
