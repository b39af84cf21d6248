"""The signed requests of the original GIB service, checked as it checked them.

X-Signature is the hex form of HMAC-SHA256(secret, "METHOD\\nPATH?QUERY\\nTIMESTAMP"): path and
query as they were sent, without `?` when there is no query. The body is not signed and a request
can be repeated within the tolerance, which is why a signature only ever grants `read`.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from hasat.api.refusals import (
    CredentialsMalformedError,
    SignatureWrongError,
    TimestampOutsideError,
)
from hasat.clock import Clock, system_clock
from hasat.http.routes import Caller
from hasat.messages import msg
from hasat.settings import Settings

_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_SIGNATURE = re.compile(r"[0-9a-fA-F]{64}")
_NOBODYS_SECRET = secrets.token_bytes(32)


@dataclass(frozen=True)
class SignedRequest:
    """What the signature covers, as it was sent."""

    method: str
    path: bytes
    query: bytes
    access_key: str
    timestamp: str
    signature: str

    def text(self) -> bytes:
        target = self.path + b"?" + self.query if self.query else self.path
        return b"\n".join((self.method.encode(), target, self.timestamp.encode()))


class SignatureVerifier:
    """The clients of settings.authentication, who sign their requests."""

    def __init__(self, settings: Settings, *, clock: Clock = system_clock) -> None:
        self._clients = {
            client.access_key: (
                client.name or client.access_key,
                client.secret_key.get_secret_value().encode(),
                client.per_minute,
            )
            for client in settings.authentication.clients
        }
        self._tolerance = settings.authentication.timestamp_tolerance_seconds
        self._clock = clock

    def check(self, request: SignedRequest) -> Caller:
        """Who signed this; every check is made for everyone, so that time tells nothing."""
        name, secret, per_minute = self._clients.get(
            request.access_key, (None, _NOBODYS_SECRET, None)
        )
        expected = hmac.new(secret, request.text(), hashlib.sha256).digest()
        readable = _SIGNATURE.fullmatch(request.signature) is not None
        given = bytes.fromhex(request.signature) if readable else bytes(32)
        genuine = hmac.compare_digest(expected, given)
        if not readable:
            raise CredentialsMalformedError(
                msg("X-Signature is not the hex form of an HMAC-SHA256."),
                remedy=msg("It has 64 characters of 0-9 and a-f."),
            )
        self._check_time(request.timestamp)
        if name is None or not genuine:
            raise SignatureWrongError(
                msg("The access key is not known, or the signature does not fit the request."),
                remedy=msg('Sign "METHOD\\nPATH?QUERY\\nTIMESTAMP" with path and query as sent.'),
            )
        caller_id = f"client:{request.access_key}"
        return Caller(
            caller_id,
            name,
            frozenset({"read"}),
            bucket=caller_id,
            per_minute=per_minute,
            kind="signature",
        )

    def _check_time(self, timestamp: str) -> None:
        if _TIMESTAMP.fullmatch(timestamp) is None:
            raise CredentialsMalformedError(
                msg("X-Timestamp is not a number of seconds."),
                remedy=msg("Send whole seconds since 1970-01-01 UTC."),
            )
        now = self._clock().timestamp()
        if abs(now - int(timestamp)) > self._tolerance:
            raise TimestampOutsideError(
                msg(
                    "X-Timestamp differs from the time here ({now:.0f}) by more than "
                    "{tolerance} seconds.",
                    now=now,
                    tolerance=self._tolerance,
                ),
                remedy=msg("Set the clock of the calling machine, and sign each request anew."),
            )
