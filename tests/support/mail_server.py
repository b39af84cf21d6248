"""A mail server on loopback that refuses messages on demand."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, Envelope

ACCEPTED = "250 OK"


class MailServer:
    """Notes every message that it accepts; `respond` says what the nth one gets."""

    def __init__(self) -> None:
        self.accepted: list[EmailMessage] = []
        self.logins: list[tuple[str, str]] = []
        self.respond: Callable[[EmailMessage], str] = lambda mail: ACCEPTED
        self.url = ""

    async def handle_DATA(  # noqa: N802 - the name that aiosmtpd calls
        self, server: Any, session: Any, envelope: Envelope
    ) -> str:
        assert isinstance(envelope.content, bytes)
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        mail["X-Envelope-To"] = ", ".join(envelope.rcpt_tos)
        response = self.respond(mail)
        if response == ACCEPTED:
            self.accepted.append(mail)
        return response

    def authenticate(
        self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any
    ) -> AuthResult:
        self.logins.append((data.login.decode(), data.password.decode()))
        return AuthResult(success=data.password == b"p@ss word", handled=False)


class _Controller(Controller):
    """A controller on a port that the system chooses."""

    def _trigger_server(self) -> None:
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@contextmanager
def mail_server() -> Iterator[MailServer]:
    server = MailServer()
    controller = _Controller(
        server,
        hostname="127.0.0.1",
        port=0,
        authenticator=server.authenticate,
        auth_require_tls=False,
    )
    controller.start()
    try:
        server.url = f"smtp://127.0.0.1:{controller.port}"
        yield server
    finally:
        controller.stop()
