"""Logs: readable on a terminal, JSON lines otherwise, and never a secret or a personal number.

The filter works on the finished line, whatever wrote it: our own code, a library, a traceback.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterable
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from hasat.settings import Settings
from hasat.text import HIDDEN, mask_addresses, mask_personal_numbers

# Libraries that report each step of their own work at INFO.
_CHATTY = ("httpcore2", "httpx2", "procrastinate", "psycopg.pool", "pyogrio", "uvicorn")


def redactor(secrets: Iterable[str]) -> Callable[[str], str]:
    """A function that hides secrets, also those in addresses, and all eleven-digit numbers."""
    known = {form for secret in secrets for form in _forms(secret)}
    longest_first = sorted(known, key=len, reverse=True)

    def redact(line: str) -> str:
        for secret in longest_first:
            line = line.replace(secret, HIDDEN)
        return mask_personal_numbers(mask_addresses(line))

    return redact


def configure_logging(settings: Settings, *, stream: TextIO | None = None) -> None:
    """Send every log line of this process, our own and the libraries', through one pipe."""
    stream = stream or sys.stderr
    as_text = settings.log.format == "console" or (
        settings.log.format == "auto" and stream.isatty()
    )
    redact = redactor(settings.secrets())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=not as_text),
        structlog.processors.StackInfoRenderer(),
    ]
    finish: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if as_text:
        # Plain: the rich form prints local variables, headers and keys among them.
        render: Processor = structlog.dev.ConsoleRenderer(
            colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    else:
        shared.append(structlog.processors.format_exc_info)
        render = structlog.processors.JSONRenderer(
            serializer=lambda event, **kw: json.dumps(event, ensure_ascii=False, **kw)
        )

    def render_redacted(logger: WrappedLogger, name: str, event: EventDict) -> str:
        return redact(str(render(logger, name, event)))

    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[*finish, render_redacted]
    )
    handlers: list[logging.Handler] = [logging.StreamHandler(stream)]
    if settings.log.file is not None:
        handlers.append(logging.FileHandler(settings.log.file, encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(formatter)
    logging.basicConfig(handlers=handlers, level=settings.log.level, force=True)
    logging.captureWarnings(True)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLogger().level))
    # Each of its tries while the database is away; who needed the database says so once.
    logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _forms(secret: str) -> tuple[str, ...]:
    """The secret as it is and as it looks inside a JSON string; very short ones hide nothing."""
    if len(secret) < 4:
        return ()
    return secret, json.dumps(secret, ensure_ascii=False)[1:-1]
