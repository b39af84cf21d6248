"""Why a request is turned away: the errors that only an HTTP server has."""

from hasat.errors import (
    AuthenticationError,
    HasatError,
    NotAllowedError,
    NotFoundError,
    UsageError,
)
from hasat.messages import template


class CredentialsMalformedError(AuthenticationError):
    """The credentials do not have the form that Hasat hands out, or came in more than one way."""

    code = "credentials-malformed"
    title = template("The credentials cannot be read")


class KeyUnknownError(AuthenticationError):
    """No API key of this server has this value."""

    code = "key-unknown"
    title = template("This API key is not known")


class KeyExpiredError(AuthenticationError):
    """The API key was made for a limited time, and that time is over."""

    code = "key-expired"
    title = template("This API key has expired")


class KeyRevokedError(AuthenticationError):
    """The API key was revoked by an operator."""

    code = "key-revoked"
    title = template("This API key was revoked")


class SignatureWrongError(AuthenticationError):
    """No client has this access key, or the signature was not made with its secret."""

    code = "signature-wrong"
    title = template("The signature is not valid")


class TimestampOutsideError(AuthenticationError):
    """The request was signed too long ago, or in the future: the two clocks must agree."""

    code = "timestamp-outside"
    title = template("The timestamp is outside of the tolerance")


class HostNotAllowedError(NotAllowedError):
    """The request was sent to a name that this server does not answer for.

    A server on loopback answers only for loopback names, so that no web page can reach it
    through a name of its own.
    """

    code = "host-not-allowed"
    title = template("This server does not answer for that name")


class OriginNotAllowedError(NotAllowedError):
    """A page of another site tried to change something here."""

    code = "origin-not-allowed"
    title = template("Requests of other sites change nothing")


class NoSuchPathError(NotFoundError):
    """No operation of this server has the path: the address is wrong, whatever it asks about."""

    code = "no-such-path"
    title = template("There is nothing at this address")


class MethodNotAllowedError(UsageError):
    """The path exists, but not for this method; the header Allow lists those it has."""

    status = 405
    code = "method-not-allowed"
    title = template("Not with this method")


class BodyTooLargeError(UsageError):
    """The body of the request is larger than this route takes in."""

    status = 413
    code = "body-too-large"
    title = template("The body is too large")


class InvalidInputError(UsageError):
    """Values of the request cannot be used; `errors` lists each with its place and reason."""

    status = 422
    code = "invalid-input"
    title = template("Some values cannot be used")


class UnexpectedError(HasatError):
    """A fault in Hasat itself; its log holds the details under the answer's requestId."""

    code = "unexpected"
    title = template("Something went wrong inside Hasat")
