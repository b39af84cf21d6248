"""What can stand in a replica's way, grouped by what it does about it.

UnavailableError (TroubleError)   waits and asks again
StartOverError                    loads the newest archive
DifferentError                    says so; the next start loads the newest archive
everything else                   is for a person to decide: it stops
"""

from hasat.errors import GoneError, HasatError, UnavailableError


class TroubleError(UnavailableError):
    """The server did not answer, or not now; it may say when to ask again."""

    def __init__(self, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(
            message, remedy="Check the address and the server, then start the replica again."
        )
        self.retry_after = retry_after


class StartOverError(GoneError):
    """The feed cannot be gone on with from where the replica stands."""


class DifferentError(HasatError):
    """The replica's rows are not what the server holds at the same place in the feed."""

    code = "replica-differs"
