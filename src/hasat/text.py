"""Text as Turkish readers and writers expect it."""

import re
import unicodedata

_TO_LOWER = str.maketrans({"I": "ı", "İ": "i"})
_TO_UPPER = str.maketrans({"i": "İ", "ı": "I"})
HIDDEN = "********"
# Above it, JSON readers and spreadsheets that calculate in doubles lose digits.
MAX_EXACT_INTEGER = 2**53
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>]+")
_TELLING = re.compile(r"token|key|secret|sig|pass|pwd|auth|code|cred|session", re.IGNORECASE)
# A class of letters first, which the engine finds several times as fast as what looks behind.
_DIGITS = re.compile(r"\d\d{10,}")


def lower(text: str) -> str:
    """Return lower case by Turkish rules: I becomes ı, İ becomes i."""
    return text.translate(_TO_LOWER).lower()


def upper(text: str) -> str:
    """Return upper case by Turkish rules: i becomes İ, ı becomes I."""
    return text.translate(_TO_UPPER).upper()


def fold(text: str) -> str:
    """Return the search form of a text: no case, no marks on Latin letters, single spaces.

    I, ı, İ and i are one letter here, so that a title is found in any case and by those who type
    without Turkish letters. The SQL function core.fold does exactly the same; a test compares them.
    """
    return _SPACES.sub(" ", text.translate(_FOLDED)).strip(" ")


def mask_personal_numbers(text: str) -> str:
    """Hide the middle of every eleven-digit number, the form of a Turkish identity number."""
    return _DIGITS.sub(_mask_eleven, text)


def _mask_eleven(found: re.Match[str]) -> str:
    digits = found[0]
    return f"{digits[:3]}******{digits[9:]}" if len(digits) == 11 else digits


def mask_address(address: str) -> str:
    """Hide what may be secret in an address: credentials, values of the query, the fragment."""
    return _masked(address, every=True)


def mask_addresses(text: str) -> str:
    """Mask credentials and secret-looking query values of every address in a text."""
    if "://" not in text:
        return text
    return _ADDRESS.sub(lambda found: _masked(found[0], every=False), text)


def _masked(address: str, *, every: bool) -> str:
    before, hash_, fragment = address.partition("#")
    place, mark, query = before.partition("?")
    scheme, slashes, rest = place.partition("://")
    # An unescaped password may have a slash in it; a path of the web may have an @.
    web = scheme.lower() in ("http", "https", "ws", "wss")
    host, slash, path = rest.partition("/") if web else (rest, "", "")
    if slashes and "@" in host:
        place = f"{scheme}://{HIDDEN}@{host.rpartition('@')[2]}{slash}{path}"
    pairs = []
    for pair in query.split("&"):
        name, equals, _ = pair.partition("=")
        if pair and (every or _TELLING.search(name)):
            pair = f"{name}={HIDDEN}" if equals else HIDDEN
        pairs.append(pair)
    if fragment and (every or _TELLING.search(fragment)):
        fragment = HIDDEN
    return f"{place}{mark}{'&'.join(pairs)}{hash_}{fragment}"


def csv_text(text: str) -> str:
    """Return a text as a cell that a spreadsheet shows and does not calculate.

    A text that could begin a formula gets an apostrophe in front, as OWASP advises. Numbers are
    written as they are and do not pass through this function.
    """
    return f"'{text}" if _FORMULA.match(text) else text


def _plain_letter(letter: str) -> str:
    """Return a letter without case and marks: Ş is s, Æ is æ."""
    base = unicodedata.normalize("NFD", letter)[0].lower()
    return _UNMARKED.get(base, base)


# Letters whose mark Unicode does not take for one.
_UNMARKED = dict(zip("ıøđłħŧſŀŉ", "iodlhtsln", strict=True))
# The full-width signs begin a formula too, in East Asian versions of Excel.
_FORMULA = re.compile("[\\s\\x00-\\x1f\ufeff]*[=+\\-@\uff1d\uff0b\uff0d\uff20]|[\\t\\r\\n]")
_SPACES = re.compile(" {2,}")
_FOLDED: dict[int, str | None] = {
    **{ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"},
    **{code: _plain_letter(chr(code)) for code in range(0xC0, 0x180) if chr(code).isalpha()},
    ord("ẞ"): "ß",
    **dict.fromkeys(map(ord, "\t\n\r\u00a0\u2003\u2009\u202f\u3000"), " "),
    # Marks that stand alone, the soft hyphen, and what has no width.
    **dict.fromkeys([*range(0x300, 0x370), 0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF]),
}
