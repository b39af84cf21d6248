"""Logs: readable on a terminal, JSON lines otherwise, and never a secret or a personal number.

The filter works on the finished line, whatever wrote it: our own code, a library, a traceback.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from hasat.errors import SettingsError
from hasat.messages import msg
from hasat.settings import Settings
from hasat.telemetry import current_ids
from hasat.text import HIDDEN, mask_addresses, mask_personal_numbers

# Libraries that report each step of their own work at INFO.
_CHATTY = ("httpcore2", "httpx2", "procrastinate", "psycopg.pool", "pyogrio", "uvicorn")


@dataclass(frozen=True)
class LogLine:
    """A log line with its fields; secrets are not masked yet."""

    at: datetime
    level: str
    event: str
    fields: Mapping[str, Any]


_receiver: ContextVar[Callable[[LogLine], None] | None] = ContextVar("receiver", default=None)


@contextmanager
def capture_lines(receive: Callable[[LogLine], None]) -> Iterator[None]:
    """Pass every line that this task and its children log to a function, whatever the log level."""
    token = _receiver.set(receive)
    try:
        yield
    finally:
        _receiver.reset(token)


def _copy_line(_logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    receive = _receiver.get()
    if receive is not None and method != "debug":
        fields = {name: value for name, value in event.items() if name != "event"}
        error = sys.exc_info()[1] if fields.pop("exc_info", None) else None
        if error is not None:
            fields["exception"] = f"{type(error).__name__}: {error}"
        level = "error" if method == "exception" else method
        receive(LogLine(datetime.now(UTC), level, str(event.get("event", "")), fields))
    return event


def redactor(secrets: Iterable[str]) -> Callable[[str], str]:
    """Return a function that masks secrets, credentials in addresses and eleven-digit numbers."""
    known = {form for secret in secrets for form in _forms(secret)}
    longest_first = sorted(known, key=len, reverse=True)

    def redact(line: str) -> str:
        for secret in longest_first:
            line = line.replace(secret, HIDDEN)
        return mask_personal_numbers(mask_addresses(line))

    return redact


def configure_logging(settings: Settings, *, stream: TextIO | None = None) -> None:
    """Send every log line of this process, including those of libraries, through one pipeline."""
    stream = stream or sys.stderr
    as_text = settings.log.format == "console" or (
        settings.log.format == "auto" and stream.isatty()
    )
    redact = redactor(settings.secrets())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _add_trace,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=not as_text),
        structlog.processors.StackInfoRenderer(),
    ]
    if as_text:
        # Plain: the rich form prints local variables, headers and keys among them.
        render: Processor = structlog.dev.ConsoleRenderer(
            colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    else:
        shared.append(structlog.processors.format_exc_info)
        # One encoder for all lines, because making one costs more than a line.
        encode = json.JSONEncoder(ensure_ascii=False, default=_as_json).encode
        render = structlog.processors.JSONRenderer(serializer=lambda event, **_: encode(event))

    def render_redacted(logger: WrappedLogger, name: str, event: EventDict) -> str:
        return redact(str(render(logger, name, event)))

    formatter = _Formatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, render_redacted],
    )
    handlers: list[logging.Handler] = [logging.StreamHandler(stream)]
    if settings.log.file is not None:
        handlers.append(_open_log_file(settings.log.file, stream))
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
            _copy_line,
            structlog.stdlib.filter_by_level,
            *shared,
            render_redacted,
        ],
        logger_factory=_LineLoggerFactory(handlers),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


class _Line:
    """A finished line, in the place of a record."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Formats the records of libraries; our own lines are finished."""

    def format(self, record: logging.LogRecord | _Line) -> str:
        return record.text if isinstance(record, _Line) else super().format(record)


class _LineLogger:
    """Writes finished lines without a record for each, which costs more than the line itself."""

    def __init__(self, logger: logging.Logger, handlers: Sequence[logging.Handler]) -> None:
        self.name = logger.name
        self.disabled = False
        self.getEffectiveLevel = logger.getEffectiveLevel
        self._handlers = handlers

    def write(self, line: str) -> None:
        for handler in self._handlers:
            handler.handle(_Line(line))  # type: ignore[arg-type]

    debug = info = warning = error = critical = exception = write


class _LineLoggerFactory(structlog.stdlib.LoggerFactory):
    """Names loggers as structlog does, by their module unless a name is given."""

    def __init__(self, handlers: Sequence[logging.Handler]) -> None:
        super().__init__()
        self._handlers = handlers

    def __call__(self, *names: object) -> Any:
        return _LineLogger(super().__call__(*names), self._handlers)


def _as_json(value: object) -> object:
    """Return what a line shows of a value that JSON does not have."""
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def _add_trace(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Add the ids of the current trace and span."""
    if (ids := current_ids()) is not None:
        event["trace_id"], event["span_id"] = ids
    return event


class _LogFile(logging.FileHandler):
    """A log file; while it cannot be written, one message on stderr reports that."""

    def __init__(self, path: Path, stream: TextIO) -> None:
        super().__init__(path, encoding="utf-8")
        self._elsewhere = stream
        self._failures = 0

    def emit(self, record: logging.LogRecord) -> None:
        failures = self._failures
        super().emit(record)
        if failures == self._failures:
            self._failures = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._failures += 1
        if self._failures == 1:
            self._elsewhere.write(f"hasat: {_not_writable(self.baseFilename, error)}\n")

    def close(self) -> None:
        # Lines that could not be written are lost.
        with suppress(OSError):
            super().close()


def _open_log_file(path: Path, stream: TextIO) -> _LogFile:
    try:
        return _LogFile(path, stream)
    except OSError as error:
        raise SettingsError(
            _not_writable(path, error),
            remedy=msg("Name a file in an existing folder in log.file (HASAT_LOG_FILE)."),
        ) from error


def _not_writable(path: Path | str, error: OSError) -> str:
    return f"The log file {path} cannot be written: {error.strerror}."


def _forms(secret: str) -> tuple[str, ...]:
    """Return the secret as it is and as in a JSON string; very short ones are not masked."""
    if len(secret) < 4:
        return ()
    return secret, json.dumps(secret, ensure_ascii=False)[1:-1]
