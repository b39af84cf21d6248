"""Tax numbers (VKN) and identity numbers (TCKN): form, kind and checksum.

The checksum is only information: most identifiers of the test lists fail it.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

from hasat.errors import UsageError
from hasat.messages import msg, template

Kind = Literal["VKN", "TCKN"]

_VKN_DIGITS = 10
_TCKN_DIGITS = 11
_LENGTHS: dict[int, Kind] = {_VKN_DIGITS: "VKN", _TCKN_DIGITS: "TCKN"}

_SCIENTIFIC = re.compile(r"(\d)(?:[.,](\d+))?[eE]\+?(\d{1,2})")
_DECIMAL_ZEROS = re.compile(r"(\d+)[.,]0{1,2}")
_SEPARATORS = re.compile(r"[\s.,'’`/_-]+")


class MalformedIdentifierError(UsageError):
    """The text is neither a VKN (10 digits) nor a TCKN (11), so nothing was looked up."""

    code = "malformed-identifier"
    title = template("Not an identifier")


@dataclass(frozen=True)
class Malformation:
    """The reason why a text is not an identifier, and the one that was likely meant."""

    reason: str
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
            "is in scientific notation", _with_zeros(first + rest) if exact else None
        )
    if whole := _DECIMAL_ZEROS.fullmatch(plain):
        return Malformation("has decimals", _with_zeros(whole[1]))
    digits = "".join(letter for letter in plain if letter in "0123456789")
    if not digits:
        return Malformation("has no digits" if plain else "is empty", None)
    number = _SEPARATORS.sub("", plain)
    if number != digits:
        likely = digits if len(digits) in _LENGTHS else None
        return Malformation("has characters other than digits", likely)
    if text == digits or len(digits) not in _LENGTHS:
        return Malformation(f"has {len(digits)} digits, not 10 or 11", _with_zeros(digits))
    return Malformation("has spaces or other characters around its digits", digits)


def check_identifier(identifier: str) -> None:
    """Raise if a text is not an identifier; the checksum does not matter."""
    if (found := find_malformation(identifier)) is not None:
        raise MalformedIdentifierError(
            msg(
                "{identifier!r} {reason}; an identifier has 10 digits (VKN) or 11 (TCKN).",
                identifier=identifier[:40],
                reason=found.reason,
            ),
            remedy=(
                msg("Did you mean {likely}?", likely=found.likely)
                if found.likely
                else msg("Correct it and try again.")
            ),
        )


def _visible(text: str) -> str:
    """Return the text with ASCII digits and without characters that have no width."""
    letters = unicodedata.normalize("NFKC", text)
    return "".join(
        str(unicodedata.decimal(letter, letter))
        for letter in letters
        if unicodedata.category(letter) != "Cf"
    )


def _with_zeros(digits: str) -> str | None:
    """Return a number with the leading zeros of a VKN; None if it is too long or zero."""
    number = digits.lstrip("0")
    if not number or len(number) > _TCKN_DIGITS:
        return None
    return number.zfill(_VKN_DIGITS)


def has_valid_checksum(identifier: str) -> bool:
    """Return whether the check digits are right."""
    kind = kind_of(identifier)
    if kind is None:
        return False
    digits = [int(digit) for digit in identifier]
    return _is_valid_vkn(digits) if kind == "VKN" else _is_valid_tckn(digits)


def _is_valid_vkn(digits: list[int]) -> bool:
    total = 0
    for weight, digit in zip(range(9, 0, -1), digits, strict=False):
        step = (digit + weight) % 10
        if step:
            total += (step * 2**weight) % 9 or 9
    return digits[9] == -total % 10


def _is_valid_tckn(digits: list[int]) -> bool:
    if digits[0] == 0:
        return False
    tenth = (7 * sum(digits[0:9:2]) - sum(digits[1:8:2])) % 10
    return digits[9] == tenth and digits[10] == sum(digits[:10]) % 10
