"""Send one e-mail by SMTP, in bounded time."""

import asyncio
import smtplib
import ssl
from email.message import EmailMessage
from urllib.parse import unquote, urlsplit

from hasat.deliver.webhooks import AttemptResult
from hasat.messages import msg
from hasat.settings.platform_sections import Smtp
from hasat.settings.types import is_loopback

_ACCEPTED = 250


async def send_mail(mail: EmailMessage, smtp: Smtp, *, timeout_seconds: float) -> AttemptResult:
    """Send an e-mail once; a failure is a result, not an exception."""
    if smtp.url is None:
        return AttemptResult(error=msg("HASAT_SMTP_URL is not set; no e-mail can be sent."))
    url = smtp.url.get_secret_value()
    try:
        async with asyncio.timeout(timeout_seconds):
            return await asyncio.to_thread(_send, mail, url, timeout_seconds)
    except TimeoutError:
        return AttemptResult(
            error=msg("No response within {seconds:g} seconds.", seconds=timeout_seconds)
        )
    except smtplib.SMTPResponseException as error:
        text = error.smtp_error
        reason = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
        return AttemptResult(
            error.smtp_code,
            msg(
                "The mail server responded with {code}: {reason}",
                code=error.smtp_code,
                reason=" ".join(reason.split())[:300],
            ),
        )
    except smtplib.SMTPRecipientsRefused as error:
        refused = ", ".join(sorted(error.recipients))
        codes = [code for code, _ in error.recipients.values()]
        return AttemptResult(
            max(codes, default=None),
            msg("The mail server refuses all recipients: {recipients}.", recipients=refused),
        )
    except (smtplib.SMTPException, OSError, ValueError) as error:
        return AttemptResult(
            error=msg(
                "The mail server cannot be used: {error}.", error=str(error) or type(error).__name__
            )
        )


def _send(mail: EmailMessage, url: str, timeout_seconds: float) -> AttemptResult:
    parts = urlsplit(url)
    host = parts.hostname or ""
    context = ssl.create_default_context()
    with _connect(parts.scheme, host, parts.port, timeout_seconds, context) as server:
        server.ehlo()
        is_private = parts.scheme == "smtps"
        if not is_private and server.has_extn("starttls"):
            server.starttls(context=context)
            server.ehlo()
            is_private = True
        if parts.username:
            if not (is_private or is_loopback(host)):
                # Nobody on the way may read the password.
                return AttemptResult(
                    error=msg("The mail server offers no encryption; the password was not sent.")
                )
            server.login(unquote(parts.username), unquote(parts.password or ""))
        # If it refuses some recipients, the others have it: a repetition would reach them twice.
        server.send_message(mail)
    return AttemptResult(_ACCEPTED)


def _connect(
    scheme: str, host: str, port: int | None, timeout: float, context: ssl.SSLContext
) -> smtplib.SMTP:
    if scheme == "smtps":
        return smtplib.SMTP_SSL(host, port or 465, timeout=timeout, context=context)
    return smtplib.SMTP(host, port or 587, timeout=timeout)
