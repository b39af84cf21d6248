"""Every error Hasat raises on purpose, grouped by what the caller should do.

HasatError                      something failed; the message says what and where
├── UsageError                  the call was wrong: change it and call again
│   └── SettingsError           a setting is wrong: change it and start again
├── NotFoundError               there is no such thing
├── ConflictError               it is being done already, or was decided otherwise
│   └── AlreadyRunningError     a run of the job is queued or running
├── GoneError                   it existed, but no longer: start over from where the error says
├── NotAllowedError             the caller may not do this
│   └── AuthenticationError     the caller did not say who they are
├── TooManyRequestsError        wait, then call again
├── UnavailableError            a part Hasat needs is away: try again later
│   ├── DatabaseError           PostgreSQL cannot be started, reached or used
│   │   └── DatabaseAwayError   it is not there now, but may come by itself
│   └── DiskFullError           a file system has no room: free some and try again
├── BrokenAnswerError           an upstream's answer could not be read
├── NothingToDoError            there was no work; not a failure
├── HeldError                   the guard holds a run: approve or reject it
└── OutOfQuotaError             the upstream's budget is spent until a stated time

An error carries a sentence about what happened (the message) and, where there is one, a sentence
about what to do next (the remedy). The command line turns the class into an exit code, the API
into an RFC 9457 problem; neither invents a text of its own. Texts of Hasat's own are messages (see
`hasat.messages`), which are translated where they are shown; what an upstream or PostgreSQL said
is a plain string.
"""

from datetime import datetime
from typing import ClassVar

from hasat.messages import join, template


class HasatError(Exception):
    """Something failed; the message says what and where."""

    exit_code: ClassVar[int] = 1
    status: ClassVar[int] = 500
    code: ClassVar[str] = "failed"
    title: ClassVar[str] = template("Something failed")

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        """Return both sentences; a message again if they are messages."""
        return join((self.message, self.remedy)) if self.remedy else self.message


class UsageError(HasatError):
    """The call was wrong: change it and call again."""

    exit_code = 2
    status = 400
    code = "bad-request"
    title = template("The request cannot be understood")


class SettingsError(UsageError):
    """A setting is wrong: change it and start again."""

    status = 500
    code = "bad-settings"
    title = template("A setting is wrong")


class NotFoundError(HasatError):
    """There is no such thing."""

    status = 404
    code = "not-found"
    title = template("There is no such thing")


class ConflictError(HasatError):
    """It is being done already, or was decided otherwise."""

    status = 409
    code = "conflict"
    title = template("It cannot be done in this state")


class AlreadyRunningError(ConflictError):
    """A run of the job is queued or running, and its runs do not wait for each other."""

    exit_code = 3
    code = "already-running"
    title = template("The job is queued or running already")


class GoneError(HasatError):
    """It existed, but no longer: start over from where the error says."""

    status = 410
    code = "gone"
    title = template("It is no longer kept")


class NotAllowedError(HasatError):
    """The caller may not do this."""

    status = 403
    code = "not-allowed"
    title = template("Not allowed")


class AuthenticationError(NotAllowedError):
    """The caller did not say who they are, or not in a way that can be believed."""

    status = 401
    code = "not-known"
    title = template("Who is asking?")


class TooManyRequestsError(HasatError):
    """Wait, then call again."""

    status = 429
    code = "too-many-requests"
    title = template("Too many requests")

    def __init__(self, message: str, *, retry_after: float, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.retry_after = retry_after


class UnavailableError(HasatError):
    """A part Hasat needs is away: try again later."""

    status = 503
    code = "unavailable"
    title = template("Not available right now")
    retry_after = 5.0
    """Seconds after which a caller may try again."""


class DatabaseError(UnavailableError):
    """PostgreSQL cannot be started, reached or used."""

    code = "database-unavailable"
    title = template("The database is not available")


class DatabaseAwayError(DatabaseError):
    """PostgreSQL is not there now, but may come by itself."""

    code = "database-away"
    title = template("The database is away")


class DiskFullError(UnavailableError):
    """A file system has no room: free some and try again."""

    code = "disk-full"
    title = template("A disk is full")


class BrokenAnswerError(HasatError):
    """An upstream's answer could not be read."""

    status = 502
    code = "broken-answer"
    title = template("The upstream's answer cannot be read")


class NothingToDoError(HasatError):
    """There was no work; not a failure."""

    exit_code = 3
    status = 409
    code = "nothing-to-do"
    title = template("There is nothing to do")


class HeldError(HasatError):
    """The guard holds a run: approve or reject it."""

    exit_code = 4
    status = 409
    code = "held"
    title = template("The guard holds this run")


class OutOfQuotaError(HasatError):
    """The upstream's budget is spent until a stated time."""

    exit_code = 5
    status = 503
    code = "out-of-quota"
    title = template("The quota is spent")

    def __init__(
        self, message: str, *, remedy: str | None = None, until: datetime | None = None
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.until = until
