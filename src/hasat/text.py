"""Text as Turkish readers and writers expect it."""

import re

_TO_LOWER = str.maketrans({"I": "ı", "İ": "i"})
_TO_UPPER = str.maketrans({"i": "İ", "ı": "I"})
_PERSONAL = re.compile(r"(?<!\d)(\d{3})\d{6}(\d{2})(?!\d)")


def lower(text: str) -> str:
    """Lower case by Turkish rules: I becomes ı, İ becomes i."""
    return text.translate(_TO_LOWER).lower()


def upper(text: str) -> str:
    """Upper case by Turkish rules: i becomes İ, ı becomes I."""
    return text.translate(_TO_UPPER).upper()


def mask_personal_numbers(text: str) -> str:
    """Hide the middle of every eleven-digit number, the form of a Turkish identity number."""
    return _PERSONAL.sub(r"\1******\2", text)
