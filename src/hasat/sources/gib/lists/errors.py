"""Errors that make a whole list unusable.

ListError                   the base; the message says what is wrong and where
├── NotAListError           the content is not a UserList
├── ArchiveError            the ZIP is incomplete, damaged, or has not exactly one XML file
├── TooLargeError           the list is larger, or compressed more, than any real list
├── ListEncodingError       the list is not UTF-8
├── ForbiddenMarkupError    the list declares a document type or entities
├── TruncatedListError      the list ends before its closing tag
├── EmptyListError          the list has no User
├── DamagedListError        too few Users can be read
└── ReplacedListError       the file was replaced while it was read
"""

from hasat.errors import HasatError
from hasat.messages import msg, template

TRY_AGAIN = msg(
    "Nothing was changed. Retry; if it happens again, contact the publisher of the list."
)


class ListError(HasatError):
    """The list is unusable; the message says what is wrong and where."""

    status = 502
    code = "list-unusable"
    title = template("A taxpayer list is unusable")

    def __init__(self, message: str, *, remedy: str | None = TRY_AGAIN) -> None:
        super().__init__(message, remedy=remedy)


class NotAListError(ListError):
    """The content is not a UserList."""

    code = "not-a-list"


class ArchiveError(ListError):
    """The ZIP is incomplete, damaged, or has not exactly one XML file."""

    code = "list-archive"


class TooLargeError(ListError):
    """The list is larger, or compressed more, than any real list."""

    code = "list-too-large"


class ListEncodingError(ListError):
    """The list is not UTF-8."""

    code = "list-encoding"


class ForbiddenMarkupError(ListError):
    """The list declares a document type or entities."""

    code = "list-forbidden-markup"


class TruncatedListError(ListError):
    """The list ends before its closing tag."""

    code = "list-truncated"


class EmptyListError(ListError):
    """The list has no User."""

    code = "list-empty"


class DamagedListError(ListError):
    """Too few Users of the list can be read."""

    code = "list-damaged"


class ReplacedListError(ListError):
    """The file was replaced while it was read."""

    code = "list-replaced"
