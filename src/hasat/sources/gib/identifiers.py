"""Identifiers: tax numbers (VKN) and identity numbers (TCKN), and texts that were meant as one.

The checksum of an identifier is only information: most identifiers of the test lists fail it.
"""

import re
import unicodedata
from dataclasses import dataclass
from operator import getitem
from typing import Any, Literal

from hasat.errors import UsageError
from hasat.messages import Language, Message, msg, template, translate

Kind = Literal["VKN", "TCKN"]

_VKN_DIGITS = 10
_TCKN_DIGITS = 11
_LENGTHS: dict[int, Kind] = {_VKN_DIGITS: "VKN", _TCKN_DIGITS: "TCKN"}

_SCIENTIFIC = re.compile(r"(\d)(?:[.,](\d+))?[eE]\+?(\d{1,2})")
_DECIMAL_ZEROS = re.compile(r"(\d+|\d{1,3}(?:(?P<group>[., ])\d{3})+(?!(?P=group)))[.,]0{1,2}")
# What a spreadsheet makes of a number that looks like one, or a column of dates.
_DATE = re.compile(
    r"(?:[0-2]?\d|3[01])[./-](?:0?\d|1[0-2])[./-](?:19|20)\d\d(?:[ T].*)?"
    r"|(?:19|20)\d\d-(?:0\d|1[0-2])-(?:[0-2]\d|3[01])(?:[ T].*)?"
)
_SEPARATORS = re.compile(r"[\s.,'’`/_-]+")
# Letters that people and text recognition put in place of digits.
_LOOK_ALIKES = str.maketrans("OoΟοОоIlıİi|", "000000111111")
_DIGITS_AND_LOOK_ALIKES = re.compile("[0-9OoΟοОоIlıİi|]+")
_MIN_DIGITS = 5


class MalformedIdentifierError(UsageError):
    """The text is neither a VKN (10 digits) nor a TCKN (11), so nothing was looked up."""

    code = "malformed-identifier"
    title = template("Not an identifier")


@dataclass(frozen=True)
class Malformation:
    """The reason why a text is not an identifier, and the one that was likely meant."""

    reason: Message
    likely: str | None


def kind_of(identifier: str) -> Kind | None:
    """Return the kind of an identifier by its length; None if it is malformed."""
    if not (identifier.isascii() and identifier.isdigit()):
        return None
    return _LENGTHS.get(len(identifier))


def find_malformation(text: str) -> Malformation | None:
    """Return why a text cannot be an identifier; None if it can.

    Spreadsheets drop leading zeros, add spaces, apostrophes and decimals, and write long numbers in
    scientific notation. The likely identifier is only suggested, never looked up.
    """
    if kind_of(text) is not None:
        return None
    plain = _visible(text).strip()
    if found := _SCIENTIFIC.fullmatch(plain):
        first, rest, exponent = found[1], found[2] or "", int(found[3])
        exact = len(rest) == exponent
        return Malformation(
            msg("is in scientific notation"), _with_zeros(first + rest) if exact else None
        )
    if whole := _DECIMAL_ZEROS.fullmatch(plain):
        return Malformation(msg("has decimals"), _with_zeros(_digits(whole[1])))
    if _DATE.fullmatch(plain):
        return Malformation(msg("is a date"), None)
    digits = _digits(plain)
    if not digits:
        return Malformation(msg("has no digits") if plain else msg("is empty"), None)
    number = _SEPARATORS.sub("", plain)
    mistyped = number != digits and len(digits) >= _MIN_DIGITS
    if mistyped and _DIGITS_AND_LOOK_ALIKES.fullmatch(number):
        likely = _with_zeros(number.translate(_LOOK_ALIKES))
        return Malformation(msg("has letters in place of digits"), likely)
    if number != digits:
        likely = _with_zeros(digits) if len(digits) in _LENGTHS else None
        return Malformation(msg("has characters other than digits"), likely)
    if text == digits or len(digits) not in _LENGTHS:
        reason = msg("has {count} digits, not 10 or 11", count=len(digits))
        return Malformation(reason, _with_zeros(digits))
    return Malformation(
        msg("has spaces or other characters around its digits"), _with_zeros(digits)
    )


def find_padding(identifier: str) -> Malformation | None:
    """Return whether a VKN was filled to the eleven digits of a TCKN, which begins with no zero."""
    vkn = identifier[1:]
    if kind_of(identifier) == "TCKN" and identifier[0] == "0" and has_valid_checksum(vkn):
        return Malformation(msg("has a zero before the 10 digits of a VKN"), vkn)
    return None


def malformed_identifier(identifier: str, found: Malformation) -> MalformedIdentifierError:
    """Return the error for a text that is not an identifier."""
    return MalformedIdentifierError(
        msg(
            "{identifier!r} {reason}; an identifier has 10 digits (VKN) or 11 (TCKN).",
            identifier=identifier[:40],
            reason=found.reason,
            likely=found.likely,
        ),
        remedy=(
            msg("Did you mean {likely}?", likely=found.likely)
            if found.likely
            else msg("Correct it and try again.")
        ),
    )


def check_identifier(identifier: str) -> None:
    """Raise if a text is not an identifier; the checksum does not matter."""
    if (found := find_malformation(identifier)) is not None:
        raise malformed_identifier(identifier, found)


def malformed_entry(identifier: str, found: Malformation, language: Language) -> dict[str, Any]:
    """Return a malformed identifier as the routes show it."""
    return {
        "input": identifier,
        "reason": translate(found.reason, language),
        "likely": found.likely,
    }


def has_valid_checksum(identifier: str) -> bool:
    """Return whether the check digits are right."""
    kind = kind_of(identifier)
    if kind is None:
        return False
    digits = identifier.encode()
    return _is_valid_vkn(digits) if kind == "VKN" else _is_valid_tckn(digits)


def _vkn_part(place: int, digit: int) -> int:
    """Return what a digit at a place adds to the sum that the check digit complements."""
    weight = 9 - place
    step = (digit + weight) % 10
    return (step * 2**weight % 9 or 9) if step else 0


_ZERO = ord("0")
# By place and by the byte of the digit, because answers about thousands need it.
_VKN_PARTS = [bytes(_ZERO) + bytes(_vkn_part(place, n) for n in range(10)) for place in range(9)]


def _is_valid_vkn(digits: bytes) -> bool:
    return digits[9] - _ZERO == -sum(map(getitem, _VKN_PARTS, digits)) % 10


def _is_valid_tckn(text: bytes) -> bool:
    digits = [byte - _ZERO for byte in text]
    if digits[0] == 0:
        return False
    tenth = (7 * sum(digits[0:9:2]) - sum(digits[1:8:2])) % 10
    return digits[9] == tenth and digits[10] == sum(digits[:10]) % 10


def _visible(text: str) -> str:
    """Return the text with ASCII digits and without characters that have no width."""
    letters = unicodedata.normalize("NFKC", text)
    return "".join(
        str(unicodedata.decimal(letter, letter))
        for letter in letters
        if unicodedata.category(letter) != "Cf"
    )


def _digits(text: str) -> str:
    return "".join(letter for letter in text if letter in "0123456789")


def _with_zeros(digits: str) -> str | None:
    """Return a number with the leading zeros of a VKN; None if it is too long or zero."""
    number = digits.lstrip("0")
    if not number or len(number) > _TCKN_DIGITS:
        return None
    return number.zfill(_VKN_DIGITS)
