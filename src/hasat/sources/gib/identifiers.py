"""Tax numbers (VKN) and identity numbers (TCKN): their kind and checksum, as information only.

Most identifiers of the test lists fail their checksum, so it never decides about anything.
"""

from typing import Literal

Kind = Literal["VKN", "TCKN"]


def kind_of(identifier: str) -> Kind | None:
    """What the number's length says it is."""
    if not (identifier.isascii() and identifier.isdigit()):
        return None
    lengths: dict[int, Kind] = {10: "VKN", 11: "TCKN"}
    return lengths.get(len(identifier))


def has_valid_checksum(identifier: str) -> bool:
    """Whether the check digits fit."""
    kind = kind_of(identifier)
    if kind is None:
        return False
    digits = [int(digit) for digit in identifier]
    return _vkn(digits) if kind == "VKN" else _tckn(digits)


def _vkn(digits: list[int]) -> bool:
    total = 0
    for weight, digit in zip(range(9, 0, -1), digits, strict=False):
        step = (digit + weight) % 10
        if step:
            total += (step * 2**weight) % 9 or 9
    return digits[9] == -total % 10


def _tckn(digits: list[int]) -> bool:
    if digits[0] == 0:
        return False
    tenth = (7 * sum(digits[0:9:2]) - sum(digits[1:8:2])) % 10
    return digits[9] == tenth and digits[10] == sum(digits[:10]) % 10
