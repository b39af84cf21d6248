"""What can be wrong with a whole list. Each of these means: nothing of it may be used.

ListError                   the list cannot be used; the message says what and where
├── NotAListError           it is something else than a UserList
├── ArchiveError            the ZIP is cut off, damaged, or not of one XML file
├── TooLargeError           it is larger, or packed tighter, than any real list
├── ListEncodingError       it is not written in UTF-8
├── ForbiddenMarkupError    it declares a document type or entities
├── TruncatedListError      it ends before its end
├── EmptyListError          it names nobody
├── DamagedListError        too little of it is legible
└── ReplacedListError       the file became another one while it was read
"""

from hasat.errors import HasatError
from hasat.messages import msg, template

TRY_AGAIN = msg(
    "Nothing was changed. Fetch the list again; if it stays so, the publisher must mend it."
)


class ListError(HasatError):
    """The list cannot be used; the message says what and where."""

    status = 502
    code = "list-unusable"
    title = template("A taxpayer list cannot be used")

    def __init__(self, message: str, *, remedy: str | None = TRY_AGAIN) -> None:
        super().__init__(message, remedy=remedy)


class NotAListError(ListError):
    """It is something else than a UserList."""

    code = "not-a-list"


class ArchiveError(ListError):
    """The ZIP is cut off, damaged, or not of one XML file."""

    code = "list-archive"


class TooLargeError(ListError):
    """It is larger, or packed tighter, than any real list."""

    code = "list-too-large"


class ListEncodingError(ListError):
    """It is not written in UTF-8."""

    code = "list-encoding"


class ForbiddenMarkupError(ListError):
    """It declares a document type or entities."""

    code = "list-forbidden-markup"


class TruncatedListError(ListError):
    """It ends before its end."""

    code = "list-truncated"


class EmptyListError(ListError):
    """The list names nobody at all."""

    code = "list-empty"


class DamagedListError(ListError):
    """Too little of it is legible."""

    code = "list-damaged"


class ReplacedListError(ListError):
    """The file became another one while it was read."""

    code = "list-replaced"
