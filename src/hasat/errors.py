"""Every error Hasat raises on purpose, grouped by what the caller should do.

HasatError                      something failed; the message says what and where
├── UsageError                  the call was wrong: change it and call again
│   └── SettingsError           a setting is wrong: change it and start again
├── NotFoundError               the requested object does not exist
├── ConflictError               the state of the object does not allow it
│   └── AlreadyRunningError     a run of the job is queued or running
├── GoneError                   it existed, but no longer: start over from where the error says
├── NotAllowedError             the caller may not do this
│   └── AuthenticationError     the request has no valid credentials
├── TooManyRequestsError        wait, then call again
├── UnavailableError            a part Hasat needs is away: try again later
│   ├── DatabaseError           PostgreSQL cannot be started, reached or used
│   │   └── DatabaseAwayError   it is not reachable now, but may come back by itself
│   └── DiskFullError           a file system is full: free some space and try again
├── BrokenAnswerError           an upstream's response could not be read
├── NothingToDoError            there was nothing to do; not a failure
├── HeldError                   the guard holds a run: approve or reject it
└── OutOfQuotaError             the upstream's budget is spent until a stated time

An error carries a sentence about what happened (the message) and, where there is one, a sentence
about what to do next (the remedy). The command line turns the class into an exit code, the API
into an RFC 9457 problem. Hasat's own texts are messages (see `hasat.messages`), which are
translated where they are shown; what an upstream or PostgreSQL reports is a plain string.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from hasat.messages import join, template


class HasatError(Exception):
    """Something failed; the message says what and where."""

    exit_code: ClassVar[int] = 1
    status: ClassVar[int] = 500
    code: ClassVar[str] = "failed"
    title: ClassVar[str] = template("Operation failed")

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.extensions: Mapping[str, Any] = {}
        """Further members of the problem that the API makes of it."""

    def __str__(self) -> str:
        """Return both sentences; a message again if they are messages."""
        return join((self.message, self.remedy)) if self.remedy else self.message


class UsageError(HasatError):
    """The call was wrong: change it and call again."""

    exit_code = 2
    status = 400
    code = "bad-request"
    title = template("Bad request")


class SettingsError(UsageError):
    """A setting is wrong: change it and start again."""

    status = 500
    code = "bad-settings"
    title = template("Invalid setting")


class NotFoundError(HasatError):
    """The requested object does not exist."""

    status = 404
    code = "not-found"
    title = template("Not found")


class ConflictError(HasatError):
    """The object is in a state that does not allow the operation."""

    status = 409
    code = "conflict"
    title = template("Conflict")


class AlreadyRunningError(ConflictError):
    """A run of the job is queued or running, and its runs do not wait for each other."""

    exit_code = 3
    code = "already-running"
    title = template("Job already queued or running")


class GoneError(HasatError):
    """It existed, but no longer: start over from where the error says."""

    status = 410
    code = "gone"
    title = template("No longer available")


class NotAllowedError(HasatError):
    """The caller may not do this."""

    status = 403
    code = "not-allowed"
    title = template("Not allowed")


class AuthenticationError(NotAllowedError):
    """The request has no credentials, or invalid ones."""

    status = 401
    code = "not-known"
    title = template("Authentication required")


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
    title = template("Temporarily unavailable")
    retry_after = 5.0
    """Seconds after which a caller may try again."""


class DatabaseError(UnavailableError):
    """PostgreSQL cannot be started, reached or used."""

    code = "database-unavailable"
    title = template("Database unavailable")


class DatabaseAwayError(DatabaseError):
    """PostgreSQL is not reachable now, but may come back by itself."""

    code = "database-away"
    title = template("Database not reachable")


class DiskFullError(UnavailableError):
    """A file system is full: free some space and try again."""

    code = "disk-full"
    title = template("Disk full")


class BrokenAnswerError(HasatError):
    """An upstream's response could not be read."""

    status = 502
    code = "broken-answer"
    title = template("Unreadable upstream response")


class NothingToDoError(HasatError):
    """There was nothing to do; not a failure."""

    exit_code = 3
    status = 409
    code = "nothing-to-do"
    title = template("Nothing to do")


class HeldError(HasatError):
    """The guard holds a run: approve or reject it."""

    exit_code = 4
    status = 409
    code = "held"
    title = template("Run held")


class OutOfQuotaError(HasatError):
    """The upstream's budget is spent until a stated time."""

    exit_code = 5
    status = 503
    code = "out-of-quota"
    title = template("Quota exhausted")

    def __init__(
        self, message: str, *, remedy: str | None = None, until: datetime | None = None
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.until = until
